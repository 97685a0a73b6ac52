"""An installation of Bareboat as a user of a cluster has it: a virtual environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bareboat


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
