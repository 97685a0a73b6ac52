"""Questions to a compute node by files: the job's own bash answers them here, without a queue between."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders import make_image, make_job, make_site

from bareboat.cli import doctor
from bareboat.model import JobState, Mount, Partition, QueueEntry, SchedulerFacts, Scheduling
from bareboat.plan import plan
from bareboat.probe import compute
from bareboat.runs import state, submission
from bareboat_base.errors import BareboatError, PlanError
from bareboat_images.store import Store


@pytest.fixture
def node(tmp_path: Path, store: Store) -> Iterator[compute.NodeHost]:
    folder = tmp_path / "asked here"
    folder.mkdir()
    script = compute._SCRIPT.format(folder=shlex.quote(str(folder)), walltime_s=120)
    job = subprocess.Popen(
        ["bash", "-c", script], stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "BASH_FUNC_module%%": "() { :; }"},
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),  # as of one rank
    )  # fmt: skip
    yield compute.NodeHost(folder, store, {"/here/bwrap": "/bin/echo"})
    (folder / "stop").touch()
    assert job.wait(30) == 0


def test_words_streams_and_codes_come_through(node: compute.NodeHost) -> None:
    odd = 'it\'s $HOME; "two\nlines" \udcff'
    said = node.run([sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(7)", odd])
    assert (said.exit_code, said.stdout) == (7, f"{odd}\n")
    assert node.run(["no-such-program"]).exit_code == 127
    assert node.shell("echo out; echo err >&2") == "out\n"
    assert node.which("bash") is not None
    assert node.which("no such program") is None
    # Programs of the store take the place of the login node's.
    said = node.run(["/here/bwrap", "--version"])
    assert said.argv[0] == "/here/bwrap", "as it was asked"
    assert "echo" in said.stdout


def test_what_the_node_says_of_itself(node: compute.NodeHost, store: Store) -> None:
    store.root.mkdir(exist_ok=True)
    login = make_site(home="/no/such/home", hostname="login")
    site = compute._site(node, store, login)
    assert site.hostname == os.uname().nodename
    assert site.cpus == os.sysconf("SC_NPROCESSORS_ONLN")
    assert site.unseen == ("/no/such/home",)
    assert not site.lacks_modules
    assert (site.user, site.uid) == (login.user, login.uid)
    assert {"native"} <= {facts.name for facts in site.engines if facts.works}
    (kept,) = [system for system in site.file_systems if system.purpose == "store"]
    assert kept.path == str(store.root)
    assert kept.free_bytes > 0


def test_what_a_node_does_not_see_refuses_the_job(store: Store) -> None:
    login = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    (system,) = login.file_systems
    blind = msgspec.structs.replace(compute._blind(store, login), unseen=(system.path,))
    with pytest.raises(PlanError, match="do not see /scratch/ada, where the store is") as caught:
        plan(make_job(scheduler="slurm", engine="native"), None, None, login, node=blind)
    assert "--store DIR" in (caught.value.remedy or "")
    job = make_job(scheduler="slurm", engine="native", mounts=(Mount(source="/tmp/data", target="/data"),))
    node = msgspec.structs.replace(login, own=("/tmp",))
    with pytest.raises(PlanError, match="do not see this machine's /tmp, where the working directory is"):
        plan(msgspec.structs.replace(job, workdir="/tmp/here"), None, None, login, node=node)
    assert "without /tmp/data: mount what" in str(plan(job, None, None, login, node=node).warnings)
    node = msgspec.structs.replace(login, lacks_modules=True, checks=())
    with pytest.raises(PlanError, match='the compute nodes do not have the command "module"') as caught:
        plan(msgspec.structs.replace(job, modules=("cuda/12.2",)), None, None, login, node=node)
    assert "remove modules" in (caught.value.remedy or "")
    assert "that set modules cannot run there: remove modules" in doctor._node_text(node)
    assert "this user" not in doctor._node_text(node), "nothing is checked for there"
    # The arm on bare metal of a study has the environment of the other.
    made = plan(msgspec.structs.replace(job, mounts=()), make_image(), None, login)
    assert ("/env/bin/python", "the bare-metal environment") in [(r.path, r.what) for r in made.requirements]


@pytest.mark.parametrize(
    ("scheduler", "partition", "name"),
    [("slurm", None, "slurm-main"), ("slurm", "gpu", "slurm-gpu"), ("pbs", None, "pbs-default")],
)
def test_facts_are_kept_by_scheduler_and_partition(scheduler: str, partition: str | None, name: str) -> None:
    """The default partition's are the same, whether it was named or not."""
    main = Partition(name="main", default=True)
    login = make_site(
        schedulers=(
            SchedulerFacts(name="slurm", version="1", partitions=(Partition(name="gpu"), main)),
            SchedulerFacts(name="pbs", version="1"),
        )
    )
    job = make_job(scheduler=scheduler, scheduling=Scheduling(partition=partition))
    assert compute.site_name(job, login) == name
    # Clusters that share a home directory have facts of their own.
    names = set()
    for cluster in ("alpha", "beta"):
        facts = SchedulerFacts(name=scheduler, version="1", settings={"cluster": cluster})
        names.add(compute.site_name(job, make_site(schedulers=(facts,))))
    assert names == {f"{scheduler}-{cluster}-{partition or 'default'}" for cluster in ("alpha", "beta")}


def test_a_probe_that_grid_engine_cannot_start_is_not_awaited(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = QueueEntry(job_id="9", state=JobState.PENDING, reason="state Eqw: qstat -j 9", stuck="cancel it")
    monkeypatch.setattr(compute, "_submit", lambda *_: "9")
    monkeypatch.setattr(state, "ask", lambda *_: {"9": entry})
    cancelled: list[Sequence[str]] = []
    monkeypatch.setattr(submission, "cancel_by", cancelled.append)
    with pytest.raises(BareboatError, match="does not start") as caught:
        compute.look(store, make_job(scheduler="gridengine"), make_site(), moved={}, say=lambda _: None)
    assert caught.value.context == "Grid Engine reports: state Eqw: qstat -j 9"
    assert cancelled == [("qdel", "9")]


def test_a_scheduler_that_does_not_answer_is_refused_with_its_output_apart(store: Store) -> None:
    facts = SchedulerFacts(
        name="slurm", version="", works=False, detail="Slurm does not answer:\nsinfo: one\nsinfo: two"
    )
    settings = dict.fromkeys(("scheduler", "partition", "account", "qos", "reservation", "constraint"))
    context: Any = SimpleNamespace(settings=settings, store=store)
    with pytest.raises(PlanError) as caught:
        doctor._probe_node(context, make_site(schedulers=(facts,)), None)
    assert (caught.value.message, caught.value.context) == ("Slurm does not answer", "sinfo: one\nsinfo: two")
