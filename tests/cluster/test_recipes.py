"""Recipes that `image init` writes for three sites: their images train two ranks by MPI on two nodes of a
real Slurm, and `submit` takes the variant that this Slurm starts most directly.

CI leaves it out, since it takes minutes: make test TESTS='-m compiles'. It fetches from Debian and from
pip's index.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
from building import Builds
from cluster_jobs import run_job
from clusters import Cluster
from recipe_sites import SITES
from tools import tool

from bareboat_base import codec

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
#: Each rank has data of its own; equal weights at the end show that they trained one model.
TRAIN = """\
import os
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
random = np.random.default_rng(world.rank)
weights = world.bcast(random.normal(size=4), root=0)
for _ in range(300):
    x = random.normal(size=(8, 4))
    gradient = 2 * x.T @ (x @ weights - x.sum(axis=1)) / len(x)
    weights = weights - 0.05 * world.allreduce(gradient) / world.size
every = np.array(world.allgather(weights))
right = bool((every == every[0]).all() and abs(every - 1).max() < 0.01)
version = MPI.Get_library_version().split("\\n")[0].strip(" \\0")
print("trained", world.rank, world.size, right, os.uname().nodename, version, flush=True)
"""
JOB = """image = "IMAGE"
command = ["python3", "train.py"]
scheduler = "slurm"
walltime_s = 300
[topology]
nodes = 2
ranks_per_node = 1
"""

pytestmark = [pytest.mark.compiles, pytest.mark.slow]


def test_recipes_for_three_sites_train_by_mpi(slurm: Cluster, tmp_path: Path) -> None:
    builds = Builds(tmp_path)
    store = slurm.home / ".local" / "share" / "bareboat"
    builds.variables["BAREBOAT_STORE"] = str(store)
    archive = tmp_path / "base.tar"
    packages = "ca-certificates,python3-venv"
    subprocess.run(
        [tool("mmdebstrap"), "--quiet", "--mode=unshare", "--variant=minbase", f"--include={packages}",
         "bookworm", str(archive)],
        check=True,
    )  # fmt: skip
    builds.bareboat("image", "pull", f"rootfs:{archive}", "--name", "base")
    archive.unlink()
    secret = ("--secret", f"id=ca,src={CERTIFICATES}")
    chosen = {}
    for name, site in SITES.items():
        project = tmp_path / name
        project.mkdir()
        (project / "requirements.txt").write_text("mpi4py==4.1.2\nnumpy==2.1.3\n")
        (tmp_path / f"{name}.json").write_bytes(codec.to_json(site))
        builds.bareboat("image", "init", project, "--mpi", "auto", "--for", tmp_path / f"{name}.json")
        recipe = project / "Dockerfile"
        recipe.write_text(
            re.sub(r"^FROM docker\.io/\S+", "FROM base", recipe.read_text(), count=1, flags=re.M)
        )
        print(
            name, *(line for line in (project / "Dockerfile").read_text().splitlines() if "ARG MPI" in line)
        )
        builds.bareboat("image", "build", "-q", "-t", f"{name}:1", *secret, project)
        ended = train(slurm, f"{name}:1")
        print(ended)
        chosen[name] = ended
    assert all(text.count(" 2 True c") == 2 for text in chosen.values()), chosen
    assert "Open MPI" in chosen["hdr"]
    assert "MPICH" in chosen["cray"]

    said = builds.bareboat(
        "image", "build", "--matrix", "mpi=openmpi-4.1.8,openmpi-5.0.11,mpich-5.0.2", "--tag", "train:{mpi}",
        "--json", *secret, tmp_path / "hdr",
    )  # fmt: skip
    print(json.dumps(json.loads(said.out), indent=1))
    planned = slurm.login(
        ["bareboat", "plan", "-N", "2", "--ranks-per-node", "1", "--image", "train:{mpi}", "--", "true"],
        cwd=slurm.home,
    )
    print(planned.stdout)
    ended = train(slurm, "train:{mpi}")
    assert ended.count(" 2 True c") == 2, ended
    print(ended)


def train(slurm: Cluster, image: str) -> str:
    folder = slurm.home / "".join(letter if letter.isalnum() else "-" for letter in image)
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    job = folder / "train.toml"
    job.write_text(JOB.replace("IMAGE", image))
    ended = run_job(slurm, job)
    assert ended.code == 0, ended.log
    return ended.log
