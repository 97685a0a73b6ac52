"""The runs of a report for TensorBoard."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat_base.clock import epoch_s
from bareboat_base.errors import UsageError
from bareboat_base.files import failures, outputs
from bareboat_base.printable import counted

if TYPE_CHECKING:
    from bareboat.model import Record, Study
    from bareboat_images.store import Store
    from bareboat_study.tensorboard import Tracked


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tensorboard", metavar="DIR", help="write the runs' series for TensorBoard to this directory"
    )


def check(options: argparse.Namespace) -> None:
    """Raise UsageError for a directory that cannot be written, or holds something, and for a library that is
    not installed."""
    from bareboat_study import tensorboard

    if (folder := options.tensorboard) is None:
        return
    path = Path(os.path.abspath(folder)) if folder else Path()
    if not folder or not os.path.isdir(path):
        outputs.check(folder, flag="--tensorboard", is_folder=True)
    else:
        outputs.check(path / ".bareboat", flag="--tensorboard")
        if not options.force and os.listdir(path):
            raise UsageError(
                f"{path} is not empty, and every report adds its runs again",
                remedy="--force adds them; or name a new directory: "
                f"--tensorboard {shlex.quote(str(path))}-2",
            )
    tensorboard.check()


def write(context: Context, runs: Sequence[str]) -> None:
    """Write the runs, and note where they are and what shows them."""
    if context.options.tensorboard is None:
        return
    from bareboat_study import tensorboard

    found = [each for run_id in runs for each in _tracked(context.store, run_id)]
    path = Path(os.path.abspath(context.options.tensorboard))
    with failures.at(path):
        path.mkdir(exist_ok=True)
        tensorboard.write(found, path)
    count = counted(len(found), "run")
    if not context.options.quiet:
        console.note(f"TensorBoard: {count} in {path}; show: tensorboard --logdir {shlex.quote(str(path))}")


def _tracked(store: Store, run_id: str) -> Iterator[Tracked]:
    """The runs of a study, a sweep or a run."""
    from bareboat.runs import sweeps

    if (sweep := sweeps.find(store, run_id)) is not None:
        for index, name in enumerate(sweeps.points(store, run_id)):
            if os.path.lexists(store.run(name)):  # else it was not started
                yield _of_run(store, name, parameters=sweep.values(index))
    elif os.path.lexists(store.run(run_id) / "submission.json"):
        yield _of_run(store, run_id, parameters={})
    else:
        from bareboat_study import matrix

        found = matrix.read(store, run_id)
        measured = zip(*matrix.measured(store, found), strict=True)
        for point, (study, records) in enumerate(measured):
            values = {name: str(value) for name, value in found.values(point).items()}
            for record in records:
                yield _of_record(study, record, parameters=values)


def _of_run(store: Store, run_id: str, *, parameters: dict[str, str]) -> Tracked:
    from bareboat.runs import records, state, submission
    from bareboat_study import report_series
    from bareboat_study.tensorboard import Tracked

    made = submission.read(store, run_id)
    (status,) = state.look(store, [run_id])
    record = records.record(store, status)
    logs = report_series.rank_logs(store.run(run_id), made.world_size)
    results = {} if record is None else {name: float(value) for name, value in record.results.items()}
    if record is not None:
        results |= {"exit_code": float(record.exit_code)}
        results |= {} if record.wall_s is None else {"wall_s": record.wall_s}
    return Tracked(
        name=run_id,
        began_s=epoch_s(record.started_at if record is not None else made.submitted_at),
        parameters=parameters,
        results=results,
        series=report_series.series_of(record, logs),
        tags=_tags(made.command, made.engine, made.image_digest, made.world_size),
    )


def _of_record(study: Study, record: Record, *, parameters: dict[str, str]) -> Tracked:
    from bareboat.model import Phases
    from bareboat_study import report_series
    from bareboat_study.tensorboard import Tracked

    results = {name: float(value) for name, value in record.results.items()}
    results |= {} if record.wall_s is None else {"wall_s": record.wall_s}
    results |= {"peak_memory_bytes": float(record.peak_memory_bytes)}
    if record.phases is not None:
        results |= {name: getattr(record.phases, name) for name in Phases.__struct_fields__}
    number = "warm-up" if record.warm_up else f"run-{record.run}"
    engine = next(arm.engine for arm in study.arms if arm.name == record.arm)
    return Tracked(
        name=f"{study.id}.{record.arm.replace(' ', '-')}.{number}",
        began_s=epoch_s(record.started_at),
        parameters={**parameters, "arm": record.arm, "run": str(record.run)},
        results=results,
        series=report_series.of_record(record),
        tags=_tags(study.job.command, engine, record.image_digest, record.world_size),
    )


def _tags(command: Sequence[str], engine: str, image: str | None, world_size: int) -> dict[str, str]:
    return {
        "command": shlex.join(command),
        "engine": engine,
        "image": image or "",
        "world_size": str(world_size),
    }
