"""bench/gpu/contract.py, on a machine that seems to have a GPU: its driver is simulated (tests/drivers.py).

It shows that the bench finds the machine's driver by itself, compares, and tells a difference; what a real
GPU does only a real one can show.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from drivers import SIMULATOR, VERSION, make_library

from bareboat.engines import bubblewrap

BENCH = Path(__file__).parents[2] / "bench" / "gpu" / "contract.py"


@pytest.fixture
def machine(tmp_path: Path) -> list[str]:
    """The words that start a command on it: its own /dev, loader's cache and PATH."""
    bwrap = bubblewrap._embedded()
    if not isinstance(bwrap, str):
        pytest.skip("no bwrap, with which such a machine is made")
    root = tmp_path / "machine"
    make_library(root / f"lib/libcuda.so.{VERSION}", soname="libcuda.so.1", source=SIMULATOR)
    (root / "bin").mkdir()
    (root / "bin/nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: simulated (UUID: GPU-1)'\n")
    (root / "bin/nvidia-smi").chmod(0o755)
    (root / "ld.so.conf").write_text(f"include /etc/ld.so.conf\n{root}/lib\n")
    (root / "node").touch()
    (root / "lib/libcuda.so.1").symlink_to(f"libcuda.so.{VERSION}")
    ldconfig = shutil.which("ldconfig", path="/usr/sbin:/sbin")
    assert ldconfig is not None
    cache = str(root / "ld.so.cache")
    subprocess.run(
        [ldconfig, "-X", "-C", cache, "-f", str(root / "ld.so.conf")], check=True, capture_output=True
    )
    nodes = [word for name in ("nvidia0", "nvidiactl", "nvidia-uvm")
             for word in ("--bind", str(root / "node"), f"/dev/{name}")]  # fmt: skip
    return [
        bwrap, "--bind", "/", "/", "--dev", "/dev", "--bind", "/dev/shm", "/dev/shm", *nodes,
        "--ro-bind", cache, "/etc/ld.so.cache", "--setenv", "PATH", f"{root}/bin:{os.environ['PATH']}",
    ]  # fmt: skip


def _bench(machine: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*machine, sys.executable, str(BENCH), *options],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_bench_says_that_an_engine_is_as_bare_metal(machine: list[str]) -> None:
    done = _bench(machine, "--engine", "bubblewrap", "--engine", "udocker")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f'"version": "{VERSION}"' in done.stdout
    lines = [line.split(None, 1) for line in done.stdout.splitlines() if not line.startswith(("{", " ", "}"))]
    found = dict(lines)
    assert "'right': True" in found["native"]
    assert "'hidden': True" in found["native"]
    assert "GPU 0: simulated" in found["native"]
    assert found["bubblewrap"] == "as on bare metal"
    assert found["udocker"] == "as on bare metal" or found["udocker"].startswith("not tried: ")


def test_the_bench_tells_an_engine_that_differs(machine: list[str], tmp_path: Path) -> None:
    """A driver that computes otherwise where it finds itself in a container."""
    library = tmp_path / f"machine/lib/libcuda.so.{VERSION}"
    told = 'int cuDriverGetVersion(int *version) { *version = 12040 + !!getenv("BAREBOAT_IMAGE"); return 0; }'
    source = SIMULATOR.replace("int cuDriverGetVersion(int *version) { *version = 12040; return 0; }", told)
    make_library(library, soname="libcuda.so.1", source=source)
    done = _bench(machine, "--engine", "bubblewrap")
    assert done.returncode == 1
    assert "bubblewrap     DIFFERS: {'cuda': 12041," in done.stdout


def test_the_bench_tells_a_machine_without_a_gpu() -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    done = _bench([])
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "there is no GPU with a driver here\n")


def test_doctor_shows_the_driver(machine: list[str], tmp_path: Path) -> None:
    store = ["--setenv", "BAREBOAT_STORE", str(tmp_path / "store")]
    done = subprocess.run(
        [*machine, *store, sys.executable, "-m", "bareboat", "doctor", "-v"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "1 GPUs: /dev/nvidia0" in lines
    assert f"driver nvidia {VERSION}, found by the loader's cache; supports CUDA up to 12.4" in lines
    (given,) = (line for line in lines if line.startswith("for containers: "))
    assert given.startswith("for containers: libcuda.so.1, libcuda.so, nvidia-smi; they need glibc 2.")
