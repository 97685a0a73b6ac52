"""Pure: the time that the arms waited for a busy processor.

On a machine with other work, an arm that is ready to run waits until the kernel gives it a processor. The
length of the wait is mostly chance, and most of the noise of such a study; a container may cause waits, too.
The kernel counts the waits of each thread: they are a secondary metric beside the processor time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import UNSET

from bareboat.model import Record, Window


def is_counted(runs: Sequence[tuple[Record, ...]]) -> bool:
    """Whether all windows have their processor time and their waits."""
    windows = (window for run in runs for record in run for window in record.windows)
    return all(
        window.cpu_s is not UNSET and window.wait_s is not UNSET and window.cpu_s > 0 for window in windows
    )


def cpu_step_s(windows: Sequence[Window], samples: float) -> float:
    """The processor time of all ranks in a step of these windows, on average; per sample."""
    steps = sum(len(window.step_s) for window in windows)
    return _cpu_s(windows) / steps / samples


def factor(windows: Sequence[Window], _samples: float) -> float:
    """How much longer the threads took in these windows because they waited: 1 + waits / processor time."""
    waits_s = math.fsum(window.wait_s for window in windows if window.wait_s is not UNSET)
    return 1 + waits_s / _cpu_s(windows)


def _cpu_s(windows: Sequence[Window]) -> float:
    return math.fsum(window.cpu_s for window in windows if window.cpu_s is not UNSET)
