"""The clusters that all tests in here share: brought up once, gone at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import TREE, Cluster, cluster
from desks import Desk
from environments import make_environment
from installation import install

import bareboat

SOURCE = Path(bareboat.__file__).parents[1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of an installation of Bareboat that login nodes see and compute nodes do not."""
    return install(tmp_path_factory.mktemp("installed") / "bareboat")


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm"), "slurm") as up:
        up.programs.append(_installed_in_tree(up) if TREE else installed)
        yield up


def _installed_in_tree(up: Cluster) -> Path:
    """The same with the Python of another system, and the packages that it has for this checkout."""
    folder = up.folder / "installed"
    folder.mkdir()
    program = folder / "bareboat"
    program.write_text(
        f"#!/usr/local/bareboat/bin/python\nimport sys\nsys.path.insert(0, {str(SOURCE)!r})\n"
        "from bareboat.cli.main import entry\nsys.exit(entry())\n"
    )
    program.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def gridengine_cluster(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Iterator[Cluster]:
    if TREE:
        pytest.skip(f"{TREE} has no Grid Engine")
    with cluster(tmp_path_factory.mktemp("gridengine"), "gridengine") as up:
        up.programs.append(installed)
        yield up


@pytest.fixture
def slurm(slurm_cluster: Cluster) -> Iterator[Cluster]:
    """A Slurm cluster with all nodes in service and no job; what the test leaves there is ended."""
    yield slurm_cluster
    slurm_cluster.restore()


@pytest.fixture
def gridengine(gridengine_cluster: Cluster) -> Iterator[Cluster]:
    """A Grid Engine cluster with all nodes in service and no job; what the test leaves there is ended."""
    yield gridengine_cluster
    gridengine_cluster.restore()


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a small environment, of which compute nodes see nothing."""
    if TREE:
        pytest.skip("an environment of this machine is no environment of another system")
    return make_environment(tmp_path_factory.mktemp("small") / "environment")


@pytest.fixture
def desk(slurm: Cluster, python: Path, tmp_path: Path) -> Desk:
    """A user's directory on the Slurm cluster."""
    desk = Desk(
        up=slurm, scheduler="slurm", path=slurm.path, python=python, folder=slurm.home / tmp_path.name
    )
    desk.folder.mkdir()
    return desk
