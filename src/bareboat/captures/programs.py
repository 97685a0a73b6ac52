"""Programs of the host that an environment uses, and the files that they need besides libraries."""

from __future__ import annotations

import os

from bareboat.captures.collect import shown
from bareboat_base import execute, ranges
from bareboat_base.errors import UsageError

_PLACES_OF_R = 'cat(sapply(c("home", "share", "include", "doc", "etc"), R.home), .libPaths(), sep = "\\n")'


def find(names: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """The files and directories to add, and the directories for the image's PATH. `names`: names of programs
    on PATH, or their paths. Raises UsageError for a program that is not installed."""
    found: list[str] = []
    folders: list[str] = []
    for name in names:
        program = execute.which(name)
        if program is None:
            raise UsageError(
                f"capture.programs names {shown(name)}, which is not installed on this machine",
                key="capture.programs",
                remedy=ranges.setting("capture.programs", [each for each in names if each != name]),
            )
        program = os.path.abspath(program)
        folders.append(os.path.dirname(program))
        found += [program, *_interpreter(program), *_more(program)]
    return [path for path in dict.fromkeys(found) if os.path.exists(path)], tuple(dict.fromkeys(folders))


def _interpreter(program: str) -> list[str]:
    """The interpreter of a script."""
    try:
        with open(program, "rb") as file:
            line = os.fsdecode(file.readline(4096))
    except OSError:
        return []
    words = line.removeprefix("#!").split() if line.startswith("#!") else []
    if len(words) > 1 and os.path.basename(words[0]) == "env":
        words = [execute.which(words[1]) or ""]
    return words[:1] if words and words[0].startswith("/") else []


def _more(program: str) -> list[str]:
    """What a program starts or reads besides libraries: git's subcommands, R's home and packages."""
    name, folder = os.path.basename(program), os.path.dirname(program)
    if name == "git":
        asked = execute.run([program, "--exec-path"])
        found = [asked.stdout.strip(), os.path.normpath(f"{folder}/../share/git-core/templates")]
    elif name in ("R", "Rscript"):
        asked = execute.run([f"{folder}/R", "--no-echo", "--vanilla", "-e", _PLACES_OF_R])
        found = [f"{folder}/R", *asked.stdout.splitlines()]
    else:
        return []
    return [path for path in found if asked.ok and path.startswith("/")]
