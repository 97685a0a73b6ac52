"""Pure: values as TOML has them, for files and for messages."""

from __future__ import annotations

import math
import re
from datetime import date, time
from typing import Any

_LONGEST_SHOWN = 60


def written(value: Any) -> str:
    """The value in TOML, on one line."""
    if isinstance(value, bool | date | time):
        return str(value).lower()
    if isinstance(value, dict):
        pairs = ", ".join(assignment(name, each) for name, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, str):
        import json  # here, because every start imports this module

        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def assignment(name: str, value: Any) -> str:
    """A key with its value, on one line."""
    return f"{_key(name)} = {written(value)}"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else written(name)


def plain(value: str) -> str:
    """A value in TOML as words of a shell have it: text without quotes, a list with commas."""
    import tomllib

    found = tomllib.loads(f"value = {value}")["value"]
    if isinstance(found, list):
        return ",".join(map(str, found))
    return found if isinstance(found, str) else value


def shown(value: Any) -> str:
    """A value for a message; a very long number is shown by its digit count."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {int(value.bit_length() * math.log10(2)) + 1:,} digits"
    try:
        text = repr(value) if isinstance(value, str) else written(value)
    except RecursionError:
        text = "nested too deeply"
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
