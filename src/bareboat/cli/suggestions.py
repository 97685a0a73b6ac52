"""What a mistaken command line may have meant: other tools' words, and commands for remedies."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Sequence
from typing import Any, Self

from bareboat_base import ranges
from bareboat_base.errors import UsageError

_LONGEST_FIRST_LINE = 1000
#: What starts a script of another language.
_INTERPRETERS = {".R": "Rscript", ".r": "Rscript", ".jl": "julia", ".pl": "perl", ".rb": "ruby"}
#: Other tools' flags of mounts.
_MOUNTS = ("--mount", "--bind", "--volume", "-B")
#: What other tools call it -> the verbs and the actions of `image` that do it.
OTHER_NAMES = {
    **dict.fromkeys(("list", "images", "ps"), ("ls", "status")),
    **dict.fromkeys(("remove", "delete", "rmi"), ("rm",)),
    **dict.fromkeys(("ls", "queue", "squeue"), ("status",)),
    **dict.fromkeys(("kill", "stop"), ("cancel",)),
    "inspect": ("show",),
    "exec": ("attach",),
}
#: What other tools, and job files, call it -> the flag.
ALIASES = {
    **dict.fromkeys(("--ntasks-per-node", "--tasks-per-node", "--ppn"), "--ranks-per-node"),
    **dict.fromkeys(("--cpus-per-task", "-c"), "--cpus-per-rank"),
    "--gpus-per-task": "--gpus-per-rank",
    "--np": "--ntasks",
    **dict.fromkeys(("--walltime", "--walltime-s"), "--time"),
    **dict.fromkeys(("--memory", "--mem-per-node", "--mem-per-node-bytes"), "--mem"),
    "--queue": "--partition",
    "--project": "--account",
}


#: Flags that are neither a key nor a setting -> with a value.
_EXAMPLES = {"--set": "--set topology.nodes=2", "--tolerance": "--tolerance 0.01"}
#: What lists the values of an argument, by its name in the help.
LISTED = {
    "RUN": "   # bareboat status --all lists the runs",
    **dict.fromkeys(("IMAGE", "SOURCE", "A", "B"), "   # bareboat image ls lists the images"),
    "REFERENCE": "   # REGISTRY/NAME:TAG",
}


class MistypedError(UsageError):
    """A flag, or an argument too many. `words`: the whole command as it may be meant, up to `--`."""

    def __init__(self, message: str, words: Sequence[str]) -> None:
        super().__init__(message, remedy=joined(words))
        self.words = words

    def followed_by(self, words: Sequence[str]) -> Self:
        """The same with what follows `--`."""
        return self.but(remedy=joined([*self.words, *words]))


def joined(words: Sequence[str]) -> str:
    """The words as a command, whose shell expands a `~` at the beginning of one."""
    return re.sub(r"'(~/[\w./-]*)'", r"\1", " ".join(map(_word, words)))


def _word(text: str) -> str:
    """The text as a word of bash, which shows control characters and what is not UTF-8 as escapes."""
    if text.isprintable():
        return shlex.quote(text)
    # repr keeps single quotation marks around bytes that have both kinds, and escapes those within.
    both = os.fsencode(text) + b'"'
    return "$'" + repr(both)[2:-2] + "'"


def example_of(flag: str, value: Any) -> str | None:
    """The flag with an example of its value, where the table of the job's keys or of numbers has one.
    `value`: what its help calls the value; another command's flag of this name may be no key."""
    from bareboat.config import KNOWN  # here, because `bareboat --help` imports this module
    from bareboat.model.job import KEYS

    for key in KEYS.values():
        if flag in key.flags and value in (None, key.value):
            return ranges.setting(flag, key.range.text if key.range else key.allowed[1])
    if flag in ranges.RANGES:
        return ranges.setting(flag, ranges.RANGES[flag].text)
    setting = KNOWN.get(flag.removeprefix("--").replace("-", "_"))
    if setting is not None and setting.example:
        return ranges.setting(flag, setting.example)
    return _EXAMPLES.get(flag)


def arguments_of_job(prog: str, before: Sequence[str], file: str, arguments: Sequence[str]) -> UsageError:
    """The error for arguments after a job file, with the command that adds them to the job's own."""
    import tomllib

    command: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError), open(file, "rb") as stream:
        command = tomllib.load(stream).get("command")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = shlex.join(command)
    own = command if isinstance(command, str) else "…"
    at = list(before).index(file)
    changed = f"command={own} {shlex.join(arguments)}"
    return UsageError(
        f"{prog}: {arguments[0]} follows a job file, whose command has the arguments",
        remedy=shlex.join([*prog.split(), *before[:at], "--set", changed, *before[at:]]),
    )


def refuse_mounts(prog: str, words: Sequence[str]) -> None:
    """Raise UsageError for other tools' flags of mounts, with the key of the job file."""
    flags: list[tuple[str, str]] = []
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        value = value if equals else next(iter(words[at + 1 : at + 2]), "")
        # -v alone is --verbose, and may come before a file.
        if flag in _MOUNTS or (flag == "-v" and re.match(r"[/.~][^:]*:[^:]+", value)):
            flags.append((flag, _as_mount(value)))
    if flags:
        mounts = [mount for _, mount in flags]
        listed = mounts[0] if not mounts[1:] else "[" + ", ".join(f'"{mount}"' for mount in mounts) + "]"
        raise UsageError(
            f"{prog} has no flag {flags[0][0]} for mounts; they are a key of the job file",
            remedy=f"{prog} --set {shlex.quote(f'mounts={listed}')} …",
        )


def _as_mount(value: str) -> str:
    """A mount as job files have it, from Docker's `type=bind,source=A,target=B` or from A:B:OPTIONS."""
    options = dict(part.partition("=")[::2] for part in value.split(","))
    source = options.get("source") or options.get("src")
    if source:
        target = next(
            (options[name] for name in ("target", "destination", "dst") if options.get(name)), source
        )
        return f"{source}:{target}" + (":ro" if options.keys() & {"readonly", "ro"} else ":rw")
    if not value or value.startswith("-"):
        return "SOURCE:TARGET:rw"
    parts = value.split(":")
    if len(parts) > 2:
        parts[2:] = ["ro" if "ro" in parts[2].split(",") else "rw"]
    elif len(parts) == 2:  # other tools mount writable
        parts.append("rw")
    return ":".join(parts)


def as_key(flag: str, value: str) -> str | None:
    """The job file's form of the flag; None where it has no such key."""
    from bareboat.model import Scheduling  # here, because every start imports this module

    name = flag.lstrip("-").replace("-", "_")
    if name not in Scheduling.__struct_fields__:
        return None
    shown = value if re.fullmatch(r"[0-9]{1,18}", value) else "…"
    return f"write in the job file: {name} = {shown}   # below [scheduling]"


def not_a_job(word: str) -> tuple[str, list[str]] | None:
    """What the argument is instead of a job file, and the command that starts it; None if it may be one."""
    if word.endswith(".sh"):
        return "is a shell script", [word]
    if word.endswith(".toml"):
        return None
    if os.path.lexists(word):
        interpreter = _INTERPRETERS.get(os.path.splitext(word)[1])
        if interpreter is not None and os.path.isfile(word):
            return f"is a script for {interpreter}", [interpreter, word]
        return _as_program(word)
    import shutil

    if re.fullmatch(r"python[0-9.]*|torchrun|mpirun|mpiexec|srun|bash|sh", word):
        return "is a program", [word]
    return ("is a program", [word]) if "/" not in word and shutil.which(word) else None


def _as_program(path: str) -> tuple[str, list[str]] | None:
    """The same of a file, by its first bytes."""
    if not os.path.isfile(path):  # the other end of a pipe may be silent
        return None
    try:
        with open(path, "rb") as stream:
            first = os.fsdecode(stream.readline(_LONGEST_FIRST_LINE))
    except OSError:
        return None
    starts = [path if "/" in path else f"./{path}"]
    if first.startswith("\x7fELF"):
        return "is a program", starts
    words = first.removeprefix("#!").split()
    if not first.startswith("#!") or not words or "bareboat" in first:  # a job file that starts itself
        return None
    is_found = words[0].endswith("/env")
    name = next((word for word in words[1:] if word[:1] != "-"), "sh") if is_found else words[0]
    program = os.path.basename(name)
    if not os.access(path, os.X_OK):
        starts = [program, path]
    return f"is a {'Python ' * program.startswith('python')}script", starts
