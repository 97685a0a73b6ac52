"""The program's texts keep to the glossary: no word of the old dialect in messages, help, docstrings and
comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import bareboat

SOURCE = Path(bareboat.__file__).parents[1]

#: Word -> what to write. Text in backticks is a name and not checked.
BANNED = {
    r"tell|tells|told": "report, show, print",
    r"heed|heeds|heeded": "ignore, use",
    r"mend|mends|mended|mending": "fix, remedy",
    r"hand(s|ed|ing)? (\w+ ){0,3}over|hand-over": "submit, pass, copy",
    r"handed to": "submitted to",
    r"folders?": "directory",
    r"speaks?|spoke|spoken": "supports, uses",
    r"hears?|heard": "supports, receives",
    r"says?": "print, report",
    r"stands?|stood": "is",
    r"look(s|ed|ing)? at": "probe, check, read",
    r"wants?|wanted": "requires",
    r"anew": "again",
    r"whereof|thereof|tidings": "plain words",
    r"is not there|^there is no": "does not exist, is not installed, not found",
}

#: Texts that are not English prose: path below `src` -> what they begin with.
ALLOWED = {
    "bareboat/probe/compute.py": (
        "# Answers Bareboat's questions",
        'echo "hostname',
    ),  # bash with names of its own
    "bareboat/probe/fabrics.py": ("\nshopt -s nullglob",),
    "bareboat/site_layer/__init__.py": ("import ctypes",),
    "bareboat_base/page.py": ("An element.",),  # `class_` stands for `class`
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every comment, and of every string with more than one word, docstrings and parts of
    f-strings included."""
    content = path.read_text()
    if path.suffix == ".sh":
        for number, line in enumerate(content.splitlines(), 1):
            if found := re.search(r"(?:^|\s)# (.*)", line):
                yield number, found[1]
        return
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def faults(name: str, text: str) -> list[str]:
    if text.startswith(ALLOWED.get(name, ())):
        return []
    plain = re.sub(r"`[^`]*`", "", text)
    return [
        f"{found[0]!r} in {' '.join(text.split())[:120]!r}; write: {better}"
        for banned, better in BANNED.items()
        if (found := re.search(rf"(?<![\w./-])(?:{banned})(?![\w=(/-])", plain, re.IGNORECASE))
    ]


def rooms() -> list[str]:
    """The packages that are checked, each for the modules at its top, and their directories."""
    packages = [path for path in SOURCE.glob("bareboat*") if path.is_dir()]
    rooms = [p for top in packages for p in top.iterdir() if p.is_dir() and p.name != "__pycache__"]
    return sorted(str(path.relative_to(SOURCE)) for path in (*packages, *rooms))


@pytest.mark.parametrize("room", rooms())
def test_texts_have_no_word_of_the_old_dialect(room: str) -> None:
    found = []
    for path in sorted((SOURCE / room).rglob("*.*") if "/" in room else (SOURCE / room).glob("*.py")):
        if path.suffix not in (".py", ".sh"):
            continue
        name = str(path.relative_to(SOURCE))
        found += [f"{name}:{line}: {fault}" for line, text in texts(path) for fault in faults(name, text)]
    assert not found, "\n".join(found)


def test_the_rule_finds_what_it_bans() -> None:
    (fault,) = faults("cli/cancel.py", "told slurm to end it")
    assert "'told'" in fault
    assert faults("cli/submit.py", "hand a job over to the queue")
    assert faults("transports.py", "the ranks speak by sockets")
    assert not faults("results.py", "`folder`: the run's directory, understood by each stand-alone tool")
