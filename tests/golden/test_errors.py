"""The commonest errors as a user sees them on a terminal of 80 columns: what, where, what to do.

After a change that is meant: `pytest tests/golden --update-golden`, then read `git diff tests/golden/errors`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from builders import make_site
from elves import AARCH64, make_elf

from bareboat.cli import console
from bareboat.cli.main import main
from bareboat.model import EngineFacts, FileSystem, Partition, SchedulerFacts, Site
from bareboat.session import sites
from bareboat_base.errors import BareboatError
from bareboat_images.store import Store

ERRORS = Path(__file__).parent / "errors"

SLURM = SchedulerFacts(
    name="slurm",
    version="23.11.4",
    accounts=("physics",),
    partitions=(
        Partition(name="cpu", default=True, nodes=64, max_nodes=16, max_time_s=86400, cpus_per_node=64,
                  mem_per_node_bytes=256 * 2**30),
        Partition(name="debug", nodes=2, max_nodes=2, max_time_s=1800, cpus_per_node=64),
    ),
)  # fmt: skip
NO_CLUSTER = SchedulerFacts(
    name="slurm", version="", works=False,
    detail="Slurm does not answer:\nscontrol: fatal: Could not establish a configuration source",
)  # fmt: skip
BWRAP = EngineFacts(
    name="bubblewrap", path="/opt/bwrap", version="0.11.0", origin="on PATH", works=True, overlay=True
)
PODMAN = EngineFacts(
    name="podman", path="/usr/bin/podman", version="4.9.4", origin="on PATH", works=False,
    detail="no subuid range for ada", remedy="ask the administrator for a range in /etc/subuid",
)  # fmt: skip
SITE = make_site(engines=(BWRAP, PODMAN), schedulers=(SLURM,), home="/home/ada")


@dataclass(frozen=True)
class Case:
    """A command line in a directory with these files, on this site."""

    argv: str
    job: str = ""
    site: Site = SITE
    files: dict[str, bytes] = field(default_factory=dict)
    runs: tuple[str, ...] = ()


def job(text: str = "", *, command: str = '["sh"]', image: str = "debian") -> str:
    return f'name = "train"\nimage = "{image}"\ncommand = {command}\n{text}'


def without(*names: str, **changes: Any) -> Site:
    engines = tuple(facts for facts in SITE.engines if facts.name not in names)
    return make_site(**({"engines": engines, "schedulers": (SLURM,), "home": "/home/ada"} | changes))


MEMORY = FileSystem(purpose="store", path="/dev/shm/store", kind="tmpfs", free_bytes=2**34, free_inodes=10**6)


CASES = {
    # The command line.
    "no-job": Case("run"),
    "unknown-verb": Case("rnu job.toml"),
    "unknown-flag": Case("run --gpu 2 job.toml", job()),
    "file-and-command": Case("run job.toml -- python train.py", job()),
    "arguments-of-job": Case("run job.toml --epochs 3", job(command='["python3", "train.py"]')),
    "arguments-of-job-after-dashes": Case("run job.toml -- --epochs 3", job(command='"python3 train.py"')),
    "image-list": Case("image list"),
    "job-file-mistyped": Case("run job.tmol", job()),
    "account-mistyped": Case("submit --dry-run --account phsyics job.toml", job()),
    "run-mistyped": Case("status trian", runs=("train-20250101-000000",)),
    "no-slurm-configuration": Case("submit job.toml", job(), site=without(schedulers=(NO_CLUSTER,))),
    "unknown-scheduler": Case("submit --scheduler slrum job.toml", job()),
    # The job file.
    "job-file-missing": Case("plan jbo.toml", job()),
    "job-file-not-toml": Case("plan job.toml", 'name = "train\ncommand = ["sh"]\n'),
    "unknown-key": Case("plan job.toml", job("walltme_s = 60\n")),
    "key-of-another-table": Case("plan job.toml", job("ranks_per_node = 2\n")),
    "missing-comma": Case("plan job.toml", job(command='["sh" "-c", "true"]')),
    "unguessed-key": Case("plan job.toml", job("zzzz = 2\n")),
    "wrong-type": Case("plan job.toml", job('walltime_s = "soon"\n')),
    "out-of-range": Case("plan job.toml", job("[topology]\nnodes = 0\n")),
    "no-command": Case("plan job.toml", 'name = "train"\nimage = "debian"\nentrypoint = false\n'),
    "mount-source-missing": Case("run job.toml", job('mounts = ["/data/none:/data"]\n')),
    "secret-not-set": Case("run job.toml", job('environment_from = ["WANDB_API_KEY"]\n')),
    # The program.
    "program-missing": Case("plan job.toml", job(command='["pyhton3", "train.py"]')),
    "program-path-missing": Case("plan job.toml", job(command='["/usr/bin/pyhton3"]')),
    "program-one-word": Case("plan job.toml", job(command='["python3 train.py"]')),
    "program-not-executable": Case("plan job.toml", job('workdir = "."\n', command='["./train.sh"]')),
    "program-beside": Case("plan job.toml", job('workdir = "."\n', command='["train.py"]')),
    "program-windows": Case("plan job.toml", job('workdir = "."\n', command='["./dos.sh"]')),
    "program-interpreter": Case("plan job.toml", job('workdir = "."\n', command='["./perl.sh"]')),
    "program-architecture": Case("plan job.toml", job('workdir = "."\n', command='["./arm"]')),
    "script-outside": Case(
        "plan job.toml", job('workdir = "locked"\n', command='["python3", "../train.py"]')
    ),
    "workdir-of-the-system": Case("plan job.toml", job('workdir = "/usr"\n')),
    # The image.
    "image-not-in-store": Case("plan job.toml", job(image="localhost:1/team/pytorch:2")),
    "image-bad-reference": Case("plan job.toml", job(image="debian:tag:tag")),
    "image-bad-digest": Case("plan job.toml", job(image="debian@sha256:123")),
    "image-architecture": Case("plan job.toml", job(), site=without(architecture="aarch64")),
    "image-file-missing": Case("image load none.tar"),
    "image-rm-unknown": Case("image rm nothing"),
    # The site.
    "no-engine": Case("plan job.toml", job(), site=without("bubblewrap")),
    "unknown-engine": Case("plan --engine dockre job.toml", job()),
    "engine-does-not-work": Case("plan --engine podman job.toml", job()),
    "no-gpu": Case("plan --scheduler local job.toml", job("[topology]\ngpus_per_rank = 1\n")),
    "unknown-launcher": Case("plan --launcher mpiexec job.toml", job()),
    "no-scheduler": Case("submit job.toml", job(), site=without(schedulers=())),
    "unknown-partition": Case("submit --dry-run -q --partition gpux job.toml", job()),
    "unknown-account": Case("submit --dry-run --account chemistry job.toml", job()),
    "too-many-nodes": Case("submit --dry-run job.toml", job("[topology]\nnodes = 20\n")),
    "too-many-ranks": Case(
        "submit --dry-run job.toml", job("[topology]\nranks_per_node = 128\ncpus_per_rank = 1\n")
    ),
    "too-long": Case("submit --dry-run --partition debug job.toml", job("walltime_s = 7200\n")),
    "store-in-memory": Case(
        "submit --dry-run job.toml",
        job("[topology]\nnodes = 2\nranks_per_node = 1\n"),
        site=without(file_systems=(MEMORY,)),
    ),
    # The store, and runs.
    "store-read-only": Case("image pull --store locked/store rootfs:locked"),
    "unknown-run": Case("logs train-20250101-000000"),
    "unknown-study": Case("report train-20250101-000000"),
    "config-not-toml": Case("config", files={"bareboat.toml": b"engine = \n"}),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a small image, debian."""
    top = tmp_path_factory.mktemp("errors")
    root, folder = top / "store", top / "image"
    loader = "lib64/ld-linux-x86-64.so.2"
    for name in (loader, "usr/bin/env", "usr/bin/python3", "bin/sh"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(make_elf(interpreter=None if name == loader else f"/{loader}"))
        (folder / name).chmod(0o755)
    assert (
        main(
            [
                "image",
                "pull",
                "-q",
                "--arch",
                "x86_64",
                "--store",
                str(root),
                f"rootfs:{folder}",
                "--name",
                "debian",
            ]
        )
        == 0
    )
    return root


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_the_golden_one(
    name: str,
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    case = CASES[name]
    work = tmp_path / "work"
    work.mkdir()
    files = {
        "train.py": b"print()\n", "train.sh": b"#!/bin/sh\n", "dos.sh": b"#!/bin/sh\r\n",
        "perl.sh": b"#!/usr/bin/perl\n", "arm": make_elf(machine=AARCH64), **case.files,
    }  # fmt: skip
    for file, content in files.items():
        (work / file).write_bytes(content)
        (work / file).chmod(0o644 if file in ("train.sh", "train.py") else 0o755)
    if case.job:
        (work / "job.toml").write_text(case.job)
    (work / "locked").mkdir(mode=0o555)
    for run in case.runs:
        Store(store).run(run).mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BAREBOAT_STORE", str(store))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setattr(sites, "probe", lambda _session, **_: case.site)
    errors: list[BareboatError] = []
    monkeypatch.setattr(console, "show_error", errors.append)
    before, after = case.argv.partition(" -- ")[::2]
    code = main([*before.split(), *(["--", *after.split()] if after else [])])
    for run in case.runs:
        Store(store).run(run).rmdir()
    assert capsys.readouterr().out == ""

    def named(text: str) -> str:
        places = {work: "/work", store.parent: "", tmp_path / "home": "/home/ada"}
        for place, name in places.items():
            text = text.replace(str(place), name)
        return text

    (error,) = errors
    told = BareboatError(named(error.message), context=named(error.context), remedy=named(error.remedy))
    lines = console.error_lines(told, 80)
    shown = "\n".join([f"$ bareboat {case.argv}", *lines, f"exit code {code}", ""])
    golden = ERRORS / f"{name}.txt"
    assert code not in (0, 1, 70)
    if request.config.getoption("--update-golden"):
        golden.write_text(shown)
    assert lines[0].startswith("bareboat: ")
    assert any(line.startswith("  try: ") for line in lines)
    for line in lines:
        is_remedy = line.startswith("  try: ")
        assert len(line) <= 80 or is_remedy or " " not in line.strip(), f"longer than 80 columns: {line}"
    assert shown == golden.read_text(), (
        f"{golden.name} differs; when that is meant: pytest tests/golden --update-golden"
    )


def test_every_golden_error_belongs_to_a_case() -> None:
    assert {path.stem for path in ERRORS.iterdir()} == set(CASES)
    assert len(CASES) >= 30
