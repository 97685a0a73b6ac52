"""The shim of udocker: its table, and what it shares with that of Docker."""

from pathlib import Path

import pytest
from images import tar

from bareboat_base.errors import UsageError
from bareboat_shim import docker_options, local_images
from bareboat_shim.main import main
from bareboat_shim.table import Malformed, Mistake
from bareboat_shim.udocker_table import TABLE


def test_variables_come_from_the_command_line_the_shell_and_files(tmp_path: Path) -> None:
    outside = {"SHELL_S": "outside"}
    assert docker_options.variables(["A=1=2", "SHELL_S", "NONE", "EMPTY="], outside) == {
        "A": "1=2",
        "SHELL_S": "outside",
        "EMPTY": "",
    }
    with pytest.raises(Malformed):
        docker_options.variables(["=1"], outside)
    file = tmp_path / "variables"
    file.write_text("# none\n\nA='quotes stay'\nSHELL_S\n")
    assert docker_options.of_file(str(file), outside) == {"A": "'quotes stay'", "SHELL_S": "outside"}
    with pytest.raises(Mistake, match="cannot read"):
        docker_options.of_file(str(tmp_path / "none"), outside)


def test_users_are_looked_up_by_name_and_id(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text(
        "damaged\nroot:x:0:0:root:/root:/bin/sh\na:x:\u00b2:0::/:\nb:x:1:1:\fc:x:0:0::/:::/:\n"
        "eve:x:7:8::/home/eve:/bin/sh\n"
    )
    passwd = str(tmp_path / "passwd")
    eve = docker_options.Entry("eve", 7, 8, "/home/eve")
    assert docker_options.entry(passwd, "eve") == docker_options.entry(passwd, "7") == eve
    assert docker_options.entry(passwd, "adam") is docker_options.entry(None, "eve") is None
    assert docker_options.entry(passwd, "\u00b2") is docker_options.entry(passwd, "c") is None


@pytest.mark.parametrize(
    ("text", "written", "local", "reference"),
    [
        ("debian", "debian:latest", "debian:latest", "docker.io/library/debian:latest"),
        ("lab/box:1", "lab/box:1", "lab-.box:1", "docker.io/lab/box:1"),
        ("localhost:5000/a:2", "localhost:5000/a:2", "localhost.-5000-.a:2", "localhost:5000/a:2"),
        ("docker.io/library/debian:12", "debian:12", "debian:12", "docker.io/library/debian:12"),
    ],
)  # fmt: skip
def test_images_have_docker_s_names(text: str, written: str, local: str, reference: str) -> None:
    name = docker_options.name(text)
    assert (name.written, name.local, name.reference) == (written, local, reference)
    assert docker_options.of_store(name.local) == docker_options.of_store(reference) == name
    with pytest.raises(UsageError):
        docker_options.name("Upper/case")
    assert docker_options.of_store("Upper") is None


def test_another_machine_s_platform_is_refused() -> None:
    local_images.check_platform(f"linux/{local_images.architecture()}")
    with pytest.raises(Mistake, match="do not run here"):
        local_images.check_platform("linux/mips64")


def test_errors_have_the_tool_s_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("udocker", "/shim", ["run", "--publish=80:80", "box"], {"PATH": "/bin"}) == 1
    assert capsys.readouterr().err.startswith("Error: --publish is not supported: ")
    assert main("udocker", "/shim", ["run", "-v", "/no/such:/x", "box"], {"PATH": "/bin"}) != 0
    assert main("udocker", "/shim", ["-V"], {"PATH": "/bin"}) == 0
    assert TABLE.version in capsys.readouterr().out


@pytest.mark.parametrize(
    "files",
    [
        {}, {"manifest.json": b"no"}, {"manifest.json": b"[1]"}, {"index.json": b"[]"}, {"index.json": None},
        {"manifest.json": b"[" * 100_000},
    ],
)  # fmt: skip
def test_what_is_no_archive_of_images_is_refused(tmp_path: Path, files: dict[str, bytes | None]) -> None:
    (tmp_path / "image.tar").write_bytes(tar(files))
    (tmp_path / "text").write_text("text")
    for name in ("image.tar", "text", "none"):
        with pytest.raises(Mistake):
            local_images.load(str(tmp_path / name))
