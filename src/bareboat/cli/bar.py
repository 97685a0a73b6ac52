"""A line of progress: a bar, the share, a rate and an estimate of the end, in the given width. Pure."""

from __future__ import annotations

_BAR = 20
#: The rate is that of about so many seconds.
_MEMORY_S = 8.0
#: Estimates from less are noise.
_LEAST_S = 1.0


class Pace:
    """The rate of a step, from how much was done when."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []

    def add(self, at_s: float, done: float) -> None:
        if self._seen and done < self._seen[-1][1]:  # begun again
            self._seen.clear()
        self._seen.append((at_s, done))
        while len(self._seen) > 2 and at_s - self._seen[0][0] > _MEMORY_S:
            del self._seen[0]

    @property
    def rate(self) -> float | None:
        """Per second; None before it is known."""
        if not self._seen:
            return None
        seconds = self._seen[-1][0] - self._seen[0][0]
        return (self._seen[-1][1] - self._seen[0][1]) / seconds if seconds >= _LEAST_S else None

    def left_s(self, total: float) -> float | None:
        """Until the total is reached."""
        rate = self.rate
        return (total - self._seen[-1][1]) / rate if rate else None


def line(
    head: str, what: str, share: float, *, width: int, more: str = "", left_s: float | None = None, utf8: bool
) -> str:
    """The line, in at most `width` characters; what is less needed goes first: the bar, then `more`, then the
    end of `what`."""
    share = min(max(share, 0.0), 1.0)
    done = round(share * _BAR)
    bar = ("━" * done + "╌" * (_BAR - done)) if utf8 else "#" * done + "-" * (_BAR - done)
    left = "" if left_s is None else f"{clock(left_s)} left"
    percent = f"{share:4.0%}"
    for parts in (
        (head, what, bar, percent, more, left),
        (head, what, percent, more, left),
        (head, what, percent, left),
        (head, what, percent),
    ):
        found = "  ".join(filter(None, parts))
        if len(found) <= width:
            return found
    room = width - len(f"{head}    {percent}")
    return f"{head}  {shortened(what, room)}  {percent}" if room > 1 else found[:width]


def shortened(text: str, width: int) -> str:
    """The beginning of the text, in at most `width` characters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def clock(seconds: float) -> str:
    """M:SS, from an hour on H:MM:SS."""
    whole = max(int(seconds), 0)
    hours = f"{whole // 3600}:{whole // 60 % 60:02d}" if whole >= 3600 else f"{whole // 60}"
    return f"{hours}:{whole % 60:02d}"
