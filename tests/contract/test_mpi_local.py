"""The rules against the real MPIs: each launcher starts each library, and the ending is the one foretold.

Four MPIs, installed by tests/lab/mpi-pairs.sh; two ranks on this machine, without a scheduler. The ranks get
the environment that they would have in a container: what the launcher says to them, and nothing else.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from elves import make_elf
from msgspec import structs
from processes import command
from tools import completed, tool

from bareboat.model import MpiFacts
from bareboat.mpi import checks, text
from bareboat.mpi.rules import PASSED, Ending, Layout, ProcessManager, Setting, judge, manager_of, singleton
from bareboat_base.printable import one_line
from bareboat_images.inside.survey import look

PREFIX = Path(os.environ.get("BAREBOAT_LAB_MPI", "/opt/bareboat-lab/mpi"))
NAMES = ("debian", "openmpi-4.1.8", "openmpi-5.0.11", "mpich-5.0.2")
#: A hang is called one after so long; the slowest of those that work takes 2 s.
PATIENCE_S = 20


@dataclass(frozen=True)
class Installed:
    folder: Path
    facts: MpiFacts

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")


def installed(name: str) -> Installed:
    """One MPI of the lab, told by its files as in an image."""
    folder = PREFIX / name
    if not (folder / ".whole").exists():
        pytest.skip("the MPIs are not installed: sudo tests/lab/mpi-pairs.sh")
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    mpis = look([Path("/")], environment=environment).mpis
    wanted = str(folder) if name != "debian" else "/usr"
    return Installed(folder, next(mpi for mpi in mpis if mpi.prefix == wanted))


def start(
    launcher: Installed, library: Installed, settings: tuple[Setting, ...], *around: str
) -> checks.CheckOutput:
    """Two ranks of `library` by `launcher`. `around`: what holds each rank."""
    # Of its launcher a rank sees only what a container lets in.
    passed = "|".join(f"{prefix}*" for prefix in PASSED)
    taken = {setting.name for setting in settings if setting.value is None}
    given = [f"{setting.name}={setting.value}" for setting in settings if setting.value is not None]
    keep = (
        "set --; while IFS= read -r name; do case $name in "
        f"{'|'.join(sorted(taken)) or '-'}) ;; "
        f'{passed}) eval "value=\\$$name"; set -- "$@" "$name=$value" ;; '
        'esac; done <<< "$(compgen -e)"; '
    )
    rank = checks.command(library.python, size=2, timeout_s=PATIENCE_S)
    script = (
        f'command=(); for word; do command+=("$word"); done; {keep}'
        'exec env -i PATH=/usr/bin:/bin HOME=/nonexistent "$@" "${command[@]}"'
    )
    oversubscribe = () if launcher.facts.family != "OpenMPI" else ("--oversubscribe",)
    start = [str(launcher.facts.launcher), *oversubscribe, "-n", "2", *around]
    done = completed(
        [*start, "bash", "-c", script, "rank", "env", *given, *rank], stdin=subprocess.DEVNULL,
        errors="replace", timeout=PATIENCE_S + 30, cwd="/tmp",
        env={"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"]},
    )  # fmt: skip
    return checks.read(done.stdout, exit_code=done.returncode, asked=2)


def ending(found: checks.CheckOutput) -> Ending:
    if found.holds:
        return Ending.WORKS
    if found.singletons:
        return Ending.SINGLETONS
    return Ending.FAILS


def launch(launcher: Installed) -> ProcessManager:
    found = manager_of(launcher.facts, in_slurm=False)
    assert found is not None
    return found


@pytest.mark.parametrize("library", NAMES)
@pytest.mark.parametrize("launcher", NAMES)
def test_what_is_foretold_for_a_pair_is_what_happens(launcher: str, library: str) -> None:
    ours, theirs = installed(launcher), installed(library)
    verdict = judge(launch(ours), theirs.facts, Layout(nodes=1, ranks_per_node=2))
    # OPAL_PREFIX belongs to the installation, not to the pair: without it no wheel of 4.1 starts at all.
    place = tuple(setting for setting in verdict.settings if setting.name == "OPAL_PREFIX")
    if not verdict.works and theirs.facts.moved:
        place = (Setting(name="OPAL_PREFIX", value=theirs.facts.prefix, reason="the library was moved"),)
    without = start(ours, theirs, place)
    assert ending(without) is verdict.bare, without.sentence
    if verdict.works:
        found = start(ours, theirs, verdict.settings)
        assert found.holds, found.sentence
        assert theirs.facts.version in str(found.library), "the launcher's library was loaded instead"


WAITS = """\
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    raise ValueError("no such label")
MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.parametrize("name", NAMES)
def test_an_exception_of_one_rank_ends_the_others(name: str, tmp_path: Path) -> None:
    mpi = installed(name)
    (tmp_path / "waits.py").write_text(WAITS)
    options = ("--oversubscribe",) if mpi.facts.family == "OpenMPI" else ()
    ranks = (mpi.python, "-c", text.main_of(text.run_script), "waits.py")
    done = completed([str(mpi.facts.launcher), *options, "-n", "2", *ranks], cwd=tmp_path, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "ValueError: no such label" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_ranks_in_user_namespaces_of_their_own(name: str) -> None:
    """As with a launcher outside rootless containers. Large messages must not wait for ever."""
    mpi = installed(name)
    around = (tool("bwrap"), "--unshare-user", "--dev-bind", "/", "/", "--")
    apart = Layout(nodes=1, ranks_per_node=2, container_per_rank=True)
    verdict = judge(structs.replace(launch(mpi), own=True), mpi.facts, apart)
    assert verdict.works
    found = start(mpi, mpi, verdict.settings, *around)
    assert found.holds, found.sentence


@pytest.mark.parametrize("name", NAMES)
def test_the_library_of_a_program_that_is_linked_to_it_without_mpi4py(name: str) -> None:
    mpi = installed(name)
    settings = judge(structs.replace(launch(mpi), own=True), mpi.facts, Layout()).settings
    assert mpi.facts.library is not None
    done = completed(
        [
            str(mpi.facts.launcher), *(() if name.startswith("mpich") else ("--oversubscribe",)), "-n", "2",
            "env",
            *(f"{setting.name}={setting.value}" for setting in settings if setting.value is not None),
            *checks.command("/usr/bin/python3", size=2, timeout_s=PATIENCE_S, library=mpi.facts.library),
        ],
        stdin=subprocess.DEVNULL, timeout=PATIENCE_S + 30,
    )  # fmt: skip
    found = checks.read(done.stdout, exit_code=done.returncode, asked=2)
    assert found.holds, done.stderr


def test_a_rank_that_was_started_alone_is_told_so() -> None:
    mpi = installed("mpich-5.0.2")
    done = completed(checks.command(mpi.python, size=2, timeout_s=PATIENCE_S))
    assert done.returncode == 3
    assert "the MPI world has size 1, not 2" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_process_that_no_launcher_started_is_a_world_of_its_own(name: str, tmp_path: Path) -> None:
    """Also where no ssh is on PATH, as in most images."""
    mpi = installed(name)
    given = {each.name: each.value or "" for each in singleton(mpi.facts)}
    done = subprocess.run(
        [mpi.python, "-c", "from mpi4py import MPI; print('size', MPI.COMM_WORLD.size)"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), **given},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S + 30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "size 1\n"), done.stderr


# -- an mpi4py that cannot be imported: the job would fail at its first line ------------------------


def alone(python: Path | str, *options: str, environment: dict[str, str] | None = None) -> checks.CheckOutput:
    """The proof of one rank, in which whatever MPI is asked is right. `options`: Python's."""
    words = checks.command(str(python), size=1, timeout_s=PATIENCE_S)
    done = completed(
        [words[0], *options, *words[1:]], env={"PATH": "/usr/bin:/bin", **(environment or {})},
        stdin=subprocess.DEVNULL, timeout=PATIENCE_S + 30,
    )  # fmt: skip
    found = checks.read(done.stdout, exit_code=done.returncode, asked=1)
    printed = one_line(done.stderr, limit=len(done.stderr))
    assert all(error in printed for error in found.errors)
    return found


def linked_elsewhere(folder: Path) -> Path:
    """Packages with an mpi4py as its sources build it: one extension, linked to one libmpi, which is gone."""
    (real,) = (PREFIX / "debian").glob("lib/python3*/site-packages/mpi4py")
    shutil.copytree(real, folder / "mpi4py", ignore=shutil.ignore_patterns("MPI.*.so"))
    (extension,) = real.glob("MPI.mpich.*.so")
    content = extension.read_bytes()
    assert content.count(b"\0libmpi.so.12\0") == 1
    built = folder / "mpi4py" / extension.name.replace(".mpich.", ".")
    built.write_bytes(content.replace(b"\0libmpi.so.12\0", b"\0libmpi.so.77\0"))
    return folder


def test_an_mpi4py_of_another_library_is_told_whatever_else_would_work(tmp_path: Path) -> None:
    mpi = installed("debian")
    found = alone(mpi.python, environment={"PYTHONPATH": str(linked_elsewhere(tmp_path))})
    assert found.exit_code == 4
    (error,) = found.errors
    assert "mpi4py is installed, but cannot be imported: libmpi.so.77: cannot open shared object" in error
    assert "pip install --force-reinstall --no-binary=mpi4py mpi4py" in error


def test_nor_does_an_mpi4py_pass_that_looks_for_a_library_and_finds_none() -> None:
    found = alone(installed("debian").python, environment={"MPI4PY_LIBMPI": "/nowhere/libmpi.so.40"})
    assert found.exit_code == 4
    assert "mpi4py is installed, but cannot be imported: " in found.errors[0]


def test_without_mpi4py_the_library_itself_is_asked(tmp_path: Path) -> None:
    installed("debian")
    (tmp_path / "mpi4py").mkdir()  # a folder with its name is none
    found = alone("/usr/bin/python3", "-S", environment={"PYTHONPATH": str(tmp_path)})
    assert found.holds, found.sentence


def test_a_program_of_this_machine_s_mpi_has_its_launcher_before_it_is_captured(
    tmp_path: Path, python: Path
) -> None:
    tool("mpirun.openmpi")
    (tmp_path / "solver").write_bytes(make_elf(needed=["libmpi.so.40"]))
    (tmp_path / "solver").chmod(0o755)
    words = command("plan", "--store", tmp_path / "new", "--python", python, "--launcher", "mpirun")
    assert "launcher   mpirun" in completed([*words, "-n", "2", "--", "./solver"], cwd=tmp_path).stdout
