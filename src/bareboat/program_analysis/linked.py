"""Detect from its files whether a job's command uses MPI: the program, its linked libraries, and the programs
that a shell or a wrapper starts. No program is executed.

For Python programs, the packages of the environment decide (`images.inside.mpis`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bareboat import commands
from bareboat.program_analysis.command import MISSING, Fault, Program, Sight, resolve
from bareboat.program_analysis.libraries import ContainerLoader
from bareboat_base.elf import binary
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_images.model import Linked

_MPI = expression(r"libmpi(?:ch|_\w+|cxx|fort|f90)?\.so(?:\.(?P<major>\d+))?(?:\.\d+)*")
#: The number in the names of a family's libraries -> its C library, which identifies the family.
_OF_FAMILY = {"40": "libmpi.so.40", "12": "libmpi.so.12"}
#: Text in a program with a statically linked MPI.
_STATIC = (b"OMPI_COMM_WORLD_SIZE", b"PMI_FD", b"PMIX_RANK")

#: Interpreters whose programs may use MPI through a module, which linked libraries do not show.
_INTERPRETERS = expression(r"(?:Rscript|R|julia|perl|ruby|java|octave|matlab|lua)[\d.]*")
#: Shell words before a command, and commands that do not start a program.
_BEFORE = ("then", "do", "else", "if", "while", "until", "!", "{", "(")
_BUILT_IN = (
    "cd", "export", "set", "unset", "ulimit", "umask", "echo", "printf", "source", ".", "module", "ml",
    "trap", "test", "[", "[[", "local", "declare", "read", "wait", "exit", "return", "shift", "true",
    "false", ":", "fi", "done", "esac", "}", ")", "for", "case", "function", "eval", "alias",
)  # fmt: skip
_ASSIGNMENT = expression(r"[A-Za-z_]\w*\+?=")
_MOST_SCRIPT = 64 * 1024
#: Limits on nested scripts and wrappers, and on the commands that are resolved for one job.
_MOST_DEPTH, _MOST_COMMANDS = 6, 1000
_MOST_LIBRARIES = 1000


def look(
    argv: Sequence[str], sight: Sight, *, environment: Mapping[str, str], workdir: str, machine: str
) -> tuple[Linked | None, tuple[str, ...]]:
    """MPI facts from the command's files, None if no program was found or uses MPI, or Python starts it; and
    the programs that its shell code starts and that are not there."""
    found = _Search(sight, environment, workdir, machine)
    found.command(tuple(argv), 0)
    linked = None
    if found.mpi:
        linked = Linked(program=found.program, mpi=tuple(found.mpi))
    elif found.unknown:
        linked = Linked(program=found.unknown[0], unknown=found.unknown[1])
    return linked, tuple(found.absent)


@dataclass(slots=True)
class _Search:
    sight: Sight
    environment: Mapping[str, str]
    workdir: str
    machine: str
    program: str = ""
    mpi: dict[str, None] | None = None
    loader: ContainerLoader | None = None
    looked_up: int = 0
    #: Libraries that were checked, for this program or an earlier one.
    seen: set[str] = field(default_factory=set)
    #: The first program that cannot be judged, and why.
    unknown: tuple[str, str] | None = None
    absent: dict[str, None] = field(default_factory=dict)

    def command(self, words: tuple[str, ...], depth: int) -> None:
        self.looked_up += 1
        if not words or self.mpi:
            return
        if depth > _MOST_DEPTH or self.looked_up > _MOST_COMMANDS:
            self._give_up(words[0], "too many commands start each other")
            return
        words = (_expanded(words[0], self.environment), *words[1:])
        name = os.path.basename(words[0])
        if "$" in words[0] or "`" in words[0]:
            self._give_up(words[0], "its name is known at the start only")
            return
        if (inner := commands.inner(words)) is not None:
            self.command(inner, depth + 1)
            return
        if commands.is_shell(name):
            self._shell(words, depth)
            return
        path = self.environment.get("PATH", "")
        found = resolve(words[0], self.sight, path=path, workdir=self.workdir, machine=self.machine)
        if isinstance(found, Fault):  # a program that cannot start does not use MPI
            self.absent |= dict.fromkeys([name] if depth and found.code == MISSING else [])
            return
        if found is None:
            self._give_up(words[0], "its file is not seen here")
        else:
            self._file(found, words, depth)

    def _file(self, found: Program, words: tuple[str, ...], depth: int) -> None:
        name = os.path.basename(found.path)
        if found.script:
            inner = found.interpreter
            by = os.path.basename((inner.path if inner is not None else found.script[0]).split()[0])
            if commands.is_shell(by):
                self._text(_read(found.place), words[1:], depth)
            elif not by.startswith(("python", "pypy")):
                self._give_up(name, f"it is a script for {by}")
        elif found.machine is None:
            self._text(_read(found.place), words[1:], depth)  # execvp(3) runs it with /bin/sh
        elif _INTERPRETERS.fullmatch(name):
            self._give_up(name, "its programs may load an MPI by a module")
        elif not name.startswith(("python", "pypy")):
            self.mpi = self._libraries(found.path, found.place)
            self.program = name

    def _shell(self, words: tuple[str, ...], depth: int) -> None:
        if (code := commands.shell_text(words)) is not None:
            self._text(code[0], code[2:], depth)
            return
        script = commands.file(words)
        if script is None:
            self._give_up(words[0], "its commands are read from the standard input")
            return
        node = self.sight.find(os.path.join(self.workdir, script))
        if node is not None and node.kind == "file" and node.place is not None:
            self._text(_read(node.place), words[words.index(script, 1) + 1 :], depth)

    def _text(self, text: str, given: Sequence[str], depth: int) -> None:
        """Check all simple commands of shell code, executed or not. `given`: the script's arguments."""
        for words in _commands(text):
            if self.looked_up > _MOST_COMMANDS:
                return
            whole = (each for word in words for each in (given if word in ("$@", "$*") else (word,)))
            self.command(tuple(whole), depth + 1)

    def _libraries(self, path: str, place: str) -> dict[str, None]:
        """The MPI libraries that a file is linked to, directly or indirectly, or that it is."""
        first = place
        pending = [place]
        found: dict[str, None] = {}
        while pending and len(self.seen) < _MOST_LIBRARIES:
            place = pending.pop(0)
            with binary.opened(place) as elf:
                if place == first and not elf.needed and any(map(elf.holds, _STATIC)):
                    found["a static MPI"] = None
                own = (elf.soname,) if place == first and elf.soname is not None else ()
                for name in (*own, *elf.needed):
                    if (mpi := _MPI.fullmatch(name)) is not None:
                        found[_OF_FAMILY.get(mpi["major"] or "", name)] = None
                    elif name not in self.seen:
                        self.seen.add(name)
                        pending += self._library(name, path, elf.search_path)
        return found

    def _library(self, name: str, needed_by: str, search: binary.SearchPath) -> Iterator[str]:
        """The path where the loader would find a library, links resolved; nothing if it is not visible."""
        if self.loader is None:
            self.loader = ContainerLoader(self.sight, self.environment, self.workdir, self.machine)
        node = self.loader.find(name, needed_by, search)
        if node is not None and node.place is not None:
            yield node.place

    def _give_up(self, program: str, why: str) -> None:
        self.unknown = self.unknown or (os.path.basename(program), why)


def _expanded(word: str, environment: Mapping[str, str]) -> str:
    """The word with known variables replaced by their values."""

    def value(found: re.Match[str]) -> str:
        return environment.get(found[1] or found[2], found[0])

    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, word)


def _commands(text: str) -> Iterator[tuple[str, ...]]:
    """The simple commands of shell code, as far as words and operators separate them."""
    text = re.sub(r"(^|\s)#[^\n]*", r"\1", text.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    lexer.commenters = ""
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for token in lexer:
            if set(token) <= set(";&|()\n"):
                yield from _simple(words)
                words = []
            else:
                words.append(token)
    except ValueError:  # for example a here-document with an unclosed quote
        pass
    yield from _simple(words)


def _simple(words: list[str]) -> Iterator[tuple[str, ...]]:
    while words and (words[0] in _BEFORE or _ASSIGNMENT.match(words[0])):
        words = words[1:]
    if words and words[0] not in _BUILT_IN:
        yield tuple(words)


def _read(place: str) -> str:
    try:
        with untrusted.stream(place) as stream:
            return os.fsdecode(stream.read(_MOST_SCRIPT))
    except OSError:
        return ""
