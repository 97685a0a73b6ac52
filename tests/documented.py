"""The examples of README and docs: fenced blocks, what their info strings mean, and where they run.

A block's info string is a language and attributes, such as `sh on=slurm`; docs/testing.md has the convention.
All blocks of a page that run in one place run there in their order, in one directory, as one story.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Where commands run.
PLACES = {
    "desk": "this machine, with an activated environment and Bareboat",
    "registry": "the same, with a registry that has the images of the pages",
    "wheel": "an empty virtual environment, which installs the wheel",
    "slurm": "the login node of the tests' Slurm cluster",
    "clone": "a fresh clone of the repository (pytest -m clone)",
}
#: Why a command or a program does not run.
NOT_RUN = {
    "gpu": "needs a GPU",
    "root": "needs root, or changes the machine",
    "network": "downloads from servers that the tests do not use",
    "long": "takes many minutes; a test that runs only on request does it",
    "elsewhere": "needs a second machine",
    "site": "needs users, groups or directories of a site",
    "template": "has a placeholder that the reader replaces",
}
#: What a block of text is. Each is compared or produced by a test of the program, not of the page.
TEXT = {
    "output": "what a program prints",
    "diagram": "a drawing",
    "layout": "files and directories, or an index of something",
    "template": "a form with placeholders",
}
LANGUAGES = ("sh", "console", "toml", "python", "text")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `words`: the bare words of its info string; `values`: its NAME=VALUE attributes."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    values: Mapping[str, str]
    body: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def place(self) -> str | None:
        """Where it runs; None if it does not run."""
        if self.language == "text" or "not-run" in self.values or "part" in self.words:
            return None
        if self.language == "toml":
            return None
        return self.values.get("on", "desk")

    @property
    def file(self) -> str | None:
        return self.values.get("file")


def pages() -> list[Path]:
    """README, the other pages of the repository, and all of docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page. A fence may be indented, as in a list."""
    found: list[Block] = []
    opened: tuple[int, str, str] | None = None
    body: list[str] = []
    name = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"( *)(`{3,}|~{3,})(.*)$", line)
        if opened is None:
            if fence:
                opened, body = (number, fence[1], fence[3].strip()), []
        elif fence and not fence[3].strip():
            language, *attributes = opened[2].split() or [""]
            values = dict(each.split("=", 1) for each in attributes if "=" in each)
            words = tuple(each for each in attributes if "=" not in each)
            text = "".join(f"{each.removeprefix(opened[1])}\n" for each in body)
            found.append(Block(name, opened[0], language, words, values, text))
            opened = None
        else:
            body.append(line)
    assert opened is None, f"{name}:{opened and opened[0]}: the block has no end"
    return found


def faults(block: Block) -> list[str]:
    """What is wrong with a block's info string."""
    found = []
    allowed_words: Iterable[str] = ()
    allowed_values: dict[str, Iterable[str] | None] = {"on": PLACES, "not-run": NOT_RUN, "needs": None}
    if block.language not in LANGUAGES:
        return [f"the block's language is {block.language or 'missing'}; one of: {', '.join(LANGUAGES)}"]
    if block.language == "text":
        if len(block.words) != 1:
            found.append(f"text requires one of: {', '.join(TEXT)}")
        allowed_words, allowed_values = TEXT, {}
    elif block.language == "toml":
        allowed_words, allowed_values = ("part", "settings", "study"), {"file": None}
    elif block.language == "python":
        allowed_words, allowed_values = ("part",), {**allowed_values, "file": None}
    elif block.language == "sh":
        allowed_values = {**allowed_values, "file": None}
    found += [f"unknown attribute {word}" for word in block.words if word not in allowed_words]
    for name, value in block.values.items():
        if name not in allowed_values:
            found.append(f"unknown attribute {name}")
        elif (choices := allowed_values[name]) is not None and value not in choices:
            found.append(f"{name} is {value}; one of: {', '.join(choices)}")
    return found


def stories(place: str) -> list[Path]:
    """The pages with blocks that run in a place."""
    return [page for page in pages() if any(block.place == place for block in blocks(page))]


#: Runs a bash script in a directory; returns what it printed and its exit code.
Shell = Callable[[str, Path], subprocess.CompletedProcess[str]]


def play(page: Path, place: str, directory: Path, shell: Shell, python: Sequence[str]) -> None:
    """Run all blocks of a page that belong to a place, in their order. Files that the page shows are written
    when their turn comes. `python`: the words that start the interpreter for programs of the page."""
    programs: list[str] = []
    for block in blocks(page):
        if block.file is not None and not block.values.get("not-run"):
            file = directory / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.body)
            continue
        if block.place != place:
            continue
        if (needed := block.values.get("needs")) is not None and shutil.which(needed) is None:
            continue
        if block.language == "python":
            programs.append(block.body)
            (directory / ".story.py").write_text(_STORY.format(blocks=programs, new=len(programs) - 1))
            script = shlex.join([*python, ".story.py"])
            done = shell(script, directory)
            assert done.returncode == 0, _failure(block, script, done)
        elif block.language == "sh":
            done = shell(_continued(block.body, directory), directory)
            assert done.returncode == 0, _failure(block, block.body, done)
            assert "Traceback" not in done.stderr, _failure(block, block.body, done)
        else:
            for command, printed in sessions(block.body):
                done = shell(_continued(f"exec 2>&1\n{command}\n", directory), directory)
                assert done.returncode == 0, _failure(block, command, done)
                missing = absent(printed, done.stdout)
                assert missing is None, (
                    f"{block}: {command} does not print:\n{missing}\n{_failure(block, command, done)}"
                )


def _continued(script: str, directory: Path) -> str:
    """A script that goes on where the page's last one ended: with its variables, in its directory."""
    kept = shlex.quote(str(directory / ".shell"))
    before = f"[ ! -e {kept} ] || . {kept}\nset -euo pipefail\n"
    return f'{before}{script}\n{{ export -p; printf "cd %q\\n" "$PWD"; }} >{kept}\n'


#: The program of all python blocks of a page so far; `await` may be at its top, as in a notebook.
_STORY = """\
import ast, asyncio, inspect
space = {{"__name__": "__main__"}}
for text in {blocks!r}:
    code = compile(text, "<block>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, space)
    if inspect.iscoroutine(value):
        asyncio.run(value)
"""


def sessions(body: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line.removeprefix('> ')}", [])
        else:
            assert found, "a console block begins with a command: $ …"
            found[-1][1].append(line)
    return found


def absent(expected: Iterable[str], printed: str) -> str | None:
    """The first expected line that was not printed, in this order. Numbers may differ, and so may the amount
    of space; `…` stands for anything."""
    lines: Iterator[str] = iter(printed.splitlines())
    for line in expected:
        if line.strip() in ("", "…"):
            continue
        pattern = ".*".join(map(re.escape, _masked(line).split("…")))
        if not any(re.fullmatch(pattern, _masked(each)) for each in lines):
            return line
    return None


def _masked(line: str) -> str:
    return re.sub(r"\d[\d.,:]*", "0", " ".join(line.split()))


def _failure(block: Block, script: str, done: subprocess.CompletedProcess[str]) -> str:
    printed = f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
    return f"{block}: exit code {done.returncode}\n{script}\n{printed}"


# -- the desk --------------------------------------------------------------------------------------------

#: What the pages take for granted: a script, job files, a program, and data.
FILES = {
    "train.py": """\
import argparse, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
if os.environ.get("RANK", "0") == "0":
    print("world size", os.environ.get("WORLD_SIZE", "1") + ", test accuracy 0.9306", flush=True)
""",
    "train.toml": 'command = ["python3", "train.py"]\n',
    "job.toml": 'command = ["python3", "train.py"]\n',
    "long.toml": 'command = ["sleep", "300"]\n',
    "colleague.toml": 'partition = "main"\naccount = "research"\n',
    "sweep.toml": """\
command = ["python3", "train.py", "--lr={lr}", "--seed={seed}"]

[sweep]
lr = [0.1, 0.01]
seed = [1, 2, 3]
""",
    "simulate": '#!/bin/sh\necho simulated "$@"\n',
    "any-command": '#!/bin/sh\necho ran "$@"\n',
}


def furnish(directory: Path, home: Path) -> Path:
    """Write the files of a desk; return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (directory / name).write_text(text)
        if text.startswith("#!"):
            (directory / name).chmod(0o755)
    (home / "project" / "ada" / "store").mkdir(parents=True, exist_ok=True)
    (home / "imagenet").mkdir(parents=True, exist_ok=True)
    (home / "imagenet" / "part-0").write_text("data\n")
    return directory


def local_shell(environment: Mapping[str, str], timeout_s: float) -> Shell:
    def run(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", script],
            cwd=directory, env=dict(environment), text=True, errors="replace",
            stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False,
        )  # fmt: skip

    return run


def desk_environment(home: Path, *programs: Path, **more: str) -> dict[str, str]:
    """The environment of a user at a desk. `programs`: directories at the front of PATH."""
    kept = {name: os.environ[name] for name in ("LANG", "TERM", "TMPDIR") if name in os.environ}
    path = ":".join([*map(str, programs), "/usr/local/bin:/usr/bin:/bin"])
    return {**kept, "HOME": str(home), "USER": os.environ.get("USER", "user"), "PATH": path, **more}
