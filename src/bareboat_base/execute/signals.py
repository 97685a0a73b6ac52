"""What SIGINT, SIGTERM and SIGHUP do to Bareboat while it runs something."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

from bareboat_base.errors import Terminated
from bareboat_base.execute.processes import below, live_processes


@contextlib.contextmanager
def termination_raised() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise Terminated, so that every `finally` runs."""

    def on_signal(number: int, _frame: object) -> None:
        raise Terminated(number)

    with _handled((signal.SIGTERM, signal.SIGHUP), on_signal):
        yield


@contextlib.contextmanager
def interrupts_left_to_child() -> Iterator[None]:
    """Inside, Ctrl-C and Ctrl-\\ go to the job script, which shares our terminal; wait for it to clean up.
    The same signals from a supervisor or a notebook come to this process alone, which passes them on."""
    if not _gets_signals():
        yield
        return
    with _handled((signal.SIGINT, signal.SIGQUIT), _pass_on):
        yield


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Inside, SIGINT, SIGTERM and SIGHUP are delayed to the end, also for commands that are run. They are
    dropped when the body fails, since its error is reported instead."""
    if not _gets_signals():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with _handled(numbers, lambda caught, _: came.append(caught)):
        # Commands inherit the mask. It does not suffice for this process: a library's thread may take the
        # signal.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for held in dict.fromkeys(came):
        signal.raise_signal(held)


@contextlib.contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Callable[[int, object], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _gets_signals() -> bool:
    """Whether Python's signal handlers run in this thread, and can be set from it."""
    return threading.current_thread() is threading.main_thread()


def _pass_on(number: int, _frame: object) -> None:
    """Send the signal to all processes that Ctrl-C would reach, if it did not come from there. Before the
    first of them is started it stops this process. (SIG_IGN would be inherited by the job.)"""
    if _is_in_foreground():
        return
    group, is_passed_on = os.getpgrp(), False
    for pid in below(os.getpid(), live_processes()):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == group:
                os.kill(pid, number)
                is_passed_on = True
    if not is_passed_on:
        raise KeyboardInterrupt


def _is_in_foreground() -> bool:
    """Whether the terminal sends its signals to this process."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
