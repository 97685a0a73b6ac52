"""Finding a driver in a made-up machine (tests/drivers.py): real libraries, a real loader's cache."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from drivers import FOLDER, GLIBC, VERSION, index, make_library, make_tree
from machines import HERE, OTHER
from tools import output

from bareboat.deployment.present import driver_links
from bareboat.gpu import find
from bareboat.model import DriverFile, GpuDriver, Site
from bareboat_base.elf import cache
from bareboat_images.store import Store

LIBRARIES = FOLDER

#: How `ldconfig -p` marks libraries of this machine (glibc's dl-cache.h).
LDCONFIG = {"x86_64": "x86-64", "aarch64": "AArch64"}[HERE.name]


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    """A machine that the test may change."""
    return Path(shutil.copytree(pristine, tmp_path / "machine", symlinks=True))


def nvidia(root: Path, **environment: str) -> GpuDriver:
    (driver,) = find.find(str(root), machine=HERE.name, environment=environment)
    assert driver.vendor == "nvidia"
    return driver


def names(driver: GpuDriver) -> set[str]:
    return {file.name for file in driver.libraries}


ALL = {
    "libcuda.so",
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-ptxjitcompiler.so.1",
}

# -- NVIDIA ------------------------------------------------------------------------------------------


def test_a_driver_is_found_by_the_loader_s_cache(root: Path) -> None:
    driver = nvidia(root)
    assert driver == GpuDriver(
        vendor="nvidia",
        version=VERSION,
        source="the loader's cache",
        cuda="12.4",
        models=("NVIDIA A100-SXM4-80GB",) * 2,
        devices=(
            "/dev/nvidia0",
            "/dev/nvidia1",
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia-uvm-tools",
        ),
        libraries=driver.libraries,
        programs=(DriverFile(name="nvidia-smi", path=f"{root}/usr/bin/nvidia-smi"),),
        glibc=GLIBC,
        glibc_by=f"libcuda.so.{VERSION}",
    )
    assert names(driver) == ALL
    by_name = {file.name: file.path for file in driver.libraries}
    assert by_name["libcuda.so.1"] == by_name["libcuda.so"] == f"{root}/{LIBRARIES}/libcuda.so.{VERSION}"
    assert by_name["libnvidia-nvvm.so.4"] == f"{root}/{LIBRARIES}/libnvidia-nvvm.so.4.0.0"
    assert find.gpus((driver,)) == ("/dev/nvidia0", "/dev/nvidia1")


def test_a_machine_without_a_driver_has_none(root: Path) -> None:
    for name in ("dev", "proc", "usr"):
        shutil.rmtree(root / name)
    index(root)
    assert find.find(str(root)) == ()


def test_a_login_node_has_a_driver_without_devices(root: Path) -> None:
    shutil.rmtree(root / "dev")
    shutil.rmtree(root / "proc")
    driver = nvidia(root)
    assert (driver.version, driver.devices, driver.models) == (VERSION, (), ())
    assert names(driver) == ALL


def test_twelve_gpus_are_in_the_order_of_their_numbers(root: Path) -> None:
    for k in range(12):
        (root / f"dev/nvidia{k}").touch()
    assert find.gpus((nvidia(root),)) == tuple(f"/dev/nvidia{k}" for k in range(12))


def test_libraries_that_an_update_left_behind_are_not_taken(root: Path) -> None:
    """As after an update of the packages without a reboot, or the other way round."""
    told = root / "proc/driver/nvidia/version"
    told.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (x@y)\n"
    )
    driver = nvidia(root)
    assert (driver.version, driver.libraries) == ("570.86.15", ())
    assert any(
        "libcuda.so.1" in note and "the kernel module has version 570.86.15" in note for note in driver.notes
    )
    assert any("libcuda.so.1 not found" in note for note in driver.notes)
    make_library(root / LIBRARIES / "libcuda.so.570.86.15", soname="libcuda.so.1")
    index(root)
    assert nvidia(root).libraries[0].path == f"{root}/{LIBRARIES}/libcuda.so.570.86.15"


@pytest.mark.parametrize("folder", ["usr/local/nvidia/lib64", "usr/lib/wsl/lib", "run/opengl-driver/lib"])
def test_folders_that_ldconfig_was_not_told_of_are_searched(root: Path, folder: str) -> None:
    (root / folder).parent.mkdir(parents=True)
    (root / LIBRARIES).rename(root / folder)
    index(root)
    driver = nvidia(root)
    assert driver.source == f"/{folder}"
    assert names(driver) >= ALL
    assert "libstranger.so.1" not in names(driver)


def test_links_lead_no_way_out_of_the_machine(root: Path) -> None:
    """An absolute link means a place below the machine's root."""
    library = root / LIBRARIES / f"libcuda.so.{VERSION}"
    (root / "opt/nvidia").mkdir(parents=True)
    library.rename(root / "opt/nvidia" / library.name)
    library.symlink_to(f"/opt/nvidia/{library.name}")
    by_name = {file.name: file.path for file in nvidia(root).libraries}
    assert by_name["libcuda.so.1"] == f"{root}/opt/nvidia/libcuda.so.{VERSION}"


def test_without_the_unified_memory_device_a_note_says_what_makes_it(root: Path) -> None:
    (root / "dev/nvidia-uvm").unlink()
    assert any("nvidia-modprobe -u" in note for note in nvidia(root).notes)


@pytest.mark.skipif(os.getuid() == 0, reason="root may open everything")
def test_devices_that_this_user_cannot_open_are_told(root: Path) -> None:
    (root / "dev/nvidia1").chmod(0o600)
    assert nvidia(root).notes == ()
    (root / "dev/nvidia1").chmod(0)
    assert nvidia(root).notes == ("you cannot open /dev/nvidia1; ask the administrator for access",)


def test_pipes_of_mps_and_sockets_of_services_are_found(root: Path) -> None:
    for folder in ("run/nvidia-persistenced", "tmp/nvidia-mps", "scratch/pipe"):
        (root / folder).mkdir(parents=True)
    assert [(mount.source, mount.target) for mount in nvidia(root).sockets] == [
        (f"{root}/run/nvidia-persistenced", "/run/nvidia-persistenced"),
        (f"{root}/tmp/nvidia-mps", "/tmp/nvidia-mps"),
    ]
    chosen = nvidia(root, CUDA_MPS_PIPE_DIRECTORY="/scratch/pipe").sockets[-1]
    assert (chosen.source, chosen.target) == (f"{root}/scratch/pipe", "/scratch/pipe")


def test_a_damaged_cache_is_told_and_the_folders_serve(root: Path) -> None:
    cache = root / "etc/ld.so.cache"
    cache.write_bytes(cache.read_bytes()[:60])
    driver = nvidia(root)
    assert any("/etc/ld.so.cache cannot be parsed" in note for note in driver.notes)
    assert driver.source == f"/{LIBRARIES}"
    assert names(driver) >= ALL


# -- the loader's cache ------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["new", "compat"])
def test_the_cache_is_read_as_ldconfig_prints_it(root: Path, format_: str) -> None:
    """`compat` is what ldconfig wrote before glibc 2.32: the old format, then the new one."""
    ldconfig = shutil.which("ldconfig", path="/usr/sbin:/sbin")
    assert ldconfig is not None
    subprocess.run([ldconfig, "-r", str(root), "-c", format_], check=True, capture_output=True)
    data = (root / "etc/ld.so.cache").read_bytes()
    assert data.startswith(b"ld.so-1.7.0" if format_ == "compat" else b"glibc-ld.so.cache1.1")
    found = cache.parse(data, HERE.name)
    printed = output(ldconfig, "-r", root, "-p")
    assert len(found) == 5
    for entry in found:
        assert f"\t{entry.name} (libc6,{LDCONFIG}) => {entry.path}\n" in printed
    assert cache.parse(data, OTHER.name) == ()


def test_no_damage_to_the_cache_does_more_than_raise_value_error(pristine: Path) -> None:
    whole = (pristine / "etc/ld.so.cache").read_bytes()
    for end in range(len(whole)):
        try:
            cache.parse(whole[:end], HERE.name)
        except ValueError:
            continue
    with pytest.raises(ValueError, match="it starts with"):
        cache.parse(b"x" * 100, HERE.name)


# -- AMD ---------------------------------------------------------------------------------------------


def test_amd_s_devices_and_libraries_are_found(tmp_path: Path) -> None:
    for path in ("dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129", "dev/dri/card0"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    for name in ("libamdhip64", "libhsa-runtime64", "libstranger"):
        make_library(tmp_path / f"opt/rocm-6.1.2/lib/{name}.so.6", soname=f"{name}.so.6")
    (tmp_path / "opt/rocm-6.1.2/.info").mkdir()
    (tmp_path / "opt/rocm-6.1.2/.info/version").write_text("6.1.2-95\n")
    (tmp_path / "opt/rocm").symlink_to("/opt/rocm-6.1.2")
    (driver,) = find.find(str(tmp_path))
    assert (driver.vendor, driver.version, driver.source) == ("amd", "6.1.2", "/opt/rocm/lib")
    assert names(driver) == {"libamdhip64.so.6", "libhsa-runtime64.so.6"}
    assert find.gpus((driver,)) == ("/dev/dri/renderD128", "/dev/dri/renderD129")
    assert driver.glibc == GLIBC


# -- libraries, links --------------------------------------------------------------------------------


def test_the_folder_of_links_holds_names_only_and_is_made_once(root: Path, store: Store) -> None:
    from builders import make_site

    site: Site = make_site(gpu_drivers=(nvidia(root),))
    folder = Path(driver_links(store, site)["nvidia"])
    assert {path.name: os.readlink(path) for path in (folder / "lib").iterdir()} == {
        "libcuda.so": f"/run/bareboat/host/0/libcuda.so.{VERSION}",
        "libcuda.so.1": f"/run/bareboat/host/0/libcuda.so.{VERSION}",
        "libnvidia-ml.so.1": f"/run/bareboat/host/0/libnvidia-ml.so.{VERSION}",
        "libnvidia-nvvm.so.4": "/run/bareboat/host/0/libnvidia-nvvm.so.4.0.0",
        "libnvidia-ptxjitcompiler.so.1": f"/run/bareboat/host/0/libnvidia-ptxjitcompiler.so.{VERSION}",
    }
    assert os.readlink(folder / "bin/nvidia-smi") == "/run/bareboat/host/1/nvidia-smi"
    before = folder.stat()
    assert driver_links(store, site) == {"nvidia": str(folder)}
    assert folder.stat() == before
    assert os.listdir(store.root / "tmp") == []
    assert driver_links(store, make_site()) == {}
