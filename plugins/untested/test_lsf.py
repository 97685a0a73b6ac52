"""LSF's answers, as its documentation prints them (10.1: bsub, bjobs, bqueues), and what jobs ask it for."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site
from processes import command
from tools import completed, linked, output, tool
from unit.test_scheduler_commands import Grammar, jobs, made

from bareboat import backend, registry, render
from bareboat.model import JobState, Outcome, Refusal, SchedulerFacts, Scheduling, Topology
from bareboat.model.sweep import Sweep
from bareboat.plan import plan
from bareboat.schedulers import Scheduler
from bareboat_base.errors import PlanError, ToolError
from bareboat_untested.lsf import LSF

lsf = LSF()

BJOBS = """\
17|RUN|-|4*n01:4*n02|-
18|PEND|-|-|Job dependency condition not satisfied;
19|EXIT|7|n01|-
20|EXIT|130|n01|-
21|EXIT|140|n01|-
22|DONE|-|n01:n01|-
23|UNKWN|-|n01|-
Job <99> is not found
"""


def outcome(stdout: str = "", stderr: str = "", code: int = 0) -> Outcome:
    return Outcome(argv=("bsub",), exit_code=code, stdout=stdout, stderr=stderr, wall_s=0.0)


def test_what_the_queue_says() -> None:
    (query,) = lsf.queries(["17", "18"])
    found = {entry.job_id: entry for entry in query.parse(outcome(BJOBS, code=255))}
    assert {number: entry.state for number, entry in found.items()} == {
        "17": JobState.RUNNING, "18": JobState.PENDING, "19": JobState.FAILED, "20": JobState.FAILED,
        "21": JobState.TIMEOUT, "22": JobState.COMPLETED, "23": JobState.UNKNOWN,
    }  # fmt: skip
    assert found["17"].nodes == "n01,n02"
    assert found["18"].reason == "Job dependency condition not satisfied;"
    assert found["22"].nodes == "n01"
    assert {entry.stuck for entry in found.values()} == {""}
    never = "18|PEND|-|-|Dependency condition invalid or never satisfied;\n"
    assert query.parse(outcome(never))[0].stuck == "then submit it again"


@pytest.mark.parametrize(
    "text",
    ["Job <17> is submitted to queue <normal>.\n",
     "Welcome. Job <slots> are free.\nJob <17> is submitted to default queue <normal>.\n",
     "Your fairshare is 2026\nJob <17> is submitted to queue <normal>.\n"],
)  # fmt: skip
def test_the_number_in_a_sentence(text: str) -> None:
    assert lsf.job_id(outcome(text)) == "17"


def test_refusals() -> None:
    with pytest.raises(PlanError):
        lsf.job_id(outcome(stderr="nowhere: No such queue. Job not submitted.", code=255))
    with pytest.raises(ToolError):
        lsf.job_id(outcome("Job not submitted.\n"))


def test_slots_are_counted_for_the_job_and_tiled_over_hosts() -> None:
    job = make_job(
        topology=Topology(nodes=3, ranks_per_node=2, cpus_per_rank=2, gpus_per_rank=1),
        walltime_s=5401, scheduling=Scheduling(after=("3", "4"), requeue=False, options=("-B",)),
    )  # fmt: skip
    lines = lsf.directives(job, make_site(schedulers=(SchedulerFacts(name="lsf", version="10.1"),)))
    assert "#BSUB -n 12" in lines
    assert '#BSUB -R "span[ptile=4]"' in lines
    assert '#BSUB -gpu "num=2"' in lines
    assert "#BSUB -W 1:31" in lines
    assert '#BSUB -w "done(3) && done(4)"' in lines
    assert lines[-2:] == ("#BSUB -rn", "#BSUB -B")


def test_it_is_complete_and_found_by_its_entry_point() -> None:
    assert backend.faults(LSF, Scheduler) == ()
    assert isinstance(registry.scheduler("lsf"), LSF)


def test_commands_and_directives_have_only_options_of_the_tools() -> None:
    grammar, site = Grammar("lsf"), make_site(schedulers=(SchedulerFacts(name="lsf", version="1"),))
    for words in made("lsf", lsf):
        grammar.parse(words)
    for job in jobs():
        if not isinstance(lsf.objection(job, site), Refusal):
            for line in lsf.directives(job, site):
                assert grammar.tools["bsub"].parse(shlex.split(line.removeprefix("#BSUB "))) == [], line


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("EXIT|137|n01|-|TERM_MEMLIMIT: job killed after reaching LSF memory usage limit", "out of memory"),
        ("EXIT|140|n01|-|TERM_RUNLIMIT: job killed after reaching LSF run time limit", "timeout"),
        ("EXIT|130|n01|-|TERM_OWNER: job killed by owner", "cancelled"),
        ("EXIT|130|n01|-|TERM_PREEMPT: job killed after preemption", "preempted"),
    ],
)
def test_why_a_job_was_terminated(line: str, state: str) -> None:
    (query,) = lsf.queries(["2"])
    (entry,) = query.parse(outcome(f"2|{line}\n"))
    assert entry.state.value.replace("-", " ").replace("_", " ") == state


def test_an_array_and_its_elements() -> None:
    (asked_for,) = lsf.queries(["17[1]", "17[2]", "9"])
    assert asked_for.argv[-2:] == ("17", "9")
    text = "17|1|RUN|-|c1|-\n17|2|EXIT|7|c1|-\n17|3|PEND|-|-|-\n9|0|DONE|0|c1|-\n"
    assert {entry.job_id: entry.state for entry in asked_for.parse(outcome(text))} == {
        "17[1]": JobState.RUNNING, "17[2]": JobState.FAILED, "9": JobState.COMPLETED,
    }  # fmt: skip
    assert lsf.element("17", 0) == "17[1]"
    assert lsf.cancel("17[1]") == ("bkill", "17[1]")
    assert lsf.log_pattern("/s%/log", is_array=True) == "/s%/log.%I"
    assert lsf.element_logs("/s%/log", 3) == ("/s%/log.4",)
    job = make_job(
        scheduler="lsf", command=("true", "{x}"), name="digits",
        sweep=Sweep(names=("x",), points=(("1",), ("2",), ("3",)), at_once=2),
    )  # fmt: skip
    site = make_site(schedulers=(SchedulerFacts(name="lsf", version="10.1"),))
    made = plan(job, make_image(), make_rootfs(make_image()), site)
    assert '#BSUB -J "digits[1-3]%2"' in made.directives


def test_a_shell_on_the_node() -> None:
    assert lsf.attach("17", ("bash", "/s/shell.sh")) is None
    assert lsf.attach("17", None) == ("battach", "-L", "/bin/bash", "17")


def test_the_script_is_bash_and_names_secrets_only_by_name() -> None:
    job = make_job(scheduler="lsf", environment_from=("MY_API_KEY",), topology=Topology(nodes=2))
    site = make_site(schedulers=(SchedulerFacts(name="lsf", version="10.1"),))
    script = render.script(plan(job, make_image(), make_rootfs(make_image()), site))
    assert "environment_from=(MY_API_KEY)" in script
    assert "MY_API_KEY" not in script.partition("features=")[0]
    subprocess.run([tool("bash"), "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    "text", ["Welcome to the cluster\n", "\x00\xff|||||\n", "17|RUN\n", "4711|RUN|-|n1|-\x1b[0m\n", ""]
)
def test_odd_answers_hurt_nothing(text: str) -> None:
    (query,) = lsf.queries(["17"])
    for entry in query.parse(outcome(text)):
        assert isinstance(entry.state, JobState)
    assert all(isinstance(line, str) for line in query.odd(outcome(text)))
    with pytest.raises(ToolError):
        lsf.job_id(outcome(text))


def test_the_nodes_that_are_down(tmp_path: Path) -> None:
    program = tmp_path / "bhosts"
    program.write_text(
        "#!/bin/sh\ncat <<'END'\nHOST_NAME STATUS JL/U MAX\nc1 ok - 4\nc2 unreach - 4\nc3 unavail - 4\nEND\n"
    )
    program.chmod(0o755)
    script = f"{lsf.snippet()}\nnodes_down c1 c2 c3 c4"
    found = output(tool("bash"), "-c", script, timeout=60, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert found.split() == ["c2", "c3"]


@pytest.mark.usefixtures("installed")
def test_ranks_on_two_hosts_by_a_stand_in(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the entry points of the package, by tests/fakes/fake_queue.py."""
    tests = Path(__file__).parents[2] / "tests"
    (disk / "bin").mkdir()
    for name in ("bsub", "bjobs", "bkill", "brequeue", "blaunch", "lsid", "bqueues"):
        (disk / "bin" / name).symlink_to(tests / "fakes" / "fake_queue.py")
    (disk / "queue").mkdir()
    monkeypatch.setenv("FAKE_QUEUE", str(disk / "queue"))
    monkeypatch.setenv("BAREBOAT_STORE", str(disk / "store"))
    hidden = "sbatch|sinfo|squeue|srun|scontrol|qconf|qsub|qstat|qdel|qacct|pbsnodes|podman"
    monkeypatch.setenv("PATH", f"{disk / 'bin'}:{linked('/usr/bin:/bin', hidden)}")
    shutil.copy(tests / "lab" / "rank.py", disk)
    words = json.dumps([sys.executable, "rank.py", "tell"])
    (disk / "job.toml").write_text(
        f'command = {words}\nengine = "native"\nlauncher = "ranks"\n'
        "[topology]\nnodes = 2\nranks_per_node = 2\n"
    )

    def bareboat(*words: str) -> subprocess.CompletedProcess[str]:
        return completed(command(*words), cwd=disk, timeout=120, env=dict(os.environ))

    submitted = bareboat("submit", "--scheduler", "lsf", "job.toml")
    assert submitted.returncode == 0, submitted.stderr
    run = submitted.stdout.strip()
    waited = bareboat("wait", run)
    log = (disk / "store" / "runs" / run / "output.log").read_text()
    assert waited.returncode == 0, waited.stderr + log
    assert all(f'"RANK": "{rank}"' in log or f"[{rank}]" in log for rank in range(4)), log
