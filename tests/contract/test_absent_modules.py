"""Modules that a script imports: what is said before the start, and what real Pythons find."""

import subprocess
from pathlib import Path

import pytest
from builders import make_job, make_site
from environments import Captured, make_environment, run_in, site_packages

from bareboat.captures import describe_of
from bareboat.captures.interpreter import ask
from bareboat.model import Image
from bareboat.session.planning import look_at_code
from bareboat_images.store import Store

FOUND = "import space.part, ware, sqlite3\nimport json\n"


def absent(store: Store, image: Image, work: Path, name: str = "capture") -> list[tuple[str, str, int]]:
    job = make_job(command=("python", "train.py"), workdir=str(work), image=name)
    found = look_at_code(store, image, job, make_site(), home="/nowhere").absent
    return [(each.module, each.file, each.line) for each in found]


def test_a_real_environment_finds_what_is_not_named(tmp_path: Path, store: Store) -> None:
    python = make_environment(tmp_path / "venv")
    packages = site_packages(tmp_path / "venv")
    (packages / "space" / "part").mkdir(parents=True)
    work = tmp_path / "work"
    work.mkdir()
    script = work / "train.py"
    image = describe_of(ask(str(python)))
    for text, name in ((FOUND, ""), (f"{FOUND}import gone\n", "gone")):
        script.write_text(text)
        ran = subprocess.run([python, script], capture_output=True, text=True, check=False)
        assert (ran.returncode, f"No module named '{name}'" in ran.stderr) == (bool(name), bool(name))
        assert absent(store, image, work) == ([(name, "train.py", 3)] if name else [])


@pytest.mark.parametrize("name", ["capture", "theirs"])
def test_a_container_lacks_what_is_named(captured: Captured, tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text("import ware, ssl\nimport gone\n")
    assert absent(captured.store, captured.image, tmp_path, name) == [("gone", "train.py", 2)]
    ran = run_in(captured, "python", "train.py", workdir=tmp_path)
    assert "No module named 'gone'" in ran.stderr
    (tmp_path / "gone.py").touch()
    assert absent(captured.store, captured.image, tmp_path, name) == []
