"""A signal for a run: the command gets it once, has time to save, and its exit code is the run's."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from processes import command
from watch import wait_until

MPI = Path("/opt/bareboat-lab/mpi/debian")
SAVES = """\
import os, signal, sys, time

came = []
rank = os.environ.get("RANK", "0")


def save(number, frame):
    came.append(number)
    if len(came) > 1:
        return
    end = time.monotonic() + 2
    while time.monotonic() < end:
        time.sleep(0.05)
    with open("saved." + rank, "w") as file:
        file.write(str(len(came)))
    os._exit(7)


for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, save)
open("ready." + rank, "w").close()
while True:
    time.sleep(0.05)
"""


def saved(folder: Path, python: Path, to: str, number: int, *options: str, ranks: int = 1) -> int:
    """The exit code of a run that a signal reached. Every rank saved, and got one signal. All runs have one
    store, so that each environment is captured once."""
    (folder / "saves.py").write_text(SAVES)
    words = ("run", "-q", "--store", folder.parent / "signals-store", "--python", python, *options)
    argv = command(*words, "--", "python", "saves.py")
    run = subprocess.Popen(argv, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: len(list(folder.glob("ready.*"))) == ranks, limit_s=60)
        if to == "group":
            os.killpg(run.pid, number)
        else:
            run.send_signal(number)
        code = run.wait(60)
    finally:
        run.kill()
    assert sorted(each.read_text() for each in folder.glob("saved.*")) == ["1"] * ranks
    return code


#: Engines, and the program of each that may be missing. Without one that stays beside the command, Bareboat
#: passes SIGINT on a second time where it was sent to the whole group, but not from its terminal.
ENGINES = {
    "bubblewrap": "sh", "native": "sh", "apptainer": "apptainer", "charliecloud": "ch-run",
    "podman": "podman", "udocker": "udocker",
}  # fmt: skip
GROUP_INTERRUPTED_TWICE = ("native", "charliecloud", "udocker")
#: Their own processes pass on what is sent to the whole group, and Podman ends by it.
GROUP_PASSED_ON = ("apptainer", "podman")
#: Apptainer passes on an interrupt that its command got already (docs/job-file.md).
CASES = [
    (engine, to, number)
    for engine in ENGINES
    for to in ("group", "bareboat")
    for number in (signal.SIGTERM, signal.SIGINT)
    if (to == "bareboat" or engine not in GROUP_PASSED_ON)
    and (to == "bareboat" or number != signal.SIGINT or engine not in GROUP_INTERRUPTED_TWICE)
    and (engine, number) != ("apptainer", signal.SIGINT)
]


@pytest.mark.parametrize(("engine", "to", "number"), CASES)
def test_the_command_saves_and_its_exit_code_is_the_runs(
    engine: str, to: str, number: signal.Signals, python: Path, tmp_path: Path
) -> None:
    if shutil.which(ENGINES[engine]) is None:
        pytest.skip(f"{ENGINES[engine]} is not installed")
    assert saved(tmp_path, python, to, number, "--engine", engine) == 7


@pytest.mark.parametrize(("engine", "to"), [("bubblewrap", "group"), ("native", "bareboat")])
def test_every_rank_saves(engine: str, to: str, python: Path, tmp_path: Path) -> None:
    options = ("--engine", engine, "--launcher", "ranks", "-n", "2")
    assert saved(tmp_path, python, to, signal.SIGTERM, *options, ranks=2) == 7


@pytest.mark.parametrize(("launcher", "to"), [("mpirun", "group"), ("image-mpirun", "bareboat")])
def test_every_rank_of_an_mpi_saves(launcher: str, to: str, tmp_path: Path) -> None:
    """mpirun would end its ranks a second after the signal, or when the first of them has saved."""
    if not (MPI / ".whole").exists():
        pytest.skip("the MPIs are not installed: sudo tests/lab/mpi-pairs.sh")
    options = ("--engine", "bubblewrap", "--launcher", launcher, "-n", "2")
    assert saved(tmp_path, MPI / "bin/python", to, signal.SIGTERM, *options, ranks=2) == 7
