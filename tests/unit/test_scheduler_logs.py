"""What a scheduler writes about a job: apart from the job's output, and shown as its own."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
from builders import make_job, make_site
from tools import executable, tool

from bareboat import registry
from bareboat.cli import main
from bareboat.model import JobState, SchedulerFacts, Scheduling, Topology
from bareboat.model.sweep import Sweep
from bareboat.plan import plan
from bareboat.runs import creation, state, submission
from bareboat_images.store import Store

SAYS = {
    "squeue": "echo '17|TIMEOUT|TimeLimit|c1'",
    "sacct": "",
    "sbatch": 'for word; do case $word in --output=*) echo "$word" >> "$0.log" ;; esac; done; echo 17',
}


@pytest.fixture
def run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in SAYS.items():
        executable(programs / name, f"#!/bin/sh\n{body}\n")
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(state, "_SETTLE_S", 0.1)
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    job = make_job(
        scheduler="slurm", engine="native", workdir=str(tmp_path), topology=Topology(),
        command=("echo", "out of the job"),
    )  # fmt: skip
    return creation.submit(store, plan(job, None, None, site), site).run_id


def test_the_script_appends_to_its_log_and_the_scheduler_gets_another_file(
    run: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = store.run(run)
    assert (tmp_path / "bin/sbatch.log").read_text() == f"--output={folder}/scheduler.log\n"
    (folder / "scheduler.log").write_text("slurmstepd: error: a note \x1b[31m\n\n")
    job = [tool("bash"), str(folder / "control/job.sh")]
    for _ in range(2):
        done = subprocess.run(job, env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    log = (folder / "output.log").read_text()
    assert log.count("out of the job\n") == 2
    assert log.count("bareboat: start 2 on ") == 1
    for more in ([], ["-f"]):
        assert main.main(["logs", "--store", str(store.root), run, *more]) == 0
        out, err = capsys.readouterr()
        assert out == log
        assert "from Slurm: slurmstepd: error: a note ?[31m\n" in err.replace("\\x1b", "?").replace("�", "?")
    assert main.main(["logs", "--json", "--store", str(store.root), run]) == 0
    lines = [json.loads(line)["line"] for line in capsys.readouterr().out.splitlines()]
    assert lines == log.splitlines()


def test_what_the_scheduler_wrote_tells_the_cause(run: str, store: Store) -> None:
    folder = store.run(run)
    (folder / "control/starts").write_text("100 c1 17\n")
    (folder / "output.log").write_text("step 3\n")
    line = "slurmstepd: error: *** JOB 17 ON c1 CANCELLED AT 2026-11-27T01:00:00 DUE TO TIME LIMIT ***"
    (folder / "scheduler.log").write_text(f"{line}\n")
    (folder / "control/exit_code").write_text("143 160\n")
    (status,) = state.look(store, [run])
    assert status.end is not None
    assert (status.state, line in status.end.text) == (JobState.TIMEOUT, True)


@pytest.mark.parametrize(
    ("scheduler", "pattern", "names"),
    [
        ("slurm", "/s%%/log.%a", ("/s%/log.3",)),
        ("gridengine", "/s%/log.$TASK_ID", ("/s%/log.4",)),
        ("pbs", "/s%/log.^array_index^", ("/s%/log.3", "/s%/log.^array_index^-3")),
        ("flux", "/s%/log", ()),
    ],
)
def test_each_element_of_an_array_has_a_file_of_its_own(
    scheduler: str, pattern: str, names: tuple[str, ...]
) -> None:
    found = registry.scheduler(scheduler)
    assert found.log_pattern("/s%/log", is_array=True) == pattern
    assert found.element_logs("/s%/log", 3) == names


def test_the_file_of_a_point_is_found(run: str, store: Store, tmp_path: Path) -> None:
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    job = make_job(
        scheduler="slurm", engine="native", workdir=str(tmp_path), topology=Topology(),
        command=("true", "{x}"), sweep=Sweep(names=("x",), points=(("1",), ("2",))),
    )  # fmt: skip
    sweep = creation.submit(store, plan(job, None, None, site), site).run_id
    assert run != sweep
    assert (
        (tmp_path / "bin/sbatch.log").read_text().endswith(f"--output={store.run(sweep)}/scheduler.log.%a\n")
    )
    element = store.run(sweep) / "scheduler.log.1"
    element.write_text("a line\n")
    assert submission.scheduler_logs(store, submission.read(store, f"{sweep}.1")) == [element]
    assert submission.scheduler_logs(store, submission.read(store, f"{sweep}.0")) == []


@pytest.mark.parametrize(
    ("began", "code", "line", "found"),
    [
        (True, "0 160\n", "", (JobState.COMPLETED, 0)),
        (True, "7 160\n", "", (JobState.FAILED, 7)),
        (True, "", "", (JobState.FAILED, 1)),
        (True, "", "=>> PBS: job killed: walltime 62 exceeded limit 60", (JobState.TIMEOUT, 124)),
        (False, "", "", (JobState.FAILED, 1)),
    ],
)
def test_a_job_that_pbs_has_forgotten_ended_as_its_own_files_say(
    began: bool, code: str, line: str, found: tuple[JobState, int], store: Store, run: str, tmp_path: Path
) -> None:
    qstat = tmp_path / "bin/qstat"
    executable(qstat, "#!/bin/sh\necho 'qstat: Unknown Job Id 17.login' >&2\nexit 153\n")
    made = msgspec.structs.replace(submission.read(store, run), scheduler="pbs", job_id="17.login")
    creation.keep_job_id(store, registry.scheduler("pbs"), made)
    folder = store.run(run)
    for name, text in (("starts", "100 c1 17.login\n" if began else ""), ("exit_code", code)):
        if text:
            (folder / "control" / name).write_text(text)
    (folder / "scheduler.log").write_text(f"{line}\n")
    (status,) = state.look(store, [run])
    assert (status.state, status.exit_code) == found
    assert status.over


@pytest.mark.parametrize(
    ("after", "code", "agains", "words"),
    [
        ("17", "7 160\n", "", "it waited for {run}, whose exit code is 7"),
        ("17", "0 160\n", "19.login\n", "it waited for the first job of {run}, which went on as another job"),
        ("19", "7 160\n", "19.login\n", "it waited for {run}, whose exit code is 7"),
        ("19", "0 160\n", "19.login\n", ""),
        (
            "19",
            "0 160\n",
            "19.login\n20.login\n",
            "it waited for an earlier job of {run}, which went on as another job",
        ),
    ],
    ids=["failed", "restarted", "failed as a new job", "succeeded as a new job", "restarted twice"],
)
def test_a_forgotten_job_that_never_started_waited_for_a_run_that_failed(
    after: str, code: str, agains: str, words: str, store: Store, run: str, tmp_path: Path
) -> None:
    qstat = tmp_path / "bin/qstat"
    executable(qstat, "#!/bin/sh\necho 'qstat: Unknown Job Id 18.login' >&2\nexit 153\n")
    made = msgspec.structs.replace(submission.read(store, run), scheduler="pbs", job_id="17.login")
    creation.keep_job_id(store, registry.scheduler("pbs"), made)
    (store.run(run) / "control/exit_code").write_text(code)
    (store.run(run) / "control/agains").write_text(agains)
    site = make_site(schedulers=(SchedulerFacts(name="pbs", version="1", settings={"flavour": "pro"}),))
    job = make_job(
        scheduler="pbs", engine="native", workdir=str(tmp_path), topology=Topology(), command=("true",),
        scheduling=Scheduling(after=(f"{after}.login",)),
    )  # fmt: skip
    later = creation.begin(store, plan(job, None, None, site), site)
    later = msgspec.structs.replace(later, job_id="18.login")
    creation.keep_job_id(store, registry.scheduler("pbs"), later)
    (status,) = state.look(store, [later.run_id])
    assert (status.state is JobState.DEPENDENCY) == bool(words)
    assert words.format(run=run) in status.reason
