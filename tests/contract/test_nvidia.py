"""NVIDIA's own libraries and programs, of two versions, in every engine that shows GPUs, also in images with
an older and a newer glibc than this machine's.

tests/lab/install-tools.sh unpacks Debian's packages of them below /opt/bareboat-lab. There is no device here
and no kernel module, so they answer that there is none: in a container the same as on the host.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from environments import Captured
from gpu_lab import CASES, Lab, with_engine
from tools import completed, output
from watch import wait_until

from bareboat import registry
from bareboat.engines import bubblewrap
from bareboat.gpu import find
from bareboat.model import Image, Mount, Site
from bareboat.probe import probe
from bareboat_images.tar.limits import Limits
from bareboat_images.transfer import locate
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import obtain

#: Runs a command, and waits for its end.
Run = Callable[..., subprocess.CompletedProcess[str]]

LAB = Path("/opt/bareboat-lab")
#: Version -> the newest CUDA that its libcuda reports, as 1000 * major + 10 * minor.
DRIVERS = {"535": 12020, "550": 12040}
CAPTURED = "captured"
IMAGES = (CAPTURED, "2.31", "2.41")
# CUDA_ERROR_NO_DEVICE, and CUDA_ERROR_MPS_CONNECTION_FAILED: the daemon's server starts, and finds no device.
NO_DEVICE, NO_SERVER = 100, 805

_PROGRAM = r"""
import ctypes, json, os, re, subprocess, sys, time

def ran(*words, given=""):
    done = subprocess.run(words, input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    return [done.returncode, done.stdout, done.stderr]

by_mps = ran(sys.executable, "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))")
for _ in range(50):  # while the daemon starts its server, it may hang up without an answer
    mps = ran("nvidia-cuda-mps-control", given="get_default_active_thread_percentage\n")
    if mps[1]:
        break
    time.sleep(0.1)
del os.environ["CUDA_MPS_PIPE_DIRECTORY"]
cuda, ml, ptx = (ctypes.CDLL(name) for name in
                 ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"))
version = ctypes.c_int()
ml.nvmlErrorString.restype = ctypes.c_char_p
nvml = ml.nvmlInit_v2()
print(json.dumps({
    "cuInit": cuda.cuInit(0),
    "cuInit by MPS": by_mps,
    "cuDriverGetVersion": [cuda.cuDriverGetVersion(ctypes.byref(version)), version.value],
    "nvmlInit": [nvml, ml.nvmlErrorString(nvml).decode()],
    "nvidia-smi": ran("nvidia-smi"),
    "nvidia-smi -L": ran("nvidia-smi", "-L"),
    "nvidia-smi --version": ran("nvidia-smi", "--version"),
    "mps": mps,
    "files": sorted(set(re.findall(r"/(lib(?:cuda|nvidia)[^/\n]*)$", open("/proc/self/maps").read(), re.M))),
}))
"""


def tree(version: str) -> Path:
    folder = LAB / "nvidia" / version
    if not folder.is_dir():
        pytest.skip(f"NVIDIA's driver {version} is not in {LAB}: tests/lab/install-tools.sh")
    return folder


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A short path, which the sockets of MPS need."""
    with tempfile.TemporaryDirectory(prefix="bareboat-nvidia-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture(scope="module", params=DRIVERS)
def version(request: pytest.FixtureRequest) -> str:
    tree(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def machine(version: str, folder: Path) -> list[str]:
    """The words that start a command on this machine with the driver's packages, without devices."""
    bwrap = bubblewrap._embedded()
    if not isinstance(bwrap, str):
        pytest.skip("no bwrap, with which such a machine is made")
    words = [
        bwrap,
        "--die-with-parent",
        "--bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--bind",
        "/dev/shm",
        "/dev/shm",
    ]
    for each in ("/usr", "/etc/alternatives"):
        words += ["--overlay-src", f"{tree(version)}{each}", "--overlay-src", each, "--ro-overlay", each]
    cache = str(folder / f"{version}.cache")
    subprocess.run([*words, "/sbin/ldconfig", "-X", "-C", cache], check=True, capture_output=True)
    return [*words, "--ro-bind", cache, "/etc/ld.so.cache"]


@pytest.fixture(scope="module")
def mps(version: str, machine: list[str], folder: Path) -> Iterator[dict[str, str]]:
    """The variables that lead to the driver's own control daemon of MPS: it needs no GPU before its first
    client."""
    pipes, log = folder / f"mps-{version}", folder / f"log-{version}"
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(log)}
    for each in (pipes, log):
        each.mkdir()
    environment = {**os.environ, **variables}
    # With -f it stays in the foreground.
    with subprocess.Popen(
        [*machine, "nvidia-cuda-mps-control", "-f"], env=environment, stdout=subprocess.DEVNULL
    ) as daemon:
        try:
            assert wait_until((pipes / "control").exists), "MPS did not start"
            yield variables
        finally:
            daemon.terminate()


@pytest.fixture(scope="module")
def host(machine: list[str], mps: dict[str, str], version: str) -> Any:
    """What the program finds on the machine itself."""
    said = answers([*machine, sys.executable, "-c", _PROGRAM], mps)
    assert (said["cuInit"], said["cuDriverGetVersion"]) == (NO_DEVICE, [0, DRIVERS[version]])
    assert said["nvmlInit"] == [9, "Driver Not Loaded"]
    code, text, _ = said["nvidia-smi"]
    assert code == 9
    assert "couldn't communicate with the NVIDIA driver" in text
    assert said["cuInit by MPS"] == [0, f"{NO_SERVER}\n", ""]
    assert said["mps"] == [0, "100.0\n", ""]
    assert all(f".so.{version}." in name for name in said["files"])
    return said


def answers(command: list[str], variables: dict[str, str]) -> Any:
    return json.loads(output(*command, env={**os.environ, **variables}, timeout=60))


@pytest.fixture(scope="module")
def images(captured: Captured) -> dict[str, Image]:
    """By their glibc: one captured here, and two of Debian's suites."""
    found = {CAPTURED: captured.image}
    for glibc in IMAGES[1:]:
        if not (rootfs := LAB / "glibc" / glibc).is_dir():
            pytest.skip(f"there is no {rootfs}: tests/lab/install-tools.sh")
        reference = locate.read(f"rootfs:{rootfs}", folder="/")
        pulled = obtain(reference, captured.store, PullOptions(machine=os.uname().machine, limits=Limits()))
        assert pulled.image.glibc == glibc
        found[glibc] = pulled.image
    return found


@pytest.fixture(scope="module")
def base_site(captured: Captured) -> Site:
    return probe(captured.store)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0] + ("" if case[1] else "-flat"))
def test_the_driver_answers_in_a_container_as_on_the_host(
    case: tuple[str, bool], image: str, version: str, host: Any, mps: dict[str, str],
    images: dict[str, Image], captured: Captured, base_site: Site, tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "work").mkdir()
    drivers = find.find(str(tree(version)), environment=mps)
    assert [driver.cuda for driver in drivers] == [
        f"{DRIVERS[version] // 1000}.{DRIVERS[version] % 1000 // 10}"
    ]
    pipes = Mount(source=mps["CUDA_MPS_PIPE_DIRECTORY"], target=mps["CUDA_MPS_PIPE_DIRECTORY"], writable=True)
    # The pipes lie outside of the tree; and a job that requests GPUs is refused where there is none.
    drivers = tuple(
        msgspec.structs.replace(driver, sockets=(pipes,), devices=("/dev/nvidia0",)) for driver in drivers
    )
    site = msgspec.structs.replace(with_engine(base_site, *case), gpu_drivers=drivers, gpus=("/dev/nvidia0",))
    lab = Lab(case[0], captured, site, tmp_path / "work", tree(version))
    python = "python" if image == CAPTURED else "python3"
    done = lab.run(python, "-c", _PROGRAM, image=images[image], caller=mps)
    # PRoot 5.1.0: of the processes with this glibc that loaded the driver, one in five aborts at its end.
    is_odd = case[0].startswith("udocker:P") and image == "2.41" and "double free" in done.stderr
    assert done.returncode == (128 + signal.SIGABRT if is_odd else 0), done.stderr
    assert json.loads(done.stdout) == host


@pytest.fixture
def run(machine: list[str], captured: Captured, tmp_path: Path) -> Run:
    """Runs a command on the machine, with device nodes behind which no kernel module is."""
    nodes = [word for name in ("nvidia0", "nvidiactl", "nvidia-uvm")
             for word in ("--dev-bind", "/dev/null", f"/dev/{name}")]  # fmt: skip

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return completed(
            [*machine, *nodes, "--chdir", str(tmp_path), *command], timeout=120,
            env={**os.environ, "BAREBOAT_STORE": str(captured.store.root)},
        )  # fmt: skip

    return run


@pytest.mark.parametrize("engine", ["native", "bubblewrap", "charliecloud", "apptainer"])
def test_a_run_on_such_a_machine_passes_its_device_nodes_on(
    engine: str, version: str, captured: Captured, run: Run
) -> None:
    """By the command line."""
    bare = run("nvidia-smi")
    assert bare.returncode == 17
    assert bare.stdout == "Failed to initialize NVML: GPU access blocked by the operating system\n"
    bareboat = (sys.executable, "-m", "bareboat")
    if engine == registry.BARE_METAL:
        newest = f"{DRIVERS[version] // 1000}.{DRIVERS[version] % 1000 // 10}"
        told = rf"driver nvidia {version}\.[\d.]+, found by the loader's cache; supports CUDA up to {newest}"
        assert re.search(told, run(*bareboat, "doctor", "-v").stdout)
    words = ("--engine", engine, "--python", str(captured.python), "--gpus-per-rank", "1", "--")
    done = run(*bareboat, "run", *words, "nvidia-smi")
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout), done.stderr


def test_the_shims_start_the_drivers_programs(images: dict[str, Image], tmp_path: Path, run: Run) -> None:
    """No image has that program."""
    bareboat, shims = (sys.executable, "-m", "bareboat"), tmp_path / "shims"
    assert run(*bareboat, "shim", "--force", "--into", str(shims)).returncode == 0
    assert run(*bareboat, "image", "tag", images["2.41"].digest, "gpu").returncode == 0
    udocker = str(shims / "udocker")
    for words in (("create", "--force", "--name=c", "gpu"), ("setup", "--nvidia", "c")):
        assert run(udocker, *words).returncode == 0
    bare = run("nvidia-smi")
    done = run(udocker, "run", "c", "nvidia-smi")
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout), done.stderr
    assert run(udocker, "run", "gpu", "nvidia-smi").returncode == 2
