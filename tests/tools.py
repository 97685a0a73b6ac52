"""The real tools that tests need, and who runs them."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def tool(name: str) -> str:
    """The path of a program that a test needs, perhaps one beside Python; without it the test is skipped, and
    under --require fails."""
    found = shutil.which(name) or shutil.which(name, path=Path(sys.executable).parent)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def executable(path: Path, text: str) -> None:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def started(command: Sequence[str | Path], **how: Any) -> subprocess.Popen[str]:
    """A program whose output is read as text."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how)


def completed(command: Sequence[str | Path], **how: Any) -> subprocess.CompletedProcess[str]:
    """A program that ran to its end, with its output as text."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


def completed_bytes(command: Sequence[str | Path], **how: Any) -> subprocess.CompletedProcess[bytes]:
    """A program that ran to its end, with its output as bytes."""
    return subprocess.run(command, capture_output=True, check=False, **how)


def output(*command: str | Path, **how: Any) -> str:
    """What a program prints that must succeed."""
    done = completed(list(map(str, command)), **how)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return str(done.stdout)


#: What the scripts of tests/lab install, on all nodes of a cluster too.
LAB = Path("/opt/bareboat-lab")


def installed(name: str) -> Path:
    """The folder of an environment below `LAB`; without it the test is skipped."""
    folder = LAB / name
    if not (folder / ".whole").exists():
        script = {"mpi": "mpi-pairs", "horovod": "horovod"}.get(name.partition("/")[0], "frameworks")
        pytest.skip(f"{folder} is not there: sudo tests/lab/{script}.sh")
    return folder


def interpreter(name: str) -> Path:
    """The Python of one of them."""
    return installed(name) / "bin" / "python"


#: Where `linked` makes its directories; conftest.py sets it.
links = Path(tempfile.gettempdir())


def path_without(*names: str) -> str:
    """A PATH with every program of this machine but these. Tests share it, so it is only read."""
    return linked(os.environ["PATH"], "|".join(map(re.escape, sorted(names))))


@functools.cache
def linked(path: str, hidden: str) -> str:
    """A directory with all programs of a PATH but those whose names match: to make its thousands of links
    takes longer than most tests, so each is made once in a session."""
    folder = Path(tempfile.mkdtemp(prefix="programs-", dir=links))
    hides = re.compile(hidden)
    made: set[str] = set()
    for place in dict.fromkeys(filter(None, path.split(":"))):
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else ():
            if name not in made and not hides.fullmatch(name):
                os.symlink(os.path.join(place, name), folder / name)
                made.add(name)
    return str(folder)


#: What engines, schedulers and MPIs are found by. To ask them all takes seconds.
PROBED = (
    "apptainer", "singularity", "podman", "podman-hpc", "buildah", "ch-run", "udocker", "proot", "enroot",
    "srun", "sinfo", "sbatch", "squeue", "scontrol", "qconf", "qsub", "qstat", "qhost", "pbsnodes", "bsub",
    "flux", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "ompi_info", "mpichversion",
)  # fmt: skip


def ordinary() -> tuple[str, ...]:
    """What to put before a command so that file modes hold for it, as they do for every user but root."""
    if os.geteuid() != 0:
        return ()
    return (tool("setpriv"), "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", "--")
