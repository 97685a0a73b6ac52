"""bench/gpu/contract.py compares a machine's GPUs in containers and on bare metal."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "gpu" / "contract.py"


def test_it_tells_a_machine_without_a_gpu() -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    done = subprocess.run([sys.executable, BENCH], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "there is no GPU with a driver here\n")
