"""`bareboat prove` on real processes and a real container, from the command line to the report."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import bareboat, environment, left_after
from trainings import make_small_environment, write_job, write_training

from bareboat.model import Layout, Record, Study
from bareboat_images.store import Store
from bareboat_study import analysis, matrix, point_runs

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small environment and a store that the tests of this file share: it is captured once."""
    folder = tmp_path_factory.mktemp("prove")
    make_small_environment(folder / "env")
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A folder of its own for each test; afterwards no process of it may be left."""
    yield tmp_path
    assert left_after(tmp_path.name) == []


def do(place: Path, work: Path, *arguments: str | Path) -> tuple[int, str, str]:
    python = place / "env/bin/python"
    return bareboat("prove", "--python", python, *arguments, store=place / "store", cwd=work)


def the_study(place: Path, name: str) -> tuple[Study, list[Record]]:
    store = Store(place / "store")
    (run_id,) = [run for run in store.runs() if run.startswith(name + "-")]
    (study,) = matrix.points(store, matrix.read(store, run_id))
    return study, point_runs.read_records(store, study)


def test_a_metered_job_is_compared_in_turns_and_reported(place: Path, work: Path) -> None:
    write_training(work)
    job = write_job(work, name=work.name, repeats=3, goals="{ test_accuracy = 0.97 }")
    code, out, err = do(place, work, job)
    assert code == 0, err
    study, records = the_study(place, work.name)
    assert [(r.run, r.arm, r.warm_up) for r in records] == [
        (run, arm.name, run == 0) for run in range(4) for arm in study.arms
    ]
    for record in records:
        assert record.exit_code == 0
        assert record.results == {"test_accuracy": 0.98}
        assert record.phases is not None
        assert record.phases.process_start_s > 0
        assert record.phases.steady_s > 0
        assert record.peak_memory_bytes > 10**6
        assert record.samples_per_step == 8
        for window in record.windows:
            # More processor time than time would be counted of other processes.
            assert 0 < window.cpu_s < sum(window.step_s) + 0.01
        assert isinstance(record.layout, Layout) is not record.warm_up
        if not record.warm_up:
            assert record.layout.files > 0
            assert all(len(w.step_s) == study.steps_per_window for w in record.windows)
            assert study.steps_per_window is not None
            assert len(record.windows) == (300 - 1) // study.steps_per_window
    blocks = [{w.block for w in r.windows} for r in records]
    assert blocks[2] == blocks[3]
    page = (work / "report.html").read_text()
    assert analysis.analyse(study, records).sentence in out
    assert study.whole in page
    assert "goal test_accuracy >= 0.97 reached" in out


def test_the_arms_take_turns_and_never_train_at_once(place: Path, work: Path) -> None:
    write_training(work)
    assert do(place, work, write_job(work, name=work.name, repeats=2))[0] == 0
    study, records = the_study(place, work.name)
    for run in (1, 2):
        spans = sorted(
            (w.began_s, w.began_s + sum(w.step_s), r.arm, w.block)
            for r in records
            if r.run == run
            for w in r.windows
        )
        for (_, end, *_), (begin, *_) in itertools.pairwise(spans):
            assert begin >= end
        firsts = {block: arm for _, _, arm, block in reversed(spans)}
        expected = {block: study.arms[_first(study, run, block)].name for block in firsts}
        assert firsts == expected


def _first(study: Study, run: int, block: int) -> int:
    from bareboat_study.turns import windows

    return windows(study, run, block)[0]


def test_a_slowdown_of_20_percent_in_one_arm_is_called_different(place: Path, work: Path) -> None:
    write_training(work, slower=0.20, steps=400, work=120_000)
    code, out, err = do(place, work, write_job(work, name=work.name, repeats=6))
    assert code == 0, err
    found = analysis.analyse(*the_study(place, work.name)).comparison
    assert found.verdict.value == "different"
    assert found.ratio < 0.97
    assert "different: throughput of" in out


#: Steps of 10 ms take an item of a queue of 16. A thread fills it every 5 ms; in a container, every 14 ms.
LOADER = """
import os, queue, threading, time
import bareboat_meter

items = queue.Queue(16)


def fill():
    while True:
        time.sleep(0.014 if "BAREBOAT_IMAGE" in os.environ else 0.005)
        items.put(0)


threading.Thread(target=fill, daemon=True).start()
meter = bareboat_meter.Meter()
meter.start()
for _ in range(200):
    items.get()
    time.sleep(0.010)
    meter.step()
meter.close()
"""


def test_a_slow_loader_is_not_hidden_by_the_pauses(place: Path, work: Path) -> None:
    """An arm that waits must not fill its queue: its steps would take 10 ms in both arms."""
    (work / "train.py").write_text(LOADER)
    code, _, err = do(place, work, write_job(work, name=work.name, repeats=2, window_s=0.2))
    assert code == 0, err
    study, records = the_study(place, work.name)
    found = analysis.analyse(study, records)
    assert found.comparison.ratio < 0.85
    assert any("Alone / in turns, 2 runs of each arm" in note for note in found.notes)


def test_a_training_that_diverges_is_a_study_with_that_result(place: Path, work: Path) -> None:
    write_training(work, extra="meter.result(loss=float('nan') if step >= 120 else 1.0)")
    job = write_job(work, name=work.name, repeats=2, goals="{ loss = 0.1 }")
    code, out, err = do(place, work, job)
    assert code == 0, err
    assert "the training diverged: loss: not finite from step 120 in 2 of 2 runs of both arms" in out
    assert "goal loss >= 0.1 NOT reached by bare metal: not finite in 2 of 2 runs" in " ".join(out.split())
    study, records = the_study(place, work.name)
    assert {record.results["loss"] for record in records} == {"nan"}
    (work / "report.html").unlink()
    again = do(place, work, "--resume", study.whole)
    assert again[0] == 0, again[2]
    assert "training diverged" in (work / "report.html").read_text()


def test_a_goal_that_nothing_reports_ends_a_study_with_its_warm_up(place: Path, work: Path) -> None:
    write_training(work)
    job = write_job(work, name=work.name, repeats=2, goals="{ accuracy = 0.9 }")
    code, out, err = do(place, work, job)
    assert (code, out) == (1, "")
    assert "warning: 2 runs are too few to decide" in err
    assert "the script reports no result 'accuracy', which is a goal; did you mean 'test_accuracy'?" in err
    assert "the run reported no result 'accuracy', which is a goal" in err
    assert "its results: test_accuracy" in err
    assert not (work / "report.html").exists()


def test_a_goal_without_a_meter_or_metric_is_refused_after_the_first_arm(place: Path, work: Path) -> None:
    (work / "plain.py").write_text("open('arms', 'a').write('x')\n")
    code, _, err = do(place, work, "--set", "prove.goals={loss=1}", "--", "python", "plain.py")
    assert code == 1
    assert "the run reported no result 'loss', which is a goal" in err
    assert (work / "arms").read_text() == "x"


def test_bare_metal_against_itself_is_not_called_different(place: Path, work: Path) -> None:
    """At a confidence of 99.9 %, so this fails by chance in one of 1,000 times, as the study promises."""
    write_training(work)
    job = write_job(work, name=work.name, repeats=5, confidence=0.999)
    code, _, err = do(place, work, "--engine", "native", job)
    assert code == 0, err
    study, records = the_study(place, work.name)
    assert [arm.engine for arm in study.arms] == ["native", "native"]
    assert study.arms[0].name != study.arms[1].name
    assert analysis.analyse(study, records).comparison.verdict.value != "different"


def test_any_command_without_a_meter_is_compared_by_wall_time_and_memory(place: Path, work: Path) -> None:
    (work / "plain.py").write_text("x = bytearray(30_000_000)\nsum(range(3_000_000))\nprint('done')\n")
    code, out, err = do(place, work, "--repeats", "3", "--json", "--", "python", "plain.py")
    assert code == 0, err
    ((found,),) = (each["points"] for each in json.loads(out)["contrasts"])
    metrics = {metric["name"]: metric for metric in found["metrics"]}
    assert set(metrics) == {"wall time", "peak memory", "CPU time"}
    assert metrics["wall time"]["primary"]
    assert len(metrics["wall time"]["baseline"]) == 3
    assert min(metrics["peak memory"]["contender"]) > 30_000_000


def test_a_command_that_is_no_python_is_captured_with_it(place: Path, work: Path) -> None:
    code, _, err = do(place, work, "--repeats", "2", "--", "gzip", "--version")
    assert code == 0, err


def test_a_dry_run_plans_both_arms_and_runs_nothing(place: Path, work: Path) -> None:
    write_training(work, extra="open('touched', 'w')")
    code, out, _ = do(place, work, "--dry-run", write_job(work, name=work.name))
    assert code == 0
    assert "native" in out
    assert "bubblewrap" in out
    assert not (work / "touched").exists()
    assert not (work / "report.html").exists()


def test_the_report_can_be_written_again_from_the_records(place: Path, work: Path) -> None:
    write_training(work)
    code, out, _ = do(place, work, write_job(work, name=work.name, repeats=2))
    assert code == 0
    study, _ = the_study(place, work.name)
    first = (work / "report.html").read_bytes()
    code, again, _ = bareboat(
        "report", study.whole, "-o", work / "again.html", store=place / "store", cwd=work
    )
    assert code == 0
    assert (work / "again.html").read_bytes() == first
    assert out.splitlines()[:-1] == again.splitlines()[:-1]


def test_the_script_of_the_plan_runs_without_bareboat(place: Path, work: Path) -> None:
    write_training(work, extra="open('steps', 'a').write('x')")
    job = write_job(work, name=work.name)
    code, script, err = bareboat(
        "plan",
        "--prepare",
        "--python",
        place / "env/bin/python",
        "--script",
        job,
        store=place / "store",
        cwd=work,
    )
    assert code == 0, err
    (work / "job.sh").write_text(script)
    import subprocess

    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"]}
    assert subprocess.run(["bash", "job.sh"], cwd=work, env=bare, check=False).returncode == 0
    assert (work / "steps").read_text() == "x" * 300
    assert sys.executable not in script


def test_environment_of_the_caller_does_not_reach_the_command(place: Path, work: Path) -> None:
    assert "BAREBOAT_STORE" in environment(place / "store")
    (work / "env.py").write_text("import os, sys\nsys.exit('BAREBOAT_STORE' in os.environ)\n")
    code, _, err = do(place, work, "--repeats", "2", "--", "python", "env.py")
    assert code == 0, err
