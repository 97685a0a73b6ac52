"""A pseudo-terminal as the output of a program whose input and controlling terminal are the user's.

So its output can be kept although it goes to a terminal. The user's terminal stays what the program reads
from, with its keys (Ctrl-C, Ctrl-Z), job control and modes: Bareboat neither reads it nor makes it raw. The
pseudo-terminal passes every byte unchanged; the user's terminal alone ends lines with a carriage return.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import termios
from collections.abc import Callable
from typing import Any

#: Of what tcgetattr returns: the flags of input, output, control and local modes, and the special characters.
_FLAGS, _CHARACTERS = range(4), 6
_OUTPUT = 1
_NO_SIZE = bytes(8)  # struct winsize


class Terminal:
    """`reads`: what the program writes is read from it; `writes`: the program's stdout or stderr."""

    def __init__(self, shown_on: int) -> None:
        """A pseudo-terminal with the modes and the size of the terminal `shown_on`. Raises OSError where none
        can be had."""
        self._user = shown_on
        self.reads, self.writes = os.openpty()
        try:
            self._set(termios.tcgetattr(shown_on))
            self._first = self._modes = termios.tcgetattr(self.reads)
            self._size = _NO_SIZE
            self._resize()
        except termios.error as error:
            os.close(self.reads)
            os.close(self.writes)
            raise OSError(*error.args) from None

    def follow(self, is_of_run: Callable[[int], bool]) -> None:
        """Give the pseudo-terminal the user's window size, and the user's terminal the modes that the program
        set through its output, as curses does. `is_of_run`: whether a process belongs to the run."""
        with contextlib.suppress(OSError, termios.error):  # the terminal is gone
            if self._resize():
                # The kernel's own signal may have come before the new size.
                os.killpg(os.tcgetpgrp(self._user), signal.SIGWINCH)
            modes = termios.tcgetattr(self.reads)
            if modes != self._modes:
                self._pass_on(modes, is_of_run)

    def restore(self, is_of_run: Callable[[int], bool]) -> None:
        """Take back the modes that a program which was killed could not."""
        with contextlib.suppress(OSError, termios.error):
            if self._modes != self._first:
                self._pass_on(self._first, is_of_run)

    def _resize(self) -> bool:
        """Whether the window's size changed."""
        size = fcntl.ioctl(self._user, termios.TIOCGWINSZ, _NO_SIZE)
        if size == self._size:
            return False
        self._size = size
        fcntl.ioctl(self.reads, termios.TIOCSWINSZ, size)
        return True

    def _pass_on(self, modes: list[Any], is_of_run: Callable[[int], bool]) -> None:
        """Change in the user's terminal what differs between these modes and the last ones."""
        foreground = os.tcgetpgrp(self._user)
        if foreground != os.getpgrp() and not is_of_run(foreground):
            return  # in the background, where the kernel would stop the program; it is tried again
        user = termios.tcgetattr(self._user)
        for at in _FLAGS:
            different = self._modes[at] ^ modes[at]
            user[at] = user[at] & ~different | modes[at] & different
        for at, (before, after) in enumerate(zip(self._modes[_CHARACTERS], modes[_CHARACTERS], strict=True)):
            if before != after:
                user[_CHARACTERS][at] = after
        termios.tcsetattr(self._user, termios.TCSADRAIN, user)
        self._set(modes)
        self._modes = termios.tcgetattr(self.reads)

    def _set(self, modes: list[Any]) -> None:
        raw = list(modes)
        raw[_OUTPUT] &= ~termios.OPOST
        termios.tcsetattr(self.reads, termios.TCSANOW, raw)
