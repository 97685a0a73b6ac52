"""A recipe that `image init` writes is built for real, and its image starts two ranks; its variants, too."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from building import Builds
from tools import output, tool

from bareboat_base.errors import RunError

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
#: The wheel of mpi4py 4.1.2 for Python 3.11 on x86-64.
MPI4PY = "de484475b80f9e1ffe98cb85e1b776eb9f42bb73ae4d79449d42953f80025bf4"
RANKS = (
    "from mpi4py import MPI; w = MPI.COMM_WORLD; print(w.allreduce(w.rank + 1), MPI.Get_library_version())"
)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    """A store with `base`, a Debian."""
    folder = tmp_path_factory.mktemp("recipes")
    archive = folder / "base.tar"
    output(
        tool("mmdebstrap"), "--quiet", "--mode=unshare", "--variant=minbase",
        "--include=ca-certificates,python3-venv", "bookworm", archive,
    )  # fmt: skip
    made = Builds(folder)
    made.bareboat("image", "pull", f"rootfs:{archive}", "--name", "base")
    archive.unlink()
    return made


def from_base(folder: Path) -> None:
    """Let the Dockerfile start from `base`, without a network."""
    file = folder / "Dockerfile"
    file.write_text(re.sub(r"^FROM docker\.io/\S+", "FROM base", file.read_text(), count=1, flags=re.M))


def secrets() -> list[str]:
    """Certificates of this machine, which a proxy may require."""
    return ["--secret", f"id=ca,src={CERTIFICATES}"] if Path(CERTIFICATES).exists() else []


@pytest.mark.long
def test_variants_of_a_locked_environment_start_two_ranks(builds: Builds, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"mpi4py==4.1.2 --hash=sha256:{MPI4PY}\n")
    builds.bareboat("image", "init", tmp_path, "--mpi", "auto", "--for", "here")
    from_base(tmp_path)
    written = (tmp_path / "Dockerfile").read_text()
    assert "pip install --no-cache-dir --require-hashes -r requirements.txt" in written
    said = builds.bareboat(
        "image", "build", tmp_path, "--matrix", "mpi=openmpi-4.1.8,mpich-5.0.2,gone-1",
        "--tag", "ranks:{mpi}", "--json", *secrets(), code=RunError.code,
    )  # fmt: skip
    table = json.loads(said.out)
    one, two, gone = table["variants"]
    assert (one["mpi"], two["mpi"], gone["mpi"]) == ("OpenMPI 4.1.8", "MPICH 5.0.2", None)
    assert "unknown MPI: gone-1" in said.err
    assert two["cached"] > one["cached"]
    assert table["chosen"] in (one["name"], two["name"])
    for each, name in ((one, "Open MPI v4.1.8"), (two, "MPICH Version:      5.0.2")):
        job = tmp_path / "job.toml"
        job.write_text(
            f'image = "{each["name"]}"\ncommand = ["python3", "-c", "{RANKS}"]\n'
            "[topology]\nranks_per_node = 2\n"
        )
        ran = builds.bareboat("run", job)
        assert ran.out.count("3 ") >= 2, ran
        assert ran.out.count(name) == 2, ran
    again = builds.bareboat(
        "image", "build", tmp_path, "--build-arg", "MPI=openmpi-4.1.8", "--json", *secrets()
    )
    assert json.loads(again.out)["digest"] == one["digest"]


@pytest.mark.compiles
def test_horovod_is_compiled_by_a_recipe(builds: Builds, tmp_path: Path) -> None:
    builds.bareboat("image", "init", tmp_path, "--framework", "tensorflow", "--cuda", "none", "--horovod")
    from_base(tmp_path)
    words = ("image", "build", tmp_path, "-t", "horovod", "--quiet", *secrets())
    environment = os.environ | {"BAREBOAT_STORE": str(builds.folder / "store")}
    output(sys.executable, "-m", "bareboat", *words, env=environment, timeout=3600)
    job = tmp_path / "job.toml"
    job.write_text(
        'image = "horovod"\ncommand = ["python3", "-c", "import horovod.tensorflow as h; h.init(); '
        'print(h.size(), h.mpi_built())"]\n[topology]\nranks_per_node = 2\n'
    )
    assert builds.bareboat("run", job).out.count("2 True") == 2
