"""Pure: sizes and times as people write them: "16 GiB", "64G", "2h30m", "1-12:00:00"."""

from __future__ import annotations

from bareboat_base.expressions import expression
from bareboat_base.printable import quoted

_NUMBER = r"([0-9]{1,18})(?:\.([0-9]{1,9}))?"
_SIZE = expression(_NUMBER + r"\s*([A-Za-z]+)")
_PART = expression(_NUMBER + r"\s*([A-Za-zµ]+)\s*")
_BARE = expression(_NUMBER)
#: Slurm's DAYS-HOURS[:MINUTES[:SECONDS]] and HOURS:MINUTES:SECONDS.
_DAYS = expression(r"([0-9]{1,9})-([0-9]{1,9})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?")
_CLOCK = expression(r"([0-9]{1,9}):([0-9]{1,2}):([0-9]{1,2})")
_TWO = expression(r"([0-9]{1,9}):([0-9]{1,2})")

#: A single letter is a power of 1024, as in Slurm.
_BYTES = {
    "B": 1,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGTP", 1)},
    **{letter: 1024**power for power, letter in enumerate("kmgtp", 1)},
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGTP", 1)},
    "KB": 1000,
}
#: In milliseconds, from the longest: a longer unit comes first.
_MILLISECONDS = (
    (("w", "week", "weeks"), 604_800_000),
    (("d", "day", "days"), 86_400_000),
    (("h", "hr", "hrs", "hour", "hours"), 3_600_000),
    (("m", "min", "mins", "minute", "minutes"), 60_000),
    (("s", "sec", "secs", "second", "seconds"), 1000),
    (("ms", "millisecond", "milliseconds"), 1),
)
_TIMES = {name: length for names, length in _MILLISECONDS for name in names}

#: Unit of a number -> what it measures, with examples, for messages.
SUCH_AS = {
    "bytes": "a size such as 16GiB or 64G",
    "s": "a time such as 2h30m or 1-12:00:00",
    "days": "a time such as 2w or 12h",
}


class Unclear(ValueError):
    """The text is not one amount. `reason`: why, after "is …, "; `instead`: a text that would do, or ""."""

    def __init__(self, reason: str = "", instead: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.instead = instead


def parse(text: str, unit: str) -> int | float:
    """The amount in `unit` ("bytes", "s" or "days"); a fraction of a byte is dropped. Raises Unclear."""
    text = text.strip()
    if unit == "bytes":
        return _bytes(text)
    return _milliseconds(text) / (1000 if unit == "s" else 86_400_000)


def written(value: float, unit: str) -> str:
    """The amount as text, in the largest unit that divides it."""
    amount = round(value * {"bytes": 1, "s": 1000, "days": 86_400_000}[unit])
    names = {known[0]: length for known, length in _MILLISECONDS}
    if unit == "bytes":
        names = {f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", 1)} | {"B": 1}
    name = max((name for name in names if amount % names[name] == 0), key=names.__getitem__)
    return f"{amount // names[name]}{name}"


def _bytes(text: str) -> int:
    if _BARE.fullmatch(text):
        raise Unclear("without a unit", f"{text}M")
    found = _SIZE.fullmatch(text)
    if found is None:
        raise Unclear
    whole, fraction, name = found.groups()
    if name not in _BYTES:
        letter = name[0].upper()
        if letter in "KMGTP" and name[1:].lower() in ("b", "ib", "i"):
            number = text[: found.start(3)].strip()
            raise Unclear(
                f"which could mean {letter}iB (powers of 1024), {letter}B (powers of 1000) or bits",
                f"{number}{letter}iB",
            )
        raise Unclear(f"whose unit {quoted(name)} is unknown")
    return _scaled(whole, fraction, _BYTES[name])


def _scaled(whole: str, fraction: str | None, unit: int) -> int:
    digits = fraction or ""
    result: int = int(whole + digits) * unit // 10 ** len(digits)
    return result


def _milliseconds(text: str) -> int:
    if _BARE.fullmatch(text):
        raise Unclear("without a unit", f"{text}m")
    if found := _TWO.fullmatch(text):
        slurms = written(60 * int(found[1]) + int(found[2]), "s")
        raise Unclear("which could mean minutes and seconds, or hours and minutes", slurms)
    if found := _DAYS.fullmatch(text) or _CLOCK.fullmatch(text):
        parts = [int(part or 0) for part in found.groups()]
        days, hours, minutes, seconds = parts if len(parts) == 4 else (0, *parts)
        if minutes > 59 or seconds > 59:
            raise Unclear("with more than 59 minutes or seconds after a colon")
        return 1000 * (86_400 * days + 3600 * hours + 60 * minutes + seconds)
    total, at, shortest = 0, 0, 10**12
    while found := _PART.match(text, at):
        whole, fraction, name = found.groups()
        if name not in _TIMES:
            known = next((each for each in (name.lower(), name.lower()[:1]) if each in _TIMES), "")
            raise Unclear(
                f"whose unit {quoted(name)} is unknown",
                f"{whole}{known}"
                if known and fraction is None and not at and found.end() == len(text)
                else "",
            )
        if _TIMES[name] >= shortest:
            raise Unclear("with a unit that is not shorter than the one before it")
        shortest = _TIMES[name]
        if fraction and int(whole + fraction) * shortest % 10 ** len(fraction):
            raise Unclear("with a fraction of a millisecond")
        total += _scaled(whole, fraction, shortest)
        at = found.end()
    if not at or at < len(text):
        rest = text[at:]
        raise Unclear("whose last number has no unit" if at and _BARE.fullmatch(rest) else "")
    return total
