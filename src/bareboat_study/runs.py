"""One run of a study: all arms take turns, or run one after the other.

An arm that waits stands still: all of its processes are stopped, not only its ranks, which block at the gate.
Where they cannot be stopped, arms with a meter are alone from start to end, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from bareboat.model import Alone, Record, Study
from bareboat.runs import directory, sampler_series
from bareboat.schedulers import inherited
from bareboat_base import execute
from bareboat_base.clock import utc_now
from bareboat_base.errors import RunError, UsageError
from bareboat_study import pilot, records, turns
from bareboat_study.arms import (
    ArmError,
    LiveArm,
    Turn,
    check_goals,
    check_warm_up,
    failed_record,
    last_output,
    meters_differ,
    record,
)  # fmt: skip
from bareboat_study.freezer import Freezer
from bareboat_study.gate import FOREVER, SILENCE_S, Gate
from bareboat_study.meterlog import read_so_far
from bareboat_study.metrics import Reader
from bareboat_study.validity import AGAIN


class Place(NamedTuple):
    """Where a run is done: a directory of its own, and the script of each arm. `mark`: of the study's
    processes."""

    scratch: Path
    scripts: dict[str, Path]
    mark: str


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
            made = tuple(record(found, run, arm, began_ns) for arm in done)
            for each in made if run == 0 else ():
                check_goals(study.job.prove.goals, each.arm, each.results)
    except RunError as error:
        if study.metered is None:
            raise
        return tuple(failed_record(study, run, arm, error) for arm in study.arms), study, []
    if turns.has_alone(study, run):
        last = {arm.arm.name: arm.turns[-1].last for arm in done}
        alone = _alone(study, run, place._replace(scratch=place.scratch / "alone"), last, say)
        made = tuple(msgspec.structs.replace(each, alone=alone[each.arm]) for each in made)
    return made, found, [arm.executed for arm in done if arm.executed is not None]


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
        arm = start(index, position)
        arms[index] = arm
        say(f"{arm.arm.name}: starting")
        if unmetered or not _until_waiting(arm):
            _do_unmetered(study, arm)
            unmetered = True
            continue
        study = _with_stops(study, arm)
        arm.sample_memory("pss")
        if study.alone_because:
            _train_alone(arm)
    live = [arm for arm in arms if arm is not None]
    if unmetered:
        if any(arm.gate.metered for arm in live):
            raise meters_differ()
        return msgspec.structs.replace(study, metered=False)
    if study.alone_because:
        for arm in live:
            if not arm.gate.finished:  # it was stopped before it was known that another one cannot be
                _train_alone(arm)
        return _with_windows(study, live)
    _check_no_files(study)
    study = _take_turns(study, run, live, say)
    for arm in live:
        _read_metrics(arm)
    return study


def _do_unmetered(study: Study, arm: LiveArm) -> None:
    """Run an arm without a meter so far to its end, before the next one starts."""
    try:
        _run_through(arm)
    except ArmError as error:
        if study.metered is None:
            raise
        arm.fault = error
    else:
        _read_metrics(arm)
        if study.metered is None and arm.fault is None:  # without a meter it has no other results
            check_goals(study.job.prove.goals, arm.arm.name, arm.numbers)
    arm.stop()  # what it left behind must not disturb the next arm


def _with_stops(study: Study, arm: LiveArm) -> Study:
    """Stop an arm that waits for the first time; the study, with the reason in a warm-up where this is not
    possible."""
    if study.alone_because:
        return study
    why = arm.stand_still()
    if why and study.metered is not None:
        raise ArmError(arm.arm.name, f"{why}, as it could in the warm-up", context=last_output(arm.log))
    return msgspec.structs.replace(study, alone_because=f"{arm.arm.name}: {why}") if why else study


def _train_alone(arm: LiveArm, last: int = FOREVER) -> None:
    """Let an arm that waits train to its end without a pause; `last`: the step after which it ends its work
    on devices, as at the end of a window."""
    for step in (last, FOREVER):
        if not arm.gate.finished:
            arm.gate.open_until(step)
            arm.freezer.thaw()
            if not _settles(arm):
                _raise_unfinished(arm)
    _await_exit(arm)
    _read_metrics(arm)
    arm.stop()  # what it left behind must not disturb the next arm


def _alone(
    study: Study, run: int, place: Place, last: Mapping[str, int], say: Callable[[str], None]
) -> dict[str, Alone]:
    """Each arm once more from start to end while no other one is alive. `last`: the step after which the
    turns of an arm ended."""
    found = {}
    for position, index in enumerate(turns.starts(study, run)):
        name = study.arms[index].name
        say(f"{name}: alone")
        with _started(study, run, index, position, place) as arm:
            try:
                if not _until_waiting(arm):
                    raise meters_differ()
                _train_alone(arm, last[name])
                steps = records.of_ranks(arm.ranks(), is_one_machine=True)
            except RunError as error:
                found[name] = Alone(code=error.code or 1)
            else:
                found[name] = Alone(step_s=steps.seconds[1:], wall_s=arm.live.wall_s)
    return found


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
            mark=f"{place.mark}.{run}.{index}.{os.getpid()}",
            environment=environment,
            output=output,
            usage=sampler_series.of_node(folder / directory.CONTROL),
        )
        started_at = utc_now()
        freezer = Freezer(live.mark, live.pid)
        try:
            executed: dict[str, int] | None = {} if run == 0 else None
            yield LiveArm(
                arm=arm, live=live, freezer=freezer, gate=gate, folder=folder, position=position,
                started_at=started_at, reader=reader, executed=executed,
            )  # fmt: skip
        finally:
            freezer.thaw()
            live.stop()


def _until_waiting(arm: LiveArm) -> bool:
    """Wait until every rank of the arm has done its first step and waits: True; False when the command
    ended without a meter. In a warm-up it is watched meanwhile, as it may have none."""
    if arm.executed is None:
        is_waiting = _settles(arm)
    elif is_waiting := _settles(arm, arm.watch):
        arm.memory.clear()
        arm.executed.clear()
    if is_waiting:
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
    while arm.live.wait(arm.watch()) is None:
        pass
    _check_exit(arm)


def _take_turns(study: Study, run: int, arms: list[LiveArm], say: Callable[[str], None]) -> Study:
    """Windows of equal numbers of steps, in random order within each block, until the training ends. Returns
    the study with its design."""
    block, least = 0, 0
    while not all(arm.gate.finished for arm in arms):
        doublings = (block - 1) // pilot.BLOCKS % pilot.LENGTHS
        steps = study.steps_per_window or (least << doublings if least else pilot.PROBE_STEPS)
        for index in turns.windows(study, run, block):
            if not arms[index].gate.finished:
                _do_window(arms[index], block, steps)
        say(f"window {block + 1}")
        if study.metered is None and not block and not any(arm.gate.finished for arm in arms):
            known = [read_so_far(arm.meter_folder, 0) for arm in arms]
            seconds = [each for own in known if own for each in own.step_seconds(1, own.steps)]
            if not seconds:
                raise RunError("the meters reported no steps", remedy="call meter.step() once for each step")
            least = pilot.shortest(study.job.prove, seconds)
        block += 1
    if not all(arm.turns for arm in arms):
        if study.metered:
            raise RunError(f"the training ends in its first window, unlike the warm-up: {AGAIN}")
        raise RunError(
            "the training is too short to measure: it ends in its first window",
            remedy=f"train for {10 * pilot.PROBE_STEPS} steps, from no checkpoint; or remove the meter",
        )
    return _with_windows(study, arms, least)


def _do_window(arm: LiveArm, block: int, steps: int) -> None:
    """Let an arm train for so many steps, and stop it again; or to its end."""
    first, used = arm.gate.step, arm.freezer.used()
    arm.gate.open_until(first + steps)  # the ranks read it when they go on
    arm.freezer.thaw()
    if not _settles(arm):
        _raise_unfinished(arm)
    if arm.gate.finished:
        # The rest of the job, including evaluation, while the other arm waits.
        _await_exit(arm)
        return
    if why := arm.stand_still():
        raise ArmError(arm.arm.name, f"{why}, as it could at its start", context=last_output(arm.log))
    now = arm.freezer.used()
    arm.turns.append(Turn(block, first, first + steps, now.since(used) if used and now else None))
    arm.sample_memory("pss")


def _raise_unfinished(arm: LiveArm) -> NoReturn:
    _check_exit(arm)
    raise ArmError(
        arm.arm.name,
        "the job ended during training, and not all ranks reported their end",
        context=last_output(arm.log),
        remedy="call meter.close() at the end of the training script",
    )


def _with_windows(study: Study, arms: Sequence[LiveArm], least: int = 0) -> Study:
    """The study with its design, from the warm-up. `least`: the steps of the shortest windows that it had."""
    if study.metered is not None:
        return study
    steps = [records.of_ranks(arm.ranks(), is_one_machine=True) for arm in arms]
    total = min(len(own.seconds) for own in steps) - 1
    prove = study.job.prove
    least = least or pilot.shortest(prove, [each for own in steps for each in own.seconds[1:]] or [1.0])
    windows = [
        [own.seconds[turn.first : turn.last] for turn in arm.turns]
        for own, arm in zip(steps, arms, strict=True)
    ]
    chosen = pilot.chosen(windows, prove.margin, least=least, total=total)
    return msgspec.structs.replace(study, metered=True, steps_per_window=chosen)


def _settles(arm: LiveArm, watch: Callable[[], float] = lambda: SILENCE_S) -> bool:
    """Wait until every rank of the arm waits at the gate or has finished: True; False when the job ended
    before. Raises ArmError, which names the processes, for ranks that do neither."""
    try:
        return arm.gate.wait(arm.live.pidfd, watch)
    except RunError as error:
        context = "\n".join((*arm.live.process_lines(), last_output(arm.log)))
        raise ArmError(
            arm.arm.name, error.message, context=context, remedy=error.remedy, code=error.code
        ) from None


def _await_exit(arm: LiveArm) -> None:
    """Wait for the end of a job whose ranks have all closed their meters."""
    if arm.live.wait(SILENCE_S) is None:
        raise ArmError(
            arm.arm.name,
            f"all ranks closed their meters, but the job did not end in {SILENCE_S / 60:.0f} minutes",
            context="\n".join((*arm.live.process_lines(), last_output(arm.log))),
            remedy="call meter.close() at the end of the training script, and end what it started",
            code=124,
        )
    _check_exit(arm)


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
