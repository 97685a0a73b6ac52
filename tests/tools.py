"""The real tools that tests need, and who runs them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest


def tool(name: str) -> str:
    """The path of a program that a test needs, perhaps one beside Python; without it the test is skipped, and
    under --require fails."""
    found = shutil.which(name) or shutil.which(name, path=Path(sys.executable).parent)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def path_without(folder: Path, *names: str) -> str:
    """A PATH with every program of this machine but these."""
    if not folder.is_dir():
        folder.mkdir()
        for place in os.environ["PATH"].split(":"):
            for program in sorted(Path(place).glob("*")) if place else []:
                if program.name not in names and not (folder / program.name).is_symlink():
                    (folder / program.name).symlink_to(program)
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
