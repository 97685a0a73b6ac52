"""Images with Debian's Python and mpi4py, and with that MPI library, or none, that a test wants in them."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from drivers import FOLDER

_PYTHON = "/usr/bin/python3.11"
#: Of the standard library what the proof and mpi4py do without.
_LEFT_OUT = (
    "test",
    "idlelib",
    "ensurepip",
    "lib2to3",
    "tkinter",
    "turtledemo",
    "config-*",
    "__pycache__",
    "pydoc_data",
)


def make_rootfs(folder: Path, mpi4py: Path | None, *, libraries: Sequence[Path] = ()) -> Path:
    """A root file system with Python, and mpi4py as it lies in a folder of packages, if one is given.
    `libraries`: files and folders that are put among its libraries. Nothing in it is an MPI unless they
    bring one."""
    for name in ("bin", "lib", "lib64"):
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    programs = [_PYTHON, "/usr/bin/sh", "/usr/bin/env"]
    modules = [str(each) for each in Path("/usr/lib/python3.11/lib-dynload").glob("_ctypes.*.so")]
    # Parts of the C library that programs of before glibc 2.34 name.
    parts = [f"/{FOLDER}/lib{name}" for name in ("pthread.so.0", "dl.so.2", "rt.so.1", "util.so.1")]
    for path in dict.fromkeys([*parts, *programs, *needed(*programs, *modules)]):
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    for source in libraries:
        target = folder / FOLDER / source.name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target)
    ignored = shutil.ignore_patterns(*_LEFT_OUT)
    shutil.copytree("/usr/lib/python3.11", folder / "usr/lib/python3.11", ignore=ignored, symlinks=True)
    (folder / "usr/bin/python3").symlink_to("python3.11")
    packages = folder / "usr/lib/python3/dist-packages"
    for source in () if mpi4py is None else (mpi4py / "mpi4py", *mpi4py.glob("mpi4py-*.dist-info")):
        shutil.copytree(source, packages / source.name, ignore=ignored)
    for name in ("tmp", "proc", "dev", "sys", "etc", "run", "var/tmp", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "etc/os-release").write_text('ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12"\n')
    return folder


def add_openmpi(folder: Path) -> None:
    """Debian's OpenMPI in a root file system, with its plug-ins and those of PMIx."""
    base = Path("/") / FOLDER
    plugins = [*base.glob("openmpi/lib/openmpi3/*.so"), *base.glob("pmix2/lib/pmix/*.so")]
    library = base / "libmpi.so.40"
    for path in map(Path, [*needed(*map(str, [*plugins, library])), str(library)]):
        if not (folder / FOLDER / path.name).exists():
            shutil.copy2(path, folder / FOLDER / path.name)
    for name in (
        f"{FOLDER}/openmpi",
        f"{FOLDER}/pmix2",
        "usr/share/openmpi",
        "usr/share/pmix",
        "etc/openmpi",
    ):
        if Path("/", name).is_dir():
            shutil.copytree(Path("/", name), folder / name, symlinks=True)
    (folder / "usr/bin/python").symlink_to("python3")


def add_torch(folder: Path, packages: Path) -> None:
    """PyTorch and what Horovod requires, as they lie in a directory of packages, but no Horovod."""
    left_out = shutil.ignore_patterns(
        *_LEFT_OUT, "horovod*", "pip", "pip-*", "setuptools*", "mpi4py*", "include", "*.a"
    )
    shutil.copytree(packages, folder / "usr/lib/python3/dist-packages", ignore=left_out, dirs_exist_ok=True)
    libraries = [*packages.glob("torch/lib/*.so"), *packages.glob("horovod/torch/*.so")]
    modules = Path("/usr/lib/python3.11/lib-dynload").glob("*.so")
    for path in map(Path, needed(*map(str, [*libraries, *modules]))):
        if packages not in path.parents and not (folder / FOLDER / path.name).exists():
            shutil.copy2(path, folder / FOLDER / path.name)


def needed(*programs: str) -> list[str]:
    """The libraries that the loader finds for them, and the loader; none for static programs."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(?:=> |^\s+)(/\S+) \(0x", said, re.MULTILINE)
