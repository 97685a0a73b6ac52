"""Pure: the range of every number that a user sets in a job file, a setting, an environment variable or a
flag."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from bareboat_base import units
from bareboat_base.errors import SetKey, UsageError
from bareboat_base.toml_values import shown, written


class Range(NamedTuple):
    """The allowed values, both ends included unless `open`. `example`: one of them, as written. `unit`: of
    a size or a time, which text may give with a unit of its own: "bytes", "s" or "days"."""

    least: float
    most: float
    example: str
    whole: bool = True
    open: bool = False
    unit: str = ""

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.most == 1e308:
            return f"{kind}, not nan or inf"
        ends = ("above", "and below") if self.open else ("from", "to")
        return f"{kind} {ends[0]} {self.least:,} {ends[1]} {self.most:,}"

    @property
    def text(self) -> str:
        """The example with its unit, in TOML."""
        return f'"{self.written(float(self.example))}"' if self.unit else self.example

    def written(self, value: float) -> str:
        """A number as a flag has it."""
        return units.written(value, self.unit) if self.unit else str(value)

    def near(self, value: Any) -> str:
        """The example in TOML; for percent of a fraction, that fraction."""
        is_percent = self.most == 1 and type(value) in (int, float) and 1 <= value < 100
        return f"{value / 100:g}" if is_percent and self.holds(value / 100) else self.text

    @property
    def words(self) -> str:
        """What is allowed, for messages: sizes with units, times with the unit of the number."""
        if self.unit == "bytes":
            return f"a size from {self.written(self.least)} to {self.written(self.most)}"
        if not self.unit:
            return str(self)
        return str(self).replace(" from ", f" of {'seconds' if self.unit == 's' else self.unit} from ")

    @property
    def toml_words(self) -> str:
        """The same for values in TOML, where a time may be text with a unit."""
        return f"{self.words}, or {units.SUCH_AS[self.unit]}" if self.unit in ("s", "days") else self.words

    def holds(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        if not self.open:
            return self.least <= value <= self.most
        return self.least < value < self.most


_COUNT = 2**63 - 1  # the limit of JSON and other programs

#: By the job file's key, or by the flag where there is no key. `bareboat.model` adds the job's keys.
RANGES = {
    "--ntasks": Range(1, 1_000_000, "1"),
    "--gpus": Range(0, 1_000_000, "1"),
    "tool_timeout_s": Range(0.01, 86_400, "60", whole=False, unit="s"),
    "--interval": Range(5, 86_400, "30", whole=False),
    "--at-once": Range(1, 100_000, "8"),
    "--depth": Range(0, 100, "3"),
    "--rank": Range(0, _COUNT, "0"),
    "--older-than": Range(0, 1_000_000, "30", whole=False, unit="days"),
    "--runs-older-than": Range(0, 1_000_000, "30", whole=False, unit="days"),
    "--max-unpacked": Range(1, 2**60, "107374182400", unit="bytes"),
    "--max-entries": Range(1, 10**9, "10000000"),
    "--inode-quota": Range(1, 10**12, "1000000"),
    "--max-ratio": Range(1, 1_000_000, "2000", whole=False),
}
#: What keys that are no number allow, in words, such a value in TOML, and whether any text is allowed. By the
#: job file's key or the setting; `bareboat.model` and `bareboat.config` add them.
ALLOWED: dict[str, tuple[str, str, bool]] = {}


def check(allowed: Range, value: Any, *, name: str) -> None:
    """Raise UsageError for a value outside its range. `name`: the user's name for it."""
    if allowed.holds(value):
        return
    raise UsageError(
        f"{name} is {shown(value)}; it must be {allowed.toml_words}",
        key=name,
        value=value,
        allowed=allowed.toml_words,
        remedy=setting(name, allowed.near(value)),
    )


def setting(name: str, value: str | Sequence[str]) -> SetKey:
    """The remedy that gives a key of a file, a flag or an environment variable this value, which is TOML, or
    a list, which is removed if it is empty. `name`: the user's name for it."""
    if not isinstance(value, str):
        value = written(value) if value else ""
    return SetKey(name, value)


def example(name: str, value: str) -> SetKey | str:
    """The remedy with a value in TOML that the key may have, or without the key where only the user knows a
    value, such as an account's name."""
    remedy = setting(name, value)
    return f"{remedy}, or remove it" if re.search(r"\b[A-Z]{3,}\b", value) else remedy


def parse(key: str, text: str, *, name: str, bare: bool = True) -> Any:
    """The number of a flag, an environment variable or a text in a TOML file. Raises UsageError, with `name`.
    `bare`: whether a size or a time may be a number without a unit."""
    allowed = RANGES[key]
    value, unclear = None, units.Unclear()
    try:
        value = _amount(text, allowed, bare=bare)
    except units.Unclear as error:
        unclear = error
    if allowed.holds(value):
        return value
    why = f", {unclear.reason}" if unclear.reason else ""
    kind, in_bytes = allowed.words, allowed.unit == "bytes"
    if allowed.unit and value is None:
        such_as = units.SUCH_AS[allowed.unit]
        kind = (
            such_as
            if not bare
            else f"{kind}, {such_as.removeprefix('a size ')}"
            if in_bytes
            else f"{kind}, or {such_as}"
        )
    example = allowed.example if allowed.unit and bare and not in_bytes else allowed.near(value)
    if unclear.instead and allowed.holds(_amount(unclear.instead, allowed, bare=False)):
        example = f'"{unclear.instead}"'
    raise UsageError(
        f"{name} is {shown(text)}{why}; it must be {kind}",
        key=name,
        value=text,
        allowed=kind,
        remedy=setting(name, example),
    )


def _amount(text: str, allowed: Range, *, bare: bool) -> Any:
    """The number that the text means; None if it means none. Raises Unclear."""
    if bare:
        with contextlib.suppress(ValueError):
            return int(text) if allowed.whole else float(text)
    if not allowed.unit:
        return None
    value = units.parse(text, allowed.unit)
    return int(value) if allowed.whole and value == int(value) else value
