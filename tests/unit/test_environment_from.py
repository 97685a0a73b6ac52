"""`environment_from` in a job of a scheduler: by a private file, whatever the values are."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import make_job, make_site
from odd_values import ODD, SHOW, shown
from tools import completed_bytes, executable, tool
from watch import wait_until

from bareboat import registry
from bareboat.model import JobState, Outcome, SchedulerFacts, Scheduling, Topology
from bareboat.model.sweep import Sweep
from bareboat.plan import plan
from bareboat.runs import creation, environment, interaction, removal, state, submission, sweeps
from bareboat_base import execute
from bareboat_images.store import Store

#: Each scheduler, its facts, and how its job knows itself.
JOBS: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("slurm", {}, {"SLURM_JOB_ID": "17"}),
    ("gridengine", {}, {"JOB_ID": "17", "SGE_TASK_ID": "undefined"}),
    ("pbs", {"flavour": "pro"}, {"PBS_JOBID": "17.srv"}),
    ("pbs", {"flavour": "torque"}, {"PBS_JOBID": "17.srv"}),
    ("pbs", {"flavour": "front"}, {"SLURM_JOB_ID": "17"}),
    ("flux", {}, {"FLUX_JOB_ID": "17"}),
]


@pytest.fixture(autouse=True)
def values(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ODD.items():
        monkeypatch.setenv(name, value)


def begun(
    store: Store,
    folder: Path,
    *,
    scheduler: str = "slurm",
    settings: dict[str, str] | None = None,
    **more: Any,
) -> str:
    """A run whose script is written, as before its submission."""
    site = make_site(schedulers=(SchedulerFacts(name=scheduler, version="1", settings=settings or {}),))
    job = make_job(
        scheduler=scheduler, engine="native", workdir=str(folder), topology=Topology(), walltime_s=60,
        environment_from=tuple(ODD), **{"command": (sys.executable, "-c", SHOW), **more},
    )  # fmt: skip
    make = creation.make_sweep if "sweep" in more else creation.begin
    return make(store, plan(job, None, None, site), site).run_id


def script(store: Store, run: str) -> Path:
    at_top = store.run(run) / "job.sh"
    return at_top if at_top.exists() else submission.control_folder(store, run) / "job.sh"


def start(store: Store, run: str, variables: dict[str, str], path: str = "/usr/bin:/bin") -> int:
    """The exit code of the script, whose environment has none of the values."""
    done = completed_bytes([tool("bash"), script(store, run)], env={"PATH": path, **variables})
    assert (done.stdout, done.stderr) == (b"", b"")
    return done.returncode


def file_of(store: Store, run: str) -> Path:
    return script(store, run).with_name(environment.FILE)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: "-".join([job[0], *job[1].values()]))
def test_odd_values_reach_the_command_of_each_scheduler_s_job(
    job: tuple[str, dict[str, str], dict[str, str]], store: Store, tmp_path: Path
) -> None:
    name, settings, variables = job
    run = begun(store, tmp_path, scheduler=name, settings=settings)
    file = file_of(store, run)
    assert file.stat().st_mode & 0o777 == 0o600
    assert store.run(run).stat().st_mode & 0o777 == 0o700
    assert start(store, run, variables) == 0
    assert shown(submission.output_log(store, run).read_text()) == ODD
    assert not file.exists()
    directives = [line for line in script(store, run).read_text().splitlines() if line.startswith("#")]
    assert not [line for line in directives if "ODD_" in line or "--export" in line]


def test_the_submit_command_sees_none_of_the_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def submits(argv: tuple[str, ...], *, environment: dict[str, str], **_: Any) -> Outcome:
        seen.append(environment)
        return Outcome(argv=argv, exit_code=0, stdout="17\n", stderr="", wall_s=0.0)

    monkeypatch.setattr(execute, "run", submits)
    job = make_job(scheduler="slurm", environment_from=tuple(ODD))
    creation.give_to(registry.scheduler("slurm"), job, tmp_path / "job.sh", "log")
    assert seen
    assert not seen[0].keys() & ODD.keys()
    assert "PATH" in seen[0]


AGAIN = (
    f"import os; first = not os.path.exists('seen'); open('seen', 'w'); {SHOW}; sys.exit(75 if first else 0)"
)


def test_a_start_that_the_job_requests_has_them_and_the_log_keeps_both(store: Store, tmp_path: Path) -> None:
    run = begun(store, tmp_path, command=(sys.executable, "-c", AGAIN))
    executable(tmp_path / "scontrol", "#!/bin/sh\n")
    variables, path = {"SLURM_JOB_ID": "17"}, f"{tmp_path}:/usr/bin:/bin"
    assert start(store, run, variables, path) == 75
    assert file_of(store, run).exists()
    assert start(store, run, variables, path) == 0
    before, _, after = submission.output_log(store, run).read_text().partition("bareboat: start 2 on ")
    assert shown(before) == shown(after) == ODD
    assert not file_of(store, run).exists()


@pytest.mark.parametrize("requeue", [True, False])
def test_a_job_that_is_terminated_has_them_again_only_if_it_may_start_again(
    requeue: bool, store: Store, tmp_path: Path
) -> None:
    run = begun(store, tmp_path, command=("sleep", "60"), scheduling=Scheduling(requeue=requeue))
    process = subprocess.Popen(
        [tool("bash"), script(store, run)], env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "17"}
    )
    try:
        assert wait_until(lambda: execute_has_begun(store.mark(run)))
        assert file_of(store, run).exists() == requeue, "read once"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    finally:
        process.kill()
    assert file_of(store, run).exists() == requeue


def execute_has_begun(mark: str) -> bool:
    return any(execute.processes_of(mark))


def test_the_last_point_of_a_sweep_removes_them(store: Store, tmp_path: Path) -> None:
    run = begun(store, tmp_path, sweep=Sweep(names=("lr",), points=(("1",), ("2",))))
    for index in ("1", "0"):
        assert file_of(store, run).exists()
        variables = {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": index}
        assert start(store, run, variables) == 0
        assert shown(submission.output_log(store, f"{run}.{index}").read_text()) == ODD
    assert not file_of(store, run).exists()


@pytest.mark.parametrize("way", ["status", "cancel", "gc"])
def test_who_finds_a_job_that_never_started_over_removes_them(
    way: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {"squeue": "echo '17|PENDING|Resources|'", "sacct": "", "scancel": "", "sbatch": "echo 17"}
    for name, body in programs.items():
        executable(tmp_path / name, f"#!/bin/sh\n{body}\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    run = begun(store, tmp_path)
    made = submission.read(store, run)
    creation.keep_job_id(store, registry.scheduler("slurm"), type(made)(**{**as_dict(made), "job_id": "17"}))
    (status,) = sweeps.look(store, [run])
    removal.remove_values(store)
    assert status.state is JobState.PENDING
    assert file_of(store, run).exists()
    if way == "cancel":
        interaction.cancel(store, run)
    else:
        (tmp_path / "squeue").write_text("#!/bin/sh\necho '17|CANCELLED by 0|None|'\n")
        if way == "gc":
            removal.remove_values(store)
        else:
            state.look(store, [run])
    assert not file_of(store, run).exists()


def as_dict(made: Any) -> dict[str, Any]:
    return {name: getattr(made, name) for name in made.__struct_fields__}


def test_a_script_that_is_submitted_by_hand_has_them_from_its_environment(
    store: Store, tmp_path: Path
) -> None:
    run = begun(store, tmp_path)
    file_of(store, run).unlink()
    done = subprocess.run(
        [tool("bash"), script(store, run)], env={**os.environ, "SLURM_JOB_ID": "17"}, check=False
    )
    assert done.returncode == 0
    assert shown(submission.output_log(store, run).read_text()) == ODD
