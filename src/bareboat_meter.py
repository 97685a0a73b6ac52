"""Bareboat's training meter: one file without dependencies, which you can copy next to your script.

    import bareboat_meter              # first, so that it measures the imports below

    meter = bareboat_meter.Meter(samples_per_step=batch * world_size)   # when the imports are done
    meter.start()                      # when the model and the data are ready
    for batch in loader:
        ...
        meter.step()                   # at the end of every training step
    meter.result(test_accuracy=0.98)
    meter.close()

Outside Bareboat every call does nothing. Inside, each rank writes its raw step times to
`$BAREBOAT_METER_DIR/rank-NNNNN.jsonl` and its results to `$BAREBOAT_RUN_DIR/results/RANK`. If
`$BAREBOAT_GATE` names a gate, it waits at the end of a step until the study lets it continue, so that two
live arms take turns on one machine; a rank whose study has gone exits with code 75. No other fault ends the
program: the meter warns of a full disk or of values that it cannot use, and measures no more. Times are
nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.

After its first step, rank 0 warns when its framework does not know the other ranks, since each
would train its own model.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import socket
import sys
import time
from typing import Any, TextIO

_loaded_ns = time.monotonic_ns()

#: Steps kept in memory before a line is written; also written at a gate and at the end.
_STEPS_PER_LINE = 1000
#: The longest wait for a study to accept the connection to its gate.
_CONNECT_S = 60.0


class GateClosed(SystemExit):
    """The study of this run has gone: the rank exits with code 75 (EX_TEMPFAIL)."""

    def __init__(self) -> None:
        super().__init__(75)


class Meter:
    """Times the training steps of one rank.

    `samples_per_step` counts the samples that all ranks together consume in one step; throughput is
    this number over the step's seconds. `rank` and `world_size` are read from the launcher's
    variables (RANK, WORLD_SIZE and their Slurm and Open MPI forms). `independent`: the ranks are intended to
    work without each other.
    """

    def __init__(self, *, samples_per_step: float = 1.0, independent: bool = False) -> None:
        self._rank = _first_int("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", default=0)
        self._world_size = _first_int(
            "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", default=1
        )
        self._is_checked = independent or self._world_size == 1 or not os.environ.get("BAREBOAT_RUN")
        self._log: TextIO | None = None
        self._gate: socket.socket | None = None
        self._steps_done = 0
        self._steps_allowed: float = float("inf")
        self._opened_ns = time.monotonic_ns()
        self._ends_ns: list[int] = []
        folder = os.environ.get("BAREBOAT_METER_DIR")
        if not folder:
            return
        path = os.path.join(folder, f"rank-{self._rank:05d}.jsonl")
        try:
            samples = float(samples_per_step)
            self._log = open(path, "w", encoding="utf-8")  # noqa: SIM115 - until close()
        except (OSError, TypeError, ValueError) as error:
            self._stop(error)
            return
        self._write(
            kind="process",
            rank=self._rank,
            world_size=self._world_size,
            samples_per_step=samples,
            independent=independent,
            loaded_ns=_loaded_ns,
            imported_ns=self._opened_ns,
        )
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._leave)
        gate = os.environ.get("BAREBOAT_GATE")
        if gate and self._log is not None:
            self._connect(gate)

    def start(self) -> None:
        """Mark the end of the set-up: the next step starts now."""
        self._flush()
        self._opened_ns = time.monotonic_ns()
        self._write(kind="start", at_ns=self._opened_ns)

    def step(self) -> None:
        """Mark the end of one training step; wait here when the study requires it."""
        if not self._is_checked:
            self._check_world()
        if self._log is None:
            return
        self._steps_done += 1
        is_last = self._steps_done >= self._steps_allowed
        if is_last:
            _drain_devices()
        self._ends_ns.append(time.monotonic_ns())
        if is_last:
            self._flush()
            self._tell(f"at {self._steps_done}")
            self._await_gate()
            self._opened_ns = time.monotonic_ns()
        elif len(self._ends_ns) >= _STEPS_PER_LINE:
            last_ns = self._ends_ns[-1]
            self._flush()
            self._opened_ns = last_ns

    def result(self, **values: float) -> None:
        """Store named results of the training, such as `test_accuracy=0.98`, for records and a sweep's
        report. The last value of a name counts; one that is not finite (nan, inf) is stored with its step."""
        # JSON cannot represent values that are not finite.
        numbers: dict[str, float] = {}
        for name, value in values.items():
            try:
                numbers[name] = float(value)
            except Exception as error:  # of whatever the program passed
                _warn(f"the result {name} is not a number and is not stored: {error}")
        kept = {name: value if value - value == 0 else str(value) for name, value in numbers.items()}
        for name, number in kept.items():
            self._write(kind="result", name=name, value=number, step=self._steps_done)
        run = os.environ.get("BAREBOAT_RUN_DIR")
        if run and kept:
            folder = os.path.join(run, "results")
            try:
                os.makedirs(folder, exist_ok=True)
                with open(os.path.join(folder, str(self._rank)), "a", encoding="utf-8") as file:
                    file.writelines(json.dumps(pair) + "\n" for pair in kept.items())
            except OSError as error:
                _warn(f"the results {', '.join(kept)} are not stored: {error}")

    def close(self) -> None:
        """Write the rest, with this rank's peak resident memory; calling it twice is harmless."""
        if self._log is None:
            return
        self._flush()
        self._write(
            kind="end", opened_ns=self._opened_ns, at_ns=time.monotonic_ns(), peak_rss_bytes=_peak_bytes()
        )
        self._close_log()
        if self._gate is not None:
            self._tell("bye")
            self._gate.close()
            self._gate = None

    def _leave(self) -> None:
        """Close log and gate, say nothing, and measure no more: also in a process that the rank forked, such
        as a data loader, because both are the rank's own."""
        self._ends_ns = []
        self._close_log()
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        self._steps_allowed = float("inf")

    def _close_log(self) -> None:
        log, self._log = self._log, None
        try:
            if log is not None:
                log.close()
        except OSError as error:
            _warn(f"the meter log is incomplete: {error}")

    def _stop(self, error: Exception) -> None:
        """Measure no more. The gate closes too, so that the study learns of it and no rank waits."""
        _warn(f"the meter of rank {self._rank} stops: {error}")
        self._leave()

    def _connect(self, gate: str) -> None:
        """Connect to the gate, and wait until it opens."""
        try:
            host, port, token = gate.rsplit(":", 2)
            address = host, int(port)
        except ValueError:
            self._stop(ValueError(f"BAREBOAT_GATE is {gate[:100]!r}, not HOST:PORT:TOKEN"))
            return
        try:
            self._gate = socket.create_connection(address, timeout=_CONNECT_S)
            self._gate.settimeout(None)  # the study limits the waits at the gate
            self._gate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, OverflowError):
            raise GateClosed from None
        self._tell(f"hello {token} {self._rank} {self._world_size}")
        self._await_gate()

    def _check_world(self) -> None:
        """Warn about ranks that do not know each other: each would train its own model and exit with 0."""
        self._is_checked = True
        try:
            size = _known_world_size()
        except Exception:  # of whatever version of a framework
            return
        if size is None:
            return
        self._write(kind="world", size=size)
        if size != self._world_size and self._rank == 0:
            _warn(
                f"{self._world_size} ranks were started, but rank 0's framework has world size {size}: each "
                "rank trains its own model"
            )

    def _flush(self) -> None:
        if self._ends_ns:
            self._write(kind="steps", opened_ns=self._opened_ns, ends_ns=self._ends_ns)
            self._ends_ns = []

    def _write(self, **line: Any) -> None:
        if self._log is not None:
            try:
                self._log.write(json.dumps(line, separators=(",", ":")) + "\n")
                self._log.flush()
            except OSError as error:  # such as a full disk
                self._stop(error)

    def _tell(self, line: str) -> None:
        if self._gate is not None:
            try:
                self._gate.sendall(line.encode() + b"\n")
            except OSError:
                raise GateClosed from None

    def _await_gate(self) -> None:
        """Block, without spinning, until the gate sends `go N`: steps up to N may run."""
        if self._gate is None:
            return
        answer = b""
        while not answer.endswith(b"\n"):
            try:
                chunk = self._gate.recv(64)
            except OSError:
                chunk = b""
            if not chunk:
                raise GateClosed
            answer += chunk
        try:
            _, allowed = answer.split()
            self._steps_allowed = int(allowed)
        except ValueError:  # no gate answers so
            raise GateClosed from None


def _peak_bytes() -> int:
    """The peak of the resident memory since the program began. getrusage has that of the programs before it
    in this process, too, and of the process that was forked for them."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as stream:
        for line in stream:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _drain_devices() -> None:
    """Wait until the devices have done what this process gave them, as far as its frameworks know."""
    for drain in (_drain_torch, _drain_jax, _drain_tensorflow):
        with contextlib.suppress(Exception):  # of whatever version of a framework
            drain(sys.modules)


# Frameworks whose devices are not in use are left alone: a query would make them allocate the devices.
def _drain_torch(modules: dict[str, Any]) -> None:
    if "torch" in modules and modules["torch"].cuda.is_initialized():
        modules["torch"].cuda.synchronize()


def _drain_jax(modules: dict[str, Any]) -> None:
    bridge = modules.get("jax._src.xla_bridge")
    if bridge is not None and bridge.backends_are_initialized():
        for array in modules["jax"].live_arrays():
            array.block_until_ready()


def _drain_tensorflow(modules: dict[str, Any]) -> None:
    contexts = modules.get("tensorflow.python.eager.context")
    context = None if contexts is None else contexts.context_safe()
    if context is not None and context._initialized:
        modules["tensorflow"].test.experimental.sync_devices()


def _known_world_size() -> int | None:
    """The largest world size of this process's frameworks; None without a framework."""
    modules = sys.modules
    sizes = []
    torch = modules.get("torch.distributed")
    if torch is not None and torch.is_available():
        sizes.append(torch.get_world_size() if torch.is_initialized() else 1)
    mpi = modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        sizes.append(mpi.COMM_WORLD.Get_size())
    for name in ("horovod.torch", "horovod.tensorflow"):
        horovod = modules.get(name)
        if horovod is not None and horovod.is_initialized():
            sizes.append(horovod.size())
    if max(sizes, default=1) == 1 and ("tensorflow" in modules or "jax" in modules):
        return None  # a query would make them allocate the devices
    return max(sizes, default=None)


def _first_int(*names: str, default: int) -> int:
    for name in names:
        try:
            return int(os.environ[name])
        except (KeyError, ValueError):  # RANK may belong to the program
            continue
    return default


def _warn(message: str) -> None:
    # There may be no error output, or a closed one.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"bareboat: {message}\n")
