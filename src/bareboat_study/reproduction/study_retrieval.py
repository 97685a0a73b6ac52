"""What of a lock's study can be had again on this machine, arm by arm."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from bareboat.model import Job, MetricRequest
from bareboat_images.store import Store
from bareboat_study.reproduction import data, retrieval
from bareboat_study.reproduction.document import Cell, Lock, LockedStudy
from bareboat_study.reproduction.retrieval import Found, Part, Wishes

#: Of the working directory's code: where it is here, the directory to which it is written first, its parts.
_Code = tuple[str | None, str | None, list[Part]]


def find(
    lock: Lock, store: Store, wishes: Wishes, *, environment: Mapping[str, str], progress: data.Progress
) -> Found:
    """Look for every part of every arm at every point."""
    assert lock.study is not None
    matrix = lock.study
    codes: dict[str | None, _Code] = {}
    parts: list[tuple[str, Part]] = []
    jobs, metrics = [], []
    for row, requests in zip(matrix.cells, matrix.metrics, strict=True):
        made = []
        for number, cell in enumerate(row):
            arm = matrix.arms[number]
            view = view_of(lock, matrix, cell)
            own = msgspec.structs.replace(wishes, image=_image(matrix, number, cell, wishes))
            job, part = retrieval.image_of(view, store, own)
            parts.append((arm, part))
            if job.workdir not in codes:
                codes[job.workdir] = _code(view, lock, job, wishes)
            folder, restores, of_code = codes[job.workdir]
            job = job if folder is None else retrieval.in_folder(job, folder)
            job = retrieval.moved_of(job, wishes)
            job, of_variables = retrieval.variables_of(view, job, environment)
            parts += [(arm, each) for each in (*of_code, *retrieval.mounts_of(job, restores), *of_variables)]
            made.append(job)
        jobs.append(tuple(made))
        metrics.append(tuple(_file(each, row[-1].job, made[-1], wishes) for each in requests))
    parts += [("", each) for each in retrieval.data_of(lock, wishes, progress)]
    restored = (restores for _, restores, _ in codes.values() if restores is not None)
    return Found(
        parts=tuple(_once(parts, matrix.arms)),
        job=jobs[0][-1],
        restores=next(restored, None),
        jobs=tuple(jobs),
        metrics=tuple(metrics),
    )


def view_of(lock: Lock, matrix: LockedStudy, cell: Cell) -> Lock:
    """The lock as that of one arm at one point, without data and results."""
    plan = lock.plan
    return msgspec.structs.replace(
        lock,
        job=cell.job,
        image=matrix.image(cell.image),
        withheld=cell.withheld,
        plan=None if plan is None else msgspec.structs.replace(plan, engine=cell.engine),
        code=lock.code if cell.job.workdir == lock.job.workdir else None,
        data=(),
        study=None,
    )


def heads(matrix: LockedStudy, arm: int) -> set[str]:
    """The keys of the job that an arm, or a factor, sets: what the study compares."""
    return {*matrix.fixed[arm], *matrix.factors, *(each.partition(".")[0] for each in matrix.factors)}


def _image(matrix: LockedStudy, arm: int, cell: Cell, wishes: Wishes) -> str | None:
    """The image that the user chose for the arm. One that the study compares stays; a captured one may be
    captured again."""
    if "image" not in heads(matrix, arm) or (wishes.image == cell.job.image == "capture"):
        return wishes.image
    return None


def _code(view: Lock, lock: Lock, job: Job, wishes: Wishes) -> _Code:
    """The code of all arms in one working directory. `--code` is for that of the last arm."""
    own = job.workdir == lock.job.workdir
    chosen = wishes if own else msgspec.structs.replace(wishes, code=None)
    made, restores, parts = retrieval.code_of(view, job, chosen)
    return made.workdir, restores, parts


def _file(metric: MetricRequest, was: Job, now: Job, wishes: Wishes) -> MetricRequest:
    """The metric, with its file where the working directory or the user's choice places it."""
    if metric.file is None or not os.path.isabs(metric.file):
        return metric
    path = wishes.here(metric.file)
    if path == metric.file and was.workdir and now.workdir:
        path = wishes.here(path)
        if path == was.workdir or path.startswith(was.workdir.rstrip("/") + "/"):
            path = now.workdir + path[len(was.workdir.rstrip("/")) :]
    return msgspec.structs.replace(metric, file=path)


def _once(parts: Iterable[tuple[str, Part]], arms: tuple[str, ...]) -> Iterator[Part]:
    """Each part once, with the arms that need it where that is not all of them."""
    found: dict[tuple[str, str, str], tuple[Part, list[str]]] = {}
    for arm, part in parts:
        key = (part.name, part.state.value, part.text)
        found.setdefault(key, (part, []))[1].append(arm)
    for part, names in found.values():
        own = [arm for arm in arms if arm in names]
        where = f" (arm {', '.join(own)})" if own and len(own) < len(arms) else ""
        yield msgspec.structs.replace(part, text=part.text + where)
