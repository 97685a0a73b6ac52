"""The command line, parsed with argparse. Mistakes are UsageErrors that list the allowed values."""

from __future__ import annotations

import argparse
import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from bareboat.cli import console, suggestions
from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted

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


#: Of a flag that may be meant: a shorter likeness suggests other flags than the meant one.
_LIKENESS = 0.67
SHELLS = ("bash", "zsh", "fish")
#: Starts a Python script. Not every environment and image has the name `python`.
PYTHON = "python3"


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
    """Raise UsageErrors with suggestions instead of exiting. `requires`: flag -> the one that it requires."""

    requires: Mapping[str, str] = MappingProxyType({})

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
            message = f"too many arguments: {quoted(left[0], limit=200)}"
            if {*left} == {verb} and not os.path.lexists(verb):  # the verb, again
                message = f"the verb {verb} is written more than once"
                given = [word for word in given if word != verb]
            else:
                for word in reversed(left):
                    at = len(given) - 1 - given[::-1].index(word)
                    del given[at]
            raise suggestions.MistypedError(f"{self.prog}: {message}", [*self.prog.split(), *given])
        if script:
            found.python_script = script
            found.own_words, found.flags_of_script = given, self._own_flags(script[2:])
        return found, left

    def error(self, message: str) -> NoReturn:
        if (match := re.match(r"argument (\S+): ignored explicit argument", message)) is not None:
            names = match[1].split("/")
            flag = next(name for word in self._given if (name := word.partition("=")[0]) in names)
            meant = [name if (name := word.partition("=")[0]) in names else word for word in self._given]
            raise suggestions.MistypedError(f"{flag} takes no value", [*self.prog.split(), *meant])
        for pattern, wrong, remedy in _MISTAKES:
            if (match := re.match(pattern, message)) is not None:
                words = match.groupdict()
                names = words["flag"].split("/")
                long = [name for name in names if name.startswith("--") and name in self._flags]
                words["flag"] = (long or names)[-1]
                has_value = words["flag"] in self._option_string_actions
                words["example"] = self.with_value(words["flag"]) if has_value else self._with_missing(names)
                if has_value and "required" in message:
                    words["example"] = f"{self.prog} {words['example']}"
                raise UsageError(wrong.format(**words), remedy=remedy.format(**words))
        raise UsageError(f"{self.prog}: these arguments cannot be combined", remedy=self._example())

    def _with_missing(self, names: Sequence[str]) -> str:
        """The command with the names of the arguments that it lacks, and what lists their values."""
        if self._subparsers is not None or "-" in names[0]:
            return f"{self.prog} --help"
        missing = [_short(name) for name in ", ".join(names).split(", ")]
        command = suggestions.joined([*self.prog.split(), *self._given, *missing])
        return command + suggestions.LISTED.get(missing[0], "")

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
        others = (name for name in suggestions.OTHER_NAMES.get(value, ()) if name in action.choices)
        near = next(others, None) or nearest(value.lower(), action.choices)
        if near is None and os.path.isfile(value):
            raise UsageError(f"{value!r} is a file, not a verb", remedy=f"bareboat run {shlex.quote(value)}")
        raise UsageError(
            f"{self.prog} has no {str(action.metavar).lower()} {value!r}"
            + (f"; did you mean {near!r}?" if near else ""),
            remedy=f"{self.prog} {near} --help" if near else f"{self.prog} --help",
        )

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """The value of a flag. Raises UsageError, with the flag's name as it was given."""
        try:
            return super()._get_value(action, arg_string)
        except UsageError as error:
            usual = next(iter(action.option_strings[-1:]), "")
            given = [name for name in action.option_strings if name.startswith("--") and name in self._flags]
            if not given or usual in given:
                raise
            message, remedy = error.message.replace(usual, given[0]), error.remedy.replace(usual, given[0])
            raise error.but(message=message, remedy=remedy) from None

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

    def _own_flags(self, words: Sequence[str]) -> dict[str, list[int]]:
        """The flags among a script's arguments that this command has, too, and the places of their words."""
        places: dict[str, list[int]] = {}
        for at, word in enumerate(words):
            name, equals, _ = word.partition("=")
            action = self._option_string_actions.get(name)
            if word == "--":
                break
            if action is not None and not isinstance(action, argparse._HelpAction):
                size = 1 if equals or action.nargs == 0 else 2
                places.setdefault(name, []).extend(range(at, at + size))
        return places

    def _check_command(self, words: list[str]) -> None:
        """Raise UsageError for a command without `--` before it, such as `bareboat run ./train.sh`."""
        if not self._takes_a_job():
            return
        at = self._first(words)
        what = suggestions.not_a_job(words[at]) if at < len(words) else None
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
            before = words[at - 1] if at and "=" not in words[at - 1] else ""
            action = self._option_string_actions.get(before)
            is_value = action.nargs != 0 if action is not None else before.startswith("-")
            flag = flag or (before if is_value else "")
            name = flag or self._called(words, at)
            meant = [*self.prog.split(), *words[:at], name, *words[at + 1 :]]
            raise UsageError(
                f"{name} is {'blank' if value else 'empty'}; check that your environment variables are set",
                context=shlex.join([*self.prog.split(), *words]),
                remedy=f"{self.with_value(flag)}, or remove it"
                if flag
                else f"{self.prog} --help"
                if self._subparsers
                else suggestions.joined(meant) + suggestions.LISTED.get(name, ""),
            )

    def _called(self, words: Sequence[str], at: int) -> str:
        """The name, in the help, of the argument at this place, which is no flag and no flag's value."""
        number, here = 0, self._first(list(words))
        while here < at:
            number, here = number + 1, here + 1
            here += self._first(list(words[here:]))
        positionals = self._get_positional_actions()
        action = next(iter([*positionals[number:], *positionals[-1:]]), None)
        return "the argument" if action is None else _short(str(action.metavar))

    def check_flag(self, word: str) -> None:
        """Raise UsageError for a flag that this command does not have."""
        self._given = [word]
        self._check_flags(self._given)

    def _check_flags(self, words: Sequence[str]) -> None:
        if self._takes_a_job():
            suggestions.refuse_mounts(self.prog, words)
        for at, word in enumerate(words):
            if not re.match(r"--?[^-\d]", word):
                continue
            flag = word.partition("=")[0] if word.startswith("--") else word[:2]
            if flag not in self._option_string_actions:
                following = words[at + 1] if at + 1 < len(words) else ""
                value = word.partition("=")[2] or ("" if following.startswith("-") else following)
                if (other := suggestions.ALIASES.get(flag, "")) in self._option_string_actions:
                    raise UsageError(
                        f"{self.prog} has no flag {flag}; it is {other} here",
                        remedy=f"{other} {shlex.quote(value[:100]) if value else '…'}",
                    )
                meant = suggestions.as_key(flag, value) if self._takes_a_job() else None
                if meant is not None:
                    raise UsageError(
                        f"{self.prog} has no flag {flag}; it is a key of the job file", remedy=meant
                    )
                known = {name.lstrip("-"): name for name in self._option_string_actions}  # dashes are alike
                near = nearest(flag.lstrip("-"), known, likeness=_LIKENESS)
                if near is None:
                    self._refuse_arguments(words, at)
                script = self._script_before(words[:at])
                if script is not None and near is None:
                    start = words.index(script)
                    after = words[start + 1 :]
                    own = [at for places in self._own_flags(after).values() for at in places]
                    others = [word for at, word in enumerate(after) if at not in own]
                    before = [*words[:start], *(after[at] for at in own if at < len(after))]
                    whole = [*self.prog.split(), *before, "--", "python", script, *others]
                    raise UsageError(
                        f"{self.prog} has no flag {flag}; arguments of the script come after --",
                        remedy=shlex.join(whole),
                    )
                if near is not None:
                    raise self._mistyped(
                        f"{self.prog} has no flag {flag}; did you mean {known[near]}?",
                        self._given.index(word),
                        known[near],
                    )
                raise UsageError(f"{self.prog} has no flag {flag}", remedy=f"{self.prog} --help")

    def _mistyped(self, message: str, at: int, flag: str) -> suggestions.MistypedError:
        """The error for a flag at this place, with the command that has `flag` there."""
        word, *after = self._given[at:]
        action = self._option_string_actions[flag]
        _, equals, value = word.partition("=")
        has_value = action.nargs == 0 or (after and not after[0].startswith("-"))
        meant = [flag] if has_value else self.with_value(flag).split(" ", 1)
        if equals and action.nargs != 0:
            meant = [f"{flag}={value}"]
        if (needed := self.requires.get(flag)) is not None and needed not in self._given:
            meant.insert(0, needed)
        return suggestions.MistypedError(message, [*self.prog.split(), *self._given[:at], *meant, *after])

    def of_command(self, words: Sequence[str]) -> Parser:
        """The parser of a verb, or of a verb's action."""
        parser = self
        for word in words:
            if parser._subparsers is not None:
                parser = parser._subparsers._group_actions[0].choices[word]  # type: ignore[index]
        return parser

    def has_action(self, word: str) -> bool:
        """Whether a word is one of the verb's actions."""
        return self._subparsers is not None and word in (self._subparsers._group_actions[0].choices or ())

    def with_value(self, flag: str) -> str:
        """The flag with a value that it may have, or with the name of one, if it requires one."""
        action = self._option_string_actions.get(flag)
        if action is None or action.nargs == 0:
            return flag
        if (example := suggestions.example_of(flag, action.metavar)) is not None:
            return example
        return f"{flag} {next(iter(action.choices or ()), action.metavar or 'VALUE')}"

    def _refuse_arguments(self, words: Sequence[str], at: int) -> None:
        """Raise UsageError for arguments, from `at` on, that follow a job file."""
        first = self._first(list(words)) if self._takes_a_job() else at
        if first < at and words[first].endswith(".toml") and not words[at].endswith(".toml"):
            raise suggestions.arguments_of_job(self.prog, words[:at], words[first], words[at:])

    def _script_before(self, words: Sequence[str]) -> str | None:
        """The script among the words, for a command that takes one without its arguments."""
        if not any(action.dest == "script" for action in self._actions):
            return None
        return next((word for word in words if word.endswith(".py")), None)

    def _example(self) -> str:
        return (self.epilog or "").partition("example:\n  ")[2].partition("\n")[0] or f"{self.prog} --help"


def _short(metavar: str) -> str:
    """The first form of an argument: FILE for `FILE | FORMAT:PATH`."""
    return re.split(r"[ |\[]", metavar)[0]


def number(flag: str, key: str = "") -> Callable[[str], Any]:
    """The parser of a flag's number, in the range of the job file's key or of the flag."""
    return lambda text: ranges.parse(key or flag, text, name=flag)


def amount(flag: str, key: str) -> Callable[[str], Any]:
    """The parser of a flag's size or time, which requires a unit."""
    return lambda text: ranges.parse(key, text, name=flag, bare=False)
