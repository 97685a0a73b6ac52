"""The user's TOML files: parsed and checked key by key, with errors that name the line."""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar, get_args, get_origin

import msgspec

from bareboat_base import codec, ranges
from bareboat_base.errors import BareboatError, SetKey, UsageError
from bareboat_base.files import untrusted
from bareboat_base.nearest import most_similar, nearest
from bareboat_base.printable import one_line, quoted
from bareboat_base.toml_values import shown, written

T = TypeVar("T")

#: Enough for a sweep of a hundred thousand points.
_LARGEST = 16 * 2**20
#: An error about an unknown key lists all keys of a table with so many, else the most similar ones.
_MOST_LISTED, _FEW = 15, 4
#: The longest line that an error shows whole, in characters.
_LONGEST_SHOWN = 100
#: TOML's types.
_KINDS = {
    str: "text in quotes", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
    tuple: "a list", dict: "a table",
}  # fmt: skip


class Document:
    """Values by their keys, and checks of them whose errors name the key's place. `name`: the whole's."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        """Raises UsageError for a number that is not finite."""
        self.values = values
        self.name = name
        #: Where keys are from that are not the document's own, and the user's names for them.
        self.places: dict[tuple[str, ...], str] = {}
        self.names: dict[tuple[str, ...], str] = {}
        self._check_numbers()
        self._read_units()

    def line(self, *_keys: str) -> int | None:
        """The line, from 1, on which the key is first set; None when it is missing, or nothing has lines."""
        return None

    def at(self, *keys: str) -> str:
        """The place of a key for messages; the whole's name, where the key is missing."""
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.places:
                return self.places[keys[:length]]
        line = self.line(*keys) if keys else None
        return self.name if line is None else f"{self.name}, line {line}"

    def check_keys(
        self,
        table: dict[str, Any],
        known: Collection[str],
        *parents: str,
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Raise UsageError for the first unknown key. `elsewhere`: the keys of all tables, with dots, by the
        names that people give them."""
        for key in table:
            if key not in known:
                raise self._unknown_key(key, known, parents, elsewhere)

    def _unknown_key(
        self, key: str, known: Collection[str], parents: tuple[str, ...], elsewhere: Mapping[str, str]
    ) -> UsageError:
        full, where = ".".join((*parents, key)), f" under [{'.'.join(parents)}]" if parents else ""
        message, place = f"unknown key {quoted(key, limit=200)}{where}", self.at(*parents, key)
        near = key if key in elsewhere else nearest(key, (*known, *elsewhere))
        if near is not None:
            meant = ".".join((*parents, near)) if near in known else elsewhere[near]
            table, _, name = meant.rpartition(".")
            below = f" below [{table}]" if table else " above the first table"
            below = "" if table == ".".join(parents) else below
            message += f"; did you mean {name!r}{below}?"
            return UsageError(message, key=full, remedy=f"write {name}{below}, or remove it").at(place)
        is_short = len(known) <= _MOST_LISTED
        shown = sorted(known) if is_short else most_similar(key, known, count=_FEW)
        context = f"{'known' if is_short else 'similar'} keys{where}: {', '.join(shown)}"
        return UsageError(message, key=full, context=context, remedy=SetKey(full, "")).at(place)

    def convert(self, value: Any, kind: type[T], *keys: str) -> T:
        """The value as `kind`, or UsageError with the line of the offending key."""
        if get_origin(kind) is dict and isinstance(value, dict):
            for key, each in value.items():
                self.convert(each, get_args(kind)[1], *keys, key)
        try:
            return codec.convert(value, kind)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, UsageError):
                raise self.placed(error.__cause__, *keys) from None
            raise self._wrong_type(error, value, keys) from None
        except UsageError as error:
            raise self.placed(error, *keys) from None

    def placed(self, error: BareboatError, *keys: str) -> BareboatError:
        """Add to an error the place in this file of the key that it names, or of `keys`."""
        named = tuple(error.key.split(".")) if isinstance(error, UsageError) and error.key else ()
        place = self.at(*named)
        return error if error.context else error.at(self.at(*keys) if place == self.name else place)

    def no_table(self, name: str) -> UsageError:
        """The error for a key that has another value than a table."""
        return UsageError(
            f"{name} is {shown(self.values.get(name))}; it must be a table of keys",
            key=name,
            remedy=f"write [{name}] on a line of its own, and its keys below it",
        ).at(self.at(name))

    def copied(self) -> Self:
        """Another document of the same values and places, of which keys can be set."""
        other = copy.copy(self)
        other.values = copy.deepcopy(self.values)
        other.places, other.names = dict(self.places), dict(self.names)
        return other

    def has(self, *keys: str) -> bool:
        return _holds(self.values, keys)

    def put(self, keys: tuple[str, ...], value: Any, place: str, *, called: str) -> None:
        """Set a key to a value from another place, such as a flag, with the user's name for the key. Raises
        UsageError."""
        table = self.values
        for name in keys[:-1]:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise self.no_table(name)
        table[keys[-1]] = value
        self.places[keys], self.names[keys] = place, called
        self._check_numbers()
        self._read_units()

    def _check_numbers(self) -> None:
        """Raise UsageError for a number that no key allows."""
        rest: list[tuple[tuple[str, ...], Any]] = [((), self.values)]
        while rest:
            keys, value = rest.pop()
            if isinstance(value, dict):
                rest += [((*keys, key), each) for key, each in value.items()]
            elif isinstance(value, list):
                rest += [(keys, each) for each in value]
            elif isinstance(value, int | float) and not (
                math.isfinite(value) if isinstance(value, float) else -(2**63) <= value < 2**63
            ):
                name = ".".join(keys)
                rule = "a number has at most 64 bits, and is not nan or inf"
                raise UsageError(
                    f"{self.called(*keys)} is {shown(value)}; {rule}",
                    key=name,
                    value=value,
                    remedy=self._example(name) or "write another number",
                ).at(self.at(*keys))

    def _read_units(self) -> None:
        """Replace each size and time that is written with a unit by its number."""
        for key, allowed in ranges.RANGES.items():
            *parents, last = key.split(".")
            table: Any = self.values
            for name in parents:
                table = table.get(name) if isinstance(table, dict) else None
            if allowed.unit and isinstance(table, dict) and isinstance(table.get(last), str):
                try:
                    table[last] = ranges.parse(key, table[last], name=key, bare=False)
                except UsageError as error:
                    raise self.placed(error, *parents, last) from None

    def _wrong_type(self, error: msgspec.ValidationError, value: Any, keys: tuple[str, ...]) -> UsageError:
        """The error for a value, or a part of one, of the wrong type. msgspec names the part."""
        why, _, path = str(error).partition(" - at `$")
        item = ""
        for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
            if name:
                value, keys = value[name], (*keys, name)
            else:
                value, item = value[int(index)], f"[{index}]"
        key = ".".join(keys)
        allowed = ranges.RANGES[key].toml_words if key in ranges.RANGES else ranges.ALLOWED.get(key, ("",))[0]
        if item or not allowed:
            allowed = _in_toml(why)
        is_number = isinstance(value, int | float) and allowed == _KINDS[str] and not item
        return UsageError(
            f"{self.called(*keys)}{item} is {shown(value)}; it must be {allowed}",
            key=key,
            value=value,
            allowed=allowed,
            remedy=self._example(key)
            or (SetKey(key, written(str(value))) if is_number else f"write {allowed}"),
        ).at(self.at(*keys))

    def called(self, *keys: str) -> str:
        """The user's name for a key: its flag, where it is from one."""
        return self.names.get(keys, ".".join(keys))

    def _example(self, key: str) -> SetKey | str:
        """The remedy with a value that the key may have; "" for one that is not known."""
        if key in ranges.RANGES:
            return ranges.setting(self.called(*key.split(".")), ranges.RANGES[key].text)
        if key in ranges.ALLOWED:
            return ranges.example(self.called(*key.split(".")), ranges.ALLOWED[key][1])
        return ""


class TomlFile(Document):
    """A parsed file with the line of each key."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        """Raises UsageError when the file is missing, not a regular file, not TOML, or has a number that is
        not finite. `content`: the file's content, if it was already read for the user's consent."""
        self.path = path
        try:
            data = untrusted.read_bytes(path, limit=_LARGEST, follow=True) if content is None else content
            self._text = data.decode("utf-8").replace("\r\n", "\n")
        except OSError as error:
            raise untrusted.unreadable(path, error, kind="file in TOML, FILE.toml") from None
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise UsageError(
                f"{path} is not a text file in UTF-8",
                context=f"{path}, line {line}",
                remedy="use a TOML file, saved as UTF-8",
            ) from None
        try:
            values = _loads(self._text)
        except (ValueError, RecursionError) as error:
            raise self._not_toml(error) from None
        super().__init__(values, str(path))

    def line(self, *keys: str) -> int | None:
        """The line, from 1, on which the key is first set; None when it is missing."""
        for line, table, values in self._statements:
            if values is None:
                if table[: len(keys)] == keys:
                    return line
            elif keys[: len(table)] == table and _holds(values, keys[len(table) :]):
                return line
        return None

    @functools.cached_property
    def _statements(self) -> list[tuple[int, tuple[str, ...], dict[str, Any] | None]]:
        """Line, table and values of each statement; for a table's header, the table without values.

        tomllib keeps no positions, so the file, which is valid, is cut at line ends outside of strings and
        brackets, and each piece is parsed alone.
        """
        found: list[tuple[int, tuple[str, ...], dict[str, Any] | None]] = []
        table: tuple[str, ...] = ()
        for line, text in _cut(self._text):
            values: Any = _loads(text)
            if not values:  # a comment
                continue
            if text.lstrip()[0] != "[":
                found.append((line, table, values))
                continue
            path = []
            while values:  # {"a": {"b": {}}}, for an array of tables {"a": {"b": [{}]}}
                ((key, values),) = values.items()
                values = values[0] if isinstance(values, list) else values
                path.append(key)
            table = tuple(path)
            found.append((line, table, None))
        return found

    def _not_toml(self, error: Exception) -> UsageError:
        """The error for invalid TOML, with tomllib's words and the line."""
        text = "its values are nested too deeply" if isinstance(error, RecursionError) else str(error)
        lines, position = self._text.split("\n"), re.search(r"\(at line (\d+)", text)
        place = str(self.path)
        if position is not None or "at end of document" in text:
            number = int(position[1]) if position else len(self._text.rstrip().split("\n"))
            place += f", line {number}: {one_line(lines[number - 1], limit=_LONGEST_SHOWN)}"
        return UsageError(
            f"{self.path} is not valid TOML: {one_line(text, limit=200)}",
            remedy="write KEY = VALUE, text in quotes, and a comma between the values of a list",
        ).at(place)


def _in_toml(why: str) -> str:
    """The type that msgspec expects, in TOML's words: Expected `int | null`, got `str`."""
    expected = why.partition("`")[2].partition("`")[0].partition(" | ")[0]
    names = {"array": "list", "object": "dict"}
    kinds = {kind.__name__: words for kind, words in _KINDS.items()}
    return kinds.get(names.get(expected, expected), why)


def _loads(text: str) -> dict[str, Any]:
    import tomllib  # here, because every start imports this module

    return tomllib.loads(text)


def _cut(text: str) -> Iterator[tuple[int, str]]:
    """Split a valid document into statements and comments, each with its first line."""
    tokens = re.compile(
        r'"""[^"\\]*(?:(?:\\.|"{1,2}(?!"))[^"\\]*)*"{3,5}'
        r"|'''.*?'{3,5}"
        r'|"[^"\\]*(?:\\.[^"\\]*)*"'
        r"|'[^']*'|#[^\n]*|[\[\]{}\n]",
        re.DOTALL,
    )
    line, start, depth = 1, 0, 0
    for token in tokens.finditer(text):
        if token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
        elif token[0] == "\n" and not depth:
            piece = text[start : token.start()]
            if piece.strip():
                yield line, piece
            line += piece.count("\n") + 1
            start = token.end()
    if text[start:].strip():
        yield line, text[start:]


def _holds(values: Any, keys: tuple[str, ...]) -> bool:
    for key in keys:
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True
