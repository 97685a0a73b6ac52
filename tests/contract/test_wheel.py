"""The wheel as users get it: its files, and what an empty environment has after `pip install`."""

import email
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tools import output

from bareboat.cli.main import VERBS

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
SHARE = (
    "share/man/man1/bareboat.1",
    *(f"share/man/man1/bareboat-{verb}.1" for verb in VERBS),
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "bareboat"
    names = ("src", "docs", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
    for name in names:
        path = ROOT / name
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        source.mkdir(exist_ok=True)
        copy(path, source / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    output(*command, cwd=source)
    (found,) = directory.glob("*.whl")
    return found


def test_the_wheel_has_types_licences_and_man_pages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name.rpartition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(f"{about}/METADATA"))
    assert {
        "bareboat/py.typed",
        "bareboat_meter.py",
        f"{about}/licenses/LICENSE",
        f"{about}/licenses/NOTICE",
    } <= names
    data = about.replace(".dist-info", ".data/data")
    assert {f"{data}/{name}" for name in SHARE} <= names
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("License-File") or ()) == {"LICENSE", "NOTICE"}
    assert not [name for name in names if "tests" in name or name.startswith("docs")]


def test_two_builds_are_the_same_file(wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as second:
        assert {each.filename: each.CRC for each in first.infolist()} == {
            each.filename: each.CRC for each in second.infolist()
        }


def test_an_empty_environment_has_the_program_and_its_man_pages(wheel: Path, tmp_path: Path) -> None:
    """Without dependencies, which the tests of the pages install; `man` finds the pages by PATH."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = (folder / "bin" / "python", "-m", "pip")
    output(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)
    for name in SHARE:
        assert (folder / name).stat().st_size > 0, name
    if shutil.which("man") is None:
        pytest.skip("man is not installed: apt-get install man-db")
    environment = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
    }
    found = output("man", "-w", "bareboat-run", env=environment)
    assert Path(found.strip()) == folder / "share" / "man" / "man1" / "bareboat-run.1"
