"""The table of the keys of a job. Each is declared once: a field of the types, whose annotation has a `Key`.

The reader of job files, the checks, `--set`, the flags, the settings and the reference page are made from it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import FieldInfo, fields, replace

from bareboat.model.variables import check_name
from bareboat_base import ranges
from bareboat_base.errors import UsageError

J = TypeVar("J", bound=Struct)


class Key(NamedTuple):
    """What a key means and allows. `meaning`: Markdown; up to its first semicolon, the help of its flag and
    of its setting. `default`, `kind`: in words, where the field's own are not clear. `range`: of a number.
    `values`: of text. `is_name`: whether text is one line that schedulers and terminals accept. `check`: a
    further check of the value by the name that the user gave it. `path`: what its text is, resolved against
    the job file's directory: "path", or "program", which may be a name, too. `flags`, `value`: its spellings
    on the command line, and the placeholder. `aliases`: names that other tools give it. `is_setting`: whether
    settings complete it. `names_files`: whether it decides which files the job executes. `is_words`: whether
    text is split as a shell would, or stays text, and is never a list of one item. `example`: a value
    in TOML, where neither `range` nor `values` has one; `is_free`: whether a text is any text. `used_by`:
    what alone uses it: a "scheduler", a "container" or a "capture". `type`: of the field."""

    meaning: str
    default: str = ""
    kind: str = ""
    range: ranges.Range | None = None
    values: tuple[str, ...] = ()
    is_name: bool = False
    check: Callable[[str, Any], None] | None = None
    path: str = ""
    flags: tuple[str, ...] = ()
    value: str = "NAME"
    aliases: tuple[str, ...] = ()
    is_setting: bool = False
    names_files: bool = True
    is_words: bool = False
    example: str = ""
    is_free: bool = False
    used_by: str = ""
    type: Any = None

    @property
    def help(self) -> str:
        """The meaning in one plain phrase."""
        return re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", self.meaning.partition(";")[0])

    @property
    def dest(self) -> str:
        """The name of its flag's value in the parsed command line."""
        return self.flags[-1].lstrip("-").replace("-", "_")

    @property
    def allowed(self) -> tuple[str, str, bool]:
        """What is no number, as in `ranges.ALLOWED`."""
        if self.values:
            *most, last = (f'"{each}"' for each in self.values)
            return f"{', '.join(most)} or {last}", f'"{self.values[0]}"', False
        kind = self.kind.replace("`", "")
        if kind.startswith(("list", "table")):
            kind = f"a {kind}"
        elif not self.kind.startswith("`"):
            kind = ""
        return kind, self.example, self.is_free

    def check_value(self, name: str, value: Any) -> None:
        """Raise UsageError for a value that the key does not allow. `name`: the user's name for the key."""
        if self.range is not None and not isinstance(value, dict):
            ranges.check(self.range, value, name=name)
        elif self.values and value not in self.values:
            kind, example, _ = self.allowed
            raise UsageError(
                f"{name} is {value!r}; it must be {kind}",
                key=name,
                value=value,
                allowed=kind,
                remedy=ranges.setting(name, example),
            )
        elif self.is_name:
            for text in (value,) if isinstance(value, str) else value:
                check_name(name, text, key=name, remedy=str(ranges.setting(name, self.example)))
        if self.check is not None:
            self.check(name, value)


@functools.cache
def keys_of(kind: type[Struct]) -> dict[str, Key]:
    """The keys of a table, in the order of its fields."""
    return {
        name: hint.__metadata__[0]._replace(type=hint.__origin__)
        for name, hint in kind.__annotations__.items()
        if hasattr(hint, "__metadata__")
    }


@functools.cache
def tables_of(job: type[Struct]) -> dict[str, type[Struct]]:
    """The tables of a job file that are types of their own."""
    return {
        name: kind
        for name, hint in job.__annotations__.items()
        if isinstance(kind := get_args(hint)[0], type) and issubclass(kind, Struct)
    }


def check_keys(table: Struct, prefix: str = "") -> None:
    """Raise UsageError for the first value that its key does not allow. None: the key is not set."""
    for name, key in keys_of(type(table)).items():
        if (value := getattr(table, name)) is not None:
            key.check_value(prefix + name, value)


def changed(table: Struct) -> Iterator[tuple[str, Any]]:
    """The keys whose values are not the defaults, with the values. So further keys change no digest."""
    for each in _fields(type(table)):
        value = getattr(table, each.name)
        if isinstance(value, Struct) and each.name in tables_of(type(table)):
            value = dict(changed(value))
            if value:
                yield each.name, value
        elif value != _default(each):
            yield each.name, value


@functools.cache
def _fields(table: type[Struct]) -> tuple[FieldInfo, ...]:
    return fields(table)


def _default(field: FieldInfo) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def value_of(job: Struct, key: str) -> Any:
    """The job's value of a key, such as `topology.nodes`."""
    value: Any = job
    for name in key.split("."):
        value = getattr(value, name)
    return value


def replaced(job: J, values: Mapping[str, Any]) -> J:
    """The job with these values of its keys. Raises UsageError for one that a key does not allow."""
    changes: dict[str, Any] = {}
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        (changes.setdefault(table, {}) if table else changes)[name] = value
    for table in tables_of(type(job)):
        if table in changes:
            changes[table] = replace(getattr(job, table), **changes[table])
    return replace(job, **changes)


def reset(job: J, names: Iterable[str]) -> J:
    """The job with the defaults of these keys."""
    values = {}
    for full in names:
        table, _, name = full.rpartition(".")
        kind = tables_of(type(job))[table] if table else type(job)
        values[full] = next(_default(each) for each in _fields(kind) if each.name == name)
    return replaced(job, values)
