"""Slurm's answers, as 22.05 and 24.11 print them, and what jobs ask it for."""

import pytest
from builders import make_job, make_site
from hypothesis import given
from hypothesis import strategies as st
from queues import Tools

from bareboat.model import Job, JobState, Outcome, SchedulerFacts, Scheduling
from bareboat.plan import choose_scheduler
from bareboat.schedulers.slurm import Slurm
from bareboat.schedulers.slurm import seconds as seconds_in
from bareboat_base.errors import PlanError, ToolError, UsageError

slurm = Slurm()

SHOWN = """\
PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A \
DefaultTime=01:00:00 DisableRootJobs=NO MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 Nodes=c[1-3] \
State=UP TotalCPUs=12 TotalNodes=3 SelectTypeParameters=NONE
PartitionName=small AllowAccounts=research,physics Default=NO MaxNodes=1 MaxTime=00:10:00 State=UP
PartitionName=closed AllowAccounts=ALL Default=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED State=DOWN TotalNodes=3
"""
NODES = "main|4|16000|gpu:2(S:0)\nmain|64+|515000+|gpu:a100:4,gpu:h100:2(S:0-1)\nsmall|4|16000|(null)\n"


def outcome(stdout: str = "", stderr: str = "", code: int = 0, program: str = "sbatch") -> Outcome:
    return Outcome(argv=(program,), exit_code=code, stdout=stdout, stderr=stderr, wall_s=0.0)


ASSOCIATIONS = "sacctmgr --noheader --parsable2 show associations users=ada "


def test_the_probe_reads_partitions_accounts_and_plugins() -> None:
    facts = slurm.probe(
        Tools(
            {
                "sbatch --version": "slurm 24.11.5\n",
                "scontrol --oneliner show partition": SHOWN,
                "scontrol show config": "AccountingStorageEnforce = associations,limits,qos\n"
                "ClusterName             = lab\n"
                "AccountingStorageType   = accounting_storage/slurmdbd\n",
                "sinfo": NODES,
                "srun --mpi=list": "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
                "specific pmix plugin versions available: pmix_v5\n",
                ASSOCIATIONS: "research\nphysics\nresearch\n",
            }
        )
    )
    assert facts is not None
    main, small, closed = facts.partitions
    assert (main.default, main.up, main.nodes, main.max_nodes, main.max_time_s) == (
        True,
        True,
        3,
        None,
        86400,
    )
    assert (main.cpus_per_node, main.mem_per_node_bytes, main.gpus_per_node) == (64, 515000 * 2**20, 6)
    assert (small.max_nodes, small.max_time_s, small.gpus_per_node) == (1, 600, 0)
    assert small.accounts == ("research", "physics")
    assert (closed.up, closed.starts) == (True, False), "DOWN: it queues jobs"
    assert (closed.max_time_s, closed.cpus_per_node) == (None, None)
    assert facts.accounts == ("research", "physics")
    assert facts.version == "24.11.5"
    assert facts.mpi_plugins == ("none", "pmi2", "pmix", "pmix_v5")
    assert facts.settings == {"accounts": "enforced", "cluster": "lab"}


def test_partitions_that_are_hidden_or_closed_to_the_users_groups() -> None:
    every = SHOWN + (
        "PartitionName=admins AllowGroups=wheel Default=NO Hidden=NO MaxTime=UNLIMITED State=UP\n"
        "PartitionName=secret AllowGroups=ALL Default=NO Hidden=YES MaxTime=UNLIMITED State=UP\n"
    )
    facts = slurm.probe(
        Tools(
            {
                "sbatch --version": "slurm 24.11.5\n", "sinfo": NODES,
                "scontrol --oneliner show partition": SHOWN,
                "scontrol --all --oneliner show partition": every,
            }
        )
    )  # fmt: skip
    assert facts is not None
    assert [each.name for each in facts.partitions] == ["main", "small", "closed", "secret"]
    site = make_site(schedulers=(facts,))

    def refused(name: str) -> str:
        job = make_job(scheduler="slurm", walltime_s=60, scheduling=Scheduling(partition=name))
        found = slurm.objection(job, site)
        return "" if found is None else found.reason

    assert "is not open to" in refused("admins")
    assert "does not exist" in refused("nowhere")
    assert refused("secret") == ""


def test_a_controller_that_does_not_answer_is_told() -> None:
    facts = slurm.probe(Tools({"sbatch": "slurm-wlm 22.05.8\n", "sinfo": ""}))
    assert facts is not None
    assert facts.version == "22.05.8"  # as Debian's says it
    assert not facts.works
    assert facts.detail.splitlines() == ["Slurm does not answer:", "no"]
    site = make_site(schedulers=(facts,))
    with pytest.raises(PlanError) as raised:
        choose_scheduler(make_job(scheduler="slurm"), site)
    assert (raised.value.message, raised.value.context) == ("Slurm does not answer", "no")
    assert slurm.probe(Tools({})) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-00:00:00", 86400), ("2-12", 216000), ("00:10:00", 600), ("10:30", 630), ("90", 5400),
     ("UNLIMITED", None), ("infinite", None), ("", None), ("1:2:3:4", None)],
)  # fmt: skip
def test_times(text: str, seconds: int | None) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize(
    ("stderr", "remedy"),
    [
        ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates "
         "accounting/QOS policy", "use another --account"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination "
         "specified", "sacctmgr show associations"),
        ("sbatch: error: invalid partition specified: nowhere", "sinfo"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "sacctmgr show qos"),
        ("sbatch: error: Batch job submission failed: Requested reservation is invalid", "show reservation"),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", "sinfo -o '%P %f'"),
        ("sbatch: error: Requested node configuration is not available", "sinfo -N"),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller", "scontrol ping"),
        ("sbatch: error: Batch job submission failed: Unspecified error", "correct [scheduling]"),
    ],
)  # fmt: skip
def test_a_refusal_has_slurms_words_and_a_remedy(stderr: str, remedy: str) -> None:
    with pytest.raises(PlanError) as caught:
        slurm.job_id(outcome(stderr=stderr, code=1))
    assert caught.value.context == stderr
    assert remedy in (caught.value.remedy or "")


def test_what_the_queue_says() -> None:
    live, ended = slurm.queries(["7", "8", "9"])
    said = live.parse(
        outcome("7|RUNNING|None|c[1-3]\n8|PENDING|Resources|\n4|RUNNING|None|c1\n9|COMPLETING|None|c2\n")
    )
    assert [(e.job_id, e.state, e.reason, e.nodes) for e in said] == [
        ("7", JobState.RUNNING, "", "c[1-3]"),
        ("8", JobState.PENDING, "Resources", ""),
        ("9", JobState.RUNNING, "", "c2"),
    ]
    told = ended.parse(
        outcome(
            "7|CANCELLED by 1000|None|None assigned\n8|TIMEOUT|TimeLimit|c1\n9|NODE_FAIL|None|c2\n"
            "10|OUT_OF_MEMORY|None|c1\n11|FROBNICATED|None|c1\n"
        )
    )
    assert [entry.state for entry in told] == [
        JobState.CANCELLED, JobState.TIMEOUT, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY, JobState.UNKNOWN,
    ]  # fmt: skip
    assert told[0].nodes == ""
    assert ended.argv[-2] == "--jobs=7,8,9"
    assert ended.parse(outcome(stderr="Slurm accounting storage is disabled", code=1)) == ()
    with pytest.raises(ToolError, match="squeue does not answer"):
        live.parse(outcome(stderr="Unable to contact", code=1, program="squeue"))


@pytest.mark.parametrize(
    ("reason", "shown", "stuck"),
    [
        ("job requeued in held state", "", "or correct the cause, then: scontrol release 7"),
        ("launch failed requeued held", "", "or correct the cause, then: scontrol release 7"),
        ("user_env_retrieval_failed_requeued_held", "", "or correct the cause, then: scontrol release 7"),
        ("BadConstraints", "", "then submit it with other requests"),
        ("PartitionTimeLimit", "", "then submit it with other requests"),
        ("QOSMaxWallDurationPerJobLimit", "", "then submit it with other requests"),
        ("InvalidAccount", "", "then submit it with another account or qos"),
        ("JobHeldUser", "JobHeldUser; release it: scontrol release 7", ""),
        ("JobHeldAdmin", "JobHeldAdmin; only an administrator can release it", ""),
        ("PartitionDown", "PartitionDown; its partition starts no jobs now: sinfo", ""),
        ("QOSMaxJobsPerUserLimit", "", ""),
        ("ReqNodeNotAvail, UnavailableNodes:c2", "", ""),
    ],
)
def test_what_waits_for_ever_is_named(reason: str, shown: str, stuck: str) -> None:
    live, _ = slurm.queries(["7"])
    (entry,) = live.parse(outcome(f"7|PENDING|{reason}||N/A\n"))
    assert (entry.state, entry.reason, entry.stuck) == (JobState.PENDING, shown or reason, stuck)
    (entry,) = live.parse(outcome(f"7|CANCELLED|{reason}||N/A\n"))
    assert (entry.reason, entry.stuck) == (reason, "")


def directives(job: Job) -> list[str]:
    return list(slurm.directives(job, make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))))


@given(st.text(max_size=60))
def test_a_name_of_any_characters_makes_one_directive(name: str) -> None:
    try:
        job = make_job(name=name)
    except UsageError:
        return
    (line,) = [line for line in directives(job) if line.startswith("#SBATCH --job-name=")]
    value = line.removeprefix("#SBATCH --job-name=")
    assert value[0].isalpha()
    assert all(c.isascii() and (c.isalnum() or c in "._-") for c in value)


def test_options_stand_as_they_are_behind_the_others() -> None:
    job = make_job(scheduling=Scheduling(options=("--comment='two words'", "--licenses=matlab:1")))
    assert directives(job)[-2:] == ["#SBATCH --comment='two words'", "#SBATCH --licenses=matlab:1"]
    for bad in ("--a\n#SBATCH --b", "", "a\x7f"):
        with pytest.raises(UsageError, match=r"scheduling\.options is "):
            Scheduling(options=(bad,))


def test_a_log_with_a_percent_sign_is_no_pattern() -> None:
    log = slurm.log_pattern("/a%j/log")
    assert slurm.submit("/s", log)[2] == "--output=/a%%j/log"
    assert slurm.log_pattern("/a%j/log", is_array=True) == "/a%%j/log.%a"
