"""Programs of the machine, mounted into a container: they start the command with its own environment only.

Some tools add variables to the container's environment and have no option against it. env(1) drops them, but
an image may consist of one program only. So the machine's env is mounted with its loader and libraries, and
started by that loader: it needs nothing of the image.
https://man7.org/linux/man-pages/man8/ld.so.8.html (--library-path)

bash is mounted too where a word is not UTF-8, which the tool, storing words as JSON, would corrupt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from bareboat.engines import Host, command_environment
from bareboat.model import ForwardEnv, IfSet, Joined, Mount, NodePath, Opened, Variable, Word
from bareboat.model.command import CARRIER
from bareboat_base.sif import write_sif

_PROGRAMS = ("env", "bash")

#: The host's directories with which a probe runs programs in an empty image.
_SYSTEM_FOLDERS = ("bin", "lib", "lib32", "lib64", "libx32", "usr", "nix")

#: Decodes its arguments to bytes and executes them.
_DECODE = 'words=(); for word; do printf -v word %b "$word"; words+=("$word"); done; exec "${words[@]}"'


#: Exports the values in the descriptor $0, and executes the rest.
_OPEN = (
    'mapfile -d "" -t values <&"$0"; at=$0; exec {at}<&-; for number in "${!values[@]}"; do '
    f'export "{CARRIER}$number=${{values[number]}}"; done; exec "$@"'
)


def system_mounts() -> tuple[Mount, ...]:
    """The mounts of the directories that this machine has, with links resolved."""
    return tuple(
        Mount(source=os.path.realpath(f"/{name}"), target=f"/{name}")
        for name in _SYSTEM_FOLDERS
        if os.path.isdir(f"/{name}")
    )


def find(host: Host) -> dict[str, str]:
    """Program -> its file, its loader and its libraries, joined by colons. Programs that are not found are
    omitted."""
    found = {}
    ldd = host.which("ldd")
    for name in _PROGRAMS:
        path = host.which(name)
        if path is None or ldd is None:
            continue
        # Without the caller's LD_PRELOAD and LD_LIBRARY_PATH, which are not set inside.
        said = host.run(["env", "-i", "PATH=/usr/bin:/bin", ldd, path])
        libraries = list(_libraries(said.stdout))
        # ldd fails for a static program, which has no loader.
        if not said.ok or any(":" in file for file in (path, *libraries)):
            libraries = []
        found[name] = ":".join((path, *libraries))
    return found


def _libraries(said: str) -> Iterable[str]:
    """The loader, then the libraries, of what ldd printed: `NAME => PATH (ADDRESS)` or `PATH (ADDRESS)`."""
    paths = [line.rpartition(" (")[0].rpartition("=> ")[2].strip() for line in said.splitlines()]
    paths = [path for path in paths if path.startswith("/")]
    return sorted(dict.fromkeys(paths), key=lambda path: not os.path.basename(path).startswith("ld"))


class Start:
    """How a command starts inside: the files to mount in `folder` of the container, and the words."""

    def __init__(
        self,
        programs: Mapping[str, str],
        folder: str,
        assignments: tuple[Word, ...],
        argv: tuple[Word, ...],
        names: tuple[str, ...] = (),
    ) -> None:
        """`assignments`: NAME=VALUE, all of the command's environment besides the variables `names`, whose
        values are in the descriptor."""
        self._programs = programs
        self._folder = folder
        #: Place in the container -> the machine's file.
        self.files: dict[str, str] = {}
        split = ("-S", command_environment.split(names)) if names else ()
        words: tuple[Word, ...] = (*self._call("env"), "-i", *split, *assignments)
        if "=" in str(argv[0]):  # env would read it as a variable
            words += (*self._call("bash"), "-c", 'exec "$@"', "bash")
        words += argv
        if not all(_is_utf8(word) for word in words):
            words = (*self._call("bash"), "-c", _DECODE, "bash", *(_mapped(_escaped, word) for word in words))
        if names:
            words = (*self._call("bash"), "-c", _OPEN, command_environment.DESCRIPTOR, *words)
        self.words = words

    def _call(self, program: str) -> tuple[str, ...]:
        places = _places(self._programs, self._folder, program)
        self.files |= dict(zip(places, self._programs[program].split(":"), strict=True))
        return call(self._programs, self._folder, program)


def call(programs: Mapping[str, str], folder: str, program: str) -> tuple[str, ...]:
    """The words that start a mounted program."""
    called, *libraries = _places(programs, folder, program)
    return (libraries[0], "--library-path", folder, called) if libraries else (called,)


def _places(programs: Mapping[str, str], folder: str, program: str) -> list[str]:
    """Where in the container the program, its loader and its libraries are."""
    names = [program, *map(os.path.basename, programs[program].split(":")[1:])]
    return [f"{folder}/{name}" for name in names]


def _is_utf8(word: Word) -> bool:
    try:
        _mapped(lambda text: str(text.encode()), word)
    except UnicodeEncodeError:
        return False
    return True


def _escaped(text: str) -> str:
    """The text in the form that bash's `printf %b` decodes."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte != ord("\\") else f"\\0{byte:03o}"
        for byte in os.fsencode(text)
    )


def _mapped(change: Callable[[str], str], word: Word) -> Word:
    """The word with its constant parts changed."""
    match word:
        case str():
            return change(word)
        case Variable() | ForwardEnv() | Opened():
            return word
        case NodePath():
            return _changed(change, word)
        case Joined(parts=parts):
            return Joined(tuple(_changed(change, part) for part in parts))
        case IfSet(variable=variable, words=words):
            changed = tuple(_mapped(change, each) for each in words)
            return IfSet(
                variable, tuple(each for each in changed if not isinstance(each, IfSet | ForwardEnv | Opened))
            )


def _changed(change: Callable[[str], str], part: str | Variable | NodePath) -> str | Variable | NodePath:
    match part:
        case str():
            return change(part)
        case NodePath(variable=variable, below=below, planned=planned):
            return NodePath(variable, change(below), planned)
        case Variable():
            return part


def image_trial(host: Host, tree: Path, kind: str, run: Callable[[str], str | None]) -> str:
    """Pack a small tree as images are packed in one file (a squashfs, bare or in a SIF), and run it.
    Return the fault, empty when there is none."""
    mksquashfs = host.which("mksquashfs")
    if mksquashfs is None:
        return "mksquashfs, which packs images, is not installed"
    path = tree.with_name("image_trial.squashfs")
    said = host.run([mksquashfs, "-help"])
    zstd = ["-comp", "zstd"] if re.search(r"^\s+zstd\b", said.stdout + said.stderr, re.M) else []
    done = host.run(
        [mksquashfs, str(tree), str(path), "-noappend", "-no-progress", "-no-xattrs", "-all-root", *zstd]
    )
    if not done.ok:
        return f"mksquashfs failed with: {(done.stderr or done.stdout).strip()}"
    if kind == "sif":
        path, squashfs = tree.with_name("image_trial.sif"), path
        write_sif(squashfs, path, os.uname().machine)
    return run(str(path)) or ""
