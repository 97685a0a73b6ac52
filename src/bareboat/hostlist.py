"""Pure: shortened lists of node names, in Slurm's form: c[1-3,5],login."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bareboat_base.expressions import expression

_NUMBERED = expression(r"(.*?)([0-9]+)", re.ASCII | re.DOTALL)


def shortened(names: Iterable[str]) -> str:
    """Shorten, ordered by each prefix's first name. Numbers with leading zeros form a group per width."""
    groups: dict[tuple[str, int], list[int]] = {}
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            groups[name, -1] = []
            continue
        digits = match[2]
        # "007" and "010" form one range, as do "7" and "10"; "07" and "7" are different names.
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        if width == 0 and (match[1], len(digits)) in groups:
            width = len(digits)
        groups.setdefault((match[1], width), []).append(int(digits))
    return ",".join(_group(*key, sorted(numbers)) for key, numbers in groups.items())


def _group(beginning: str, width: int, numbers: list[int]) -> str:
    if width < 0:
        return beginning
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{first:0{width}d}" + (f"-{last:0{width}d}" if last > first else "") for first, last in ranges]
    if len(numbers) == 1:
        return beginning + texts[0]
    return f"{beginning}[{','.join(texts)}]"
