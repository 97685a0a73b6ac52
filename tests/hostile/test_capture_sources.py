"""Captures of what environments really hold: names, links, pipes, stale byte code, broken interpreters."""

import os
import py_compile
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import Captured, make_environment, run_in, site_packages
from processes import command
from processes import environment as environment_of
from tools import completed, executable, ordinary

from bareboat.captures import capture
from bareboat.captures.interpreter import ask, choose
from bareboat.model import CaptureRequest
from bareboat_base.errors import BareboatError, ToolError, UsageError
from bareboat_images.store import Store

ODD_NAMES = (
    "a\nb",
    os.fsdecode(b"\xff\xfe"),
    "x" * 255,
    "ü",
    " ",
    "-rf",
    "$(touch owned)",
    "README",
    "readme",
)


def fill(data: Path, home: Path) -> None:
    """One of everything that a folder can hold."""
    for name in ODD_NAMES:
        (data / name).write_text(name, errors="surrogateescape")
    (data / "deep" / ("d" * 200) / ("e" * 200)).mkdir(parents=True)
    (data / "deep" / ("d" * 200) / ("e" * 200) / "file").write_text("deep")
    (data / "empty").mkdir()
    (data / "nothing").touch()
    (data / "setuid").write_text("x")
    (data / "setuid").chmod(0o6755)
    for name, target in {
        "loop": "loop", "circle": "circle2", "circle2": "circle", "inside": ".", "dangling": "/nowhere/x",
        "to root": "/", "to home": str(home), "null": "/dev/null", "twin": "README", "to proc": "/proc/self",
    }.items():  # fmt: skip
        (data / name).symlink_to(target)
    os.mkfifo(data / os.fsdecode(b"pipe\xfe"))
    here = Path.cwd()
    os.chdir(data)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    os.chdir(here)


def fill_packages(packages: Path) -> None:
    """Modules with byte code of every kind."""
    for name in ("valid", "stale", "hashed", "missing"):
        (packages / f"{name}.py").write_text("VALUE = 'source'\n")
    py_compile.compile(str(packages / "valid.py"))
    py_compile.compile(
        str(packages / "hashed.py"), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
    )
    py_compile.compile(str(packages / "stale.py"))
    (packages / "stale.py").write_text("VALUE = 'newer source'\n")
    (packages / "broken.py").write_text("this is no Python\n")
    cache = packages / "__pycache__"
    tag = sys.implementation.cache_tag
    (cache / f"orphan.{tag}.pyc").write_bytes((cache / f"valid.{tag}.pyc").read_bytes())
    (cache / f"short.{tag}.pyc").write_bytes(b"x")
    (packages / "short.py").write_text("VALUE = 'source'\n")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """All of it at once: an environment, reached through an absolute link, with a folder of oddities."""
    top = tmp_path_factory.mktemp("hostile")
    for name in ("real", "home", "real/work"):
        (top / name).mkdir()
    (top / "home" / "secret").write_text("secret")
    (top / "link").symlink_to(top / "real")
    folder = top / "link" / "venv"
    python = make_environment(folder)
    fill_packages(site_packages(folder))
    data = top / "real" / "data"
    data.mkdir()
    fill(data, top / "home")
    store = Store(top / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(top / "home"))
        image, made = capture(CaptureRequest(python=str(python), include=(str(data),)), store)
    assert made
    return Captured(folder, store, image)


def in_image(captured: Captured, path: Path) -> Path:
    """Where a path of the image lies in the store."""
    for layer in reversed(captured.image.layers):
        found = Path(f"{captured.store.layer(layer.diff_id)}{path}")
        if os.path.lexists(found):
            return found
    raise FileNotFoundError(path)


def data_of(captured: Captured) -> Path:
    return captured.folder.parent.resolve() / "data"


# -- files -------------------------------------------------------------------------------------------


def test_every_name_is_there_with_its_content(hostile: Captured) -> None:
    data = data_of(hostile)
    for name in ODD_NAMES:
        assert in_image(hostile, data / name).read_text(errors="surrogateescape") == name
    assert in_image(hostile, data / "deep" / ("d" * 200) / ("e" * 200) / "file").read_text() == "deep"
    assert in_image(hostile, data / "empty").is_dir()
    assert in_image(hostile, data / "nothing").read_bytes() == b""


def test_the_container_shows_every_name(hostile: Captured) -> None:
    data = data_of(hostile)
    program = "import os, sys; print(sorted(map(ascii, os.listdir(sys.argv[1]))))"
    done = run_in(hostile, "python", "-c", program, str(data), workdir=hostile.folder.parent / "work")
    expected = {ascii(name) for name in os.listdir(data) if name != "socket" and not name.startswith("pipe")}
    assert done.stdout == f"{sorted(expected)}\n", done.stderr


def test_links_are_kept_and_lead_nowhere_new(hostile: Captured) -> None:
    data = data_of(hostile)
    top = data.parent.parent
    for name in ("loop", "circle", "inside", "dangling", "to root", "to home", "null", "twin"):
        assert os.readlink(in_image(hostile, data / name)) == os.readlink(data / name)
    with pytest.raises(FileNotFoundError):
        in_image(hostile, top / "home" / "secret")
    for path in ("/proc", "/sys", "/dev"):
        assert os.listdir(in_image(hostile, Path(path))) == []


def test_setuid_is_stripped(hostile: Captured) -> None:
    assert in_image(hostile, data_of(hostile) / "setuid").stat().st_mode & 0o7777 == 0o755


def test_what_was_left_out_is_told(hostile: Captured) -> None:
    data = data_of(hostile)
    notes = "\n".join(hostile.image.notes)
    for wanted in (
        f"{data}/pipe\\xfe: not a file, directory or symbolic link",
        f"{data}/socket: not a file, directory or symbolic link",
        ": / is too wide",
        f": {data.parent.parent}/home is too wide",
        "/dev/null is the kernel's",
    ):
        assert wanted in notes
    assert hostile.store.image(hostile.image.digest).notes == hostile.image.notes


def test_an_environment_behind_an_absolute_link_runs_under_both_names(hostile: Captured) -> None:
    """On many clusters /home is a link. The mount of the working folder goes through it."""
    for work in (hostile.folder.parent / "work", hostile.folder.parent.resolve() / "work"):
        program = "import os, sys; open('made', 'w').close(); print(sys.prefix, os.getcwd())"
        done = run_in(hostile, "python", "-c", program, workdir=work)
        assert done.stdout.split() == [str(hostile.folder), str(work.resolve())], done.stderr
        (work / "made").unlink()


# -- byte code ---------------------------------------------------------------------------------------


def test_byte_code_is_used_where_it_is_valid_and_only_there(hostile: Captured) -> None:
    names = ("valid", "hashed", "missing", "stale", "short")
    program = f"import {', '.join(names)}; print({', '.join(f'{name}.VALUE' for name in names)})"
    done = run_in(hostile, "python", "-v", "-c", program, workdir=hostile.folder.parent / "work")
    assert done.stdout == "source source source newer source source\n", done.stderr
    compiled = set(re.findall(r"code object from '?([^'\n]*)\.py'?$", done.stderr, re.MULTILINE))
    assert {Path(path).name for path in compiled} == {"stale", "short"}, "other sources were compiled again"
    cached = {
        Path(path).name.partition(".")[0] for path in re.findall(r"code object from '(.*)\.pyc'", done.stderr)
    }
    assert {"valid", "hashed", "missing"} <= cached


def test_stale_and_orphaned_byte_code_is_left_out(hostile: Captured) -> None:
    packages = site_packages(hostile.folder).resolve()
    tag = sys.implementation.cache_tag
    for name in ("valid", "hashed", "missing"):
        assert in_image(hostile, packages / "__pycache__" / f"{name}.{tag}.pyc").is_file()
    for name in ("stale", "orphan", "short"):
        with pytest.raises(FileNotFoundError):
            in_image(hostile, packages / "__pycache__" / f"{name}.{tag}.pyc")


def test_the_byte_code_itself_is_the_environment_s(hostile: Captured) -> None:
    """Only the time in the header is written anew (PEP 552)."""
    path = (
        site_packages(hostile.folder).resolve() / "__pycache__" / f"valid.{sys.implementation.cache_tag}.pyc"
    )
    ours, theirs = in_image(hostile, path).read_bytes(), path.read_bytes()
    assert ours[:8] + ours[12:] == theirs[:8] + theirs[12:]
    assert ours[8:12] != theirs[8:12]


def test_nothing_of_the_standard_library_is_compiled_in_the_container(
    captured: Captured, tmp_path: Path
) -> None:
    done = run_in(
        captured, "python", "-v", "-c", "import json, argparse, email.message, ware", workdir=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"code object from '?([^'\n]*\.py)'?$", done.stderr, re.MULTILINE) == []
    assert done.stderr.count(".pyc matches") > 10


# -- refusals ----------------------------------------------------------------------------------------


def refused(store: Store, kind: type[BareboatError], **request: object) -> BareboatError:
    with pytest.raises(kind) as caught:
        capture(CaptureRequest(**{"python": sys.executable, **request}), store)  # type: ignore[arg-type]
    assert not (store.root / "images").exists()
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("name", ["nothing", "dangling", "loop"])
def test_an_include_that_is_not_there_is_refused(store: Store, tmp_path: Path, name: str) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    error = refused(store, UsageError, include=(str(tmp_path / name),))
    assert error.message.startswith(f"capture.include has {tmp_path / name}, to be added")


def test_an_empty_include_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    error = refused(store, UsageError, include=(str(tmp_path / "a b"),))
    assert error.message.endswith(f"{tmp_path}/a b, to be added to the capture, which is an empty directory")
    assert error.remedy == "remove include under [capture]"


@pytest.mark.parametrize("path", ["/", "/tmp", "/proc/self", "/dev/null", "pipe", "home"])
def test_an_include_that_cannot_be_taken_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    error = refused(store, UsageError, include=(str(tmp_path / path),))
    assert error.message == f"capture.include has {tmp_path / path}, which cannot be captured"
    assert error.context


def test_an_include_whose_path_is_not_utf8_is_refused(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    (folder / "file").touch()
    error = refused(store, UsageError, include=(str(folder),))
    assert f"{tmp_path}/\\xff is not UTF-8" in error.message


@pytest.mark.parametrize("make_unreadable", ["file", "folder", "folder/inner", "include"])
def test_what_cannot_be_read_is_refused_with_its_path(
    store: Store, tmp_path: Path, make_unreadable: str
) -> None:
    """As an ordinary user: root is started without the right to read everything."""
    data = tmp_path / "include"
    (data / "folder" / "inner").mkdir(parents=True)
    (data / "file").write_text("x")
    locked = data if make_unreadable == "include" else data / make_unreadable
    locked.chmod(0)
    try:
        verb = ("image", "capture", "--quiet", "--python", sys.executable, "--include", data)
        done = completed([*ordinary(), *command(*verb)], env=environment_of(store.root))
    finally:
        locked.chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert f"the capture cannot read {locked}" in done.stderr
    assert f"chmod -R u+rX {locked}" in done.stderr
    assert not (store.root / "images").exists()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\nexit 3\n", "does not start"),
        ("#!/bin/sh\necho 'Segmentation fault' >&2\nkill -SEGV $$\n", "does not start"),
        ("#!/nowhere/python\n", "does not start"),
        ("#!/bin/sh\necho 'Python 3.11.2'\n", "answered what cannot be understood"),
        ("#!/bin/sh\n", "answered what cannot be understood"),
        ("#!/bin/sh\nprintf '\\377\\376'\n", "answered what cannot be understood"),
        ("#!/bin/sh\necho '{\"executable\": 3}'\n", "answered what cannot be understood"),
        ("no program", "does not start"),
    ],
)
def test_a_broken_interpreter_is_one_clear_error(
    store: Store, tmp_path: Path, script: str, message: str
) -> None:
    path = tmp_path / "python"
    executable(path, script)
    error = refused(store, ToolError, python=str(path))
    assert f"the Python {path} {message}" in error.message
    if "Segmentation" in script:
        assert "Segmentation fault" in error.context
    if "3.11.2" in script:
        assert "Python 3.11.2" in error.context


def test_an_interpreter_that_is_not_there_or_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("x")
    for path in (tmp_path / "python", tmp_path / "nothing", tmp_path):
        with pytest.raises(UsageError, match=f"no Python at {path}") as caught:
            choose(str(path))
        assert caught.value.remedy.startswith('set python = "/')


def test_the_caller_s_python_variables_do_not_reach_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ask(sys.executable)
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    assert ask(sys.executable) == before


# -- an environment that does not stand still --------------------------------------------------------


def _vanish(data: Path) -> None:
    (data / "file").unlink()


def _vanish_folder(data: Path) -> None:
    (data / "file").unlink()
    (data / "other").unlink()
    data.rmdir()


def _grow(data: Path) -> None:
    with (data / "file").open("a") as stream:
        stream.write("more")


@pytest.mark.parametrize("change", [_vanish, _vanish_folder, _grow])
def test_a_file_that_changes_during_the_capture_is_one_clear_error(
    store: Store, tmp_path: Path, captured: Captured, change: Callable[[Path], None]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("x")
    (data / "other").write_text("x")
    request = CaptureRequest(python=str(captured.python), include=(str(data),))
    changed = False

    def progress(what: str, _done: int, _total: int) -> None:
        nonlocal changed
        if what == "finding the shared libraries" and not changed:
            change(data)
            changed = True

    with pytest.raises(UsageError, match="changed or vanished while the environment was captured") as caught:
        capture(request, store, progress=progress)
    assert str(data) in caught.value.message
    assert "capture again" in caught.value.remedy
    assert changed
    assert os.listdir(store.root / "tmp") == []
    assert not (store.root / "images").exists()


def test_an_editable_install_is_taken_from_where_it_lies(store: Store, tmp_path: Path) -> None:
    """Its folder has a space in its name, and another one is gone (PEP 610)."""
    folder = tmp_path / "venv"
    python = make_environment(folder)
    source = tmp_path / "my project" / "src" / "mine"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("NAME = 'mine'\n")
    for name, path in (("mine", tmp_path / "my project"), ("gone", tmp_path / "gone")):
        about = site_packages(folder) / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "direct_url.json").write_text(
            f'{{"dir_info": {{"editable": true}}, "url": "{path.as_uri()}"}}'
        )
    (site_packages(folder) / "mine.pth").write_text(f"{source.parent}\n")
    image, _ = capture(CaptureRequest(python=str(python)), store)
    found = Captured(folder, store, image)
    (tmp_path / "work").mkdir()
    done = run_in(found, "python", "-c", "import mine; print(mine.NAME)", workdir=tmp_path / "work")
    assert done.stdout == "mine\n", done.stderr
