"""What SIGINT, SIGTERM and SIGHUP do to Bareboat while it runs something."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from bareboat_base.errors import Terminated
from bareboat_base.execute.processes import descendants, has_signal

#: What a terminal sends for Ctrl-C and Ctrl-\.
INTERRUPTS = (signal.SIGINT, signal.SIGQUIT)
#: How long a process that handles SIGINT has to end, and one that does not.
_GRACE_S, _UNHANDLED_S = 10.0, 1.0


@contextlib.contextmanager
def termination_raised() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise Terminated, so that every `finally` runs."""

    def on_signal(number: int, _frame: object) -> None:
        raise Terminated(number)

    with _handled((signal.SIGTERM, signal.SIGHUP), on_signal):
        yield


@contextlib.contextmanager
def interrupts_left_to_child() -> Iterator[Interrupts]:
    """Inside, Ctrl-C and Ctrl-\\ go to the job script, which shares our terminal; wait for it to clean up.
    The same signals from a supervisor, a notebook or `kill` come to this process alone, which passes them on.
    What is started inside needs `interrupts_let_through`."""
    interrupts = Interrupts()
    if not _gets_signals():
        yield interrupts
        return
    receiver = _Receiver(interrupts)
    with _handled(INTERRUPTS, receiver.on_signal):
        if len(os.listdir("/proc/self/task")) > 1:
            # As in a notebook: signals that this thread blocks would go to another, which wakes nobody.
            yield interrupts
            return
        # Only a thread that waits for a signal learns its sender. (SIG_IGN would be inherited by the job.)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
        try:
            receiver.start()
            try:
                yield interrupts
            finally:
                receiver.stop()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def interrupts_let_through() -> None:
    """In a process that was just forked: let the signals reach it that `interrupts_left_to_child` holds."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)


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


class Interrupts:
    """How many SIGINT came, and when."""

    def __init__(self) -> None:
        self.count = 0
        self._began = self._handled = 0.0

    def note(self, number: int) -> None:
        if number == signal.SIGINT:
            self._began = self._began or time.monotonic()
            self.count += 1

    def are_unheeded(self, *, handled: bool) -> bool:
        """Whether what they should end had its time: ten seconds while a process `handled` them and no other
        one came, and one second without."""
        now = time.monotonic()
        if handled and self.count:
            self._handled = now
        patience_s = min(self._began + _GRACE_S - now, max(self._began, self._handled) + _UNHANDLED_S - now)
        return bool(self.count) and (self.count > 1 or patience_s < 0)


class _Receiver(threading.Thread):
    """Receives the signals that the main thread blocks, and passes on those that no terminal sent."""

    def __init__(self, interrupts: Interrupts) -> None:
        super().__init__(name="interrupts", daemon=True)
        self._interrupts = interrupts
        self._is_alone = self._is_over = False

    def run(self) -> None:
        while True:
            caught = signal.sigwaitinfo(INTERRUPTS)
            if self._is_over and caught.si_pid == os.getpid():
                return
            self._interrupts.note(caught.si_signo)
            # The kernel itself sends the signals of a terminal, to all processes of the foreground group.
            if caught.si_code <= 0 and not _pass_on(caught.si_signo):
                self._is_alone = True
                _thread.interrupt_main()

    def stop(self) -> None:
        assert self.ident is not None
        self._is_over = True
        signal.pthread_kill(self.ident, signal.SIGINT)
        self.join()

    def on_signal(self, number: int, _frame: object) -> None:
        """In the main thread: for a signal that a library's thread got, which blocks none. Its sender is
        unknown."""
        self._interrupts.note(number)
        if self._is_alone or not (_is_in_foreground() or _pass_on(number)):
            raise KeyboardInterrupt


def _pass_on(number: int) -> bool:
    """Send the signal to all processes that Ctrl-C would reach, unless it waits for one of them: then the
    whole group got it. False before the first is started."""
    group, is_passed_on = os.getpgrp(), False
    pids = descendants(os.getpid())
    if any(has_signal(pid, b"ShdPnd", number) for pid in pids):
        return True
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == group:
                os.kill(pid, number)
                is_passed_on = True
    return is_passed_on


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
