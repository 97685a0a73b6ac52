"""Five Dockerfiles of real programs (bench/recipes): each built here has the tree that buildah gives it, runs
in every engine, and, pushed to a registry, in podman and apptainer."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from buildah import Change, Peer, changes, storage, view
from building import Builds
from registries import real_registry
from tools import completed, output, tool

from bareboat import registry
from bareboat_images.layers.view import View

RECIPES = tuple(os.environ.get("RECIPES", "apt,c,conda,torch,openmpi").split(","))

pytestmark = pytest.mark.compiles
#: OpenMPI's programs have the time and the host of their configuration: both tools are given the same.
ARGUMENTS = {
    "openmpi": ("--build-arg", "SOURCE_DATE_EPOCH=1700000000", "--build-arg", "HOSTNAME=build"),
}

#: What differs between two builds by one tool, too: times in logs and databases, and the order of entries.
VARYING = re.compile(
    r"/var/log/.*|/var/cache/ldconfig/aux-cache|/var/lib/apt/.*|/var/cache/apt/.*|/opt/app/out"
    r"|.*\.dist-info/RECORD|/opt/env/conda-meta/.*\.json|/tmp/.*|/root/.*"
    r"|/(usr/)?lib/(openmpi/)?.*\.(a|la)|/etc/mailcap"
)
#: Mount points and files that buildah leaves in the tree.
MOUNTS = re.compile(r"/etc/(hosts|hostname|resolv\.conf)|/run/\.containerenv|/dev/.*|/proc|/sys|/run")


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with storage("overlay") as made:
        yield made


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory, peer: Peer) -> Iterator[Builds]:
    """A minimal Debian as `base`, in both."""
    folder = tmp_path_factory.mktemp("real")
    with removed(folder):
        yield based(folder, peer)


def based(folder: Path, peer: Peer) -> Builds:
    archive = folder / "base.tar"
    subprocess.run(
        [tool("mmdebstrap"), "--quiet", "--mode=unshare", "--variant=minbase", "bookworm", str(archive)],
        check=True,
    )
    made = Builds(folder)
    made.bareboat("image", "pull", f"rootfs:{archive}", "--name", "base")
    made.bareboat("image", "save", "base", f"oci-archive:{folder}/base.oci")
    pulled = peer("buildah", "pull", "--quiet", f"oci-archive:{folder}/base.oci")
    peer("buildah", "tag", pulled, "localhost/base:latest")
    archive.unlink()
    (folder / "base.oci").unlink()
    return made


@pytest.fixture(scope="module", params=RECIPES)
def recipe(request: pytest.FixtureRequest, builds: Builds, contexts: Any) -> Iterator[str]:
    name = request.param
    context = builds.folder / name
    contexts.lay(name, context, "base", builds.folder / "downloads")
    long(builds, "image", "build", "-q", *ARGUMENTS.get(name, ()), "-t", f"{name}:1", context)
    yield name
    builds.bareboat("image", "rm", f"{name}:1")


def long(builds: Builds, *arguments: str | Path) -> str:
    environment = os.environ | {"BAREBOAT_STORE": str(builds.folder / "store")}
    return output(sys.executable, "-m", "bareboat", *arguments, env=environment, timeout=3600)


def test_it_runs_in_every_engine(builds: Builds, contexts: Any, recipe: str) -> None:
    argv, says = contexts.RUNS[recipe]
    ran, refused = set(), {}
    for name in registry.names("engines"):
        if name == "native" or registry.engine(name).UNTESTED:
            continue
        flags = ("--engine", name, "--image", f"{recipe}:1", "--", *argv)
        plan = completed(
            [sys.executable, "-m", "bareboat", "plan", *flags],
            env=os.environ | {"BAREBOAT_STORE": str(builds.store.root)},
        )
        if plan.returncode:
            refused[name] = plan.stderr
            continue
        assert says in long(builds, "run", *flags), name
        ran.add(name)
    print("ran in", sorted(ran), "refused", {name: text.partition("\n")[0] for name, text in refused.items()})
    assert {"bubblewrap", "apptainer", "charliecloud", "podman"} <= ran, refused


def test_pushed_it_runs_in_podman_and_apptainer(
    builds: Builds, contexts: Any, recipe: str, tmp_path: Path, peer: Peer
) -> None:
    argv, says = contexts.RUNS[recipe]
    with removed(tmp_path), real_registry(tmp_path / "registry") as here:
        target = f"{here.address}/team/{recipe}:1"
        builds.bareboat("image", "push", "--plain-http", f"{recipe}:1", target)
        flags = ("--quiet", "--tls-verify=false", "--network", "host", "--rm")
        start = ("--runtime", "runc", "--cgroup-manager", "cgroupfs", "run", *flags)
        assert says.strip() in peer("podman", *start, target, *argv)
        peer("buildah", "rmi", target)
        sandbox = tmp_path / "sandbox"
        environment = os.environ | {"APPTAINER_NOHTTPS": "1", "APPTAINER_CACHEDIR": str(tmp_path / "cache")}
        for words in (
            ["build", "--sandbox", str(sandbox), f"docker://{target}"],
            ["exec", "--userns", "--contain", str(sandbox), *argv],
        ):
            shown = output(tool("apptainer"), *words, env=environment)
        assert says in shown


@contextlib.contextmanager
def removed(folder: Path) -> Iterator[None]:
    """Remove its content afterwards: PyTorch with CUDA has 17 GB of it, and pytest keeps directories."""
    try:
        yield
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False, capture_output=True)
        shutil.rmtree(folder)
        folder.mkdir()


def test_its_tree_is_that_of_buildah(builds: Builds, recipe: str, peer: Peer) -> None:
    context = builds.folder / recipe
    text = (context / "Dockerfile").read_text()
    (context / "Dockerfile.peer").write_text(text.replace("FROM base", "FROM localhost/base"))
    flags = (*ARGUMENTS.get(recipe, ()), "--isolation", "chroot", "--network", "host", "--tag", "theirs")
    peer("buildah", "bud", "--quiet", *flags, "--file", context / "Dockerfile.peer", context)
    archive = builds.folder / "theirs.oci"
    peer("buildah", "push", "--quiet", "theirs", f"oci-archive:{archive}")
    peer("buildah", "rmi", "theirs")
    long(builds, "image", "pull", "-q", f"oci-archive:{archive}", "--name", "theirs")
    archive.unlink()
    views = [view(builds, builds.store.image(name)) for name in ("theirs", f"{recipe}:1")]
    found = list(changes(*views))
    left = [each for each in found if not excused(each, *views)]
    print(f"{recipe}: {len(found)} paths differ by time or mount:")
    print("\n".join(sorted(f"  {each.state} {each.what} {each.path}" for each in found)[:80]))
    builds.bareboat("image", "rm", "theirs")
    assert left == []


def excused(change: Change, theirs: View, ours: View) -> bool:
    """Whether it differs between any two builds, or is a mount point of the other's."""
    if change.state == "removed" and MOUNTS.fullmatch(change.path):
        return True
    if change.state == "changed" and change.what == "content":
        if change.path.endswith(".pyc"):  # the header has the time of the source
            one, two = (Path(each.find(change.path).node.places[0]).read_bytes() for each in (theirs, ours))
            return one[16:] == two[16:]
        return bool(VARYING.fullmatch(change.path))
    return False
