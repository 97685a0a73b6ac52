"""The command line, parsed with argparse. Mistakes are UsageErrors with its words."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from bareboat import gone
from bareboat.cli import console
from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

# argparse looks for a translation of each of its texts in the file system, and has none.
vars(argparse)["_"] = lambda text: text
#: Of a flag that may be meant: a shorter likeness suggests other flags than the meant one.
_LIKENESS = 0.67
SHELLS = ("bash", "zsh", "fish")
#: Suffixes of programs of other languages, and what runs them.
RUN_BY = {".R": ("Rscript",), ".jl": ("julia",), ".pl": ("perl",), ".rb": ("ruby",), ".m": ("octave",)}
_PROGRAMS = re.compile(r"python[0-9.]*|torchrun|mpirun|mpiexec|srun")
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
        from argcomplete.shell_integration import shellcode

        console.script(shellcode(["bareboat"], shell=value).strip())
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Raise UsageErrors, with argparse's own words, instead of exiting."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        whole, is_last = list(args or ()), self._subparsers is None
        words, script = self._split_script(whole) if is_last else (whole, [])
        own = words if is_last else words[:1]
        self._check_flags(own[: self._first(own)], whole)
        self._check_empty(own)
        self._check_command(own)
        self._check_flags(own, whole)
        found, left = super().parse_known_args(words, namespace)
        if left:
            raise self._mistake(f"too many arguments: {quoted(left[0], limit=200)}")
        if script:
            found.python_script = script
            found.own_words, found.flags_of_script = words, self._own_flags(script[2:])
        return found, left

    def error(self, message: str) -> NoReturn:
        raise self._mistake(message)

    def _mistake(self, message: str) -> UsageError:
        return UsageError(f"{self.prog}: {message}", remedy=f"{self.prog} --help")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print help or the version. argparse would ignore write errors."""
        show = console.note if file is sys.stderr else console.result
        show(message.rstrip("\n"))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        name = action.option_strings[-1] if action.option_strings else str(action.metavar).lower()
        word, safe = value.lower(), set(action.choices) - {"rm", "cancel"}
        near = nearest(word, safe) or nearest(word, action.choices)
        remedy = f"{self.prog} --help"
        gone.refuse(f"{self.prog} {value}")
        if near is None and not action.option_strings and os.path.isfile(value):
            remedy = f"bareboat run {shlex.quote(value)}"
        raise UsageError(
            f"{self.prog} has no {name} {value!r}" + (f"; did you mean {near!r}?" if near else ""),
            context=f"{name}: {', '.join(action.choices)}",
            remedy=remedy,
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
        at = self._first(words)
        if not self._takes_a_job() or at >= len(words) or words[at].endswith(".toml"):
            return
        word = words[at]
        is_name = "/" not in word and (_PROGRAMS.fullmatch(word) or shutil.which(word))
        text, runs = b"", RUN_BY.get(os.path.splitext(word)[1], ())
        if os.path.isfile(word):
            with contextlib.suppress(OSError), open(word, "rb") as stream:
                text = stream.read(4096)
        if re.search(rb"^#(?:SBATCH|PBS)\b", text, re.MULTILINE):
            remedy = f"bareboat init --from {shlex.quote(word)}"
            raise UsageError(f"{word} is a batch script, not a job file", remedy=remedy)
        starts_itself = b"bareboat" in text.partition(b"\n")[0]  # a job file
        is_program = bool(text) and not starts_itself and (bool(runs) or os.access(word, os.X_OK))
        if is_program or word.endswith(".sh") or (is_name and not os.path.lexists(word)):
            meant = shlex.join([*self.prog.split(), *words[:at], "--", *runs, *words[at:]])
            raise UsageError(f"{word} is a program, not a job file", remedy=meant[:1000])
        names = {" ".join(words[at:end]): end for end in range(len(words), at + 1, -1)}
        names |= {f"{word}.py": at + 1, f"{word}.toml": at + 1}
        if not os.path.lexists(word) and (name := next(filter(os.path.isfile, names), "")):
            meant = shlex.join([*self.prog.split(), *words[:at], name, *words[names[name] :]])
            raise UsageError(f"{word} not found; did you mean {name!r}?", remedy=meant[:1000])

    def _check_empty(self, words: list[str]) -> None:
        """Raise UsageError for an empty value, usually from an environment variable that is not set."""
        for at, word in enumerate(words):
            flag, equals, value = word.partition("=") if word.startswith("--") else ("", "=", word)
            if equals and not value.strip():
                name = flag or (words[at - 1] if at and words[at - 1].startswith("-") else "an argument")
                raise self._mistake(f"{name} is empty; check that your environment variables are set")

    def _check_flags(self, words: Sequence[str], whole: Sequence[str]) -> None:
        """Raise UsageError for a flag that this command does not have. `whole`: all of its words."""
        for at, word in enumerate(words):
            flag = word.partition("=")[0] if word.startswith("--") else word[:2]
            value = word[len(flag) :].removeprefix("=") or "".join(whole[at + 1 : at + 2])
            is_flag = re.match(r"--?[^-\d]", word) is not None
            is_mount = word == "-v" and re.fullmatch(r"[./~][^:]*:/.*", value)
            if not is_flag or (flag in self._option_string_actions and not is_mount):
                continue
            gone.refuse(flag)
            gone.refuse(f"{self.prog} {flag}")
            if instead := gone.of_another_tool(flag, value) if self._takes_a_job() else "":
                note = "flags of a script follow it, after its name or --"
                what = "-v is --verbose, not a mount" if is_mount else f"has no flag {flag}"
                raise UsageError(f"{self.prog} {what}", context=note, remedy=instead)
            near = nearest(flag, self._option_string_actions, likeness=_LIKENESS)
            meant = f"; did you mean {near}?" if near else ""
            remedy = f"{self.prog} --help" + "   # flags come after the verb" * (self._subparsers is not None)
            script = next((each for each in whole if each.endswith(".py")), None)
            if near is None and script is not None and self._takes_a_job():
                rest = [each for each in whole[at:] if each != script]
                meant_words = shlex.join([*self.prog.split(), *words[:at], script, *rest])
                remedy = f"{meant_words}   # a script's own flags follow it"
            raise UsageError(f"{self.prog} has no flag {flag}{meant}", remedy=remedy)


def number(flag: str, key: str = "") -> Callable[[str], Any]:
    """The parser of a flag's number, in the range of the job file's key or of the flag."""
    return lambda text: ranges.parse(key or flag, text, name=flag)


def amount(flag: str, key: str) -> Callable[[str], Any]:
    """The parser of a flag's size or time, which requires a unit."""
    return lambda text: ranges.parse(key, text, name=flag, bare=False)
