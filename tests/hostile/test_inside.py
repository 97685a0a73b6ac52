"""Images made to mislead whoever looks inside: nothing outside is read, nothing hangs, nothing is raised."""

import os
import random
import socket
import sys
from pathlib import Path

import pytest
from elves import make_elf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tools import ordinary, output

from bareboat_base import codec
from bareboat_base.elf import binary
from bareboat_images.inside.survey import Inside, look
from bareboat_images.layers.view import View

WHOLE = make_elf(
    interpreter="/lib64/ld-linux-x86-64.so.2",
    needed=["libpmix.so.2", "libc.so.6"],
    exports={"ompi_version_string": "4.1.4", "MPII_Version_string": "4.0.2"},
    constants=b"Open MPI v%d.%d.%d\0GNU C Library (x) stable release version 2.36.\0",
)


def ask_everything(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with path.open("rb") as stream, binary.read(stream.fileno()) as found:
        if found is not None:
            assert found.machine is None or found.machine.isascii()
            assert isinstance(found.interpreter, str | None)
            assert len(found.needed) <= 4096
            found.text("ompi_version_string")
            found.names("MPI_Init")
            found.search(rb"version (\d+)")
            found.holds(b"Open MPI")


# -- links -------------------------------------------------------------------------------------------


def test_loops_of_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "etc").symlink_to("etc")
    (tmp_path / "bin").symlink_to("usr/../bin")
    (tmp_path / "usr").symlink_to("lib/usr")
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/self").symlink_to(".")
    (tmp_path / "opt/up").symlink_to("..")
    (tmp_path / "opt/bin").symlink_to("../opt/bin")
    assert look([tmp_path]) == Inside()


def test_links_that_double_their_way_end(tmp_path: Path) -> None:
    (tmp_path / "l0").mkdir()
    for number in range(1, 60):
        (tmp_path / f"l{number}").symlink_to(f"l{number - 1}/../l{number - 1}")
    (tmp_path / "etc").symlink_to("l59")
    assert look([tmp_path]).distribution is None


def test_links_never_leave_the_image(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "os-release").write_text("PRETTY_NAME=secret\n")
    layer = tmp_path / "layer"
    (layer / "etc").mkdir(parents=True)
    (layer / "usr").symlink_to(secret)
    (layer / "etc/os-release").symlink_to("../../secret/os-release")
    assert look([layer]).distribution is None
    (layer / "etc/os-release").unlink()
    (layer / "etc/os-release").symlink_to(secret / "os-release")
    assert look([layer]).distribution is None
    (layer / "etc/os-release").unlink()
    (layer / "etc").rmdir()
    (layer / "etc").symlink_to(secret)
    assert look([layer]).distribution is None


def test_dot_dot_stops_at_the_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("../../../../file")
    assert View([tmp_path]).read("/../../link", most=1) == b"x"


# -- what is no file ---------------------------------------------------------------------------------


def test_pipes_sockets_and_folders_in_the_place_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("etc", "usr/lib", "bin", "lib64", "usr/bin", "usr/local/lib", "opt/venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    for fifo in ("etc/os-release", "bin/sh", "usr/bin/python3.11", "usr/local/lib/libmpi.so.40"):
        os.mkfifo(tmp_path / fifo)
    (tmp_path / "usr/bin/python3").symlink_to("python3.11")
    (tmp_path / "lib64/libc.so.6").mkdir()
    (tmp_path / "opt/venv/pyvenv.cfg").mkdir()
    monkeypatch.chdir(tmp_path / "usr/lib")  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("os-release")
        assert look([tmp_path]) == Inside()


def test_a_pipe_put_in_a_files_place_after_the_look_began(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    view = View([tmp_path])
    assert view.is_file("/file")
    (tmp_path / "file").unlink()
    os.mkfifo(tmp_path / "file")
    assert view.read("/file", most=1) is None
    (tmp_path / "file").unlink()
    (tmp_path / "file").symlink_to("/etc/passwd")
    assert view.read("/file", most=1) is None


def test_what_may_not_be_read_is_noted(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("NAME=x")
    (tmp_path / "etc/os-release").chmod(0)
    (tmp_path / "usr").chmod(0)
    program = (
        "import pathlib, sys; from bareboat_images.inside.survey import look\n"
        "found = look([pathlib.Path(sys.argv[1])]); print(found.distribution, *found.notes)"
    )
    try:
        told = output(*ordinary(), sys.executable, "-c", program, tmp_path)
    finally:
        (tmp_path / "usr").chmod(0o755)
    assert told == "None /usr cannot be read: what is in it is not known\n"


# -- sizes -------------------------------------------------------------------------------------------


def test_a_huge_os_release_is_read_in_part(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    with open(tmp_path / "etc/os-release", "wb") as stream:
        stream.write(b"PRETTY_NAME=" + b"x" * 5000 + b"\n")
        stream.truncate(2**40)
    found = look([tmp_path])
    assert found.distribution == "x" * 200


def test_texts_of_an_image_bring_no_control_characters(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_bytes(b'PRETTY_NAME="a\x1b[31mb\x07\xff"\n')
    assert look([tmp_path]).distribution == "a[31mb\ufffd"


def test_an_endless_tree_costs_no_more_than_its_top(tmp_path: Path) -> None:
    for first in range(70):
        for second in range(70):
            (tmp_path / f"opt/{first}/{second}").mkdir(parents=True)
    deep = tmp_path / "opt"
    for _ in range(400):
        deep = deep / "d"
    os.makedirs(deep)
    assert look([tmp_path]) == Inside()


def test_a_huge_sparse_library_is_searched_in_part(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    with open(tmp_path / "usr/lib/libmpi.so.40", "wb") as stream:
        stream.write(WHOLE[:40] + bytes(24))  # no section table that could be followed
        stream.truncate(2**36)
    assert look([tmp_path]).mpis == ()


def test_names_that_are_no_text(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    for name in (b"\xff\xfe", b"new\nline", b"a" * 255, b"-rf"):
        os.makedirs(folder + b"/opt/" + name + b"/bin")
        os.makedirs(folder + b"/opt/" + name + b"/lib")
        with open(folder + b"/opt/" + name + b"/lib/libmpi.so.40", "wb") as stream:
            stream.write(WHOLE)
    found = look([tmp_path])
    assert len(found.mpis) == 4
    assert codec.from_json(codec.to_json(found), Inside, what="facts") == found


# -- files that lie ----------------------------------------------------------------------------------


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 12), cut=st.integers(0, len(WHOLE)))
@example(seed=0, changes=1, cut=64)
def test_damaged_elf_files(tmp_path: Path, seed: int, changes: int, cut: int) -> None:
    chance = random.Random(seed)
    data = bytearray(WHOLE[: max(cut, 64)] if seed % 3 else WHOLE)
    for _ in range(changes):
        at = chance.randrange(len(data)) if chance.random() < 0.4 else chance.randrange(min(len(data), 240))
        data[at : at + 1] = chance.choice([b"\0", b"\xff", b"\x7f", bytes([chance.randrange(256)])])
    ask_everything(bytes(data), tmp_path / "file")


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rest=st.binary(max_size=600))
def test_what_begins_like_elf(tmp_path: Path, rest: bytes) -> None:
    ask_everything(b"\x7fELF\x02\x01" + rest, tmp_path / "file")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.binary(max_size=300))
def test_damaged_texts(tmp_path: Path, text: bytes) -> None:
    places = (
        "etc/os-release", "usr/local/cuda/version.json", "usr/local/cuda/version.txt", "opt/v/pyvenv.cfg",
        "opt/rocm/.info/version", "etc/ld.so.conf.d/x.conf", "usr/local/include/mpi.h",
    )  # fmt: skip
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(text)
    (tmp_path / "opt/v/bin").mkdir(exist_ok=True)
    (tmp_path / "opt/v/bin/python3").write_bytes(WHOLE)
    look([tmp_path], environment={"PATH": text.decode("utf-8", "replace")})
