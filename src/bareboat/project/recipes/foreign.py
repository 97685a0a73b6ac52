"""Tables of TOML, JSON and YAML that other tools wrote. Pure.

Each value is read with the type that its format has, or refused: Python would take a text for the list of its
letters, and a list for its textual form.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from bareboat_base.printable import one_line

_NAMES = {
    str: "text", bool: "a Boolean", int: "a number", float: "a number", list: "a list", dict: "a table",
    type(None): "empty",
}  # fmt: skip


class Table:
    """A table. A missing key and an empty value are the same; a value of another type is a ValueError."""

    def __init__(self, values: Any, place: str = "") -> None:
        if not isinstance(values, dict):
            raise ValueError(f"{place or 'the file'} is {_kind(values)}, not a table")
        self._values: Mapping[Any, Any] = values
        self._place = place

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        for key in self._values:
            if not isinstance(key, str):
                raise ValueError(f"the key {one_line(str(key), limit=60)} of {self._name()} is not text")
            yield key

    def text(self, key: str) -> str:
        """A text, "" where it is missing."""
        value = self._values.get(key)
        return "" if value is None else self._text(value, key)

    def scalar(self, key: str) -> str:
        """A text, or a number, which YAML makes of a version without quotes; "" where it is missing."""
        value = self._values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        return self.text(key)

    def word(self, key: str) -> str:
        """A printable text that must be there."""
        value = self.text(key)
        if not value or not value.isprintable():
            raise ValueError(f"{self._name()} has no {key}")
        return value

    def flag(self, key: str) -> bool | None:
        """A Boolean; None where it is missing."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._fault(key, value, "a Boolean")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self._text(each, f"{key}[{number}]") for number, each in enumerate(self._list(key)))

    def table(self, key: str) -> Table:
        """A table, an empty one where it is missing."""
        value = self._values.get(key)
        return Table({} if value is None else value, self._name(key))

    def tables(self, key: str) -> tuple[Table, ...]:
        """A list of tables."""
        return tuple(
            Table(each, self._name(f"{key}[{number}]")) for number, each in enumerate(self._list(key))
        )

    def texts_and_tables(self, key: str) -> tuple[str | Table, ...]:
        """A list whose entries are texts or tables."""
        return tuple(
            Table(each, self._name(f"{key}[{number}]"))
            if isinstance(each, dict)
            else self._text(each, f"{key}[{number}]")
            for number, each in enumerate(self._list(key))
        )

    def is_list(self, key: str) -> bool:
        return isinstance(self._values.get(key), list)

    def is_table(self, key: str) -> bool:
        return isinstance(self._values.get(key), dict)

    def _list(self, key: str) -> list[Any]:
        value = self._values.get(key)
        if value is not None and not isinstance(value, list):
            raise self._fault(key, value, "a list")
        return value or []

    def _text(self, value: Any, key: str) -> str:
        if not isinstance(value, str):
            raise self._fault(key, value, "text")
        return value

    def _fault(self, key: str, value: Any, wanted: str) -> ValueError:
        return ValueError(f"{self._name(key)} is {_kind(value)}, not {wanted}")

    def _name(self, key: str = "") -> str:
        return one_line(".".join(filter(None, (self._place, key))) or "the file")


def _kind(value: Any) -> str:
    return _NAMES.get(type(value), "a date")


def toml(text: str) -> Table:
    """Parse TOML. Raises ValueError."""
    return Table(tomllib.loads(text))


def from_json(text: str) -> Table:
    """Parse JSON. Raises ValueError."""
    return Table(json.loads(text))


def yaml(text: str) -> Table:
    """Parse YAML. Raises ValueError."""
    import yaml as library

    try:
        return Table(library.load(text, Loader=getattr(library, "CSafeLoader", library.SafeLoader)))
    except library.YAMLError as error:
        raise ValueError(str(error)) from None
