"""Runs on this machine are runs: their output is kept, and they are shown, cancelled and found lost."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import forked
import pytest
from environments import Captured
from processes import command
from watch import wait_until

from bareboat.runs import supervisor
from bareboat.runs.supervisor import Presence
from bareboat_images.store import owner
from bareboat_images.upkeep import shared_layers

Bareboat = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bareboat(*given: str) -> subprocess.CompletedProcess[str]:
    return forked.run(*given, timeout_s=60)


def native(*command: str) -> list[str]:
    return ["run", "-q", "--engine", "native", "--", *command]


def status() -> dict[str, Any]:
    (found,) = json.loads(bareboat("status", "--json").stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def started(around: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run that sleeps, once its job script is known."""
    process = subprocess.Popen(command(*native("sleep", "60")), stdout=subprocess.DEVNULL, stderr=-1)
    assert wait_until(lambda: any((around / "store").glob("runs/*/process")))
    yield process
    process.kill()
    process.communicate()


def test_output_goes_where_it_went_and_is_kept(around: Path) -> None:
    done = bareboat(*native("sh", "-c", "echo out; echo err >&2; exit 3"))
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    (run,) = (around / "store" / "runs").iterdir()
    assert sorted((run / "output.log").read_text().splitlines()) == ["err", "out"]
    assert (run / "plan.json").exists()
    assert sorted(bareboat("logs", "-q").stdout.splitlines()) == ["err", "out"]
    assert bareboat("wait", "-q").returncode == 3
    assert (status()["state"], status()["exit_code"]) == ("failed", 3)


def test_the_order_of_output_and_errors_in_one_file_is_kept(around: Path) -> None:
    script = "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"
    with open(around / "both", "wb") as both:
        subprocess.run(command(*native("sh", "-c", script)), stdout=both, stderr=both, check=True)
    wanted = [f"{what}{i}" for i in range(1, 6) for what in "oe"]
    assert (around / "both").read_text().splitlines() == wanted


@pytest.mark.usefixtures("around")
def test_without_a_free_pseudo_terminal_the_command_has_a_pipe() -> None:
    start = (
        "import os, sys\n"
        "def openpty(): raise OSError(28, 'No space left on device')\n"
        "os.openpty = openpty\n"
        "from bareboat.cli.main import entry\n"
        "sys.argv[0] = 'bareboat'; entry()\n"
    )
    code, shown = typed(b"", *native("sh", "-c", "test -t 1 || echo shown"), start=["-c", start])
    assert (code, shown) == (0, b"shown\r\n")
    assert bareboat("logs", "-q").stdout == "shown\n"


@pytest.mark.usefixtures("around")
def test_the_time_limit_ends_it_with_all_processes_and_is_its_cause() -> None:
    ends_well = 'trap "echo bye; exit 0" TERM; sleep 200 & wait'
    done = bareboat("run", "-q", "--engine", "native", "--time", "1s", "--", "bash", "-c", ends_well)
    assert (done.returncode, done.stdout) == (124, "bye\n")
    found = status()
    assert (found["state"], found["exit_code"]) == ("timeout", 124)
    assert "walltime_s of 1 s" in json.dumps(found)
    in_time = bareboat("run", "-q", "--engine", "native", "--time", "1m", "--", "true")
    assert (in_time.returncode, in_time.stderr) == (0, "")


def test_flags_that_only_schedulers_use_are_named_unless_quiet() -> None:
    warned = ("-t", "1m", "--set", "scheduling.warning_s=30")  # checked together
    given = (*warned, "--engine", "native", "--mem", "1GiB", "-p", "gpu", "--", "true")
    noted = "note: runs on this machine ignore --partition, --mem: only schedulers use them\n"
    assert noted in bareboat("run", "--dry-run", *given).stderr
    assert bareboat("run", "-q", *given).stderr == ""


def test_until_the_run_ends_its_status_says_that_it_was_cancelled(around: Path) -> None:
    script = "trap '' TERM; touch ready; while [ ! -e go ]; do sleep 0.1; done"
    process = subprocess.Popen(command(*native("sh", "-c", script)), stdout=subprocess.DEVNULL, stderr=-1)
    assert wait_until((around / "ready").exists)
    assert status()["reason"] == ""
    assert bareboat("cancel", status()["run_id"]).returncode == 0
    found = status()
    assert (found["state"], found["reason"]) == ("running", "cancellation requested")
    (around / "go").touch()
    process.communicate(timeout=30)
    found = status()
    assert (found["state"], found["exit_code"]) == ("cancelled", 0)
    assert found["end"]["text"] == "by bareboat cancel"
    assert bareboat("wait", "-q").returncode == 143
    assert "already finished: cancelled" in bareboat("cancel", found["run_id"]).stderr


@pytest.mark.usefixtures("started")
def test_of_two_runs_of_a_job_the_older_is_named_once_the_newer_ended() -> None:
    older = status()["run_id"]
    assert bareboat(*native("sleep", "0.1")).returncode == 0
    said = bareboat("cancel", "sleep").stderr
    assert "already finished with exit code 0" in said
    assert f"not finished: {older}" in said
    assert "not finished" not in bareboat("cancel", said.split()[1]).stderr


def typed(keys: bytes, *given: str, start: Sequence[str] = ("-m", "bareboat")) -> tuple[int, bytes]:
    """The exit code and the output in a terminal, whose user types `keys`."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.execv(sys.executable, [sys.executable, *start, *given])
    shown = b""
    os.write(terminal, keys)
    while select.select([terminal], [], [], 30)[0]:
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def attached(*given: str) -> tuple[int, str]:
    """The exit code and the output of `attach`, whose user types one line."""
    code, shown = typed(b"test -t 0 && echo in-$((6 * 7)) $PWD; exit 5\n", "attach", *given)
    return code, shown.decode()


def test_attach_opens_a_shell_in_it_and_leaves_it_alone(
    around: Path, started: subprocess.Popen[bytes]
) -> None:
    for given in ([], ["--host"]):
        code, shown = attached(*given)
        assert code == 5, shown
        assert f"in-42 {around}" in shown
    assert started.poll() is None
    assert status()["state"] == "running"
    bareboat("cancel", status()["run_id"])
    started.wait(20)
    refused = bareboat("attach")
    assert refused.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_whose_bareboat_is_terminated_is_recorded(
    started: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    started.send_signal(number)
    assert started.wait(20) == 128 + number
    assert status()["exit_code"] == 143


def test_a_run_whose_bareboat_is_killed_is_lost(started: subprocess.Popen[bytes]) -> None:
    started.kill()
    started.wait()
    assert wait_until(lambda: status()["state"] == "lost")
    found = status()
    assert found["exit_code"] is None
    assert "Bareboat was killed" in found["reason"]
    waited = bareboat("wait", "-q")
    assert waited.returncode == 1
    assert "is lost" in waited.stderr


def test_a_process_is_known_by_its_start_and_its_machine() -> None:
    own = owner()
    assert supervisor.presence(own) is Presence.HERE
    space, pid, start = own.rsplit("-", 2)
    assert supervisor.presence(f"{space}-{pid}-{int(start) + 1}") is Presence.GONE
    assert not supervisor.terminate(f"{space}-{pid}-{int(start) + 1}"), "a reused process ID is no target"
    assert supervisor.presence(f"other-{own}") is Presence.ELSEWHERE
    assert not supervisor.terminate(f"other-{own}")
    assert supervisor.presence("nonsense") is Presence.ELSEWHERE


def test_runs_that_ended_are_removed_all_or_none(around: Path, started: subprocess.Popen[bytes]) -> None:
    assert started.poll() is None
    bareboat(*native("true"))
    running, ended = [each["run_id"] for each in json.loads(bareboat("status", "--json").stdout)]
    for words_given, message in (
        ((ended, running), f"{running} is running; nothing was removed"),
        ((ended, "no-such-run"), "run no-such-run not found"),
    ):
        refused = bareboat("rm", *words_given)
        assert refused.returncode != 0
        assert message in refused.stderr
        assert (around / "store" / "runs" / ended / "record.json").exists()
    assert json.loads(bareboat("rm", "--dry-run", "--json", ended).stdout)["removed"][0]["run_id"] == ended
    assert (around / "store" / "runs" / ended).exists()
    assert bareboat("rm", ended).returncode == 0
    assert not (around / "store" / "runs" / ended).exists()


def test_an_image_that_a_run_uses_is_kept_and_one_that_shares_layers_says_so(
    around: Path, captured: Captured
) -> None:
    store = ("--store", str(captured.store.root))
    twin = captured.store.image(captured.image.digest)
    captured.store.name_image("first", twin.digest)
    script = ("sh", "-c", "until test -e go; do sleep 0.1; done")
    argv = command("run", "-q", *store, "--image", "first", "--", *script)
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    runs = captured.store.root / "runs"
    assert wait_until(lambda: any(runs.glob("sh-*/process")))
    refused = bareboat("image", "rm", *store, twin.digest)
    assert refused.returncode == 1
    assert "is in use: sh-" in refused.stderr
    assert captured.store.has_image(twin.digest)
    (around / "go").touch()
    assert process.wait(30) == 0, process.communicate()
    amount, users = shared_layers(captured.store, twin)
    assert amount.size_bytes > 0
    assert "first" in users  # and other tests' images in the same store


def test_old_runs_are_removed_on_request(around: Path, started: subprocess.Popen[bytes]) -> None:
    assert started.poll() is None
    bareboat(*native("true"))
    running, ended = [each["run_id"] for each in json.loads(bareboat("status", "--json").stdout)]
    asked = ("image", "rm", "--unused", "--json", "--runs-older-than")
    assert json.loads(bareboat(*asked, "1d").stdout)["freed"] == []
    (old,) = json.loads(bareboat(*asked, "0", "--dry-run").stdout)["freed"]
    assert (old["kind"], old["name"]) == ("run", ended)
    bareboat(*asked, "0")
    assert sorted(path.name for path in (around / "store" / "runs").iterdir()) == [running]


def test_a_run_of_another_machine_needs_force(around: Path) -> None:
    bareboat(*native("true"))
    (run,) = (around / "store" / "runs").iterdir()
    (run / "record.json").unlink()
    made = json.loads((run / "submission.json").read_text())
    made |= {"supervisor": "elsewhere-" + made["supervisor"], "host": "elsewhere"}
    (run / "submission.json").write_text(json.dumps(made))
    assert status()["state"] == "unknown"
    refused = bareboat("rm", run.name)
    assert refused.returncode == 1
    assert f"try: bareboat rm --force {run.name}" in refused.stderr
    assert bareboat("rm", "--force", run.name).returncode == 0
    assert not run.exists()


@pytest.mark.usefixtures("around")
def test_the_report_of_a_run_has_its_command_plan_time_and_cause() -> None:
    bareboat(*native("sh", "-c", "sleep 1.2; exit 3"))
    run = status()["run_id"]
    shown = bareboat("report", run)
    assert shown.returncode == 0
    for wanted in ("sh -c 'sleep 1.2; exit 3'", "exit code  3", "engine     native", "memory", "cause"):
        assert wanted in shown.stdout
    found = json.loads(bareboat("report", "--json", run).stdout)
    assert (found["record"]["exit_code"], found["plan"]["engine"]) == (3, "native")
    refused = bareboat("report", run, run.replace("sh-", "no-"))
    assert refused.returncode == 2
