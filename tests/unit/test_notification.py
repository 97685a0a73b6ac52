"""Notifications: in job files, flags, directives, job scripts, and at the end of runs on this machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import forked
import pytest
from builders import make_image, make_job, make_rootfs, make_site

from bareboat import registry, render
from bareboat.model import Plan, Topology
from bareboat.plan import plan
from bareboat_base.errors import PlanError, UsageError


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    tell = tmp_path / "tell.sh"
    tell.write_text(
        '#!/bin/sh\nenv | grep ^BAREBOAT_NOTIFY | sort >> told; echo "$@" >> told; exit ${CODE-0}\n'
    )
    tell.chmod(0o755)
    return tmp_path


def bareboat(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(*words, env=os.environ | environment, timeout_s=60)


def the_run(around: Path) -> Path:
    (found,) = (around / "store" / "runs").iterdir()
    return found


def test_a_command_gets_the_run_its_state_and_its_exit_code(around: Path) -> None:
    words = ("run", "-q", "--engine", "native", "--notify", "./tell.sh 'a b'", "--", "sh", "-c", "exit 3")
    done = bareboat(*words)
    assert done.returncode == 3, done.stderr
    run = the_run(around)
    assert (around / "told").read_text().splitlines() == [
        "BAREBOAT_NOTIFY_EXIT_CODE=3", "BAREBOAT_NOTIFY_JOB_ID=", f"BAREBOAT_NOTIFY_RUN={run.name}",
        "BAREBOAT_NOTIFY_STATE=failed", "a b",
    ]  # fmt: skip
    assert (run / "control" / "notification").read_text().startswith("0 ")


def test_its_failure_is_recorded_and_changes_nothing_else(around: Path) -> None:
    (around / "job.toml").write_text('command = ["true"]\nengine = "native"\nnotify = ["./tell.sh"]\n')
    done = bareboat("run", "job.toml", CODE="9")
    assert done.returncode == 0
    assert "the notification failed with exit code 9" in done.stderr
    (found,) = json.loads(bareboat("status", "--json").stdout)
    assert (found["state"], found["exit_code"]) == ("completed", 0)
    assert "exit code 9" in found["notification_failure"]
    assert "the notification failed with exit code 9" in bareboat("status").stdout


def test_a_sweep_is_notified_of_once(around: Path) -> None:
    (around / "job.toml").write_text(
        'command = ["sh", "-c", "exit {code}"]\nengine = "native"\nnotify = ["./tell.sh"]\n'
        "[sweep]\ncode = [0, 5, 6]\n"
    )
    assert bareboat("run", "-q", "job.toml").returncode == 5
    told = (around / "told").read_text()
    assert told.count("BAREBOAT_NOTIFY_RUN") == 1
    assert "EXIT_CODE=5" in told
    assert f"RUN={the_run(around).name}\n" in told


def test_a_command_that_is_not_there_is_refused_before_the_run(around: Path) -> None:
    for given, wanted in (
        ("./tel.sh", "--notify is './tel.sh', which is not a program"),
        ("no-such-program -x", "no-such-program"),
    ):
        done = bareboat("run", "-q", "--engine", "native", "--notify", given, "--", "true")
        assert done.returncode == 2
        assert wanted in done.stderr
    assert not (around / "store" / "runs").exists()
    assert "cannot be split" in bareboat("run", "--notify", "a 'b", "--", "true").stderr


@pytest.mark.parametrize("notify", ["", "post", "a@b c", (), ("",), ("a\0",)])
def test_what_is_no_notification_is_refused(notify: str | tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="notify is"):
        make_job(notify=notify)


def planned(scheduler: str, notify: str | tuple[str, ...]) -> Plan:
    job = make_job(scheduler=scheduler, launcher="ranks", topology=Topology(nodes=2), notify=notify)
    site = make_site(schedulers=(registry.scheduler(scheduler).assumed(job),))
    image = make_image()
    return plan(job, image, make_rootfs(image), site)


@pytest.mark.parametrize(
    ("scheduler", "own", "other"),
    [
        ("slurm", ["#SBATCH --mail-type=END,FAIL"], ["#SBATCH --mail-user=ada@example.org"]),
        ("gridengine", ["#$ -m ea"], ["#$ -M ada@example.org"]),
        ("pbs", ["#PBS -m ae"], ["#PBS -M ada@example.org"]),
        ("lsf", ["#BSUB -N"], ["#BSUB -u ada@example.org"]),
    ],
)
def test_mail_comes_from_the_scheduler(scheduler: str, own: list[str], other: list[str]) -> None:
    mine, yours = planned(scheduler, "mail"), planned(scheduler, "ada@example.org")
    assert set(own) <= set(mine.directives)
    assert not set(other) & set(mine.directives)
    assert {*own, *other} <= set(yours.directives)
    assert "notify()" not in render.script(yours)
    assert any(each.subject == "notification" for each in mine.decisions)


def test_flux_sends_no_mail_and_a_run_on_this_machine_ends_without() -> None:
    with pytest.raises(PlanError, match="Flux sends no mail"):
        planned("flux", "mail")
    image = make_image()
    made = plan(make_job(notify="mail"), image, make_rootfs(image), make_site())
    assert any("only schedulers send mail" in each for each in made.warnings)


@pytest.mark.parametrize("scheduler", ["slurm", "gridengine", "pbs", "lsf", "flux"])
def test_the_script_starts_the_command_on_the_first_node(scheduler: str) -> None:
    text = render.script(planned(scheduler, ("./tell.sh", "it's")))
    assert "notification=(./tell.sh 'it'\"'\"'s')" in text
    assert " notification " in text.split("features=")[1].splitlines()[0]
    without = make_job(scheduler=scheduler, launcher="ranks", topology=Topology(nodes=2))
    site = make_site(schedulers=(registry.scheduler(scheduler).assumed(without),))
    assert "notify()" not in render.script(plan(without, make_image(), make_rootfs(make_image()), site))


def shell(
    folder: Path, name: str, *, points: int = 0, code: str = "7 160"
) -> subprocess.CompletedProcess[str]:
    """The piece of bash at the end of a first part that wrote its exit code."""
    control = folder / (f"points/{name.rpartition('.')[2]}/control" if points else "control")
    control.mkdir(parents=True)
    if code:
        (control / "exit_code").write_text(code + "\n")
    text = (
        f"{render.subject('common')}\nexit_commands=\n"
        f"BAREBOAT_RUN={name} BAREBOAT_CONTROL={control} BAREBOAT_JOB=17\n"
        f"notification=(./tell.sh x) notification_folder={folder} sweep_points={points}\n"
        f"features={' sweep ' if points else ''!r}\n{render.subject('sweep')}\n"
        f"{render.subject('notification')}\nat_exit notify\nexit 7\n"
    )
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)


def test_the_shell_keeps_the_exit_code_and_the_command_s_failure(
    around: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODE", "4")
    done = shell(around, "r-1")
    assert done.returncode == 7
    assert "the notification failed with exit code 4" in done.stderr
    assert (around / "control" / "notification").read_text().startswith("4 ")
    told = (around / "told").read_text()
    assert "BAREBOAT_NOTIFY_RUN=r-1\nBAREBOAT_NOTIFY_STATE=failed\nx\n" in told
    assert "JOB_ID=17" in told


def test_a_requeued_job_has_not_ended(around: Path) -> None:
    assert shell(around, "r-1", code="").returncode == 7
    assert not (around / "told").exists()


def test_the_last_point_of_a_sweep_notifies(around: Path) -> None:
    for number, code in ((1, "0 160"), (0, "5 160"), (2, "143 160")):
        assert not (around / "told").exists()
        shell(around, f"r-1.{number}", points=3, code=code)
    told = (around / "told").read_text()
    assert told.count("NOTIFY_RUN=r-1\n") == 1
    assert "EXIT_CODE=5" in told
    assert (around / "notification").read_text().startswith("0 ")
