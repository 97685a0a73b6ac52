"""Every fenced block of README and docs says how it is tested; job files are planned, programs compiled."""

import ast
import tomllib
from pathlib import Path

import documented
import msgspec
import pytest
from builders import make_image, make_rootfs, make_site
from documented import Block

from bareboat import config, render
from bareboat.jobfile import read_job
from bareboat.model import Partition, SchedulerFacts, Site
from bareboat.plan import plan
from bareboat_base import codec
from bareboat_base.toml import TomlFile
from bareboat_study import studyfile

PAGES = documented.pages()
BLOCKS = [block for page in PAGES for block in documented.blocks(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(documented.ROOT)))
def test_every_block_says_how_it_is_tested(page: Path) -> None:
    wrong = [f"{block}: {fault}" for block in documented.blocks(page) for fault in documented.faults(block)]
    assert not wrong, "\n".join(
        [*wrong, "docs/testing.md has the convention (Examples in the documentation)"]
    )


@pytest.mark.parametrize(
    "block",
    [each for each in BLOCKS if each.language == "toml" and not {"settings", "study"} & set(each.words)],
    ids=str,
)
def test_job_files_are_read_and_planned(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    work = documented.furnish(tmp_path / "home" / "work", tmp_path / "home")
    text = block.body
    if "part" in block.words and "command" not in tomllib.loads(text):
        text = f'command = ["python3", "train.py"]\n{text}'
    file = work / "job.toml"
    file.write_text(text)
    settings = config.resolve({}, folder=None, environment={"HOME": str(tmp_path)}, with_site=False)
    job = read_job(file, settings)
    image = make_image()
    job = msgspec.structs.replace(job, image="capture", scheduler="slurm")
    made = plan(job, image, make_rootfs(image), _site())
    assert render.script(made).startswith("#!")


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if each.language == "toml" and "study" in each.words], ids=str
)
def test_studies_are_read(block: Block, tmp_path: Path) -> None:
    work = documented.furnish(tmp_path / "home" / "work", tmp_path / "home")
    (work / "tf_cnn_benchmarks.py").touch()  # which readers have
    file = work / "study.toml"
    file.write_text(block.body)
    settings = config.resolve({}, folder=None, environment={"HOME": str(tmp_path)}, with_site=False)
    request = studyfile.read_study(TomlFile(file), settings)
    assert all(len({*map(codec.digest, jobs)}) == len(jobs) for jobs in request.jobs)
    assert len(request.arms) > 1


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if each.language == "toml" and "settings" in each.words], ids=str
)
def test_settings_are_read(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "config" / "bareboat" / "site.toml"
    file.parent.mkdir(parents=True)
    file.write_text(block.body)
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    found = config.resolve({}, folder=None, environment=environment)
    for name in tomllib.loads(block.body):
        assert found.settings[name].source.startswith("site file"), name


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.language == "python"], ids=str)
def test_programs_are_python(block: Block) -> None:
    compile(block.body, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _site() -> Site:
    slurm = SchedulerFacts(
        name="slurm",
        version="23.11.4",
        accounts=("physics", "research"),
        partitions=(
            Partition(name="main", default=True, nodes=64, cpus_per_node=64, mem_per_node_bytes=2**38),
            Partition(name="gpu", nodes=64, cpus_per_node=64, mem_per_node_bytes=2**38),
        ),
    )
    return make_site(schedulers=(slurm,))


# -- the rules themselves ----------------------------------------------------------------------------------


def read(tmp_path: Path, text: str) -> list[Block]:
    page = tmp_path / "page.md"
    page.write_text(text)
    return documented.blocks(page)


def test_a_block_has_its_attributes_its_line_and_its_text(tmp_path: Path) -> None:
    text = "# x\n\n1. y\n\n   ```sh on=slurm needs=apptainer\n   true\n     two\n   ```\n"
    (block,) = read(tmp_path, text)
    assert (block.language, block.line, block.body) == ("sh", 5, "true\n  two\n")
    assert block.values == {"on": "slurm", "needs": "apptainer"}
    assert block.place == "slurm"
    assert documented.faults(block) == []


@pytest.mark.parametrize(
    ("info", "fault"),
    [
        ("", "language is missing"),
        ("bash", "language is bash"),
        ("{toctree}", "language is {toctree}"),
        ("text", "text requires one of"),
        ("text output diagram", "text requires one of"),
        ("text why", "unknown attribute why"),
        ("sh not-run=boring", "not-run is boring"),
        ("sh on=mars", "on is mars"),
        ("sh later", "unknown attribute later"),
        ("toml on=slurm", "unknown attribute on"),
    ],
)
def test_a_block_without_a_test_is_refused(tmp_path: Path, info: str, fault: str) -> None:
    (block,) = read(tmp_path, f"```{info}\nx\n```\n")
    assert any(fault in each for each in documented.faults(block))


def test_output_is_compared_in_order_with_numbers_masked() -> None:
    printed = "run  a-20261122-1\nspeed 3.5 s\nend\n"
    assert documented.absent(["run a-20250101-9", "…", "speed 12 s"], printed) is None
    assert documented.absent(["speed … s", "run a-1-1"], printed) == "run a-1-1"
    assert documented.absent(["speed 1 m"], printed) == "speed 1 m"
