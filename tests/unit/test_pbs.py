"""The answers of Torque, as documented, and of Torque's commands over Slurm, as seen."""

import pytest
from builders import make_job, make_site

from bareboat.model import Job, JobState, Outcome, SchedulerFacts, Scheduling, Topology
from bareboat.schedulers.pbs import PBS, _flavour

pbs = PBS()

#: Torque 6.1, Commands Overview, qstat.
TORQUE = """\
Job Id: 17.server.example.org
    Job_Name = names
    Job_Owner = ada@login.example.org
    job_state = R
    queue = batch
    exec_host = n01/0-1+n02/0-1
    Variable_List = PBS_O_QUEUE=batch,PBS_O_HOME=/home/ada,PBS_O_LANG=en_US.UTF-8,
\tPBS_O_LOGNAME=ada,PBS_O_PATH=/usr/local/bin:/usr/bin:/bin,PBS_O_MAIL=/v
\tar/spool/mail/ada
    comment = Job started on Mon

Job Id: 18.server.example.org
    job_state = C
    exit_status = 271
"""
#: Slurm 22.05's contribs/torque: a tab where Torque has blanks.
FRONT = (
    "Job Id:\t1\n\tJob_Name = s.sh\n\tJob_Owner = alice@login\n\tjob_state = R\n\tqueue = main\n"
    "\texec_host = c1/1+c2/1\n\tPriority = 1\n\tResource_List.walltime = 01:00:00\n\n"
)


def outcome(stdout: str = "", stderr: str = "", code: int = 0) -> Outcome:
    return Outcome(argv=("qsub",), exit_code=code, stdout=stdout, stderr=stderr, wall_s=0.0)


def told(text: str) -> list[tuple[str, JobState, str, str]]:
    query = pbs.queries(["1"])[0]
    return [(e.job_id, e.state, e.reason, e.nodes) for e in query.parse(outcome(text, code=35))]


def test_what_the_servers_say() -> None:
    assert told(TORQUE) == [
        ("17.server.example.org", JobState.RUNNING, "Job started on Mon", "n01,n02"),
        ("18.server.example.org", JobState.FAILED, "", ""),
    ]
    assert told(FRONT) == [("1", JobState.RUNNING, "", "c1,c2")]
    assert told("") == []
    assert told("qstat: Unknown Job Id 17.server\n") == []


def directives(flavour: str, job: Job) -> tuple[str, ...]:
    facts = SchedulerFacts(name="pbs", version="1", settings={"flavour": flavour})
    return pbs.directives(job, make_site(schedulers=(facts,)))


def test_the_three_flavours_ask_in_their_own_words() -> None:
    job = make_job(
        name="digits, a long name of a job",
        topology=Topology(nodes=3, ranks_per_node=2, cpus_per_rank=2, gpus_per_rank=1),
        scheduling=Scheduling(mem_per_node_bytes=2**30, exclusive=True, after=("1.a",), options=("-m e",)),
    )
    torque, pro, front = (directives(flavour, job) for flavour in ("torque", "pro", "front"))
    assert torque[0] == "#PBS -N digits--a-long-"
    assert "#PBS -l select=3:ncpus=4:mpiprocs=2:ngpus=2:mem=1024mb" in pro
    assert "#PBS -l place=scatter:excl" in pro
    assert any(line.startswith("#PBS -l nodes=3:ppn=4") for line in torque)
    assert "#PBS -l mem=3072mb" in torque
    assert "#PBS -r y" in torque
    assert "#PBS -r y" in pro
    assert front[-2:] == ("#SBATCH --requeue", "#SBATCH --open-mode=append")
    for lines in (torque, pro, front):
        assert "#PBS -W depend=afterok:1.a" in lines
        assert "#PBS -m e" in lines


@pytest.mark.parametrize(
    ("text", "flavour"),
    [("pbs_version = 2021.1.3.20220217134230\n", ("2021.1.3.20220217134230", "pro")),
     ("Version: 6.1.3\nCommit: 5b4d3f\n", ("6.1.3", "torque")),
     ("Unknown option: version\nUsage:\n    qsub [-a start_time]\n", ("", "front"))],
)  # fmt: skip
def test_whose_commands_they_are(text: str, flavour: tuple[str, str]) -> None:
    assert _flavour(text) == flavour


def test_a_server_without_a_history_forgets_a_job_at_its_end() -> None:
    """As OpenPBS 23.06 does by default. A job that has ended and is kept is asked for in the history."""
    first = pbs.queries(["17.login", "18[2].login", "19.login", "20.login"])[0]
    stderr = (
        "qstat: Unknown Job Id 17.login\nqstat: Unknown Job Id 18[].login\n"
        "qstat: 20.login Job has finished, use -x or -H to obtain historical job information\n"
    )
    running = "Job Id: 19.login\n    job_state = R\n    exec_host = c1/0\n"
    found = {entry.job_id: entry.state for entry in first.parse(outcome(running, stderr, 153))}
    assert found == {
        "17.login": JobState.LOST, "18[2].login": JobState.LOST, "19.login": JobState.RUNNING,
    }  # fmt: skip
    assert list(first.odd(outcome(running, stderr, 153))) == []
    torque = pbs.queries(["17.srv"])[0].parse(outcome("", "qstat: Unknown Job Id Error 17.srv\n", 153))
    assert [entry.state for entry in torque] == [JobState.LOST]


def test_a_log_with_other_characters_than_ascii_is_relative() -> None:
    """OpenPBS 23.06: qsub: illegal -o value."""
    assert pbs.submit("/s/job.sh", "/s/log") == ("qsub", "-j", "oe", "-o", "/s/log", "/s/job.sh")
    words = ("env", "-C", "/störe/run", "qsub", "-j", "oe", "-o", "log", "/störe/run/job.sh")
    assert pbs.submit("/störe/run/job.sh", "/störe/run/log") == words
