"""Locks that no run made, for tests: realistic, and the same on every machine."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec
from builders import fake_digest, make_job, make_site

from bareboat.model import Contrast, MetricRequest, Mount, ProveRequest
from bareboat.model.provenance import Code, CodeFile, Repository
from bareboat_study.reproduction import machines
from bareboat_study.reproduction.document import (
    Cell,
    Curve,
    Datum,
    Decided,
    Lock,
    LockedImage,
    LockedLayer,
    LockedPackage,
    LockedPlan,
    LockedStudy,
    Machine,
    PairResult,
    Results,
    Values,
)

TRAIN = 'print("loss 0.5")\n'


def make_file(path: str = "train.py", text: str = TRAIN) -> CodeFile:
    data = text.encode()
    return CodeFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), text=text)


def make_code(**changes: Any) -> Code:
    repository = Repository(
        commit="a" * 40, branch="main", remote="https://example.org/ada/digits.git", difference=""
    )
    facts: dict[str, Any] = {"folder": "/home/ada/digits", "repository": repository, "files": (make_file(),)}
    return Code(**(facts | changes))


def make_locked_image(**changes: Any) -> LockedImage:
    facts: dict[str, Any] = {
        "digest": fake_digest("a"),
        "origin": "captured",
        "architecture": "amd64",
        "size_bytes": 10**9,
        "layers": (LockedLayer(diff_id=fake_digest("b"), step="libraries of the host"),),
        "python": "/env/bin/python",
        "python_version": "3.12.4",
        "glibc": "2.34",
        "frameworks": {"torch": "2.13.0+cpu"},
        "packages": (
            LockedPackage(purl="pkg:pypi/numpy@2.1.0", sha256="1" * 64),
            LockedPackage(purl="pkg:pypi/torch@2.13.0%2Bcpu", sha256="2" * 64),
        ),
    }
    return LockedImage(**(facts | changes))


def make_machine(**changes: Any) -> Machine:
    return msgspec.structs.replace(machines.of_site(make_site()), **changes)


def make_results(**changes: Any) -> Results:
    facts: dict[str, Any] = {
        "exit_code": 0,
        "wall_s": 12.5,
        "started_at": "2026-11-20T10:15:00Z",
        "metrics": {"loss": 0.1, "accuracy": 0.93},
        "curves": {"loss": Curve(values=(1.0, 0.5, 0.2, 0.1))},
    }
    return Results(**(facts | changes))


def make_lock(**changes: Any) -> Lock:
    facts: dict[str, Any] = {
        "kind": "run",
        "name": "digits-20261120-101500",
        "made_by": "bareboat 0.1.0",
        "recorded_by": "bareboat 0.1.0",
        "job": make_job(
            command=("python", "train.py"), mounts=(Mount(source="/scratch/ada", target="/data"),),
            environment={"SEED": "1"},
        ),
        "plan": LockedPlan(
            digest=fake_digest("d"), engine="bubblewrap", launcher="single", scheduler="local",
            engine_version="0.11.0",
            decisions=(Decided(subject="engine", choice="bubblewrap", reason="fast"),),
        ),
        "image": make_locked_image(),
        "code": make_code(),
        "machine": make_machine(),
        "nodes": ("node017",),
        "data": (Datum(path="/scratch/ada/digits", sha256="3" * 64, size_bytes=10, files=1),),
        "results": make_results(),
    }  # fmt: skip
    return Lock(**(facts | changes))


SPEED = MetricRequest(name="speed", pattern="v=(.*)", unit="images/s")


def make_locked_study(
    *, ratio: float = 1.0, scale: float = 1.0, noise: float = 0.002, runs: int = 6, **changes: Any
) -> LockedStudy:
    """Two arms at two points. The ratio of the arms is `ratio` and the speed of the first 100 x `scale`; the
    noise of the arms alternates, each in its own order."""
    steps = [noise * (1 if at % 2 else -1) for at in range(runs)]
    baseline = tuple(100 * scale * (1 + each) for each in steps)
    contender = tuple(100 * scale * ratio * (1 - each) for each in steps)
    prove = ProveRequest(repeats=runs)
    job = make_job(prove=prove, workdir="/home/ada/digits", environment={"SEED": "1"})
    image = make_locked_image()
    jobs = [
        [
            msgspec.structs.replace(job, command=("python", "train.py", batch), engine=engine)
            for engine in ("native", "bubblewrap")
        ]
        for batch in ("32", "64")
    ]
    facts: dict[str, Any] = {
        "arms": ("bare", "sif"),
        "fixed": (("engine",), ("engine",)),
        "factors": ("batch",),
        "points": ((32,), (64,)),
        "metrics": ((SPEED,), (SPEED,)),
        "contrasts": (Contrast(baseline=0, contender=1),),
        "prove": prove,
        "repeats": runs,
        "images": (image,),
        "cells": tuple(
            tuple(
                Cell(
                    job=each, image=image.digest, engine=each.engine or "", plan_digest=fake_digest("d"),
                    withheld=("API_TOKEN",),
                )
                for each in row
            )
            for row in jobs
        ),
        "sentences": ("speed of sif / bare: equivalent within 2 % at 2 of 2 points",),
        "compared": tuple(
            PairResult(
                contrast=0, point=point, verdict="equivalent", layout_deviation=0.0,
                metrics=(
                    Values(
                        name="speed", unit="images/s", higher_is_better=True, primary=True,
                        baseline=baseline, contender=contender,
                    ),
                ),
            )
            for point in (0, 1)
        ),
        "samples_digest": fake_digest("e"),
    }  # fmt: skip
    return LockedStudy(**(facts | changes))


def make_study_lock(study: LockedStudy | None = None, **changes: Any) -> Lock:
    """The lock of a study."""
    made = make_locked_study() if study is None else study
    last = made.cells[0][-1]
    facts: dict[str, Any] = {
        "kind": "study", "job": last.job, "withheld": last.withheld, "image": made.image(last.image),
        "study": made, "results": Results(started_at="2026-11-20T10:15:00Z"), "data": (),
        "code": make_code(repository=None),
    }  # fmt: skip
    return make_lock(**(facts | changes))


def make_locked_pair(*, shift: float = 0.0, noise: float = 0.004, runs: int = 10) -> LockedStudy:
    """Two arms at one point. The ratio contender / baseline is exp(`shift`); `noise` alternates."""
    effects = [shift + noise * (1 if at % 2 else -1) for at in range(runs)]
    whole = make_locked_study(runs=runs)
    metric = Values(
        name="throughput", unit="samples/s", higher_is_better=True, primary=True, baseline=(100.0,) * runs,
        contender=tuple(100.0 * math.exp(effect) for effect in effects),
    )  # fmt: skip
    return msgspec.structs.replace(
        whole, arms=("bare metal", "container"), factors=(), points=((),), metrics=((),),
        cells=whole.cells[:1], sentences=("equivalent within 2 %",),
        compared=(msgspec.structs.replace(whole.compared[0], metrics=(metric,)),),
    )  # fmt: skip
