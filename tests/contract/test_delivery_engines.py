"""Every engine that runs trees, on one that its node has brought to itself: the node's part of a Slurm job's
script, which is plain bash, with the engine's real tool."""

from __future__ import annotations

import subprocess

import msgspec
import pytest
from engine_lab import Lab

from bareboat import render
from bareboat.images.deployment import flat_tar
from bareboat.images.layers.flatten import make_flat
from bareboat.model import Job, Mount, SchedulerFacts
from bareboat.plan import plan
from bareboat.runs import deliveries

#: Its files have one name there; those of the store's tree are links to those of layers.
_TELL = """\
import os, pathlib, ware
print(ware.NAME, os.stat(ware.__file__).st_nlink, pathlib.Path("/data/of the job/words").read_text())
pathlib.Path("written").write_text("here")
"""


@pytest.mark.parametrize("room", [True, False], ids=["brought", "no room"])
def test_the_command_runs_from_the_tree_that_the_node_brought(lab: Lab, room: bool) -> None:
    if not lab.contains or lab.case.writable:
        return  # there is no tree to bring
    top = lab.workdir.parent
    (top / "node").mkdir()
    (top / "data").mkdir()
    (top / "data" / "words").write_text("words")
    site = msgspec.structs.replace(lab.site, schedulers=(SchedulerFacts(name="slurm", version="22.05"),))
    job = Job(
        name="job", command=("python", "-c", _TELL), workdir=str(lab.workdir), engine=lab.case.engine,
        scheduler="slurm", delivery="node", node_scratch=str(top / ("node" if room else "none")),
        mounts=(Mount(source=str(top / "data"), target="/data/of the job"),),
    )  # fmt: skip
    store, image = lab.captured.store, lab.image
    made = plan(job, image, lab.captured.rootfs(site), site)
    assert made.delivery is not msgspec.UNSET
    make_flat(store, image, made.mount_points, relinked=made.relinked)
    path = flat_tar.provide(store, image, made.mount_points, relinked=made.relinked)
    assert str(path) == made.delivery.archive
    script, folder = top / "job.sh", top / "run" / "control"
    script.write_text(render.script(made))
    folder.mkdir(parents=True)
    (folder.parent / "ranks").mkdir()
    done = subprocess.run(
        ["bash", script, "--node", "0", "run", folder, "127.0.0.1", "29500", "job"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    name, links, words = done.stdout.split()
    assert (name, words, links == "1") == ("ware", "words", room)
    assert (lab.workdir / "written").read_text() == "here"
    assert [each.how for each in deliveries.read(folder.parent)] == ["unpacked" if room else "shared"]
    assert list((top / "node").iterdir()) == []
