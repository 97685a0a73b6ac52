"""The runs of a study at one point: measured one after another, stored, and read again.

Each run's records appear by one rename. A study that was stopped at any point resumes after its stored runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bareboat.model import Record, Study
from bareboat.runs import directory, sampler_series
from bareboat_base import codec, execute
from bareboat_base.errors import StoreError, ToolError
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line
from bareboat_images.store import Store
from bareboat_study import redrawing, validity
from bareboat_study.metrics import files_of
from bareboat_study.runs import Place, do_run

#: The files of one run's directory and of a study's scripts, baseline first.
_FILES = ("baseline", "contender")
#: In a run's directory: its seconds.
_TOOK = "took_s"
#: Of the output of a run that is kept.
_KEPT_LOG_BYTES = 1 << 20
_WRITTEN = (
    "Each run writes in the working directory ({}), and finds there what the one before it wrote. "
    "For a new directory in each run: sh -c 'cd \"$BAREBOAT_RUN_DIR\" && exec COMMAND'."
)


def read_records(store: Store, study: Study) -> list[Record]:
    """All records of a study, in the order of the runs, warm-up first. Raises StoreError for one that is no
    record of that run: a verdict would be made of it."""
    records = []
    for run in stored_runs(store, study):
        for name, arm in zip(file_names(study), study.arms, strict=True):
            path = run_folder(store, study, run) / f"{name}.json"
            record = store.read(path, Record)
            if (wrong := validity.damage(study, record, arm.name, run)) is not None:
                raise _damaged(store, study, f"{path} {wrong}")
            records.append(record)
    if (twice := validity.repeated(records)) is not None:
        runs = " and ".join(str(each.run) for each in twice)
        raise _damaged(store, study, f"runs {runs} of {study.id} are one measurement of {twice[0].arm}")
    return records


def log_file(store: Store, study: Study, run: int, arm: str) -> Path:
    """The end of what an arm printed in a run."""
    names = dict(zip((each.name for each in study.arms), file_names(study), strict=True))
    return run_folder(store, study, run) / f"{names[arm]}.log"


def _damaged(store: Store, study: Study, what: str) -> StoreError:
    return StoreError(
        what,
        context="the study was changed after it was measured",
        remedy=f"restore {store.run(study.id)} from a backup; or remove the directory of the run and repeat "
        f"it: bareboat prove --resume {study.whole}",
    )


def file_names(study: Study) -> tuple[str, ...]:
    """The name of each arm's files, without suffix."""
    return (*_FILES, *(f"{_FILES[1]}-{number}" for number in range(2, len(study.arms))))[: len(study.arms)]


def stored_runs(store: Store, study: Study) -> list[int]:
    """The runs that are complete."""
    runs = range(study.job.prove.repeats + 1)
    return [run for run in runs if run_folder(store, study, run).is_dir()]


def measure(
    store: Store, study: Study, run: int, scripts: dict[str, Path], *, say: Callable[[str], None]
) -> Study:
    """Do one run and store it, with the arms' output. Returns the study, with its complete design after the
    first run.

    A run that failed is stored with its reason; a failed warm-up raises RunError.
    """
    began, began_epoch_s = time.monotonic(), time.time()
    drawn = redrawing.redraw(store, study, run, say=say)
    with store.scratch(own=True) as scratch:
        place = Place(scratch, scripts, store.mark(study.id))
        records, measured, executed = do_run(study, run, place, say=say)
        if study.metered is None:
            measured = msgspec.structs.replace(measured, written=written(store, study, began_epoch_s))
            keep(store, measured)
        if executed:
            redrawing.keep_files(store, study, executed)
        if drawn is not None:
            pairs = zip(records, drawn, strict=True)
            records = tuple(msgspec.structs.replace(record, layout=layout) for record, layout in pairs)
        arms = []
        for number, record in enumerate(records):
            folder = scratch / f"arm-{number}"
            arms.append((record, folder / "output.log", sampler_series.folders(folder / directory.CONTROL)))
        keep_run(store, study, run, arms, scratch / "done", took_s=time.monotonic() - began)
    return measured


def written(store: Store, study: Study, since_s: float) -> str:
    """What a study says of the files in the working directory that its runs write: those since a time of the
    epoch, without metrics, .git, __pycache__ and the like. Empty without any, and if a short look fails."""
    top = study.job.workdir or "/"
    kept = (str(store.root), str(store.own), *files_of(study.metrics, top))
    left_out = ["-name", "[._]*", *(word for path in kept for word in ("-o", "-path", path))]
    chosen = ("-type", "f", "-newermt", f"@{since_s}", "-printf", "%P\\0")
    command = ("find", top, "-xdev", "-mindepth", "1", "(", *left_out, ")", "-prune", "-o", *chosen)
    try:
        found = sorted(execute.run(command, timeout_s=5.0).stdout.split("\0"))[1:]
    except ToolError:
        return ""
    names = [one_line(name, limit=60) for name in found]
    more = f" and {len(names) - 3} more" * (len(names) > 3)
    return _WRITTEN.format(", ".join(names[:3]) + more) if names else ""


def keep_run(
    store: Store,
    study: Study,
    run: int,
    arms: Sequence[tuple[Record, Path, Sequence[Path]]],
    done: Path,
    *,
    took_s: float,
) -> None:
    """Store a run: the record of each arm, the end of its output, and its series. `done`: a new directory."""
    done.mkdir()
    for name, (record, log, series) in zip(file_names(study), arms, strict=True):
        (done / f"{name}.json").write_bytes(codec.to_json(record))
        sampler_series.keep(series, done / sampler_series.FOLDER / name)
        if log.exists():
            (done / f"{name}.log").write_bytes(untrusted.read_tail(log, limit=_KEPT_LOG_BYTES))
    (done / _TOOK).write_text(f"{took_s:.3f}\n")
    store.publish(done, run_folder(store, study, run))


def took_s(store: Store, study: Study, run: int) -> float:
    """The seconds of a stored run, all arms together; 0 where its file is damaged."""
    try:
        return max(0.0, float(untrusted.read_text(run_folder(store, study, run) / _TOOK, limit=40)))
    except (OSError, ValueError):
        return 0.0


def run_folder(store: Store, study: Study, run: int) -> Path:
    return store.run(study.id) / f"{run:04d}"


def keep(store: Store, study: Study) -> None:
    """Write the study's design."""
    store.write(store.run(study.id) / "study.json", codec.to_json(study))


def write_scripts(store: Store, study: Study) -> dict[str, Path]:
    """The arms' scripts as files, for bash and for readers."""
    paths = {}
    for arm, name in zip(study.arms, file_names(study), strict=True):
        paths[arm.name] = store.run(study.id) / f"{name}.sh"
        store.write(paths[arm.name], os.fsencode(arm.script))
    return paths
