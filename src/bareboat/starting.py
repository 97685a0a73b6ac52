"""Pure: what a command starts in the end, through the programs that start another one; and whether that
starts ranks itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class _Prefix(NamedTuple):
    """A program that starts the command in its arguments. `valued`: its options whose value is the next word;
    `before`: its arguments before the command."""

    valued: tuple[str, ...] = ()
    before: int = 0


#: https://www.gnu.org/software/coreutils/manual/html_node/Modified-command-invocation.html, and the manuals
#: of util-linux, time and numactl.
_PREFIXES = {
    "env": _Prefix(("-u", "--unset", "-C", "--chdir")),
    "nice": _Prefix(("-n", "--adjustment")),
    "ionice": _Prefix(("-c", "--class", "-n", "--classdata")),
    "chrt": _Prefix(("-T", "-P", "-D"), before=1),
    "time": _Prefix(("-f", "--format", "-o", "--output")),
    "timeout": _Prefix(("-k", "--kill-after", "-s", "--signal"), before=1),
    "taskset": _Prefix(before=1),
    "numactl": _Prefix(
        ("-i", "--interleave", "-p", "--preferred", "-m", "--membind", "-N", "--cpunodebind", "-C",
         "--physcpubind", "-P", "--preferred-many", "-w", "--weighted-interleave")
    ),
    "stdbuf": _Prefix(("-i", "--input", "-o", "--output", "-e", "--error")),
    "nohup": _Prefix(),
    "setsid": _Prefix(),
    "exec": _Prefix(("-a",)),
    "command": _Prefix(),
}  # fmt: skip

#: Programs that start ranks themselves, and the corresponding modules of Python.
_STARTERS = "torchrun|accelerate launch|deepspeed|horovodrun|mpirun|mpiexec|orterun|prterun|srun|aprun|jsrun"
_MODULES = (
    r"torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.runner"
    r"|horovod\.runner\.launch"
)
_STARTER = re.compile(
    rf"(?:\S*/)?(?P<starter>(?:{_STARTERS})(?:\.(?:openmpi|hydra|mpich))?"
    rf"|python[\d.]*\s+(?:-[uBEsO]\s+)*-m\s+(?:{_MODULES}))(?=\s|$)"
)
#: Variables by which a starter in a shell's command gets its rank.
_OF_RANKS = re.compile(r"\$\{?(?:(?:LOCAL_|GROUP_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_|BAREBOAT_|SLURM_|PMI)")
_SHELL = re.compile(r"(?:ba|da|a|k|z)?sh")
#: Where a shell begins a command.
_COMMANDS = re.compile(r"[;&|(){}\n]|\b(?:then|do|else|if|while|until)\b")
_QUOTED_STARTER = re.compile(rf"""["'](?:[^"'\s]*/)?({_STARTERS})["' ]|["']-m["'],\s*["']({_MODULES})["']""")


def program(words: Sequence[str]) -> tuple[str, ...]:
    """The command without the programs in front of it that only change how it is started: of `env A=1 nice -n
    5 ./a`, `./a`."""
    left = list(words)
    while left and (prefix := _PREFIXES.get(_base(left[0]))) is not None:
        left = _after(left[1:], prefix, is_env=_base(left[0]) == "env")
    return tuple(left)


def script(words: Sequence[str]) -> str | None:
    """The file that the command may run as a shell script."""
    left = program(words)
    if not left:
        return None
    if not _SHELL.fullmatch(_base(left[0])):
        return left[0]
    named = next((word for word in left[1:] if not word.startswith("-")), None)
    return None if named is None or _text(left) is not None else named


def starter(words: Sequence[str]) -> str | None:
    """The program by which the command starts ranks itself, as it is written."""
    left = program(words)
    if left and _SHELL.fullmatch(_base(left[0])):
        text = _text(left)
        return None if text is None else starter_in_shell(text)
    found = _STARTER.match(" ".join(left))
    return None if found is None else found["starter"]


def starter_in_shell(text: str) -> str | None:
    """The same of a shell's commands; None where they take ranks from variables."""
    if _OF_RANKS.search(text):
        return None
    for line in re.sub(r"\\\n", " ", text).splitlines():
        for each in _COMMANDS.split(line.partition(" #")[0]):
            words = each.strip().lstrip("!").split()
            while words and re.fullmatch(r"[A-Za-z_]\w*=\S*", words[0]):
                del words[0]
            if (found := _STARTER.match(" ".join(program(words)))) is not None:
                return found["starter"]
    return None


def starter_in_python(text: str) -> str | None:
    """The program that Python code names as one of the words of a command."""
    found = _QUOTED_STARTER.search(text)
    return None if found is None else found[1] or found[2]


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _text(words: Sequence[str]) -> str | None:
    """The commands in the arguments of a shell: `-c TEXT`."""
    for at, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-\w*c", word):
            return words[at + 1] if at + 1 < len(words) else ""
        if not word.startswith("-"):
            return None
    return None


def _after(words: Sequence[str], prefix: _Prefix, *, is_env: bool) -> list[str]:
    left = list(words)
    while left and (left[0].startswith("-") or (is_env and re.match(r"[^=/]+=", left[0]))):
        option = left.pop(0)
        if option == "--":
            break
        if is_env and option in ("-S", "--split-string"):
            return left[0].split() + left[1:] if left else []
        if option in prefix.valued and left:
            del left[0]
    return left[prefix.before :]
