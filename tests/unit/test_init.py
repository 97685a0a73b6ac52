"""`bareboat init`: the planner accepts the job file that it writes for a project; each key has a reason."""

import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from builders import make_site
from environments import make_environment, site_packages
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bareboat import python_source
from bareboat.cli.main import main
from bareboat.model import Partition, SchedulerFacts, Site
from bareboat.project import draft, world
from bareboat.session import sites
from bareboat_base.toml import TomlFile

DDP = """\
import argparse, os
import torch.distributed as dist
from model import Net

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3, help="passes over the data")
    parser.parse_args()
    dist.init_process_group("gloo")

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with packages that only have names."""
    folder = tmp_path_factory.mktemp("packages") / "env"
    make_environment(folder)
    for name in ("torch", "numpy"):
        add_package(folder, name)
    return folder


def add_package(folder: Path, name: str) -> None:
    packages = site_packages(folder)
    (packages / name).mkdir()
    about = packages / f"{name}-2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")


class Project:
    """A project's directory, in which `init` runs in this process."""

    def __init__(
        self, folder: Path, captured: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.folder = folder
        self._captured = captured
        self._monkeypatch = monkeypatch
        self.site(cpus=8)

    def site(self, **facts: Any) -> None:
        made = make_site(**facts)
        self._monkeypatch.setattr(sites, "probe", lambda _session, **_: made)

    def write(self, name: str, content: str | bytes = DDP) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out, err = self._captured.readouterr()
        assert code != 70, err
        return code, out, err

    def init(self, *words: str) -> dict[str, Any]:
        """The values of the file that `init` writes; the planner accepts it."""
        code, out, err = self("init", "--json", *words)
        assert code == 0, err
        found = json.loads(out)
        content = Path(found["file"]).read_text()
        assert content == found["text"]
        assert all(len(line) <= 110 for line in content.splitlines() if line.startswith("#")), content
        code, _, err = self("plan", "--engine", "native", found["file"])
        assert code == 0, err
        return tomllib.loads(content)

    def text(self, *words: str) -> str:
        code, out, err = self("init", "--dry-run", *words)
        assert code == 0, err
        return out

    def refused(self, message: str, *words: str) -> str:
        """The remedy of the error."""
        before = sorted(self.folder.rglob("*"))
        code, out, err = self("init", *words)
        assert (code, out) == (2, ""), err
        assert message in err
        assert sorted(self.folder.rglob("*")) == before
        return err.rpartition("\n  try: ")[2].rstrip("\n")


@pytest.fixture
def project(
    tmp_path: Path, environment: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    monkeypatch.setenv("PATH", f"{environment / 'bin'}:{os.environ['PATH']}")
    return Project(folder, capsys, monkeypatch)


def test_a_script_becomes_a_job_file(project: Project) -> None:
    project.write("train.py")
    values = project.init("train.py")
    assert values["command"] == ["python", "train.py"]
    assert values["topology"] == {"nodes": 1, "ranks_per_node": 2, "cpus_per_rank": 4}
    assert values["launcher"] == "torchrun"
    content = (project.folder / "train.toml").read_text()
    for part in (
        "the script uses torch.distributed.init_process_group",
        "# gpus_per_rank = 1",
    ):
        assert part in content


def test_what_local_modules_use_counts(project: Project) -> None:
    project.write("main.py", "from pkg import engine\nif __name__ == '__main__':\n    engine.go()\n")
    project.write("pkg/__init__.py", "")
    project.write("pkg/engine.py", "from . import ranks\ndef go(): ranks.start()\n")
    project.write("pkg/ranks.py", "import torch.distributed as d\ndef start(): d.init_process_group()\n")
    assert project.init("main.py")["topology"]["ranks_per_node"] == 2


def test_the_script_must_be_named(project: Project) -> None:
    project.write("train.py")
    assert project.refused("no script was named").startswith("bareboat init SCRIPT.py")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.py", "'gone.py' not found"),
        ("folder.py", "is a directory"),
        ("fifo.py", "is a pipe"),
        ("notes.txt", "is not a Python script"),
        ("closed.py", "closed.py"),
    ],
)
def test_a_script_that_cannot_be_read(project: Project, name: str, message: str) -> None:
    (project.folder / "folder.py").mkdir()
    os.mkfifo(project.folder / "fifo.py")
    project.write("notes.txt", "x")
    project.write("closed.py").chmod(0)
    assert project.refused(message, name)


@pytest.mark.parametrize(
    "source",
    [
        b"import torch\nif __name__ == '__main__':\n    print('x'\n",
        b"import torch\nx = '\xe9'\nif __name__ == '__main__':\n    pass\n",
        b"x = [\n" + b"1,\n" * 3_500_000 + b"]\n",
    ],
    ids=["a syntax error", "not UTF-8", "ten megabytes"],
)
def test_a_script_that_is_not_understood(project: Project, source: bytes) -> None:
    project.write("odd.py", source)
    code, out, _ = project("init", "odd.py")
    assert code == 0
    assert "wrote odd.toml" in out
    content = (project.folder / "odd.toml").read_text()
    assert tomllib.loads(content)["topology"]["ranks_per_node"] == 1


def test_nothing_is_overwritten(project: Project) -> None:
    project.write("train.py")
    kept = project.write("train.toml", "kept = 1\n")
    code, out, err = project("init", "train.py")
    assert (code, out) == (2, "")
    assert "already exists" in err
    assert "--force" in err
    assert kept.read_text() == "kept = 1\n"
    (project.folder / "link.toml").symlink_to("nowhere")
    assert project("init", "train.py", "-o", "link.toml")[0] == 2
    assert project("init", "train.py", "--force")[0] == 0
    assert "command" in kept.read_text()


def test_a_dry_run_writes_nothing(project: Project) -> None:
    project.write("train.py")
    before = sorted(project.folder.iterdir())
    assert tomllib.loads(project.text("train.py"))["command"] == ["python", "train.py"]
    assert sorted(project.folder.iterdir()) == before


def test_the_script_is_not_run(project: Project) -> None:
    project.write("train.py", "open('ran', 'w')\n" + DDP)
    project.write("model.py", "open('ran', 'w')\n")
    project.init("train.py")
    assert not (project.folder / "ran").exists()


def test_names_of_settings_are_not_taken(project: Project) -> None:
    project.write("fit.R")
    assert "wrote fit.toml" in project("init", "--", "sh", "fit.R")[1]  # not sh.toml
    project.write("bareboat.py")
    code, out, _ = project("init", "bareboat.py")
    assert (code, "wrote bareboat-job.toml" in out) == (0, True)


def test_a_job_file_elsewhere_names_the_project(project: Project) -> None:
    project.write("train.py")
    (project.folder / "jobs").mkdir()
    assert project.init("train.py", "-o", "jobs/one.toml")["workdir"] == ".."


def test_a_script_elsewhere_is_its_own_project(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text(DDP)
    values = project.init("../other/train.py")
    assert values["command"] == ["python", "train.py"]
    assert values["workdir"] == "../other"


@pytest.mark.parametrize(
    "words",
    ["torchrun --nproc-per-node 4 train.py", "nice mpirun -np 4 ./solver", "accelerate launch train.py"],
)
def test_a_command_that_starts_ranks_is_refused(project: Project, words: str) -> None:
    project.write("train.py")
    remedy = project.refused("starts ranks, and so does Bareboat", "--", *words.split())
    assert remedy.startswith("bareboat init -- python train.py")


def test_a_command_that_does_not_exist_is_refused(project: Project) -> None:
    code, out, err = project("init", "-o", "x.toml", "--", "pyhton", "train.py")
    assert (code, out) == (2, "")
    assert "python" in err.rpartition("try: ")[2]
    assert not (project.folder / "x.toml").exists()
    assert project.refused("./gone not found", "--", "./gone")


def test_arguments_of_the_script_come_after_two_dashes(project: Project) -> None:
    project.refused("bareboat init has no flag --epochs", "train.py", "--epochs", "3")
    assert "did you mean --output?" in project("init", "train.py", "--ouptut", "x")[2]


def test_a_program_of_the_project_is_one_process(project: Project) -> None:
    (project.folder / "bin").mkdir()
    shutil.copy("/bin/true", project.folder / "bin" / "solver")
    (project.folder / "jobs").mkdir()
    values = project.init("-o", "jobs/one.toml", "--", "bin/solver", "in.dat")
    assert (values["command"], values["workdir"]) == (["bin/solver", "in.dat"], "..")
    assert values["topology"] == {"nodes": 1, "ranks_per_node": 1, "cpus_per_rank": 8}


def test_a_script_and_a_command_together_are_refused(project: Project) -> None:
    project.write("train.py")
    assert project.refused("both given", "train.py", "--", "true")


def test_another_framework_in_the_environment_does_not_decide(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner would choose torchrun, and JAX would train alone in each rank."""
    folder = tmp_path / "both"
    make_environment(folder)
    for name in ("torch", "jax"):
        add_package(folder, name)
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    project.write("train.py", "import jax\njax.distributed.initialize()\n")
    assert project.init("train.py")["launcher"] == "jax"


def cluster(**changes: Any) -> SchedulerFacts:
    facts: dict[str, Any] = {
        "name": "gpu",
        "default": True,
        "nodes": 4,
        "max_time_s": 7200,
        "cpus_per_node": 32,
    }
    return SchedulerFacts(
        name="slurm", version="22.05", partitions=(Partition(**facts | changes),), accounts=("research",)
    )


def test_a_schedulers_site(project: Project) -> None:
    project.site(schedulers=(cluster(),), cpus=64)
    project.write("train.py")
    values = project.init("train.py")
    assert values["walltime_s"] == "1h"
    assert values["topology"]["cpus_per_rank"] == 16, "of the nodes, which have fewer than this machine"
    content = (project.folder / "train.toml").read_text()
    for part in ("bareboat submit train.toml", '# partition = "gpu"', '# account = "research"'):
        assert part in content


def sizes(site: Site, source: str = DDP) -> tuple[int, int, int, str | None]:
    judged = world.judge(python_source.parse(source.encode(), uses=True))
    found = draft.sized(judged, site)
    name = found.scheduler
    text = draft.write(("python", "train.py"), judged, site, name="train.toml", workdir=None)
    assert (f'scheduler = "{name}"' in text) == (name is not None)
    return found.ranks, found.gpus, found.cpus, name


def test_one_rank_per_gpu() -> None:
    site = make_site(gpus=("A100",) * 4, cpus=64)
    assert sizes(site) == (4, 1, 16, None)
    assert sizes(site, "import torch\n") == (1, 1, 64, None)
    assert sizes(site, "import os, tensorflow as tf\nos.environ['TF_CONFIG']\n") == (1, 4, 64, None)
    assert sizes(site, "import numpy\n") == (1, 0, 64, None)


ANY = st.text(max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(ANY, ANY, ANY, st.lists(ANY, max_size=3))
def test_any_text_of_a_project_gives_a_valid_file(
    tmp_path: Path, one: str, two: str, three: str, words: list[str]
) -> None:
    judged = world.World(framework=one, reason=two, launchers=("torchrun",))
    command = ("python", *words)
    content = draft.write(command, judged, make_site(schedulers=(cluster(),)), name=three, workdir=one)
    assert TomlFile(tmp_path / "x.toml", content.encode()).values["command"] == ["python", *words]
