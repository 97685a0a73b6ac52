"""A registry or a proxy that goes silent, or sends a drop at a time, wherever in a pull or a push it does.

It holds nobody longer than two time-outs of a read, tries and log-ins included: by default less than 90 s.
"""

import dataclasses
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from registries import FakeRegistry, answer, pack, repeated, stall_after
from tars import archive, file

from bareboat.cli.main import main
from bareboat_images import toolkit
from bareboat_images.registry import access
from bareboat_images.registry.options import Options
from bareboat_images.signatures import check, lookaside

LIMIT_S = 0.6
#: Two time-outs, and what the commands take on a busy machine. More rounds, or a longer one, would exceed it.
LONGEST_S = 2 * LIMIT_S + 3.0

WAYS = {
    "silent": stall_after(0),
    "a head that drips": repeated(b"HTTP/1.1 200 OK\r\nX: ", b"y", every_s=0.02),
    "a body that drips": repeated(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" ", every_s=0.02),
}

_remote_options = access.remote_options


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Options as they are, but a time-out of a read of LIMIT_S, and the others in proportion."""

    def options(registry: str, access: Any) -> Options:
        found = _remote_options(registry, access)
        return dataclasses.replace(
            found,
            plain_http=not registry.startswith("registry."),
            backoff_s=0.01,
            read_timeout_s=LIMIT_S,
            connect_timeout_s=LIMIT_S * found.connect_timeout_s / found.read_timeout_s,
        )

    for module in (access, check, lookaside, toolkit):  # locate asks access at each use
        monkeypatch.setattr(module, "remote_options", options)
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        registry.add(pack(archive(file(b"a", os.urandom(100_000))), compressed=False))
        yield registry


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    began = time.monotonic()
    code = main([*arguments, "--store", "store"])
    took_s = time.monotonic() - began
    said = capsys.readouterr().err
    assert code == 6, said
    assert "  try: " in said
    assert took_s < LONGEST_S, said
    return said


@pytest.mark.parametrize("way", WAYS)
def test_token_service(fake: FakeRegistry, capsys: pytest.CaptureFixture[str], way: str) -> None:
    fake.log_in = "bearer"
    fake.when("/token", WAYS[way])
    refused(capsys, "image", "pull", f"{fake.address}/team/digits:latest")


def test_mirrors_share_the_time_for_the_first_answer(
    fake: FakeRegistry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ",".join(f"{fake.address}={fake.url}/m{number}" for number in range(8))
    monkeypatch.setenv("BAREBOAT_MIRRORS", places)
    fake.when("/v2/m", WAYS["a head that drips"])
    assert main(["image", "pull", f"{fake.address}/team/digits:latest", "--store", "first"]) == 0
    assert capsys.readouterr().err.count("does not serve") == 8
    fake.when("/v2/", WAYS["a head that drips"])
    refused(capsys, "image", "pull", f"{fake.address}/team/digits:latest")


def pushed(capsys: pytest.CaptureFixture[str], fake: FakeRegistry) -> str:
    assert main(["image", "pull", f"{fake.address}/team/digits:latest", "--store", "store"]) == 0
    return refused(capsys, "image", "push", f"{fake.address}/team/digits:latest", f"{fake.address}/team/x:1")


@pytest.mark.parametrize("way", ["silent", "a head that drips"])
@pytest.mark.parametrize("what", ["POST .*/uploads/$", "PUT .*/uploads/1", "PUT .*/manifests/"])
def test_push(fake: FakeRegistry, capsys: pytest.CaptureFixture[str], what: str, way: str) -> None:
    """Also while it stores what it was sent: how long that may take depends on the size."""
    fake.when(what, WAYS[way])
    if "uploads" in what:
        fake.when("HEAD .*/blobs/", answer(404))
        fake.when("POST .*mount=", answer(404))
        fake.when("POST .*/uploads/$", answer(202, Location="/v2/team/x/blobs/uploads/1"))
    pushed(capsys, fake)


def test_push_to_a_web_page(fake: FakeRegistry, capsys: pytest.CaptureFixture[str]) -> None:
    """Every blob is there, says who answers 200 to everything."""
    page = answer(200, b"<html>log in</html>", **{"Content-Type": "text/html; charset=utf-8"})
    for what in ("(HEAD|POST|PUT) .*/team/x/", "PUT .*/uploads/"):
        fake.when(what, page)
    said = pushed(capsys, fake)
    assert "answers 200 with a web page" in said


def test_push_that_is_answered_with_nothing(fake: FakeRegistry, capsys: pytest.CaptureFixture[str]) -> None:
    fake.when("PUT .*/manifests/", answer(200, b"{}"))
    assert "may not be stored" in pushed(capsys, fake)


def _accept(listener: socket.socket, says: bytes) -> None:
    """Say this on every connection, then a byte at a time."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_drip, args=(client, says), daemon=True).start()


def _drip(client: socket.socket, says: bytes) -> None:
    with client:
        try:
            client.sendall(says)
            while True:
                time.sleep(0.02)
                client.sendall(b"y")
        except OSError:
            return


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\nX: "], ids=["status", "head"])
def test_proxy_that_drips(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, says), daemon=True).start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert "does not answer" in refused(
            capsys, "image", "pull", "registry.example.org/team/digits:latest"
        )
        listener.shutdown(socket.SHUT_RDWR)


def test_host_with_many_addresses_of_which_none_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a firewall that drops: the time for connecting is for all of them together."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", full.getsockname())] * 30
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        said = refused(capsys, "image", "pull", "registry.example.org/team/digits:latest")
        assert "does not answer" in said
        for each in waiting:
            each.close()
