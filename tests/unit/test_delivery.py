"""When the image is brought to the nodes, what the command then names, and what lies in the store for it."""

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import make_image, make_job, make_rootfs, make_site
from msgspec import UNSET
from stored import image_of
from tools import tool

from bareboat import render
from bareboat.deployment import flat_tar
from bareboat.engines import Container
from bareboat.engines.places import Place
from bareboat.model import (
    Decision,
    EngineFacts,
    FileSystem,
    Job,
    Mount,
    NodePath,
    Plan,
    SchedulerFacts,
    Site,
    Topology,
)
from bareboat.plan import plan
from bareboat.plan.delivery import on_the_node
from bareboat.runs import records
from bareboat_base.errors import PlanError
from bareboat_images import upkeep
from bareboat_images.formats import packed
from bareboat_images.formats.flatten import make_flat
from bareboat_images.store import Store

SHARED = "/scratch/ada/bareboat/flat/sha256"


def site(kind: str = "lustre", **changes: Any) -> Site:
    store = FileSystem(purpose="store", path="/scratch/ada", kind=kind, free_bytes=2**40, free_inodes=10**8)
    facts = {"schedulers": (SchedulerFacts(name="slurm", version="1"),), "file_systems": (store,), **changes}
    return make_site(**facts)


def job(nodes: int = 2, **changes: Any) -> Job:
    facts = {"scheduler": "slurm", "launcher": "ranks", "topology": Topology(nodes=nodes, ranks_per_node=2)}
    return make_job(**(facts | changes))


def planned(asked: Job, runs_on: Site | None = None) -> Plan:
    image = make_image()
    return plan(asked, image, make_rootfs(image), runs_on or site())


def decision(made: Plan) -> Decision | None:
    return next((each for each in made.decisions if each.subject == "delivery"), None)


# --- the rule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lustre", "nfs", "gpfs", "beegfs", "ceph", "fuse.glusterfs"])
def test_several_nodes_with_a_store_on_a_file_system_for_all_get_it_each(kind: str) -> None:
    made = planned(job(), site(kind))
    found = decision(made)
    assert found is not None
    assert found.choice == "node: once to /tmp of each node, as one file"
    assert made.delivery is not UNSET
    assert (made.delivery.folder, made.delivery.shared) == ("/tmp/bareboat-4711/flat", SHARED)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (job(), "xfs"),
        (job(scheduler="local", nodes=1), "lustre"),
        (job(engine="native", delivery="node"), "lustre"),
    ],
)
def test_where_there_is_nothing_to_decide_nothing_is_said(asked: Job, kind: str) -> None:
    made = planned(asked, site(kind))
    assert (made.delivery, decision(made)) == (UNSET, None)
    assert "BAREBOAT_TREES" not in render.script(made)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (job(delivery="shared"), "asked for"),
        (job(nodes=1), "one node alone reads less of the image than it would have to copy"),
        (
            job(nodes=1, scheduler="local", launcher=None, delivery="node"),
            "this machine runs the job at once",
        ),
        (job(writable=True), "writable = true stacks the image's layers where they are"),
        (
            job(mounts=(Mount(source="/tmp", target="/mnt", writable=True),)),
            "/tmp, which the job mounts writable",
        ),
    ],
)
def test_where_it_is_not_brought_the_plan_says_why(asked: Job, reason: str) -> None:
    made = planned(asked)
    found = decision(made)
    assert found is not None
    assert (found.choice, made.delivery) == ("shared: ranks read the store", UNSET)
    assert found.reason.startswith(reason)


ENGINES = tuple(
    EngineFacts(
        name=name, path=f"/opt/bin/{name}", version="1.4.5", origin="on PATH", works=True, overlay=True,
        modes=modes, files={"sif": ""},
        settings={"env": "/usr/bin/env:/lib64/ld.so", "bash": "/usr/bin/bash", "unshare": "/usr/bin/unshare"},
    )
    for name, modes in (
        ("apptainer", ("configured",)), ("bubblewrap", ()), ("charliecloud", ()), ("podman", ()),
        ("udocker", ("P1",)),
    )
)  # fmt: skip


def test_an_image_that_is_one_file_stays_where_it_is() -> None:
    made = planned(job(form="file", delivery="node", engine="apptainer"), site(engines=ENGINES))
    found = decision(made)
    assert found is not None
    assert (found.reason, made.delivery) == ("the image is one file already", UNSET)


def test_it_is_asked_for_with_one_node_and_any_file_system() -> None:
    made = planned(job(nodes=1, delivery="node", node_scratch="/local/ada"), site("xfs"))
    assert made.delivery is not UNSET
    assert made.delivery.folder == "/local/ada/bareboat-4711/flat"


def test_a_store_in_the_memory_of_one_machine_is_refused_for_several_nodes() -> None:
    asked, here = job(delivery="node"), site("tmpfs")
    image = make_image()
    with pytest.raises(PlanError, match="2 nodes cannot read the store /scratch/ada") as caught:
        planned(asked, here)
    assert "--store DIR" in caught.value.remedy
    planned(job(nodes=1), here)
    # A compute node that was seen to have it shares that machine's memory.
    plan(asked, image, make_rootfs(image), here, node=here)


def test_what_was_asked_for_and_cannot_be_is_refused() -> None:
    with pytest.raises(PlanError, match="writable = true stacks the image's layers") as refused:
        planned(job(delivery="node", writable=True))
    mounted = (Mount(source="/", target="/mnt", writable=True),)
    with pytest.raises(PlanError, match="cannot be brought to the nodes: /, which the job mounts") as refused:
        planned(job(delivery="node", mounts=mounted))
    assert refused.value.remedy == "--delivery shared"


# --- the command --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (SHARED, NodePath("BAREBOAT_TREES", "", SHARED)),
        (f"{SHARED}/aa/usr", NodePath("BAREBOAT_TREES", "/aa/usr", f"{SHARED}/aa/usr")),
        (f"/mnt{SHARED}/aa", f"/mnt{SHARED}/aa"),
        (f"{SHARED}-old/aa", f"{SHARED}-old/aa"),
    ],
)
def test_the_store_s_trees_are_those_of_the_node_and_nothing_else_is(path: str, shown: Place) -> None:
    delivery = planned(job(delivery="node")).delivery
    assert delivery is not UNSET
    mount = Mount(source=path, target="/a", writable=True)
    container = on_the_node(Container(flat=path, joined=path, mounts=(mount,), home="/"), delivery)
    assert (container.flat, container.joined) == (shown, shown)
    ((source, target, writable),) = ((each.source, each.target, each.writable) for each in container.mounts)
    assert (source, target, writable) == (shown, "/a", True)
    assert container.planned_mounts == (mount,)


def test_the_job_s_own_words_stay_as_they_are() -> None:
    word = f"{SHARED}/aa/file"
    assert planned(job(delivery="node", command=("cat", word))).command.argv[-1] == word


# --- the store ----------------------------------------------------------------------------------------------


def provided(store: Store, *mounts: Mount, relinked: bool = False) -> Path:
    image = image_of(store, {"usr/lib/a": "aaa", "lib": "-> usr/lib", "abs": "-> /usr/lib", "empty": None})
    make_flat(store, image, mounts, relinked=relinked)
    return flat_tar.provide(store, image, mounts, relinked=relinked)


def listed(path: Path) -> list[str]:
    said = subprocess.run([tool("tar"), "-tvf", path], capture_output=True, text=True, check=True).stdout
    return [line.split(maxsplit=5)[5] for line in said.splitlines()]


def test_the_archive_holds_the_tree_and_is_written_once(store: Store) -> None:
    path = provided(store)
    names = listed(path)
    assert names == ["./", "abs -> /usr/lib", "lib -> usr/lib", "usr/", "usr/lib/", "usr/lib/a", "empty/"]
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert provided(store) == path
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert stat.S_IMODE(path.stat().st_mode) & 0o400
    assert list((store.root / "tmp").iterdir()) == []


def test_that_of_the_relinked_tree_is_another(store: Store) -> None:
    path = provided(store, relinked=True)
    assert path != provided(store)
    assert "abs -> usr/lib" in listed(path)


def test_places_are_listed_by_where_links_lead_and_add_up(store: Store, tmp_path: Path) -> None:
    provided(store, Mount(source=str(tmp_path), target="/data"))
    path = provided(store, Mount(source="/etc/hosts", target="/lib/hosts"))
    assert flat_tar.read_places(path) == ["d/data", "f/usr/lib/hosts"]


def test_a_damaged_archive_is_found_told_and_written_again(store: Store) -> None:
    path = provided(store)
    image = image_of(store, {"usr/lib/a": "aaa", "lib": "-> usr/lib", "abs": "-> /usr/lib", "empty": None})
    assert upkeep.verify(store, image).packed == ()
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    assert upkeep.verify(store, image).packed == (f"the tar file {path} was changed",)
    path.write_bytes(data[:-1])
    provided(store)
    assert upkeep.verify(store, image).packed == ()


def test_an_interrupted_writer_leaves_no_archive(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_tree: str, write: Any) -> None:
        write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(packed, "write_tree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            provided(store)
    assert not list(store.root.glob("packed/sha256/*/image.tar"))
    assert list((store.root / "tmp").iterdir()) == []
    assert provided(store).exists()


def test_what_nodes_tell_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control/deliveries.c1").write_text("10 c1 unpacked 3 1000\n30 c1 found 0 1000\n40 c1 unp")
    (tmp_path / "control/deliveries.c2").write_text("10 c2 shared 0 1000\nnonsense\n")
    found = records.deliveries(tmp_path)
    assert [(each.at_epoch_s, each.node, each.how) for each in found] == [
        (10, "c1", "unpacked"), (10, "c2", "shared"), (30, "c1", "found"),
    ]  # fmt: skip
    assert records.deliveries(tmp_path / "none") == ()
