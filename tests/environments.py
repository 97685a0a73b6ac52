"""A small real environment and its capture, made once a session: capturing takes seconds."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tools import completed

from bareboat import render
from bareboat.captures import capture
from bareboat.deployment.present import rootfs_of, scratch_contents
from bareboat.model import CaptureRequest, Image, Job, Rootfs, Site
from bareboat.plan import plan
from bareboat.probe import Needs, probe
from bareboat_images.formats.flatten import make_flat
from bareboat_images.store import Store

#: The interpreter that virtual environments are made of: this one, or the one that this one was made of.
BASE_PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


@dataclass(frozen=True, slots=True)
class Captured:
    """An environment in `folder` and its image in `store`."""

    folder: Path
    store: Store
    image: Image

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def rootfs(self, site: Site, image: Image | None = None) -> Rootfs:
        """As the command line hands it to the planner; `image`: this one with other facts."""
        image = image or self.image
        held = scratch_contents(self.store, image, site)
        return msgspec.structs.replace(rootfs_of(self.store, image), in_scratch=held)


def make_environment(folder: Path, *, base: str | Path = BASE_PYTHON) -> Path:
    """A virtual environment without pip, with one small package, `ware`; returns its Python."""
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = site_packages(folder)
    (packages / "ware").mkdir()
    (packages / "ware" / "__init__.py").write_text("from ware.part import NAME\n")
    (packages / "ware" / "part.py").write_text("NAME = 'ware'\n")
    about = packages / "ware-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ware\nVersion: 1.0\n")
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    return next(folder.glob("lib/python3.*/site-packages"))


def make_captured(top: Path) -> Captured:
    folder = top / "project" / ".venv"
    python = make_environment(folder)
    store = Store(top / "store")
    image, made = capture(CaptureRequest(python=str(python)), store)
    assert made
    return Captured(folder, store, image)


def with_engine(store: Store, engine: str) -> Site:
    """This machine with one of its engines, and without what takes seconds to probe and is not needed."""
    return probe(store, Needs(engines=(engine,), schedulers=(), mpis=False))


def run_in(
    captured: Captured, *command: str, workdir: Path, engine: str = "bubblewrap"
) -> subprocess.CompletedProcess[str]:
    """Run a command in the captured environment: planned, rendered, and started by bash."""
    site = with_engine(captured.store, engine.partition(":")[0])
    rootfs = captured.rootfs(site)
    job = Job(name="test", command=command, workdir=str(workdir), engine=engine)
    made = plan(job, captured.image, rootfs, site)
    if made.needs_flat:
        make_flat(captured.store, captured.image, made.mount_points, relinked=made.relinked)
    script = render.script(made)
    return completed(["bash", "-c", script], errors="surrogateescape", timeout=60)
