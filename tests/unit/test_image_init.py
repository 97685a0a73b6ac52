"""`bareboat image init`: what it finds in a directory, what it writes, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import make_site
from environments import make_environment, site_packages
from recipe_sites import HDR

from bareboat.cli.main import main
from bareboat.model import Site
from bareboat.session import sites
from bareboat_base import codec
from bareboat_images.recipe import stages
from bareboat_images.store import Store


class Project:
    """A directory in which `image init` runs in this process."""

    def __init__(self, folder: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._captured = captured

    def write(self, **files: str) -> None:
        for name, content in files.items():
            (self.folder / name.replace("__", ".")).write_text(content)

    def init(self, *words: str, code: int = 0) -> tuple[str, str]:
        assert main(["image", "init", *words]) == code
        said = self._captured.readouterr()
        return said.out, said.err

    def facts(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.init(*words, "--dry-run", "--json")[0])
        stages.read(found["text"], given={}, builtin={"TARGETARCH": "amd64"})
        return found


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def probe(*_: object, **__: object) -> Site:
        return make_site(hostname="here")

    monkeypatch.setattr(sites, "probe", probe)
    return Project(folder, capsys)


def test_nothing_is_overwritten(project: Project) -> None:
    project.write(requirements__txt="numpy==2.1.3\n", Dockerfile="FROM mine\n")
    _, err = project.init(code=2)
    assert "already exists" in err
    assert "--force" in err
    assert (project.folder / "Dockerfile").read_text() == "FROM mine\n"
    project.init("--dry-run")
    assert (project.folder / "Dockerfile").read_text() == "FROM mine\n"
    project.init("--force")
    assert "numpy" not in (project.folder / "Dockerfile").read_text()
    assert "requirements.txt" in (project.folder / "Dockerfile").read_text()
    (project.folder / "link").symlink_to("nowhere")
    project.init("-o", "link", code=2)


def test_a_script_without_a_list(project: Project) -> None:
    project.write(train__py="import torch, yaml, helper, os\nfrom mpi4py import MPI\n", helper__py="")
    found = project.facts("train.py")
    assert found["list"] is None
    assert found["framework"].startswith("torch==")
    assert found["mpi"] == "openmpi-5.0.11"
    assert "pyyaml" in found["text"]
    assert "helper" not in found["text"]
    assert project.facts("train.py", "--mpi", "none")["mpi"] is None


def test_a_directory_without_a_list_needs_a_script(project: Project) -> None:
    project.write(train__py="import torch\n")
    _, err = project.init(code=2)
    assert "bareboat image init SCRIPT.py" in err


def environment(folder: Path, **versions: str) -> Path:
    """The Python of an environment with these packages."""
    python = make_environment(folder)
    for name, version in versions.items():
        about = site_packages(folder) / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return python


def test_the_versions_of_the_active_environment(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(project.folder / ".venv", numpy="2.0.1")
    monkeypatch.setenv("VIRTUAL_ENV", str(project.folder / ".venv"))
    project.write(train__py="import numpy\n")
    assert "numpy==2.0.1" in project.facts("train.py")["text"]


@pytest.mark.parametrize(
    ("packages", "cuda"),
    [
        ({"torch": "2.13.0+cpu"}, None),
        ({"torch": "2.13.0", "nvidia_cuda_runtime": "13.0.48"}, "13.0"),
        ({"numpy": "2.0.1"}, "13.0"),  # of the framework nothing is known
    ],
)
def test_an_environment_without_cuda_gets_none(
    project: Project, monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], cuda: str | None
) -> None:
    environment(project.folder / ".venv", **packages)
    monkeypatch.setenv("VIRTUAL_ENV", str(project.folder / ".venv"))
    project.write(train__py="import torch\n")
    assert project.facts("train.py")["cuda"] == cuda
    assert project.facts("train.py", "--cuda", "12.8")["cuda"] == "12.8"


def test_facts_of_a_site(project: Project) -> None:
    (project.folder / "hdr.json").write_bytes(codec.to_json(HDR))
    both = {"login": json.loads(codec.to_json(make_site())), "compute": json.loads(codec.to_json(HDR))}
    (project.folder / "both.json").write_text(json.dumps(both))
    words = ("--framework", "torch", "--mpi", "auto")
    for site in ("hdr.json", "hdr", "both.json"):
        found = project.facts(*words, "--for", site)
        assert found["cuda"] == "12.8"
        assert "535.104.05" in found["text"]
        assert "srun" in found["reasons"]["mpi"] or site == "both.json"
    assert project.facts(*words, "--for", "here")["cuda"] is None


def test_facts_in_the_store(project: Project, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.write(store.site("slurm-gpu"), codec.to_json(HDR))
    found = project.facts("--framework", "torch", "--for", "slurm-gpu")
    assert found["cuda"] == "12.8"
    _, _ = project.init("--framework", "torch", "--for", "slurm-cpu", code=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone",), "not found"),
        (("notes.txt",), "neither a directory nor a Python script"),
        ((), "nothing in"),
        (("--cuda", "12"), "not a known version"),
        (("--cuda", "99.9"), "not a known version"),
        (("--mpi", "openmp"), "not known"),
        (("--mpi", "openmpi-3"), "not known"),
        (("--mpi", "openmpi-"), "not known"),
        (("--framework", "jax", "--horovod"), "Horovod cannot be used"),
        (("--horovod", "--mpi", "mpich"), "compiled with OpenMPI"),
        (("--for", "gone"), "no facts about the site"),
        (("--for", "notes.txt"), "not valid JSON"),
        (("--for", "empty.json"), "cannot be read"),
        (("--from", "gone.txt"), "not found"),
        (("--from", "../x"), "outside the directory"),
        (("-o", "no/such/place"), "does not exist"),
        (("--base", "debian:12"), "no longer exists"),
    ],
)
def test_refusals(project: Project, words: tuple[str, ...], said: str) -> None:
    project.write(notes__txt="some notes\n", empty__json="{}")
    before = sorted(path.name for path in project.folder.iterdir())
    out, err = project.init(*words, code=2)
    assert said in err
    assert "try: " in err
    assert out == ""
    assert sorted(path.name for path in project.folder.iterdir()) == before


def test_a_framework_that_the_list_does_not_have(project: Project) -> None:
    project.write(requirements__txt="jax==0.10.2\n")
    _, err = project.init("--framework", "torch", code=2)
    assert "requirements.txt has jax" in err


def test_what_is_copied_whole_wants_a_dockerignore(project: Project) -> None:
    project.write(
        pyproject__toml='[project]\nname = "x"\nversion = "1"\n\n[build-system]\nrequires = ["hatchling"]\n'
    )
    assert any(".dockerignore" in each for each in project.facts()["warnings"])
    (project.folder / ".dockerignore").write_text(".git\n")
    assert not any(".dockerignore" in each for each in project.facts()["warnings"])
