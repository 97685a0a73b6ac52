"""MPI programs that other people's scripts start through shims, on one node and on two.

The lines of the scripts are those of https://github.com/IFCA-Advanced-Computing/workflow-DL-HPC, with another
image, and a program that takes no GPU.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from clusters import TREE, Cluster
from horovod_training import TRAINS
from images import pack, upload
from installation import install_for_nodes
from pythons import add_openmpi, add_torch, make_rootfs
from registries import real_registry
from tools import LAB, executable, installed

HOROVOD = LAB / "horovod"

#: In the place of the training: its name and arguments are those of the scripts.
PROGRAM = """\
import argparse, os
from mpi4py import MPI
options = argparse.ArgumentParser()
options.add_argument("--model")
options.add_argument("--batch-size", type=int)
model = options.parse_args().model
world = MPI.COMM_WORLD
large = bytearray(8 << 20)
world.Bcast(large, root=0)
print(model, world.rank, world.size, world.allreduce(world.rank + 1), os.uname().nodename, flush=True)
open(f"{os.path.dirname(__file__)}/results/{model}-{world.size}", "w").write(open("/installed").read())
"""
#: The same with Horovod.
TRAINING = f"""\
import argparse, os
options = argparse.ArgumentParser()
options.add_argument("--model")
options.add_argument("--batch-size", type=int)
options = options.parse_args()
batch = options.batch_size
{TRAINS}
assert hvd.mpi_enabled() and right
total = int(hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum))
print(options.model, hvd.rank(), hvd.size(), total, os.uname().nodename, flush=True)
results = f"{{os.path.dirname(__file__)}}/results"
open(f"{{results}}/{{options.model}}-{{hvd.size()}}", "w").write(open("/installed").read())
"""
#: Its entrypoint, with another installation: of a wheel, by nothing but Python.
INSTALLS = """\
#!/bin/sh
if [ -n "$OpenMPI" ]; then
  python -m zipfile -e /wheels/*.whl /usr/lib/python3/dist-packages && echo "$OpenMPI $HOROVOD" > /installed
fi
exec "$@"
"""
ENTRYPOINT = """\
#!/bin/sh
if [ -n "$OpenMPI" ]; then echo "$OpenMPI $HOROVOD" > /installed; fi
exec "$@"
"""
SETUP = """\
#!/bin/bash

# Pull image fom DockerHub
udocker pull gonzabad/multigpu-horovod:base

# Create the container
udocker create --name=multigpu-base gonzabad/multigpu-horovod:base

# Add the GPU libraries to the container
udocker setup --nvidia --force multigpu-base

# Run it and install OpenMPI and Horovod
udocker run --env="OpenMPI=4.1.0" --env="HOROVOD=latest" multigpu-base
"""
JOB = r"""#!/bin/bash
MODELS_TO_RUN=('InceptionV3' 'ResNet50')
BATCH_SIZES=(256 256)
MPI_PARAMS="-np $GPUS \
-bind-to none -map-by slot \
-x NCCL_DEBUG=INFO \
-x HOROVOD_MPI_THREADS_DISABLE=1 \
-mca pml ob1 -mca btl ^openib"
udocker setup --nvidia --force $CONTAINER
for j in "${!MODELS_TO_RUN[@]}"
  do
    mpirun $MPI_PARAMS \
    udocker run --hostenv --hostauth --user=$USER \
    -v $DIR_TO_MOUNT/:/home/ $CONTAINER \
    python /home/tensorflow2_synthetic_benchmark.py --model ${MODELS_TO_RUN[$j]} --batch-size ${BATCH_SIZES[$j]}
    wait
  done
"""  # noqa: E501
#: How a cluster starts the same image by other tools; all on two nodes.
STARTS = {
    "srun of PMIx": "srun --mpi=pmix -N2 -n4 singularity exec $TREE python /data/program.py --model x",
    "mpirun": "salloc -Q -N2 -n4 mpirun apptainer exec $TREE python /data/program.py --model x",
    "Pyxis": "srun --mpi=pmix -N2 -n4 --container-image=$IMAGE --container-mounts=$DATA:/data "
    "python /data/program.py --model x",
    "Pyxis by name": "srun --mpi=pmix -N2 -n4 --container-image=$IMAGE --container-name=mpi "
    "--container-mounts=$DATA:/data python /data/program.py --model x",
}


@pytest.mark.skipif(bool(TREE), reason="an installation of this machine is none of another system")
def test_scripts_start_mpi_programs_by_shims(slurm: Cluster, tmp_path: Path) -> None:
    packages = installed("mpi/debian") / "lib/python3.11/site-packages"
    tree = slurm.home / "mpi-tree"
    add_openmpi(make_rootfs(tree, packages))
    place = run_workflow(slurm, tmp_path, tree, PROGRAM, ENTRYPOINT, STARTS.values())
    for number, what in enumerate(STARTS):
        out = (place / f"{number}-start.out").read_text()
        assert nodes(out, "x", 4) == 2, f"{what}\n{out}"


@pytest.mark.frameworks
def test_the_workflow_trains_with_horovod(slurm: Cluster, tmp_path: Path) -> None:
    """Which the image's entrypoint installs in the named container."""
    packages = installed("horovod/env") / "lib/python3.11/site-packages"
    tree = slurm.home / "horovod-tree"
    make_rootfs(tree, None)
    add_openmpi(tree)
    add_torch(tree, packages)
    shutil.copytree(HOROVOD / "wheels", tree / "wheels")
    run_workflow(slurm, tmp_path, tree, TRAINING, INSTALLS)


def run_workflow(
    slurm: Cluster, tmp_path: Path, tree: Path, program: str, entrypoint: str, starts: Iterable[str] = ()
) -> Path:
    """Run the workflow's scripts in an image of a root file system, then `starts`; returns the directory."""
    programs, home = install_for_nodes(slurm.home), slurm.home
    executable(tree / "entry", entrypoint)
    (tree / "installed").write_text("by nobody\n")
    place = home / f"workflow-{tree.name}"
    data = place / "data"
    (data / "results").mkdir(parents=True)
    for name in ("tensorflow2_synthetic_benchmark.py", "program.py"):
        (data / name).write_text(program)
    (place / "setup-container.sh").write_text(SETUP)
    (place / "job_udocker.sh").write_text(JOB)
    environment = {"BAREBOAT_STORE": str(home / f"store-of-{tree.name}"), "HOME": str(home)}
    path = f"{place}/shims:{programs}:{slurm.path}"
    tools = "udocker,singularity,apptainer,srun"
    slurm.login([f"{programs}/bareboat", "shim", "--into", place / "shims", "--tools", tools, "--force"])
    with real_registry(tmp_path) as registry:
        layer = subprocess.run(["tar", "-C", tree, "-c", "."], check=True, capture_output=True).stdout
        packed = pack(layer, Entrypoint=["/entry"], WorkingDir="/")
        image = upload(registry, packed, "gonzabad/multigpu-horovod:base")
        mirrors = {
            "BAREBOAT_MIRRORS": f"docker.io={registry.address}", "BAREBOAT_PLAIN_HTTP": registry.address,
        }  # fmt: skip
        known = {**os.environ, **environment, **mirrors, "PATH": path}
        subprocess.run(["bash", place / "setup-container.sh"], env=known, check=True, timeout=300)
        pull = [f"{programs}/bareboat", "image", "pull", "-q", "--plain-http", f"docker://{image}"]
        subprocess.run(pull, env=known, check=True, timeout=300)
    submit = "sbatch -W -o $GPUS.out -e $GPUS.err --ntasks=$GPUS --tasks-per-node=2 ./job_udocker.sh"
    lines = [
        "export CONTAINER=multigpu-base DIR_TO_MOUNT=$PWD/data DATA=$PWD/data",
        f"export TREE={tree} IMAGE={image.replace('/', '#', 1)} APPTAINER_BIND=$DATA:/data",
        *(f"export GPUS={size}; {submit}" for size in (2, 4)),
        *(f"{{ {line}; }} >{number}-start.out 2>&1" for number, line in enumerate(starts)),
    ]
    slurm.login(
        ["bash", "-c", "\n".join(lines)], cwd=place, environment=environment, path=path, timeout_s=900
    )
    for size in (2, 4):
        out, err = ((place / f"{size}.{kind}").read_text() for kind in ("out", "err"))
        print(out)
        for model in ("InceptionV3", "ResNet50"):
            assert nodes(out, model, size) == size // 2, out + err
            assert (data / f"results/{model}-{size}").read_text() == "4.1.0 latest\n"
        assert "PMIX ERROR" not in err
        assert "user namespaces" not in err
    return place


def nodes(out: str, model: str, size: int) -> int:
    """The number of nodes of the ranks that were one world of this size; 0 if not all were."""
    found = re.findall(rf"^{model} (\d+) {size} {size * (size + 1) // 2} (\S+)$", out, re.MULTILINE)
    return (
        len({node for _, node in found}) if sorted(int(rank) for rank, _ in found) == list(range(size)) else 0
    )
