"""A study: its design is fixed and written, then run after run is measured and stored.

Each run's records appear by one rename. A study that was stopped at any point resumes after its stored runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import UNSET

from bareboat import registry, render
from bareboat.model import Arm, Image, Job, Layout, Plan, Record, Site, Study
from bareboat.runs import directory, provenance, usage
from bareboat_base import __version__, codec
from bareboat_base.clock import utc_now
from bareboat_base.errors import RunError, StoreError, UsageError
from bareboat_base.files import untrusted
from bareboat_images.store import LIST_RUNS, Store
from bareboat_study import quick, redrawing, sequential, turns, validity
from bareboat_study.arms import Design, failed_record
from bareboat_study.runs import Place, do_run

#: The files of one run's directory and of a study's scripts, baseline first.
_FILES = ("baseline", "contender")
#: The directory of attempts that failed and were repeated.
_FAILED = "failed"
#: In a run's directory: its seconds.
_TOOK = "took_s"
#: Of the output of a run that is kept.
_KEPT_LOG_BYTES = 1 << 20
BARE_METAL = "bare metal"


def arms_of(plans: tuple[Plan, Plan]) -> tuple[Arm, Arm]:
    """The arms of a study: the baseline's plan, then the contender's."""
    names = [BARE_METAL if plan.engine == registry.BARE_METAL else plan.engine for plan in plans]
    if names[0] == names[1]:
        names = [f"{names[0]} A", f"{names[1]} B"]
    baseline, contender = (
        Arm(name=name, engine=plan.engine, plan_digest=render.digest(plan), script=render.script(plan))
        for name, plan in zip(names, plans, strict=True)
    )
    return baseline, contender


def design_study(store: Store, job: Job, plans: tuple[Plan, Plan], image: Image, site: Site) -> Study:
    """Write down the design of a new study; nothing has run yet."""
    run_id = store.new_run(job.name)
    study = Study(
        id=run_id,
        created_at=utc_now(),
        job=job,
        arms=arms_of(plans),
        image=image,
        site=site,
        bareboat_version=__version__,
        seed=turns.drawn_seed(job.prove.seed),
    )
    with store.whole_run(run_id):
        provenance.keep(store, run_id, job, site)
        keep(store, study)
    return study


def find_study(store: Store, job: Job | None) -> Study:
    """The newest study, of this job or of any, with runs left; else the newest complete one, of which only
    the report may be missing."""
    complete = None
    for run_id in reversed(store.runs()):
        if (store.run(run_id) / "study.json").exists():
            study = read_study(store, run_id)
            if job in (None, study.job):
                if missing_runs(store, study):
                    return study
                complete = complete or study
    if complete is not None:
        return complete
    raise UsageError(
        "no study found" + (" for this job in its current form" if job else ""),
        remedy=f"{LIST_RUNS}; remove --resume to start a new study",
    )


def read_study(store: Store, run_id: str) -> Study:
    """Raises UsageError for a name that is not a study, StoreError for a damaged one."""
    if run_id not in store.runs():
        raise store.missing_run(run_id)
    path = store.run(run_id) / "study.json"
    study = store.read(path, Study)
    if len({arm.name for arm in study.arms}) != 2 or len(study.arms) != 2:
        raise StoreError(
            f"{path} cannot be read: a study has 2 arms of different names, and it has {len(study.arms)}",
            remedy="restore it from a backup",
        )
    return study


def read_records(store: Store, study: Study) -> list[Record]:
    """All records of a study, in the order of the runs, warm-up first; those of failed attempts at the
    end. Raises StoreError for one that is no record of that run: a verdict would be made of it."""
    folders: list[tuple[Path, int | None]] = [
        (_run_folder(store, study, run), run) for run in stored_runs(store, study)
    ]
    folders += [(folder, None) for folder in _failed_attempts(store, study)]
    records = []
    for folder, run in folders:
        for name, arm in zip(file_names(study), study.arms, strict=True):
            path = folder / f"{name}.json"
            record = store.read(path, Record)
            if (wrong := validity.damage(study, record, arm.name, run)) is not None:
                raise _damaged(store, study, f"{path} {wrong}")
            records.append(record)
    if (twice := validity.repeated(records)) is not None:
        runs = " and ".join(str(each.run) for each in twice)
        raise _damaged(store, study, f"runs {runs} of {study.id} are one measurement of {twice[0].arm}")
    return records


def _damaged(store: Store, study: Study, what: str) -> StoreError:
    return StoreError(
        what,
        context="the study was changed after it was measured",
        remedy=f"restore {store.run(study.id)} from a backup; or remove the directory of the run and repeat "
        f"it: bareboat prove --resume {study.id}",
    )


def _failed_attempts(store: Store, study: Study) -> list[Path]:
    """The directories of runs that failed and were repeated, in their order."""
    folder = store.run(study.id) / _FAILED
    return sorted(folder.iterdir()) if folder.is_dir() else []


def file_names(study: Study) -> tuple[str, ...]:
    """The name of each arm's files, without suffix."""
    return (*_FILES, *(f"{_FILES[1]}-{number}" for number in range(2, len(study.arms))))[: len(study.arms)]


def missing_runs(store: Store, study: Study) -> list[int]:
    return [run for run in _all_runs(study) if not _run_folder(store, study, run).is_dir()]


def stored_runs(store: Store, study: Study) -> list[int]:
    """The runs that are complete."""
    return [run for run in _all_runs(study) if _run_folder(store, study, run).is_dir()]


def conduct(store: Store, study: Study, *, say: Callable[[str], None]) -> Study:
    """Do all missing runs; run 0 is the warm-up. Returns the study with its complete design.

    Raises RunError when an arm fails. Finished runs are kept whatever stops it.
    """
    with store.locked(study.id):
        scripts = write_scripts(store, study)
        while left := missing_runs(store, study):
            run, began = left[0], time.monotonic()
            most = "at most " if sequential.is_sequential(study) else ""
            label = "warm-up" if run == 0 else f"run {run} of {most}{study.job.prove.repeats}"
            try:
                study = measure(store, study, run, scripts, say=headed(say, label))
            except RunError as error:
                if run > 0:
                    _keep_failure(store, study, run, error)
                raise
            study = _decided(store, study, run)
            if run == 0 and (shorter := quick.shortened(study, time.monotonic() - began)) != study:
                study = shorter
                keep(store, study)
    return study


def _keep_failure(store: Store, study: Study, run: int, error: RunError) -> None:
    """Store that a run failed. It is repeated, and its arms are compared by their failures, too: runs that
    are only counted when they succeed would be a selection."""
    attempt = len(_failed_attempts(store, study)) + 1
    with store.scratch(own=True) as scratch:
        done = scratch / "done"
        done.mkdir()
        for name, arm in zip(file_names(study), study.arms, strict=True):
            failed = msgspec.structs.replace(failed_record(study, run, arm, error), attempt=attempt)
            (done / f"{name}.json").write_bytes(codec.to_json(failed))
        (store.run(study.id) / _FAILED).mkdir(exist_ok=True)
        store.publish(done, store.run(study.id) / _FAILED / f"{attempt:04d}")


def _decided(store: Store, study: Study, run: int) -> Study:
    """The study, which ends after this run if it is one of its looks and decides. The data
    are analysed only at the looks that the design fixes."""
    if not sequential.is_sequential(study) or run not in sequential.looks(study.job.prove.repeats):
        return study
    from bareboat_study import analysis

    found = analysis.analyse(study, read_records(store, study))
    if found.is_complete and found.planned < study.job.prove.repeats:
        study = msgspec.structs.replace(study, decided_after=found.planned)
        keep(store, study)
    return study


def headed(say: Callable[[str], None], head: str) -> Callable[[str], None]:
    """Progress below a head, such as the number of the run."""

    def progress(text: str) -> None:
        say(f"{head}: {text}")

    return progress


def measure(
    store: Store,
    study: Study,
    run: int,
    scripts: dict[str, Path],
    *,
    say: Callable[[str], None],
    keep_failures: bool = False,
    keep_logs: bool = False,
) -> Study:
    """Do one run and store it. Returns the study, with its complete design after the first run.

    Raises RunError when an arm fails. `keep_failures`: such a run is stored as well, unless it is the
    warm-up. `keep_logs`: the arms' output, too.
    """
    began = time.monotonic()
    drawn = redrawing.redraw(store, study, run, say=say)
    with store.scratch(own=True) as scratch:
        records, design, executed = do_run(
            study,
            run,
            design=_design(study),
            warm_up=run == 0,
            place=Place(scratch, scripts),
            say=say,
            keep_failures=keep_failures,
        )
        study = _with_design(store, study, design)
        if executed:
            redrawing.keep_files(store, study, executed)
        if drawn is not None:
            records = tuple(map(_with_layout, records, drawn))
        done = scratch / "done"
        done.mkdir()
        for index, (name, record) in enumerate(zip(file_names(study), records, strict=True)):
            (done / f"{name}.json").write_bytes(codec.to_json(record))
            log = scratch / f"arm-{index}" / "output.log"
            series = usage.folders(scratch / f"arm-{index}" / directory.CONTROL)
            usage.keep(series, done / usage.FOLDER / name)
            if keep_logs and log.exists():
                (done / f"{name}.log").write_bytes(untrusted.read_tail(log, limit=_KEPT_LOG_BYTES))
        write_took_s(done, time.monotonic() - began)
        store.publish(done, _run_folder(store, study, run))
    return study


def _with_layout(record: Record, layout: Layout) -> Record:
    return msgspec.structs.replace(record, layout=layout)


def write_took_s(done: Path, seconds: float) -> None:
    """Write the time of a run, all arms together, into its directory."""
    (done / _TOOK).write_text(f"{seconds:.3f}\n")


def took_s(store: Store, study: Study, run: int) -> float:
    """The seconds of a stored run, all arms together; 0 where its file is damaged."""
    try:
        return max(0.0, float(untrusted.read_text(_run_folder(store, study, run) / _TOOK, limit=40)))
    except (OSError, ValueError):
        return 0.0


def _all_runs(study: Study) -> range:
    return range((study.job.prove.repeats if study.decided_after is UNSET else study.decided_after) + 1)


def _run_folder(store: Store, study: Study, run: int) -> Path:
    return store.run(study.id) / f"{run:04d}"


def _design(study: Study) -> Design | None:
    if study.metered is None:
        return None
    return Design(metered=study.metered, steps_per_window=study.steps_per_window, settle=study.settle)


def _with_design(store: Store, study: Study, design: Design) -> Study:
    if study.metered is not None:
        return study
    study = msgspec.structs.replace(
        study, metered=design.metered, steps_per_window=design.steps_per_window, settle=design.settle
    )
    keep(store, study)
    return study


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
