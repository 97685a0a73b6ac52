"""The layouts of files in the page cache: redrawn before each run, or counted in the intervals."""

import math
import mmap
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from builders import altered, fake_digest, make_job, make_layout, make_records, make_study
from matrices import report_of
from msgspec import UNSET
from tools import tool

from bareboat.model import Arm, ProveRequest, Record
from bareboat_base.errors import UsageError
from bareboat_images.store import Store
from bareboat_study import analysis, change, layouts, measures, method, page_cache, redrawing, turns
from bareboat_study.change import Effects
from bareboat_study.statistics import Verdict
from bareboat_study.validity import design_digest

MIB = 2**20


def kept(records: tuple[Record, ...]) -> tuple[Record, ...]:
    return tuple(msgspec.structs.replace(record, layout=UNSET) for record in records)


# Analysis.


def test_a_layout_that_was_kept_widens_the_interval_of_speeds_only() -> None:
    study = make_study()
    records = make_records(study)
    redrawn, old = analysis.analyse(study, records), analysis.analyse(study, kept(records))
    assert redrawn.between == 0
    assert old.between == layouts.DEVIATION
    first, second = redrawn.comparison, old.comparison
    assert second.ratio == first.ratio
    # The error of the runs is small here, so the interval is nearly normal.
    assert second.half_width == pytest.approx(math.hypot(first.half_width, 1.96 * 0.01), rel=0.03)
    assert (first.order_low, first.order_high) == (second.order_low, second.order_high)
    memory = [next(m for m in each.metrics if m.name == "peak memory") for each in (redrawn, old)]
    assert memory[0].comparison == memory[1].comparison


def test_a_kept_layout_is_named_in_verdict_and_notes() -> None:
    study = make_study()
    records = make_records(study, ratio=0.985)
    old = analysis.analyse(study, kept(records))
    assert old.verdict is Verdict.UNDECIDED
    assert "a deviation of 1 % between layouts" in old.sentence
    assert "a new study of" not in old.sentence
    assert any("not recorded. So every interval" in note for note in old.notes)
    redrawn = analysis.analyse(study, records)
    assert redrawn.verdict in (Verdict.EQUIVALENT, Verdict.DIFFERENT)
    assert any(note.startswith("Before each run, the files") for note in redrawn.notes)


def test_pages_that_others_have_mapped_keep_a_layout() -> None:
    study = make_study()
    stayed = make_layout(stayed_bytes=200 * MIB)
    records = altered(make_records(study), "container", layout=stayed)
    found = analysis.analyse(study, records)
    assert layouts.kept_shares(found.pairs) == pytest.approx((0, 200 / 496))
    assert found.between == pytest.approx(layouts.DEVIATION * math.sqrt(100 / 496))
    (note,) = (each for each in found.notes if "40% of container. So every interval" in each)
    assert "0% of bare metal" in note


def test_arms_that_execute_the_same_files_have_no_layout_of_their_own() -> None:
    equal = tuple(Arm(name=n, engine="native", plan_digest=fake_digest("d"), script="") for n in "AB")
    same_tree = tuple(
        Arm(name=n, engine="bubblewrap", plan_digest=fake_digest(n), script="") for n in ("a", "b")
    )
    threads = make_job(environment={"OMP_NUM_THREADS": "2"})
    other = make_job(environment={"LD_LIBRARY_PATH": "/opt/lib"})
    for arms, jobs, between in (
        (equal, UNSET, 0),
        (same_tree, (make_job(), threads), 0),
        (same_tree, UNSET, layouts.DEVIATION),
        (same_tree, (make_job(), other), layouts.DEVIATION),
        (same_tree, (make_job(), make_job(command=("/copy/bin/python",))), layouts.DEVIATION),
    ):
        study = make_study(arms=arms, jobs=jobs)
        assert analysis.analyse(study, kept(make_records(study))).between == between


def test_changes_between_studies_count_layouts_that_were_kept() -> None:
    study = make_study()
    records = make_records(study)
    redrawn, old = analysis.analyse(study, records), analysis.analyse(study, kept(records))

    def width(*both: analysis.Analysis) -> float:
        sides = [
            [
                (
                    ("a", "b", ""),
                    Effects(metric="x", ratios=change.balanced(each.primary), layouts=each.between),
                )
            ]
            for each in both
        ]
        return change.between(*sides, margin=0.02, confidence=0.95).found[0].comparison.half_width

    assert width(redrawn, redrawn) < width(redrawn, old) < width(old, old)
    assert change.between_studies(0.0, 0.0) == pytest.approx(change.BETWEEN_STUDIES)
    assert change.between_studies(0.01, 0.01) == pytest.approx(0.01)


def test_the_request() -> None:
    with pytest.raises(UsageError, match=r'must be "redrawn" or "kept"'):
        ProveRequest(layout="sequential")
    assert "redrawn before each run" in layouts.request_text(ProveRequest(), None)
    assert "scheduler" in layouts.request_text(ProveRequest(), "slurm")
    assert "kept" in layouts.request_text(ProveRequest(layout="kept"), None)
    chosen = make_study(job=make_job(prove=ProveRequest(layout="kept")))
    assert design_digest(chosen) != design_digest(make_study())


def test_the_order_of_reads_is_balanced() -> None:
    study = make_study()
    orders = [turns.layouts(study, run) for run in range(1, 11)]
    assert all(sorted(pair) == [(0, 1), (1, 0)] for pair in zip(orders[::2], orders[1::2], strict=True))


# The page cache of this machine.


def resident(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return page_cache._resident(descriptor, 0, path.stat().st_size)
    finally:
        os.close(descriptor)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "library.so"
    path.write_bytes(os.urandom(3 * MIB + 17))
    if page_cache.evict(str(path)):
        pytest.skip("files of this directory do not leave the page cache, as in tmpfs")
    return path


def test_a_file_leaves_the_page_cache_and_is_read_again(library: Path) -> None:
    assert resident(library) == 0
    page_cache.read_in_order(str(library))
    assert resident(library) == library.stat().st_size
    assert page_cache.evict(str(library)) == 0


def test_pages_that_a_process_has_mapped_stay(library: Path) -> None:
    with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert len({mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE)}) > 1
        assert page_cache.evict(str(library)) >= 0.9


def test_the_kernel_shows_no_pages_of_files_of_others(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda *_: False)
    page_cache.read_in_order(str(library))
    for _ in range(20):  # on a busy machine the kernel may hold pages for a moment
        if page_cache.evict(str(library)) == 0:
            break
    assert resident(library) == 0
    with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert len({mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE)}) > 1
        assert page_cache.evict(str(library)) >= 0.9


def test_the_files_that_a_process_executes() -> None:
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert program.stdin is not None
        path, deadline = str(Path(sys.executable).resolve()), time.monotonic() + 30
        while (found := page_cache.executed_files([program.pid])).get(path, 0) <= 10**5:  # it is starting
            assert program.poll() is None
            assert time.monotonic() < deadline, found
        assert all(0 <= used <= Path(each).stat().st_size + 2**16 for each, used in found.items())
    finally:
        program.communicate(b"\n")


def test_the_files_of_a_container_by_their_paths_outside(tmp_path: Path) -> None:
    bwrap = tool("bwrap")
    if subprocess.run([bwrap, "--bind", "/", "/", "true"], capture_output=True).returncode:
        pytest.skip("bubblewrap does not work here")
    copy = tmp_path / "tree with space" / "sleep"
    copy.parent.mkdir()
    shutil.copy(shutil.which("sleep") or "", copy)
    mounts = ["--bind", "/", "/", "--tmpfs", "/mnt", "--ro-bind", str(copy.parent), "/mnt/bin"]
    program = subprocess.Popen([bwrap, *mounts, "/mnt/bin/sleep", "30"])
    try:
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        pids = [program.pid]
        while str(copy) not in page_cache.executed_files(pids):
            assert program.poll() is None
            pids = [program.pid, *map(int, children.read_text().split())]
    finally:
        program.kill()
        program.wait()


def test_a_run_gets_new_layouts(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study()
    store.run(study.id).mkdir(parents=True)
    files = [[tmp_path / f"{arm}.so", tmp_path / "common.so"] for arm in "ab"]
    for path in {each for arm in files for each in arm}:
        path.write_bytes(bytes(MIB))
    (tmp_path / "link.so").hardlink_to(files[0][0])
    rare = tmp_path / "rare.so"
    rare.write_bytes(bytes(8 * MIB))
    used = [{str(each): MIB // 2 for each in arm} for arm in files]
    used[0][str(rare)] = 4096
    redrawing.keep_files(store, study, used)
    assert redrawing.redraw(store, study, 0) is None

    read: list[str] = []
    monkeypatch.setattr(page_cache, "read_in_order", read.append)
    monkeypatch.setattr(page_cache, "evict", lambda path: 0.25 if "b.so" in path else 0.0)
    found = redrawing.redraw(store, study, 1)
    assert found is not None
    assert [(each.files, each.bytes, each.own_bytes, each.stayed_bytes) for each in found] == [
        (2, 2 * MIB, MIB // 2 + 4096, 4096),
        (2, 2 * MIB, MIB // 2, MIB // 8),
    ]
    assert len(read) == len(set(read)) == 3
    first = {0: "a.so", 1: "b.so"}[turns.layouts(study, 1)[0]]
    assert first in {Path(each).name for each in read[:2]}
    keeping = msgspec.structs.replace(study, job=make_job(prove=ProveRequest(layout="kept")))
    assert redrawing.redraw(store, keeping, 1) is None


def test_a_file_that_one_arm_uses_a_little_is_read_for_the_other(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever arm is read first: it was evicted."""
    study = make_study()
    store.run(study.id).mkdir(parents=True)
    own, shared = tmp_path / "own.so", tmp_path / "shared.so"
    own.write_bytes(bytes(MIB))
    shared.write_bytes(bytes(8 * MIB))
    redrawing.keep_files(store, study, [{str(own): MIB, str(shared): 4096}, {str(shared): 8 * MIB}])
    for run in range(1, 5):
        read: list[str] = []
        monkeypatch.setattr(page_cache, "read_in_order", read.append)
        assert redrawing.redraw(store, study, run) is not None
        assert sorted(read) == [str(own), str(shared)]
    assert {turns.layouts(study, run)[0] for run in range(1, 5)} == {0, 1}


def test_an_arm_without_known_files_keeps_the_layouts_of_all(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study()
    store.run(study.id).mkdir(parents=True)
    (tmp_path / "own.so").write_bytes(bytes(MIB))
    monkeypatch.setattr(page_cache, "evict", lambda _: pytest.fail("evicted"))
    for first in ({str(tmp_path / "gone.so"): MIB}, {}):
        redrawing.keep_files(store, study, [first, {str(tmp_path / "own.so"): MIB}])
        found = redrawing.redraw(store, study, 1) or []
        assert [each.files for each in found] == [0, 0]
    records = [msgspec.structs.replace(each, layout=found[0]) for each in make_records(study)]
    text = "stayed as they were: the files of at least one arm were not found"
    report = report_of(study, records)
    assert all(text in each for each in (method.text(report), str(report.compared[0].analysis.notes)))


def test_a_value_that_never_varies_is_no_speed() -> None:
    inference = measures.Inference(margin=0.02, confidence=0.95, positions=((0, 1), (1, 0)) * 4, between=0.01)
    assert inference.between_of([0.0] * 8, "images/s") == 0
    assert inference.between_of([0.0, 0.1] * 4, "images/s") == 0.01
    assert inference.between_of([0.0, 0.1] * 4, "bytes") == 0
