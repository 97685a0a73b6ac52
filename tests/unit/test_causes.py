"""Causes of ends. What Slurm 22.05 and Grid Engine 8.1.9 print is real; the others' is of their manuals."""

from typing import Any

import pytest

from bareboat import registry
from bareboat.model import Cause, End, JobState, Outcome, QueueEntry
from bareboat.runs import causes

KILLED = """\
slurmstepd-c1: error: StepId=2.batch exceeded memory limit (411467776 > 104857600), being killed
slurmstepd-c1: error: Exceeded job memory limit
slurmstepd-c1: error: *** JOB 2 ON c1 CANCELLED AT 2026-11-23T01:35:30 ***
"""
CGROUP = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=2.batch. "
    "Some of the step tasks have been OOM Killed.\n"
)
REQUEUED = "slurmstepd-c1: error: *** JOB 2 ON c1 CANCELLED AT 2026-11-23T01:35:30 DUE TO JOB REQUEUE ***\n"
TRACEBACK = """\
[rank 1] Traceback (most recent call last):
[rank 1]   File "train.py", line 3, in <module>
[rank 1]     connect()
[rank 1] ConnectionError: rank 0 has gone
[rank 0] Traceback (most recent call last):
[rank 0]   File "train.py", line 9, in <module>
[rank 0]     {line}
[rank 0] {raised}
[rank 1] Traceback (most recent call last):
[rank 1]   File "train.py", line 3, in <module>
[rank 1] ConnectionError: rank 0 has gone
bareboat: rank 0 ended first, with exit code 1; its last output:
    {raised}
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
QACCT = """\
==============================================================
qname        main
hostname     c2
jobnumber    2
taskid       undefined
slots        1
failed       {failed}
exit_status  {code}                  (Killed)
ru_wallclock {wall}s
cpu          0.010s
maxvmem      {peak}
category     {asked}
"""


def find(**told: Any) -> End:
    scheduler = registry.scheduler(told.pop("scheduler", "slurm"))
    told = {"scheduler": scheduler, "left": True, "store": "/s", **told}
    found = causes.find(causes.Evidence(**told))
    assert found is not None
    return found


def entry(state: JobState, reason: str = "", signal: int = 0) -> QueueEntry:
    return QueueEntry(job_id="2", state=state, reason=reason, signal=signal)


def answered(name: str, stdout: str, *, query: int = -1) -> QueueEntry:
    (found,) = (
        registry.scheduler(name)
        .queries(["2"])[query]
        .parse(Outcome(argv=("x",), exit_code=0, stdout=stdout, stderr="", wall_s=0.0))
    )
    return found


def test_a_run_that_ended_well_has_no_cause() -> None:
    slurm = registry.scheduler("slurm")
    assert causes.find(causes.Evidence(scheduler=slurm, code=0, left=True, log=KILLED)) is None


@pytest.mark.parametrize(
    ("said", "cause", "key"),
    [
        ("OUT_OF_MEMORY|OutOfMemory", Cause.MEMORY, "scheduling.mem_per_node_bytes"),
        ("TIMEOUT|TimeLimit", Cause.TIME, "walltime_s"),
        ("NODE_FAIL|NodeDown", Cause.NODE, "scheduling.requeue"),
        ("PREEMPTED|None", Cause.PREEMPTED, "scheduling.requeue"),
        ("CANCELLED by 1002|None", Cause.CANCELLED, ""),
        ("FAILED|RaisedSignal:11(Segmentation_fault)", Cause.SIGNAL, ""),
    ],
)
def test_slurm(said: str, cause: Cause, key: str) -> None:
    found = find(code=1, left=False, entry=answered("slurm", f"2|{said}|c1\n"))
    assert (found.cause, found.key) == (cause, key)


@pytest.mark.parametrize("log", [KILLED, CGROUP, "srun: error: c1: task 0: Out Of Memory\n"])
@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_slurm_names_the_memory_limit_in_the_output(log: str, state: JobState) -> None:
    """OverMemoryKill's jobs are FAILED with JobLaunchFailure, and their steps CANCELLED by 0."""
    found = find(code=137, left=False, entry=entry(state, "JobLaunchFailure"), log="step 3\n" + log)
    assert (found.cause, found.state) == (Cause.MEMORY, JobState.OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        # A process was killed, the command went on, and ended by itself.
        ({"code": 3, "log": KILLED, "entry": entry(JobState.FAILED)}, Cause.EXIT_CODE),
        # The earlier start's words.
        ({"code": 3, "log": KILLED + REQUEUED + "again\n", "starts": 2}, Cause.EXIT_CODE),
        ({"code": 137, "log": KILLED + "again\n", "starts": 2}, Cause.SIGNAL),
        ({"code": 137, "log": KILLED + REQUEUED + KILLED, "starts": 2}, Cause.MEMORY),
        # What a rank prints is not what the scheduler writes.
        ({"code": 137, "log": "".join(f"[rank 0] {line}\n" for line in KILLED.splitlines())}, Cause.SIGNAL),
        ({"code": 137, "log": KILLED, "cancelled": True}, Cause.CANCELLED),
        ({"code": 143, "cancelled": True, "entry": entry(JobState.TIMEOUT)}, Cause.TIME),
        ({"code": 143, "cancelled": True, "entry": entry(JobState.CANCELLED)}, Cause.CANCELLED),
        ({"code": 137}, Cause.SIGNAL),
        ({"code": 128 + 64}, Cause.SIGNAL),
        ({"code": 128 + 65}, Cause.EXIT_CODE),
        ({"code": 255}, Cause.EXIT_CODE),
        ({"code": 143, "ran_s": 61, "walltime_s": 60}, Cause.TIME),
        ({"code": 143, "ran_s": 59, "walltime_s": 60}, Cause.SIGNAL),
        ({"code": 139, "ran_s": 61, "walltime_s": 60}, Cause.SIGNAL),
        ({"code": 1, "left": False, "began": False, "entry": entry(JobState.FAILED)}, Cause.NEVER_STARTED),
        ({"code": 1, "left": False, "began": False, "entry": entry(JobState.DEPENDENCY)}, Cause.DEPENDENCY),
        ({"code": 143, "began": False, "cancelled": True, "left": False}, Cause.CANCELLED),
        ({"code": 86, "hung": True}, Cause.HUNG),
    ],
)
def test_evidence_that_disagrees(told: dict[str, Any], cause: Cause) -> None:
    found = find(**told)
    assert found.cause is cause
    if cause is Cause.SIGNAL and told["code"] in (137, 143):
        assert "sender unknown" in found.text


@pytest.mark.parametrize(
    ("raised", "cause"),
    [
        ("ValueError: no such column", Cause.EXCEPTION),
        ("KeyError", Cause.EXCEPTION),
        ("MemoryError", Cause.MEMORY),
        ("OSError: [Errno 12] Cannot allocate memory", Cause.MEMORY),
        ("OSError: [Errno 28] No space left on device", Cause.DISK),
        ("OSError: [Errno 122] Disk quota exceeded: 'model.pt'", Cause.QUOTA),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", Cause.GPU_MEMORY),
    ],
)
def test_the_exception_of_the_rank_that_failed_first(raised: str, cause: Cause) -> None:
    found = find(code=1, log=TRACEBACK.format(line="fit()", raised=raised), entry=entry(JobState.FAILED))
    assert found.cause is cause
    assert raised in found.text
    assert find(code=4, log=TRACEBACK.format(line="fit()", raised="ValueError: x")).cause is Cause.EXIT_CODE


def test_what_a_program_says_last_of_a_full_disk() -> None:
    assert find(code=1, log="step 1\ncp: error writing 'x': No space left on device\n").cause is Cause.DISK
    talk = "".join(f"step {n}\n" for n in range(9))
    assert find(code=1, log="No space left on device\n" + talk).cause is Cause.EXIT_CODE


@pytest.mark.parametrize(
    ("failed", "code", "wall", "peak", "asked", "cause"),
    [
        ("37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", 137, 4, "5.074MB", "-l h_rt=3", Cause.TIME),
        ("100 : assumedly after job", 137, 61, "5.0MB", "-l h_rt=60,h_vmem=1G", Cause.TIME),
        ("100 : assumedly after job", 137, 11, "299.9MB", "-l h_vmem=300M", Cause.MEMORY),
        ("100 : assumedly after job", 137, 11, "4.980MB", "-l h_rt=60,h_vmem=300M", Cause.SIGNAL),
        ("100 : assumedly after job", 137, 11, "4.980MB", "NONE", Cause.SIGNAL),
    ],
)
def test_grid_engine(failed: str, code: int, wall: int, peak: str, asked: str, cause: Cause) -> None:
    """One word of its accounts stands for three limits, and none for a kill by qdel."""
    text = QACCT.format(failed=failed, code=code, wall=wall, peak=peak, asked=asked)
    found = find(scheduler="gridengine", code=137, left=False, entry=answered("gridengine", text))
    assert found.cause is cause


@pytest.mark.parametrize(
    ("name", "answer", "log", "cause"),
    [
        ("pbs", "Exit_status = -29", "", Cause.TIME),
        ("pbs", "Exit_status = -27", "", Cause.MEMORY),
        ("pbs", "exit_status = -10", "", Cause.MEMORY),
        ("pbs", "exit_status = -11", "", Cause.TIME),
        ("pbs", "Exit_status = 271", "", Cause.SIGNAL),
        ("pbs", "Exit_status = 271", "=>> PBS: job killed: walltime 152 exceeded limit 120\n", Cause.TIME),
        ("pbs", "Exit_status = 271", "=>> PBS: job killed: mem 2097kb exceeded limit 1024kb\n", Cause.MEMORY),
        ("flux", "INACTIVE|TIMEOUT|c3|c3|True|timeout|0|resource allocation expired|Timeout|137|35072|0.0",
         "", Cause.TIME),
        ("flux", "INACTIVE|CANCELED|c2|c2|True|cancel|0||Canceled|129|33024|0.0", "", Cause.CANCELLED),
        ("flux", "INACTIVE|FAILED|c2|c2|False||||Exit 4|4|1024|0.0", "", Cause.EXIT_CODE),
        ("flux", "INACTIVE|FAILED|c1|c1|True|node-failure|2|node failure on c1|Terminated|143|36608|0.0", "",
         Cause.NODE),
    ],
)  # fmt: skip
def test_documented_answers(name: str, answer: str, log: str, cause: Cause) -> None:
    text = f"Job Id: 2\n    job_state = F\n    {answer}\n" if name == "pbs" else f"2|{answer}\n"
    found = find(scheduler=name, code=1, left=False, entry=answered(name, text), log=log)
    assert found.cause is cause


@pytest.mark.parametrize(
    ("code", "line", "cause", "words"),
    [
        (3, "the engine does not exist on c1: /tmp/x", Cause.EXIT_CODE, "does not exist on c1: /tmp/x"),
        (3, "module load a b/2 failed on c1", Cause.EXIT_CODE, "module load a b/2 failed on c1"),
        (70, "a node was lost: not all ranks have ended", Cause.NODE, "a node was lost"),
        (3, "the image is on this node on c1 already", Cause.EXIT_CODE, "the command exited with 3"),
    ],
)
def test_what_the_job_script_found(code: int, line: str, cause: Cause, words: str) -> None:
    end = find(code=code, log=f"begin\nbareboat: {line}\n  try: this\n", began=True, starts=1)
    assert end.cause is cause
    assert words in end.text


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[rank 0] ",
        "[rank0]: ",
        "0: ",
        "12: ",
        "[default0]:",
        "[1,0]<stderr>:",
        "[rank 0] [rank0]: ",
        "[0] ",
        "[0]<stderr>:",
        "[prterun-c1-4711@1,0]<stderr>: ",
        "Sat Nov 28 14:00:00 2026<stderr>:",
        "Nov  8 14:00:00 ",
        "00:00:01 ",
        "00:00:01.123456 ",
        "2026-11-28 14:00:00 ",
        "2026-11-28T14:00:00.123Z ",
        "[2026-11-28 14:00:00,123] ",
        "2026-11-28T14:00:00+01:00 0: ",
    ],
)
def test_causes_are_read_through_the_prefixes_of_launchers(prefix: str) -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "ValueError: bad shape",
    )
    log = "".join(f"{prefix}{line}\n" for line in lines)
    end = find(code=1, log=log, began=True, starts=1)
    assert (end.cause, end.text) == (Cause.EXCEPTION, "ValueError: bad shape")
    memory = find(code=1, log=f"{prefix}MemoryError\n", began=True, starts=1)
    assert memory.cause is Cause.MEMORY


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("./run.sh: line 2: perl: command not found", "perl"),
        ("[rank 0] bash: line 1: g++: command not found", "g++"),
        ("sh: 1: jq: not found", "jq"),
        ("/usr/bin/env: \u2018perl\u2019: No such file or directory", "perl"),
        ("nice: 'perl': No such file or directory", "perl"),
        ("cat: /data/x: No such file or directory", None),
        ("sh: 1: ./jq: not found", None),
        ("error: user: not found", None),
    ],
)
def test_the_program_that_a_script_does_not_find(line: str, name: str | None) -> None:
    scheduler = registry.scheduler("slurm")
    for code, expected in ((127, name), (1, None)):
        evidence = causes.Evidence(scheduler=scheduler, code=code, left=True, log=f"begins\n{line}\nends\n")
        assert causes.missing_program(evidence) == expected


#: What torchrun of PyTorch 2.13 writes when rank 1 of 2 raises.
TORCHRUN = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/work/train.py", line 7, in <module>
[rank1]: {raised}
[rank0]: Traceback (most recent call last):
[rank0]:   File "/work/train.py", line 8, in <module>
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:10380
E1128 09:14:40.776000 29310 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)
Traceback (most recent call last):
  File "/env/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-28_09:14:40
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 29466)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 29466
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_09:14:40
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 29468)\x20
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_under_torchrun_the_rank_that_failed_first_is_the_cause() -> None:
    log = TORCHRUN.format(raised="ValueError: the learning rate is negative")
    assert find(code=1, log=log).text == "ValueError: the learning rate is negative"
    assert causes.own_error(log) == "ValueError: the learning rate is negative"
    silent = "\n".join(line for line in log.splitlines() if not line.startswith("[rank"))
    assert find(code=1, log=silent).text == "the command exited with 1: rank 1 failed first, with exit code 3"


def test_an_exception_after_which_the_others_waited_beats_the_time_limit() -> None:
    log = "[rank 0] step 3\n" + TRACEBACK.splitlines(keepends=True)[0] + '[rank 1]   File "t.py", line 3\n'
    log += "[rank 1] ValueError: no such label\n" + KILLED.splitlines(keepends=True)[2]
    end = find(code=143, log=log, entry=entry(JobState.TIMEOUT))
    assert (end.cause, end.state) == (Cause.EXCEPTION, JobState.TIMEOUT)
    assert end.text.startswith("rank 1: ValueError: no such label")
    handled = log + "[rank 0] going on\n" * 20
    assert find(code=143, log=handled, entry=entry(JobState.TIMEOUT)).cause is Cause.TIME
    assert find(code=124, log=log, timed_out=True, walltime_s=60).cause is Cause.EXCEPTION
    assert find(code=71, log=log, hung=True).cause is Cause.EXCEPTION


def test_the_rank_that_ended_first_is_named_and_its_lines_are_read() -> None:
    other = "1: Traceback (most recent call last):\n1: EOFError: rank 0 has gone\n"
    log = "0: Traceback (most recent call last):\n0: ValueError: no such label\n" + other
    first = "bareboat: rank 0 ended first, with exit code 1\n"
    assert find(code=1, log=log + first).text == "ValueError: no such label; rank 0 ended first"


def test_signals_that_say_what_they_are() -> None:
    end = find(code=139)
    assert (end.cause, end.key) == (Cause.SIGNAL, "environment")
    assert "PYTHONFAULTHANDLER" in end.remedy
    assert find(code=130).cause is Cause.CANCELLED
