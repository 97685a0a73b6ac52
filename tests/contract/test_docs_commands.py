"""The commands and programs of README and docs run as printed, in the places that docs/testing.md lists."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import documented
import pytest
from environments import make_environment
from images import busybox, pack, upload
from installation import install
from registries import RealRegistry, real_registry
from tools import output

ROOT = documented.ROOT
#: Images of the pages -> where the tests' registry has them.
IMAGES = {"nvidia/pytorch:24.05-py3", "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel", "library/debian:12"}
PATIENCE_S = 600.0


def stories(place: str) -> list[object]:
    pages = documented.stories(place)
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("installed") / "bareboat")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small environment, which the pages' user has activated."""
    return make_environment(tmp_path_factory.mktemp("small") / "environment").parents[1]


def activated(environment: Path) -> dict[str, str]:
    return {"VIRTUAL_ENV": str(environment)}


@pytest.mark.thorough
@pytest.mark.parametrize("page", stories("desk"))
def test_commands_at_a_desk(page: Path, home: Path, installed: Path, environment: Path) -> None:
    directory = documented.furnish(home / "work", home)
    variables = documented.desk_environment(home, environment / "bin", installed, **activated(environment))
    shell = documented.local_shell(variables, PATIENCE_S)
    documented.play(page, "desk", directory, shell, [str(installed / "python")])


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with real_registry(tmp_path_factory.mktemp("registry")) as running:
        for name in IMAGES:
            upload(running, pack(busybox()), name)
        yield running


@pytest.mark.parametrize("page", stories("registry"))
def test_commands_with_a_registry(
    page: Path, home: Path, installed: Path, environment: Path, registry: RealRegistry
) -> None:
    """The registry is a mirror of those that the pages name."""
    directory = documented.furnish(home / "work", home)
    names = ("docker.io", "nvcr.io", "quay.io", "ghcr.io")
    variables = documented.desk_environment(
        home, environment / "bin", installed, **activated(environment),
        BAREBOAT_MIRRORS=",".join(f"{name}={registry.address}" for name in names),
        BAREBOAT_PLAIN_HTTP=registry.address,
    )  # fmt: skip
    shell = documented.local_shell(variables, PATIENCE_S)
    documented.play(page, "registry", directory, shell, [str(installed / "python")])


# -- the wheel -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of this checkout; its directory."""
    source = tmp_path_factory.mktemp("source") / "bareboat"
    _copy(source)
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return directory


def _copy(target: Path) -> None:
    """The files that the repository holds, changed ones included."""
    listed = output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


@pytest.mark.long
@pytest.mark.parametrize("page", stories("wheel"))
def test_commands_with_the_wheel(page: Path, home: Path, wheel: Path) -> None:
    """In an empty environment, into which the page installs the wheel and its dependencies."""
    directory = documented.furnish(home / "work", home)
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([base, "-m", "venv", home / "environment"], check=True)
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    links = " ".join(filter(None, (str(wheel), pip.pop("PIP_FIND_LINKS", ""))))
    variables = documented.desk_environment(
        home, home / "environment" / "bin", **activated(home / "environment"), **pip, PIP_FIND_LINKS=links
    )
    shell = documented.local_shell(variables, PATIENCE_S)
    documented.play(page, "wheel", directory, shell, ["python3"])


# -- a clone ---------------------------------------------------------------------------------------------


@pytest.mark.clone
@pytest.mark.parametrize("page", stories("clone"))
def test_commands_in_a_fresh_clone(page: Path, home: Path) -> None:
    """`git clone …` clones from a repository of that name. `make test` runs one quick file."""
    _copy(home / "…")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], cwd=home / "…", check=True)
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    variables = documented.desk_environment(home, **pip, TESTS="tests/unit/test_units.py")
    documented.play(page, "clone", home, documented.local_shell(variables, 6 * PATIENCE_S), ["python3"])
