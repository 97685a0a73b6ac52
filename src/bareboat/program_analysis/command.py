"""Resolve the first word of a command in a container: the file that would be executed and what it requires,
or the reason why it cannot be executed. No program is executed.

Follows execve(2), execvp(3) and PATH. Exit codes are those of POSIX shells: 127 for a missing program, 126
for a program that cannot be executed.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from bareboat_base.files import untrusted
from bareboat_base.files.links import follow
from bareboat_base.paths import DEFAULT_PATH
from bareboat_images.layers.view import View

if TYPE_CHECKING:
    from bareboat_base.elf.binary import Binary

MISSING, NOT_EXECUTABLE = 127, 126

#: The limit of Linux (execve(2)).
_MOST_INTERPRETERS = 5
#: The bytes that Linux reads of a script's first line (execve(2)).
_MOST_SHEBANG = 256

#: Machines that also run programs of other architectures.
_ALSO_RUNS = {"x86_64": ("i686",), "aarch64": ("armv7l",)}


class Program(Struct, frozen=True, kw_only=True):
    """A file that can be executed. `path`: in the container, links resolved; `place`: on this machine;
    `mounted`: a file of the host, not of the image. For an ELF file, `machine` as in `uname -m`. For a
    script, `script`: the words after #!, and their `interpreter` (None: unknown). Otherwise, execvp(3) runs
    the file with /bin/sh."""

    word: str
    path: str
    place: str
    mounted: bool = False
    machine: str | None = None
    script: tuple[str, ...] = ()
    interpreter: Program | None = None


class Fault(Struct, frozen=True, kw_only=True):
    """Why a word cannot be executed. `reason` follows the word: '"foo" is not in …'. `at`: the path of the
    missing file if the word is a path."""

    code: int
    reason: str
    context: str = ""
    remedy: str = ""
    at: str = ""


class Node(Struct, frozen=True):
    """The entry at a path without links. `place`: None if it is unknown before the start."""

    path: str
    kind: str  # `folder`, `file`, `link` or `other`
    place: str | None
    mounted: bool


#: The kind of an entry that only the start shows.
UNKNOWN = "not known"


class Sight:
    """The files that are visible in a container: those of the image, and mounted files of the host."""

    def __init__(
        self,
        layers: Sequence[Path],
        *,
        mounts: Mapping[str, str | None] | None = None,
        kept: Iterable[str] = (),
        tree: Path | None = None,
        name: str = "the image",
    ) -> None:
        """`layers`: unpacked, bottom first; `tree`: all of them as one tree, if it exists. `mounts`: target
        -> source on this machine, or None if it is unknown before the start. `kept`: paths below mounts with
        the image's own files. For bare metal: no layers, and {"/": "/"}. `name`: the name of the place in
        messages."""
        self.name = name
        self._view = View(layers)
        self._tree = None if tree is None else str(tree)
        self._mounts = {_normal(target): source for target, source in (mounts or {}).items()}
        self._kept = frozenset(map(_normal, kept)) - self._mounts.keys()
        self._root = (self._at("/") if "/" in self._mounts else None) or Node("/", "folder", None, False)

    def find(self, path: str) -> Node | None:
        """The entry at an absolute path, links followed; None if it does not exist."""
        met = {"/": self._root}
        unknown: list[Node] = []

        def target(step: str) -> str | None:
            here = met[os.path.dirname(step)]
            found = self._at(step) if here.kind == "folder" else None
            if found is None or found.kind == "link":
                return _target(found) if found is not None else ""
            met[step] = found
            if found.kind == UNKNOWN:
                unknown.append(found)
                return ""
            return None

        real = follow(path, target, lambda step: met[step].kind == "folder")
        return unknown[0] if unknown else met[real] if real is not None else None

    def names(self, path: str) -> Iterator[str]:
        """The known names in a directory."""
        found = self.find(path)
        if found is None or found.kind != "folder":
            return
        if found.place is not None and (found.mounted or self._tree is not None):
            try:
                yield from sorted(os.listdir(found.place))
            except OSError:
                return
        else:
            yield from sorted(self._view.names(found.path))

    def source(self, path: str) -> str | None:
        """The path on this machine that is mounted at an absolute path; None if it belongs to the image."""
        if not path:
            return None
        target = self._shown_by(path)
        source = self._mounts.get(target)
        return None if source is None else source.rstrip("/") + path[len(target.rstrip("/")) :] or "/"

    def _shown_by(self, path: str) -> str:
        """The innermost mount or kept path that contains a path; otherwise "/"."""
        while path not in self._mounts and path not in self._kept and path != "/":
            path = os.path.dirname(path)
        return path

    def _at(self, path: str) -> Node | None:
        """The entry at a path whose parents are not links."""
        if path == "/" and "/" not in self._mounts:
            return self._root
        target = self._shown_by(path)
        if target in self._mounts:
            place = self.source(path)
            if place is None:
                return Node(path, UNKNOWN, None, mounted=True)
            return _on_host(path, place, is_mount=path == target) or self._made(path)
        if self._tree is not None:
            return _on_host(path, self._tree + path, is_mounted=False) or self._made(path)
        parent, _, name = path.rpartition("/")
        node = self._view.names(parent or "/").get(name)
        if node is not None:
            return Node(path, node.kind, node.places[0], mounted=False)
        if (parent or "/") in self._view.unreadable:
            return Node(path, UNKNOWN, None, mounted=False)
        return self._made(path)

    def _made(self, path: str) -> Node | None:
        """A directory that is made for a mount below it."""
        below = any(place.startswith(f"{path}/") for place in (*self._mounts, *self._kept))
        return Node(path, "folder", None, mounted=False) if below else None


def _normal(path: str) -> str:
    return os.path.normpath("/" + path.lstrip("/"))


def _target(node: Node) -> str:
    try:
        return os.readlink(node.place) if node.place is not None else ""
    except OSError:
        return ""


def _on_host(path: str, place: str, *, is_mount: bool = False, is_mounted: bool = True) -> Node | None:
    """The entry at a path of this machine. Links in a mount's source are resolved, as by mount(2)."""
    try:
        mode = (os.stat if is_mount else os.lstat)(place).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return Node(path, UNKNOWN, None, is_mounted)
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISREG, "file"), (stat.S_ISLNK, "link"))
    kind = next((kind for is_kind, kind in kinds if is_kind(mode)), "other")
    return Node(path, kind, place, is_mounted)


_Result = Program | Fault | None


def resolve(word: str, sight: Sight, *, path: str, workdir: str, machine: str) -> Program | Fault | None:
    """The program that `word` starts in `workdir` with this PATH ("" for none) on a machine of this
    architecture; None if it is unknown before the start."""
    return _Search(sight, path or DEFAULT_PATH, workdir, machine).resolve(word)


def candidates(word: str, path: str, workdir: str) -> Iterator[str]:
    """The paths at which execvp(3) looks for a program, in its order."""
    folders = [workdir] if "/" in word else [each or "." for each in path.split(":")]
    for folder in folders:
        yield os.path.join(workdir, folder, word)


class _Search(Struct, frozen=True):
    sight: Sight
    path: str
    workdir: str
    machine: str

    def resolve(self, word: str, depth: int = 0) -> _Result:
        fault: Fault | None = None
        for candidate in candidates(word, self.path, self.workdir):
            node = self.sight.find(candidate)
            if node is None:
                continue
            if node.kind == UNKNOWN:
                return None
            found = self._judge(word, candidate, node, depth)
            if not isinstance(found, Fault):
                return found
            fault = fault or found
            if not _is_refused(node):  # execvp(3) continues along PATH only after EACCES
                break
        return fault or self._missing(word)

    def _judge(self, word: str, at: str, node: Node, depth: int) -> _Result:
        """`at`: the path by which the file was found, for messages."""
        at = os.path.normpath(at)
        if node.kind == "folder":
            return Fault(code=NOT_EXECUTABLE, reason=f"is a directory: {at}", remedy="name a program in it")
        if node.kind != "file" or node.place is None:
            return Fault(code=NOT_EXECUTABLE, reason=f"is not a regular file: {at}", remedy="name a program")
        from bareboat_base.elf import binary

        program = Program(word=word, path=node.path, place=node.place, mounted=node.mounted)
        try:
            if _is_refused(node):
                return self._not_executable(word, at, node)
            descriptor = untrusted.open_regular(node.place)
        except OSError:  # it may be executable without being readable
            return program
        try:
            with binary.read(descriptor) as elf:
                if elf is not None:
                    return self._of_elf(program, at, elf)
            head = os.pread(descriptor, _MOST_SHEBANG, 0)
        finally:
            os.close(descriptor)
        if not head.startswith(b"#!"):
            return program
        return self._of_script(program, at, os.fsdecode(head[2:].split(b"\n")[0]), depth)

    def _of_elf(self, program: Program, at: str, elf: Binary) -> _Result:
        if elf.machine is not None and elf.machine not in (self.machine, *_ALSO_RUNS.get(self.machine, ())):
            if _is_emulated(elf.machine):
                return None
            return Fault(
                code=NOT_EXECUTABLE,
                reason=f"is built for {elf.machine}, and the job runs on {self.machine}: {at}",
                remedy=f"use a build for {self.machine}",
            )
        loader = elf.interpreter
        if loader is not None and self.sight.find(loader) is None:
            return Fault(
                code=MISSING,
                reason=f"requires the program loader {loader}, which is not in {self.sight.name}: {at}",
                remedy="use a build for the C library of the image, or a static one",
            )
        return replace(program, machine=elf.machine)

    def _of_script(self, program: Program, at: str, line: str, depth: int) -> _Result:
        if line.endswith("\r"):
            return Fault(
                code=MISSING,
                reason=f"has Windows line endings, so its interpreter is not found: {at}",
                remedy=f"sed -i 's/\\r$//' {shlex.quote(program.place if program.mounted else at)}",
            )
        words = tuple(line.strip(" \t").split(None, 1))
        if not words:
            return program
        if depth == _MOST_INTERPRETERS:
            return Fault(code=NOT_EXECUTABLE, reason=f"is a script with too many interpreters: {at}")
        # The kernel uses it unchanged and does not search PATH.
        named = words[0] if "/" in words[0] else f"./{words[0]}"
        found = self.resolve(named, depth + 1)
        if isinstance(found, Program) and os.path.basename(words[0]) == "env" and (inner := _of_env(words)):
            named = inner
            found = self.resolve(inner, depth + 1)
        if isinstance(found, Fault):
            missing = f"which is not in {self.sight.name}"
            why = missing if found.code == MISSING else f"which {found.reason}"
            name = next(iter(self._near(os.path.basename(named))), "python3" if at.endswith(".py") else "sh")
            return Fault(
                code=found.code,
                reason=f"is a script for {named}, {why}: {at}",
                remedy=f"correct its first line; or: {_as_command(name, at)}",
            )
        return replace(program, script=words, interpreter=found)

    def _not_executable(self, word: str, at: str, node: Node) -> Fault:
        assert node.place is not None
        where, remedy = f" in {self.sight.name}", "chmod +x it where the image is built"
        if node.mounted:
            where, remedy = "", f"chmod +x {shlex.quote(node.place)}"
            if os.stat(node.place).st_mode & 0o111:
                if os.statvfs(node.place).f_flag & os.ST_NOEXEC:
                    return Fault(
                        code=NOT_EXECUTABLE,
                        reason=f"is on a file system mounted noexec: {node.place}",
                        remedy="copy it to a file system that allows programs",
                    )
                return Fault(
                    code=NOT_EXECUTABLE,
                    reason=f"is not executable by you: {node.place}",
                    remedy=f"ls -l {shlex.quote(node.place)}",
                )
        if at.endswith(".py"):
            remedy += f"; or: {_as_command('python', word)}"
        return Fault(code=NOT_EXECUTABLE, reason=f"is not executable{where}: {at}", remedy=remedy)

    def _missing(self, word: str) -> Fault:
        name = self.sight.name
        words = word.split()
        if len(words) > 1 and any(map(self.sight.find, candidates(words[0], self.path, self.workdir))):
            return Fault(
                code=MISSING,
                reason=f"is one word, and no program in {name} has this name",
                remedy=_as_command(*words),
            )
        if "/" in word:
            return no_file(word, self.sight, self.workdir)
        beside = self.sight.find(os.path.join(self.workdir, word))
        if beside is not None and beside.kind == "file":
            start = ("python", word) if word.endswith(".py") else (f"./{word}",)
            return Fault(
                code=MISSING,
                reason=f"is not on the PATH of {name}; it is a file in the working directory",
                remedy=_as_command(*start),
            )
        near = self._near(word)
        return Fault(
            code=MISSING,
            reason=f"is not on the PATH of {name}",
            context=f"PATH={self.path}",
            remedy=f"did you mean {' or '.join(near)}?"
            if near
            else "install it in the image, or name the program by its path",
        )

    def _near(self, word: str) -> list[str]:
        folders = [folder for folder in self.path.split(":") if folder.startswith("/")]
        names = {name for folder in folders for name in self.sight.names(folder)} - {word}
        letters = {name: sorted(re.sub(r"[-\d.]+$", "", name).lower()) for name in (*names, word)}
        return sorted((name for name in names if letters[name] == letters[word]), key=len)[:2]


def no_file(path: str, sight: Sight, workdir: str) -> Fault:
    """The fault of a file that does not exist, with a name that is near."""
    at = os.path.normpath(os.path.join(workdir, path))
    near = _close(os.path.basename(at), sight.names(os.path.dirname(at)))
    where = "on" if sight.name == "this machine" else "in"
    return Fault(
        code=MISSING,
        reason=f"is not {where} {sight.name}: there is no file {at}",
        remedy=f"did you mean {os.path.join(os.path.dirname(path), near[0])}?"
        if near
        else "correct the path, or mount the directory that has the file",
        at=at,
    )


def _as_command(*words: str) -> str:
    """The command as it is written in a job file and after --."""
    listed = ", ".join(f'"{word}"' for word in words)
    return f"command = [{listed}], or -- {shlex.join(words)}"


def _is_refused(node: Node) -> bool:
    """Whether execve(2) returns EACCES."""
    if node.kind != "file" or node.place is None:
        return True
    if node.mounted:
        return not os.access(node.place, os.X_OK)
    # The user owns an image's files in a container; the store may be mounted noexec.
    return not os.stat(node.place).st_mode & 0o111


def _of_env(words: Sequence[str]) -> str:
    """The program that `#!/usr/bin/env …` starts; "" if it cannot be determined."""
    rest = words[1].split() if len(words) > 1 else []
    if rest[:1] == ["-S"]:
        rest = rest[1:]
    elif len(rest) > 1:
        return ""  # the kernel passes one argument, including spaces
    return rest[0] if rest and not rest[0].startswith("-") and "=" not in rest[0] else ""


def _close(word: str, names: Iterable[str]) -> list[str]:
    """The most similar names, at most two."""
    from difflib import get_close_matches  # slow to import, and only for errors

    return get_close_matches(word, set(names) - {word}, n=2, cutoff=0.75)


def _is_emulated(machine: str) -> bool:
    """Whether this machine's kernel runs such programs with an emulator (binfmt_misc)."""
    try:
        return any(machine in name for name in os.listdir("/proc/sys/fs/binfmt_misc"))
    except OSError:
        return False
