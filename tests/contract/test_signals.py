"""A signal for a run: the command gets it once, has time to save, and its exit code is the run's."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from processes import command
from tools import installed, tool
from watch import wait_until

from bareboat_base.execute import descendants
from bareboat_base.process_facts import children

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


def saved(
    folder: Path, python: Path, to: str, number: int, *options: str, ranks: int = 1, shell_waits: bool = False
) -> int:
    """The exit code of a run that a signal reached. Every rank saved, and got one signal; to "all" processes,
    as Slurm sends it, Podman passes it on. All runs have one store: each environment is captured once.
    `shell_waits`: the script gets its processor only when the command has saved, at once, and exited."""
    (folder / "saves.py").write_text(SAVES.replace("+ 2", "+ 0") if shell_waits else SAVES)
    words = ("run", "-q", "--store", folder.parent / "signals-store", "--python", python, *options)
    argv = command(*words, "--", "python", "saves.py")
    run = subprocess.Popen(argv, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: len(list(folder.glob("ready.*"))) == ranks, limit_s=60)
        if shell_waits:
            named = {Path(f"/proc/{pid}/comm").read_text(): pid for pid in children(run.pid)}
            script = named["bash\n"]
            cpu = {min(os.sched_getaffinity(0))}
            os.sched_setaffinity(script, cpu)
            os.sched_setscheduler(script, os.SCHED_BATCH, os.sched_param(0))  # it interrupts nobody
            busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(4)]
            for each in busy:
                os.sched_setaffinity(each.pid, cpu)
            time.sleep(0.1)
            os.killpg(run.pid, number)
            time.sleep(0.5)
            for each in busy:
                each.kill()
                each.wait()
        elif to == "group":
            os.killpg(run.pid, number)
        else:
            for pid in (run.pid, *(descendants(run.pid) if to == "all" else ())):
                os.kill(pid, number)
        code = run.wait(60)
    finally:
        run.kill()
    came = [each.read_text() for each in folder.glob("saved.*")]
    assert (["1"] * len(came) if to == "all" else came) == ["1"] * ranks
    return code


#: Engines, and the program of each that may be missing.
ENGINES = {
    "bubblewrap": "sh", "native": "sh", "apptainer": "apptainer", "charliecloud": "ch-run",
    "podman": "podman", "udocker": "udocker",
}  # fmt: skip
#: Apptainer passes on what its command got already: from a group, or an interrupt (docs/job-file.md).
CASES = [
    (engine, to, number)
    for engine in ENGINES
    for to in ("group", "bareboat")
    for number in (signal.SIGTERM, signal.SIGINT)
    if engine != "apptainer" or (to, number) == ("bareboat", signal.SIGTERM)
] + [("podman", "all", signal.SIGTERM)]


@pytest.mark.parametrize(("engine", "to", "number"), CASES)
def test_the_command_saves_and_its_exit_code_is_the_runs(
    engine: str, to: str, number: signal.Signals, python: Path, tmp_path: Path
) -> None:
    tool(ENGINES[engine])
    assert saved(tmp_path, python, to, number, "--engine", engine) == 7


@pytest.mark.parametrize("engine", ["bubblewrap", "native"])
def test_the_exit_code_is_the_commands_also_where_the_shell_comes_late(
    engine: str, python: Path, tmp_path: Path
) -> None:
    """A shell that gets a signal and the end of its child at once forgets the child's exit code."""
    assert saved(tmp_path, python, "group", signal.SIGTERM, "--engine", engine, shell_waits=True) == 7


@pytest.mark.parametrize(("engine", "to"), [("bubblewrap", "group"), ("native", "bareboat")])
def test_every_rank_saves(engine: str, to: str, python: Path, tmp_path: Path) -> None:
    options = ("--engine", engine, "--launcher", "ranks", "-n", "2")
    assert saved(tmp_path, python, to, signal.SIGTERM, *options, ranks=2) == 7


@pytest.mark.parametrize("engine", ["bubblewrap", "podman"])
@pytest.mark.parametrize(("launcher", "to"), [("mpirun", "group"), ("image-mpirun", "bareboat")])
def test_every_rank_of_an_mpi_saves(launcher: str, to: str, engine: str, tmp_path: Path) -> None:
    """mpirun would end its ranks a second after the signal, or when the first of them has saved."""
    tool(ENGINES[engine])
    options = ("--engine", engine, "--launcher", launcher, "-n", "2")
    assert saved(tmp_path, installed("mpi/debian") / "bin/python", to, signal.SIGTERM, *options, ranks=2) == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_mpi_check_ends_the_run(number: signal.Signals, tmp_path: Path) -> None:
    """The check itself may end with 0 after the signal, and the job has not run."""
    mpi = installed("mpi/debian")
    (tmp_path / "job.py").write_text("from mpi4py import MPI\nopen('ran', 'w').close()\n")
    words = ("run", "-q", "--store", tmp_path / "store", "--python", mpi / "bin/python", "--engine", "native")
    run = subprocess.Popen(command(*words, "-n", "2", "job.py"), cwd=tmp_path, start_new_session=True)
    logs = lambda: [log.read_text() for log in tmp_path.glob("store/runs/*/control/mpi_check.log")]  # noqa: E731
    try:
        assert wait_until(lambda: any(text.count("\n") >= 2 for text in logs()), limit_s=60)
        os.killpg(run.pid, number)
        assert run.wait(60) == 128 + number
    finally:
        run.kill()
    assert not (tmp_path / "ran").exists()
