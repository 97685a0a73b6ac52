"""Whether a job's command uses MPI, told by its files."""

from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site
from elves import make_elf

from bareboat.model import Linked, MpiFacts, MpiFamily, Plan, Pmi, SchedulerFacts, Topology
from bareboat.plan import plan
from bareboat.program_analysis.command import Sight
from bareboat.program_analysis.linked import look
from bareboat_base.errors import PlanError

OPENMPI = ("libmpi.so.40",)
#: A wrapper that reads its options and then becomes the rest; and a script that only looks like one.
SCRIPTS = {
    "entry.sh": '#!/bin/sh\nset -e\n# starts what it is given\nexport X=1\nexec "$@"\n',
    "train.sh": "#!/usr/bin/env bash\ncd /d && echo up\nif true; then\n  OMP_NUM_THREADS=1 solver -n 3\nfi\n",
    "endless.sh": "#!/bin/sh\n" + "endless.sh\n" * 5000,
    "plain.sh": "#!/bin/sh\necho solver; quiet\n",
}


@pytest.fixture
def sight(tmp_path: Path) -> Sight:
    """`solver` is linked to OpenMPI, `driver` to a library that is."""
    tree = tmp_path / "tree"
    elves = {
        "usr/bin/solver": ["libc.so.6", "libmpi.so.40"],
        "usr/bin/fortran": ["libmpi_mpifh.so.40"],
        "usr/bin/mpich": ["libmpich.so.12"],
        "usr/bin/driver": ["libsolve.so.1"],
        "usr/bin/quiet": ["libc.so.6", "libmpicalculus.so.1"],
        "usr/lib/libsolve.so.1": ["libmpi.so.40"],
        "usr/lib/libc.so.6": [],
        **{f"usr/bin/{name}": ["libc.so.6"] for name in ("bash", "sh", "env", "nice", "Rscript", "python3")},
    }
    for path, needed in elves.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(make_elf(needed=needed))
        (tree / path).chmod(0o755)
    (tree / "bin").symlink_to("usr/bin")
    for name, text in SCRIPTS.items():
        (tree / "usr/bin" / name).write_text(text)
        (tree / "usr/bin" / name).chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.out").write_bytes(make_elf(needed=["libmpi.so.12"]))
    (work / "a.out").chmod(0o755)
    return Sight([tree], mounts={"/work": str(work)})


def told(sight: Sight, *argv: str) -> Linked | None:
    around = {"PATH": "/usr/bin", "HERE": "."}
    return look(argv, sight, environment=around, workdir="/work", machine="x86_64")[0]


def test_programs_of_shell_code_that_are_not_there(sight: Sight) -> None:
    line = "A=1 shuf in | quiet; cd x && paste; export B; ./none"
    around = {"PATH": "/usr/bin"}
    _, absent = look(("sh", "-c", line), sight, environment=around, workdir="/work", machine="x86_64")
    assert absent == ("shuf", "paste", "none")


@pytest.mark.parametrize(
    ("line", "program", "mpi"),
    [
        ("solver", "solver", OPENMPI),
        ("fortran", "fortran", OPENMPI),
        ("mpich", "mpich", ("libmpi.so.12",)),
        ("driver", "driver", OPENMPI),
        ("./a.out --size 3", "a.out", ("libmpi.so.12",)),
        ("$HERE/a.out", "a.out", ("libmpi.so.12",)),
        ("env -u A OMP_NUM_THREADS=2 solver", "solver", OPENMPI),
        ("nice -n 5 numactl --cpunodebind=0 -m 1 solver", "solver", OPENMPI),
        ("timeout -k 5 60 taskset 0x3 stdbuf -oL solver", "solver", OPENMPI),
        ("bash -ec", "solver", OPENMPI),
        ("/bin/sh /usr/bin/train.sh", "solver", OPENMPI),
        ("train.sh", "solver", OPENMPI),
        ("entry.sh nice solver", "solver", OPENMPI),
    ],
)
def test_the_program_is_found_behind_what_starts_it(
    sight: Sight, line: str, program: str, mpi: tuple[str, ...]
) -> None:
    words = line.split()
    if words[0] == "bash":
        words.append("source /opt/setup; export A=1\ncd /work && exec solver > log 2>&1 # quiet")
    assert told(sight, *words) == Linked(program=program, mpi=mpi)


@pytest.mark.parametrize("line", ["quiet", "plain.sh", "python3 train.py", "missing", "env", "bash -c"])
def test_what_uses_no_mpi(sight: Sight, line: str) -> None:
    assert told(sight, *line.split()) is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["Rscript", "model.R"], "its programs may load an MPI by a module"),
        (["bash", "-c", "$SOLVER -n 3"], "its name is known at the start only"),
        (["endless.sh"], "too many commands start each other"),
        (["bash"], "its commands are read from the standard input"),
    ],
)
def test_what_cannot_be_judged(sight: Sight, words: list[str], why: str) -> None:
    found = told(sight, *words)
    assert found is not None
    assert found.unknown == why


# -- what the planner makes of it ------------------------------------------------------------------

LIBRARY = MpiFacts(
    family=MpiFamily.OPENMPI, version="5.0.7", library="/usr/lib/libmpi.so.40", prefix="/usr",
    speaks=(Pmi.PMIX,), pmix_version="5.0",
)  # fmt: skip


def planned(program: Linked | None, *, plugins: tuple[str, ...] = ("pmix",), **facts: object) -> Plan:
    image = make_image(**({"mpis": (LIBRARY,), "program": program, "frameworks": {}} | facts))
    job = make_job(
        command=("solver",), topology=Topology(nodes=2, ranks_per_node=3), scheduler="slurm", walltime_s=60,
    )  # fmt: skip
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="24.11", mpi_plugins=plugins),))
    return plan(job, image, make_rootfs(image), site)


def test_a_linked_program_is_started_by_mpis_ladder_and_checked() -> None:
    made = planned(Linked(program="solver", mpi=OPENMPI))
    assert made.launcher == "srun"
    assert made.mpi_check is not None
    assert "--library" in str(made.mpi_check.argv), "there is no mpi4py to ask"
    assert made.warnings == planned(None).warnings


def test_without_a_launcher_for_it_six_ranks_are_refused() -> None:
    assert planned(None, plugins=()).launcher == "ranks"
    with pytest.raises(PlanError):
        planned(Linked(program="solver", mpi=OPENMPI), plugins=(), frameworks={"jax": "0.10", "horovod": "1"})


def test_what_cannot_be_judged_is_said() -> None:
    made = planned(Linked(program="Rscript", unknown="its programs may load an MPI by a module"))
    assert made.launcher == "ranks"
    (warning,) = set(made.warnings) - set(planned(None).warnings)
    assert warning.startswith("it is not known whether Rscript uses MPI (its programs may load")


def test_without_python_in_the_image_the_missing_check_is_said() -> None:
    made = planned(Linked(program="solver", mpi=OPENMPI), python=None)
    assert made.launcher == "srun"
    assert made.mpi_check is None
    assert made.check_subject is None
    assert any("the MPI check needs Python 3 in the image" in warning for warning in made.warnings)
