"""Sizes, times and counts as schedulers write them. Pure. None: not such an amount."""

from __future__ import annotations

import re
from collections.abc import Iterator

_UNITS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_MOST_ELEMENTS = 10_000


def size(text: str, *, unit: str = "m") -> int | None:
    """Bytes of `32G`, `32gb`, `32GiB`; `unit`: of a number without one. All are powers of 1024."""
    found = re.fullmatch(r"(\d{1,12})(?:\.(\d{1,3}))?\s*([bkmgtBKMGT]?)(?:i?[bBwW])?", text.strip())
    if found is None:
        return None
    power = _UNITS[(found[3] or unit).lower()]
    digits = found[2] or ""
    return int(found[1] + digits) * int(1024**power) // int(10 ** len(digits))


def count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"0*[1-9]\d{0,6}|0", text.strip()) else None


def slurm_time(text: str) -> int | None:
    """Seconds of M, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    found = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,4}))?(?::(\d{1,2}))?", text.strip())
    if found is None:
        return None
    days, *rest = found.groups()
    numbers = [int(each) for each in rest if each is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 3:
        return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0)


def clock(text: str, *, unit: int = 1) -> int | None:
    """Seconds of H:M:S, M:S, or a number of `unit` seconds, as PBS and Grid Engine read them."""
    found = re.fullmatch(r"(?:(?:(\d{1,5}):)?(\d{1,5}):)?(\d{1,9})", text.strip())
    if found is None:
        return None
    hours, minutes, last = found.groups()
    if minutes is None:
        return int(last) * unit
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(last)


def elements(text: str) -> tuple[tuple[int, ...], int | None] | None:
    """The numbers of an array such as 0-7, 1-10:2 or 1,3,5%2, and how many run at the same time."""
    listed, _, limit = text.partition("%")
    found: list[int] = []
    for part in listed.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?", part.strip())
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        step = int(match[3] or 1)
        if step == 0 or last < first or (last - first) // step >= _MOST_ELEMENTS:
            return None
        found += range(first, last + 1, step)
    if len(found) > _MOST_ELEMENTS or (limit and not count(limit)):
        return None
    return tuple(found), count(limit) if limit else None


def option_words(words: list[str]) -> Iterator[tuple[str, str, str]]:
    """Words of options as (name, value, as written): a word that begins with - has the next one as its value
    unless that begins with -, too."""
    left = list(words)
    while left:
        name = left.pop(0)
        value = left.pop(0) if left and not left[0].startswith("-") else ""
        yield name, value, f"{name} {value}".strip()
