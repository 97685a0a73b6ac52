"""Locks that no run made, for tests: realistic, and the same on every machine."""

import hashlib
from typing import Any

import msgspec
from builders import fake_digest, make_job, make_site

from bareboat.model import Mount
from bareboat.model.provenance import Code, CodeFile, Repository
from bareboat_study.reproduction import machines
from bareboat_study.reproduction.document import (
    Datum,
    Decided,
    Lock,
    LockedImage,
    LockedPackage,
    LockedPlan,
    Machine,
    Results,
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
        "python_version": "3.12.4",
        "glibc": "2.34",
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
