"""`plan` and dry runs look: they capture, pull and unpack nothing, and say what would be."""

import json
import subprocess
from pathlib import Path

import forked
import pytest
from builders import make_image, make_job, make_rootfs, make_site

from bareboat import registry, render
from bareboat.model import Plan, SchedulerFacts, Topology
from bareboat.plan import plan
from bareboat.session import Session, sites
from bareboat.session.opening import open_session

ASSUMED = Path(__file__).parents[1] / "golden" / "assumed.txt"
#: What holds images, and what is made of them.
HEAVY = ("layers", "images", "flat", "roots", "relinked", "packed", "blobs", "captures", "runs", "pins")


@pytest.fixture
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch, lean: str) -> Path:
    monkeypatch.setenv("PATH", lean)
    monkeypatch.setenv("BAREBOAT_STORE", str(disk / "store"))
    monkeypatch.setenv("HOME", str(disk))
    (disk / "work").mkdir()
    monkeypatch.chdir(disk / "work")
    (disk / "work" / "train.py").write_text("print('trained')\n")
    (disk / "work" / "job.toml").write_text('command = ["python3", "train.py"]\n')
    return disk / "work"


def bareboat(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = forked.run(*words, timeout_s=120)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def heavy(folder: Path) -> list[str]:
    store = folder.parent / "store"
    return [str(path.relative_to(store)) for name in HEAVY for path in (store / name).rglob("*")]


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "train.py"),
        ("plan", "job.toml"),
        ("plan", "--json", "job.toml"),
        ("plan", "--scheduler", "slurm", "-N", "2", "job.toml"),
        ("plan", "--", "python3", "train.py"),
        ("run", "--dry-run", "train.py"),
        ("prove", "--dry-run", "train.py"),
        ("prove", "--dry-run", "--scheduler", "slurm", "train.py"),
    ],
    ids=" ".join,
)
def test_nothing_is_captured(folder: Path, python: Path, words: tuple[str, ...]) -> None:
    at = len(words) - (2 if "--" in words else 0) - 1
    shown = bareboat(*words[:at], "--python", python, *words[at:]).stdout
    assert "#SBATCH" not in shown
    assert heavy(folder) == []
    assert "capture the environment: about " in " ".join(shown.split())
    assert "files and directories" in " ".join(shown.split())
    if "--json" not in words:
        assert "first, run and submit will capture the environment" in " ".join(shown.split())


def test_a_script_needs_the_files_and_prepare_makes_them(folder: Path, python: Path) -> None:
    refused = bareboat("plan", "--script", "--python", python, "job.toml", code=4).stderr
    assert "missing: capture the environment" in refused
    assert "try: bareboat plan --prepare --script" in refused
    assert heavy(folder) == []
    (folder / "job.sh").write_text(
        bareboat("plan", "--prepare", "--script", "--python", python, "job.toml").stdout
    )
    done = subprocess.run(["bash", "job.sh"], capture_output=True, text=True, check=False)
    assert done.stdout == "trained\n"
    after = bareboat("plan", "--json", "--python", python, "job.toml").stdout
    assert "missing" not in json.loads(after)
    assert bareboat("plan", "--script", "--python", python, "job.toml").stdout.startswith("#!")


def test_a_captured_image_is_not_unpacked(folder: Path, python: Path) -> None:
    bareboat("image", "capture", "--python", python)
    before = heavy(folder)
    shown = bareboat("plan", "--python", python, "job.toml").stdout
    assert "link the image's layers into one tree" in shown
    assert "capture the environment" not in shown
    shown = bareboat(
        "plan", "-v", "--python", python, "--form", "file", "--engine", "native", "job.toml"
    ).stdout
    assert "no plan digest" not in shown, "bare metal needs no image"
    assert heavy(folder) == before


def session(folder: Path) -> Session:
    class Silent:
        def __getattr__(self, _name: str) -> object:
            return lambda *_: None

    return open_session(
        {}, folder=folder, environment={"BAREBOAT_STORE": str(folder.parent / "store")},
        reporter=Silent(), looks=True,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_plan_is_for_the_scheduler_that_submit_takes(folder: Path) -> None:
    here, job = session(folder), make_job()
    working = SchedulerFacts(name="slurm", version="1")
    broken = SchedulerFacts(name="pbs", version="1", works=False)
    both = make_site(schedulers=(broken, working))
    assert sites.planned_for(here, job, both)[0].scheduler == "slurm"
    assert sites.scheduler_here(both) == "slurm"
    assert sites.planned_for(here, job, make_site(schedulers=(broken,)))[0].scheduler is None
    assert sites.planned_for(here, make_job(scheduler="local"), both)[0].scheduler == "local"
    # A scheduler that is here is believed, also about what it lacks.
    assert sites.planned_for(here, make_job(scheduler="slurm"), both)[1] is both


def _assumed(name: str) -> Plan:
    job = make_job(
        scheduler=name, launcher="torchrun", walltime_s=5400,
        topology=Topology(nodes=2, ranks_per_node=2, cpus_per_rank=4, gpus_per_rank=1),
    )  # fmt: skip
    site = make_site(schedulers=(registry.scheduler(name).assumed(job),))
    image = make_image()
    return plan(job, image, make_rootfs(image), site)


def test_a_scheduler_that_is_not_here_is_assumed_and_named(request: pytest.FixtureRequest) -> None:
    shown = []
    for name in ("slurm", "gridengine", "pbs", "flux"):
        made = _assumed(name)
        (warning,) = [each for each in made.warnings if "not available on this machine" in each]
        script = render.script(made)
        assert all(line in script for line in made.directives)
        shown += [f"== {name}", *made.directives, f"warning: {warning}"]
    text = "\n".join(shown) + "\n"
    if request.config.getoption("--update-golden"):
        ASSUMED.write_text(text)
    assert text == ASSUMED.read_text()
