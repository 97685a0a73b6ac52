"""Launchers that start real MPIs on this machine, by `bareboat run`, in containers."""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import forked
import pytest
from engine_lab import Lab
from environments import Captured
from processes import command
from pythons import make_rootfs
from tools import interpreter, output
from watch import wait_until

from bareboat.captures import capture
from bareboat.model import CaptureRequest
from bareboat_images.store import Store

HELLO = """\
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
told = (os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"])
print("hello", world.rank, world.size, total, told == (str(world.rank), str(world.rank), str(world.size)))
"""


def job(folder: Path, python: Path, script: str, launcher: str) -> Path:
    (folder / "script.py").write_text(script)
    path = folder / "job.toml"
    path.write_text(
        f'command = ["{python}", "script.py"]\nlauncher = "{launcher}"\nengine = "bubblewrap"\n'
        f'[topology]\nranks_per_node = 2\n[capture]\npython = "{python}"\n'
    )
    return path


def run(path: Path, *, first_on_path: Path | None = None) -> subprocess.CompletedProcess[str]:
    folders = [*([str(first_on_path)] if first_on_path else []), os.environ["PATH"]]
    environment = os.environ | {"PATH": ":".join(folders)}
    return forked.run("run", path, env=environment, cwd=path.parent, timeout_s=180)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("launcher", ["mpirun", "image-mpirun"])
@pytest.mark.parametrize("name", ["debian", "openmpi-4.1.8", "openmpi-5.0.11", "mpich-5.0.2"])
def test_two_ranks_are_one_world(tmp_path: Path, name: str, launcher: str) -> None:
    own = interpreter(f"mpi/{name}")
    done = run(job(tmp_path, own, HELLO, launcher), first_on_path=own.parent)
    assert done.returncode == 0, done.stderr
    # The proof says nothing: the job's output is its own.
    assert sorted(done.stdout.splitlines()) == ["hello 0 2 3 True", "hello 1 2 3 True"]


@pytest.fixture(scope="module")
def with_mpi4py(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """A capture with Debian's OpenMPI, which does not start alone where no ssh is."""
    own = interpreter("mpi/debian")
    store = Store(tmp_path_factory.mktemp("mpi4py") / "store")
    return Captured(own.parents[1], store, capture(CaptureRequest(python=str(own)), store)[0])


def test_one_rank_of_mpi4py_in_every_engine(lab: Lab, with_mpi4py: Captured) -> None:
    inside = replace(lab, captured=with_mpi4py)
    assert inside.says("from mpi4py import MPI; print(MPI.COMM_WORLD.size)") == "1"


@pytest.fixture(scope="module")
def without_mpi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install mpi4py` makes of an image that has no MPI."""
    packages = interpreter("mpi/debian").parent.parent / "lib/python3.11/site-packages"
    return make_rootfs(tmp_path_factory.mktemp("without") / "rootfs", packages)


VERSION = """\
from mpi4py import MPI
world = MPI.COMM_WORLD
line = MPI.Get_library_version().splitlines()[0]
print("hello", world.rank, world.size, world.allreduce(world.rank + 1), " ".join(line.split(",")[0].split()))
"""


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("debian", "Open MPI v4.1.4"),
        ("openmpi-5.0.11", "Open MPI v5.0.11"),
        ("mpich-5.0.2", "MPICH Version: 5.0.2"),
    ],
)
def test_an_image_without_an_mpi_gets_the_hosts(
    tmp_path: Path, without_mpi: Path, host: str, said: str
) -> None:
    """Nothing is asked for: mpi4py's wheel takes what is bound in."""
    (tmp_path / "script.py").write_text(VERSION)
    path = tmp_path / "job.toml"
    path.write_text(
        f'image = "rootfs:{without_mpi}"\ncommand = ["python3", "script.py"]\nengine = "bubblewrap"\n'
        "[topology]\nranks_per_node = 2\n"
    )
    done = run(path, first_on_path=interpreter(f"mpi/{host}").parent)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"hello 0 2 3 {said}", f"hello 1 2 3 {said}"]


def test_the_hosts_mpi_takes_the_place_of_the_images(tmp_path: Path) -> None:
    """Of one that mpi4py finds by its path, beside the interpreter."""
    path = job(tmp_path, interpreter("mpi/openmpi-4.1.8"), VERSION, "host-mpi")
    done = run(path, first_on_path=interpreter("mpi/openmpi-5.0.11").parent)
    assert done.returncode == 0, done.stderr
    said = "Open MPI v5.0.11"
    assert sorted(done.stdout.splitlines()) == [f"hello 0 2 3 {said}", f"hello 1 2 3 {said}"]


@pytest.mark.parametrize("launcher", ["mpirun", "image-mpirun"])
def test_the_rank_that_failed_gives_the_exit_code(tmp_path: Path, launcher: str) -> None:
    script = (
        "import os, time\nfrom mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1: os._exit(7)\ntime.sleep(300)\n"
    )
    done = run(job(tmp_path, interpreter("mpi/debian"), script, launcher))
    assert done.returncode == 7, done.stderr


SLOW = """\
import signal, sys, time
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
def end(number, frame):
    time.sleep(3)  # writes a checkpoint
    open(f"saved-{rank}", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(f"up-{rank}", "w").close()
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize("launcher", ["mpirun", "image-mpirun"])
def test_ended_it_gives_the_ranks_time_and_leaves_nothing(tmp_path: Path, launcher: str) -> None:
    """By themselves mpiruns kill their ranks a second after they were told."""
    path = job(tmp_path, interpreter("mpi/debian"), SLOW, launcher)
    with subprocess.Popen(command("run", path), cwd=tmp_path) as process:
        deadline = time.monotonic() + 120
        while not all((tmp_path / f"up-{rank}").exists() for rank in (0, 1)):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert all((tmp_path / f"saved-{rank}").exists() for rank in (0, 1))
    assert wait_until(lambda: not working_in(tmp_path)), working_in(tmp_path)


def working_in(folder: Path) -> list[str]:
    """The command lines of processes in a folder, whether or not they carry a run's mark; without that which
    Podman keeps for each user once it was asked anything."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if pid != str(os.getpid()) and os.readlink(f"/proc/{pid}/cwd") == str(folder):
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip())
    return [line for line in found if Path(line).name != "podman"]


def test_what_the_points_of_a_sweep_prove_is_known_to_the_next_plan(tmp_path: Path) -> None:
    own = interpreter("mpi/debian")
    path = job(tmp_path, own, HELLO, "mpirun")
    with path.open("a") as file:
        file.write("[sweep]\nn = [1, 2]\n")
    done = run(path, first_on_path=own.parent)
    assert done.returncode == 0, done.stderr
    environment = {**os.environ, "PATH": f"{own.parent}:{os.environ['PATH']}"}
    told = output(*command("plan", "-v", path), timeout=60, cwd=tmp_path, env=environment)
    assert "passed the MPI check here" in told
    assert "2 ranks were one world of Open MPI v4.1.4" in told
