"""The sampler: a program that follows a run's processes, and the devices of its machine, ten times a second.

    python -I -S sampler.py RUN PID DIRECTORY [INTERVAL_S]

RUN: the mark that the run's processes carry (BAREBOAT_RUN). PID: the job script; the sampler ends with it.
One file without dependencies, for Python 3.7 or newer, because it is copied for compute nodes. It writes to
DIRECTORY:

    processes.csv    for each rank, and for the processes of no rank (launchers, engines): their sums
    devices.csv      for each GPU (NVML), and for each processor whose energy the user may read (RAPL)
    gpus.csv         where NVML knows the processes on its GPUs: each that the run uses, once

Times are seconds of CLOCK_MONOTONIC, as in the meter. CPU seconds, bytes and faults are sums since the start
of the processes; energy is the devices' own counter. PSS is read less often, because the kernel walks the
page tables for it: it may take a thousandth of the time. So may the devices. An empty field: not measured.

A run of more than an hour is followed once a second then, and after ten more hours every ten seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import signal
import sys
import time
from collections.abc import Container, Iterable, Iterator
from typing import TypeVar

INTERVAL_S = 0.1
#: Of the time: what PSS, and what the devices, may take; and the search for GPUs that are not in use yet.
_SHARE, _SEARCH_SHARE = 0.001, 0.01
#: Samples after which the interval grows tenfold.
_MOST_SAMPLES = 36_000
#: Between two searches for new processes: a twentieth of the run's age, within these bounds.
_SEARCH_S = (0.1, 1.0)
_MOST_FLUSH_S = 2.0
#: On one GPU.
_MOST_PROCESSES = 64
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_PAGE = os.sysconf("SC_PAGESIZE")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")

PROCESSES = (
    "monotonic_s", "rank", "processes", "rss_bytes", "pss_bytes", "cpu_s", "read_bytes", "written_bytes",
    "minor_faults", "major_faults",
)  # fmt: skip
DEVICES = (
    "monotonic_s", "device", "memory_bytes", "utilisation_percent", "power_w", "sm_clock_mhz",
    "memory_clock_mhz", "throttle_reasons", "energy_j",
)  # fmt: skip
GPUS = ("monotonic_s", "device")


class Watched:
    """One process of the run. `rank`: "" for a process of no rank."""

    def __init__(self, pid: int, rank: str) -> None:
        self.pid, self.rank = pid, rank
        self.pss = 0
        self.counts: tuple[float, ...] = (0.0, 0, 0, 0, 0)
        self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._io = os.open(f"/proc/{pid}/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a process that changed its user
            self._io = -1

    def read(self) -> int | None:
        """Resident bytes now; None when the process is gone. Keeps its counts."""
        try:
            words = os.pread(self._stat, 4096, 0).rpartition(b") ")[2].split()
        except OSError:
            return None
        if len(words) < 22 or words[0] in (b"Z", b"X"):
            return None
        read, written = self.counts[1:3]
        if self._io >= 0:
            with contextlib.suppress(OSError):
                lines = os.pread(self._io, 4096, 0).split()
                read, written = int(lines[9]), int(lines[11])
        cpu_s = (int(words[11]) + int(words[12])) * _TICK_S
        self.counts = (cpu_s, read, written, int(words[7]), int(words[9]))
        return int(words[21]) * _PAGE

    def read_pss(self) -> None:
        """Keeps the proportional memory."""
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/smaps_rollup", "rb") as stream:
            for line in stream:
                if line.startswith(b"Pss:"):
                    self.pss = int(line.split()[1]) * 1024
                    return

    def close(self) -> None:
        os.close(self._stat)
        if self._io >= 0:
            os.close(self._io)


class Processes:
    """The run's processes on this machine. A process can be found late, but never counts for two ranks."""

    def __init__(self, run: str) -> None:
        self._mark = b"BAREBOAT_RUN=" + os.fsencode(run)
        #: pid -> (when to read its environment again, its age then)
        self._judged: dict[int, tuple[float, float]] = {os.getpid(): (float("inf"), 0.0)}
        self.watched: dict[int, Watched] = {}
        #: rank -> the counts of its processes that are gone
        self._gone: dict[str, tuple[float, ...]] = {}

    def search(self, now: float) -> None:
        """Find new processes. While a process is young it may become another program, with another
        environment."""
        there = set()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            pid = int(name)
            there.add(pid)
            due, age = self._judged.get(pid, (0.0, 0.0))
            if now < due:
                continue
            wait = max(0.1, 2 * age)
            self._judged[pid] = (now + wait, wait) if wait < 60 else (float("inf"), 0.0)
            self._judge(pid)
        for pid in [each for each in self._judged if each not in there]:
            del self._judged[pid]

    def _judge(self, pid: int) -> None:
        try:
            with open(f"/proc/{pid}/environ", "rb") as stream:
                words = stream.read().split(b"\0")
        except OSError:  # another user's
            self._judged[pid] = (float("inf"), 0.0)
            return
        if self._mark not in words:
            return
        rank = ""
        for name in _RANKS:
            head = name.encode() + b"="
            values = [word[len(head) :] for word in words if word.startswith(head)]
            if values and values[-1].isdigit():
                rank = values[-1].decode()
                break
        known = self.watched.get(pid)
        if known is not None:
            known.rank = rank
            return
        with contextlib.suppress(OSError):
            self.watched[pid] = Watched(pid, rank)

    def sample(self, now: float, is_pss_due: bool) -> Iterator[str]:
        """One line for each rank."""
        rows: dict[str, list[float]] = {rank: [0, 0, 0, *counts] for rank, counts in self._gone.items()}
        for pid, each in list(self.watched.items()):
            rss = each.read()
            if rss is None:
                before = self._gone.get(each.rank, (0.0, 0, 0, 0, 0))
                self._gone[each.rank] = tuple(map(operator.add, before, each.counts))
                each.close()
                del self.watched[pid]
            elif is_pss_due:
                each.read_pss()
            row = rows.setdefault(each.rank, [0, 0, 0, 0.0, 0, 0, 0, 0])
            if rss is not None:
                row[0] += 1
                row[1] += rss
                row[2] += each.pss
            for place, count in enumerate(each.counts, 3):
                row[place] += count
        for rank, row in rows.items():
            pss = str(row[2]) if is_pss_due else ""
            cpu_s, *counts = row[3:]
            fields = (rank, row[0], row[1], pss, f"{cpu_s:.2f}", *counts)
            yield f"{now:.3f},{','.join(map(str, fields))}\n"


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("part", ctypes.c_uint),
    ]


class _Utilisation(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


_Value = TypeVar("_Value", bound="ctypes.c_uint | ctypes.c_ulonglong | ctypes.Structure")


class Nvidia:
    """NVIDIA's GPUs by NVML, the library of the driver; none where there is no driver."""

    def __init__(self, library: str = "libnvidia-ml.so.1") -> None:
        self.handles: list[ctypes.c_void_p] = []
        self._used: set[str] = set()
        try:
            self._nvml = ctypes.CDLL(library)
            if self._nvml.nvmlInit_v2():
                return
            count = ctypes.c_uint()
            if self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
                return
            for index in range(min(count.value, 64)):
                handle = ctypes.c_void_p()
                if not self._nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
                    self.handles.append(handle)
        except (OSError, AttributeError):  # no library, or one of another age
            self.handles = []

    def _ask(self, name: str, handle: ctypes.c_void_p, value: _Value, *arguments: int) -> _Value | None:
        """The value that a function of the library writes; None where the device does not support it."""
        try:
            code = getattr(self._nvml, name)(handle, *arguments, ctypes.byref(value))
        except AttributeError:
            return None
        return None if code else value

    def newly_used(self, now: float, pids: Container[int]) -> Iterator[str]:
        """A line for each GPU that the first of these processes use now; before them, one without a name
        where processes are known."""
        for number, handle in enumerate(self.handles):
            if f"gpu-{number}" in self._used:
                continue
            found = (_Process * _MOST_PROCESSES)()
            count = ctypes.c_uint(_MOST_PROCESSES)
            try:
                asked = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3
            except AttributeError:  # an old driver
                return
            if asked(handle, ctypes.byref(count), found):
                continue
            names = [""]
            if any(each.pid in pids for each in found[: count.value]):
                names.append(f"gpu-{number}")
            for name in names:
                if name not in self._used:
                    self._used.add(name)
                    yield f"{now:.3f},{name}\n"

    def sample(self, now: float) -> Iterator[str]:
        for number, handle in enumerate(self.handles):
            memory = self._ask("nvmlDeviceGetMemoryInfo", handle, _Memory())
            busy = self._ask("nvmlDeviceGetUtilizationRates", handle, _Utilisation())
            power = self._ask("nvmlDeviceGetPowerUsage", handle, ctypes.c_uint())  # mW
            clocks = [self._ask("nvmlDeviceGetClockInfo", handle, ctypes.c_uint(), kind) for kind in (1, 2)]
            throttled = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle, ctypes.c_ulonglong())
            energy = self._ask("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.c_ulonglong())  # mJ
            fields = [
                "" if memory is None else str(memory.used),
                "" if busy is None else str(busy.gpu),
                "" if power is None else f"{power.value / 1000:.1f}",
                *("" if clock is None else str(clock.value) for clock in clocks),
                "" if throttled is None else hex(throttled.value),
                "" if energy is None else f"{energy.value / 1000:.3f}",
            ]
            yield f"{now:.3f},gpu-{number},{','.join(fields)}\n"


class _Package:
    """A processor. `span`: the range of its counter, in microjoules; `turns`: how often it began again."""

    def __init__(self, name: str, folder: str, span: int, last: int) -> None:
        self.name, self.folder, self.span, self.last = name, folder, span, last
        self.turns = 0


class Rapl:
    """The energy of processors, where the user may read it. The counter starts again at its range."""

    def __init__(self, folder: str = "/sys/class/powercap") -> None:
        self.packages: list[_Package] = []
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                place = os.path.join(folder, name)
                if name.count(":") != 1 or not _text(place, "name").startswith("package"):
                    continue  # a part of a package
                energy, span = _text(place, "energy_uj"), _text(place, "max_energy_range_uj")
                if energy.isdigit() and span.isdigit():
                    self.packages.append(_Package(_text(place, "name"), place, int(span), int(energy)))

    def sample(self, now: float) -> Iterator[str]:
        for package in self.packages:
            text = _text(package.folder, "energy_uj")
            if not text.isdigit():
                continue
            package.turns += int(text) < package.last
            package.last = int(text)
            joules = (package.turns * package.span + package.last) / 1e6
            yield f"{now:.3f},{package.name},,,,,,,{joules:.6f}\n"


def _text(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name)) as stream:
            return stream.read(64).strip()
    except OSError:
        return ""


class Output:
    """A file that appears with its first line."""

    def __init__(self, path: str, head: Iterable[str]) -> None:
        self._path, self._head = path, head
        self._lines: list[str] = []
        self._flushed = 0.0

    def write(self, lines: Iterable[str], now: float) -> None:
        self._lines += lines
        if now - self._flushed > _MOST_FLUSH_S:
            self.flush(now)

    def flush(self, now: float) -> None:
        self._flushed = now
        if not self._lines:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # a full disk: the run goes on without
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "a") as stream:
                if stream.tell() == 0:
                    stream.write(",".join(self._head) + "\n")
                stream.writelines(self._lines)
        self._lines = []


class Duty:
    """When a costly reading is due: at most this share of the time is spent on it."""

    def __init__(self, share: float = _SHARE) -> None:
        self._due, self._share = 0.0, share

    def is_due(self, now: float) -> bool:
        return now >= self._due

    def took(self, now: float, seconds: float) -> None:
        self._due = now + seconds / self._share


def follow(run: str, pid: int, folder: str, interval_s: float = INTERVAL_S) -> None:
    """Sample until the process `pid` is gone, or SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the run, which ends by it
    processes, gpus, rapl = Processes(run), Nvidia(), Rapl()
    outputs = (
        Output(os.path.join(folder, "processes.csv"), PROCESSES),
        Output(os.path.join(folder, "devices.csv"), DEVICES),
        Output(os.path.join(folder, "gpus.csv"), GPUS),
    )
    pss, device, use, searched = Duty(), Duty(), Duty(_SEARCH_SHARE), 0.0
    began = due = now = time.monotonic()
    samples = 0
    while os.path.isdir(f"/proc/{pid}"):
        now = time.monotonic()
        if now - searched >= min(max((now - began) / 20, _SEARCH_S[0]), _SEARCH_S[1]):
            searched = now
            processes.search(now)
        is_pss_due = pss.is_due(now) and bool(processes.watched)
        outputs[0].write(list(processes.sample(now, is_pss_due)), now)
        if is_pss_due:
            pss.took(now, time.monotonic() - now)
        if device.is_due(now):
            start = time.monotonic()
            outputs[1].write([*gpus.sample(start), *rapl.sample(start)], now)
            device.took(now, time.monotonic() - start)
        if use.is_due(now):
            start = time.monotonic()
            outputs[2].write(list(gpus.newly_used(start, processes.watched)), now)
            use.took(now, time.monotonic() - start)
        samples += 1
        if samples == _MOST_SAMPLES:
            samples, interval_s = 0, min(interval_s * 10, 10.0)
        due = max(due + interval_s, time.monotonic())
        # Not time.sleep, which goes on after a signal: the end of the run would wait for it.
        if signal.sigtimedwait({signal.SIGTERM}, max(0.0, due - time.monotonic())) is not None:
            break
    for output in outputs:
        output.flush(now)


if __name__ == "__main__":
    follow(sys.argv[1], int(sys.argv[2]), sys.argv[3], *map(float, sys.argv[4:5]))
