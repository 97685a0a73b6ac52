"""Pure: what a command starts in the end, through the programs that start another one; and whether that
starts ranks itself."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bareboat_base.expressions import expression


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
    "prlimit": _Prefix(),
    "hwloc-bind": _Prefix(before=1),
    "tini": _Prefix(("-p", "-e")),
    "dumb-init": _Prefix(("-r", "--rewrite")),
    "strace": _Prefix(("-e", "-o", "-a", "-s", "-P", "-E", "-u", "-I", "-O", "-S", "-U", "-X", "-b")),
    "nsys profile": _Prefix(
        ("-o", "-t", "-s", "-c", "-d", "-e", "-w", "-x", "-y", "-f", "-n", "-b", "-p", "-k")
    ),
    "perf stat": _Prefix(("-e", "-o", "-r", "-x", "-I", "-C", "-G")),
    "perf record": _Prefix(("-e", "-o", "-c", "-F", "-C", "-G", "-m")),
    "catchsegv": _Prefix(),
}  # fmt: skip
#: The same for managers of environments: the program is found in another one.
#: https://docs.conda.io/projects/conda/en/stable/commands/run.html, https://docs.astral.sh/uv/reference/cli/
_OF_CONDA = _Prefix(("-n", "--name", "-p", "--prefix", "--cwd", "-e", "--env", "-a", "--attach"))
_ENVIRONMENTS = {
    "conda run": _OF_CONDA,
    "mamba run": _OF_CONDA,
    "micromamba run": _Prefix((*_OF_CONDA.valued, "-r", "--root-prefix", "--label")),
    "uv run": _Prefix(
        ("-p", "--python", "--with", "--with-editable", "--with-requirements", "--extra", "--group",
         "--only-group", "--package", "--project", "--directory", "--env-file", "--no-extra", "--no-group",
         "--index", "--find-links", "-f", "--cache-dir", "--config-file", "-w")
    ),
    "pixi run": _Prefix(("-e", "--environment", "--manifest-path")),
    "poetry run": _Prefix(("-C", "--directory", "-P", "--project")),
    "pipenv run": _Prefix(),
    "pdm run": _Prefix(("-p", "--project")),
    "hatch run": _Prefix(),
    "rye run": _Prefix(),
}  # fmt: skip

#: Programs that start ranks themselves, and the corresponding modules of Python.
_STARTERS = (
    "torchrun|accelerate launch|deepspeed|horovodrun|fabric run|lightning run|colossalai run"
    "|mpirun|mpiexec|orterun|prterun|srun|aprun|jsrun"
)
_MODULES = (
    r"torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.runner"
    r"|horovod\.runner\.launch|lightning\.fabric\.cli"
)
_STARTER = expression(
    rf"(?:\S*/)?(?P<starter>(?:{_STARTERS})(?:\.(?:openmpi|hydra|mpich))?"
    rf"|python[\d.]*\s+(?:-[uBEsO]\s+)*-m\s+(?:{_MODULES}))(?=\s|$)"
)
#: Variables by which a starter in a shell's command gets its rank.
_OF_RANKS = expression(r"\$\{?(?:(?:LOCAL_|GROUP_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_|BAREBOAT_|SLURM_|PMI)")
_SHELL = expression(r"(?:ba|da|a|k|z)?sh")
_PYTHON = expression(r"(?:python|pypy)[\d.]*")


class _Interpreter(NamedTuple):
    """A program that runs the file in its first argument. `code`: its options with a text or a module, after
    which there is no file; `plain`: options of one word; `valued`: options whose value is the next word;
    `named`: how the file is named, where this may be another word, or one without its suffix."""

    name: re.Pattern[str]
    code: re.Pattern[str]
    plain: re.Pattern[str]
    valued: re.Pattern[str]
    named: re.Pattern[str] = expression("(?s).+")


_OF_SHELL = _Interpreter(
    _SHELL,
    expression(r"-[a-zA-Z]*[cs][a-zA-Z]*"),
    expression(r"[-+][abefhiklmnruvxBCEHPT]+|--(?:login|norc|noprofile|posix|restricted|verbose)"),
    expression(r"[-+][abefhiklmnruvxBCEHPT]*[oO]|--rcfile|--init-file"),
)
#: https://docs.python.org/3/using/cmdline.html, and the manual pages of the others. Options that are not here
#: make the file unknown.
_INTERPRETERS = (
    _Interpreter(
        _PYTHON,
        expression(r"-[bBdEIOPqsSuvx]*[cm].*"),
        expression(r"-[bBdEIOPqsSuv]+|-[WX].+"),
        expression(r"-[WX]"),
    ),
    _OF_SHELL,
    _Interpreter(expression("Rscript"), expression("-e"), expression(r"--\S+"), expression("-g")),
    _Interpreter(
        expression(r"perl[\d.]*"),
        expression(r"-[wWtTuUXnpals]*[eE]"),
        expression(r"-[wWtTuUXnpals]+|-[IMm].+|-[i0lF].*"),
        expression("-I"),
    ),
    _Interpreter(
        expression(r"julia[\d.]*"),
        expression("-[eE]|--eval|--print"),
        expression(r"--[a-z-]+=.*|--project|--quiet|-q|-[OgtpC].+|-O"),
        expression("-[tpLJCH]|--(?:threads|procs|load|sysimage|cpu-target|home)"),
    ),
    _Interpreter(
        expression(r"ruby[\d.]*"),
        expression("-e"),
        expression(r"-[wvdlnpas]+|-[IWrK].+|--[a-z-]+=.*|--(?:yjit|jit|verbose|debug)"),
        expression("-[Ir]"),
    ),
    _Interpreter(expression(r"lua[\d.]*"), expression("-e.*"), expression("-[iEW]|-l.+"), expression("-l")),
    _Interpreter(
        expression("torchrun"),
        expression("-m|--module|--no[-_]python"),
        expression(r"--?[a-z_-]+=.*|--standalone|--run[-_]path"),
        expression(
            r"--(?:nproc[-_]per[-_]node|nnodes|node[-_]rank|rdzv[-_]\w+|master[-_](?:addr|port)|max[-_]restarts"
            r"|monitor[-_]interval|start[-_]method|role|log[-_]dir|redirects|tee)|-[rt]"
        ),
        expression(r".+\.py"),
    ),
    _Interpreter(
        expression("node|nodejs"),
        expression("-[ep]|--eval|--print"),
        expression("--[a-z-]+=.*"),
        expression("-r|--require|--import"),
        expression(r".+\.[cm]?js"),
    ),
)
#: Where a shell begins a command.
_COMMANDS = expression(r"[;&|(){}\n]|\b(?:then|do|else|if|while|until)\b")
_QUOTED_STARTER = expression(
    rf"""["'](?:[A-Z_]\w*=[^\s"']*\s+)*(?:[^"'\s]*/)?(?P<program>{_STARTERS})["' ]"""
    rf"""|["']-m["'],\s*["'](?P<module>{_MODULES})["']"""
    r"""|\b(?P<call>torch\.distributed\.(?:run|launcher)(?=\s+import\b)|elastic_launch|notebook_launcher)\b"""
)


def inner(words: Sequence[str]) -> tuple[str, ...] | None:
    """The command that the first of these programs starts; None where the command is none of them."""
    return _inner(words, _PREFIXES)


def program(words: Sequence[str]) -> tuple[str, ...]:
    """The command without the programs in front of it that only change how it is started: of `env A=1 nice -n
    5 ./a`, `./a`."""
    return _without(words, _PREFIXES)


def target(words: Sequence[str]) -> tuple[str, ...]:
    """The same without managers of environments, such as `conda run`."""
    return _without(words, _PREFIXES | _ENVIRONMENTS)


def file(words: Sequence[str]) -> str | None:
    """The file that an interpreter runs, such as `a.py` of `env A=1 python -u a.py`; None for other programs,
    and where the file is not surely known."""
    left = program(words)
    before = words[: len(words) - len(left)]
    if not left or any(word.startswith(("-C", "--chdir")) for word in before):  # in another directory
        return None
    interpreter = next((each for each in _INTERPRETERS if each.name.fullmatch(_base(left[0]))), None)
    if interpreter is None:
        return None
    rest = iter(left[1:])
    for word in rest:
        if not word.startswith(("-", "+")):
            return word if interpreter.named.fullmatch(word) else None
        if word == "-" or interpreter.code.fullmatch(word):
            return None
        if word == "--":
            return next(rest, None)
        if interpreter.plain.fullmatch(word):
            continue
        if not interpreter.valued.fullmatch(word):
            return None
        next(rest, None)
    return None


def script(words: Sequence[str]) -> str | None:
    """The file that the command may run as a shell script."""
    left = target(words)
    return (file(left) if is_shell(left[0]) else left[0]) if left else None


def is_shell(word: str) -> bool:
    return _SHELL.fullmatch(_base(word)) is not None


def is_python(word: str) -> bool:
    return _PYTHON.fullmatch(_base(word)) is not None


def shell_text(words: Sequence[str]) -> tuple[str, ...] | None:
    """The commands in a shell's arguments, `-c TEXT`, and the words after them; None without them."""
    rest = list(words[1:])
    while rest and rest[0].startswith(("-", "+")) and rest[0] != "--":
        option = rest.pop(0)
        if re.fullmatch(r"-\w*c\w*", option):
            return tuple(rest) or ("",)
        if _OF_SHELL.valued.fullmatch(option):
            del rest[:1]
    return None


def starter(words: Sequence[str]) -> str | None:
    """The program by which the command starts ranks itself, as it is written."""
    left = target(words)
    if left and is_shell(left[0]):
        text = shell_text(left)
        return None if text is None else starter_in_shell(text[0])
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
            if (found := _STARTER.match(" ".join(target(words)))) is not None:
                return found["starter"]
    return None


def starter_in_python(text: str) -> str | None:
    """The program that Python code names as one of the words of a command, or the function that it uses."""
    found = _QUOTED_STARTER.search(text)
    return None if found is None else found[found.lastgroup or 0]


def _without(words: Sequence[str], prefixes: Mapping[str, _Prefix]) -> tuple[str, ...]:
    left = tuple(words)
    while (found := _inner(left, prefixes)) is not None:
        left = found
    return left


def _inner(words: Sequence[str], prefixes: Mapping[str, _Prefix]) -> tuple[str, ...] | None:
    name = _base(words[0]) if words else ""
    for count, key in enumerate((name, " ".join((name, *words[1:2]))), 1):
        if (prefix := prefixes.get(key)) is not None:
            return _after(words[count:], prefix, is_env=name == "env")
    return None


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _after(words: Sequence[str], prefix: _Prefix, *, is_env: bool) -> tuple[str, ...]:
    left = list(words)
    while left and (left[0].startswith("-") or (is_env and re.match(r"[^=/]+=", left[0]))):
        option = left.pop(0)
        if option == "--":
            break
        if is_env and option in ("-S", "--split-string"):
            left[:1] = _split(*left[:1])
        elif option in prefix.valued and left:
            del left[0]
    return tuple(left[prefix.before :])


def _split(text: str = "") -> list[str]:
    """The words of env's option -S."""
    with contextlib.suppress(ValueError):
        return shlex.split(text)
    return []
