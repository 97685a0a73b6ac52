"""`bareboat init`: the planner accepts the job file that it writes for a project; each key has a reason."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import make_image, make_site
from environments import make_environment, site_packages
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bareboat.cli.main import main
from bareboat.model import Partition, SchedulerFacts, Site
from bareboat.project import code, drafts, surroundings, text, world
from bareboat.project.code import Argument
from bareboat.project.findings import Findings
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


def test_the_only_script_with_a_main_part(project: Project) -> None:
    project.write("train.py")
    project.write("model.py", "import numpy\nclass Net: pass\n")
    project.write("setup.py", "from setuptools import setup\nsetup()\n")
    project.write("tests/test_it.py", "if __name__ == '__main__':\n    pass\n")
    values = project.init()
    assert values["command"] == ["python", "train.py"]
    assert values["topology"] == {"nodes": 1, "ranks_per_node": 2, "cpus_per_rank": 4}
    assert "launcher" not in values
    content = (project.folder / "train.toml").read_text()
    for part in (
        "# The script uses torch.distributed.init_process_group",
        "#   --epochs 3                   passes over the data",
        "# The planner chooses torchrun",
        '# launcher = "torchrun"',
        "# gpus_per_rank = 1",
    ):
        assert part in content


def test_what_local_modules_use_counts(project: Project) -> None:
    project.write("main.py", "from pkg import engine\nif __name__ == '__main__':\n    engine.go()\n")
    project.write("pkg/__init__.py", "")
    project.write("pkg/engine.py", "from . import ranks\ndef go(): ranks.start()\n")
    project.write("pkg/ranks.py", "import torch.distributed as d\ndef start(): d.init_process_group()\n")
    assert project.init()["topology"]["ranks_per_node"] == 2


def test_the_src_layout(project: Project) -> None:
    project.write("scripts/train.py", "import own\nif __name__ == '__main__':\n    own.go()\n")
    project.write("src/own/__init__.py", "from own.work import go\n")
    project.write("src/own/work.py", "def go(): pass\n")
    values = project.init()
    assert values["command"] == ["python", "scripts/train.py"]
    assert values["environment"] == {"PYTHONPATH": "src"}
    assert values["topology"]["ranks_per_node"] == 1


def test_several_scripts_must_be_named(project: Project) -> None:
    for name in ("evaluate.py", "train.py", "plot.py"):
        project.write(name)
    remedy = project.refused("3 scripts with a main part were found")
    assert remedy == "bareboat init train.py"
    assert project.init("plot.py")["command"] == ["python", "plot.py"]


def test_no_script(project: Project) -> None:
    project.write("notes.txt", "x")
    project.write("library.py", "def f(): pass\n")
    assert "bareboat init" in project.refused("no Python script with a main part")


def test_a_script_without_a_main_part_that_does_something(project: Project) -> None:
    project.write("work.py", "from library import f\nf()\n")
    project.write("library.py", "def f(): pass\n")
    assert project.init()["command"] == ["python", "work.py"]


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
    code, out, err = project("init", "odd.py")
    assert code == 0
    assert "wrote odd.toml" in out
    assert "warning: odd.py was not read" in err
    content = (project.folder / "odd.toml").read_text()
    assert "# odd.py was not read" in content
    assert tomllib.loads(content)["topology"]["ranks_per_node"] == 1


def test_nothing_is_overwritten(project: Project) -> None:
    project.write("train.py")
    kept = project.write("train.toml", "kept = 1\n")
    code, out, err = project("init")
    assert (code, out) == (2, "")
    assert "already exists" in err
    assert "--force" in err
    assert kept.read_text() == "kept = 1\n"
    (project.folder / "link.toml").symlink_to("nowhere")
    assert project("init", "-o", "link.toml")[0] == 2
    assert project("init", "--force")[0] == 0
    assert "command" in kept.read_text()


def test_a_dry_run_writes_nothing(project: Project) -> None:
    project.write("train.py")
    before = sorted(project.folder.iterdir())
    assert tomllib.loads(project.text())["command"] == ["python", "train.py"]
    assert sorted(project.folder.iterdir()) == before


def test_the_script_is_not_run(project: Project) -> None:
    project.write("train.py", "open('ran', 'w')\n" + DDP)
    project.write("model.py", "open('ran', 'w')\n")
    project.init()
    assert not (project.folder / "ran").exists()


def test_variables_of_a_scheduler_s_job_are_not_the_user_s(project: Project) -> None:
    names = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID", "FLUX_JOB_ID", "DATA_PART")
    reads = "\n".join(f"    print(os.environ['{name}'])" for name in names)
    project.write("train.py", f"import os\nif __name__ == '__main__':\n{reads}\n")
    shown = project.text()
    assert [name for name in names if name in shown] == ["DATA_PART"]


def test_names_of_settings_are_not_taken(project: Project) -> None:
    project.write("bareboat.py")
    code, out, _ = project("init", "bareboat.py")
    assert (code, "wrote bareboat-job.toml" in out) == (0, True)


def test_a_job_file_elsewhere_names_the_project(project: Project) -> None:
    project.write("train.py")
    (project.folder / "jobs").mkdir()
    assert project.init("-o", "jobs/one.toml")["workdir"] == ".."


def test_a_script_elsewhere_is_its_own_project(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text(DDP)
    values = project.init("../other/train.py")
    assert values["command"] == ["python", "train.py"]
    assert values["workdir"] == "../other"


def test_a_name_with_odd_characters(project: Project) -> None:
    project.write('a "b" \x7f\n\\.py')
    assert project.init('a "b" \x7f\n\\.py', "-o", "x.toml")["command"][1] == 'a "b" \x7f\n\\.py'


def test_a_name_that_is_not_utf8_is_refused(project: Project) -> None:
    path = os.fsencode(project.folder) + b"/\xff.py"
    with open(path, "w") as file:
        file.write(DDP)
    assert project.refused("is not UTF-8", "\udcff.py", "-o", "x.toml")


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
    assert (code, out) == (3, "")
    assert '"pyhton" is not' in err
    assert "python" in err.rpartition("try: ")[2]
    assert not (project.folder / "x.toml").exists()
    assert project.refused("./gone not found", "--", "./gone")


def test_arguments_of_the_script_come_after_two_dashes(project: Project) -> None:
    project.write("train.py")
    remedy = project.refused("arguments of the script come after --", "train.py", "--epochs", "3")
    assert remedy == "bareboat init -- python train.py --epochs 3"
    assert project.init(*remedy.split()[2:])["command"] == ["python", "train.py", "--epochs", "3"]
    assert "did you mean --output?" in project("init", "train.py", "--ouptut", "x")[2]


def test_a_program_of_the_project_brings_its_libraries(project: Project) -> None:
    (project.folder / "bin").mkdir()
    shutil.copy("/bin/true", project.folder / "bin" / "solver")
    (project.folder / "jobs").mkdir()
    values = project.init("-o", "jobs/one.toml", "--", "bin/solver", "in.dat")
    assert (values["command"], values["workdir"]) == (["bin/solver", "in.dat"], "..")
    assert values["capture"] == {"programs": ["../bin/solver"]}
    assert values["topology"] == {"nodes": 1, "ranks_per_node": 1}


def test_a_script_and_a_command_together_are_refused(project: Project) -> None:
    project.write("train.py")
    assert project.refused("both given", "train.py", "--", "true")


def test_another_framework_in_the_environment_needs_the_launcher(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner would choose torchrun, and JAX would train alone in each rank."""
    folder = tmp_path / "both"
    make_environment(folder)
    for name in ("torch", "jax"):
        add_package(folder, name)
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    project.write("train.py", "import jax\njax.distributed.initialize()\n")
    assert project.init()["launcher"] == "jax"
    assert "the environment has other" in (project.folder / "train.toml").read_text()


def test_packages_that_are_missing(project: Project) -> None:
    project.write("requirements.txt", "torch\nPyYAML\n")
    project.write(
        "train.py",
        "import yaml, json, own, torch\ntry:\n    import apex\nexcept ImportError:\n    pass\nprint()\n",
    )
    project.write("own.py", "from sklearn.svm import SVC\n")
    err = project("init")[2]
    assert "lacks scikit-learn, PyYAML; try: pip install -r requirements.txt" in err
    assert "# NOT INSTALLED THERE: scikit-learn, PyYAML." in (project.folder / "train.toml").read_text()


def test_an_editable_package_is_installed(project: Project, environment: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "mine").mkdir(parents=True)
    (site_packages(environment) / "mine.pth").write_text(f"{tmp_path / 'elsewhere'}\n")
    (site_packages(environment) / "__editable___yours_1_0_finder.py").write_text("")
    project.write("train.py", "import mine, yours\nprint()\n")
    assert "lacks" not in project("init")[2]


def test_the_projects_own_environment(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is described by its files: `init` does not start its Python."""
    make_environment(project.folder / ".venv")
    add_package(project.folder / ".venv", "jax")
    project.write("train.py", "import jax\njax.distributed.initialize()\n")
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    python = project.folder / ".venv/bin/python"
    python.unlink()
    python.write_text("#!/bin/sh\ntouch started\nexit 1\n")
    python.chmod(0o755)
    code, _, err = project("init")
    assert code == 0, err
    assert not (project.folder / "started").exists()
    values = tomllib.loads((project.folder / "train.toml").read_text())
    assert values["capture"] == {"python": ".venv/bin/python"}
    assert "# The planner chooses jax" in (project.folder / "train.toml").read_text()


def test_links_and_paths_outside_are_mounted(project: Project, tmp_path: Path) -> None:
    for name in ("set", "out", "more"):
        (tmp_path / "away" / name).mkdir(parents=True)
    (project.folder / "data").symlink_to(tmp_path / "away/set")
    (project.folder / "inner").symlink_to("model")
    source = f"""\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", default="{tmp_path}/away/out")
parser.add_argument("--data", default="{tmp_path}/gone")
open("{tmp_path}/away/more")
open("/etc/passwd"); open("/usr/share")
"""
    project.write("train.py", source + "print()\n")
    values = project.init()
    assert values["mounts"] == ["~/away/set", "~/away/out:rw", "~/away/more"]
    content = (project.folder / "train.toml").read_text()
    assert '  # "~/gone",  # default of --data; it does not exist here' in content


def test_secrets_are_named_and_variables_listed(project: Project) -> None:
    project.write(
        "train.py",
        "import os\nimport wandb\nos.environ['MY_TOKEN']; os.environ['SEED']; os.getenv('RANK')\nprint()\n",
    )
    content = project.text()
    assert '# environment_from = ["WANDB_API_KEY", "MY_TOKEN"]' in content
    assert '# SEED = "…"' in content
    assert "# RANK" not in content


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
    project.write(
        "train.py", DDP + "\nimport signal, sys, torch\nsignal.signal(signal.SIGUSR1, print)\nsys.exit(75)\n"
    )
    values = project.init()
    assert values["walltime_s"] == "1h"
    assert values["scheduling"] == {"warning_s": "2 min", "requeue": True}
    assert values["topology"]["cpus_per_rank"] == 16, "of the nodes, which have fewer than this machine"
    content = (project.folder / "train.toml").read_text()
    for part in ("bareboat submit train.toml", '# partition = "gpu"', '# account = "research"', "2h00m"):
        assert part in content


def findings(site: Site, source: str = DDP, line: str = "python train.py") -> Findings:
    read = code.read(source.encode())
    return Findings(
        command=tuple(line.split()), script="train.py", code=read, world=world.judge(read),
        around=surroundings.Surroundings(environment="/env"), image=make_image(), site=site,
    )  # fmt: skip


def test_one_rank_per_gpu() -> None:
    found = findings(make_site(gpus=("A100",) * 4, cpus=64))
    first, *_, last = drafts.drafts(found)
    assert (first.ranks, first.gpus, first.cpus) == (4, 1, 16)
    assert "one rank per GPU" in first.why["ranks"]
    assert (last.ranks, last.gpus) == (2, 0), "if the planner cannot use the GPUs"
    alone = next(drafts.drafts(findings(found.site, "import torch\n")))
    assert (alone.ranks, alone.gpus) == (1, 1)
    all_of_them = next(
        drafts.drafts(findings(found.site, "import tensorflow as tf\ntf.distribute.MirroredStrategy()\n"))
    )
    assert (all_of_them.ranks, all_of_them.gpus) == (1, 4)
    none = next(drafts.drafts(findings(found.site, "import numpy\n")))
    assert (none.ranks, none.gpus) == (1, 0)


def test_gpus_of_a_partition() -> None:
    found = findings(make_site(schedulers=(cluster(gpus_per_node=8),)))
    first = next(drafts.drafts(found))
    assert (first.ranks, first.gpus, first.scheduler) == (8, 1, "slurm")
    assert 'scheduler = "slurm"' in text.write(found, first, name="train.toml")


ANY = st.text(max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(ANY, ANY, ANY, st.lists(ANY, max_size=3))
def test_any_text_of_a_project_gives_a_valid_file(
    tmp_path: Path, one: str, two: str, three: str, words: list[str]
) -> None:
    found = findings(make_site(schedulers=(cluster(),)))
    read = code.Code(
        arguments=(Argument(name=one or "-x", default=two, help=three, required=True),),
        environment=frozenset(words),
        fault=two,
        names=frozenset({"torch.save", "torch.compile"}),
    )
    around = surroundings.Surroundings(
        environment=two, missing=tuple(words), lists=("uv.lock",), checkpoints=(three,),
        places=(surroundings.Place(path=one, why=three, exists=False),),
    )  # fmt: skip
    found = msgspec.structs.replace(found, code=read, around=around, command=("python", *words))
    content = text.write(found, next(drafts.drafts(found)), name="x.toml", plans=three)
    assert TomlFile(tmp_path / "x.toml", content.encode()).values["command"] == ["python", *words]
