"""The command line, parsed with argparse. Mistakes are UsageErrors that list the allowed values."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

from bareboat.cli import console
from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_base.nearest import nearest

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

# argparse looks for a translation of each of its texts in the file system, and has none.
vars(argparse)["_"] = lambda text: text
#: argparse's message about a flag -> our message and remedy.
_MISTAKES = (
    (r"argument (?P<flag>\S+): expected (one|at least one|\d+) argument", "{flag} has no value",
     "{example}"),
    (r"argument (?P<flag>\S+): not allowed with argument (?P<other>\S+)",
     "{flag} and {other} cannot be used together", "remove one of them"),
    (r"the following arguments are required: (?P<flag>.+)", "missing argument: {flag}", "{example}"),
    (r"one of the arguments (?P<flag>.+) is required", "missing argument: one of {flag}", "{example}"),
)  # fmt: skip


SHELLS = ("bash", "zsh", "fish")
_LONGEST_FIRST_LINE = 1000
LONGEST_COMMAND = 1000
#: Starts a Python script. Not every environment and image has the name `python`.
PYTHON = "python3"
#: What starts a script of another language.
_INTERPRETERS = {".R": "Rscript", ".r": "Rscript", ".jl": "julia", ".pl": "perl", ".rb": "ruby"}


class VerbList(argparse.HelpFormatter):
    """Shows the verbs by group, with room for the longest one: argparse forgets the indentation of
    subcommands."""

    def __init__(self, prog: str, groups: Mapping[str, Collection[str]], **settings: Any) -> None:
        super().__init__(prog, **settings)
        self._action_max_length = 14
        self._groups = groups

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        verbs = {verb.dest: self._format_action(verb) for verb in action._get_subactions()}
        return "\n".join(
            "".join([f"{title}:\n", *(verbs[name] for name in names)])
            for title, names in self._groups.items()
        )


@functools.cache
def help_width() -> int:
    """argparse's own, which it determines again for each flag."""
    import shutil

    return shutil.get_terminal_size().columns - 2


def add_command(parsers: argparse._SubParsersAction[Any], name: str, meaning: str) -> Any:
    """Add the parser of a verb or an action."""
    return parsers.add_parser(
        name,
        help=meaning,
        description=meaning[:1].upper() + meaning[1:] + ".",
        formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, width=help_width()),
        allow_abbrev=False,
    )


class PrintCompletion(argparse.Action):
    """Print a shell's completion script, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, value: Any, *_flag: object) -> None:
        from importlib import resources

        text = resources.files("bareboat.cli").joinpath(f"completion.{value}").read_text(encoding="utf-8")
        console.script(text.rstrip("\n"))
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Raise UsageErrors with suggestions instead of exiting."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        given = list(args or ())
        self._given = given
        self._flags = frozenset(word.partition("=")[0] for word in given)
        script: list[str] = []
        if self._subparsers is None:
            given, script = self._split_script(given)
            self._check_empty(given)
            self._check_command(given)
            self._check_flags(given)
        else:
            self._check_empty(given[:1])
        found, left = super().parse_known_args(given, namespace)
        if left:
            self._check_flags(left)
            self._refuse_arguments(given, given.index(left[0]))
            verb = self.prog.split()[-1]
            if {*left} == {verb} and not os.path.lexists(verb):  # the verb, again
                given = [word for word in given if word != verb]
            else:
                for word in reversed(left):
                    at = len(given) - 1 - given[::-1].index(word)
                    del given[at]
            raise MistypedError(
                f"{self.prog}: too many arguments: {left[0][:200]!r}", [*self.prog.split(), *given]
            )
        if script:
            found.python_script = script
            found.own_words, found.flags_of_script = given, self._own_flags(script[2:])
        return found, left

    def error(self, message: str) -> NoReturn:
        if (match := re.match(r"argument (\S+): ignored explicit argument", message)) is not None:
            names = match[1].split("/")
            flag = next(name for word in self._given if (name := word.partition("=")[0]) in names)
            meant = [name if (name := word.partition("=")[0]) in names else word for word in self._given]
            raise MistypedError(f"{flag} takes no value", [*self.prog.split(), *meant])
        for pattern, wrong, remedy in _MISTAKES:
            if (match := re.match(pattern, message)) is not None:
                words = match.groupdict()
                names = words["flag"].split("/")
                long = [name for name in names if name.startswith("--") and name in self._flags]
                words["flag"] = (long or names)[-1]
                has_value = words["flag"] in self._option_string_actions
                words["example"] = self.with_value(words["flag"]) if has_value else self._example()
                raise UsageError(wrong.format(**words), remedy=remedy.format(**words))
        raise UsageError(f"{self.prog}: these arguments cannot be combined", remedy=self._example())

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print help or the version. argparse would ignore write errors."""
        show = console.note if file is sys.stderr else console.result
        show(message.rstrip("\n"))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if action.option_strings:
            flag = action.option_strings[-1]
            raise UsageError(
                f"{flag} is {value!r}; it must be one of: {', '.join(action.choices)}",
                remedy=f"{flag} {nearest(value.lower(), action.choices) or next(iter(action.choices))}",
            )
        others = (name for name in _OTHER_NAMES.get(value, ()) if name in action.choices)
        near = next(others, None) or nearest(value.lower(), action.choices)
        if near is None and os.path.isfile(value):
            raise UsageError(f"{value!r} is a file, not a verb", remedy=f"bareboat run {shlex.quote(value)}")
        raise UsageError(
            f"{self.prog} has no {str(action.metavar).lower()} {value!r}"
            + (f"; did you mean {near!r}?" if near else ""),
            remedy=f"{self.prog} {near} --help" if near else f"{self.prog} --help",
        )

    def _takes_a_job(self) -> bool:
        return any("-- COMMAND" in str(action.metavar) for action in self._actions)

    def _first(self, words: list[str]) -> int:
        """The index of the first word that is neither a flag nor a flag's value."""
        at = 0
        while at < len(words) and words[at].startswith("-"):
            action = self._option_string_actions.get(words[at])
            at += 1 if action is None or action.nargs == 0 else 2
        return at

    def _split_script(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Bareboat's own arguments, and the command of a Python script in the place of a job file: all
        arguments after the script belong to it."""
        at = self._first(words) if self._takes_a_job() else len(words)
        if at < len(words) and words[at].endswith(".py"):
            return words[:at], [PYTHON, *words[at:]]
        return words, []

    def _own_flags(self, words: Sequence[str]) -> dict[str, range]:
        """The flags among a script's arguments that this command has, too, and the places of their words."""
        found = {}
        for at, word in enumerate(words):
            name, equals, _ = word.partition("=")
            action = self._option_string_actions.get(name)
            if word == "--":
                break
            if action is not None and not isinstance(action, argparse._HelpAction):
                found[name] = range(at, at + (1 if equals or action.nargs == 0 else 2))
        return found

    def _check_command(self, words: list[str]) -> None:
        """Raise UsageError for a command without `--` before it, such as `bareboat run ./train.sh`."""
        if not self._takes_a_job():
            return
        at = self._first(words)
        what = _not_a_job(words[at]) if at < len(words) else None
        if what is not None:
            said, program = what
            meant = shlex.join([*self.prog.split(), *words[:at], "--", *program, *words[at + 1 :]])
            raise UsageError(f"{words[at]} {said}, not a job file", remedy=meant[:1000])

    def _check_empty(self, words: list[str]) -> None:
        """Raise UsageError for an empty value, usually from an environment variable that is not set."""
        for at, word in enumerate(words):
            flag, equals, value = word.partition("=") if word.startswith("--") else ("", "=", word)
            if not equals or value.strip():
                continue
            action = self._option_string_actions.get(words[at - 1]) if at else None
            is_value = action.nargs != 0 if action is not None else at and words[at - 1].startswith("-")
            if not flag and is_value:
                flag = words[at - 1]
            raise UsageError(
                f"{flag or 'an argument'} is empty; check that your environment variables are set",
                context=shlex.join([*self.prog.split(), *words])[:1000],
                remedy=f"{self.with_value(flag)}, or remove it"
                if flag
                else "remove it, or set the environment variable",
            )

    def check_flag(self, word: str) -> None:
        """Raise UsageError for a flag that this command does not have."""
        self._given = [word]
        self._check_flags(self._given)

    def _check_flags(self, words: Sequence[str]) -> None:
        if self._takes_a_job():
            _refuse_mounts(self.prog, words)
        for at, word in enumerate(words):
            if not re.match(r"--?[^-\d]", word):
                continue
            flag = word.partition("=")[0] if word.startswith("--") else word[:2]
            if flag not in self._option_string_actions:
                following = words[at + 1] if at + 1 < len(words) else ""
                value = word.partition("=")[2] or ("" if following.startswith("-") else following)
                if (other := _ALIASES.get(flag, "")) in self._option_string_actions:
                    raise UsageError(
                        f"{self.prog} has no flag {flag}; it is {other} here",
                        remedy=f"{other} {shlex.quote(value[:100]) if value else '…'}",
                    )
                meant = _as_key(flag, value) if self._takes_a_job() else None
                if meant is not None:
                    raise UsageError(
                        f"{self.prog} has no flag {flag}; it is a key of the job file", remedy=meant
                    )
                known = {name.lstrip("-"): name for name in self._option_string_actions}  # dashes are alike
                near = nearest(flag.lstrip("-"), known)
                if near is None:
                    self._refuse_arguments(words, at)
                script = self._script_before(words[:at])
                if script is not None and near is None:
                    start = words.index(script)
                    own, others = self._apart(words[start + 1 :])
                    whole = [*self.prog.split(), *words[:start], *own, "--", "python", script, *others]
                    raise UsageError(
                        f"{self.prog} has no flag {flag}; arguments of the script come after --",
                        remedy=shlex.join(whole)[:1000],
                    )
                if near is not None:
                    raise self._mistyped(
                        f"{self.prog} has no flag {flag}; did you mean {known[near]}?",
                        self._given.index(word),
                        known[near],
                    )
                raise UsageError(f"{self.prog} has no flag {flag}", remedy=f"{self.prog} --help")

    def _apart(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """This command's flags with their values, and the other words."""
        own: list[str] = []
        others: list[str] = []
        is_value = False
        for word in words:
            flag, equals, _ = word.partition("=")
            action = self._option_string_actions.get(flag)
            (own if is_value or action is not None else others).append(word)
            is_value = not is_value and action is not None and action.nargs != 0 and not equals
        return own, others

    def _mistyped(self, message: str, at: int, flag: str) -> MistypedError:
        """The error for a flag at this place, with the command that has `flag` there."""
        word, *after = self._given[at:]
        action = self._option_string_actions[flag]
        _, equals, value = word.partition("=")
        has_value = action.nargs == 0 or (after and not after[0].startswith("-"))
        meant = [flag] if has_value else self.with_value(flag).split(" ", 1)
        if equals and action.nargs != 0:
            meant = [f"{flag}={value}"]
        return MistypedError(message, [*self.prog.split(), *self._given[:at], *meant, *after])

    def of_command(self, words: Sequence[str]) -> Parser:
        """The parser of a verb, or of a verb's action."""
        parser = self
        for word in words:
            if parser._subparsers is not None:
                parser = parser._subparsers._group_actions[0].choices[word]  # type: ignore[index]
        return parser

    def with_value(self, flag: str) -> str:
        """The flag with a value that it may have, or with the name of one, if it requires one."""
        action = self._option_string_actions.get(flag)
        if action is None or action.nargs == 0:
            return flag
        if (example := _example_of(flag, action.metavar)) is not None:
            return example
        return f"{flag} {next(iter(action.choices or ()), action.metavar or 'VALUE')}"

    def _refuse_arguments(self, words: Sequence[str], at: int) -> None:
        """Raise UsageError for arguments, from `at` on, that follow a job file."""
        first = self._first(list(words)) if self._takes_a_job() else at
        if first < at and words[first].endswith(".toml") and not words[at].endswith(".toml"):
            raise arguments_of_job(self.prog, words[:at], words[first], words[at:])

    def _script_before(self, words: Sequence[str]) -> str | None:
        """The script among the words, for a command that takes one without its arguments."""
        if not any(action.dest == "script" for action in self._actions):
            return None
        return next((word for word in words if word.endswith(".py")), None)

    def _example(self) -> str:
        return (self.epilog or "").partition("example:\n  ")[2].partition("\n")[0] or f"{self.prog} --help"


class MistypedError(UsageError):
    """A flag, or an argument too many. `words`: the whole command as it may be meant, up to `--`."""

    def __init__(self, message: str, words: Sequence[str]) -> None:
        super().__init__(message, remedy=_joined(words))
        self.words = words

    def followed_by(self, words: Sequence[str]) -> Self:
        """The same with what follows `--`."""
        return self.but(remedy=_joined([*self.words, *words]))


def _joined(words: Sequence[str]) -> str:
    """The words as a command, whose shell expands a `~` at the beginning of one."""
    return re.sub(r"'(~/[\w./-]*)'", r"\1", shlex.join(words))[:LONGEST_COMMAND]


def _example_of(flag: str, value: Any) -> str | None:
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
    return "--set topology.nodes=2" if flag == "--set" else None


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
        remedy=shlex.join([*prog.split(), *before[:at], "--set", changed, *before[at:]])[:1000],
    )


def _refuse_mounts(prog: str, words: Sequence[str]) -> None:
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


def number(flag: str, key: str = "") -> Callable[[str], Any]:
    """The parser of a flag's number, in the range of the job file's key or of the flag."""
    return lambda text: ranges.parse(key or flag, text, name=flag)


def amount(flag: str, key: str) -> Callable[[str], Any]:
    """The parser of a flag's size or time, which requires a unit."""
    return lambda text: ranges.parse(key, text, name=flag, bare=False)


#: Other tools' flags of mounts.
_MOUNTS = ("--mount", "--bind", "--volume", "-B")
#: What other tools call it -> the verbs and the actions of `image` that do it.
_OTHER_NAMES = {
    **dict.fromkeys(("list", "images", "ps"), ("ls", "status")),
    **dict.fromkeys(("remove", "delete", "rmi"), ("rm",)),
    **dict.fromkeys(("ls", "queue", "squeue"), ("status",)),
    **dict.fromkeys(("kill", "stop"), ("cancel",)),
    "inspect": ("show",),
    "exec": ("attach",),
}
#: What other tools, and job files, call it -> the flag.
_ALIASES = {
    **dict.fromkeys(("--ntasks-per-node", "--tasks-per-node", "--ppn"), "--ranks-per-node"),
    **dict.fromkeys(("--cpus-per-task", "-c"), "--cpus-per-rank"),
    "--gpus-per-task": "--gpus-per-rank",
    "--np": "--ntasks",
    **dict.fromkeys(("--walltime", "--walltime-s"), "--time"),
    **dict.fromkeys(("--memory", "--mem-per-node", "--mem-per-node-bytes"), "--mem"),
    "--queue": "--partition",
    "--project": "--account",
}


def _as_key(flag: str, value: str) -> str | None:
    """The job file's form of the flag; None where it has no such key."""
    from bareboat.model import Scheduling  # here, because every start imports this module

    name = flag.lstrip("-").replace("-", "_")
    if name not in Scheduling.__struct_fields__:
        return None
    shown = value if re.fullmatch(r"[0-9]{1,18}", value) else "…"
    return f"write in the job file: {name} = {shown}   # below [scheduling]"


def _not_a_job(word: str) -> tuple[str, list[str]] | None:
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
