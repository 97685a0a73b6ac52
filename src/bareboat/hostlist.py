"""Names of nodes in short, as Slurm writes them: c[1-3,5],login. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.ASCII | re.DOTALL)


def shortened(names: Iterable[str]) -> str:
    """In the order of each beginning's first name. Numbers with leading zeros are a group for each width."""
    groups: dict[tuple[str, int], list[int]] = {}
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            groups[name, -1] = []
            continue
        digits = match[2]
        # "007" and "010" count on; "7" and "10" do, too; "07" and "7" are different names.
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
