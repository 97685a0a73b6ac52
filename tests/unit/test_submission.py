"""What is made of a run's own files and of what the scheduler says; the queue is a program that tests write.

A fake: `squeue` and `sacct` print a file each, in Slurm's format. The real ones are in tests/cluster.
"""

import contextlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from builders import fake_digest, make_job, make_site
from tools import executable

from bareboat.cli import logs
from bareboat.cli.main import main
from bareboat.model import JobState, SchedulerFacts, Submission, Topology
from bareboat.plan import plan
from bareboat.runs import creation, dependencies, interaction, queries, records, state, submission, sweeps
from bareboat_base import codec
from bareboat_base.errors import BareboatError, PlanError, ToolError, UsageError
from bareboat_images.store import Store, owner

Says = Callable[..., None]


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """Sets what the queue and the accounts answer."""
    programs = tmp_path / "bin"
    programs.mkdir()
    asked = tmp_path / "asked"

    def write(name: str, body: str) -> None:
        executable(programs / name, f'#!/bin/sh\necho "{name} $*" >> {asked}\n{body}\n')

    def answer(squeue: str = "", sacct: str = "", sbatch: str = "echo 17", scancel: str = "true") -> None:
        (tmp_path / "squeue.out").write_text(squeue)
        (tmp_path / "sacct.out").write_text(sacct)
        write("squeue", f"cat {tmp_path}/squeue.out")
        write("sacct", f"cat {tmp_path}/sacct.out")
        write("sbatch", sbatch)
        write("scancel", scancel)

    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(state, "_SETTLE_S", 0.3)
    answer()
    return answer


def asked(tmp_path: Path) -> list[str]:
    path = tmp_path / "asked"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def make(
    store: Store, job_id: str | None = "17", *, starts: str = "", code: str = "", name: str = "train",
    cluster: str = "", submitter: str = "",
) -> str:  # fmt: skip
    run = store.new_run(name)
    folder = store.run(run)
    (folder / "control").mkdir()
    (folder / "ranks").mkdir()
    made = Submission(
        run_id=run, scheduler="slurm", job_id=job_id, name="train", nodes=2, world_size=4, engine="native",
        submitted_at="2026-11-22T03:00:00Z", plan_digest=fake_digest("1"), image_digest=None,
        site_digest=fake_digest("2"), cluster=cluster, submitter=submitter,
    )  # fmt: skip
    store.write(folder / "submission.json", codec.to_json(made))
    if starts:
        (folder / "control" / "starts").write_text(starts)
    if code:
        (folder / "control" / "exit_code").write_text(code)
    return run


def test_a_refused_job_leaves_no_run(store: Store, says: Says, tmp_path: Path) -> None:
    says(sbatch="echo 'sbatch: error: Batch job submission failed: no' >&2; exit 1")
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    job = make_job(scheduler="slurm", engine="native", workdir=str(tmp_path), topology=Topology(nodes=2))
    made = plan(job, None, None, site)
    with pytest.raises(PlanError, match="Slurm rejected the job"):
        creation.submit(store, made, site)
    assert store.runs() == []
    says(sbatch="echo '*** notice 1 ***'; echo 17")
    facts = SchedulerFacts(name="slurm", version="1", settings={"cluster": "here"})
    kept = creation.submit(store, made, make_site(schedulers=(facts,)))
    assert (kept.job_id, kept.cluster) == ("17", "here")
    assert submission.read(store, kept.run_id) == kept
    assert (
        (store.run(kept.run_id) / "control" / "job.sh").read_text().startswith("#!/usr/bin/env bash\n#SBATCH")
    )


def test_a_job_name_with_dots_is_found_as_a_dependency(store: Store, says: Says) -> None:
    says(squeue="21|RUNNING|None|c1\n")
    dotted, plain = make(store, "17", name="lr.0.1"), make(store, "18")
    assert dependencies.job_ids(store, "slurm", [dotted, plain, "21"]) == ("17", "18", "21")
    with pytest.raises(UsageError):
        dependencies.job_ids(store, "slurm", ["lr.0"])


def test_a_dependency_that_is_a_job_s_name_is_its_newest_run(store: Store, says: Says) -> None:
    says(squeue="17|RUNNING|None|c1\n18|RUNNING|None|c1\n19|RUNNING|None|c1\n")
    make(store, "17", name="train")
    newest = make(store, "18", name="train", starts="100 c1 18\n")
    make(store, "30", name="19")
    notes: list[str] = []
    assert dependencies.job_ids(store, "slurm", ["train", "19"], note=notes.append) == ("18", "19")
    assert notes == [f"after {newest} (the newest of train)"]


def test_a_dependency_that_ended_is_none_or_keeps_the_job_from_starting(store: Store, says: Says) -> None:
    open_, done = make(store, "17"), make(store, "18", code="0 160\n")
    failed = make(store, "19", starts="100 c1 19\n", code="7 160\n")
    says(squeue="17|RUNNING|None|c1\n", sacct="19|FAILED|None|c1\n")
    assert dependencies.job_ids(store, "slurm", [open_, done]) == ("17",)
    with pytest.raises(UsageError, match=f"{failed} is failed, so the job would never start"):
        dependencies.job_ids(store, "slurm", [open_, failed])
    says(squeue="17|PENDING|job requeued in held state||\n")
    with pytest.raises(UsageError, match=f"{open_} never starts, and neither would the job") as caught:
        dependencies.job_ids(store, "slurm", [open_])
    assert caught.value.remedy.endswith("scontrol release 17")


def test_a_dependency_that_went_on_as_a_new_job_is_that_job(store: Store, says: Says) -> None:
    says(squeue="20|PENDING|None|\n21|RUNNING|None|c1\n23|RUNNING|None|c1\n")
    requeued, without_id = make(store, "17", starts="100 c1 17\n"), make(store, None, starts="100 c1 21\n")
    (store.run(requeued) / "control/agains").write_text("19\n20\n")
    assert dependencies.job_ids(store, "slurm", [requeued, without_id]) == ("20", "21")


def test_elements_that_went_on_as_new_jobs_are_waited_for_beside_their_array(
    store: Store, says: Says
) -> None:
    says(squeue="17_0|RUNNING|None|c1\n20|RUNNING|None|c1\n")
    run = make(store, "17")
    made = msgspec.structs.replace(submission.read(store, run), points=2)
    store.write(store.run(run) / "submission.json", codec.to_json(made))
    for number in (0, 1):
        control = store.run(f"{run}.{number}") / "control"
        control.mkdir(parents=True)
        (control / "starts").write_text(f"100 c1 17_{number}\n")
    (control / "agains").write_text("20\n")
    assert dependencies.job_ids(store, "slurm", [run]) == ("17", "20")
    assert dependencies.job_ids(store, "slurm", [f"{run}.1"]) == ("20",)


@pytest.mark.usefixtures("says")
def test_a_run_that_is_being_submitted_has_no_job_to_wait_for(store: Store) -> None:
    run = make(store, None, submitter=owner())
    with pytest.raises(UsageError, match=f"{run} is being submitted: slurm has not"):
        dependencies.job_ids(store, "slurm", [run])
    silent = make(store, None)
    with pytest.raises(UsageError, match=f"slurm returned no job ID for {silent}"):
        dependencies.job_ids(store, "slurm", [silent])


def test_an_answer_nobody_understands_leaves_the_run_to_be_looked_for(
    store: Store, says: Says, tmp_path: Path
) -> None:
    says(sbatch="echo thanks")
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    job = make_job(scheduler="slurm", engine="native", workdir=str(tmp_path), topology=Topology(nodes=2))
    with pytest.raises(ToolError, match="returned no job ID"):
        creation.submit(store, plan(job, None, None, site), site)
    (run,) = submission.submitted(store)
    (status,) = state.look(store, [run])
    assert status.state is JobState.UNKNOWN
    with pytest.raises(ToolError, match="returned no job ID"):
        interaction.cancel(store, run)


def test_a_run_is_pending_while_a_process_submits_it(store: Store, says: Says) -> None:
    says(squeue="17|RUNNING|None|c1\n")
    run = make(store, None, submitter=owner())
    (status,) = state.look(store, [run])
    assert (status.state, status.reason) == (
        JobState.PENDING,
        "being submitted: slurm has not returned a job ID yet",
    )
    with pytest.raises(BareboatError, match=f"{run} is being submitted"):
        interaction.cancel(store, run)
    killed = make(store, None, submitter=re.sub(r"-\d+-\d+$", "-4194305-7", owner()))
    (status,) = state.look(store, [killed])
    assert (status.state, status.reason) == (
        JobState.UNKNOWN,
        "it is unknown whether slurm accepted the job: it returned no job ID",
    )


def test_a_job_without_an_id_is_found_by_the_id_that_its_script_wrote(
    store: Store, says: Says, tmp_path: Path
) -> None:
    says(squeue="17|RUNNING|None|c1\n")
    run = make(store, None, starts="100 c1 17\n")
    (status,) = state.look(store, [run])
    assert (status.state, status.nodes) == (JobState.RUNNING, "c1")
    interaction.cancel(store, run)
    assert "scancel 17" in (tmp_path / "asked").read_text()


def test_the_process_that_submits_is_kept_until_there_is_a_job_id(
    store: Store, says: Says, tmp_path: Path
) -> None:
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    job = make_job(scheduler="slurm", engine="native", workdir=str(tmp_path), topology=Topology(nodes=2))
    made = plan(job, None, None, site)
    for answer in ("17", "thanks"):
        says(sbatch=f"cat {store.root}/runs/*/submission.json > {tmp_path}/during; echo {answer}")
        with contextlib.suppress(ToolError):
            creation.submit(store, made, site)
        during = json.loads((tmp_path / "during").read_text())
        assert (during["job_id"], during["submitter"]) == (None, owner())
        (run,) = submission.submitted(store)
        assert submission.read(store, run).submitter == ""
        store.discard(store.run(run))


def test_a_run_of_another_cluster_is_no_job_of_this_one(store: Store, says: Says, tmp_path: Path) -> None:
    """Two clusters with one home directory: the same number is another job of the user here."""
    says(squeue="17|RUNNING|None|c1\n", sacct="18|CANCELLED by 1000|None|c1\n")
    scontrol = tmp_path / "bin" / "scontrol"
    executable(scontrol, '#!/bin/sh\necho "ClusterName             = here"\n')
    queries._known.clear()
    own, other, gone = (
        make(store, cluster="here"),
        make(store, cluster="there"),
        make(store, "18", cluster="there"),
    )
    found = state.look(store, [own, other, gone])
    assert [each.state for each in found] == [JobState.RUNNING, JobState.UNKNOWN, JobState.UNKNOWN]
    assert not (store.run(gone) / "exit_code").exists()
    for act in (interaction.cancel, interaction.attach, sweeps.cancel):
        with pytest.raises(BareboatError, match="is not a run of this cluster"):
            act(store, other)
    with pytest.raises(BareboatError, match="is not a run of this cluster"):
        interaction.wait(store, other, each=lambda _: None)
    with pytest.raises(BareboatError, match="is not a run of this cluster"):
        dependencies.job_ids(store, "slurm", [other])
    assert "scancel" not in asked(tmp_path)
    finished = make(store, cluster="there", code="0 160\n")
    assert state.look(store, [finished])[0].state is JobState.COMPLETED


def test_the_exit_code_file_is_the_truth(store: Store, says: Says, tmp_path: Path) -> None:
    says(squeue="17|RUNNING|None|c1\n")
    run = make(store, starts="100 c1 17\n", code="0 160\n")
    (status,) = state.look(store, [run])
    assert (status.state, status.exit_code, status.ended_at_epoch_s) == (JobState.COMPLETED, 0, 160)
    assert asked(tmp_path) == [], "nobody else is asked"
    (store.run(run) / "control" / "passed.c1.TERM").touch()  # of somebody who let it save
    says(sacct="17|COMPLETED|None|c1\n")
    assert state.look(store, [run])[0].state is JobState.COMPLETED


@pytest.mark.parametrize("code", [143, 0])  # 0: its processes saved and exited
def test_a_code_that_a_requeue_may_follow_is_believed_when_the_queue_agrees(
    store: Store, says: Says, code: int
) -> None:
    run = make(store, starts="100 c1 17\n", code=f"{code} 160\n")
    (store.run(run) / "control" / "passed.c1.TERM").touch()
    says(squeue="17|PENDING|BeginTime|\n")
    (status,) = state.look(store, [run])
    assert (status.state, status.exit_code, status.reason) == (JobState.PENDING, None, "BeginTime")
    assert records.record(store, status) is None
    says(sacct="17|CANCELLED by 1000|None|c1\n")
    (status,) = state.look(store, [run])
    assert (status.state, status.exit_code, status.shell_code) == (JobState.CANCELLED, code, 143)
    with pytest.raises(UsageError, match="so the job would never start"):
        dependencies.job_ids(store, "slurm", [run])


@pytest.mark.parametrize(
    ("began", "said", "code", "expected"),
    [
        (True, "TIMEOUT|TimeLimit", 143, JobState.TIMEOUT),
        (True, "NODE_FAIL|None", 143, JobState.NODE_FAIL),
        (True, "OUT_OF_MEMORY|None", 143, JobState.OUT_OF_MEMORY),
        (False, "CANCELLED by 0|None", 143, JobState.CANCELLED),
        (False, "TIMEOUT|TimeLimit", 124, JobState.TIMEOUT),
        (False, "NODE_FAIL|None", 70, JobState.NODE_FAIL),
        (False, "OUT_OF_MEMORY|None", 137, JobState.OUT_OF_MEMORY),
        (False, "PREEMPTED|None", 143, JobState.PREEMPTED),
        (False, "FAILED|RaisedSignal:53", 181, JobState.FAILED),
        (False, "COMPLETED|None", 1, JobState.COMPLETED),
    ],
)
def test_an_end_is_explained_by_the_scheduler_once(
    store: Store, says: Says, began: bool, said: str, code: int, expected: JobState
) -> None:
    """Of a script that was ended, and of one that never began."""
    run = make(store, starts="100 c1 17\n", code="143 160\n") if began else make(store)
    says(sacct=f"17|{said}|c1\n")
    (status,) = state.look(store, [run])
    assert (status.state, status.exit_code) == (expected, code)
    assert began or (expected.value in status.reason and "never started" in status.reason)
    record = records.record(store, status)
    assert record is not None
    assert record.end is not None
    assert not began or record.end.state is expected
    says()
    (kept,) = state.look(store, [run])
    assert kept.exit_code == code
    assert not began or kept.state is expected, "and it is not forgotten"


@pytest.mark.parametrize("accounts", ["|2026-11-22T03:10:02", "|Unknown", ""])
def test_the_end_of_a_job_that_was_killed_is_that_of_the_accounts(
    store: Store, says: Says, accounts: str
) -> None:
    """And unknown without accounts: never when somebody first looked."""
    began = int(time.mktime((2026, 11, 22, 3, 10, 0, 0, 0, -1)))
    run = make(store, starts=f"{began} c1 17\n")
    says(sacct=f"17|OUT_OF_MEMORY|None|c1{accounts}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_SETTLE_S", 0.0)
        (status,) = state.look(store, [run])
    record = records.record(store, status)
    assert record is not None
    took_s = 2.0 if "T03" in accounts else None
    assert (record.exit_code, record.wall_s) == (137, took_s)
    says()
    (kept,) = state.look(store, [run])
    assert kept.ended_at_epoch_s == (began + 2 if took_s else None)


def test_a_job_that_bareboat_cancelled_and_the_scheduler_forgot(store: Store, says: Says) -> None:
    run = make(store)
    says(squeue="17|PENDING|Resources|\n", scancel="exit 1")
    with pytest.raises(ToolError, match="did not cancel"):
        interaction.cancel(store, run)
    says()
    assert state.look(store, [run])[0].state is JobState.UNKNOWN
    says(squeue="17|PENDING|Resources|\n")
    interaction.cancel(store, run)
    says()
    (status,) = state.look(store, [run])
    assert (status.state, status.exit_code) == (JobState.CANCELLED, 143)
    says(scancel="exit 9")
    records.record(store, status)
    interaction.cancel(store, run)  # over: nobody is told


def test_a_job_that_starts_before_the_one_that_submitted_it_has_ended_is_the_current_one(
    store: Store, says: Says, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(store, starts="100 c1 17\n150 c2 18\n", code="75 150\n")
    says(squeue="17|FAILED|NonZeroExitCode|c1\n18|RUNNING|None|c2\n")
    (status,) = state.look(store, [run])
    assert (status.state, status.nodes, status.job_id) == (JobState.RUNNING, "c2", "18")
    assert main(["status", "--json", run]) == 0
    assert json.loads(capsys.readouterr().out)[0]["job_id"] == "18"
    (store.run(run) / "control" / "agains").write_text("18\n19\n")
    says(squeue="18|FAILED|None|c2\n19|PENDING|Priority|\n")
    (status,) = state.look(store, [run])
    assert (status.state, status.reason, status.job_id) == (JobState.PENDING, "Priority", "19")


def test_runs_that_no_scheduler_has(store: Store) -> None:
    with pytest.raises(UsageError, match="run nothing not found"):
        submission.read(store, "nothing")
    run = store.new_run("study")
    with pytest.raises(UsageError, match="is not a run, but a study"):
        submission.read(store, run)


def test_the_record_is_one_and_has_every_start(store: Store) -> None:
    run = make(store, starts="100 c1 17\n150 c3 17\n\n160 c4", code="0 200\n")  # not written to its end
    (status,) = state.look(store, [run])
    first = records.record(store, status)
    assert first is not None
    assert [start.node for start in first.starts] == ["c1", "c3"]
    assert first.wall_s == 100.0
    assert records.record(store, status) == first
    assert json.loads((store.run(run) / "record.json").read_text())["job_id"] == "17"


def test_a_job_whose_script_no_node_could_read(
    store: Store, says: Says, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(store)
    says(sacct="17|FAILED|None|c1\n")
    assert main(["logs", "--store", str(store.root), run]) == 4
    said = capsys.readouterr().err
    assert f"try: bareboat doctor --store {store.root} --compute" in said
    cancelled = make(store)
    (store.run(cancelled) / "cancelled").touch()
    assert main(["logs", "--store", str(store.root), cancelled]) == 4
    assert "doctor" not in capsys.readouterr().err


# a scheduler that does not answer for a while


@pytest.mark.parametrize(("words", "code"), [(("wait",), 7), (("logs", "-f"), 0)])
@pytest.mark.usefixtures("says")
def test_a_controller_that_is_restarted_ends_no_wait(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    words: tuple[str, ...], code: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(logs, "_ASK_S", 0.1)
    run = make(store, starts="100 c1 17\n")
    (tmp_path / "bin" / "squeue").write_text(
        f"#!/bin/sh\necho >> {tmp_path}/times\n"
        f'[ "$(wc -l < {tmp_path}/times)" -gt 2 ] || {{ echo silence >&2; exit 1; }}\n'
        f"echo 7 160 > {submission.control_folder(store, run)}/exit_code\n"
    )
    assert main([*words, "--store", str(store.root), run]) == code
    assert caplog.messages.count("squeue does not answer; retrying for 15 minutes") == 1


def test_a_controller_that_is_gone_does(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interaction, "_OUTAGE_S", 0.2)
    run = make(store, starts="100 c1 17\n")
    with pytest.raises(ToolError, match="squeue does not answer"):
        interaction.wait(store, run, each=lambda _: None, poll_s=0.1, look=_nobody_answers)


@pytest.mark.usefixtures("says")
def test_a_silent_scheduler_hides_no_other_run(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\necho silence >&2; exit 1\n")
    over, going = make(store, code="0 160\n"), make(store, starts="100 c1 17\n")
    words = ("status", "--json", "--store", str(store.root))
    assert main(words) == 0
    told = {each["run_id"]: each for each in json.loads(capsys.readouterr().out)}
    assert (told[over]["state"], told[over]["exit_code"]) == ("completed", 0)
    assert (told[going]["state"], told[going]["exit_code"]) == ("unknown", None)
    assert told[going]["reason"] == "squeue does not answer; try: scontrol ping"
    assert main((*words, going)) == ToolError.code
    assert json.loads(capsys.readouterr().out)[0]["reason"] == told[going]["reason"]


def _nobody_answers(_store: Store, _runs: object) -> list[state.Status]:
    raise ToolError("squeue does not answer")


# stopped by its user


def test_a_job_that_is_handed_over_while_its_user_interrupts_has_its_number(
    store: Store, says: Says, tmp_path: Path
) -> None:
    says(sbatch="kill -INT $PPID; sleep 0.1; echo 17")
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    made = plan(make_job(scheduler="slurm", engine="native", workdir=str(tmp_path)), None, None, site)
    with pytest.raises(KeyboardInterrupt) as caught:
        creation.submit(store, made, site)
    (run,) = submission.submitted(store)
    assert submission.read(store, run).job_id == "17"
    assert f"{run} continues" in caught.value.__notes__[0]


@pytest.mark.parametrize("words", [("wait",), ("logs", "-f"), ("logs", "-f", "--rank", "0")])
def test_who_stops_looking_after_a_run_is_told_that_it_goes_on(
    store: Store, says: Says, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    run = make(store)
    says(squeue="17|RUNNING|None|c1\n")
    with (tmp_path / "bin" / "squeue").open("a") as stream:
        stream.write("kill -INT $PPID\n")
    assert main([*words, "--store", str(store.root), run]) == 130
    said = capsys.readouterr().err
    assert f"stopped; {run} continues; to wait: bareboat wait {run}; to cancel: bareboat cancel {run}" in said
    assert "has ended" not in said


# what one rank says


def test_one_ranks_output_is_followed_to_the_runs_end(
    store: Store, says: Says, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(store, starts="100 c1 17\n")
    logs = submission.control_folder(store, run) / "logs"
    logs.mkdir()
    for number in range(4):
        (logs / f"{number}.out").write_text(f"first of {number}\n")
    (logs / "1.err").write_text("trouble\n")
    # It ends while the queue is asked.
    says(squeue="17|RUNNING|None|c1\n")
    with (tmp_path / "bin" / "squeue").open("a") as stream:
        stream.write(f"echo second >> {logs}/1.out; echo 0 160 > {logs.parent}/exit_code\n")
    assert main(["logs", "-f", "--rank", "1", "--store", str(store.root), run]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["first of 1", "trouble", "second"], said


def test_a_rank_of_which_nothing_is_kept(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(store, starts="100 c1 17\n", code="0 160\n")
    for follow in ((), ("-f",)):
        assert main(["logs", *follow, "--rank", "1", "--store", str(store.root), run]) == 2
        assert "no output of rank 1 was kept" in capsys.readouterr().err


def test_the_plan_of_a_point_is_that_of_its_sweep(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("one-20250101-000000", "grid-20250101-000000"):
        folder = store.run(name)
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(
            '{"job": {"workdir": "/work", "scheduling": {"after": ["7"]}, "more": 1}}'
        )
    for name in ("one-20250101-000000", "grid-20250101-000000", "grid-20250101-000000.3"):
        job = submission.planned_job(store, name)
        assert (job.workdir, job.scheduling.after) == ("/work", ("7",))
