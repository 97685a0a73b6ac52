"""Whatever is read as a file: a pipe, a device, a socket, a directory, a terabyte. None holds a verb."""

import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from registries import FakeRegistry

from bareboat.cli.main import main
from bareboat_base.errors import BareboatError
from bareboat_base.files import untrusted
from bareboat_base.toml import TomlFile
from bareboat_images.registry import credentials
from bareboat_images.registry.http import tls_context
from bareboat_images.registry.location import parse_url
from bareboat_images.registry.options import Options
from bareboat_images.signatures import place, policy

#: Who waits for a file waits for ever: this is how a test of it ends.
LONGEST_S = 10


@pytest.fixture(autouse=True)
def in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(LONGEST_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # of the working directory: such paths are short


def directory(path: Path) -> None:
    path.mkdir()


def terabyte(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


def circle(path: Path) -> None:
    path.symlink_to(path.name)


OBSTACLES = [fifo, device, listening, directory, terabyte, circle]
obstacles = pytest.mark.parametrize("put", OBSTACLES, ids=[put.__name__ for put in OBSTACLES])
Put = Callable[[Path], None]


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    assert main([*words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("  try: ")
    return err


@obstacles
@pytest.mark.parametrize("verb", ["plan", "run", "submit"])
def test_job_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], put: Put, verb: str) -> None:
    put(tmp_path / "x")
    assert "x " in refused(capsys, verb, "x").splitlines()[0]


@obstacles
def test_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str], put: Put) -> None:
    put(tmp_path / "x")
    (tmp_path / ".config/bareboat").mkdir(parents=True)
    os.rename("x", ".config/bareboat/site.toml")
    if put is not circle:  # which is there for nobody
        for words in (
            ["config"],
            ["plan", "--", "true"],
        ):
            assert "site.toml" in refused(capsys, *words)


@obstacles
def test_project_file_is_passed_over_or_refused(tmp_path: Path, put: Put) -> None:
    """Anybody could put one into a directory that all may write to."""
    put(tmp_path / "bareboat.toml")
    assert main(["config"]) == (2 if put is terabyte else 0)


@obstacles
def test_log_ins(tmp_path: Path, put: Put) -> None:
    put(tmp_path / "auth.json")
    with pytest.raises(BareboatError) as caught:
        credentials.find("quay.io", "x", {"REGISTRY_AUTH_FILE": str(tmp_path / "auth.json")})
    assert "auth.json" in caught.value.message
    assert caught.value.remedy


@obstacles
@pytest.mark.parametrize("how", ["ca_file", "SSL_CERT_FILE", "certs.d"])
def test_certificates(tmp_path: Path, put: Put, how: str) -> None:
    path = tmp_path / "ca.crt"
    put(path)
    environment = {"HOME": str(tmp_path)}
    if how == "SSL_CERT_FILE":
        environment[how] = str(path)
    if how == "certs.d":
        kept = tmp_path / ".config/containers/certs.d/quay.io"
        kept.mkdir(parents=True)
        os.rename(path, kept / path.name)
        if put is circle:
            return
    chosen = Options(environment=environment, ca_file=str(path) if how == "ca_file" else None)
    with pytest.raises(BareboatError) as caught:
        tls_context(parse_url("https://quay.io/"), chosen)
    assert "ca.crt" in caught.value.message
    assert isinstance(ssl.create_default_context(), ssl.SSLContext)


@obstacles
def test_ca_file_of_a_pull(tmp_path: Path, capsys: pytest.CaptureFixture[str], put: Put) -> None:
    put(tmp_path / "ca.pem")
    with FakeRegistry() as fake:
        refused(capsys, "image", "pull", "--ca-file", "ca.pem", f"{fake.address}/x:1", code=2)
        assert not fake.asked


@obstacles
def test_signature_policy(tmp_path: Path, put: Put) -> None:
    put(tmp_path / "policy.json")
    with pytest.raises(BareboatError, match=r"policy\.json (is |cannot be read)") as caught:
        policy.load(str(tmp_path / "policy.json"))
    assert caught.value.remedy
    assert not place.requires_nothing(str(tmp_path / "policy.json"), {})


@obstacles
def test_images(tmp_path: Path, capsys: pytest.CaptureFixture[str], put: Put) -> None:
    put(tmp_path / "x")
    for form in ("oci-archive", "docker-archive", "sif", "squashfs"):
        refused(capsys, "image", "pull", f"{form}:x", code=6)
    refused(capsys, "image", "load", "x", code=6)


def test_the_kind_is_named(tmp_path: Path) -> None:
    kinds = {fifo: "a pipe", device: "a device", listening: "a socket", directory: "a directory"}
    for put, kind in kinds.items():
        put(tmp_path / put.__name__)
        with pytest.raises(untrusted.UntrustedFileError, match=f"is {kind}, not a regular file"):
            untrusted.read_bytes(tmp_path / put.__name__, follow=True)


def test_a_link_of_the_user_s_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("a = 1\n")
    (tmp_path / "link.toml").symlink_to("job.toml")
    assert TomlFile(tmp_path / "link.toml").values == {"a": 1}
    with pytest.raises(untrusted.UntrustedFileError, match="symbolic link"):
        untrusted.read_bytes(tmp_path / "link.toml")


def test_a_mistake_in_a_long_file_is_found_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parsing ever longer beginnings of it would take minutes."""
    lines = [f'X{number} = """\n[{number}]\n"""' for number in range(20_000)]
    (tmp_path / "job.toml").write_text("command = ['true']\n[environment]\n" + "\n".join(lines) + "\nY = 1\n")
    err = refused(capsys, "plan", "job.toml")
    assert "environment.Y is 1; it must be text in quotes" in err
    assert "job.toml, line 60003" in err
