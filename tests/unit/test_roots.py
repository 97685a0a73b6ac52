"""A tree for jobs that mount where the image has nothing: the flat tree, which all share, stays as it is."""

import os
from pathlib import Path

import msgspec
import pytest
from builders import make_image, make_job, make_site
from stored import image_of

from bareboat.deployment import roots
from bareboat.deployment.present import rootfs_of
from bareboat.model import EngineFacts, Image, Mount, OwnTree, Plan, Rootfs
from bareboat.plan import plan
from bareboat_base.errors import PlanError
from bareboat_images.store import Store

LARGE = {f"usr/lib/{n}": "x" for n in range(300)}
TREE = {"bin": "-> usr/bin", "usr/bin/sh": "sh", "etc/ssl/cert": "c", "etc/name": "n", "srv": None, **LARGE}


@pytest.fixture
def image(store: Store) -> Image:
    made = image_of(store, TREE)
    return msgspec.structs.replace(make_image(prefixes=(), layers=made.layers), digest=made.digest)


def settled(store: Store, image: Image, engine: str, *mounts: Mount) -> tuple[Plan, Rootfs]:
    """The plan, and by what it was made in the end."""
    used = [rootfs_of(store, image)]
    ch_run = EngineFacts(
        name="charliecloud", path="/usr/bin/ch-run", version="0.38", origin="on PATH", works=True
    )
    site = make_site(home="/home/ada")
    site = msgspec.structs.replace(site, engines=(*site.engines, ch_run))
    job = make_job(engine=engine, mounts=mounts, workdir="/home/ada", command=("true",), launcher="ranks")

    def again(rootfs: Rootfs) -> Plan:
        used.append(rootfs)
        return plan(job, image, rootfs, site)

    return roots.settle(store, image, used[0], again(used[0]), again), used[-1]


def listing(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def test_a_job_without_mounts_of_its_own_shows_the_flat_tree(store: Store, image: Image) -> None:
    made, used = settled(store, image, "bubblewrap", Mount(source="/", target="/srv"))
    assert used.own is None
    assert str(store.flat(image.digest)) in made.command.argv
    assert not store.roots(image.digest).exists()


def test_large_directories_are_mounted_and_small_ones_linked(
    store: Store, image: Image, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    settled(store, image, "bubblewrap")
    flat = store.flat(image.digest)
    before = listing(flat)
    file = Mount(source=str(tmp_path / "file"), target="/y")
    made, used = settled(store, image, "bubblewrap", file, Mount(source="/", target="/usr/share/data"))
    assert used.own == OwnTree(path=used.own.path if used.own else "", bound=("usr/lib",))
    tree = Path(used.own.path)
    assert (tree / "y").is_file()
    assert (tree / "usr/share/data").is_dir()
    assert os.readlink(tree / "bin") == "usr/bin"
    assert (tree / "etc/ssl/cert").samefile(flat / "etc/ssl/cert")
    assert listing(tree / "usr/lib") == []
    words = list(made.command.argv)
    at = words.index(f"{flat}/usr/lib")
    assert words[at - 1 : at + 2] == ["--ro-bind", f"{flat}/usr/lib", "/usr/lib"]
    assert listing(flat) == before
    folder = Mount(source="/", target="/y")
    _, other = settled(store, image, "bubblewrap", folder)
    assert other.own is not None
    assert Path(other.own.path, "y").is_dir()
    assert settled(store, image, "bubblewrap", folder)[1] == other


def test_what_the_image_has_cannot_become_something_else(store: Store, image: Image) -> None:
    with pytest.raises(PlanError, match="cannot be mounted at /etc/name"):
        settled(store, image, "bubblewrap", Mount(source="/", target="/etc/name"))
