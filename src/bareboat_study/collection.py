"""The runs of a study that the nodes of a scheduler's job wrote -> records, as in a study on this machine."""

from __future__ import annotations

import math
import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import UnsetType

from bareboat.model import JobStart, Record, Site, Study, Usage
from bareboat.runs import directory, sampler_series
from bareboat.runs.records import deliveries
from bareboat_base.clock import moment
from bareboat_base.errors import RunError, UsageError
from bareboat_base.printable import one_line
from bareboat_images.store import Store
from bareboat_study import allocation, point_runs, records
from bareboat_study.arms import MeasuredArm, check_goals, check_warm_up, last_output, meters_differ
from bareboat_study.meterlog import Process, read_rank
from bareboat_study.metrics import Reader
from bareboat_study.reproduction import machines

_RUN = re.compile(r"\d{4}", re.ASCII)
_START = re.compile(r"(\d{1,11}) ([\w.-]{1,255}) (\S{1,256})", re.ASCII)
#: A clock that was set during a run; the uptime counts hundredths of a second.
_CLOCK_S = 0.05
#: Three thousand years.
_MOST_S = 1e11


@dataclass(slots=True, kw_only=True)
class _Arm(MeasuredArm):
    """What one arm of a run left. Times are seconds since the machine started."""

    code: int
    began_s: float
    wall_s: float
    started_at_epoch_s: int
    load: float
    processes: list[Process] = field(default_factory=list)


def waiting(store: Store, study: Study) -> list[int]:
    """The complete runs that are not collected yet."""
    try:
        names = os.listdir(allocation.runs_folder(store, study.id))
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if _RUN.fullmatch(name))


def collect(store: Store, study: Study) -> Study:
    """Make records of the complete runs. Returns the study, with its complete design after the warm-up.

    Raises RunError for a warm-up that cannot be measured, which is discarded, and DamagedRunError.
    """
    for run in waiting(store, study):
        raw = allocation.runs_folder(store, study.id) / f"{run:04d}"
        if not point_runs.run_folder(store, study, run).is_dir():
            try:
                study = _collect(store, study, run, raw)
            except RunError:
                store.discard(raw)
                raise
        store.discard(raw)
    return study


def failure(store: Store, study: Study) -> RunError | None:
    """Why the warm-up failed on the nodes; None where it did not."""
    folder = allocation.failed_folder(store, study.id)
    for number, arm in enumerate(study.arms):
        if not os.path.lexists(folder / str(number) / "result"):
            continue
        found = _read(study, number, folder / str(number))
        if found.code:
            return RunError(
                f"{arm.name}: the job ended with exit code {found.code}",
                context=last_output(found.log),
                remedy="run it alone:  bareboat submit …",
                code=found.code,
            )
    return None


def _collect(store: Store, study: Study, run: int, raw: Path) -> Study:
    arms = [_read(study, number, raw / str(number)) for number in range(len(study.arms))]
    for arm in arms:
        _measure(study, arm)
    if run == 0:
        check_warm_up(arms)
        if len({bool(arm.processes) for arm in arms}) > 1:
            raise meters_differ()
        study = _completed(study, arms, raw)
        point_runs.keep(store, study)
    for arm in arms:
        if study.metered and not arm.processes and arm.fault is None:
            arm.fault = RunError(f"{arm.arm.name}: the run has no log of the meter, unlike the warm-up")
    start, began_s = _start(raw), min(arm.began_s for arm in arms)
    kept = [(_record(study, run, arm, began_s, start), arm.log, _series(arm, start)) for arm in arms]
    with store.scratch(own=True) as scratch:
        for each, _, _ in kept if run == 0 else ():
            check_goals(study.job.prove.goals, each.arm, each.results)
        point_runs.keep_run(store, study, run, kept, scratch / "done", took_s=sum(arm.wall_s for arm in arms))
    return study


# --------------------------------------------------------------------------------------------------
# What the nodes wrote.


def _read(study: Study, number: int, folder: Path) -> _Arm:
    """Raises DamagedRunError."""
    path = folder / "result"
    lines = {line.partition(" ")[0]: line.split()[1:] for line in (directory.text(path) or "").splitlines()}
    try:
        began, ended = lines["began"], lines["ended"]
        found = _Arm(
            arm=study.arms[number],
            folder=folder,
            code=int(lines["code"][0]),
            position=int(lines["position"][0]),
            began_s=int(began[0]) / 100,
            wall_s=_wall_s(began, ended),
            started_at_epoch_s=int(began[2]),
            load=float(lines["load"][0]),
        )
    except (LookupError, ValueError):
        raise directory.damaged(path, OSError(0, "it is not the result of a run")) from None
    is_valid = (
        0 <= found.wall_s < _MOST_S
        and 0 <= found.began_s < _MOST_S
        and 0 <= found.started_at_epoch_s < _MOST_S
        and 0 <= found.code <= 255
        and 0 <= found.position < len(study.arms)
        and math.isfinite(found.load)
    )
    if not is_valid:
        raise directory.damaged(path, OSError(0, "its times or its exit code are invalid"))
    return found


def _wall_s(began: Sequence[str], ended: Sequence[str]) -> float:
    """By the clock, which is precise; by the uptime where the clock was set meanwhile, or is not known."""
    by_uptime = (int(ended[0]) - int(began[0])) / 100
    try:
        by_clock = float(ended[1].replace(",", ".")) - float(began[1].replace(",", "."))
    except ValueError:  # bash before 5.0
        return by_uptime
    return by_clock if abs(by_clock - by_uptime) <= _CLOCK_S else by_uptime


def _start(raw: Path) -> JobStart:
    path = raw / "start"
    found = _START.fullmatch((directory.text(path) or "").strip())
    if found is None:
        raise directory.damaged(path, OSError(0, "it is not the start of a job"))
    return JobStart(at_epoch_s=int(found[1]), node=found[2], job_id=found[3])


def _measure(study: Study, arm: _Arm) -> None:
    """Read the metrics and the meters of an arm, or why there are none."""
    if arm.code:
        arm.fault = RunError(f"{arm.arm.name}: the job ended with exit code {arm.code}", code=arm.code)
        return
    try:
        arm.processes = _processes(arm.folder / "meter")
        reader = Reader(study.metrics, study.job.workdir or "/")
        arm.numbers, arm.curves = reader.read(arm.log, arm.folder / "files")
    except (RunError, UsageError) as error:
        arm.fault = error


def _processes(folder: Path) -> list[Process]:
    """The ranks with a meter. Raises RunError for logs that are missing or damaged."""
    if not any(True for _ in directory.files_of(folder, most=1)):
        return []
    first = read_rank(folder, 0)
    return [first, *(read_rank(folder, rank) for rank in range(1, first.world_size))]


def _completed(study: Study, arms: Sequence[_Arm], raw: Path) -> Study:
    """The study with the design that follows from its warm-up, and the machine that it ran on."""
    seconds = [s for arm in arms if arm.processes for s in arm.processes[0].step_seconds(1, 1 << 62)]
    steps = None
    if seconds:
        least = min(arm.processes[0].steps for arm in arms) - 1
        steps = max(1, min(round(study.job.prove.window_s / statistics.median(seconds)), least // 5))
    return msgspec.structs.replace(
        study,
        metered=bool(seconds),
        steps_per_window=steps,
        site=_machine(study.site, raw),
    )


def _machine(site: Site, raw: Path) -> Site:
    """The site with the first node's facts, for the report; its scheduler stays."""
    facts = machines.facts(directory.text(raw / "machine", limit=1 << 16) or "")
    host, _, cpus = (directory.text(raw / "node", limit=4096) or "").strip().partition(" ")
    known = {
        "hostname": one_line(host, limit=255),
        "cpus": int(cpus) if re.fullmatch(r"[1-9]\d{0,5}", cpus) else site.cpus,
        "kernel": facts.get("kernel"),
        "cpu_model": facts.get("cpu"),
        "distribution": facts.get("distribution"),
    }
    return msgspec.structs.replace(site, **{key: value for key, value in known.items() if value})


# --------------------------------------------------------------------------------------------------
# Records.


def _record(study: Study, run: int, arm: _Arm, run_began_s: float, start: JobStart) -> Record:
    first = arm.processes[0] if arm.processes and study.metered else None
    steps = phases = None
    if first is not None:
        steps = records.of_ranks(arm.processes, is_one_machine=study.job.topology.nodes == 1)
        phases = records.phases(first, steps, began_s=arm.began_s, ended_s=arm.began_s + arm.wall_s)
    windows = () if steps is None or arm.fault else records.windows(study, steps, run_began_s)
    peaks = tuple(process.peak_rss_bytes for process in arm.processes)
    return records.make(
        study,
        run,
        arm.arm,
        first=first,
        numbers=arm.numbers,
        curves=arm.curves,
        fault=arm.fault,
        position=arm.position,
        started_at=moment(arm.started_at_epoch_s),
        exit_code=arm.code,
        wall_s=arm.wall_s,
        world_size=arm.processes[0].world_size if arm.processes else study.job.topology.world_size,
        phases=phases,
        windows=windows,
        memory_kind="rss",
        peak_memory_bytes=sum(peaks),
        peak_rank_rss_bytes=peaks,
        load_1min=arm.load,
        usage=_usage(arm, first, start),
        scheduler=study.job.scheduler or "",
        job_id=start.job_id,
        starts=(start,),
        deliveries=deliveries(arm.folder),
        world_mark=directory.world_mark(arm.folder),
    )


def _series(arm: _Arm, start: JobStart) -> list[Path]:
    return sampler_series.folders(arm.folder / directory.CONTROL, start.node)


def _usage(arm: _Arm, first: Process | None, start: JobStart) -> Usage | UnsetType:
    """Of all nodes. The phases are known where rank 0 ran on the first of them."""
    ends: tuple[float, ...] = ()
    if first is not None and 0 <= first.loaded_ns / 1e9 - arm.began_s <= arm.wall_s:
        ends = (*(each / 1e9 - arm.began_s for each in first.phase_ends_ns), arm.wall_s)
    return sampler_series.read(_series(arm, start), began_s=arm.began_s, phase_ends_s=ends)
