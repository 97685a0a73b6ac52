"""Pure: whether a study may be judged: it is complete, its design did not change, and its failed runs do not
select its arms. Studies of two arms and of many have the same rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bareboat.model import Matrix, Record, Study
from bareboat_base import codec
from bareboat_base.printable import one_line
from bareboat_study import layouts, quantities

#: The exit code of an arm that was stopped because another one failed: that of SIGTERM.
STOPPED = 143
#: Of the test whether the arms differ in their failed runs.
LEVEL = 0.05
#: Why a program does less than in its first run, and what to do.
AGAIN = (
    "the program probably resumed from what an earlier run wrote, such as a checkpoint; remove that, and let "
    "it write to $BAREBOAT_RUN_DIR, which is new in each run"
)


def design_digest(study: Study) -> str:
    """The digest of all that was chosen before the first measured run. Every record of a measured run holds
    it."""
    prove = study.job.prove
    return codec.digest(
        {
            "margin": prove.margin,
            "confidence": prove.confidence,
            "repeats": prove.repeats,
            "until_decided": prove.until_decided,
            "seed": study.order_seed,
            "window_s": prove.window_s,
            "goals": prove.goals,
            "metrics": study.metrics,
            "metered": study.metered,
            "steps_per_window": study.steps_per_window,
            "command": study.job.command,
            "arms": [(arm.name, arm.plan_digest) for arm in study.arms],
        }
        | ({"layout": layouts.KEPT} if prove.layout == layouts.KEPT else {})
        | ({"alone": True} if study.alone_because else {})
    )


def ended_well(record: Record) -> bool:
    """Whether the arm ended with exit code 0 and was not stopped."""
    return not record.exit_code and not record.ended_because


def damage(study: Study, record: Record, arm: str, run: int) -> str | None:
    """Why this cannot be the record of an arm in a run of the study, as the end of a sentence; None: it
    can."""
    if (record.study, record.arm, record.run) != (study.id, arm, run):
        named = f"{one_line(record.arm, limit=40)} in run {record.run} of {one_line(record.study, limit=60)}"
        return f"is the record of {named}"
    if not ended_well(record):
        return None
    if record.wall_s is None or not (math.isfinite(record.wall_s) and record.wall_s > 0):
        return f"has a wall time of {record.wall_s or 0:g} s"
    for window in record.windows:
        valid = all(math.isfinite(step) and step >= 0 for step in window.step_s)
        if not valid or not math.fsum(window.step_s) > 0:
            return f"has step times in block {window.block} that are not above 0"
    return None


def repeated(records: Sequence[Record]) -> tuple[Record, Record] | None:
    """Two records of different runs that are one measurement; None: there are none."""
    seen: dict[tuple[object, ...], Record] = {}
    for record in records:
        if not ended_well(record):
            continue
        results = tuple(sorted(record.results.items()))
        key = (record.arm, record.started_at, record.wall_s, record.windows, results)
        first = seen.setdefault(key, record)
        if first is not record:
            return first, record
    return None


def measured(records: Sequence[Record]) -> list[Record]:
    """The records of runs that ended well, without warm-ups."""
    return [each for each in records if not each.warm_up and ended_well(each)]


def without_work(study: Study, records: Sequence[Record]) -> str:
    """That all runs do clearly less than the first one, and why; empty where this is not so, or not known.

    The first one is the warm-up; without a meter, of the arm that was first in it: caches that every arm
    fills for itself are filled in the others, too. A second of processor time may be an import.
    """
    first, others = [math.inf], [0.0]
    for record in filter(ended_well, records):
        is_first = record.warm_up and (study.metered or not record.position)
        work: float = sum(len(window.step_s) for window in record.windows)
        if not study.metered:
            work = quantities.total(record, "cpu_s") or (0.0 if is_first else math.inf)
        (first if is_first else others).append(work)
    numbers = max(others), min(first)
    if not max(1.0, 2 * numbers[0]) < numbers[1] < math.inf:
        return ""
    form = "{:.0f} of {:.0f} steps" if study.metered else "{:.2g} of {:.2g} s of processor time"
    return f"all runs do less than half the work of the first one, {form.format(*numbers)}: {AGAIN}"


def runs_done(study: Study, records: Sequence[Record]) -> int:
    """How many of the planned runs ended in both arms, well or not."""
    names = {arm.name for arm in study.arms}
    arms: dict[int, set[str]] = {}
    for record in records:
        if not record.warm_up and 0 < record.run <= study.job.prove.repeats:
            arms.setdefault(record.run, set()).add(record.arm)
    return sum(names <= each for each in arms.values())


@dataclass(frozen=True, slots=True)
class Censored:
    """Failed runs of the arms, baseline first, of so many attempts each. `alone`: runs in which the contender
    failed and the baseline did not. `p`: Fisher's exact test, two-sided, of equal probabilities."""

    failed: tuple[int, int]
    attempts: tuple[int, int]
    alone: int
    p: float

    def text(self, arms: Sequence[str]) -> str:
        parts = [
            f"{failed} of {attempts} runs of {arm}"
            for failed, attempts, arm in zip(self.failed, self.attempts, arms, strict=True)
        ]
        return f"failed: {parts[0]}, {parts[1]} (Fisher's exact test p = {self.p:.2g})"


def censored(study: Study, records: Sequence[Record]) -> Censored | None:
    """The failed runs; None without any. An arm that was stopped because the other failed did not fail."""
    names = [arm.name for arm in study.arms]
    tried = [each for each in records if not each.warm_up]
    failed = [{each.run for each in _culprits(tried) if each.arm == name} for name in names]
    if not any(failed):
        return None
    both = len(failed[0]), len(failed[1])
    of = sum(each.arm == names[0] for each in tried), sum(each.arm == names[1] for each in tried)
    return Censored(both, of, len(failed[1] - failed[0]), fisher_exact(both, of))


def _culprits(records: Sequence[Record]) -> list[Record]:
    """The records of runs that failed, without the arms that were stopped as another one had failed."""
    bad = [record for record in records if not ended_well(record)]
    guilty = {record.run for record in bad if record.exit_code != STOPPED}
    return [record for record in bad if record.exit_code != STOPPED or record.run not in guilty]


def fisher_exact(failed: tuple[int, int], of: tuple[int, int]) -> float:
    """The two-sided p value of equal probabilities, given the total of failures: the sum of the tables that
    are at most as likely as this one.

    Source: Fisher (1922), Journal of the Royal Statistical Society 85, 87-94.
    """
    total = sum(failed)
    ways = {
        first: math.comb(of[0], first) * math.comb(of[1], total - first)
        for first in range(max(0, total - of[1]), min(of[0], total) + 1)
    }
    return sum(each for each in ways.values() if each <= ways[failed[0]]) / sum(ways.values())


# --------------------------------------------------------------------------------------------------
# The failed runs, for readers.


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A measured run of an arm that failed. It is in the records, and in no number."""

    point: int
    label: str
    run: int
    arm: str
    exit_code: int
    reason: str

    @property
    def name(self) -> str:
        return f"run {self.run} of {self.arm}{f' at {self.label}' if self.label else ''}"

    @property
    def text(self) -> str:
        return f"{self.name}: {self.reason or f'exit code {self.exit_code}'}"


def failures_of(study: Matrix, records: Sequence[Sequence[Record]]) -> list[Failure]:
    """The failed runs, point after point; without the arms that were stopped as another one had failed."""
    return [
        Failure(
            point=point,
            label=study.point_text(point),
            run=record.run,
            arm=record.arm,
            exit_code=record.exit_code,
            reason=record.ended_because.removeprefix(f"{record.arm}: "),
        )
        for point, own in enumerate(records)
        for record in _culprits(own)
    ]


def failure_lines(study: str, failures: Sequence[Failure], *, most: int) -> Iterator[str]:
    """The first of the failed runs of a study, how many more there are, and the command that shows their
    output."""
    yield from (each.text for each in failures[:most])
    if len(failures) > most:
        yield f"… and {len(failures) - most} more; --json lists all"
    if failures:
        yield f"their output: bareboat logs {study}"
