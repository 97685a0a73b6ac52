"""Two studies of one container and bare metal: `report` compares them."""

import json
import math
import re

import matrices
import msgspec
import pytest
from builders import make_records, make_study
from matrices import of_pair

from bareboat.cli.main import main
from bareboat.model import kept_result
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


def test_the_ratios_of_two_are_compared(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = keep(store, 1), keep(store, 2, ratio=0.9)
    lines = read(capsys, first, second)
    assert f"A study {first}, 2025-03-03T09:00:00Z" in lines
    assert "throughput of container / bare metal" in lines
    speed = next(line for line in lines if line.startswith("the job as it is"))
    assert speed.endswith("different")
    assert re.search(r" 0\.[89]\d", speed)

    assert main(["report", "--json", first, second]) == 0
    found = json.loads(capsys.readouterr().out)
    (speed,) = found["changes"]["found"]
    compared = speed["comparison"]
    assert compared["ratio"] == pytest.approx(speed["second"] / speed["first"])
    assert compared["low"] < 0.9 / 0.998 < compared["high"]


def test_what_has_no_result_in_both_is_not_compared(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    first, other, wild = keep(store, 1), keep(store, 2, metered=False), keep(store, 3, diverges=True)
    assert "another primary metric in B: container / bare metal" in read(capsys, first, other)
    for names in ((first, wild), (wild, first)):
        assert "no result in A or B: container / bare metal" in read(capsys, *names)


def test_more_than_two_and_files_of_two_are_refused(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    names = [keep(store, number) for number in range(1, 4)]
    for words in (names, (*names[:2], "--csv")):
        assert main(["report", *words]) == 2
        assert "two studies are compared" in capsys.readouterr().err
