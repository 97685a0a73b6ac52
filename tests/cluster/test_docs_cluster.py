"""The commands and programs of README and docs that need a cluster run as printed on real ones."""

import shlex
import shutil
import subprocess
from pathlib import Path

import documented
import pytest
from clusters import Cluster, need_this_system
from environments import make_environment, site_packages

import bareboat_meter

PATIENCE_S = 600.0


def stories(place: str) -> list[object]:
    return [
        pytest.param(page, id=str(page.relative_to(documented.ROOT))) for page in documented.stories(place)
    ]


def play(page: Path, up: Cluster, scheduler: str, python: Path, installed: Path) -> None:
    """As a user who has logged in, in a directory of the shared home, with an activated environment."""
    home = up.home / f"documented-{page.stem}"
    directory = documented.furnish(home / "work", home)
    variables = {
        "HOME": str(home),
        "VIRTUAL_ENV": str(python.parents[1]),
        "BAREBOAT_STORE": str(home / "store"),
        "BAREBOAT_SCHEDULER": scheduler,
    }

    def shell(script: str, where: Path) -> subprocess.CompletedProcess[str]:
        return up.login(
            ["bash", "-c", script],
            check=False, cwd=where, environment=variables, path=f"{python.parent}:{up.path}",
            timeout_s=PATIENCE_S,
        )  # fmt: skip

    documented.play(page, scheduler, directory, shell, [shlex.quote(str(installed / "python"))])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the meter, as after `pip install bareboat`."""
    need_this_system()
    python = make_environment(tmp_path_factory.mktemp("metered") / "environment")
    shutil.copy(bareboat_meter.__file__, site_packages(python.parents[1]))
    return python


@pytest.mark.long
@pytest.mark.parametrize("page", stories("slurm"))
def test_commands_on_slurm(page: Path, slurm: Cluster, environment: Path, installed: Path) -> None:
    play(page, slurm, "slurm", environment, installed)
