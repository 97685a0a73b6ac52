"""An installation of Bareboat as a user of a cluster has it: a virtual environment of its own."""

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import bareboat

ROOT = Path(bareboat.__file__).parents[2]


def install(folder: Path) -> Path:
    """Make an environment with this checkout's `bareboat` and what the tests run with; its `bin` folder.

    Nothing is copied, so it takes no time: it leads to the packages of the tests and to the source tree. It
    works wherever both are seen, as on a cluster's login node, and nowhere else.
    """
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    source = Path(bareboat.__file__).parents[1]
    here = [Path(entry) for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"}]
    paths = dict.fromkeys(str(path.resolve()) for path in (source, *here) if path.is_dir())
    # sys.path is extended by what a .pth file names; addsitedir also reads the .pth files that lie there.
    (packages / "bareboat-checkout.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in paths)
    )
    program = folder / "bin" / "bareboat"
    program.write_text(
        f"#!{folder / 'bin' / 'python'}\nimport sys\nfrom bareboat.cli.main import entry\nsys.exit(entry())\n"
    )
    os.chmod(program, 0o755)
    return folder / "bin"


def install_for_nodes(home: Path, lock: str = "core") -> Path:
    """Bareboat in the shared home, as its users have it, with the packages of a lock; the `bin` folder."""
    folder = home / f"installed-{lock}"
    subprocess.run([f"{sys.base_prefix}/bin/python3", "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    shutil.copytree(ROOT / "src", packages, dirs_exist_ok=True)
    names = re.findall(r"^([\w-]+)==", (ROOT / "locks" / f"{lock}.txt").read_text(), re.MULTILINE)
    for name in dict.fromkeys(names):
        for file in metadata.distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.is_file():
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, packages / file)
    program = folder / "bin" / "bareboat"
    program.write_text(
        f"#!{folder / 'bin' / 'python'}\nimport sys\nfrom bareboat.cli.main import entry\nsys.exit(entry())\n"
    )
    os.chmod(program, 0o755)
    return folder / "bin"
