"""Proofs of MPI, kept: what is concluded from a proof's words, and what the planner makes of it."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import make_image, make_job, make_rootfs, make_site, make_surroundings

from bareboat import render
from bareboat.launchers import by_mpi
from bareboat.model import Command, MpiFacts, MpiFamily, Plan, Pmi, SchedulerFacts, Scheduling, Site, Topology
from bareboat.mpi import checks
from bareboat.mpi.checks import CheckResult
from bareboat.plan import plan
from bareboat.runs import mpi_checks
from bareboat_base.errors import PlanError, StoreError
from bareboat_images.store import Store

ONE_WORLD = "".join(
    f'0: bareboat-mpi-check {{"rank": {rank}, "size": 4, "host": "c{rank // 2}", "library": "Open MPI v5"}}\n'
    for rank in range(4)
)
ALONE = ONE_WORLD.replace('"size": 4', '"size": 1')
BROKEN = 'bareboat-mpi-check {"error": "no libmpi can be loaded: libmpi.so.40"}\n'
HUNG = "Timeout (0:02:00)!\nThread 0x00007f (most recent call first):\n"
ABORTED = (
    "OMPI was not built with SLURM's PMI support and therefore cannot execute.\n"
    "*** An error occurred in MPI_Init_thread\n"
)

#: As Slurm 22.05 says it where its plug-in's library is not installed.
NO_PLUGIN = (
    "srun: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library\n"
    "srun: error: Couldn't load specified plugin name for mpi/pmix: Plugin init() callback failed\n"
    "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types\n"
)

OWN = MpiFacts(
    family=MpiFamily.OPENMPI, version="4.1.4", library="/usr/lib/libmpi.so.40", prefix="/usr",
    launcher="/usr/bin/mpirun", speaks=(Pmi.PMIX,), slurm=True, pmix_version="4.2.2",
)  # fmt: skip
FACTS: dict[str, Any] = {
    "mpis": (OWN,), "mpi_users": {"mpi4py": ("libmpi.so.40",)}, "glibc": "2.36",
    "frameworks": {"mpi4py": "4.1"},
}  # fmt: skip
IMAGE = make_image(**FACTS)


@pytest.mark.parametrize(
    ("log", "failed", "holds", "said"),
    [
        (ONE_WORLD, False, True, "4 ranks on 2 nodes were one world of Open MPI v5"),
        (ONE_WORLD, True, True, "4 ranks on 2 nodes were one world of Open MPI v5"),
        (ALONE, True, False, "4 of 4 ranks were singletons"),
        (BROKEN, True, False, "MPI cannot be used: no libmpi can be loaded"),
        (HUNG, True, False, "the ranks hung"),
        (ABORTED, True, False, "MPI did not start: OMPI was not built with SLURM's PMI support"),
    ],
)
def test_what_a_proof_comes_to(log: str, failed: bool, holds: bool, said: str) -> None:
    found = checks.verdict(log, asked=4, failed=failed)
    assert found is not None
    assert found.holds is holds
    assert found.said.startswith(said)


@pytest.mark.parametrize(
    ("log", "failed"),
    [
        ("", True),
        (ALONE, False),
        (ABORTED, False),
        ("bareboat: the engine does not exist on c1: /opt/bwrap\n", True),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted\n", True),
        (ONE_WORLD.replace('"rank": 3', '"rank": 2'), False),
        ("srun: error: Unable to create step for job 5: More processors requested than permitted\n", True),
        ("srun: error: Node failure on c2\n" + "\n".join(ONE_WORLD.splitlines()[:2]), True),
    ],
    ids=["nothing", "going on", "cancelled", "missing", "container", "torn", "no step", "node lost"],
)
def test_what_says_nothing_of_mpi_is_not_kept(log: str, failed: bool) -> None:
    assert checks.verdict(log, asked=4, failed=failed) is None


# -- kept in the store -----------------------------------------------------------------------------


def planned(
    *, before: tuple[CheckResult, ...] = (), image: Any = IMAGE, node: Site | None = None, **changes: Any
) -> Plan:
    job = make_job(
        **(
            {"topology": Topology(nodes=2, ranks_per_node=2), "scheduler": "slurm", "walltime_s": 60}
            | changes
        )
    )
    facts = SchedulerFacts(name="slurm", version="22.05", mpi_plugins=("pmix",))
    host = msgspec.structs.replace(OWN, version="4.1.6", launcher="/sw/bin/mpirun", prefix="/sw")
    site = make_site(mpis=(host,), schedulers=(facts,))
    return plan(job, image, make_rootfs(image), site, node=node, mpi_checks=before)


def ended(store: Store, log: str | None, code: int | None, *, made: Plan | None = None) -> str:
    """A run that holds a proof, as its job script leaves it."""
    run_id = store.new_run("job")
    mpi_checks.expect(store, made or planned(), run_id)
    (store.run(run_id) / "control").mkdir()
    if log is not None:
        (store.run(run_id) / "control" / "mpi_check.log").write_text(log)
    if code is not None:
        (store.run(run_id) / "control" / "exit_code").write_text(f"{code} 1700000000\n")
    return run_id


def pending(store: Store) -> list[str]:
    folder = store.mpi_checks() / "pending"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_proof_is_gathered_once_its_run_has_spoken(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run_id = ended(store, None, None)
    assert mpi_checks.gather(store) == ()
    assert pending(store) == [run_id], "it waits in the queue"
    log = store.run(run_id) / "control" / "mpi_check.log"
    log.write_text(ALONE)
    assert mpi_checks.gather(store) == (), "not before its script says that it did not start the job"
    log.write_text(ONE_WORLD)
    (found,) = mpi_checks.gather(store)
    assert (found.holds, found.run_id, found.subject) == (True, run_id, planned().check_subject)
    assert found.image_digest == IMAGE.digest
    assert pending(store) == []
    assert mpi_checks.gather(store) == (found,)


def test_removed_runs_and_damaged_files_are_no_obstacle(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.discard(store.run(ended(store, None, None)))
    (store.mpi_checks() / "pending" / "odd").write_text("{")
    (store.mpi_checks() / "worn.json").write_text("{")
    assert mpi_checks.gather(store) == ()
    assert pending(store) == []


def test_what_cannot_be_read_or_written_now_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    ended(store, ALONE, 3)

    def full(*_: object) -> None:
        raise StoreError("the file system is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "write", full)
        assert mpi_checks.gather(store) == ()
    (found,) = mpi_checks.gather(store)
    (result,) = store.mpi_checks().glob("*.json")

    def denied(path: Path, **_: object) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("bareboat_base.files.untrusted.read_bytes", denied)
        assert mpi_checks.gather(store) == ()
    assert result.exists()
    assert mpi_checks.gather(store) == (found,)


def test_forgetting(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert mpi_checks.forget(store) == 0
    ended(store, ALONE, 3)
    waiting = ended(store, None, None)
    assert mpi_checks.forget(store) == 1
    assert mpi_checks.gather(store) == ()
    assert pending(store) == [waiting], "what runs have yet to say is heard"


# -- of a sweep ------------------------------------------------------------------------------------


def test_the_first_point_of_a_sweep_reports(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sweep = store.new_run("sweep")
    mpi_checks.expect(store, planned(), f"{sweep}.0")
    assert mpi_checks.gather(store) == ()
    assert pending(store) == [f"{sweep}.0"], "no point has begun"
    for number in (1, 0):
        folder = store.run(f"{sweep}.{number}") / "control"
        folder.mkdir(parents=True)
        (folder / "mpi_check.log").write_text(ONE_WORLD)
        expected = [(True, f"{sweep}.0")] if number == 0 else []
        assert [(each.holds, each.run_id) for each in mpi_checks.gather(store)] == expected
    assert pending(store) == []


def test_a_removed_sweep_is_waited_for_no_more(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sweep = store.new_run("sweep")
    mpi_checks.expect(store, planned(), f"{sweep}.0")
    store.discard(store.run(sweep))
    assert mpi_checks.gather(store) == ()
    assert pending(store) == []


# -- what the planner makes of it ------------------------------------------------------------------


def told(made: Plan, *, holds: bool) -> CheckResult:
    assert made.check_subject is not None
    said = "4 ranks were one world" if holds else "4 ranks were each alone"
    return CheckResult(
        subject=made.check_subject, holds=holds, said=said, at="2026-11-22T05:00:00Z", run_id="job-7"
    )


def test_what_held_is_said_and_changes_nothing_that_is_done() -> None:
    first = planned()
    second = planned(before=(told(first, holds=True),))
    assert second.notes[0] in render.text(second)
    assert render.digest(first) == render.digest(second)
    assert render.script(first) == render.script(second), "the proof is held again"
    assert first.notes == ()


def test_what_failed_is_not_taken_again_and_the_plan_says_why() -> None:
    first = planned()
    assert first.launcher == "srun"
    failed = told(first, holds=False)
    second = planned(before=(failed,))
    assert second.launcher == "mpirun"
    third = planned(before=(failed, told(second, holds=False)))
    assert third.launcher == "image-mpirun"


def test_a_launcher_that_starts_no_rank_is_the_sites_fault(tmp_path: Path) -> None:
    """The job tries the next way by itself; a job with another image does not try the first one."""
    store = Store(tmp_path)
    first = planned()
    assert [each.launcher for each in first.otherwise] == ["mpirun", "image-mpirun"]
    run_id = ended(store, ONE_WORLD, 0, made=first)
    (store.run(run_id) / "control" / "mpi_check.1.log").write_text(NO_PLUGIN)
    before = mpi_checks.gather(store)
    assert sorted((each.holds, each.of_site) for each in before) == [(False, True), (True, False)]
    text = render.text(planned(before=before, image=make_image(digest="sha256:" + "9" * 64, **FACTS)))
    assert "it starts no rank on this site: srun: error: mpi/pmix_v4: init" in text
    assert f"run {run_id}" in text
    # Once it starts ranks of any image, it is believed again.
    ended(store, ONE_WORLD, 0, made=first)
    assert planned(before=mpi_checks.gather(store)).launcher == "srun"


def test_what_doctor_found_broken_on_a_node_is_not_taken() -> None:
    said = {"srun --mpi=pmix": "srun: error: can not load PMIx library"}
    made = planned(node=make_site(mpis=(OWN,), broken_launches=said))
    assert made.launcher == "mpirun"


def test_a_script_tries_the_next_way_in_the_same_job(tmp_path: Path) -> None:
    """The first way cannot be started, the ranks of the second fail the check, those of the third do not."""

    def way(program: str, check: str, made: Plan) -> Plan:
        return msgspec.structs.replace(
            made,
            program=(program,),
            mpi_check=Command(argv=("bash", "-c", check)),
            command=Command(argv=("echo", "ran as", program)),
        )

    made = plan(
        make_job(topology=Topology(ranks_per_node=2), engine="native", launcher="mpirun"), None, None,
        make_site(mpis=(OWN,)),
    )  # fmt: skip
    ways = [way("no-such-mpirun", "true", made), way("nice", "exit 4", made), way("env", "true", made)]
    made = msgspec.structs.replace(ways[0], otherwise=tuple(ways[1:]), requirements=())
    made = msgspec.structs.replace(
        made, otherwise=tuple(msgspec.structs.replace(each, requirements=()) for each in made.otherwise)
    )
    for name, text in render.scripts(made):
        (tmp_path / name).write_text(text)

    def start() -> subprocess.CompletedProcess[str]:
        ranks = tmp_path / "ranks"
        ranks.mkdir(exist_ok=True)
        places = {"BAREBOAT_CONTROL": str(tmp_path), "BAREBOAT_RUN_DIR": str(ranks)}
        return subprocess.run(
            ["bash", tmp_path / "job.sh"], capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, **places},
        )  # fmt: skip

    done = start()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ran as env\n"
    (tmp_path / "rung.3.sh").unlink()
    (tmp_path / "mpi_check.2.log").unlink()
    alone = start()
    assert alone.returncode == 3
    assert "started no rank" not in alone.stderr, "in a later start of the job that way is not tried again"


def test_a_job_that_goes_on_later_begins_with_its_first_script() -> None:
    made = planned(scheduling=Scheduling(requeue=True))
    texts = dict(render.scripts(made))
    (requeue,) = re.findall(r"^requeue\(\) \{.*?^\}", texts["rung.2.sh"], re.DOTALL | re.MULTILINE)
    assert requeue.index("script=$BAREBOAT_CONTROL/job.sh\n") < requeue.index("if again ")
    assert " requeue " in texts["rung.2.sh"].split("features=")[1].splitlines()[0]


def test_the_step_that_is_told_is_the_one_that_is_taken() -> None:
    own = MpiFacts(
        family=MpiFamily.MPICH, version="4.2.0", library="/usr/lib/libmpi.so.12", prefix="/usr",
        launcher="/usr/bin/mpiexec", speaks=(Pmi.PMIX, Pmi.PMI2), slurm=True, pmix_version="4.2.2",
    )  # fmt: skip
    users = {"mpi4py": ("libmpi.so.12",)}
    image = make_image(**(FACTS | {"mpis": (own,), "mpi_users": users}))
    site = make_site(
        schedulers=(SchedulerFacts(name="slurm", version="22.05", mpi_plugins=("pmix", "pmi2")),),
    )
    job = make_job(topology=Topology(nodes=2, ranks_per_node=2), scheduler="slurm", walltime_s=60)
    first = plan(job, image, make_rootfs(image), site)
    second = plan(job, image, make_rootfs(image), site, mpi_checks=(told(first, holds=False),))
    for made, plugin in ((first, "pmix"), (second, "pmi2")):
        (launcher,) = (each for each in made.decisions if each.subject == "launcher")
        assert f"srun --mpi={plugin}" in launcher.reason
        assert made.program[1] == f"--mpi={plugin}"


def test_one_that_was_asked_for_is_refused_with_the_way_to_forget() -> None:
    failed = told(planned(), holds=False)
    with pytest.raises(PlanError) as raised:
        planned(before=(failed,), launcher="srun")
    assert raised.value.remedy.startswith("bareboat doctor --fresh")


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {"LD_LIBRARY_PATH": "/elsewhere"}},
        {"topology": Topology(nodes=1, ranks_per_node=2)},
        {"topology": Topology(nodes=2, ranks_per_node=1)},
        {"modules": ("openmpi/5.0",)},
        {"image": make_image(**FACTS, digest="sha256:" + "9" * 64)},
    ],
    ids=["environment", "one node", "one rank", "modules", "image"],
)
def test_it_says_nothing_of_other_circumstances(changes: dict[str, Any]) -> None:
    failed = told(planned(), holds=False)
    assert planned(before=(failed,), **changes).launcher == "srun"


def test_nor_of_other_engines_and_launchers() -> None:
    job = make_job()
    contexts = {
        by_mpi.context(job, make_surroundings(**changes))
        for changes in ({}, {"engine": "apptainer"}, {"mpi_plugins": ("pmix",)}, {"scheduler": "slurm"},
                        {"site": make_site(mpis=(OWN,))})
    }  # fmt: skip
    assert len(contexts) == 5


def test_more_nodes_are_no_other_circumstances() -> None:
    failed = told(planned(), holds=False)
    assert planned(before=(failed,), topology=Topology(nodes=3, ranks_per_node=4)).launcher == "mpirun"
