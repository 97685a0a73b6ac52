"""Readers of what people share and jobs leave behind: job files, site files, run directories."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from builders import make_image, make_rootfs, make_site

from bareboat import config, render
from bareboat.jobfile import read_job
from bareboat.model import SchedulerFacts
from bareboat.plan import plan
from bareboat_base.errors import BareboatError
from fuzzing import Finding, Reader

# --------------------------------------------------------------------------------------------------
# Job files.

_SITE = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
_IMAGE = make_image()
_ROOTFS = make_rootfs(_IMAGE)


def read_job_file(data: bytes, scratch: Path) -> None:
    """Read it, plan it for an engine with an image and for none, and write the scripts."""
    path = scratch / "job.toml"
    path.write_bytes(data)
    (scratch / "train.py").write_text("print()\n")
    (scratch / "data").mkdir()
    settings = config.resolve({}, folder=scratch, environment={"HOME": os.fspath(scratch)})
    job = read_job(path, settings)
    refused: BareboatError | None = None
    bare = msgspec.structs.replace(job, engine="native")
    for asked, image, rootfs in ((job, _IMAGE, _ROOTFS), (bare, None, None)):
        try:
            made = plan(asked, image, rootfs, _SITE)
            script = render.script(made, render.Place("run-1", "/scratch/run-1"))
        except BareboatError as error:
            refused = error
            continue
        if "\0" in script:
            raise Finding("a script with a NUL byte")
        if not script.startswith("#!"):
            raise Finding("a script that begins with no #!")
        for line in script.splitlines():
            if line.startswith("#SBATCH") and "\r" in line:
                raise Finding("a directive in two lines")
    if refused is not None:
        raise refused


def job_seeds() -> dict[str, bytes]:
    return {
        "small": b'command = ["python", "train.py"]\n',
        "words": b"command = 'python train.py --note \"a b\"'\nworkdir = '.'\n",
        "full": b"""name = "digits"
command = ["python", "train.py", "{lr}"]
mounts = ["data:/data", "data:/out:rw"]
walltime_s = 3600
engine = "bubblewrap"
launcher = "ranks"
scheduler = "slurm"
modules = ["gcc/12"]
writable = true
entrypoint = false
site_layer = []
fabric = "auto"
[topology]
nodes = 2
ranks_per_node = 4
[environment]
OMP_NUM_THREADS = "1"
A = "it's $5"
[scheduling]
partition = "main"
account = "research"
[sweep]
lr = [0.1, 0.2]
[prove]
repeats = 5
goals = {test_accuracy = 0.9}
""",
        "torchrun": b'command = ["torchrun", "train.py"]\nlauncher = "torchrun"\n[topology]\nnodes = 2\n'
        b"ranks_per_node = 2\n",
        "mpirun": b'command = "python train.py"\nlauncher = "mpirun"\n[topology]\nranks_per_node = 4\n',
        "image": b'image = "docker.io/library/debian:12"\nentrypoint = "/bin/sh -c"\ncommand = "true"\n',
        "sweep": b'command = "python train.py {a} {b}"\n[sweep]\na = [1, 2, 3]\nb = ["x", "y"]\n',
        "delivery": b'command = "python train.py"\ndelivery = "node"\nnode_scratch = "/local"\n',
        "capture": b'command = "python train.py"\n[capture]\npython = "python3"\ninclude = ["data"]\n',
    }


def read_settings(data: bytes, scratch: Path) -> None:
    """As a user's own file of settings."""
    (scratch / "bareboat.toml").write_bytes(data)
    config.resolve({}, folder=scratch, environment={"HOME": os.fspath(scratch)})


def setting_seeds() -> dict[str, bytes]:
    return {
        "store": b'store = "/scratch/x"\n',
        "network": b'plain_http = "localhost:5000"\nmirrors = "docker.io=m:5000"\nca_file = ""\n',
        "wrong": b'store = 5\nunknown = "x"\n',
    }


READERS = (
    Reader(
        name="jobs",
        read=read_job_file,
        seeds=job_seeds,
        words=(
            b"[topology]\n", b"nodes = ", b"\nenvironment = {", b"[sweep]\n", b"{a:>9}",
            b'mounts = ["', b"\\u0000", b"\\n", b"\\r#SBATCH", b"walltime_s = ", b"a.b = 1",
        ),
        modules=("bareboat.jobfile", "bareboat_base.toml", "bareboat.model.sweep"),
    ),
    Reader(name="settings", read=read_settings, seeds=setting_seeds, modules=("bareboat.config",)),
)  # fmt: skip
