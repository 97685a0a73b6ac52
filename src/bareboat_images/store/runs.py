"""The runs of a store: unique names in the order of creation."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import re
import struct
import time
from collections.abc import Callable, Iterator

from bareboat_base.errors import StoreError
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.files.trees import remove_tree
from bareboat_images.store.files import Files
from bareboat_images.store.paths import NAME

#: The second of a run's creation in its name.
_MOMENT = "%Y%m%d-%H%M%S"
_MOMENT_IN_NAME = expression(r"-(\d{8}-\d{6})(?:-\d{1,3})?$")
#: A run further in the future than clock errors explain does not set the time of later runs.
_CLOCK_SKEW_S = 86_400.0


class Runs(Files):
    """The runs of a store."""

    def new_run(self, prefix: str) -> str:
        """Make the directory of a new run with a unique name that sorts after all others.

        After a clock was set back, or where login nodes' clocks differ, it has the newest run's second.
        """
        stem = _stem(prefix)
        now = time.time()
        moment = time.strftime(_MOMENT, time.gmtime(now))
        latest = time.strftime(_MOMENT, time.gmtime(now + _CLOCK_SKEW_S))
        with self.guarded():
            newest = max((m for run in self._run_names() if (m := _moment(run)) <= latest), default="")
        moment = max(moment, newest)
        with self.guarded():
            self._make(self.own)
            (self.own / "runs").mkdir(exist_ok=True)
            for serial in range(1000):
                run_id = f"{stem}-{moment}" + (f"-{serial}" if serial else "")
                with contextlib.suppress(FileExistsError):
                    self.run(run_id).mkdir(mode=0o700)
                    with self.whole_run(run_id):
                        order = self._next_in_second(moment)
                        (self.run(run_id) / "order").write_text(f"{order}\n")
                    return run_id
        raise StoreError(f"no free name for a run in {self.own}", remedy="wait a second, and try again")

    @contextlib.contextmanager
    def whole_run(self, run_id: str) -> Iterator[None]:
        """Inside, an error removes the directory of the run, which has not started yet."""
        try:
            with self.guarded():
                yield
        except BaseException:
            with contextlib.suppress(OSError):
                remove_tree(self.run(run_id))
            raise

    def newest_of(self, job: str, accepts: Callable[[str], bool] | None = None) -> str | None:
        """The newest run of jobs of this name, of those that `accepts` takes if there is one."""
        pattern = re.compile(re.escape(_stem(job)) + r"-\d{8}-\d{6}(-\d+)?")
        runs = [run for run in reversed(self.runs()) if pattern.fullmatch(run)]
        newest = next(iter(runs), None)
        return newest if accepts is None else next(filter(accepts, runs), newest)

    def runs(self) -> list[str]:
        """The names of all runs in order of creation, newest last.

        The name holds the second; `order` in the run's directory sorts runs within a second.
        """
        with self.guarded():
            seconds = collections.defaultdict(list)
            for run_id in self._run_names():
                seconds[_moment(run_id)].append(run_id)
            for same in seconds.values():
                if len(same) > 1:
                    same.sort(key=lambda run_id: (self._order(run_id), run_id))
        return [run_id for moment in sorted(seconds) for run_id in seconds[moment]]

    def _run_names(self) -> list[str]:
        try:
            with os.scandir(self.own / "runs") as entries:
                return [e.name for e in entries if NAME.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def _next_in_second(self, moment: str) -> int:
        return 1 + max(self._order(run_id) for run_id in self._run_names() if _moment(run_id) == moment)

    def _order(self, run_id: str) -> int:
        """The run's position among those of its second; 0 without one."""
        try:
            return int(untrusted.read_text(self.run(run_id) / "order", limit=20))
        except (OSError, ValueError):
            return 0

    @contextlib.contextmanager
    def locked(self, run_id: str) -> Iterator[None]:
        """Allow one writer per run. A POSIX lock ends with its process."""
        with self.guarded(), open(self._lock(run_id, os.O_RDWR | os.O_CREAT), "r+b") as stream:
            try:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"another bareboat process uses {run_id}", remedy="wait until it ends, or stop it"
                ) from None
            yield

    def _lock(self, run_id: str, flags: int) -> int:
        """The lock's descriptor; a job may have put a link or a pipe in its place."""
        return untrusted.open_regular(self.run(run_id) / "lock", flags=flags)

    def is_locked(self, run_id: str) -> bool:
        """Whether a process uses the run (`locked`)."""
        try:
            with open(self._lock(run_id, os.O_RDONLY), "rb") as stream:
                # struct flock of fcntl(2): type, whence, start, length, process.
                asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                found = struct.unpack("hhqqi", fcntl.fcntl(stream, fcntl.F_GETLK, asked))
        except OSError:
            return False
        return bool(found[0] != fcntl.F_UNLCK)


def _stem(job: str) -> str:
    """A job's name, as in the names of its runs."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", job).strip("-._")[:100] or "run"


def _moment(run_id: str) -> str:
    found = _MOMENT_IN_NAME.search(run_id)
    return found[1] if found else ""
