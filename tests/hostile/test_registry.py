"""Registries that lie, stall, break, turn in circles or ask for our secrets: each case a scripted server."""

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from registries import (
    INDEX,
    MANIFEST,
    PASSWORD,
    USER,
    FakeRegistry,
    Fault,
    Packed,
    answer,
    auth_file,
    chunked,
    cut_after,
    fake_proxy,
    free_port,
    hang_up,
    ignore_range,
    make_certificates,
    pack,
    raw,
    redirect,
    repeated,
    sha256,
    stall_after,
    trickle,
)

from bareboat_base.errors import BareboatError, ImageError, UsageError
from bareboat_images.oci.source import LARGEST_DOCUMENT, Descriptor
from bareboat_images.registry.client import Options, RegistrySource, open_registry
from bareboat_images.registry.location import is_loopback
from bareboat_images.registry.pusher import Pusher, open_pusher

LAYER = bytes(range(256)) * 4096  # 1 MiB
BLOB = sha256(LAYER)
REPOSITORY = "lab/image"


@pytest.fixture
def image() -> Packed:
    return pack(LAYER, compressed=False, Cmd=["/bin/sh"])


@pytest.fixture
def fake(image: Packed) -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        registry.add(image)
        yield registry


def options(tmp_path: Path | None = None, **changes: object) -> Options:
    """Impatient, so that giving up takes no time; nothing of the user's is seen."""
    environment = {"HOME": str(tmp_path or "/nowhere"), "XDG_RUNTIME_DIR": str(tmp_path or "/nowhere")}
    chosen = {
        "environment": environment,
        "plain_http": True,
        "backoff_s": 0.001,
        "read_timeout_s": 5.0,
        "connect_timeout_s": 5.0,
        **changes,
    }
    return Options(**chosen)  # type: ignore[arg-type]


def source(fake: FakeRegistry, tag: str = "latest", **changes: object) -> RegistrySource:
    return open_registry(fake.address, REPOSITORY, tag, options=options(**changes))


def descriptor(data: bytes = LAYER) -> Descriptor:
    return Descriptor(media_type="", digest=sha256(data), size=len(data))


def read(
    opened: RegistrySource, what: Descriptor | None = None, offset: int = 0, piece: int = 65536
) -> bytes:
    got = bytearray()
    buffer = memoryview(bytearray(piece))
    with opened.blob(what or descriptor(), offset) as blob:
        while count := blob.readinto(buffer):
            got += buffer[:count]
    return bytes(got)


def text(error: BareboatError) -> str:
    return "\n".join((error.message, error.context, error.remedy))


# -- blobs that do not come whole ----------------------------------------------------------------------


@pytest.mark.parametrize("reset", [False, True])
def test_a_blob_that_breaks_goes_on_where_it_broke(fake: FakeRegistry, reset: bool) -> None:
    fake.when("GET .*/blobs/", cut_after(100_000, reset=reset), times=5)
    assert read(source(fake)) == LAYER
    asked = fake.counted("GET .*/blobs/")
    assert len(asked) == 6
    # A reset may throw away what was on its way; without one, no byte is sent twice.
    assert reset or fake.body_bytes(BLOB) == len(LAYER)
    starts = [int(each.headers.get("range", "bytes=0-")[6:-1]) for each in asked]
    assert starts == sorted(starts)


def test_a_blob_goes_on_from_an_offset(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", cut_after(70_000), times=3)
    assert read(source(fake), offset=300_001) == LAYER[300_001:]
    assert fake.body_bytes(BLOB) == len(LAYER) - 300_001


def test_a_blob_that_is_whole_already_asks_nothing(fake: FakeRegistry) -> None:
    assert read(source(fake), offset=len(LAYER)) == b""
    assert not fake.asked


def test_a_stalled_blob_goes_on(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", stall_after(200_000), times=1)
    said: list[str] = []
    assert read(source(fake, say=said.append, read_timeout_s=1.0)) == LAYER
    assert fake.body_bytes(BLOB) == len(LAYER)
    assert "has sent nothing for" in said[0]


def test_a_trickle_is_a_stall(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", trickle(0.02), times=1)
    said: list[str] = []
    assert read(source(fake, say=said.append, read_timeout_s=0.5)) == LAYER
    assert "bytes in" in said[0]


def test_a_blob_that_never_gets_on_is_given_up(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", cut_after(1))
    with pytest.raises(ImageError, match=BLOB) as caught:
        read(source(fake, attempts=4))
    assert f"{fake.address}/{REPOSITORY}:latest" in caught.value.message
    assert "closed the connection" in caught.value.message
    assert "4 tries" in caught.value.context
    assert len(fake.counted("GET .*/blobs/")) == 4


def test_a_registry_that_dies_and_comes_back(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", cut_after(400_000), times=1)
    fake.when("GET .*/blobs/", hang_up, times=2)
    fake.when("GET .*/blobs/", answer(503), times=2)
    assert read(source(fake)) == LAYER
    assert fake.body_bytes(BLOB) == len(LAYER)


def test_a_server_that_ignores_range_is_read_past(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", cut_after(500_000), times=1)
    fake.when("GET .*/blobs/", ignore_range)
    assert read(source(fake)) == LAYER
    assert read(source(fake), offset=1_000_000) == LAYER[1_000_000:]


def test_a_blob_without_a_length(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", chunked)
    assert read(source(fake)) == LAYER
    assert read(source(fake), Descriptor(media_type="", digest=BLOB, size=-1)) == LAYER


def test_a_broken_chunk_goes_on(fake: FakeRegistry) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    fake.when("GET .*/blobs/", raw(head + b"10000\r\n" + LAYER[:0x8000]), times=1)
    assert read(source(fake)) == LAYER
    assert fake.counted("GET .*/blobs/")[1].headers["range"] == f"bytes={0x8000}-"


@pytest.mark.parametrize("claimed", [len(LAYER) - 1, len(LAYER) + 1, 2**60])
def test_a_blob_of_another_size(fake: FakeRegistry, claimed: int) -> None:
    with pytest.raises(ImageError, match="not match its manifest") as caught:
        read(source(fake), Descriptor(media_type="", digest=BLOB, size=claimed))
    assert f"{claimed:,}" in caught.value.context


def test_a_part_that_is_past_the_end(fake: FakeRegistry) -> None:
    with pytest.raises(ImageError, match="not match its manifest"):
        read(source(fake), Descriptor(media_type="", digest=BLOB, size=2 * len(LAYER)), len(LAYER) + 5)


@pytest.mark.parametrize(
    "header", ["bytes 7-9/10", "bytes */10", "", "bytes 99999999999999999999-1/2", "x" * 9000]
)
def test_another_part_than_was_asked_for(fake: FakeRegistry, header: str) -> None:
    fake.when("GET .*/blobs/", answer(206, b"abc", Content_Range=header))
    with pytest.raises(ImageError, match="sends a part not requested") as caught:
        read(source(fake), offset=5)
    assert len(text(caught.value)) < 1000


def test_a_proxy_that_packs_the_content(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", answer(200, LAYER, Content_Encoding="gzip"))
    with pytest.raises(ImageError, match="packed once more"):
        read(source(fake))


def test_closing_wakes_a_reader_at_once(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", stall_after(1000))
    opened = source(fake, read_timeout_s=60.0)
    caught: list[ImageError] = []

    def reading() -> None:
        try:
            read(opened)
        except ImageError as error:
            caught.append(error)

    thread = threading.Thread(target=reading)
    thread.start()
    while not fake.body_bytes(BLOB):
        time.sleep(0.01)
    opened.close()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert "was cancelled" in caught[0].message


# -- documents -----------------------------------------------------------------------------------------


def test_a_document_of_another_digest(fake: FakeRegistry, image: Packed) -> None:
    fake.manifests[image.digest] = (image.manifest + b" ", MANIFEST)
    with pytest.raises(ImageError, match="not match its digest") as caught:
        source(fake).document(image.digest)
    assert image.digest in caught.value.context
    with pytest.raises(ImageError, match="not match its digest"):
        source(fake, tag=image.digest).document()


def test_a_tag_whose_digest_is_told_wrongly(fake: FakeRegistry, image: Packed) -> None:
    wrong = "sha256:" + "0" * 64
    fake.when("GET .*/manifests/", answer(200, image.manifest, Docker_Content_Digest=wrong))
    with pytest.raises(ImageError, match="not match its digest"):
        source(fake).document()


def test_a_config_that_was_changed(fake: FakeRegistry, image: Packed) -> None:
    opened = source(fake)
    opened.document()
    fake.blobs[sha256(image.config)] = image.config.replace(b"/bin/sh", b"/bin/ed")
    with pytest.raises(ImageError, match="not match its digest"):
        opened.document(sha256(image.config))


@pytest.mark.parametrize("told", [True, False])
def test_a_document_without_end(fake: FakeRegistry, told: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + MANIFEST.encode()
    if told:
        head += b"\r\nContent-Length: 99999999999999"
    fake.when("GET .*/manifests/", raw(head + b"\r\n\r\n" + b" " * (LARGEST_DOCUMENT + 1000)))
    with pytest.raises(ImageError, match="larger than 4 MiB"):
        source(fake).document()


def test_a_document_cut_short_is_asked_for_again(fake: FakeRegistry, image: Packed) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(image.manifest)}\r\n\r\n".encode()
    fake.when("GET .*/manifests/", raw(head + image.manifest[:100]), times=2)
    assert source(fake).document().data == image.manifest


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Ty"])
def test_a_head_cut_short_is_asked_for_again(fake: FakeRegistry, image: Packed, head: bytes) -> None:
    fake.when("GET .*/manifests/", raw(head), times=2)
    assert source(fake).document().data == image.manifest


def test_a_document_that_trickles_in(fake: FakeRegistry) -> None:
    fake.blobs["latest"] = b" " * 1000
    fake.when("GET .*/manifests/", trickle(0.01))
    with pytest.raises(ImageError, match=r"sent only .* bytes in|too slowly"):
        source(fake, attempts=2, read_timeout_s=0.5).document()


@pytest.mark.parametrize(
    ("head", "piece"), [(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), (b"HTTP/1.1 200 OK\r\nX: ", b"y")]
)
def test_a_head_that_never_ends(fake: FakeRegistry, head: bytes, piece: bytes) -> None:
    fake.when("manifests", repeated(head, piece, every_s=0.01))
    began = time.monotonic()
    with pytest.raises(ImageError, match="is not available"):
        source(fake, attempts=2, read_timeout_s=0.3).document()
    assert time.monotonic() - began < 10


def test_schema_1_is_named(fake: FakeRegistry) -> None:
    old = "application/vnd.docker.distribution.manifest.v1+prettyjws"
    fake.manifests["latest"] = (b'{"schemaVersion": 1}', old)
    with pytest.raises(ImageError, match="schema 1") as caught:
        source(fake).document()
    assert f"{fake.address}/{REPOSITORY}:latest" in caught.value.message


def test_what_a_document_calls_itself_counts_where_the_server_does_not_know(fake: FakeRegistry) -> None:
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()
    fake.manifests["latest"] = (index, "text/plain; charset=utf-8")
    assert source(fake).document().media_type == INDEX


def test_a_digest_that_would_be_a_path(fake: FakeRegistry) -> None:
    evil = Descriptor(media_type="", digest="sha256:../../../../etc/passwd", size=1)
    with pytest.raises(ImageError, match="not a SHA-256 digest"):
        read(source(fake), evil)
    with pytest.raises(ImageError, match="not a SHA-256 digest"):
        source(fake).document("sha384:" + "0" * 96)
    assert not fake.asked


def test_a_tag_that_is_not_there_is_answered_with_those_that_are(fake: FakeRegistry, image: Packed) -> None:
    fake.add(image, "24.05-py3")
    with pytest.raises(ImageError, match=r"has no tag '24\.05'") as caught:
        source(fake, tag="24.05").document()
    assert "24.05-py3" in caught.value.context
    assert f"{fake.address}/{REPOSITORY}:24.05-py3" in caught.value.remedy


@pytest.mark.parametrize(
    "tags", [answer(404), answer(401), answer(200, b"[[["), answer(200, b'{"tags": [1, null]}')]
)
def test_a_repository_that_is_not_there(fake: FakeRegistry, tags: Fault) -> None:
    fake.when("tags/list", tags)
    with pytest.raises(ImageError, match=f"{fake.address}/{REPOSITORY}:12 not found"):
        source(fake, tag="12").document()


# -- busy and broken servers ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_out_of_order(fake: FakeRegistry, image: Packed, status: int) -> None:
    fake.when("manifests", answer(status), times=3)
    assert source(fake).document().data == image.manifest
    fake.when("manifests", answer(status, b"<html><b>oh</b> no</html>"))
    with pytest.raises(ImageError, match=f"answers {status} each time") as caught:
        source(fake).document()
    assert "oh no" in caught.value.context


def test_too_many_requests_are_waited_for(fake: FakeRegistry, image: Packed) -> None:
    fake.when("manifests", answer(429, Retry_After="1"), times=1)
    said: list[str] = []
    began = time.monotonic()
    assert source(fake, say=said.append).document().data == image.manifest
    assert time.monotonic() - began >= 1
    assert said == [f"waiting 1 s: {fake.address} asks for it (429)"]


def test_a_date_to_wait_for_is_of_the_servers_clock(fake: FakeRegistry, image: Packed) -> None:
    """Both dates are long gone here; between them lies a second."""
    now = "Sat, 01 Jan 2000 00:00:00 GMT"
    until = "Sat, 01 Jan 2000 00:00:01 GMT"
    head = f"HTTP/1.1 429 No\r\nDate: {now}\r\nRetry-After: {until}\r\nContent-Length: 0\r\n\r\n"
    fake.when("manifests", raw(head.encode()), times=1)
    said: list[str] = []
    assert source(fake, say=said.append).document().data == image.manifest
    assert said[0].startswith("waiting 1 s")


@pytest.mark.parametrize("wait", ["7200", "9" * 400, "Sat, 01 Jan 2999 00:00:00 GMT", "-5", "soon", ""])
def test_a_wait_without_end_is_refused(fake: FakeRegistry, wait: str) -> None:
    fake.when("manifests", answer(429, _too_many(), Retry_After=wait))
    began = time.monotonic()
    with pytest.raises(ImageError, match="429") as caught:
        source(fake).document()
    assert time.monotonic() - began < 5
    assert f"podman login {fake.address}" in caught.value.remedy
    assert "--mirror" in caught.value.remedy
    assert "TOOMANYREQUESTS: pull rate limit" in caught.value.context


def _too_many() -> bytes:
    return json.dumps({"errors": [{"code": "TOOMANYREQUESTS", "message": "pull rate limit"}]}).encode()


def test_a_server_that_hangs_up(fake: FakeRegistry) -> None:
    fake.when("manifests", hang_up)
    with pytest.raises(ImageError, match="is not available"):
        source(fake, attempts=3).document()
    assert len(fake.asked) == 3


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        b"\0" * 1000,
        b"",
    ],
)
def test_what_is_not_http(fake: FakeRegistry, data: bytes) -> None:
    fake.when("manifests", raw(data))
    with pytest.raises(ImageError) as caught:
        source(fake, attempts=2).document()
    assert fake.address in caught.value.message
    assert len(text(caught.value)) < 1000


_LINES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 206 Partial Content\r\n",
        b"HTTP/1.1 302 Found\r\n",
        b"HTTP/1.1 401 Unauthorized\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/0.9\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Location: /v2/x\r\n",
        b"WWW-Authenticate: Bearer realm=x\r\n",
        b"Content-Range: bytes 0-4/5\r\n",
        b"\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"hello",
    ]
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(parts=st.lists(st.one_of(_LINES, _LINES, st.binary(max_size=40)), max_size=8))
def test_any_bytes_for_an_answer_end_in_an_error_that_names_the_registry(
    fake: FakeRegistry, parts: list[bytes]
) -> None:
    fake.forget()
    fake.when("GET", raw(b"".join(parts)))
    with source(fake, attempts=1, read_timeout_s=1.0) as opened:
        with pytest.raises(ImageError) as caught:
            opened.document("sha256:" + "0" * 64)
        assert fake.address in caught.value.message
        with pytest.raises(ImageError, match=f"{BLOB}|{fake.address}"):
            read(opened, Descriptor(media_type="", digest=BLOB, size=len(LAYER)))


def test_a_length_that_is_none(fake: FakeRegistry, image: Packed) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"
    fake.when("manifests", raw(head + image.manifest), times=1)
    assert source(fake).document().data == image.manifest


def test_nobody_there() -> None:
    name = f"127.0.0.1:{free_port()}"
    with pytest.raises(ImageError, match="refuses the connection") as caught:
        open_registry(name, REPOSITORY, "1", options=options()).document()
    assert f"{name}/{REPOSITORY}:1" in caught.value.message
    assert "HTTPS_PROXY" in caught.value.remedy


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(ImageError, match="cannot be resolved") as caught:
        open_registry("registry.invalid", REPOSITORY, "1", options=options()).document()
    assert "registry.invalid" in caught.value.message


def test_a_server_that_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ImageError, match="has sent nothing for"):
            open_registry(
                address, REPOSITORY, "1", options=options(attempts=2, read_timeout_s=0.3)
            ).document()
        slow = options(attempts=2, plain_http=False, connect_timeout_s=0.3)
        with pytest.raises(ImageError, match="does not answer"):
            open_registry(address, REPOSITORY, "1", options=slow).document()


def test_messages_hold_no_control_characters(fake: FakeRegistry) -> None:
    evil = json.dumps(
        {"errors": [{"code": "\x1b[31mX", "message": "a\nb\x07\u202e" + "z" * 10_000}]}
    ).encode()
    fake.when("manifests", answer(400, evil))
    with pytest.raises(ImageError) as caught:
        source(fake).document()
    assert all(c.isprintable() for c in caught.value.context)
    assert len(caught.value.context) <= 300


# -- redirects and secrets -----------------------------------------------------------------------------


@pytest.fixture
def logged_in(fake: FakeRegistry, tmp_path: Path) -> dict[str, str]:
    """An environment that has a log-in for the fake registry, which wants one."""
    fake.log_in = "basic"
    file = auth_file(tmp_path / "auth.json", fake.address)
    return {"REGISTRY_AUTH_FILE": str(file), "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}


def test_credentials_do_not_follow_a_redirect_to_another_place(
    fake: FakeRegistry, logged_in: dict[str, str]
) -> None:
    with FakeRegistry() as storage:
        storage.blobs[BLOB] = LAYER
        there = f"{storage.url}/v2/x/blobs/{BLOB}?X-Amz-Signature=abc"
        fake.when("GET .*/blobs/", redirect(there))
        storage.when("GET", cut_after(300_000), times=2)
        assert read(source(fake, environment=logged_in)) == LAYER
        assert any("authorization" in each.headers for each in fake.asked)
        assert storage.asked
        assert not any("authorization" in each.headers for each in storage.asked)
        assert storage.asked[0].query == {"X-Amz-Signature": ["abc"]}
        assert storage.body_bytes(BLOB) == len(LAYER)


def test_credentials_follow_within_the_same_place(fake: FakeRegistry, logged_in: dict[str, str]) -> None:
    fake.when("GET .*/lab/image/blobs/", redirect(f"/v2/other/blobs/{BLOB}"))
    assert read(source(fake, environment=logged_in)) == LAYER
    assert fake.asked[-1].path == f"/v2/other/blobs/{BLOB}"


def test_a_redirect_is_read_from_where_it_was_given(fake: FakeRegistry) -> None:
    opened = source(fake)
    opened.document()  # so that the connection has asked for something else before
    fake.when("GET .*/image/blobs/", redirect(f"../moved/blobs/{BLOB}"), times=1)
    assert read(opened) == LAYER
    assert fake.asked[-1].path == f"/v2/{REPOSITORY}/moved/blobs/{BLOB}"


def test_redirects_in_a_circle(fake: FakeRegistry) -> None:
    fake.when("GET .*/blobs/", answer(302, Location=f"/v2/a/blobs/{BLOB}"))
    with pytest.raises(ImageError, match="redirects in a circle"):
        read(source(fake))
    assert len(fake.asked) == 6


@pytest.mark.parametrize(
    "location",
    [
        "ftp://127.0.0.1/x",
        "file:///etc/passwd",
        "http://user:pw@127.0.0.1/",
        "//[::1",
        "http://a b/",
        "http://x:99999/",
        "javascript:1",
    ],
)
def test_redirects_to_what_is_no_place(fake: FakeRegistry, location: str) -> None:
    fake.when("GET .*/blobs/", answer(302, Location=location))
    with pytest.raises(ImageError, match="redirects to an invalid URL") as caught:
        read(source(fake))
    assert "user:pw" not in text(caught.value)


def test_a_signature_in_a_redirect_is_not_shown(fake: FakeRegistry, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeRegistry() as storage:
        fake.when("GET .*/blobs/", answer(307, Location=f"{storage.url}/blob?signature=s3cr3t"))
        with pytest.raises(ImageError, match=f"has no {BLOB}") as caught:
            read(source(fake))
        storage.when("GET", answer(403, b"<Error>denied</Error>"))
        with pytest.raises(ImageError, match="answers 403") as denied:
            read(source(fake))
    assert storage.address in denied.value.message
    assert "s3cr3t" not in text(caught.value) + text(denied.value) + caplog.text


def test_a_log_in_that_is_wrong(fake: FakeRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fake.log_in = "basic"
    file = auth_file(tmp_path / "auth.json", fake.address, password="wr0ng-Secret")
    with pytest.raises(ImageError, match="refuses") as caught:
        source(fake, environment={"REGISTRY_AUTH_FILE": str(file)}).document()
    assert f"user '{USER}' of {file}" in caught.value.context
    assert f"podman login {fake.address}" in caught.value.remedy
    assert "wr0ng-Secret" not in text(caught.value) + caplog.text
    assert len(fake.asked) == 2


@pytest.mark.parametrize("log_in", ["basic", "bearer"])
@pytest.mark.parametrize("before", [0, 270, 296])
def test_a_registry_that_repeats_our_secrets(
    fake: FakeRegistry, tmp_path: Path, log_in: str, before: int
) -> None:
    """Also where what is shown of its words ends in the middle of one."""
    fake.log_in = log_in
    file = auth_file(tmp_path / "auth.json", fake.address)
    sent: list[str] = []

    def parrot(handler: object) -> bool:
        header = handler.asked.headers.get("authorization")  # type: ignore[attr-defined]
        if header is None:
            return False
        sent.append(header.split()[1])
        words = f"{'x' * before}{sent[-1]} is {header}, that is {PASSWORD}".encode()
        handler.give(400, words)  # type: ignore[attr-defined]
        return True

    fake.when("manifests", parrot)
    with pytest.raises(ImageError, match="answers 400") as caught:
        source(fake, environment={"REGISTRY_AUTH_FILE": str(file)}).document()
    assert sent
    assert "*" in caught.value.context
    assert not any(secret[:6] in text(caught.value) for secret in (PASSWORD, *sent))


# -- tokens --------------------------------------------------------------------------------------------


def test_a_token_that_is_never_enough(fake: FakeRegistry) -> None:
    fake.log_in = "bearer"
    fake.when("/token", answer(200, b'{"token": "worthless"}'))
    with pytest.raises(ImageError, match="refuses"):
        source(fake).document()
    assert len(fake.counted("/token")) == 1
    assert len(fake.counted("/manifests/")) == 2


def test_a_token_service_that_turns_in_a_circle(fake: FakeRegistry) -> None:
    fake.log_in = "bearer"
    fake.when("/token", answer(302, Location="/token"))
    with pytest.raises(ImageError, match="redirects in a circle"):
        source(fake).document()
    assert len(fake.counted("/token")) == 6


def test_a_token_service_that_wants_a_token(fake: FakeRegistry) -> None:
    fake.log_in = "bearer"
    fake.realm = f"{fake.url}/v2/lab/image/manifests/latest"
    with pytest.raises(ImageError, match="refuses"):
        source(fake).document()
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b"{}",
        b'{"token": 5}',
        b'{"token": "a\\nb"}',
        b'{"token": "x", "expires_in": "y"}',
        b"[" * 100_000,
        b'{"token": "' + b"x" * 2_000_000 + b'"}',
    ],
)
def test_a_token_that_is_none(fake: FakeRegistry, body: bytes) -> None:
    fake.log_in = "bearer"
    fake.when("/token", answer(200, body))
    with pytest.raises(ImageError, match="gives no token for") as caught:
        source(fake).document()
    assert f"{fake.address}/{REPOSITORY}" in caught.value.message


@pytest.mark.parametrize("realm", ["ftp://x/", "/token", "http://user:pw@x/", "x" * 5000, "http://"])
def test_a_realm_that_is_none(fake: FakeRegistry, realm: str) -> None:
    fake.log_in = "bearer"
    fake.realm = realm
    with pytest.raises(ImageError, match="token service that cannot be asked"):
        source(fake).document()


def test_tokens_that_end_in_the_middle(fake: FakeRegistry) -> None:
    """Both ways: the registry forgets one, and one that is known to have ended is not tried again."""
    fake.log_in = "bearer"
    opened = source(fake)
    opened.document()
    fake.tokens.clear()
    fake.when("GET .*/blobs/", cut_after(300_000), times=0)
    assert read(opened) == LAYER
    assert len(fake.counted("/token")) == 2
    fake.token_life_s = -1
    fake.tokens.clear()
    opened.document()
    opened.document()
    assert len(fake.counted("/token")) == 4


def test_many_threads_fetch_one_token(fake: FakeRegistry) -> None:
    fake.log_in = "bearer"
    opened = source(fake)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(read(opened))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [LAYER] * 8
    assert len(fake.counted("/token")) == 1


def test_a_busy_token_service_is_asked_again(fake: FakeRegistry, image: Packed) -> None:
    fake.log_in = "bearer"
    fake.when("/token", answer(503), times=2)
    fake.when("/token", hang_up, times=1)
    assert source(fake).document().data == image.manifest


# -- TLS -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture
def secure(certificates: Path, image: Packed) -> Iterator[FakeRegistry]:
    with FakeRegistry(certificates=certificates) as registry:
        registry.add(image)
        yield registry


def test_a_certificate_of_nobody(secure: FakeRegistry) -> None:
    with pytest.raises(ImageError, match="is not trusted") as caught:
        source(secure, plain_http=False).document()
    assert secure.address in caught.value.message
    assert "--ca-file" in caught.value.remedy
    assert not secure.asked


def test_a_certificate_of_another_host(secure: FakeRegistry, certificates: Path) -> None:
    chosen = options(plain_http=False, ca_file=str(certificates / "ca.pem"))
    address = secure.address.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(ImageError, match=r"is not available|is not trusted"):
        open_registry(address, REPOSITORY, "latest", options=chosen).document()
    assert not secure.asked


def test_authorities_are_added_by_flag_variable_and_folder(
    secure: FakeRegistry, certificates: Path, image: Packed, tmp_path: Path
) -> None:
    authority = str(certificates / "ca.pem")
    folder = tmp_path / ".config/containers/certs.d" / secure.address
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes((certificates / "ca.pem").read_bytes())
    for changes in (
        {"ca_file": authority},
        {"environment": {"SSL_CERT_FILE": authority}},
        {"environment": {"HOME": str(tmp_path)}},
    ):
        assert source(secure, plain_http=False, **changes).document().data == image.manifest


@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_authorities_that_cannot_be_read(secure: FakeRegistry, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=f"--ca-file names {file}"):
        source(secure, plain_http=False, ca_file=str(file)).document()


def test_plain_http_only_when_asked(fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bareboat_images.registry.endpoint.is_loopback", lambda _: False)
    with pytest.raises(ImageError, match="does not use TLS") as caught:
        source(fake, plain_http=False).document()
    assert "--plain-http" in caught.value.remedy
    assert not fake.asked


def test_plain_http_on_this_machine_is_said_and_needs_no_flag(fake: FakeRegistry, image: Packed) -> None:
    said: list[str] = []
    assert source(fake, plain_http=False, say=said.append).document().data == image.manifest
    assert said == [f"{fake.address} does not use TLS: plain HTTP on this machine, without a log-in"]


@pytest.mark.parametrize("log_in", ["basic", "bearer"])
def test_no_log_in_is_sent_over_plain_http_that_nobody_asked_for(
    fake: FakeRegistry, logged_in: dict[str, str], log_in: str
) -> None:
    fake.log_in = log_in
    with contextlib.suppress(ImageError):  # the fake's tokens are for anybody
        source(fake, plain_http=False, environment=logged_in).document()
    assert fake.asked
    sent = [each.headers.get("authorization", "") for each in fake.asked]
    assert not any(each.startswith("Basic") for each in sent)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("128.0.0.1", False),
     ("localhost.evil.org", False), ("127.0.0.1.nip.io", False), ("0.0.0.0", False), ("10.0.0.1", False),
     ("::2", False), ("fe80::1", False), ("login1", False), ("127.1", False), ("2130706433", False)],
)  # fmt: skip
def test_what_can_only_be_this_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    "wait",
    ["1e400", "nan", "inf", "-inf", "-1", "0x10", "1_000", "\u0663", "9" * 100_000, "9" * 300, "1.5", "+5",
     "Sat, 01 Jan 99999 00:00:00 GMT", "Sat, 01 Jan 0000 00:00:00 GMT", "Sat, 99 Jan 2000 99:99:99 GMT",
     "Sat, 01 Jan 2000 00:00:00 +9999999999", "Sat, 01 Jan 2000 00:00:00", ",", "GMT", "0" * 10_000,
     "Sat, 01 Jan " + "9" * 60, "1 1 1 1 1 1 1", "\x00", "Mon, 1 Jan -1 00:00:00 GMT", "a" * 5000],
    ids=lambda text: ascii(text[:40]),
)  # fmt: skip
@pytest.mark.parametrize("status", [429, 503])
def test_any_wait_is_bounded_and_never_a_fault_of_ours(
    fake: FakeRegistry, image: Packed, wait: str, status: int
) -> None:
    head = f"HTTP/1.1 {status} No\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\nRetry-After: ".encode()
    fake.when("manifests", raw(head + wait.encode() + b"\r\nContent-Length: 0\r\n\r\n"), times=1)
    began = time.monotonic()
    with contextlib.suppress(ImageError):
        assert source(fake).document().data == image.manifest
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "life",
    ["1e400", "-1e400", "NaN", "-5", "0", "9" * 400, "9" * 5000, "true", '"300"', '"1e400"', "1e308", "null"],
)
def test_any_life_of_a_token_is_bounded(fake: FakeRegistry, image: Packed, life: str) -> None:
    fake.log_in = "bearer"
    fake.tokens.add("worthy")
    fake.when("/token", answer(200, b'{"token": "worthy", "expires_in": ' + life.encode() + b"}"))
    opened = source(fake)
    with contextlib.suppress(ImageError):
        assert opened.document().data == image.manifest


@pytest.mark.parametrize("size", [-1, -2, -(2**70), -0.5])
@pytest.mark.parametrize("where", ["config", "layers", "manifests"])
def test_a_registry_gives_no_negative_size(fake: FakeRegistry, size: float, where: str) -> None:
    one = {"digest": BLOB, "size": size}
    document = {where: one if where == "config" else [one]}
    fake.manifests["latest"] = (json.dumps(document).encode(), MANIFEST)
    with pytest.raises(ImageError, match="size"):
        source(fake).document()


def test_a_token_that_no_header_holds(fake: FakeRegistry) -> None:
    fake.log_in = "bearer"
    fake.when("/token", answer(200, b'{"token": "' + b"x" * 40_000 + b'"}'))
    with pytest.raises(ImageError, match="gives no token for"):
        source(fake).document()


@pytest.mark.parametrize("what", ["silent", "a head that drips", "a body that drips", "a blob that drips"])
def test_a_registry_that_says_nothing_holds_us_two_time_outs(fake: FakeRegistry, what: str) -> None:
    """With the time-out that is the default, 44 s, that is less than 90 s."""
    limit_s = 1.0
    match what:
        case "silent":
            fake.when("manifests", stall_after(0))
        case "a head that drips":
            fake.when("manifests", repeated(b"HTTP/1.1 200 OK\r\nX: ", b"y", every_s=0.05))
        case "a body that drips":
            head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
            fake.when("manifests", repeated(head, b" ", every_s=0.05))
        case _:
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(LAYER)}\r\n\r\n".encode()
            fake.when("blobs", repeated(head, bytes(10), every_s=0.05))
    began = time.monotonic()
    opened = source(fake, read_timeout_s=limit_s)
    with pytest.raises(ImageError):
        read(opened) if "blob" in what else opened.document()
    assert time.monotonic() - began < 2 * limit_s + 2.5
    assert 2 * Options(environment={}).read_timeout_s < 90


def test_plain_http_spoken_to_tls(secure: FakeRegistry) -> None:
    with pytest.raises(ImageError) as caught:
        source(secure, attempts=2).document()
    assert secure.address in caught.value.message


def test_no_way_from_https_to_plain_http(
    secure: FakeRegistry, fake: FakeRegistry, certificates: Path, tmp_path: Path
) -> None:
    chosen = {"plain_http": False, "ca_file": str(certificates / "ca.pem")}
    secure.when("GET .*/blobs/", answer(307, Location=f"{fake.url}/v2/x/blobs/{BLOB}"))
    with pytest.raises(ImageError, match="from HTTPS to plain HTTP"):
        read(source(secure, **chosen))
    secure.log_in = "bearer"
    secure.realm = f"{fake.url}/token"
    file = auth_file(tmp_path / "auth.json", secure.address)
    with pytest.raises(ImageError, match="token service over plain HTTP"):
        source(secure, environment={"REGISTRY_AUTH_FILE": str(file)}, **chosen).document()
    assert not fake.asked


def test_a_blob_that_breaks_under_tls(secure: FakeRegistry, certificates: Path) -> None:
    secure.when("GET .*/blobs/", cut_after(100_000), times=4)
    opened = source(secure, plain_http=False, ca_file=str(certificates / "ca.pem"))
    assert read(opened) == LAYER
    assert secure.body_bytes(BLOB) == len(LAYER)


# -- mirrors -------------------------------------------------------------------------------------------


def test_a_mirror_is_asked_first_and_the_registry_for_the_rest(fake: FakeRegistry, image: Packed) -> None:
    with FakeRegistry() as mirror:
        mirror.add(image)
        del mirror.blobs[BLOB]
        opened = source(fake, mirrors=(f"{mirror.url}/proxy",))
        assert opened.document().data == image.manifest
        assert opened.document(sha256(image.config)).data == image.config
        assert not fake.asked
        assert {each.path.split("/manifests")[0].split("/blobs")[0] for each in mirror.asked} == {
            f"/v2/proxy/{REPOSITORY}"
        }
        assert read(opened) == LAYER
        assert len(fake.asked) == 1


def test_a_dead_mirror_is_left_alone(fake: FakeRegistry, image: Packed) -> None:
    said: list[str] = []
    opened = source(fake, mirrors=(f"http://127.0.0.1:{free_port()}",), say=said.append)
    assert opened.document().data == image.manifest
    assert read(opened) == LAYER
    assert len([each for each in said if "does not serve" in each]) == 1


def test_a_mirror_that_breaks_half_way_is_gone_on_from(fake: FakeRegistry) -> None:
    with FakeRegistry() as mirror:
        mirror.blobs[BLOB] = LAYER
        mirror.when("blobs", cut_after(500_000), times=1)
        mirror.when("blobs", answer(500))
        assert read(source(fake, mirrors=(mirror.url,), attempts=2)) == LAYER
        assert mirror.body_bytes(BLOB) == 500_000
    assert fake.body_bytes(BLOB) == len(LAYER) - 500_000


def test_a_mirror_that_lies_is_passed_over(fake: FakeRegistry, image: Packed) -> None:
    with FakeRegistry() as mirror:
        mirror.manifests[image.digest] = (b"{}", MANIFEST)
        assert source(fake, mirrors=(mirror.url,)).document(image.digest).data == image.manifest


def test_the_log_in_is_not_for_the_mirror(
    fake: FakeRegistry, logged_in: dict[str, str], image: Packed
) -> None:
    with FakeRegistry() as mirror:
        mirror.log_in = "basic"
        mirror.add(image)
        opened = source(fake, mirrors=(mirror.url,), environment=logged_in)
        assert opened.document().data == image.manifest
        assert not any("authorization" in each.headers for each in mirror.asked)


# -- proxies -------------------------------------------------------------------------------------------


def test_http_through_a_proxy(fake: FakeRegistry, image: Packed) -> None:
    with fake_proxy(("127.0.0.1", fake.port), authorization="Basic bWU6cCNzcw==") as proxy:
        for where, password in (
            (f"me:p%23ss@127.0.0.1:{proxy.port}", True),
            (f"127.0.0.1:{proxy.port}", False),
        ):
            chosen = options(environment={"HTTP_PROXY": f"http://{where}"}, attempts=2)
            opened = open_registry("registry.test:80", REPOSITORY, "latest", options=chosen)
            if password:
                assert opened.document().data == image.manifest
                assert fake.asked[-1].headers["host"] == "registry.test"
            else:
                with pytest.raises(ImageError) as caught:
                    opened.document()
                assert "407" in caught.value.message
        assert proxy.lines[0] == f"GET http://registry.test/v2/{REPOSITORY}/manifests/latest HTTP/1.1"


def test_https_through_a_proxy(secure: FakeRegistry, certificates: Path) -> None:
    """The certificate must be the registry's; its name is not in ours, so a handshake is all that works."""
    with fake_proxy(("127.0.0.1", secure.port), authorization="Basic bWU6cCNzcw==") as proxy:
        for user in ("me:p%23ss@", ""):
            chosen = options(
                environment={"HTTPS_PROXY": f"http://{user}127.0.0.1:{proxy.port}"},
                plain_http=False,
                ca_file=str(certificates / "ca.pem"),
            )
            opened = open_registry("registry.test", REPOSITORY, "latest", options=chosen)
            with pytest.raises(ImageError) as caught:
                opened.document()
            assert ("is not trusted" if user else "the proxy requires a user name") in caught.value.message
            assert "p#ss" not in text(caught.value)
        assert proxy.lines[0].startswith("CONNECT registry.test:443 HTTP/1.")


# -- pushing -------------------------------------------------------------------------------------------


def pusher(fake: FakeRegistry, **changes: object) -> Pusher:
    return open_pusher(fake.address, REPOSITORY, options=options(**changes))


def test_an_upload_that_breaks_is_begun_anew(fake: FakeRegistry) -> None:
    del fake.blobs[BLOB]
    fake.when("PUT .*/uploads", hang_up, times=1)
    fake.when("PUT .*/uploads", answer(503), times=1)
    fake.when("PUT .*/uploads", answer(404), times=1)
    pusher(fake).upload(BLOB, len(LAYER), [LAYER[:1000], LAYER[1000:]])
    assert fake.blobs[BLOB] == LAYER


def test_an_upload_that_broke_after_a_long_time_is_begun_anew(fake: FakeRegistry) -> None:
    """What counts is how long nothing moved, not how long the upload took."""
    del fake.blobs[BLOB]

    def break_at_the_end(handler: Any) -> bool:
        handler.rfile.read(len(LAYER))
        return hang_up(handler)

    fake.when("PUT .*/uploads", break_at_the_end, times=1)

    class Slow:
        def __iter__(self) -> Iterator[bytes]:
            for at in range(4):
                time.sleep(0.1)
                yield LAYER[at * len(LAYER) // 4 : (at + 1) * len(LAYER) // 4]

    pusher(fake, read_timeout_s=0.2).upload(BLOB, len(LAYER), Slow())
    assert fake.blobs[BLOB] == LAYER


def test_an_upload_that_arrived_damaged_is_sent_once_more(fake: FakeRegistry) -> None:
    del fake.blobs[BLOB]
    fake.when("PUT .*/uploads", answer(400, b"digest invalid"), times=1)
    pusher(fake).upload(BLOB, len(LAYER), [LAYER])
    assert fake.blobs[BLOB] == LAYER
    fake.when("PUT .*/uploads", answer(400, b"digest invalid"))
    with pytest.raises(ImageError, match="400"):
        pusher(fake).upload(BLOB, len(LAYER), [LAYER])
    assert len(fake.counted("PUT .*/uploads")) == 4


@pytest.mark.parametrize("fault", [hang_up, answer(503), answer(400, b"digest invalid")])
def test_an_upload_of_what_can_be_read_once_is_not(fake: FakeRegistry, fault: Fault) -> None:
    fake.when("PUT .*/uploads", fault)
    with pytest.raises(ImageError, match=BLOB):
        pusher(fake).upload(BLOB, len(LAYER), iter([LAYER]))
    assert len(fake.counted("PUT .*/uploads")) == 1


@pytest.mark.parametrize("chunks", [[LAYER, b"x"], [LAYER[:-1]], []])
def test_an_upload_of_another_size(fake: FakeRegistry, chunks: list[bytes]) -> None:
    del fake.blobs[BLOB]
    with pytest.raises(ImageError, match="bytes than it should"):
        pusher(fake).upload(BLOB, len(LAYER), chunks)
    assert fake.blobs.get(BLOB) in (None, LAYER)


def test_what_cannot_be_read_is_no_failure_of_the_network(fake: FakeRegistry) -> None:
    class Damaged:
        def __iter__(self) -> Iterator[bytes]:
            yield LAYER[:100]
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        pusher(fake).upload(BLOB, len(LAYER), Damaged())


def test_a_manifest_that_becomes_another(fake: FakeRegistry, image: Packed) -> None:
    fake.when("PUT .*/manifests", answer(201, Docker_Content_Digest=BLOB))
    with pytest.raises(ImageError, match="is not what was sent"):
        pusher(fake).put_manifest("v1", image.manifest, MANIFEST)


def test_an_upload_is_not_led_elsewhere(fake: FakeRegistry, logged_in: dict[str, str]) -> None:
    """Where it goes the registry decides; our log-in does not go with it."""
    with FakeRegistry() as storage:
        fake.when("POST .*/uploads", answer(202, Location=f"{storage.url}/v2/x/blobs/uploads/9"))
        opened = pusher(fake, environment=logged_in)
        assert opened.has_blob(BLOB)
        opened.upload(BLOB, len(LAYER), [LAYER])
        assert storage.blobs[BLOB] == LAYER
        assert not any("authorization" in each.headers for each in storage.asked)


def test_a_push_that_is_not_allowed(fake: FakeRegistry) -> None:
    fake.when("POST", answer(403, b'{"errors": [{"code": "DENIED", "message": "read only"}]}'))
    with pytest.raises(ImageError, match="does not let us write") as caught:
        pusher(fake).upload(BLOB, len(LAYER), [LAYER])
    assert "DENIED: read only" in caught.value.context


def test_tokens_for_pushing(fake: FakeRegistry, image: Packed) -> None:
    fake.log_in = "bearer"
    opened = pusher(fake)
    opened.upload(BLOB, len(LAYER), [LAYER])
    opened.put_manifest("v1", image.manifest, MANIFEST)
    (asked,) = fake.counted("/token")
    assert asked.query["scope"] == [f"repository:{REPOSITORY}:pull,push"]
    assert asked.query["service"] == ['fake, "quoted"']
