"""A sweep's points as runs, and as one; the queue is a program that tests write (see test_submission.py).

Fakes: `squeue`, `sacct`, `sbatch`, `scancel` answer in Slurm's format. The real ones are in tests/cluster.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import make_job, make_site
from matrices import keep, make_matrix
from tools import completed, completed_bytes, executable, tool

from bareboat import registry
from bareboat.model import JobState, Outcome, SchedulerFacts, Topology
from bareboat.model.sweep import Sweep
from bareboat.plan import plan
from bareboat.runs import creation, state, submission, sweeps
from bareboat.session import sites
from bareboat_base.errors import BareboatError, PlanError, ToolError, UsageError
from bareboat_images.store import Store

flux, gridengine, pbs, slurm = map(registry.scheduler, ("flux", "gridengine", "pbs", "slurm"))

Says = Callable[..., None]


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    programs = tmp_path / "bin"
    programs.mkdir()

    def answer(**bodies: str) -> None:
        for name, body in ({"squeue": "", "sacct": "", "sbatch": "echo 17", "scancel": ""} | bodies).items():
            path = programs / name
            executable(path, f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\n{body}\n')

    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(state, "_SETTLE_S", 0.3)
    answer()
    return answer


def said(lines: str) -> str:
    return f"cat <<'END'\n{lines}END"


def asked(tmp_path: Path, name: str) -> list[str]:
    lines = (tmp_path / "asked").read_text().splitlines()
    return [line for line in lines if line.startswith(name)]


def submit(store: Store, folder: Path, count: int = 4, scheduler: str = "slurm") -> str:
    site = make_site(schedulers=(SchedulerFacts(name=scheduler, version="1"),))
    points = tuple((f"0.{k}",) for k in range(count))
    job = make_job(
        scheduler=scheduler, engine="native", workdir=str(folder), topology=Topology(),
        command=("true", "{lr}"), sweep=Sweep(names=("lr",), points=points),
    )  # fmt: skip
    return creation.submit(store, plan(job, None, None, site), site).run_id


def ended(store: Store, point: str, code: int, at: int = 160) -> None:
    folder = submission.control_folder(store, point)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "starts").write_text(f"100 c1 17_{point[-1]}\n")
    (folder / "exit_code").write_text(f"{code} {at}\n")


def test_one_array_job_one_script_and_a_table(store: Store, says: Says, tmp_path: Path) -> None:
    run = submit(store, tmp_path)
    (handed,) = asked(tmp_path, "sbatch")
    assert handed.endswith(f"{store.run(run)}/job.sh")
    script = store.run(run) / "job.sh"
    assert "#SBATCH --array=0-3" in script.read_text()
    assert (store.run(run) / "table").read_text() == "lr\n0.0\n0.1\n0.2\n0.3\n"
    assert sweeps.points(store, run) == [f"{run}.{index}" for index in range(4)]
    assert submission.submitted(store) == [run]
    assert submission.read(store, run).points == 4
    made = submission.read(store, f"{run}.2")
    assert (made.job_id, made.run_id, made.points) == ("17_2", f"{run}.2", 0)
    with pytest.raises(UsageError, match=r"not found: the points of .* are 0 to 3"):
        submission.read(store, f"{run}.4")
    says(sbatch="echo no >&2; exit 1")
    with pytest.raises(PlanError, match="Slurm rejected"):
        submit(store, tmp_path)
    assert store.runs() == [run]


@pytest.mark.usefixtures("says")
def test_an_element_finds_its_point_and_keeps_to_its_folder(store: Store, tmp_path: Path) -> None:
    run = submit(store, tmp_path)
    script = store.run(run) / "job.sh"
    environment = {"PATH": "/usr/bin:/bin", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}
    done = subprocess.run([tool("bash"), script], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (start,) = submission.starts(store, f"{run}.3")
    assert start.job_id == "17_3"
    (status,) = state.look(store, [f"{run}.3"])
    assert (status.state, status.exit_code) == (JobState.COMPLETED, 0)
    assert [path.name for path in (store.run(run) / "points").iterdir()] == ["3"]
    # By hand, and without a point's name.
    done = completed([tool("bash"), script], env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 3
    assert re.search(rf"try: bash {re.escape(str(script))} \w+-{run}\.0\n", str(done.stderr))
    done = completed_bytes([tool("bash"), script, f"{run}.9"], env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 3
    assert "no point 9" in submission.output_log(store, f"{run}.9").read_text()


#: Scheduler, its facts, what an element finds, its number there, and how it goes on later: what the script
#: ends with, what it asked for, and the number that it then has.
ELEMENTS: list[tuple[str, dict[str, str], dict[str, str], str, int, str, str]] = [
    ("slurm", {}, {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "2", "SLURM_JOB_ID": "17"},
     "17_2", 75, "scontrol requeue 17_2", "17_2"),
    ("gridengine", {}, {"JOB_ID": "17", "SGE_TASK_ID": "3"}, "17.3", 99, "", "17.3"),
    ("pbs", {"flavour": "pro"}, {"PBS_JOBID": "17[2].srv", "PBS_ARRAY_INDEX": "2"},
     "17[2].srv", 75, "qsub -j oe -o LOG -J 2-3:2 SCRIPT", "18[2].srv"),
    ("pbs", {"flavour": "torque"}, {"PBS_JOBID": "17[2].srv", "PBS_ARRAYID": "2"},
     "17[2].srv", 75, "qsub -j oe -o LOG -t 2 SCRIPT", "18[2].srv"),
]  # fmt: skip


@pytest.mark.parametrize(
    "element", ELEMENTS, ids=lambda element: "-".join([element[0], *element[1].values()])
)
def test_an_element_of_each_scheduler_knows_itself_and_goes_on_later_by_itself(
    element: tuple[str, dict[str, str], dict[str, str], str, int, str, str],
    store: Store, says: Says, tmp_path: Path,
) -> None:  # fmt: skip
    name, settings, found, job_id, code, words, later = element
    says(qsub='echo "18[].srv"', qrerun="exit 1", scontrol="")
    site = make_site(schedulers=(SchedulerFacts(name=name, version="1", settings=settings),))
    job = make_job(
        scheduler=name, engine="native", workdir=str(tmp_path), topology=Topology(),
        command=("sh", "-c", "echo $1; exit 75", "sh", "{lr}"),
        sweep=Sweep(names=("lr",), points=(("a",), ("b",), ("c d",), ("e",))),
    )  # fmt: skip
    run = creation.make_sweep(store, plan(job, None, None, site), site).run_id
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", **found}
    done = completed_bytes([tool("bash"), store.run(run) / "job.sh"], env=environment)
    point = f"{run}.2"
    log = submission.output_log(store, point)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b""), log.read_text()
    assert log.read_text().startswith("c d\n")
    assert [start.job_id for start in submission.starts(store, point)] == [job_id]
    script = submission.control_folder(store, point) / "job.sh"
    told = words.replace("LOG", "scheduler.log").replace("SCRIPT", str(script))
    assert not told or asked(tmp_path, words.split()[0]) == [told]
    assert (submission.control_folder(store, point) / "agains").read_text() == f"{later}\n"


def test_a_sweep_is_told_as_one(store: Store, says: Says, tmp_path: Path) -> None:
    run = submit(store, tmp_path)
    ended(store, f"{run}.0", 0)
    says(squeue=said("17_1|RUNNING|None|c1\n17_2|PENDING|Resources|\n17_3|PENDING|Resources|\n"))
    (status,) = sweeps.look(store, [run])
    assert (status.state, status.exit_code, status.over) == (JobState.RUNNING, None, False)
    assert status.reason == "1 of 4 done, 1 running, 2 waiting"
    assert len(asked(tmp_path, "squeue")) == 1
    assert "--array" in asked(tmp_path, "squeue")[0]

    held = "PENDING|job requeued in held state|"
    says(squeue=said(f"17_1|RUNNING|None|c1\n17_2|{held}\n17_3|{held}\n"))
    assert not sweeps.look(store, [run])[0].stuck, "the first of them may still succeed"
    says(squeue=said(f"17_1|{held}\n17_2|{held}\n17_3|{held}\n"))
    with pytest.raises(BareboatError, match=f"{run}.1: job requeued in held state"):
        sweeps.wait(store, run, each=lambda _: None)

    ended(store, f"{run}.1", 9, at=200)
    ended(store, f"{run}.2", 3)
    says(sacct=said("17_1|FAILED|None|c1\n17_2|FAILED|None|c1\n17_[3]|CANCELLED by 1|None|\n"))
    (status,) = sweeps.look(store, [run])
    assert (status.state, status.exit_code, status.ended_at_epoch_s is not None) == (
        JobState.FAILED, 9, True,
    )  # fmt: skip
    records = sweeps.records_of(store, status)
    assert [record.exit_code for record in records] == [0, 9, 3, 143]
    assert [record.job_id for record in records] == ["17_0", "17_1", "17_2", "17_3"]
    assert (store.run(run) / "points" / "3" / "record.json").exists()
    says()
    assert sweeps.look(store, [run])[0].exit_code == 9, "nobody needs to be asked any more"
    assert sweeps.wait(store, run, each=lambda _: None).exit_code == 9


def test_all_are_cancelled_in_one_word_but_for_those_with_other_numbers(
    store: Store, says: Says, tmp_path: Path
) -> None:
    run = submit(store, tmp_path)
    ended(store, f"{run}.0", 0)
    folder = submission.control_folder(store, f"{run}.2")
    folder.mkdir(parents=True)
    (folder / "agains").write_text("21_2\n")
    says(squeue=said("".join(f"{number}|RUNNING|None|c1\n" for number in ("17_1", "21_2", "17_3"))))
    sweeps.cancel(store, run)
    assert asked(tmp_path, "scancel") == ["scancel 17", "scancel 21_2"]
    says()
    (status,) = sweeps.look(store, [run])
    assert [point.exit_code for point in status.points] == [0, 143, 143, 143]


def test_a_cancellation_that_was_refused_leaves_no_mark(store: Store, says: Says, tmp_path: Path) -> None:
    run = submit(store, tmp_path, 1)
    says(squeue=said("17_0|RUNNING|None|c1\n"), scancel="exit 1")
    with pytest.raises(ToolError, match="did not cancel job 17"):
        sweeps.cancel(store, run)
    says()
    assert sweeps.look(store, [run])[0].state is JobState.UNKNOWN
    says(sbatch="echo thanks")
    with pytest.raises(ToolError, match="returned no job ID"):
        submit(store, tmp_path, 2)
    (lost,) = [name for name in submission.submitted(store) if name != run]
    with pytest.raises(ToolError, match="it returned no job ID"):
        sweeps.cancel(store, lost)


def test_a_job_for_each_point_where_there_are_no_arrays(store: Store, says: Says, tmp_path: Path) -> None:
    says(flux=f'echo "ƒ$(wc -l < {tmp_path}/asked)Ab"')
    run = submit(store, tmp_path, 3, scheduler="flux")
    numbers = [submission.read(store, point).job_id for point in sweeps.points(store, run)]
    assert numbers == ["ƒ1Ab", "ƒ2Ab", "ƒ3Ab"]
    marks = [store.mark(point) for point in sweeps.points(store, run)]
    assert [line.split()[-1] for line in asked(tmp_path, "flux")] == marks
    assert submission.read(store, run).job_id is None
    # The third is refused: the others are not left behind.
    says(flux=f'[ "$2" = cancel ] || [ "$2" = jobs ] && exit; n=$(grep -c batch {tmp_path}/asked); '
         '[ "$n" -lt 6 ] || { echo no >&2; exit 1; }; echo "ƒ${n}Ab"')  # fmt: skip
    with pytest.raises(PlanError, match="2 of the 3 points were submitted") as caught:
        submit(store, tmp_path, 3, scheduler="flux")
    assert caught.value.message.startswith("Flux rejected")
    assert [line.split()[3] for line in asked(tmp_path, "flux --root cancel")] == ["ƒ4Ab", "ƒ5Ab"]
    (other,) = [name for name in submission.submitted(store) if name not in (run, *sweeps.points(store, run))]
    (status,) = sweeps.look(store, [other])
    assert status.reason == "3 of 3 done, 3 cancelled"


def test_points_are_pending_while_the_sweep_is_submitted(store: Store, says: Says, tmp_path: Path) -> None:
    """One job for each point: the others wait for the scheduler."""
    says(flux=f'[ "$2" = batch ] || exit; n=$(wc -l < {tmp_path}/asked); '
         f'[ "$n" != 2 ] || cp {store.root}/runs/*/submission.json {tmp_path}/during; '
         'echo "ƒ${n}Ab"')  # fmt: skip
    run = submit(store, tmp_path, 3, scheduler="flux")
    assert submission.read(store, run).submitter == ""
    (tmp_path / "during").replace(store.run(run) / "submission.json")
    for index in (1, 2):
        store.discard(store.run(f"{run}.{index}"))
    (status,) = sweeps.look(store, [run])
    assert [point.state for point in status.points[1:]] == [JobState.PENDING] * 2
    with pytest.raises(BareboatError, match=f"{run} is being submitted"):
        sweeps.cancel(store, run)


def test_an_array_handed_over_while_its_user_interrupts_has_its_number(
    store: Store, says: Says, tmp_path: Path
) -> None:
    says(sbatch="kill -INT $PPID; echo 17")
    with pytest.raises(KeyboardInterrupt) as caught:
        submit(store, tmp_path, 2)
    (run,) = submission.submitted(store)
    assert submission.read(store, run).job_id == "17"
    assert f"{run} continues" in caught.value.__notes__[0]


def test_points_that_were_handed_over_before_an_interrupt_are_cancelled(
    store: Store, says: Says, tmp_path: Path
) -> None:
    says(flux=f'[ "$2" = cancel ] || [ "$2" = jobs ] && exit; n=$(grep -c batch {tmp_path}/asked); '
         '[ "$n" -lt 2 ] || kill -INT $PPID; echo "ƒ${n}Ab"')  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        submit(store, tmp_path, 4, scheduler="flux")
    assert len(asked(tmp_path, "flux --root batch")) == 2
    assert [line.split()[3] for line in asked(tmp_path, "flux --root cancel")] == ["ƒ1Ab", "ƒ2Ab"]


# what schedulers say of elements


def answer(text: str, program: str = "x") -> Outcome:
    return Outcome(argv=(program,), exit_code=0, stdout=text, stderr="", wall_s=0.0)


def states(query: Any, text: str) -> dict[str, JobState]:
    return {entry.job_id: entry.state for entry in query.parse(answer(text))}


def test_sacct_tells_together_of_those_that_never_ran() -> None:
    _, ended = slurm.queries([f"17_{index}" for index in range(10)] + ["18"])
    assert "--jobs=17,18" in ended.argv
    assert "--format=JobID,State,Reason,NodeList,End" in ended.argv
    found = states(ended, "17_1|FAILED|None|c1\n17_[2,4-6%3]|CANCELLED by 7|None|\n18|COMPLETED|None|c1\n")
    assert sorted(found) == ["17_1", "17_2", "17_4", "17_5", "17_6", "18"]
    assert found["17_5"] is JobState.CANCELLED


def test_grid_engine_tells_of_elements_apart() -> None:
    live, ended, another = gridengine.queries(["17.1", "17.2", "18"])
    assert (ended.argv, another.argv) == (("qacct", "-j", "17"), ("qacct", "-j", "18"))
    assert live.argv == ("qstat", "-g", "d", "-u", "*")
    found = states(
        live,
        "job-ID  prior   name   user  state submit/start at     queue      slots ja-task-ID\n"
        "---------\n"
        "   17 0.55500 four  ada   r  11/22/2026 05:40:00 main@c1    2 1\n"
        "   17 0.55500 four  ada   qw 11/22/2026 05:40:00            2 2\n"
        "   18 0.55500 one   ada   Rr 11/22/2026 05:40:00 main@c2    2\n",
    )
    assert found == {"17.1": JobState.RUNNING, "17.2": JobState.PENDING, "18": JobState.RUNNING}
    found = states(
        ended,
        f"{'=' * 62}\njobnumber    17\ntaskid       1\nfailed       25  : rescheduling\nexit_status  99\n"
        f"{'=' * 62}\njobnumber    17\ntaskid       1\nfailed       0\nexit_status  0\n"
        f"{'=' * 62}\njobnumber    17\ntaskid       2\nfailed       0\nexit_status  7\n",
    )
    assert found == {"17.1": JobState.COMPLETED, "17.2": JobState.FAILED}


# on this machine


def bareboat(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    from bareboat.cli.main import main

    code = main(list(words))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_a_sweep_runs_here_point_by_point_and_a_failure_stops_none(
    capsys: pytest.CaptureFixture[str], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "probe", lambda _session, **_: make_site())
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("job.toml").write_text(
        'engine = "native"\n'
        """command = ["sh", "-c", 'echo "$BAREBOAT_SWEEP_INDEX $TAG" >> told; exit "$1"', "sh", "{code}"]\n"""
        '[environment]\nTAG = "<{word}>"\n[sweep]\ncode = [0, 7, 3]\nword = ["a\\nb"]\n'
    )
    code, out, err = bareboat(capsys, "run", "--json", "job.toml")
    assert code == 7, err
    records = json.loads(out)
    assert [record["exit_code"] for record in records] == [0, 7, 3]
    assert Path("told").read_text() == "0 <a\nb>\n1 <a\nb>\n2 <a\nb>\n"
    (run,) = store.runs()
    assert [record["study"] for record in records] == [f"{run}.{index}" for index in range(3)]
    assert all((store.run(f"{run}.{index}") / "record.json").exists() for index in range(3))
    code, _, err = bareboat(capsys, "run", "job.toml")
    assert code == 7
    assert "    1     7" in err
    assert "code=3 word=a\\nb" in err
    assert run in bareboat(capsys, "report")[1]
    code, _, err = bareboat(capsys, "plan", "--at-once", "2", "--engine", "native", "--", "true")
    assert (code, "--at-once needs a sweep" in err) == (2, True)


@pytest.mark.usefixtures("says")
def test_logs_as_json_lines(capsys: pytest.CaptureFixture[str], store: Store, tmp_path: Path) -> None:
    run = submit(store, tmp_path, 2)
    for index, text in enumerate((b"[rank 1] one\nnobody's\n\xff", b"[rank 0] two")):
        path = submission.output_log(store, f"{run}.{index}")
        path.parent.mkdir(parents=True)
        path.write_bytes(text)
    code, out, err = bareboat(capsys, "logs", "--json", run)
    assert code == 0, err
    assert [json.loads(line) for line in out.splitlines()] == [
        {"run_id": f"{run}.0", "rank": 1, "line": "one"},
        {"run_id": f"{run}.0", "rank": None, "line": "nobody's"},
        {"run_id": f"{run}.0", "rank": None, "line": "\ufffd"},
        {"run_id": f"{run}.1", "rank": 0, "line": "two"},
    ]
    code, out, _ = bareboat(capsys, "logs", "--json", f"{run}.1")
    assert json.loads(out) == {"rank": 0, "line": "two"}
    for words, message in (
        (("logs", "-f", run), "is a sweep with 2 points"),
        (("attach", "--json", run), "has no JSON output"),
        (("attach", run), "to the sweep"),
    ):
        code, out, err = bareboat(capsys, *words)
        assert (code, out, message in err) == (2, "", True), err


def result(store: Store, point: str, rank: int, *lines: object) -> None:
    folder = store.run(point) / "ranks" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / str(rank)).open("a") as file:
        file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def test_the_report_of_a_sweep_is_a_table(
    capsys: pytest.CaptureFixture[str], store: Store, says: Says, tmp_path: Path
) -> None:
    run = submit(store, tmp_path)
    says(squeue=said("17_2|RUNNING|None|c1\n17_3|PENDING|Resources|\n"), sacct=said("17_1|FAILED|None|c1\n"))
    ended(store, f"{run}.0", 0)
    ended(store, f"{run}.1", 9, at=170)
    result(store, f"{run}.0", 1, ["loss", 9.0])
    result(store, f"{run}.0", 0, ["loss", 0.5], ["loss", 0.25], ["acc", 0.75])
    result(store, f"{run}.1", 0, ["loss", "nan"])  # of a training that diverged
    # What a container writes besides is no result.
    result(store, f"{run}.0", 0, "]", ["x"], [1, 2], ["bad\x1b", 1], {"a": 1}, ["n" * 101, 1])
    code, out, err = bareboat(capsys, "report", run)
    assert code == 0, err
    assert [line.split() for line in out.splitlines()] == [
        ["point", "lr", "state", "exit_code", "wall_s", "acc", "loss"],
        ["0", "0.0", "completed", "0", "60", "0.75", "0.25"],
        ["1", "0.1", "failed", "9", "70", "nan"],
        ["2", "0.2", "running"],
        ["3", "0.3", "pending"],
    ]
    code, out, _ = bareboat(capsys, "report", "--csv", run)
    assert out.splitlines() == [
        "point,lr,state,exit_code,wall_s,acc,loss",
        "0,0.0,completed,0,60.0,0.75,0.25", "1,0.1,failed,9,70.0,,nan", "2,0.2,running,,,,",
        "3,0.3,pending,,,,",
    ]  # fmt: skip
    table = tmp_path / "table.csv"
    assert bareboat(capsys, "report", "--csv", "-o", str(table), run)[0] == 0
    assert table.read_text() == out
    code, out, _ = bareboat(capsys, "report", "--json", run)
    told = json.loads(out)
    assert told[0]["results"] == {"loss": 0.25, "acc": 0.75}
    assert told[1]["end"]["cause"] == "exit code"
    assert (told[2]["state"], told[2]["exit_code"], told[2]["values"]) == ("running", None, {"lr": "0.2"})
    code, out, _ = bareboat(capsys, "report", "--json", f"{run}.1")
    assert (code, json.loads(out)["run_id"], json.loads(out)["state"]) == (0, f"{run}.1", "failed")
    code, out, err = bareboat(capsys, "report", "--csv", f"{run}.1")
    assert (code, err, Path(f"{run}.1").exists()) == (0, "", False)
    for words, message in (
        (("--pdf", str(tmp_path / "figures"), run), "--pdf is not available for a sweep"),
        ((run, f"{run}.0"), "cannot be combined with other runs"),
        (("--csv", str(tmp_path / "a"), "nobody"), "nobody not found"),
        (("--csv", f"{run}.9"), f"run {run}.9 not found"),
    ):
        code, out, err = bareboat(capsys, "report", *words)
        assert (code, out, message in err) == (2, "", True), err


def test_a_job_s_name_is_its_newest_run(
    capsys: pytest.CaptureFixture[str], store: Store, says: Says, tmp_path: Path
) -> None:
    first, second = (submit(store, tmp_path, 2) for _ in range(2))
    job = re.sub(r"-\d{8}-\d{6}(-\d+)?$", "", second)
    assert first.startswith(job)
    says(squeue=said("17_0|RUNNING|None|c1\n17_1|RUNNING|None|c1\n"))
    code, out, err = bareboat(capsys, "status", "--json", job)
    assert code == 0
    assert [each["run_id"] for each in json.loads(out)] == [second]
    code, out, _ = bareboat(capsys, "status", "-q", "--json", f"{job}.1")
    assert [each["run_id"] for each in json.loads(out)] == [f"{second}.1"]
    code, out, _ = bareboat(capsys, "cancel", job, "--dry-run")
    assert f"would cancel {second}" in out
    for nobody in ("nobody", "nobody.1", "no body", f"{job}x"):
        code, out, err = bareboat(capsys, "status", nobody)
        assert (code, out) == (2, ""), err
        assert "not found" in err or "is not a run name" in err


def test_a_job_s_name_is_its_newest_run_for_verbs_that_need_a_run(
    capsys: pytest.CaptureFixture[str], store: Store, says: Says, tmp_path: Path
) -> None:
    run = submit(store, tmp_path, 2)
    job = re.sub(r"-\d{8}-\d{6}(-\d+)?$", "", run)
    study = store.new_run(job)
    matrix = make_matrix(id=study)
    keep(store, matrix, [[]] * len(matrix.points))
    says(squeue=said("17_0|RUNNING|None|c1\n17_1|RUNNING|None|c1\n"))
    code, out, err = bareboat(capsys, "cancel", job, "--dry-run")
    assert (code, f"would cancel {run}" in out) == (0, True), err
    # A study is what `rm` takes, too.
    code, out, err = bareboat(capsys, "rm", "--dry-run", job)
    assert study in out + err


def test_a_run_is_named_by_one_key_in_all_verbs(
    capsys: pytest.CaptureFixture[str], store: Store, says: Says, tmp_path: Path
) -> None:
    run = submit(store, tmp_path, 2)
    says(squeue=said("17_0|RUNNING|None|c1\n17_1|RUNNING|None|c1\n"))
    for words in (["status"], ["cancel", "--dry-run"]):
        (told,) = json.loads(bareboat(capsys, *words, "--json", run)[1])
        assert (told["run_id"], told["scheduler"], told["job_id"]) == (run, "slurm", "17"), words
    for index in range(2):
        ended(store, f"{run}.{index}", 3)
    says()
    waited = json.loads(bareboat(capsys, "wait", "--json", run)[1])
    reported = json.loads(bareboat(capsys, "report", "--json", run)[1])
    (status,) = json.loads(bareboat(capsys, "status", "--json", run)[1])
    points = [f"{run}.0", f"{run}.1"]
    for told in (waited, reported, status["points"]):
        assert [(each["run_id"], each["exit_code"], each["end"]["cause"]) for each in told] == [
            (point, 3, "exit code") for point in points
        ]
    assert json.loads(bareboat(capsys, "report", "--json")[1])[0]["run_id"] == run
