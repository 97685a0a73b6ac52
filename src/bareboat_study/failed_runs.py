"""Pure: the measured runs of a study that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bareboat.model import Matrix, Record
from bareboat_study import validity


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
    found = []
    for point, own in enumerate(records):
        bad = [record for record in own if not validity.ended_well(record)]
        guilty = {record.run for record in bad if record.exit_code != validity.STOPPED}
        found += [
            Failure(
                point=point,
                label=study.point_text(point),
                run=record.run,
                arm=record.arm,
                exit_code=record.exit_code,
                reason=record.ended_because.removeprefix(f"{record.arm}: "),
            )
            for record in bad
            if record.exit_code != validity.STOPPED or record.run not in guilty
        ]
    return found


def lines(study: str, failures: Sequence[Failure], *, most: int) -> Iterator[str]:
    """The first of the failed runs of a study, how many more there are, and the command that shows their
    output."""
    yield from (each.text for each in failures[:most])
    if len(failures) > most:
        yield f"… and {len(failures) - most} more; --json lists all"
    if failures:
        yield f"their output: bareboat logs {study}"
