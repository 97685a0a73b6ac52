"""Results on a narrow terminal: long lines are folded between words, below their own indentation."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from bareboat_base.expressions import expression

#: What a terminal does not show.
_ESCAPES = expression(r"\x1b\[[0-9;]*m")
_NARROWEST = 40
_REMEDY = "try: "
#: Shorter prose stays beside its command.
_LEAD = 20

#: The first words of remedies that are commands, and of commands within a sentence.
_PROGRAMS = frozenset((
    "apptainer", "apt-get", "bareboat", "bqueues", "cat", "cd", "chmod", "chown", "df",
    "dnf", "docker", "dos2unix", "du", "export", "flux", "free", "getent", "getfattr", "git", "gpg",
    "grep", "id", "ls", "lsof", "lxc", "mkdir", "module", "mv", "nvidia-smi", "oras", "pbsnodes",
    "pip", "podman", "ps", "python", "python3", "qdel", "qhost", "qstat", "quota", "rm", "sacct",
    "sbatch", "scontrol", "sed", "sh", "sinfo", "skopeo", "squeue", "srun", "ssh", "stty", "sudo",
    "tar", "touch", "truncate", "ulimit", "umask", "unset", "unzip", "uv", "zstd",
))  # fmt: skip
#: After a semicolon, before a comment, and before a command within a sentence.
_BREAKS = expression(rf"(?<=;) | {{2,}}(?=#)|(?<=[:,]) (?=(?:{'|'.join(sorted(_PROGRAMS))}) )")


def folded(text: str, width: int | None) -> str:
    """The text for a terminal; for a pipe or a file (None), and for commands to copy, it stays as it is."""
    if width is None or width < _NARROWEST:
        return text
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int) -> list[str]:
    if _length(line) <= width:
        return [line]
    if line.lstrip().startswith(_REMEDY):
        return remedy_lines(line, width)
    indentation = " " * (len(line) - len(line.lstrip(" ")) + 2)
    if len(indentation) > width // 2:
        return [line]
    parts = [""]
    # The space between two columns belongs to the word before it.
    for word in re.findall(r"\s*\S+", line.rstrip()):
        if parts[-1].strip() and _length(parts[-1] + word) > width:
            parts.append(indentation + word.lstrip())
        else:
            parts[-1] += word
    return parts


def _length(text: str) -> int:
    return len(_ESCAPES.sub("", text))


def remedy_lines(line: str, width: int | None) -> list[str]:
    """A line `try: …` for a terminal of this width: its prose is wrapped, and each command is whole, on a
    line of its own."""
    if width is None or width < _NARROWEST or _length(line) <= width:
        return [line]
    indentation = " " * (len(line) - len(line.lstrip(" ")))
    text = line.lstrip(" ").removeprefix(_REMEDY)
    lines: list[str] = []
    lead = ""
    for is_command, part in _segments(text):
        first = indentation + ("  " if lines else _REMEDY) + lead
        lead = ""
        if is_command:
            lines.append(first + part.removesuffix(";"))
        elif part.endswith(":") and len(part) < _LEAD:
            lead = f"{part} "  # such as "or:"
        else:
            lines += textwrap.wrap(part, width, initial_indent=first, subsequent_indent=f"{indentation}  ",
                                   break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return lines


def _segments(text: str) -> Iterator[tuple[bool, str]]:
    """The commands and the prose of a remedy, in their order. Prose ends before a command, and a command at
    its comment or at a semicolon."""
    prose: list[str] = []
    for part in _BREAKS.split(text):
        if _is_command(part):
            if prose:
                yield False, " ".join(prose)
            prose = []
            yield True, part
        else:
            prose.append(part)
    if prose:
        yield False, " ".join(prose)


def _is_command(text: str) -> bool:
    first, *_ = text.split() or [""]
    return first in _PROGRAMS or first.startswith(("--", "/", "$"))
