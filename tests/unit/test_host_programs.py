"""Programs of the machine in a container: what must be mounted, and words that any tool passes on."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from bareboat.engines import host_programs
from bareboat.model import IfSet, Joined, Outcome, Variable
from bareboat_base import execute


class Machine:
    """The real one, or one on which ldd says something else."""

    def __init__(self, said: str | None = None) -> None:
        self.said = said

    def which(self, name: str) -> str | None:
        return shutil.which(name)

    def run(self, argv: Sequence[str], *, timeout_s: float = 20.0) -> Outcome:
        if self.said is None:
            return execute.run(argv, timeout_s=timeout_s)
        return Outcome(argv=tuple(argv), exit_code=0, stdout=self.said, stderr="", wall_s=0.0)

    def scratch(self) -> str:
        raise NotImplementedError

    def user_namespace_obstacle(self) -> tuple[str, str] | None:
        return None


GLIBC = """\
\tlinux-vdso.so.1 (0x00007f64ae08e000)
\tlibtinfo.so.6 => /lib/x86_64-linux-gnu/libtinfo.so.6 (0x00007f64adf09000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f64add27000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f64ae090000)
"""
MUSL = """\
\t/lib/ld-musl-x86_64.so.1 (0x7f1c7)
\tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x7f1c7)
"""


@pytest.mark.parametrize(
    ("said", "files"),
    [
        (
            GLIBC,
            [
                "/lib64/ld-linux-x86-64.so.2",
                "/lib/x86_64-linux-gnu/libtinfo.so.6",
                "/lib/x86_64-linux-gnu/libc.so.6",
            ],
        ),
        (MUSL, ["/lib/ld-musl-x86_64.so.1"]),
        ("\tstatically linked\n", []),
    ],
)
def test_the_loader_comes_first(said: str, files: list[str]) -> None:
    found = host_programs.find(Machine(said))
    assert found["env"].split(":")[1:] == files


def test_without_a_loader_the_program_starts_by_itself() -> None:
    assert host_programs.call({"env": "/bin/env"}, "/in", "env") == ("/in/env",)
    assert host_programs.call({"env": "/bin/env:/lib64/ld.so.2:/lib/libc.so.6"}, "/in", "env") == (
        "/in/ld.so.2", "--library-path", "/in", "/in/env",
    )  # fmt: skip


def run(start: host_programs.Start, **variables: str) -> bytes:
    """Run the words, with the programs where they are to be mounted and the variables filled in."""
    for place, source in start.files.items():
        shutil.copy(source, place)
    words: list[str] = []
    for word in start.words:
        for part in word.words if isinstance(word, IfSet) else (word,):
            assert not isinstance(part, IfSet | Variable)
            pieces = part.parts if isinstance(part, Joined) else (part,)
            words.append("".join(p if isinstance(p, str) else variables[p.name] for p in pieces))
    done = subprocess.run(
        list(map(os.fsencode, words)), env={"LEAK": "1", "LD_LIBRARY_PATH": "/nowhere"}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@pytest.mark.parametrize(
    "word",
    ["plain", "", "\\n", "%s %b \\c", os.fsdecode(bytes(range(1, 256))), "ü", os.fsdecode(b"\xff\n\n")],
)
def test_every_byte_of_every_word_arrives(tmp_path: Path, word: str) -> None:
    programs = host_programs.find(Machine())
    mark = IfSet("MARK", (Joined(("MARK=", Variable("MARK"))),))
    assignments = ("PATH=/usr/bin:/bin", f"V={word}", mark)
    start = host_programs.Start(
        programs,
        str(tmp_path),
        assignments,
        ("bash", "-c", 'printf "%s|" "$V" "$MARK" "$LEAK" "$@"', "bash", word),
    )
    data = os.fsencode(word)
    assert run(start, MARK="seen") == data + b"|seen||" + data + b"|"
    spoiled = any(part for part in start.words if part == word) and not word.isascii() and word != "ü"
    assert not spoiled, "a word that is not UTF-8 goes in disguise"


def test_a_program_with_an_equals_sign_in_its_name_is_no_variable(tmp_path: Path) -> None:
    program = tmp_path / "a=b"
    program.write_text("#!/bin/sh\necho it ran\n")
    program.chmod(0o755)
    start = host_programs.Start(host_programs.find(Machine()), str(tmp_path), (), (str(program),))
    assert run(start) == b"it ran\n"
