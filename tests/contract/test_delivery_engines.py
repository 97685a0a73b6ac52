"""Every engine that runs trees, on one that its node has brought to itself: the node's part of a Slurm job's
script, which is plain bash, with the engine's real tool."""

import subprocess
from pathlib import Path

import msgspec
import pytest
from engine_lab import Lab

from bareboat import render
from bareboat.deployment import roots
from bareboat.model import Job, Mount, SchedulerFacts
from bareboat.plan import plan
from bareboat.runs import records

pytestmark = pytest.mark.one_in(2)

ROOM = pytest.mark.parametrize("room", [True, False], ids=["brought", "no room"])

#: Files of the store's trees are links to those of layers, and have their inodes.
_TELL = """\
import os, pathlib, ware
print(ware.NAME, os.stat(ware.__file__).st_ino, pathlib.Path("/data/of the job/words").read_text())
pathlib.Path("written").write_text("here")
"""
#: Says what is at /y, and stays until there is such a file.
_WAITS = """\
import os, sys, time, ware
print(ware.NAME, os.path.isfile("/y"), os.path.isdir("/y"), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


def start(
    lab: Lab, run: str, *command: str, mounts: tuple[Mount, ...], room: bool
) -> subprocess.Popen[str] | None:
    """The node's part of a job; None where there is no tree to bring."""
    if not lab.contains or lab.case.writable:
        return None
    top = lab.workdir.parent
    (top / "node").mkdir(exist_ok=True)
    site = msgspec.structs.replace(lab.site, schedulers=(SchedulerFacts(name="slurm", version="22.05"),))
    job = Job(
        name="job", command=command, workdir=str(lab.workdir), engine=lab.case.engine, scheduler="slurm",
        delivery="node", node_scratch=str(top / ("node" if room else "nowhere")), mounts=mounts,
    )  # fmt: skip
    store, image = lab.captured.store, lab.image
    rootfs = lab.captured.rootfs(site)
    made = roots.settle(
        store, image, rootfs, plan(job, image, rootfs, site), lambda found: plan(job, image, found, site)
    )
    assert made.delivery is not msgspec.UNSET
    assert Path(made.delivery.archive).exists()
    script, folder = top / f"{run}.sh", top / run / "control"
    script.write_text(render.script(made))
    folder.mkdir(parents=True)
    (folder.parent / "ranks").mkdir()
    return subprocess.Popen(
        ["bash", script, "--node", "0", run, folder, "127.0.0.1", "29500", "job"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(started: subprocess.Popen[str]) -> str:
    """What it printed."""
    out, err = started.communicate(timeout=60)
    assert started.returncode == 0, err
    return out


def told(lab: Lab, run: str) -> list[str]:
    return [each.how for each in records.deliveries(lab.workdir.parent / run)]


@ROOM
def test_the_command_runs_from_the_tree_that_the_node_brought(lab: Lab, room: bool) -> None:
    top = lab.workdir.parent
    (top / "data").mkdir()
    (top / "data" / "words").write_text("words")
    mounts = (Mount(source=str(top / "data"), target="/data/of the job"),)
    started = start(lab, "run", "python", "-c", _TELL, mounts=mounts, room=room)
    if started is None:
        return
    name, file, words = end(started).split()
    stored = {
        str(path.stat().st_ino)
        for path in lab.captured.store.root.glob("layers/*/*/tree/**/ware/__init__.py")
    }
    assert (name, words, file not in stored) == ("ware", "words", room)
    assert (lab.workdir / "written").read_text() == "here"
    assert told(lab, "run") == ["unpacked" if room else "shared"]
    assert list((top / "node").iterdir()) == []


@ROOM
def test_a_job_sees_its_own_mount_points_and_none_of_another_job(lab: Lab, room: bool) -> None:
    top, go = lab.workdir.parent, lab.workdir / "go"
    (top / "empty").touch()
    jobs = {
        "file": (Mount(source=str(top / "empty"), target="/y"),),
        "directory": (Mount(source=str(top), target="/y"),),
        "neither": (),
    }
    running = []
    try:
        for run, mounts in jobs.items():
            started = start(lab, run, "python", "-c", _WAITS, str(go), mounts=mounts, room=room)
            if started is None:
                return
            assert started.stdout is not None
            said = started.stdout.readline().split()
            running.append(started)
            assert said == ["ware", str(run == "file"), str(run == "directory")], run
    finally:
        go.touch()  # the jobs end, also where one failed
    for started in running:
        end(started)
    assert [told(lab, run) for run in jobs] == (
        [["unpacked"], ["found"], ["found"]] if room else [["shared"]] * 3
    )
    assert list((top / "node").iterdir()) == []
