"""The facts of the reference manual, read from the code: verbs, flags, job file keys, settings, exit codes.

`docs/tools/` writes them as the pages of the site and as man pages.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from bareboat import config
from bareboat.cli import main
from bareboat.model import Job, keys
from bareboat.model.job import KEYS, TABLES
from bareboat_base import errors, ranges


@dataclass(frozen=True, slots=True)
class Argument:
    """A flag or a positional argument. `names`: a flag's spellings, or empty. `value`: the placeholder of its
    value, or "". `choices`: the allowed values, where limited. `group`: its title in the help, or ""."""

    names: tuple[str, ...]
    value: str
    meaning: str
    choices: tuple[str, ...]
    group: str

    @property
    def written(self) -> str:
        """How it is written: `-N N, --nodes N`."""
        if not self.names:
            return self.value
        return ", ".join(f"{name} {self.value}".strip() for name in self.names)


@dataclass(frozen=True, slots=True)
class Command:
    """A verb, or a verb with its action. `actions`: of a verb that has them."""

    words: tuple[str, ...]
    meaning: str
    usage: str
    example: str
    arguments: tuple[Argument, ...]
    actions: tuple[Command, ...]

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def group(self) -> str:
        """The verb's group in `bareboat --help`."""
        return next(title for title, verbs in main.GROUPS.items() if self.words[0] in verbs)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a job file, with its table: `scheduling.partition`. `allowed`: its range, or "". `meaning`:
    Markdown. `flag`, `setting`: how else it is set, or ""."""

    name: str
    kind: str
    default: str
    allowed: str
    meaning: str
    flag: str
    setting: str


@dataclass(frozen=True, slots=True)
class SettingFacts:
    """A setting: its name in a settings file, its environment variable, and what it means."""

    name: str
    variable: str
    kind: str
    meaning: str
    allowed: str
    is_personal: bool


#: Exit codes that no error class has.
_OTHER_CODES = {
    0: "success",
    9: "`init --from`: something in the job file must be completed",
    70: "a bug in Bareboat: repeat with --verbose and report the output",
    75: "a job's own: requeue it and continue as the same run (EX_TEMPFAIL)",
    126: "the job's program is not executable, or is built for another machine",
    127: "the job's program, its interpreter or its loader is missing",
    130: "Ctrl-C",
    141: "the reader of the output closed the pipe",
    143: "SIGTERM; 128 + N for another signal N",
}


#: Environment variables of others that Bareboat reads. Programs that it starts read further ones.
ENVIRONMENT = {
    "NO_COLOR": "set to anything: no colours in the output",
    "TERM, COLORTERM": "passed to an interactive `bareboat run`; TERM=dumb: no colours and no progress bar",
    "XDG_CONFIG_HOME": "directory of `bareboat/site.toml` (default: ~/.config)",
    "XDG_DATA_HOME": "directory of the default store (default: ~/.local/share)",
    "SHELL": "the shell that `attach --host` starts",
    "MODULEPATH": "where `doctor` searches for the MPI libraries of environment modules",
    "VIRTUAL_ENV, CONDA_PREFIX": "the active environment, which `image capture` stores",
    "CC, CUDA_HOME, CUDA_PATH": "the compiler and the CUDA toolkit that `capture.compiler` adds",
    "LD_LIBRARY_PATH": "searched for shared libraries by `image capture`, as the dynamic loader does",
    "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY": "proxies for registries; also in lower case",
    "SSL_CERT_FILE": "certificate authorities for registries",
    "REGISTRY_AUTH_FILE, DOCKER_CONFIG": "credentials for registries, as in Podman and Docker",
    "NGC_API_KEY": "the key for nvcr.io",
    "PIP_*": "pip's own settings, where Bareboat downloads packages for a site layer",
}


def commands() -> tuple[Command, ...]:
    """Every verb, in the order of `bareboat --help`."""
    found = []
    for verb, meaning in main.VERBS.items():
        (verbs,) = _subparsers(main._parser([verb]))
        found.append(_command((verb,), meaning, verbs.choices[verb]))
    return tuple(found)


def exit_codes() -> dict[int, str]:
    """Exit code -> meaning, ascending."""
    found = dict(_OTHER_CODES)
    for error in _subclasses(errors.BareboatError):
        if "code" in vars(error):
            found[error.code] = _sentence(error)
    found[1] = "another error; `run` and `wait` exit with the code of a job that failed"
    return dict(sorted(found.items()))


def job_keys() -> tuple[Key, ...]:
    """Every key of a job file, in the order of the types."""
    defaults = {each.name: each for each in msgspec.structs.fields(Job)}
    for table, kind in TABLES.items():
        defaults |= {f"{table}.{each.name}": each for each in msgspec.structs.fields(kind)}
    return tuple(
        Key(
            name=name,
            kind=key.kind or _kind(key),
            default=key.default or _default(defaults[name]),
            allowed=str(key.range or "") or " or ".join(f'"{value}"' for value in key.values),
            meaning=key.meaning,
            flag=", ".join(key.flags),
            setting=name.rpartition(".")[2] if key.is_setting else "",
        )
        for name, key in KEYS.items()
    )


def table_meaning(table: str) -> str:
    """What a table of the job file is for."""
    return keys.keys_of(Job)[table].meaning


def settings() -> tuple[SettingFacts, ...]:
    return tuple(
        SettingFacts(
            name=name,
            variable=f"BAREBOAT_{name.upper()}",
            kind=_PLAIN[known.kind],
            meaning=known.meaning,
            allowed=str(ranges.RANGES.get(known.key, "")) or ", ".join(_values(known.of_job)),
            is_personal=name in config.PERSONAL,
        )
        for name, known in config.KNOWN.items()
    )


def _command(words: tuple[str, ...], meaning: str, parser: argparse.ArgumentParser) -> Command:
    nested = [
        _command((*words, action.dest), action.help or "", subparsers.choices[action.dest])
        for subparsers in _subparsers(parser)
        for action in subparsers._get_subactions()
    ]
    arguments = [
        Argument(
            names=tuple(action.option_strings),
            value=_placeholder(action),
            meaning=action.help or "",
            choices=tuple(map(str, action.choices or ())),
            group="" if group.title in ("positional arguments", "options") else group.title or "",
        )
        for group in parser._action_groups
        for action in group._group_actions
        if not isinstance(action, argparse._SubParsersAction) and action.help != argparse.SUPPRESS
    ]
    return Command(
        words=words,
        meaning=meaning,
        usage=" ".join(parser.format_usage().removeprefix("usage: ").split()),
        example=(parser.epilog or "").partition("example:\n")[2].strip(),
        arguments=tuple(arguments),
        actions=tuple(nested),
    )


def _subparsers(
    parser: argparse.ArgumentParser,
) -> list[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def _placeholder(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        text = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    elif action.choices is not None:
        text = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        text = action.dest.upper()
    return f"[{text}]" if action.nargs == "?" else f"{text} …" if action.nargs in ("*", "+") else text


def _subclasses(error: type[errors.BareboatError]) -> Iterator[type[errors.BareboatError]]:
    for each in error.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from _subclasses(each)


def _sentence(documented: type) -> str:
    """The first sentence of a docstring, as a phrase."""
    text = " ".join((documented.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    return text[:1].lower() + text[1:]


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


_PLAIN = {str: "string", bool: "true or false", int: "integer", float: "number"}


def _values(key: keys.Key | None) -> tuple[str, ...]:
    return () if key is None else key.values


def _kind(key: keys.Key) -> str:
    """A type in the words of TOML."""
    if key.range is not None and key.range.unit:
        return {"bytes": "size", "s": "time"}[key.range.unit]
    found = []
    for each in _members(key.type):
        if get_origin(each) is tuple:
            found.append("list of strings")
        elif get_origin(each) is dict:
            found.append("table of numbers" if get_args(each)[1] is float else "table of strings")
        elif each in _PLAIN:
            found.append(_PLAIN[each])
    return " or ".join(dict.fromkeys(found))


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if value in (None, (), "") or value is msgspec.NODEFAULT:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
