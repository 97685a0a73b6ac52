"""What sites install Bareboat by: recipes of package managers, the module file, the app, the citation."""

import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DISTRIBUTION = ROOT / "distribution"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Package -> the oldest version that Bareboat works with, by the names of Spack and of conda-forge.
OLDEST = dict(
    re.fullmatch(r"([A-Za-z-]+)>=([0-9.]+)", each).groups()  # type: ignore[union-attr]
    for each in PROJECT["dependencies"]
    if ">=" in each
)
HOMEPAGE = "https://bareboat.example.org"


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("recipes")
    (top / "bareboat-0.1.0.tar.gz").write_bytes(b"an archive")
    write(top / "bareboat-0.1.0.tar.gz", top / "recipes")
    return top / "recipes"


def write(archive: Path, into: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, DISTRIBUTION / "recipes.py", archive, into]
    words += ["--homepage", HOMEPAGE, "--url", f"{HOMEPAGE}/{archive.name}"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_each_recipe_has_the_version_and_the_digest(recipes: Path) -> None:
    files = [path for path in recipes.rglob("*") if path.is_file()]
    assert len(files) == 6
    digest = hashlib.sha256(b"an archive").hexdigest()
    named = {path.parent.name for path in files if digest in path.read_text()}
    assert named == {"py_bareboat", "easybuild", "conda"}
    assert not [path for path in files if re.search(r"@[A-Z]", path.read_text())]


def test_spack_asks_for_the_same_packages(recipes: Path) -> None:
    text = next(recipes.rglob("py_bareboat/package.py")).read_text()
    asked = dict(re.findall(r'depends_on\("py-([a-z]+)@([0-9.]+):", type=\("build", "run"\)\)', text))
    assert {name: _number(version) for name, version in asked.items()} == {
        name.lower(): _number(version) for name, version in OLDEST.items()
    }
    oldest = re.search(r'depends_on\("python@([0-9.]+):"', text)
    assert oldest is not None
    assert PROJECT["requires-python"] == f">={oldest[1]}"


def test_conda_asks_for_the_same_packages(recipes: Path) -> None:
    recipe = yaml.safe_load((recipes / "conda" / "recipe.yaml").read_text())
    asked = dict(each.split(" >=") for each in recipe["requirements"]["run"] if " >=" in each)
    asked["isal"] = asked.pop("python-isal")
    assert asked.pop("python") == "${{ python_min }}"
    assert {name: _number(version) for name, version in asked.items()} == {
        name.lower(): _number(version) for name, version in OLDEST.items()
    }


def _number(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in version.split(".")]
    while parts[-1] == 0:
        parts.pop()
    return tuple(parts)


@pytest.mark.parametrize("name", ["bareboat.zip", "other-1.0.tar.gz", "bareboat-0.1.0.tar.gz"])
def test_what_is_no_archive_is_refused(tmp_path: Path, name: str) -> None:
    done = write(tmp_path / name, tmp_path / "recipes")
    assert (done.returncode, "try: make dist" in done.stderr) == (2, True)
    assert not (tmp_path / "recipes").exists()
