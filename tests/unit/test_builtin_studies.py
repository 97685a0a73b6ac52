"""The built-in studies: their files, copying them, the packages they need, and the published figures."""

import contextlib
import os
from pathlib import Path

import msgspec
import pytest
from builders import fake_digest
from hypothesis import given
from hypothesis import strategies as st
from matrices import make_matrix

from bareboat import config
from bareboat.model import ProveRequest, Record
from bareboat_base.errors import UsageError
from bareboat_base.toml import TomlFile
from bareboat_study import builtin, published, studyfile

EVERY = [(name, scale) for name in builtin.NAMES for scale in ("laptop", "paper")]


def settings(folder: Path) -> config.Settings:
    return config.resolve({}, folder=folder, environment={"HOME": str(folder)})


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_each_study_can_be_read_at_each_scale(name: str, scale: str, tmp_path: Path) -> None:
    study = builtin.packaged(name, scale)
    request = studyfile.read_study(TomlFile(study.file), settings(tmp_path))
    assert request.name == name
    assert request.arms == ("bare", "container")
    for row in request.jobs:
        script = row[0].command[1]
        assert (study.folder / script).is_file()
        assert row[0].engine == "native"
        assert row[1].engine != "native"
    assert any(metric.primary for metric in request.metrics[0])
    for metric in request.metrics[0]:  # launchers write "[rank 0] " before each line of several ranks
        assert "^" not in (metric.pattern or metric.series or "")
    if scale == "laptop":
        assert request.prove.within_s is not None
        assert 0 < float(request.prove.within_s or 0) <= 15 * 60
        assert all(
            job.topology.world_size <= 4 and not job.topology.gpus_per_rank for r in request.jobs for job in r
        )


def test_the_neighbour_study_can_be_read(tmp_path: Path) -> None:
    file = builtin.packaged("sharing").folder / "neighbour.toml"
    assert studyfile.read_study(TomlFile(file), settings(tmp_path)).points == (("none",), ("oom",))


def with_figures() -> list[str]:
    return [name for name in builtin.NAMES if builtin.packaged(name).published.exists()]


@pytest.mark.parametrize("name", with_figures())
def test_published_figures_are_of_the_study(name: str, tmp_path: Path) -> None:
    study = builtin.packaged(name, "paper")
    request = studyfile.read_study(TomlFile(study.file), settings(tmp_path))
    factors = [factor.rpartition(".")[2] for factor in request.factors]
    rows = published.read(study.published.read_text(), "published.csv")
    assert rows
    for scale in builtin.scales(name):
        file = TomlFile(builtin.packaged(name, scale).file)
        published.check(rows, studyfile.read_study(file, settings(tmp_path)).factors, "published.csv")
    for row in rows:
        assert set(row.factors) <= set(factors)
        assert row.arm in request.arms
        assert row.metric in [metric.name for metric in request.metrics[0]]
        assert row.hardware
        assert row.source
        for factor, value in row.factors.items():
            assert value in [str(point[factors.index(factor)]) for point in request.points]


# Copying.


def test_files_are_copied_once_and_may_be_edited(tmp_path: Path) -> None:
    packaged = builtin.packaged("galileo")
    study, is_new = builtin.copied(packaged, tmp_path / "galileo")
    assert is_new
    assert {each.name for each in study.folder.iterdir()} > {"laptop.toml", "paper.toml", "published.csv"}
    assert study.file.read_bytes() == packaged.file.read_bytes()
    study.file.write_text("name = 'mine'\n")
    assert builtin.copied(packaged, tmp_path / "galileo") == (study, False)
    assert study.file.read_text() == "name = 'mine'\n"
    assert [each.name for each in tmp_path.iterdir()] == ["galileo"]


def test_another_directory_of_the_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "galileo").mkdir()
    with pytest.raises(UsageError, match=r"has no laptop\.toml"):
        builtin.copied(builtin.packaged("galileo"), tmp_path / "galileo")
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        builtin.copied(builtin.packaged("galileo"), tmp_path / "galileo")


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written to"):
        builtin.copied(builtin.packaged("galileo"), tmp_path / "missing" / "galileo")


# Published figures.

HEAD = "model,batch,arm,metric,mean,std,min,max,hardware,source\n"


MATRIX = make_matrix(
    arms=("bare", "container"), points=(("vgg16", 4), ("vgg16", 64)), prove=ProveRequest(repeats=2), repeats=2
)


def record(arm: str, run: int, speed: float, *, exit_code: int = 0) -> Record:
    return Record(
        study="s", run=run, arm=arm, warm_up=run == 0, position=0, started_at="2025-03-03T09:00:00Z",
        exit_code=exit_code, wall_s=1.0, plan_digest=fake_digest("d"), image_digest=None,
        site_digest=fake_digest("5"), results={"speed": speed},
    )  # fmt: skip


RECORDS = [
    [record("bare", 0, 900.0), record("bare", 1, 10.0), record("bare", 2, 14.0),
     record("bare", 3, 700.0, exit_code=1)],
    [record("container", 1, 20.0)],
]  # fmt: skip


def test_warm_up_and_failed_runs_do_not_count() -> None:
    first, second = published.beside(MATRIX, RECORDS, [])
    assert (first.arm, first.measured.mean, first.measured.least, first.measured.most) == (
        "bare",
        12.0,
        10.0,
        14.0,
    )
    assert first.measured.std == pytest.approx(8**0.5)
    assert (second.arm, second.measured.std, second.measured.runs) == ("container", None, 1)
    assert second.published is None


def test_the_nearest_point_stands_beside() -> None:
    rows = published.read(
        HEAD
        + "vgg16,128,bare,speed,3,,,,K80,CINECA\n"
        + "vgg16,32,bare,speed,1,0.5,,,K80,CINECA\n"
        + "vgg16,64,container,speed,2,,,,K80,CINECA\n"
        + "alexnet,4,bare,speed,9,,,,K80,CINECA\n",
        "p.csv",
    )
    first, second = published.beside(MATRIX, RECORDS, rows)
    assert first.published is rows[1]
    assert first.differs == "batch 32"
    assert second.published is rows[2]
    assert second.differs == ""
    (shown,) = published.tables([first, second])
    assert [row[2:] for row in shown.rows] == [
        ("12.00 ± 2.8", "10.00", "14.00", "2", "1.000 ± 0.5", "batch 32"),
        ("20.00", "20.00", "20.00", "1", "2.000", "the same point"),
    ]
    assert published.notes([first, second])[0] == "Published: CINECA; measured there on: K80."
    lines = published.table([first, second]).splitlines()
    assert lines[0].startswith("point,arm,metric,unit,runs,measured_mean")
    assert len(lines) == 3


def test_an_empty_factor_fits_every_value_and_another_column_is_named() -> None:
    head = HEAD.replace("batch", "nodes,batch")
    rows = published.read(
        head + "alexnet,,32,bare,speed,9,,,,K80,CINECA\n" + "vgg16,7,,bare,speed,8,,,,K80,CINECA\n", "p.csv"
    )
    swapped = {"factors": ("batch", "model"), "points": ((4, "vgg16"), (64, "vgg16"))}
    matrix = msgspec.structs.replace(MATRIX, **swapped)
    first, _ = published.beside(matrix, RECORDS, rows)
    assert first.published is rows[1]
    assert first.differs == "nodes 7"


@pytest.mark.parametrize(
    ("column", "said"), [("modle", "the column modle names no factor of the study"), ("model", "")]
)
def test_rows_that_the_study_cannot_tell_apart_are_refused(column: str, said: str) -> None:
    other = "resnet50" if said else "vgg16"
    rows = published.read(
        HEAD.replace("model", column)
        + "vgg16,32,bare,speed,9,,,,K80,CINECA\n"
        + f"{other},32,bare,speed,8,,,,K80,CINECA\n",
        "p.csv",
    )
    with pytest.raises(UsageError, match=r"p.csv has two rows for speed of bare at .*batch 32") as caught:
        published.check(rows, ("model", "sweep.batch"), "p.csv")
    assert caught.value.context == said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks the columns arm, metric"),
        ("model,arm,metric,mean,std,min,max,hardware\n", "lacks the columns source"),
        ("model," + HEAD, "has a column twice"),
        (HEAD + "vgg16,32\n", r"line 2: 2 values for 10 columns"),
        (HEAD + "vgg16,32,bare,speed,fast,,,,K80,CINECA\n", "line 2: mean is 'fast', not a number"),
        (HEAD + "vgg16,32,bare,speed,inf,,,,K80,CINECA\n", "mean is 'inf', not a number"),
        (HEAD + "vgg16,32,bare,speed,,,,,K80,CINECA\n", "mean is empty"),
        (HEAD + "vgg16,32,bare,speed,3,-1,,,K80,CINECA\n", "line 2: std is negative"),
        (HEAD + "vgg16,32,bare,speed,3,1,5,2,K80,CINECA\n", "mean is not between min and max"),
        (HEAD + "vgg16,32,bare,speed,9,1,2,5,K80,CINECA\n", "mean is not between min and max"),
        (HEAD + '"vgg16,32', "line 2: unexpected end of data"),
    ],
)
def test_other_tables_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        published.read(text, "p.csv")


@given(st.text(max_size=200), st.booleans())
def test_any_text_is_read_or_refused(text: str, headed: bool) -> None:
    with contextlib.suppress(UsageError):
        published.read(HEAD * headed + text, "p.csv")
