"""Values that a damaged or foreign file may hold are one error, and no figure fails on extreme ones."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from builders import make_records, make_study
from matrices import keep, of_pair, report_of

from bareboat import store_access
from bareboat.model import CaptureRequest, Mount, Record, Study
from bareboat_base import codec
from bareboat_base.errors import StoreError, UsageError
from bareboat_images.store import Store
from bareboat_study import matrix, point_runs
from bareboat_study.analysis import analyse
from bareboat_study.report import render


def test_a_study_without_arms_is_one_error() -> None:
    data = codec.to_json({**msgspec.to_builtins(make_study()), "arms": []})
    with pytest.raises(StoreError, match=r"study\.json cannot be read"):
        codec.from_json(data, Study, what="study.json")


@pytest.mark.parametrize("places", [(0,), (0, 0), (0, 1, 0)])
def test_a_study_of_other_arms_is_one_error(places: tuple[int, ...], tmp_path: Path) -> None:
    store, study = Store(tmp_path), make_study()
    found, studies, records = of_pair(study, ())
    arms = tuple(study.arms[place] for place in places)
    keep(store, found, records, [msgspec.structs.replace(studies[0], arms=arms)])
    with pytest.raises(StoreError, match="its arms are not those of the study"):
        matrix.points(store, matrix.read(store, study.id))
    with pytest.raises(ValueError, match="two or more arms of different names"):
        msgspec.structs.replace(found, arms=tuple(arm.name for arm in arms))


def test_a_nul_byte_in_a_path_is_an_error_of_its_key() -> None:
    for source, target in (("/a\0", "/b"), ("/a", "/b\0")):
        with pytest.raises(UsageError, match="NUL byte"):
            Mount(source=source, target=target)
    for name in ("include", "programs"):
        with pytest.raises(UsageError, match=rf"capture\.{name} contains a NUL byte"):
            CaptureRequest(**{name: ("a\0",)})


@pytest.mark.parametrize("scale", [1e308, 1e300, 1e-300])
def test_a_report_of_extreme_values_has_a_place_for_each_figure(
    scale: float, caplog: pytest.LogCaptureFixture
) -> None:
    study = make_study(metered=False, runs=5)
    records = [
        msgspec.structs.replace(each, wall_s=scale * (0.5 + (7 * each.run + 3 * each.position) % 10 / 10))
        for each in make_records(study)
    ]
    with caplog.at_level(logging.WARNING, "bareboat"):
        page = render(report_of(study, records, analyse(study, records)))
    assert "<svg" in page
    assert ("not drawn: values out of range" in page) is any("not drawn" in each for each in caplog.messages)


def test_trust_in_a_directory_of_root_is_refused(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("as root, / is one's own")
    with pytest.raises(StoreError, match="/ belongs to root, and is no store"):
        store_access.agree(Path("/"), {"HOME": str(tmp_path)})


def stored(tmp_path: Path, *, metered: bool = True) -> tuple[Store, Study]:
    store, study = Store(tmp_path), make_study(metered=metered, runs=3)
    store.run(study.id).mkdir(parents=True)
    point_runs.keep(store, study)
    names = dict(zip((arm.name for arm in study.arms), point_runs.file_names(study), strict=True))
    for record in make_records(study):
        store.write(record_path(store, study, record.run, names[record.arm]), codec.to_json(record))
    assert len(point_runs.read_records(store, study)) == 8
    return store, study


def record_path(store: Store, study: Study, run: int, name: str) -> Path:
    return store.run(study.id) / f"{run:04d}" / f"{name}.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: {"wall_s": 0.0}, r"has a wall time of 0 s"),
        (lambda _: {"run": 1}, r"is the record of container in run 1 of "),
        (lambda _: {"study": "another"}, r"in run 2 of another"),
        (lambda _: {"arm": "bare metal"}, r"is the record of bare metal in run 2"),
        (
            lambda record: {
                "windows": (
                    msgspec.structs.replace(record.windows[0], step_s=(0.0,) * len(record.windows[0].step_s)),
                    *record.windows[1:],
                )
            },
            r"has step times in block \d+ that are not above 0",
        ),
    ],
)
def test_a_record_that_is_not_of_its_run_gives_no_verdict(
    change: Callable[[Record], dict[str, object]], message: str, tmp_path: Path
) -> None:
    store, study = stored(tmp_path)
    path = record_path(store, study, 2, "contender")
    record = store.read(path, Record)
    store.write(path, codec.to_json(msgspec.structs.replace(record, **change(record))))
    with pytest.raises(StoreError, match=message) as caught:
        point_runs.read_records(store, study)
    assert f"bareboat prove --resume {study.id}" in caught.value.remedy


def test_one_run_twice_gives_no_verdict(tmp_path: Path) -> None:
    """Also where the copy has the number of another run."""
    store, study = stored(tmp_path)
    for name in point_runs.file_names(study):
        record = store.read(record_path(store, study, 1, name), Record)
        changed = msgspec.structs.replace(record, run=2)
        store.write(record_path(store, study, 2, name), codec.to_json(changed))
    with pytest.raises(StoreError, match=r"runs 1 and 2 of .* are one measurement of bare metal"):
        point_runs.read_records(store, study)


def test_a_run_that_failed_may_have_no_time(tmp_path: Path) -> None:
    store, study = stored(tmp_path)
    path = record_path(store, study, 2, "contender")
    failed = msgspec.structs.replace(store.read(path, Record), exit_code=1, wall_s=0.0, windows=())
    store.write(path, codec.to_json(failed))
    assert len(point_runs.read_records(store, study)) == 8
