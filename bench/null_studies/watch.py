"""Around each window of a study: the processor time of the arm, how long it waited for a processor, and what
else kept the machine busy. A gate that keeps this; the study itself is unchanged."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from bareboat_base.execute.processes import descendants
from bareboat_study.gate import Gate

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a window, all in seconds. `cpu_s`: of the arm's threads; `delay_s`: they were ready, and no
    processor was free; `busy_s`: of all processors for anything; `steal_s`: taken by the hypervisor."""

    wall_s: float
    cpu_s: float
    delay_s: float
    busy_s: float
    steal_s: float


@dataclass(slots=True)
class Watched:
    """An arm's windows in their order, 0 for the baseline."""

    arm: int = -1
    windows: list[Usage] = field(default_factory=list)


#: Of the run that is being measured; the caller empties it.
arms: list[Watched] = []


class WatchingGate(Gate):
    """A gate that reads the kernel's counters at both ends of every window."""

    def __init__(self) -> None:
        super().__init__()
        self._watched = Watched()
        self._processes: list[int] = []
        self._before: tuple[float, ...] | None = None
        arms.append(self._watched)

    def open_until(self, step: int, *, mark: int | None = None) -> None:
        self._before = self._counters()
        super().open_until(step, mark=mark)

    def wait(self, pidfd: int) -> bool:
        complete = super().wait(pidfd)
        if self._before is not None:
            after = self._counters()
            self._watched.windows.append(
                Usage(*(late - early for early, late in zip(self._before, after, strict=True)))
            )
            self._before = None
        elif complete and not self._processes:
            script = _script(pidfd)
            self._watched.arm = int(_command(script).endswith("contender.sh"))
            self._processes = [script, *descendants(script)]
        return complete

    def _counters(self) -> tuple[float, ...]:
        now = time.monotonic()
        cpu = delay = 0
        for process in self._processes:
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{process}/task"):
                    with (
                        contextlib.suppress(OSError),
                        open(f"/proc/{process}/task/{thread}/schedstat") as stream,
                    ):
                        words = stream.read().split()
                        cpu += int(words[0])
                        delay += int(words[1])
        with open("/proc/stat") as stream:
            user, nice, system, _idle, _iowait, irq, soft, steal, *_ = map(int, stream.readline().split()[1:])
        return (now, cpu / 1e9, delay / 1e9, (user + nice + system + irq + soft) * _TICK_S, steal * _TICK_S)


def of_rank(folder: Path) -> list[tuple[float, ...]]:
    """Of each window, as train.py saw it itself: its time, processor time, wait for a processor, and the
    machine's steal. Nothing for other programs."""
    try:
        rows = [tuple(map(int, line.split())) for line in (folder / "counters").read_text().splitlines()]
    except FileNotFoundError:
        return []
    # Before and after each wait; the first wait is before the training, the second after its first step.
    starts, ends = rows[3::2], rows[4::2]
    return [
        tuple((late - early) / 1e9 for early, late in zip(start, end, strict=True))
        for start, end in zip(starts, ends, strict=False)
    ]


def _script(pidfd: int) -> int:
    with open(f"/proc/self/fdinfo/{pidfd}") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("Pid:"))


def _command(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline", "rb") as stream:
        words = stream.read().split(b"\0")
    return next((word.decode() for word in words if word.endswith((b"baseline.sh", b"contender.sh"))), "")
