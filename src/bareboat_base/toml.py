"""The user's TOML files: parsed and checked key by key, with errors that name the line."""

from __future__ import annotations

import functools
import math
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin

import msgspec

from bareboat_base import codec, ranges
from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.nearest import most_similar, nearest
from bareboat_base.printable import one_line, quoted
from bareboat_base.toml_values import plain, shown, written

T = TypeVar("T")

#: Enough for a sweep of a hundred thousand points.
_LARGEST = 16 * 2**20
#: An error about an unknown key lists all keys of a table with so many, else the most similar ones.
_MOST_LISTED, _FEW = 15, 4
#: The longest line that an error shows whole, in characters.
_LONGEST_SHOWN = 100
#: The start of a value, or of a key of an inline table, and not the next line's key or table.
_VALUE = expression(r"(?![\w.\"'-]+ *=[^=]|\[+[\w.\"' -]+\]+ *$)[\w\"'\[{+-]|(?<=\S )[\w.\"'-]+ *=")
#: TOML's types, with an example of each.
_KINDS: dict[Any, tuple[str, str]] = {
    str: ("text in quotes", '"text"'),
    int: ("a whole number", "1"),
    float: ("a number", "0.5"),
    bool: ("true or false", "true"),
    list: ("a list", '["a", "b"]'),
    tuple: ("a list", '["a", "b"]'),
    dict: ("a table", "{ NAME = 1 }"),
}
#: The longest value of the user's that a remedy repeats, in characters.
_LONGEST_REPEATED = 200
#: Start of tomllib's message -> our message and remedy.
_MISTAKES = (
    (r"Expected '='", "a key has no value", 'write KEY = VALUE, or KEY = "VALUE" for text'),
    (r".*at end of document", "it ends inside a value", "close its quotes and brackets"),
    (r"Invalid value", "a value is neither a number, true, false, a list, a table nor text in quotes",
     'write text in quotes: KEY = "VALUE"'),
    (r"Cannot|Duplicate", "a key or table is set twice", "keep one of the two"),
    (r"Unclosed|Unterminated|Illegal character '\\n'|Expected '\]", "a quote or bracket is not closed",
     "close it, on the same line for text in single quotation marks or brackets of tables"),
    (r"Unescaped|Invalid hex|Invalid Unicode", "text in double quotes has an invalid backslash escape",
     "write such text in single quotes: 'C:\\data'"),
)  # fmt: skip


class Document:
    """Values by their keys, and checks of them whose errors name the key's place. `name`: the whole's."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        """Raises UsageError for a number that is not finite."""
        self.values = values
        self.name = name
        #: Where keys are from that are not the document's own.
        self.places: dict[tuple[str, ...], str] = {}
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
        """Raise UsageError for the first unknown key, with the one that is meant. `elsewhere`: the keys of
        all tables, with dots, by the names that people give them."""
        for key, value in table.items():
            if key not in known:
                raise self._unknown_key(key, value, known, parents, elsewhere, table)

    def _unknown_key(
        self,
        key: str,
        value: Any,
        known: Collection[str],
        parents: tuple[str, ...],
        elsewhere: Mapping[str, str],
        present: Collection[str],
    ) -> UsageError:
        where = f" under [{'.'.join(parents)}]" if parents else ""
        message, place = f"unknown key {quoted(key, limit=200)}{where}", self.at(*parents, key)
        word = key if key in elsewhere else nearest(key, (*known, *elsewhere)) or ""
        meant = ".".join((*parents, word)) if word in known else elsewhere.get(word, "")
        *tables, name = meant.split(".")
        if not name:
            is_short = len(known) <= _MOST_LISTED
            shown = sorted(known) if is_short else most_similar(key, known, count=_FEW)
            which = "known keys" if is_short else "nearest keys"
            context = f"{place}\n{which}{where}: {', '.join(shown)}"
            return UsageError(message, context=context, remedy=f"use one of the {which}, or remove it")
        if tuple(tables) == parents:
            message += f"; did you mean {name!r}?"
            if name in present:
                other = one_line(key)
                what = f"remove {other}: {name} is set already, at {self.at(*parents, name)}"
                if key in elsewhere:
                    what = f"add the value of {other} to {name}, which is set, too, and remove {other}"
                return UsageError(message, context=place, remedy=what)
            return UsageError(message, context=place, remedy=f"rename it to {name}")
        table, setting = ".".join(tables), f"{name} = {_literal(value)}"
        message += ": it belongs " if name == key else f": the key is {name!r} "
        if table:
            remedy = f"write [{table}] and below it {setting}"
            return UsageError(f"{message}under [{table}]", context=place, remedy=remedy)
        remedy = f"write {setting} above the first table"
        return UsageError(f"{message}above the first table", context=place, remedy=remedy)

    def convert(self, value: Any, kind: type[T], *keys: str) -> T:
        """The value as `kind`, or UsageError with the line of the offending key."""
        try:
            return codec.convert(value, kind)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, UsageError):
                raise self.placed(error.__cause__, *keys) from None
            self._explain(value, kind, ".".join(keys), keys)
        except UsageError as error:
            raise self.placed(error, *keys) from None

    def placed(self, error: BareboatError, *keys: str) -> BareboatError:
        """Add to an error the place in this file of the key that it names, or of `keys`."""
        named = tuple(error.key.split(".")) if isinstance(error, UsageError) and error.key else ()
        place = self.at(*named)
        return error.but(context=error.context or (self.at(*keys) if place == self.name else place))

    def no_table(self, name: str) -> UsageError:
        """The error for a key that has another value than a table."""
        return UsageError(
            f"{name} is {shown(self.values.get(name))}; it must be a table of keys",
            context=self.at(name),
            remedy=f"write [{name}] on a line of its own, and its keys below it",
        )

    def put(self, keys: tuple[str, ...], value: Any, place: str) -> None:
        """Set a key to a value from another place, such as a flag. Raises UsageError."""
        table = self.values
        for name in keys[:-1]:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise self.no_table(name)
        table[keys[-1]] = value
        self.places[keys] = place
        self._check_numbers()
        self._read_units()

    def _check_numbers(self) -> None:
        """Raise UsageError for a number that no key allows."""
        rest: list[tuple[tuple[str, ...], bool, Any]] = [((), False, self.values)]
        while rest:
            keys, is_listed, value = rest.pop()
            if isinstance(value, dict):
                rest += [((*keys, key), False, each) for key, each in value.items()]
            elif isinstance(value, list):
                rest += [(keys, True, each) for each in value]
            elif isinstance(value, int | float) and not (
                math.isfinite(value) if isinstance(value, float) else -(2**63) <= value < 2**63
            ):
                name = ".".join(keys)
                allowed, example = self._allowed(int, name)
                rule = f"it must be {allowed}"
                if name not in ranges.RANGES and not ranges.ALLOWED.get(name, ("",))[0]:
                    rule = "a number has at most 64 bits, and is not nan or inf"
                raise UsageError(
                    f"{self.called(*keys)} is {shown(value)}; {rule}",
                    context=self.at(*keys),
                    remedy=ranges.setting(self.called(*keys), f"[{example}]" if is_listed else example),
                )

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

    def _explain(self, value: Any, kind: Any, name: str, keys: tuple[str, ...]) -> NoReturn:
        """Raise UsageError for the first part of a value that has the wrong type."""
        kind = getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind
        origin, of = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            kind = next(each for each in of if each is not type(None))
            origin, of = get_origin(kind), get_args(kind)
        parts: list[tuple[Any, Any, str, tuple[str, ...]]] = []
        if isinstance(value, dict) and origin is dict:
            parts = [(each, of[1], f"{name}.{key}", (*keys, key)) for key, each in value.items()]
        elif isinstance(value, list) and origin in (list, tuple):
            parts = [(each, of[0], f"{name}[{index}]", keys) for index, each in enumerate(value)]
        elif isinstance(value, dict) and hasattr(kind, "__struct_fields__"):
            fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
            parts = [
                (each, fields[key], f"{name}.{key}", (*keys, key))
                for key, each in value.items()
                if key in fields
            ]
        for part, of_kind, called, where in parts:
            try:
                codec.convert(part, of_kind)
            except msgspec.ValidationError:
                self._explain(part, of_kind, called, where)
        key, whole = ".".join(keys), origin or kind
        item = _KINDS.get(whole, _KINDS[dict])[0] if name != key else ""
        whole = list if item and kind is str else whole
        allowed, example = self._allowed(whole, key)
        raise UsageError(
            f"{self.called(*keys)}{name.removeprefix(key)} is {shown(value)}; it must be {item or allowed}",
            context=self.at(*keys),
            remedy=ranges.setting(self.called(*keys), self._repaired(whole, keys))
            if self._repaired(whole, keys)
            else ranges.example(self.called(*keys), example),
        )

    def called(self, *keys: str) -> str:
        """The user's name for a key: with its flag, where it is from one."""
        flag = self.places.get(keys, "").partition(" ")[0]
        return f"{flag} {'.'.join(keys)}".lstrip()

    @staticmethod
    def _allowed(kind: Any, name: str) -> tuple[str, str]:
        """What a key allows, in words, and an example."""
        words, example = _KINDS.get(kind, _KINDS[dict])
        if name in ranges.RANGES and kind in (int, float):
            return ranges.RANGES[name].toml_words, ranges.RANGES[name].text
        if name in ranges.ALLOWED:
            words, example = ranges.ALLOWED[name][0] or words, ranges.ALLOWED[name][1]
            if kind is str and example.startswith("["):  # a setting has text with commas
                example = written(plain(example))
        return words, example

    def _repaired(self, kind: Any, keys: tuple[str, ...]) -> str:
        """The user's own value in TOML, as text or as a list of texts; "" where it may not be meant so."""
        value: Any = self.values
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        of = next((ranges.ALLOWED[key] for key in (".".join(keys), keys[0]) if key in ranges.ALLOWED), None)
        kinds = (str, int, float) if of is not None and of[2] else (str,)
        words = value.split() if isinstance(value, str) and kind is not str else [value]
        items = value if isinstance(value, list) else words
        texts = [str(each) for each in items if type(each) in kinds]
        if kind not in (str, list, tuple) or len(texts) < len(items) or not all(map(_is_plain, texts)):
            return ""
        found = written(texts if kind is not str else ",".join(texts))
        if of is not None and of[0].startswith('"') and found not in of[0]:  # one of a few
            return ""
        return found if len(found) <= _LONGEST_REPEATED else ""


class TomlFile(Document):
    """A parsed file with the line of each key."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        """Raises UsageError when the file is missing, not a regular file, not TOML, or has a number that is
        not finite. `content`: the file's content, if it was already read for the user's consent."""
        self.path = path
        self.agreed = content is not None
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
        """The error for invalid TOML, with line and remedy."""
        text = str(error)
        position = re.search(r"\(at line (\d+)", text)
        lines = self._text.split("\n")
        number = (
            int(position[1])
            if position
            else len(self._text.rstrip().split("\n"))
            if "at end of document" in text
            else None
        )
        default = ("a line is not KEY = VALUE", "write KEY = VALUE, with text in quotes, or [TABLE]")
        if self._text.lstrip().startswith("{"):
            default = (
                "it looks like JSON",
                "write KEY = VALUE on a line for each key, without braces",
            )
        if isinstance(error, RecursionError):
            default = ("its values are nested too deeply", "write lists and tables of a few levels")
        elif number is None:
            default = (
                "a number has thousands of digits",
                "write a shorter number; no key takes more than 19 digits",
            )
            number = next((at for at, line in enumerate(lines, 1) if re.search(r"[0-9_]{4300}", line)), None)
        wrong, remedy = next(((w, r) for start, w, r in _MISTAKES if re.match(start, text)), default)
        if self._text.startswith("#!"):
            wrong, remedy = "it is a script", f"bareboat run -- bash {shlex.quote(str(self.path))}"
        place = str(self.path)
        column = re.search(r"\(at line \d+, column (\d+)", text)
        if number is not None and column is not None and text.startswith("Unclosed"):
            line, before = lines[number - 1], int(column[1]) - 1
            if _VALUE.match(line, before) and line.isprintable() and len(line) < _LONGEST_SHOWN:
                wrong, remedy = "a comma is missing between two values", "write it where ^ points"
                place += f", line {number}:\n{line}\n{' ' * before}^"
                number = None
        if number is not None:
            place += f", line {number}: {one_line(lines[number - 1], limit=_LONGEST_SHOWN)}"
        return UsageError(f"{self.path} is not valid TOML: {wrong}", context=place, remedy=remedy)


def _is_plain(text: str) -> bool:
    return bool(text.strip()) and text.isprintable()


def _literal(value: Any) -> str:
    """A short value as TOML; "…" for any other."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return shown(value)
    return f'"{value}"' if isinstance(value, str) and re.fullmatch(r"[\w.,:/@+ -]{1,40}", value) else "…"


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
