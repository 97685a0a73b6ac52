"""Readers of what people share and jobs leave behind: job files, site files, run directories."""

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


def read_settings(data: bytes, scratch: Path) -> None:
    """As a user's own file of settings."""
    (scratch / "bareboat.toml").write_bytes(data)
    config.resolve({}, folder=scratch, environment={"HOME": os.fspath(scratch)})


READERS = (
    Reader(
        name="jobs",
        read=read_job_file,
        words=(
            b"[topology]\n", b"nodes = ", b"\nenvironment = {", b"[sweep]\n", b"{a:>9}",
            b'mounts = ["', b"\\u0000", b"\\n", b"\\r#SBATCH", b"walltime_s = ", b"a.b = 1",
        ),
        modules=("bareboat.jobfile", "bareboat_base.toml", "bareboat.model.sweep"),
    ),
    Reader(name="settings", read=read_settings, modules=("bareboat.config",)),
)  # fmt: skip
