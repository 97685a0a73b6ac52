"""`status --watch` on a terminal and in a pipe, studies in the list, and places in a queue."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site

from bareboat import registry
from bareboat.model import Outcome
from bareboat.plan import plan
from bareboat.runs import studies
from bareboat.schedulers import Place
from bareboat_base import codec
from bareboat_images.store import Store
from bareboat_study import matrix, studyfile

gridengine, pbs, slurm = map(registry.scheduler, ("gridengine", "pbs", "slurm"))


def words(*given: str) -> list[str]:
    return [sys.executable, "-m", "bareboat", *given]


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def running(around: Path) -> Iterator[Path]:
    """A run that ends with 3 when the file `go` is there."""
    script = "until test -e go; do sleep 0.1; done; exit 3"
    argv = words("run", "-q", "--engine", "native", "--", "sh", "-c", script)
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: any((around / "store").glob("runs/*/process")))
    yield around
    (around / "go").touch()
    process.wait(30)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def on_a_terminal(*given: str, typed: bytes = b"", rows: int = 24) -> tuple[int, str]:
    """The exit code and what the terminal got; `typed` once the list is shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, words(*given))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
    shown, is_typed = b"", not typed
    while select.select([terminal], [], [], 30)[0]:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
        if not is_typed and b"q: quit" in shown:
            os.write(terminal, typed)
            is_typed = True
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("key", [b"q", b"Q", b"\x03"])
def test_a_key_stops_watching_and_the_run_continues(key: bytes) -> None:
    code, shown = on_a_terminal("status", "--watch", typed=key)
    assert code == 0, shown
    assert "stopped watching; the runs continue" in shown
    assert shown.count("\033[?1049h") == shown.count("\033[?1049l") == 1, "the terminal is as before"
    assert shown.index("\033[?25l") < shown.index("running") < shown.index("\033[?25h")
    (found,) = json.loads(subprocess.run(words("status", "--json"), capture_output=True, check=True).stdout)
    assert found["state"] == "running"


def test_the_list_stays_when_all_runs_ended(running: Path) -> None:
    (running / "go").touch()
    code, shown = on_a_terminal("status", "--watch", "sh")
    assert code == 3
    last = shown.rpartition("\033[?1049l")[2]
    assert "sh -c" in last
    assert "running" not in last


def test_a_pipe_gets_a_line_for_each_change(running: Path) -> None:
    for form in ([], ["--json"]):
        watcher = subprocess.Popen(words("status", "--watch", *form), stdout=subprocess.PIPE, text=True)
        assert watcher.stdout is not None
        first = watcher.stdout.readline()
        assert ("running" in first) is not (running / "go").exists()
        time.sleep(1.5)
        (running / "go").touch()
        rest = watcher.stdout.read().splitlines()
        assert watcher.wait(20) == 0
        if form:
            assert json.loads(first)["exit_code"] == 3
        else:
            assert len(rest) == 1
            assert "  3  " in rest[0]


def test_the_interval_is_never_short(around: Path) -> None:
    for given in (["--interval", "60"], ["--watch", "--interval", "1"]):
        done = subprocess.run(
            words("status", *given), cwd=around, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "--interval" in done.stderr


def make_study(store: Store) -> str:
    job, image, site = make_job(), make_image(), make_site()
    cells = [
        (plan(make_job(engine=name), image, make_rootfs(image), site), image) for name in ("native", None)
    ]
    return matrix.design(store, studyfile.study_of_job(job), [cells], site).id


def listed() -> subprocess.CompletedProcess[str]:
    return subprocess.run(words("status"), capture_output=True, text=True, check=False)


def test_a_study_is_in_the_list_with_its_verdict(around: Path) -> None:
    store = Store(around / "store")
    run_id = make_study(store)
    shown = listed().stdout
    assert run_id in shown
    assert f"study, 0 of 11 runs: bareboat prove --resume {run_id}" in shown
    assert not (store.run(run_id) / "lock").exists(), "the list writes nothing"
    with store.locked(run_id):
        assert "measuring" in listed().stdout
    for number in range(11):
        (store.run(f"{run_id}.0") / f"{number:04}").mkdir()
    head, row = listed().stdout.splitlines()[:2]
    assert "complete" in row
    assert "  result  " in head
    verdict = studies.Verdict(verdict="undecided", sentence="It may be slower.", runs=10)
    store.write(store.run(run_id) / "verdict.json", codec.to_json(verdict))
    assert "undecided" in listed().stdout
    assert "It may be slower." in listed().stdout
    # With its name it would list the runs that failed, and they have no records here.
    done = subprocess.run(words("status", "--json"), capture_output=True, check=True)
    (found,) = json.loads(done.stdout)
    assert (found["kind"], found["verdict"], found["runs_done"]) == ("study", "undecided", 11)
    (store.run(run_id) / "matrix.json").write_text("{")
    damaged = listed()
    assert damaged.returncode == 4
    assert run_id in damaged.stdout


def outcome(text: str) -> Outcome:
    return Outcome(argv=("x",), exit_code=0, stdout=text, stderr="", wall_s=0.0)


def test_the_place_in_slurm_s_queue() -> None:
    query = slurm.place("17_3")
    assert "--sort=-p,i" in query.argv
    told = (
        "11|cpu|2026-11-23T15:00:00|Resources\n12|gpu|N/A|Priority\n16|cpu|N/A|Dependency\n"
        "17_[0-9%2]|cpu|N/A|Priority\n"
    )
    assert query.parse(outcome(told)) == Place(position=2, of=2, queue="partition cpu")
    assert str(slurm.place("11").parse(outcome(told))) == (
        "position 1 of 2 in partition cpu, expected start 2026-11-23 15:00:00"
    )
    assert slurm.place("16").parse(outcome(told)) is None
    assert slurm.place("99").parse(outcome(told + "nonsense\n")) is None


def test_the_place_in_grid_engine_s_queue() -> None:
    told = (
        "job-ID  prior   name  user  state submit/start at  queue  slots ja-task-ID\n" + "-" * 60 + "\n"
        "     12 0.55500 a     ada   qw    11/23/2026 14:20:01         1\n"
        "     13 0.50000 b     ada   hqw   11/23/2026 14:20:01         1\n"
        "     17 0.50000 c     bob   qw    11/23/2026 14:20:01         1 1-9:1\n"
    )
    assert gridengine.place("17.4").parse(outcome(told)) == Place(position=2, of=2)
    assert gridengine.place("13").parse(outcome(told)) is None
    assert pbs.place("17") is None
