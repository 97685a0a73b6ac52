"""The clusters that all tests in here share: brought up once, gone at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import TREE, Cluster, cluster, installed_in_tree
from desks import Desk, desk_on
from environments import make_environment
from installation import install

import bareboat

SOURCE = Path(bareboat.__file__).parents[1]
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of an installation of Bareboat that login nodes see and compute nodes do not."""
    return install(tmp_path_factory.mktemp("installed") / "bareboat")


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm"), "slurm") as up:
        up.programs.append(installed_in_tree(up, SOURCE) if TREE else installed)
        yield up


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
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a small environment, of which compute nodes see nothing."""
    if not TREE:
        return make_environment(tmp_path_factory.mktemp("small") / "environment")
    folder = Path("/tmp/small/environment")  # of the login node
    program = (
        f"import sys; sys.path[:0] = {[str(SOURCE), str(TESTS)]}\n"
        "from pathlib import Path\nfrom environments import make_environment\n"
        f"make_environment(Path({str(folder)!r}), base='/usr/bin/python3')\n"
    )
    up: Cluster = request.getfixturevalue("slurm_cluster")
    up.login(["/usr/local/bareboat/bin/python", "-c", program])
    return folder / "bin" / "python"


@pytest.fixture
def desk(slurm: Cluster, python: Path, tmp_path: Path) -> Desk:
    """A user's directory on the Slurm cluster."""
    return desk_on(slurm, "slurm", python, tmp_path.name)
