"""Fuzzing of every reader that takes bytes of strangers: layers, documents, files of images, answers of
registries, job files, run directories.

    PYTHONPATH=tests python -m fuzzing READER --seconds 600

A reader may return, or raise a BareboatError. All else is a finding: another exception, an input that takes
more than 10 s, memory above the limit, a file outside the scratch directory, a limit that did not hold.
`tests/hostile/corpus/READER` holds an input of each kind, and every input that was ever a finding.
"""

import contextlib
import io
import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bareboat.cli import console
from bareboat_base.errors import BareboatError

CORPUS = Path(__file__).parents[1] / "hostile" / "corpus"
#: No input of a fuzzer is longer.
LONGEST_BYTES = 1 << 16
#: An input that takes longer is a finding.
TIMEOUT_S = 10
MEMORY_MB = 2048
#: What a terminal obeys, and what changes the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_COLOUR = re.compile("\x1b\\[(?:0|1|2|31|32|33)m")


class Finding(AssertionError):
    """What a reader must never do."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One target. `read` gets an input and an empty scratch directory; `mend` corrects checksums and digests
    of a changed input, so that what lies behind them is read; `words` are pieces that chance does not find;
    `processes`: it starts programs."""

    name: str
    read: Callable[[bytes, Path], None]
    mend: Callable[[bytes], bytes] = bytes
    words: tuple[bytes, ...] = ()
    modules: tuple[str, ...] = field(default=())
    processes: bool = False

    @property
    def corpus(self) -> Path:
        return CORPUS / self.name


class Site:
    """Where inputs are read: a scratch directory, made anew for each, beside files that must stay as they
    are."""

    def __init__(self, top: Path) -> None:
        self._scratch = top / "scratch"
        self._outside = top / "outside"
        self._top = top
        (self._outside / "directory").mkdir(parents=True)
        (self._outside / "directory" / "inner").write_text("untouched")
        (self._outside / "victim").write_text("untouched")
        self._before = self._look()

    def attempt(self, reader: Reader, data: bytes) -> str:
        """Read one input; what became of it. Raises Finding, and what the reader should not raise."""
        remove(self._scratch)
        self._scratch.mkdir()
        outcome = "read"
        try:
            reader.read(data, self._scratch)
        except BareboatError as error:
            check_message(error)
            outcome = error.message
        if self._look() != self._before:
            raise Finding("a file outside of the scratch directory was changed")
        return outcome

    def _look(self) -> list[tuple[str, int, int, int]]:
        found = []
        for here, folders, files in os.walk(self._top):
            if here == os.fspath(self._top):
                folders[:] = [name for name in folders if name != "scratch"]
            for name in (*folders, *files):
                state = os.lstat(os.path.join(here, name))
                found.append((name, state.st_mode, state.st_size, state.st_mtime_ns))
        return sorted(found)


def check_message(error: BareboatError) -> None:
    """A message is no novel, and no sign of a fault of our own. What is shown of it has no control character,
    neither on a terminal nor in a file."""
    if len(error.message) > 2000:
        raise Finding(f"a message has {len(error.message):,} characters: {error.message[:300]!r}")
    if not 0 < error.code < 256 or error.code == 70:
        raise Finding(f"exit code {error.code}")
    for stream in (Terminal(), io.StringIO()):
        with contextlib.redirect_stderr(stream):
            console.show_error(error)
        check_shown(stream.getvalue())


class Terminal(io.StringIO):
    """Takes what a terminal would be given."""

    def isatty(self) -> bool:
        return True


def check_shown(text: str) -> None:
    """No control character but our own colours."""
    found = _CONTROL.search(_COLOUR.sub("", text))
    if found is not None:
        raise Finding(f"a terminal is given {found[0]!r}: {text!r:.300}")


def usage(top: Path) -> tuple[int, int]:
    """How many entries a tree has, and how many bytes: the larger of what its files claim and what they take.
    Each inode counts once. Every directory is made accessible first."""
    seen: dict[int, int] = {}
    for here, folders, files in os.walk(os.fsencode(top)):
        for name in folders:
            if not os.path.islink(os.path.join(here, name)):
                os.chmod(os.path.join(here, name), 0o700)
        for name in (*folders, *files):
            state = os.lstat(os.path.join(here, name))
            seen[state.st_ino] = max(state.st_size, state.st_blocks * 512) if _is_file(state.st_mode) else 0
    return len(seen), sum(seen.values())


def _is_file(mode: int) -> bool:
    return mode & 0o170000 == 0o100000


def remove(path: Path) -> None:
    from bareboat_base.files.trees import remove_tree

    if path.exists():
        remove_tree(path)
    shutil.rmtree(path, ignore_errors=True)


# Changed inputs without atheris: for the short burst in the tests.

_TOKENS = (
    b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0\0\0\0\0", b"-1", b"0",
    b"99999999999999999999", b"../", b"/", b"\n", b"\r\n", b"\x1b[2J", b"1e999", b"NaN", b"null", b"[]",
    b'"', b"\\", b"[" * 2000, b"\xc3\x28", b"%s", b"x" * 300,
)  # fmt: skip


def changed(data: bytes, others: list[bytes], chance: random.Random, words: tuple[bytes, ...]) -> bytes:
    """The input with a few random changes."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3, 5, 8))):
        at = chance.randrange(len(made) + 1)
        length = chance.choice((1, 1, 2, 4, 16, 64, 512))
        match chance.randrange(8):
            case 0 if made:
                made[min(at, len(made) - 1)] ^= 1 << chance.randrange(8)
            case 1:
                made[at : at + length] = chance.randbytes(length)
            case 2:
                del made[at : at + length]
            case 3:
                begin = chance.randrange(len(made) + 1)
                made[at:at] = made[begin : begin + length]
            case 4 if others:
                other = chance.choice(others)
                begin = chance.randrange(len(other) + 1)
                made[at : at + length] = other[begin : begin + chance.choice((length, 512, 4096))]
            case 5:
                token = chance.choice(words) if words and chance.random() < 0.7 else chance.choice(_TOKENS)
                made[at : at + chance.choice((0, len(token)))] = token
            case 6:
                made[at : at + length] = b"%d" % chance.choice((0, 1, 2**31, 2**63 - 1, 2**64, 8**11, 10**30))
            case _:
                made[at:at] = chance.choice((b"\0", b"a", b"9", b" ")) * length
    return bytes(made[:LONGEST_BYTES])


def readers() -> dict[str, Reader]:
    """The table, by name."""
    from fuzzing import documents, images, jobs, locks, network, nodes, recipes, runs, signatures, trees

    modules = (images, documents, network, signatures, jobs, locks, nodes, recipes, runs, trees)
    return {each.name: each for module in modules for each in module.READERS}
