"""Whatever stops a study, nothing stays alive, nothing half-made is kept, and it can go on."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from processes import command, left_after, marked
from tools import completed
from trainings import Project, write_job, write_training
from watch import wait_until

from bareboat_study import matrix

pytestmark = pytest.mark.thorough


def nothing_unfinished(project: Project) -> bool:
    folder = project.store.root / "tmp"
    return not folder.exists() or list(folder.iterdir()) == []


def test_killed_often_it_leaves_no_process_and_goes_on_to_the_right_number_of_samples(
    project: Project, tmp_path: Path, exhaustive: bool
) -> None:
    name = tmp_path.name
    write_training(tmp_path, steps=250)
    job = write_job(tmp_path, repeats=4)
    store = project.store
    draw = random.Random(20)
    for _ in range(10 if exhaustive else 4):
        resume = ["--resume"] if project.studies() else []
        running = project.start(*resume, job)
        time.sleep(draw.uniform(0.1, 3.0))
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert left_after(name) == []
        for run_id in project.studies():
            _, (records,) = matrix.measured(store, matrix.read(store, run_id))
            assert len(records) % 2 == 0
    resume = ["--resume"] if project.studies() else []
    code, _, err = project.prove(*resume, job)
    assert code == 0, err
    finished = [matrix.read(store, run) for run in project.studies()]
    study = next(study for study in finished if not matrix.missing(store, study))
    _, (records,) = matrix.measured(store, study)
    assert [(r.run, r.arm) for r in records] == [(run, arm) for run in range(5) for arm in study.arms]
    windows = {len(r.windows) for r in records if not r.warm_up}
    assert min(windows) >= 2
    assert nothing_unfinished(project)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_stops_everything_and_says_how_to_go_on(
    project: Project, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    name = tmp_path.name
    write_training(tmp_path, steps=100_000)
    job = write_job(tmp_path)
    running = project.start(job)
    assert wait_until(lambda: len(marked(name)) >= 2)
    os.killpg(running.pid, number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == code
    assert "bareboat prove --resume " + project.studies()[0] in err
    assert "Traceback" not in out + err
    assert left_after(name, 1) == []
    assert nothing_unfinished(project)


def test_a_rank_that_fails_in_mid_training_is_told_with_its_last_words(
    project: Project, tmp_path: Path
) -> None:
    write_training(tmp_path, extra="step == 60 and (print('out of luck', flush=True), os._exit(9))")
    code, _, err = project.prove(write_job(tmp_path))
    assert code == 9
    assert "ended with exit code 9" in err
    assert "out of luck" in err
    assert "Traceback" not in err
    assert left_after(tmp_path.name, 1) == []


def test_a_script_that_raises_shows_its_own_traceback_and_passes_its_code_on(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("raise RuntimeError('no data here')\n")
    code, _, err = project.prove(write_job(tmp_path))
    assert code == 1
    assert "no data here" in err


def test_a_training_too_short_to_measure_says_so(project: Project, tmp_path: Path) -> None:
    write_training(tmp_path, steps=5)
    code, _, err = project.prove(write_job(tmp_path))
    assert code == 1
    assert "too short to measure" in err
    assert left_after(tmp_path.name, 1) == []


def test_a_training_without_an_end_to_its_meter_says_what_to_call(project: Project, tmp_path: Path) -> None:
    write_training(tmp_path, extra="step == 120 and os._exit(0)")
    code, _, err = project.prove(write_job(tmp_path))
    assert code == 1
    assert "meter.close()" in err or "cut short" in err


def test_a_changed_job_is_not_resumed_as_if_it_were_the_old_one(project: Project, tmp_path: Path) -> None:
    name = tmp_path.name
    write_training(tmp_path, steps=100_000)
    running = project.start(write_job(tmp_path))
    assert wait_until(lambda: len(marked(name)) >= 2)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    changed = write_job(tmp_path, repeats=7)
    for other in (("--", "true"), (changed,)):
        code, _, err = project.prove("--resume", *other)
        assert code == 2
        assert "no study found for this job in its current form" in err


def test_two_bareboats_do_not_work_on_one_study(project: Project, tmp_path: Path) -> None:
    name = tmp_path.name
    write_training(tmp_path, steps=100_000)
    job = write_job(tmp_path)
    running = project.start(job)
    assert wait_until(lambda: len(marked(name)) >= 2)
    code, _, err = project.prove("--resume", project.studies()[0])
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert code == 4
    assert "another bareboat process uses" in err


def test_the_report_folder_is_checked_before_anything_is_measured(project: Project, tmp_path: Path) -> None:
    write_training(tmp_path)
    job = write_job(tmp_path)
    code, _, err = project.prove("-o", tmp_path / "nowhere/report.html", job)
    assert code == 2
    assert f"the directory {tmp_path}/nowhere does not exist" in err
    assert project.studies() == []


def test_a_study_that_does_not_begin_leaves_nothing_of_matplotlib(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MPL"))}
    done = completed(
        command("prove", "no-job.toml"), cwd=tmp_path, env=environment | {"HOME": str(tmp_path / "home")},
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, "no-job.toml not found" in done.stderr) == (2, True), done.stderr
    assert list((tmp_path / "home").iterdir()) == []
