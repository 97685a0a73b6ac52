"""What every engine shows of the host's devices: an adapter's lie in a folder of /dev (/dev/infiniband)."""

import os
from pathlib import Path

import pytest
from engine_lab import Lab


def test_devices_in_folders_of_dev_are_seen_as_on_the_host(lab: Lab) -> None:
    """Of those that this machine has: there is no adapter."""
    found = sorted(
        str(path)
        for folder in Path("/dev").iterdir()
        if folder.is_dir()
        and folder.name not in ("shm", "fd", "pts", "mqueue")
        and os.access(folder, os.X_OK)
        for path in folder.iterdir()
        if path.is_char_device() or path.is_block_device()
    )
    if not found:
        pytest.skip("no directory of /dev holds a device that this user may see")
    program = "import os, sys; print([os.stat(path).st_rdev for path in sys.argv[1:]])"
    assert lab.says(program, *found) == str([os.stat(path).st_rdev for path in found])


def test_the_kernel_s_facts_of_adapters_are_seen(lab: Lab) -> None:
    """UCX, libfabric and NCCL read /sys to find an adapter's ports and how near it is to a GPU."""
    program = "import os; print(sorted(os.listdir('/sys/class')), os.path.isdir('/sys/class/net'))"
    assert lab.says(program) == f"{sorted(os.listdir('/sys/class'))} True"
