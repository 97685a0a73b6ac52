"""`bareboat prove` on real processes and a real container, from the command line to the report."""

import json
import os
import subprocess
import sys

import pytest
from processes import environment
from trainings import Project, write_job, write_training

from bareboat.model import Layout, Record, Study
from bareboat_study import analysis, matrix

pytestmark = pytest.mark.thorough


def the_study(project: Project) -> tuple[Study, list[Record]]:
    found, (records,) = project.study()
    (study,) = matrix.points(project.store, found)
    return study, records


def test_a_metered_job_is_compared_in_turns_and_reported(project: Project) -> None:
    write_training(project.folder)
    job = write_job(project.folder, repeats=3, goals="{ test_accuracy = 0.97 }")
    code, out, err = project.prove(job)
    assert code == 0, err
    study, records = the_study(project)
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
    page = (project.folder / "report.html").read_text()
    assert analysis.analyse(study, records).sentence in out
    assert study.whole in page
    assert "goal test_accuracy >= 0.97 reached" in out


def test_a_slowdown_by_half_in_one_arm_is_called_different(project: Project) -> None:
    write_training(project.folder, slower=0.50, steps=250, work=80_000)
    code, out, err = project.prove(write_job(project.folder, repeats=6))
    assert code == 0, err
    study, records = the_study(project)
    found = analysis.analyse(study, records)
    assert found.comparison.ratio < 0.97
    # On a busy machine the runs alone may differ from those in turns, and then there is no verdict.
    verdict = "undecided" if found.withheld else "different"
    assert found.comparison.verdict.value == verdict
    assert found.qualified(f"{verdict}: ") in out


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


def test_a_slow_loader_is_not_hidden_by_the_pauses(project: Project) -> None:
    """An arm that waits must not fill its queue: its steps would take 10 ms in both arms."""
    (project.folder / "train.py").write_text(LOADER)
    code, _, err = project.prove(write_job(project.folder, repeats=2, window_s=0.2))
    assert code == 0, err
    study, records = the_study(project)
    found = analysis.analyse(study, records)
    assert found.comparison.ratio < 0.85
    assert any("Alone / in turns, 2 runs of each arm" in note for note in found.notes)


def test_a_training_that_diverges_is_a_study_with_that_result(project: Project) -> None:
    write_training(project.folder, extra="meter.result(loss=float('nan') if step >= 120 else 1.0)")
    job = write_job(project.folder, repeats=2, goals="{ loss = 0.1 }")
    code, out, err = project.prove(job)
    assert code == 0, err
    assert "the training diverged: loss: not finite from step 120 in 2 of 2 runs of both arms" in out
    assert "goal loss >= 0.1 NOT reached by bare metal: not finite in 2 of 2 runs" in " ".join(out.split())
    study, records = the_study(project)
    assert {record.results["loss"] for record in records} == {"nan"}
    (project.folder / "report.html").unlink()
    again = project.prove("--resume", study.whole)
    assert again[0] == 0, again[2]
    assert "training diverged" in (project.folder / "report.html").read_text()


def test_a_goal_that_nothing_reports_ends_a_study_with_its_warm_up(project: Project) -> None:
    write_training(project.folder)
    job = write_job(project.folder, repeats=2, goals="{ accuracy = 0.9 }")
    code, out, err = project.prove(job)
    assert (code, out) == (1, "")
    assert "warning: 2 runs are too few to decide" in err
    assert "the run reported no result 'accuracy', which is a goal" in err
    assert "its results: test_accuracy" in err
    assert not (project.folder / "report.html").exists()


def test_a_goal_without_a_meter_or_metric_is_refused_after_the_first_arm(project: Project) -> None:
    (project.folder / "plain.py").write_text("open('arms', 'a').write('x')\n")
    code, _, err = project.prove("--set", "prove.goals={loss=1}", "--", "python", "plain.py")
    assert code == 1
    assert "the run reported no result 'loss', which is a goal" in err
    assert (project.folder / "arms").read_text() == "x"


def test_bare_metal_against_itself_is_not_called_different(project: Project) -> None:
    """At a confidence of 99.9 %, so this fails by chance in one of 1,000 times, as the study promises."""
    write_training(project.folder)
    job = write_job(project.folder, repeats=5, confidence=0.999)
    code, _, err = project.prove("--engine", "native", job)
    assert code == 0, err
    study, records = the_study(project)
    assert [arm.engine for arm in study.arms] == ["native", "native"]
    assert study.arms[0].name != study.arms[1].name
    assert analysis.analyse(study, records).comparison.verdict.value != "different"


def test_any_command_without_a_meter_is_compared_by_wall_time_and_memory(project: Project) -> None:
    assert "BAREBOAT_STORE" in environment(project.store.root)
    (project.folder / "plain.py").write_text(
        "import os\nx = bytearray(30_000_000)\nsum(range(3_000_000))\n"
        "assert 'BAREBOAT_STORE' not in os.environ\n"
    )
    code, out, err = project.prove("--repeats", "3", "--json", "--", "python", "plain.py")
    assert code == 0, err
    ((found,),) = (each["points"] for each in json.loads(out)["contrasts"])
    metrics = {metric["name"]: metric for metric in found["metrics"]}
    assert set(metrics) == {"wall time", "peak memory", "CPU time"}
    assert metrics["wall time"]["primary"]
    assert len(metrics["wall time"]["baseline"]) == 3
    assert min(metrics["peak memory"]["contender"]) > 30_000_000
    # The files of the arm that started first are known, too.
    study = project.store.run(json.loads(out)["study"])
    files = json.loads((study / "points/0/executed.json").read_bytes())
    assert [any("python" in path for path in arm) for arm in files] == [True, True]


#: Works, and keeps that it did, where nothing keeps it already.
RESUMES = """
import os, time
if not os.path.exists("checkpoint"):
    while time.process_time() < 1.5:
        pass
    open("checkpoint", "w").close()
"""


def test_a_program_that_resumes_is_not_measured_unless_each_run_is_its_own(project: Project) -> None:
    plain = project.folder / "plain.py"
    plain.write_text(RESUMES)
    code, out, err = project.prove("--repeats=2", "--", "python", "plain.py")
    assert (code, "in the working directory (checkpoint), and finds" in " ".join(err.split())) == (0, True), (
        err
    )
    assert "undecided: all runs do less than half the work of the first one" in out
    assert "Each run writes in the working directory" in (project.folder / "report.html").read_text()
    (project.folder / "checkpoint").unlink()
    elsewhere = f'cd "$BAREBOAT_RUN_DIR" && exec python {plain}'
    code, out, err = project.prove("--repeats=2", "--", "sh", "-c", elsewhere)
    assert (code, "in the working directory" in err, "all runs do less" in out) == (0, False, False), err


def test_a_training_that_resumes_at_its_end_stops_after_the_third_run(project: Project) -> None:
    script = write_training(project.folder)
    text = script.read_text().replace("range(300)", "range(os.path.exists('done') and 300, 300)")
    script.write_text(text + "open('done', 'w').close()\n")
    code, _, err = project.prove(write_job(project.folder, repeats=8))
    assert (code, "the first 3 runs after the warm-up failed" in err) == (1, True), err
    assert "the training ends in its first window, unlike the warm-up: the program probably resumed" in err
    assert {record.run for record in project.study()[1][0]} == {0, 1, 2, 3}


def test_a_command_that_is_no_python_is_captured_with_it(project: Project) -> None:
    code, _, err = project.prove("--repeats", "2", "--", "gzip", "--version")
    assert code == 0, err


def test_the_report_can_be_written_again_from_the_records(project: Project) -> None:
    write_training(project.folder)
    code, out, _ = project.prove(write_job(project.folder, repeats=2))
    assert code == 0
    study, _ = the_study(project)
    first = (project.folder / "report.html").read_bytes()
    code, again, _ = project.do("report", study.whole, "-o", "again.html")
    assert code == 0
    assert (project.folder / "again.html").read_bytes() == first
    assert out.splitlines()[:-1] == again.splitlines()[:-1]


def test_the_script_of_the_plan_runs_without_bareboat(project: Project) -> None:
    write_training(project.folder, extra="open('steps', 'a').write('x')")
    job = write_job(project.folder)
    code, script, err = project.do("plan", "--prepare", "--python", project.python, "--script", job)
    assert code == 0, err
    (project.folder / "job.sh").write_text(script)
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"]}
    assert subprocess.run(["bash", "job.sh"], cwd=project.folder, env=bare, check=False).returncode == 0
    assert (project.folder / "steps").read_text() == "x" * 300
    assert sys.executable not in script
