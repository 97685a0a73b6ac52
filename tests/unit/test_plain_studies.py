"""Several studies of one container and bare metal: `report` compares two, and pools equal ones."""

from __future__ import annotations

import json
import math
import re

import matrices
import msgspec
import pytest
from builders import make_job, make_records, make_study
from matrices import of_pair

from bareboat.cli.main import main
from bareboat.model import Arm, kept_result
from bareboat_images.store import Store


def keep(
    store: Store, number: int, *, ratio: float = 0.998, diverges: bool = False, **changes: object
) -> str:
    """Keep a study as `prove` leaves it; return its name."""
    study = make_study(id=f"digits-20250303-09000{number}", **changes)
    matrix, studies, (records,) = of_pair(study, make_records(study, ratio=ratio, seed=number))
    if diverges:
        nan = {"loss": kept_result(math.nan)}
        records = [msgspec.structs.replace(record, results=nan) for record in records]
    matrices.keep(store, matrix, [records], studies)
    return study.id


def read(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["report", *arguments]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines()[1:])) <= 80
    return [" ".join(line.split()) for line in out.splitlines()]


def test_the_metrics_of_two_are_compared(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = keep(store, 1), keep(store, 2, ratio=0.9)
    lines = read(capsys, first, second)
    assert f"A study {first}, 2025-03-03T09:00:00Z" in lines
    assert "container / bare metal" in lines
    speed = next(line for line in lines if line.startswith("throughput"))
    assert speed.endswith("different")
    assert re.search(r" 0\.[89]\d", speed)
    # A secondary metric has an interval and no verdict.
    assert next(line for line in lines if line.startswith("peak memory")).endswith("]")

    assert main(["report", "--json", first, second]) == 0
    found = json.loads(capsys.readouterr().out)
    (speed,) = (each for each in found["changes"]["found"] if each["metric"] == "throughput")
    compared = speed["comparison"]
    assert compared["ratio"] == pytest.approx(speed["second"] / speed["first"])
    assert compared["low"] < 0.9 / 0.998 < compared["high"]


def test_the_arms_of_another_engine_are_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    study = make_study()
    other = msgspec.structs.replace(study.arms[1], name="apptainer")
    first, second = keep(store, 1), keep(store, 2, arms=(study.arms[0], other))
    assert "container / bare metal, and in B apptainer / bare metal" in read(capsys, first, second)


def test_other_metrics_are_not_compared(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = keep(store, 1), keep(store, 2, metered=False)
    assert main(["report", first, second]) == 2
    error = capsys.readouterr().err
    assert f"the primary metric of {first} is throughput, samples/s, and that of {second} is wall" in error


@pytest.mark.parametrize("names", [(1, 2), (2, 1)])
def test_a_training_that_diverged_is_not_compared(
    store: Store, capsys: pytest.CaptureFixture[str], names: tuple[int, int]
) -> None:
    made = {1: keep(store, 1), 2: keep(store, 2, diverges=True)}
    assert main(["report", *(made[number] for number in names)]) == 2
    assert f"the ratios of {made[2]} are no result: the training diverged" in capsys.readouterr().err


def test_equal_studies_are_pooled(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    names = [keep(store, number) for number in range(1, 5)]
    lines = read(capsys, *names)
    assert lines[0].startswith("throughput of container / bare metal: equivalent within 2 % in ")
    assert sum(line.startswith("20250303-09000") for line in lines) == 4
    assert any(line.startswith("between studies: tau ") for line in lines)

    assert main(["report", "--json", *names]) == 0
    found = json.loads(capsys.readouterr().out)
    speed = found["pooled"][0]
    assert (speed["metric"], speed["primary"]) == ("throughput", True)
    pooled, single = (
        speed["pooled"],
        [study["contrasts"][0]["points"][0]["metrics"][0]["comparison"] for study in found["studies"]],
    )
    assert pooled["ratio"] == pytest.approx(math.prod(each["ratio"] for each in single) ** 0.25, rel=1e-6)
    assert pooled["low"] < 0.998 < pooled["high"]
    assert pooled["points"] == 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"job": make_job(command=("python", "other.py"))}, "differ in their command"),
        ({"arms": tuple(
            Arm(name=name, engine="native", plan_digest=arm.plan_digest, script="")
            for name, arm in zip(("bare metal", "container"), make_study().arms, strict=True)
        )}, "differ in their arms"),
        ({"metered": False}, "differ in their primary metric"),
    ],
)  # fmt: skip
def test_studies_that_differ_are_not_pooled(
    store: Store, capsys: pytest.CaptureFixture[str], changes: dict[str, object], reason: str
) -> None:
    names = [keep(store, 1), keep(store, 2), keep(store, 3, **changes)]
    assert main(["report", "--json", *names]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pooled"] == []
    assert reason in found["not_pooled"]
    assert main(["report", *names]) == 0
    out = capsys.readouterr().out
    assert out.count("Geometric means.") == 3
    assert f"not pooled: {found['not_pooled']}" in out


def test_a_training_that_diverged_is_not_pooled(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    names = [keep(store, 1), keep(store, 2), keep(store, 3, diverges=True, ratio=0.5)]
    lines = read(capsys, *names)
    assert "of 3 studies" in lines[0]
    assert "the training diverged in 1; pooled " in lines[0]
