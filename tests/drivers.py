"""A made-up NVIDIA driver: real shared objects and a real loader's cache, below a root of its own.

Fake, because no driver can be installed without its hardware: what the kernel module shows (/dev, /proc) is
plain files with what a real one says.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from machines import HERE

#: Where Debian has this machine's libraries.
FOLDER = f"usr/lib/{HERE.triplet}"
VERSION = "550.54.15"
LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm")
#: What the made-up libcuda's cuInit() returns.
ANSWER = 4242

_SOURCE = """
#include <sys/random.h>
int cuInit(unsigned flags) { char byte; return flags + getrandom(&byte, 0, 0) + %d; }
"""
#: Of getrandom(), which the libraries call.
GLIBC = "2.25"


def make_library(path: Path, *, soname: str) -> None:
    """A shared object, which asks for a symbol of glibc 2.25."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, with which the made-up driver is built")
    path.parent.mkdir(parents=True, exist_ok=True)
    # As NVIDIA builds theirs: nothing newer is needed than what is used.
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-x", "c", "-", "-o", str(path)],
        input=(_SOURCE % ANSWER).encode(),
        check=True,
    )


def make_tree(root: Path) -> Path:
    """The machine's files with a driver, as a Debian-like system has them."""
    for name in LIBRARIES:
        ending = "4.0.0" if name == "libnvidia-nvvm" else VERSION
        soname = f"{name}.so.{ending.split('.')[0] if name == 'libnvidia-nvvm' else 1}"
        make_library(root / f"{FOLDER}/{name}.so.{ending}", soname=soname)
    # What else lies there must not be seen in a container.
    make_library(root / FOLDER / "libstranger.so.1", soname="libstranger.so.1")
    _write(root / "usr/bin/nvidia-smi", f"#!/bin/sh\necho NVIDIA-SMI {VERSION} made up\n", mode=0o755)
    _write(root / "usr/bin/stranger", "#!/bin/sh\n", mode=0o755)
    _write(root / "etc/ld.so.conf", f"/{FOLDER}\n")
    for name in (*(f"nvidia{k}" for k in range(2)), "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        _write(root / "dev" / name, "")
    _write(
        root / "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX {HERE.name} Kernel Module  {VERSION}  Tue Mar  5 22:23:56 UTC 2024\n"
        "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)\n",
    )
    for k in range(2):
        _write(
            root / f"proc/driver/nvidia/gpus/0000:0{k}:00.0/information",
            f"Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t {200 + k}\nGPU UUID: \t GPU-{k}\n",
        )
    index(root)
    return root


def index(root: Path) -> None:
    """Write the loader's cache: ldconfig can do that for a root without being root."""
    program = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        pytest.skip("no ldconfig, which writes the loader's cache")
    subprocess.run([program, "-r", str(root)], check=True, capture_output=True)


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
