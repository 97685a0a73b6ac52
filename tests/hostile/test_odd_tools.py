"""Tools that fail, hang, print garbage or megabytes, or leave processes behind: one message, nothing lost."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import odd_tools
import pytest
from processes import command
from tools import completed
from watch import wait_until

from bareboat import registry
from bareboat.cli.main import main
from bareboat.model import JobState, Submission
from bareboat.runs import creation, state
from bareboat_base import codec, execute
from bareboat_base.errors import ToolError, ToolTimeoutError
from bareboat_images.store import Store

Run = tuple[int, str, str]

#: A limit for a hang, and not a measurement: it takes 10 s at most where nothing else runs.
_HANGS_S = 60.0


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    yield
    execute.set_patience(None)


@pytest.fixture
def clean(tmp_path: Path) -> Iterator[None]:
    """Nothing is left of the tools."""
    assert odd_tools.left(tmp_path) == [], "before the test"
    yield
    gone = wait_until(lambda: odd_tools.left(tmp_path) == [], limit_s=3.0)
    remaining = odd_tools.left(tmp_path, kill=True)
    assert gone, remaining


class Desk:
    """A user at a machine with such tools."""

    def __init__(
        self,
        folder: Path,
        python: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        self.folder, self._monkeypatch, self._capfd = folder, monkeypatch, capfd
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("VIRTUAL_ENV", str(python.parents[1]))
        (folder / "job.toml").write_text(
            'name = "names"\ncommand = ["true"]\nengine = "native"\nlauncher = "single"\n'
        )

    def tools(self, scheduler: str | None, patience_s: float = 0.6, **faults: str) -> None:
        self._monkeypatch.setenv("PATH", odd_tools.machine(self.folder, scheduler, **faults))
        self._monkeypatch.setenv(execute.TIMEOUT_VARIABLE, str(patience_s))

    def __call__(self, *words: str) -> Run:
        began = time.monotonic()
        code = main(list(words))
        assert time.monotonic() - began < _HANGS_S, words
        out, err = self._capfd.readouterr()
        assert code != 70, err
        return code, out, err


@pytest.fixture
def desk(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Desk:
    return Desk(tmp_path, python, monkeypatch, capfd)


# the runner


def tool(folder: Path, fault: str) -> str:
    path = folder / "tools"
    path.mkdir(exist_ok=True)
    (path / "tool").write_text(odd_tools.script(folder, {"": "echo answer"}, fault))
    (path / "tool").chmod(0o755)
    return str(path / "tool")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("fault", ["hang", "deaf", "daemon-hangs", "orphan-hangs"])
def test_a_tool_that_does_not_answer_leaves_nothing(tmp_path: Path, fault: str) -> None:
    program = tool(tmp_path, fault)
    with pytest.raises(ToolError, match=r"tool did not answer within 0\.3 s") as caught:
        execute.run([program, "a b"], timeout_s=0.3)
    assert caught.value.context == f"{program} 'a b'"
    assert "export BAREBOAT_TOOL_TIMEOUT_S=60" in caught.value.remedy


@pytest.mark.usefixtures("clean")
def test_the_tool_is_named_and_not_what_starts_it(tmp_path: Path) -> None:
    program = tool(tmp_path, "hang")
    with pytest.raises(ToolTimeoutError, match=f"^{program} did not answer"):
        execute.run(["env", "-i", "PATH=/usr/bin:/bin", program, "x"], timeout_s=0.3)


@pytest.mark.usefixtures("clean")
def test_after_one_that_hangs_the_others_are_not_asked(tmp_path: Path) -> None:
    execute.set_patience(0.3)
    deadline = execute.Deadline()
    hangs = [tool(tmp_path, "hang")]
    with pytest.raises(ToolTimeoutError, match=r"did not answer within 0\.3 s"):
        execute.run(hangs, within=deadline)
    touch = ["touch", str(tmp_path / "asked")]
    with pytest.raises(ToolTimeoutError, match=r"did not answer within 0\.3 s"):
        execute.run(touch, within=deadline)
    first, second = execute.run_all((touch, touch), deadline)
    assert first.unanswered
    assert second.unanswered
    assert "export BAREBOAT_TOOL_TIMEOUT_S=60" in first.stderr
    assert not (tmp_path / "asked").exists()
    assert execute.run_all((), deadline) == ()


def test_one_that_hangs_or_floods_does_not_stop_those_beside_it(tmp_path: Path) -> None:
    execute.set_patience(1.0)
    flood = tmp_path / "flood"
    flood.mkdir()
    asked = ([tool(tmp_path, "hang")], [tool(flood, "endless")], ["sh", "-c", "sleep 0.7; echo answer"])
    hung, flooded, good = execute.run_all(asked, execute.Deadline())
    assert (hung.unanswered, flooded.unanswered, good.stdout) == (True, True, "answer\n")
    assert odd_tools.left(tmp_path) == odd_tools.left(flood) == []


@pytest.mark.parametrize(
    ("setting", "takes"), [(None, (7, 120)), (60, (60, 120)), (300, (300, 300)), (2, (2, 2))]
)
def test_more_time_for_questions_is_not_less_for_a_submission(
    setting: float | None, takes: tuple[float, float]
) -> None:
    execute.set_patience(setting)
    assert (execute.patience(), execute.patience(120)) == takes


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("fault", ["megabytes", "endless"])
def test_a_tool_that_prints_too_much_is_stopped(tmp_path: Path, fault: str) -> None:
    with pytest.raises(ToolError, match="printed more than 1 MiB and was stopped") as caught:
        execute.run([tool(tmp_path, fault)], watch=execute.Watch(most_bytes=2**20))
    assert caught.value.remedy.endswith("| head   # shows what it prints")


def test_of_a_flood_of_complaints_the_beginning_is_kept(tmp_path: Path) -> None:
    outcome = execute.run([tool(tmp_path, "complains")], watch=execute.Watch(most_bytes=2**20))
    assert (outcome.stdout, outcome.ok) == ("answer\n", True)
    assert len(outcome.stderr) <= 2**20


@pytest.mark.usefixtures("clean")
def test_a_process_that_is_left_behind_is_not_waited_for(tmp_path: Path) -> None:
    outcome = execute.run([tool(tmp_path, "grandchild")], timeout_s=30)
    assert (outcome.stdout, outcome.ok) == ("answer\n", True)
    assert outcome.wall_s < 5


def test_a_daemon_of_a_tool_that_answers_goes_on(tmp_path: Path) -> None:
    outcome = execute.run([tool(tmp_path, "daemon")], timeout_s=30)
    assert (outcome.stdout, outcome.ok) == ("answer\n", True)
    assert odd_tools.left(tmp_path, kill=True)


def test_a_command_that_takes_a_job_may_leave_it_running(tmp_path: Path) -> None:
    assert (
        execute.run([tool(tmp_path, "grandchild")], watch=execute.Watch(may_leave=True)).stdout == "answer\n"
    )
    assert odd_tools.left(tmp_path, kill=True)


def test_output_of_a_process_behind_the_tool_is_kept() -> None:
    """As of a site's wrapper that copies what a command prints."""
    outcome = execute.run(["bash", "-c", "exec > >(sleep 0.2; cat); echo 4711"])
    assert outcome.stdout == "4711\n"


def test_a_tool_that_closes_its_output_is_waited_for() -> None:
    outcome = execute.run(["bash", "-c", "exec >&- 2>&-; sleep 0.3; exit 3"])
    assert (outcome.stdout, outcome.exit_code) == ("", 3)
    assert outcome.wall_s > 0.3


def test_a_tool_has_no_terminal_and_a_session_of_its_own() -> None:
    said = execute.run(["bash", "-c", "echo $$; cut -d ' ' -f 6 /proc/$$/stat; : < /dev/tty"])
    assert said.stdout.split() == [said.stdout.split()[0]] * 2
    assert "/dev/tty" in said.stderr


def test_words_that_no_program_can_be_given() -> None:
    for words in (["echo", "a\0b"], ["echo", "\ud800"], ["echo", "x" * 10_000_000]):
        outcome = execute.run(words)
        assert (outcome.exit_code, outcome.stdout) == (127, "")
    assert execute.run(["cat"], stdin="\ud800").exit_code == 127


def test_a_long_standard_input_that_is_not_read() -> None:
    assert execute.run(["true"], stdin="x" * 10_000_000).ok
    assert execute.run(["cat"], stdin="x" * 3_000_000).stdout == "x" * 3_000_000


@pytest.mark.usefixtures("clean")
def test_an_interrupt_ends_the_tools(tmp_path: Path) -> None:
    program = tool(tmp_path, "hang")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        execute.run([program])
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), execute.side_by_side(2) as pool:
        list(pool.map(lambda _: execute.run([program]), range(4)))
    assert time.monotonic() - began < 5
    assert execute.run(["echo", "again"]).ok


# the verbs

_FAULTS = ("fail", "hang", "garbage", "megabytes", "odd", "closed")
_SUBJECTS = [
    *(("slurm", name) for name in ("sinfo", "scontrol", "sbatch")),
    *(("gridengine", name) for name in ("qstat", "qconf")),
    ("pbs", "qstat"), ("flux", "flux"),
    *((None, name) for name in ("nvidia_smi", "mpirun", "podman", "apptainer", "ldconfig")),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize(("scheduler", "name"), _SUBJECTS, ids=lambda value: str(value))
def test_a_run_here_does_not_depend_on_such_a_tool(
    desk: Desk, scheduler: str | None, name: str, fault: str
) -> None:
    desk.tools(scheduler, **{name: fault})
    code, out, err = desk("run", "job.toml")
    assert code == 0, out + err
    assert "could not be probed" not in err


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("fault", ["deaf", "endless", "grandchild", "daemon-hangs", "odd-bytes", "nothing"])
def test_doctor_survives_all_of_them_at_once(desk: Desk, fault: str) -> None:
    faults = dict.fromkeys((*odd_tools.SCHEDULERS["slurm"], *odd_tools.OTHERS), fault)
    desk.tools("slurm", **{name.replace("-", "_"): each for name, each in faults.items()})
    code, out, err = desk("doctor", "-v")
    assert code in (0, 3), err
    assert "schedulers" in out
    assert desk("doctor", "--json")[0] == code


@pytest.mark.parametrize(
    ("scheduler", "name", "said"),
    [
        ("slurm", "sinfo", "note: sinfo printed a line that cannot be parsed: Welcome to the cluster"),
        ("slurm", "scontrol", "note: scontrol printed a line that cannot be parsed: Welcome to the cluster"),
        ("gridengine", "qstat", "note: qstat printed a line that cannot be parsed: Welcome to the cluster"),
        ("gridengine", "qconf", "note: qconf printed a line that cannot be parsed: Welcome to the cluster"),
        ("pbs", "qstat", "note: qstat printed a line that cannot be parsed: Welcome to the cluster"),
        ("flux", "flux", "note: flux printed a line that cannot be parsed: Welcome to the cluster"),
    ],
)
def test_an_odd_line_is_shown_and_the_good_lines_count(
    desk: Desk, scheduler: str, name: str, said: str
) -> None:
    desk.tools(scheduler, patience_s=5)
    good = desk("doctor", "-v")[1]
    desk.tools(scheduler, patience_s=5, **{name: "odd"})
    found = desk("doctor", "-v")[1]
    assert said in found
    queues = {"slurm": "gpu: 4 nodes", "gridengine": "gpu.q: ", "pbs": "main: "}
    assert queues.get(scheduler, "batch: ") in good
    assert queues.get(scheduler, "batch: ") in found
    (desk.folder / "two.toml").write_text('command = ["true"]\nengine = "native"\nwalltime_s = 60\n')
    code, out, err = desk("plan", "--scheduler", scheduler, "two.toml")
    assert (code, said.removeprefix("note: ") in " ".join(out.split())) == (0, True), out + err


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("fault", ["hang", "garbage", "closed", "megabytes"])
@pytest.mark.parametrize(
    ("scheduler", "name", "look"),
    [("slurm", "sbatch", "squeue --me"), ("gridengine", "qsub", 'qstat -u "$USER"'),
     ("pbs", "qsub", 'qstat -u "$USER"')],
)  # fmt: skip
def test_a_submission_without_an_answer_says_what_to_do(
    desk: Desk, scheduler: str, name: str, look: str, fault: str
) -> None:
    desk.tools(scheduler, **{name: f"{fault} later"})
    code, out, err = desk("submit", "--scheduler", scheduler, "job.toml")
    assert (code, out) == (5, ""), err
    assert "the job may or may not have been submitted" in err
    assert f"try: {look}   # if it lists names, cancel that job" in err
    code, out, err = desk("status")
    assert code == 0
    assert "unknown" in out, out + err


@pytest.mark.parametrize("scheduler", odd_tools.SCHEDULERS)
def test_a_busy_controller_is_asked_side_by_side(desk: Desk, scheduler: str) -> None:
    desk.tools(scheduler, patience_s=4)
    good = json.loads(desk("doctor", "--json")[1])["schedulers"]
    desk.tools(scheduler, patience_s=4, **dict.fromkeys(odd_tools.SCHEDULERS[scheduler], "slow"))
    assert json.loads(desk("doctor", "--json")[1])["schedulers"] == good


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("name", ["sacctmgr", "srun", "sinfo"])
def test_a_question_that_a_job_may_do_without(desk: Desk, name: str) -> None:
    desk.tools("slurm", patience_s=2, **{name: "hang"})
    code, out, err = desk("plan", "--scheduler", "slurm", "job.toml")
    assert code == 0, out + err
    assert f"{name} did not answer within 2 s" in " ".join(out.split())
    assert "export BAREBOAT_TOOL_TIMEOUT_S=60" in out


@pytest.mark.usefixtures("clean")
def test_who_waits_for_a_submission_is_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(creation, "NOTICE_S", 0.1)
    desk.tools("slurm", sbatch="hang later")
    desk("submit", "--scheduler", "slurm", "job.toml")
    assert caplog.messages == ["waiting for sbatch, 0.6 s at most"]


# a job is not taken for ended


def submitted(store: Store, scheduler: str, job_id: str) -> str:
    run_id = store.new_run("names")
    made = Submission(
        run_id=run_id, scheduler=scheduler, job_id=job_id, name="names", nodes=1, world_size=1,
        engine="native", submitted_at="2026-11-23T01:00:00Z", plan_digest="sha256:" + "0" * 64,
        image_digest=None, site_digest="sha256:" + "0" * 64,
    )  # fmt: skip
    store.write(store.run(run_id) / "submission.json", codec.to_json(made))
    return run_id


_JOBS = {"slurm": "4711", "gridengine": "4711", "pbs": "4711.pbs01", "flux": "ƒ4711"}
_ASKED = {
    "slurm": ("squeue", "sacct"), "gridengine": ("qstat", "qacct"), "pbs": ("qstat",),
    "flux": ("flux",),
}  # fmt: skip


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("fault", ["fail", "hang", "garbage", "megabytes"])
@pytest.mark.parametrize("scheduler", _JOBS)
def test_a_job_of_which_nothing_is_known_is_not_over(
    desk: Desk, store: Store, scheduler: str, fault: str, cancelled: bool
) -> None:
    desk.tools(scheduler, **dict.fromkeys(_ASKED[scheduler], fault))
    execute.set_patience(0.6)
    run_id = submitted(store, scheduler, _JOBS[scheduler])
    if cancelled:
        store.write(store.run(run_id) / "cancelled", b"")
    (status,) = state.look(store, [run_id], must_answer=False)
    assert (status.state, status.exit_code) == (JobState.UNKNOWN, None)
    assert status.reason
    assert not (store.run(run_id) / "exit_code").exists()
    assert f"{run_id}" in desk("status")[1]


@pytest.mark.parametrize("scheduler", _JOBS)
@pytest.mark.parametrize("fault", ["odd", "odd-bytes", "complains", ""])
def test_a_job_beside_an_odd_line_is_found(desk: Desk, store: Store, scheduler: str, fault: str) -> None:
    desk.tools(scheduler, patience_s=5, **dict.fromkeys(_ASKED[scheduler], fault))
    run_id = submitted(store, scheduler, _JOBS[scheduler])
    (status,) = state.look(store, [run_id])
    assert status.state is JobState.RUNNING


def test_a_job_that_an_odd_line_hides_is_unknown_with_that_line(desk: Desk, store: Store) -> None:
    desk.tools("slurm", patience_s=5, squeue="odd", sacct="nothing")
    known, hidden = submitted(store, "slurm", "4711"), submitted(store, "slurm", "4799")
    found = {each.submission.run_id: each for each in state.look(store, [known, hidden])}
    assert found[known].state is JobState.RUNNING
    assert found[hidden].state is JobState.UNKNOWN
    assert found[hidden].reason.startswith("squeue printed a line that cannot be parsed: Welcome")


def test_a_time_that_is_none_is_refused(desk: Desk) -> None:
    for text in ("0", "-1", "nan", "inf", "1e99"):
        desk.tools(None, patience_s=float(text))
        code, _, err = desk("doctor")
        assert (code, "try: export BAREBOAT_TOOL_TIMEOUT_S=60" in err) == (2, True)


# a probe that fails rules out its own subject


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "error", [MemoryError(), RecursionError("deep"), ValueError("odd"), OSError(5, "I/O")]
)
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("bareboat.probe.machine.mpis.launchers", "MPI could not be probed"),
        ("bareboat.probe.machine.probe_network", "the network could not be probed"),
        ("bareboat.probe.machine.find.find", "the GPU drivers could not be probed"),
        ("bareboat.probe.permits.checks", "the permissions of this machine could not be probed"),
        ("bareboat.probe.machine._file_system", "the file system of /tmp could not be probed"),
        ("bareboat.schedulers.slurm.Slurm.probe", ""),
        ("bareboat.engines.podman.Podman.probe", "the probe failed"),
    ],
)
def test_a_probe_that_fails_in_any_way(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, where: str, said: str, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for name in ("slurm", "podman"):
        registry.scheduler(name) if name == "slurm" else registry.engine(name)
    monkeypatch.setattr(where, fail)
    desk.tools("slurm", patience_s=5)
    code, out, err = desk("doctor", "-v")
    assert code in (0, 3), err
    assert f"{said}{': ' if said.endswith('probed') else ''}" in out
    assert type(error).__name__ in out
    assert desk("run", "job.toml")[0] == 0


def test_a_broken_numpy_stops_what_needs_it_and_nothing_else(desk: Desk) -> None:
    desk.tools(None, patience_s=20)
    (desk.folder / "broken/numpy").mkdir(parents=True)
    (desk.folder / "broken/numpy/__init__.py").write_text(
        'raise RuntimeError("module compiled against ABI 9")\n'
    )
    environment = {**os.environ, "PYTHONPATH": str(desk.folder / "broken")}

    def bareboat(*words: str) -> tuple[int, str]:
        done = completed(command(*words), env=environment, timeout=_HANGS_S)
        return done.returncode, done.stderr

    assert bareboat("run", "job.toml")[0] == 0
    assert bareboat("report", "names")[0] == 0  # a run that is no study
    code, said = bareboat("prove", "job.toml")
    assert code == 2
    assert "numpy, required for a study, cannot be imported" in said
    assert "RuntimeError: module compiled against ABI 9" in said
    assert "try: pip install --force-reinstall numpy" in said
