"""TOML files of the user's: read, checked key by key, and complained about with the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from fairlead.errors import UsageError

T = TypeVar("T")


class TomlFile:
    """A parsed file that knows the line on which each of its keys is set."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        """Raises UsageError when the file is missing, not text, or not TOML. `content`: what was read of the
        file, and agreed to."""
        self.path = path
        self.agreed = content is not None
        try:
            self._text = path.read_text(encoding="utf-8") if content is None else content.decode("utf-8")
        except FileNotFoundError:
            raise UsageError(f"there is no file {path}", remedy="check the path") from None
        except IsADirectoryError:
            raise UsageError(f"{path} is a folder, not a file", remedy="name the file in it") from None
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not a text file in UTF-8", remedy="name a TOML file") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}", remedy=f"ls -l {path}") from None
        try:
            self.values: dict[str, Any] = tomllib.loads(self._text)
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, tables in tables
            raise UsageError(f"{path} is not valid TOML: {error}", remedy="mend that line") from None

    def line(self, *keys: str) -> int | None:
        """The line, from 1, on which the key is set; None when it is not in the file.

        tomllib keeps no positions, so longer and longer beginnings of the file are parsed until the key
        is there; its statement begins after the last beginning that parsed without it.
        """
        lines = self._text.split("\n")  # splitlines() would also split at what TOML allows in a line
        without = 0
        for end in range(1, len(lines) + 1):
            try:
                values: Any = tomllib.loads("\n".join(lines[:end]))
            except (ValueError, RecursionError):
                continue
            for key in keys:
                values = values.get(key) if isinstance(values, dict) else None
            if values is not None:
                while without < end - 1 and lines[without].strip()[:1] in ("", "#"):
                    without += 1
                return without + 1
            without = end
        return None

    def at(self, *keys: str) -> str:
        """The place of a key, for people; of no key, or of one that is not there, the file."""
        line = self.line(*keys) if keys else None
        return str(self.path) if line is None else f"{self.path}, line {line}"

    def check_keys(self, table: dict[str, Any], known: Collection[str], *parents: str) -> None:
        """Raise UsageError for the first key that is not known, with the likeliest meaning."""
        for key in table:
            if key in known:
                continue
            where = f" under [{'.'.join(parents)}]" if parents else ""
            import difflib  # here, because every start imports this module

            near = difflib.get_close_matches(key, known, n=1)
            raise UsageError(
                f"unknown key {key!r}{where}" + (f"; did you mean {near[0]!r}?" if near else ""),
                context=self.at(*parents, key),
                remedy=f"the keys{where or ' here'} are: {', '.join(sorted(known))}",
            )

    def convert(self, value: Any, kind: type[T], *keys: str) -> T:
        """The value as `kind`, or UsageError with the line of the offending key."""
        if get_origin(kind) is dict and isinstance(value, dict):
            # One by one: msgspec does not say which key of a dict holds the wrong value.
            of = get_args(kind)[1]
            return cast(T, {key: self.convert(item, of, *keys, key) for key, item in value.items()})
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            # msgspec ends its message with the place: " - at `$.goals[...]`", "$[1]" or nothing.
            text, _, path = str(error).partition(" - at `$")
            path = path.rstrip("`").replace("[...]", "")
            inner = tuple(part for part in re.sub(r"\[\d+\]", "", path).split(".") if part)
            name = ".".join(keys) + path
            if isinstance(error.__cause__, UsageError):
                raise self.placed(error.__cause__, *keys) from None
            raise UsageError(
                f"{name}: {text[:1].lower()}{text[1:]}",
                context=self.at(*keys, *inner),
                remedy=f"correct the value of {name}",
            ) from None
        except UsageError as error:
            raise self.placed(error, *keys) from None

    def placed(self, error: UsageError, *keys: str) -> UsageError:
        """The same error, with the place in this file added."""
        return UsageError(error.message, context=error.context or self.at(*keys), remedy=error.remedy)
