"""One run of a study: all arms take turns, or run one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bareboat.model import Record, Study
from bareboat.runs import directory, sampler_series
from bareboat.schedulers import inherited
from bareboat_base import execute
from bareboat_base.clock import utc_now
from bareboat_base.errors import RunError, UsageError
from bareboat_study import goals, turns
from bareboat_study.arms import (
    ArmError,
    LiveArm,
    check_warm_up,
    failed_record,
    last_output,
    meters_differ,
    record,
)  # fmt: skip
from bareboat_study.gate import FOREVER, Gate
from bareboat_study.meterlog import newest_steps
from bareboat_study.metrics import Reader

#: Steps of the very first window, whose times determine the length of the others.
_PROBE_STEPS = 20
#: Interval of memory samples of an arm without a meter: a tenth of its age, within these bounds.
_SAMPLE_S = (0.01, 0.2)


class Place(NamedTuple):
    """Where a run is done: a directory of its own, and the script of each arm."""

    scratch: Path
    scripts: dict[str, Path]


def do_run(
    study: Study, run: int, place: Place, *, say: Callable[[str], None]
) -> tuple[tuple[Record, ...], Study, list[dict[str, int]]]:
    """Run all arms once. Returns their records; the study, whose design the first run determines; and, of
    a warm-up, the files that each arm executed.

    A run that failed is recorded with its reason. Raises RunError when an arm fails in the first run, with
    its last output; no process of the run is left then.
    """
    began_ns = time.monotonic_ns()
    arms: list[LiveArm | None] = [None] * len(study.arms)
    try:
        with ExitStack() as stack:

            def start(index: int, position: int) -> LiveArm:
                return stack.enter_context(_started(study, run, index, position, place))

            found = _all_arms(study, run, arms, start, say)
            done = [arm for arm in arms if arm is not None]
            if run == 0:
                check_warm_up(done)
            records = tuple(record(found, run, arm, began_ns) for arm in done)
            if run == 0:
                goals.check_records(study.job.prove.goals, records)
    except RunError as error:
        if study.metered is None:
            raise
        return tuple(failed_record(study, run, arm, error) for arm in study.arms), study, []
    return records, found, [arm.executed for arm in done if arm.executed is not None]


def _all_arms(
    study: Study,
    run: int,
    arms: list[LiveArm | None],
    start: Callable[[int, int], LiveArm],
    say: Callable[[str], None],
) -> Study:
    """Start the arms into their places, and run them to their ends. Returns the study with its design."""
    unmetered = study.metered is False
    for position, index in enumerate(turns.starts(study, run)):
        for other in arms:
            if other is not None:
                other.live.freeze()
        arm = start(index, position)
        arms[index] = arm
        say(f"{arm.arm.name}: starting")
        if unmetered or not _until_waiting(arm):
            # No meter so far: it runs to its end before the next arm starts.
            try:
                _run_through(arm)
            except ArmError as error:
                if study.metered is None:
                    raise
                arm.fault = error
            else:
                _read_metrics(arm)
                if study.metered is None and arm.fault is None:  # without a meter it has no other results
                    goals.check(study.job.prove.goals, arm.arm.name, arm.numbers)
            arm.live.stop()  # what it left behind must not disturb the next arm
            unmetered = True
    live = [arm for arm in arms if arm is not None]
    for arm in live:
        arm.live.thaw()
    if not unmetered:
        _check_no_files(study)
        study = _take_turns(study, run, live, say)
        for arm in live:
            _read_metrics(arm)
        return study
    if any(arm.gate.metered for arm in live):
        raise meters_differ()
    return msgspec.structs.replace(study, metered=False)


def _check_no_files(study: Study) -> None:
    """Raise RunError for a metric from a file, where arms are alive at the same time and all write it."""
    for metric in study.metrics:
        if metric.file is not None:
            raise RunError(
                f"metrics.{metric.name} is read from the file {metric.file}, and the program uses the meter: "
                "all arms are alive at the same time, and each writes that file",
                remedy="report the number with meter.result(), or print it and use pattern",
            )


def _read_metrics(arm: LiveArm) -> None:
    try:
        arm.numbers, arm.curves = arm.reader.read(arm.log)
    except UsageError as error:
        arm.fault = error


@contextmanager
def _started(study: Study, run: int, index: int, position: int, place: Place) -> Iterator[LiveArm]:
    arm = study.arms[index]
    folder = place.scratch / f"arm-{index}"
    for name in ("meter", directory.CONTROL, directory.RANKS):
        (folder / name).mkdir(parents=True)
    reader = Reader(study.metrics, study.job.workdir or "/")
    reader.start()
    with Gate() as gate, open(folder / "output.log", "wb") as output:
        environment = {
            **inherited.outside(os.environ),
            "BAREBOAT_METER_DIR": str(folder / "meter"),
            "BAREBOAT_CONTROL": str(folder / directory.CONTROL),
            "BAREBOAT_RUN_DIR": str(folder / directory.RANKS),
            "BAREBOAT_GATE": gate.address,
        }
        live = execute.Live(
            str(place.scripts[arm.name]),
            run_id=f"{study.id}.{run}.{index}.{os.getpid()}",
            environment=environment,
            output=output,
            usage=sampler_series.of_node(folder / directory.CONTROL),
        )
        started_at = utc_now()
        try:
            executed: dict[str, int] | None = {} if run == 0 else None
            yield LiveArm(
                arm=arm, live=live, gate=gate, folder=folder, position=position, started_at=started_at,
                reader=reader, executed=executed,
            )  # fmt: skip
        finally:
            live.stop()


def _until_waiting(arm: LiveArm) -> bool:
    """Wait until every rank of the arm has done its first step and waits: True; False when the command
    ended without a meter."""
    if arm.gate.wait(arm.live.pidfd):
        arm.sample_memory("pss")
        arm.scheduled_as = arm.live.scheduled_as()
        return True
    _check_exit(arm)
    if arm.gate.metered:
        raise ArmError(
            arm.arm.name,
            "the job ended before all of its ranks connected to the gate",
            context=last_output(arm.log),
            remedy="create a meter in every rank",
        )
    return False


def _run_through(arm: LiveArm) -> None:
    """Watch an arm without a meter to its end."""
    least_s, most_s = _SAMPLE_S
    while arm.live.wait(min(max(arm.live.wall_s / 10, least_s), most_s)) is None:
        arm.sample_memory("rss")
    _check_exit(arm)


def _take_turns(study: Study, run: int, arms: list[LiveArm], say: Callable[[str], None]) -> Study:
    """Windows of equal numbers of steps, in random order within each block, until the training ends."""
    block = 0
    while not all(arm.gate.finished for arm in arms):
        steps = study.steps_per_window or _PROBE_STEPS
        for index in turns.windows(study, run, block):
            arm = arms[index]
            if arm.gate.finished:
                continue
            first = arm.gate.step
            settled = first + study.settle if study.settle else None
            arm.gate.open_until(first + steps, mark=settled)
            if not arm.gate.wait(arm.live.pidfd):
                _check_exit(arm)
                raise ArmError(
                    arm.arm.name,
                    "the job ended during training, and not all ranks reported their end",
                    context=last_output(arm.log),
                    remedy="call meter.close() at the end of the training script",
                )
            if arm.gate.finished:
                # The rest of the job, including evaluation, while the other arm waits.
                arm.live.wait()
                _check_exit(arm)
            else:
                arm.turns.append((block, first, first + steps))
                arm.sample_memory("pss")
        say(f"window {block + 1}")
        if study.metered is None:
            study = _with_design(study, arms)
        block += 1
    if study.metered is None or not all(arm.turns for arm in arms):
        raise RunError(
            "the training is too short to measure: it ends in its first window",
            remedy=f"train for at least {10 * _PROBE_STEPS} steps, or remove the meter",
        )
    return study


def _with_design(study: Study, arms: list[LiveArm]) -> Study:
    """The study with the length of its windows, from the first block; the same in all arms."""
    if any(arm.gate.finished for arm in arms):
        for arm in arms:
            arm.gate.open_until(FOREVER)
        return msgspec.structs.replace(study, metered=True, steps_per_window=_PROBE_STEPS)
    seconds = [each for arm in arms for each in newest_steps(arm.meter_folder, 0)]
    if not seconds:
        raise RunError("the meters reported no steps", remedy="call meter.step() once for each step")
    typical_s = sorted(seconds)[len(seconds) // 2]
    steps = max(1, round(study.job.prove.window_s / typical_s))
    settle = min(steps // 3, max(1, steps // 20))
    return msgspec.structs.replace(study, metered=True, steps_per_window=steps, settle=settle)


def _check_exit(arm: LiveArm) -> None:
    """Raise RunError, with the last output, when the job script failed."""
    code = arm.live.wait(execute.STOP_GRACE_S)
    if code is None:
        raise ArmError(
            arm.arm.name, "its ranks have exited, but the job does not end", context=last_output(arm.log)
        )
    if code != 0:
        raise ArmError(
            arm.arm.name,
            f"the job ended with exit code {code}",
            context=last_output(arm.log),
            remedy="run it alone:  bareboat run …",
            code=code,
        )
