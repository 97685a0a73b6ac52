"""Run a command in an image on this machine with any engine that works, planned like a job."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from bareboat import render
from bareboat.deployment import roots
from bareboat.deployment.present import present
from bareboat.model import Image, Job, Mount, Site
from bareboat.plan import plan
from bareboat_base import execute
from bareboat_images.store import Store

_LOOK_S = 1.0


class Ended(Struct, frozen=True, kw_only=True):
    """`said`: the end of the output."""

    exit_code: int
    said: str


def job_here(
    folder: Path,
    command: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    engine: str | None = None,
    mounts: tuple[Mount, ...] = (),
) -> Job:
    """A command of one process in `folder`, which it may write to."""
    return Job(
        name="site-layer",
        command=command,
        workdir=str(folder),
        launcher="single",
        environment=dict(environment),
        engine=engine,
        mounts=mounts,
    )


def run_here(
    store: Store,
    image: Image,
    site: Site,
    job: Job,
    *,
    each_second: Callable[[float], None] = lambda _wall_s: None,
) -> Ended:
    """Run it in its working directory with a low priority. It ends with this process."""
    assert job.workdir is not None
    folder = Path(job.workdir)
    rootfs = present(store, image, site, job, scratch_folder=str(folder))
    made = plan(job, image, rootfs, site)
    made = roots.settle(store, image, rootfs, made, lambda rootfs: plan(job, image, rootfs, site))
    script, starter, log = folder / "run.sh", folder / "start.sh", folder / "run.log"
    script.write_bytes(os.fsencode(render.script(made)))
    starter.write_text(f'renice -n 10 $$ >/dev/null 2>&1\nexec bash {shlex.quote(str(script))} "$1"\n')
    with open(log, "wb") as output:
        live = execute.Live(
            str(starter), mark=f"site-layer-{os.getpid()}", environment=os.environ, output=output
        )
        try:
            while (code := live.wait(_LOOK_S)) is None:
                each_second(live.wall_s)
        finally:
            live.stop()
    said = log.read_text(errors="replace")
    return Ended(exit_code=code, said=said[-4000:])
