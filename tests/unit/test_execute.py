"""Processes: short questions, live job scripts, and that nothing is left of either."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import make_job, make_site
from tools import tool
from watch import kill, processes_with, wait_until

from bareboat import render
from bareboat.model import Topology
from bareboat.plan import plan
from bareboat_base import execute
from bareboat_base.errors import Terminated, ToolError
from bareboat_base.execute import scripts, signals
from bareboat_base.execute.processes import rss_bytes
from bareboat_images.builder import guarded_command

ENVIRONMENT = {"PATH": os.environ["PATH"]}


@pytest.fixture
def mark() -> Iterator[str]:
    """A run's name that nothing else has. Whatever carries it is gone after the test."""
    name = f"test-{uuid.uuid4()}"
    yield name
    kill(processes_with(name))


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[None]:
    """Something waits on our standard input."""
    (tmp_path / "typed").write_text("typed\n")
    before = os.dup(0)
    with (tmp_path / "typed").open() as stream:
        os.dup2(stream.fileno(), 0)
    yield
    os.dup2(before, 0)
    os.close(before)


def script(folder: Path, text: str) -> str:
    path = folder / "job.sh"
    path.write_text(text)
    return str(path)


def marking(command: str) -> str:
    """A job script that marks its processes as Bareboat's own scripts do."""
    return f'export BAREBOAT_RUN="$1"\n{command}\n'


def job_script(folder: Path, *command: str) -> str:
    """A job script as Bareboat writes it, for bare metal."""
    job = make_job(command=command, workdir=str(folder), topology=Topology(), engine="native", environment={})
    return script(folder, render.script(plan(job, None, None, make_site(engines=()))))


# run


def test_what_a_program_says_is_kept() -> None:
    outcome = execute.run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (outcome.stdout, outcome.stderr, outcome.exit_code, outcome.ok) == ("out\n", "err\n", 3, False)
    assert outcome.argv == ("/bin/sh", "-c", "echo out; echo err >&2; exit 3")
    assert outcome.wall_s > 0
    assert execute.run(["true"]).ok


def test_a_signals_end_is_a_negative_exit_code() -> None:
    assert execute.run(["/bin/sh", "-c", "kill -9 $$"]).exit_code == -9


def test_a_missing_program_is_127_and_no_exception(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not executable")
    (tmp_path / "file").chmod(0o644)
    for program in ("no-such-program", "/no/such/program", str(tmp_path / "file"), str(tmp_path / "file/x")):
        outcome = execute.run([program])
        assert (outcome.exit_code, outcome.stdout) == (127, "")
        assert outcome.stderr


@pytest.mark.usefixtures("typed")
def test_standard_input_is_what_was_given_or_nothing() -> None:
    assert execute.run(["cat"], stdin="a\nb").stdout == "a\nb"
    assert execute.run(["cat"]).stdout == ""


def test_bytes_that_are_not_utf8_come_back_as_they_were() -> None:
    outcome = execute.run(["printf", r"\377\303\251x"])
    assert os.fsencode(outcome.stdout) == b"\xff\xc3\xa9x"
    assert execute.run(["printf", "%s", outcome.stdout]).stdout == outcome.stdout
    assert execute.run(["cat"], stdin=outcome.stdout).stdout == outcome.stdout


def test_an_environment_that_is_given_is_the_whole_of_it() -> None:
    assert execute.run([tool("env")], environment={"A": "1"}).stdout == "A=1\n"
    assert f"PATH={os.environ['PATH']}\n" in execute.run([tool("env")]).stdout


def test_commands_can_be_echoed_so_that_they_can_be_pasted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "bareboat"):
        execute.run(["printf", "%s", "it's $5"])
    assert caplog.messages == ["""+ printf %s 'it'"'"'s $5'"""]


# Live


@pytest.mark.parametrize(
    ("text", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)]
)
def test_the_exit_code_is_the_scripts_and_128_more_for_a_signal(
    tmp_path: Path, mark: str, text: str, code: int
) -> None:
    live = execute.Live(script(tmp_path, text), mark=mark, environment=ENVIRONMENT)
    assert live.wait() == code
    assert live.poll() == code
    assert live.stop() == code


def test_stopping_ends_all_processes_of_a_run(tmp_path: Path, mark: str) -> None:
    command = f"sleep 301 & {tool('setsid')} sleep 302 & exec sleep 303"
    live = execute.Live(job_script(tmp_path, "/bin/sh", "-c", command), mark=mark, environment=ENVIRONMENT)
    assert wait_until(lambda: len(list(execute.processes_of(mark))) == 3)
    assert live.stop() == 143
    assert processes_with(mark) == []
    assert live.stop() == 143


def test_a_script_that_will_not_end_is_killed(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scripts, "STOP_GRACE_S", 0.2)
    text = marking(f"trap '' TERM\n{tool('setsid')} sleep 301 &\nwhile :; do sleep 302; done")
    live = execute.Live(script(tmp_path, text), mark=mark, environment=ENVIRONMENT)
    assert wait_until(lambda: len(list(execute.processes_of(mark))) == 2)
    assert live.stop() == 137
    assert f"the job script {live.pid} did not exit after SIGTERM: killing it" in caplog.messages
    assert wait_until(lambda: processes_with(mark) == [])


@pytest.mark.thorough
@pytest.mark.slow
def test_ranks_that_ignore_the_request_to_end_are_killed_after_the_scripts_ten_seconds(
    tmp_path: Path, mark: str
) -> None:
    command = f"trap '' TERM; {tool('setsid')} sleep 301 & while :; do sleep 302; done"
    live = execute.Live(job_script(tmp_path, "/bin/sh", "-c", command), mark=mark, environment=ENVIRONMENT)
    assert wait_until(lambda: len(list(execute.processes_of(mark))) == 3)
    live.ask_to_stop()
    assert live.wait(60) == 143, "the script itself ends what does not want to end"
    assert wait_until(lambda: processes_with(mark) == [])
    live.close()


def test_without_bash_it_is_said_what_to_install(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="bash not found on PATH") as caught:
        execute.Live(path, mark=mark, environment={})
    assert caught.value.remedy


# finding and measuring


def test_the_processes_of_a_run_are_those_with_its_whole_mark(mark: str) -> None:
    sleepers = [
        subprocess.Popen(["sleep", "300"], env={name: value, "OTHER": mark})
        for name, value in (
            ("BAREBOAT_RUN", mark),
            ("BAREBOAT_RUN", mark + "0"),
            ("BAREBOAT_RUN", mark[:-1]),
            ("XBAREBOAT_RUN", mark),
        )
    ]
    try:
        assert wait_until(lambda: len(processes_with(mark)) == 4)
        assert list(execute.processes_of(mark)) == [sleepers[0].pid]
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    assert list(execute.processes_of(mark)) == []


@pytest.mark.parametrize("kind", ["pss", "rss"])
def test_the_memory_of_a_run_is_that_of_all_its_processes(tmp_path: Path, mark: str, kind: str) -> None:
    # 64 MiB that are written to, in a process below the script's.
    hold = f"{sys.executable} -c 'import sys; x = b\"x\" * 2**26; sys.stdin.read()'"
    text = marking(f"sleep 300 | {hold} &\nwait")
    live = execute.Live(script(tmp_path, text), mark=mark, environment=ENVIRONMENT)
    try:
        assert wait_until(lambda: live.memory_bytes(kind) > 2**26)
        assert live.memory_bytes(kind) < 2**28
    finally:
        live.stop()
    assert wait_until(lambda: live.memory_bytes(kind) == 0)


def test_the_memory_of_bareboat_is_not_the_peak_of_a_run(tmp_path: Path, mark: str) -> None:
    """The kernel counts a fork of this process as one of the run, before bash replaces it."""
    ballast = b"x" * 2**27
    more = rss_bytes(os.getpid()) + len(ballast)
    peaks = []
    for size in (0, more):
        text = f"exec {sys.executable} -c 'x = bytes(1) * {size}'"
        live = execute.Live(script(tmp_path, text), mark=mark, environment=ENVIRONMENT)
        assert live.wait(60) == 0
        peaks.append(live.peak_process_bytes)
    assert peaks[0] == 0
    assert peaks[1] > more


# signals to Bareboat


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_raises_so_that_everything_is_cleaned_up(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Terminated) as caught, execute.termination_raised():
        signal.raise_signal(number)
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) is before


def test_an_interrupt_to_this_process_alone_is_passed_on(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a supervisor or a notebook, which no terminal sends to the job, too."""
    monkeypatch.setattr(signals, "_is_in_foreground", lambda: False)
    ready = tmp_path / "ready"
    with execute.interrupts_left_to_child():
        live = execute.Live(
            script(
                tmp_path,
                marking(f"trap 'exit 130' INT; touch {ready}; while :; do sleep 0.1; done"),
            ),
            mark=mark,
            environment=ENVIRONMENT,
        )
        while not ready.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)
        assert live.wait(60) == 130
        live.close()


def test_an_interrupt_before_the_job_starts_stops_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_is_in_foreground", lambda: False)
    with pytest.raises(KeyboardInterrupt), execute.interrupts_left_to_child():
        signal.raise_signal(signal.SIGINT)


#: A step with a process in a session of its own, which nothing but its parent's end can find.
STEP = """
import sys
from bareboat_images.builder import guarded_command
words = ["sh", "-c", f"(setsid sleep {sys.argv[1]} &) ; echo started; sleep {sys.argv[1]}"]
guarded_command.run_step(
    words, environment={"PATH": "/usr/bin:/bin"}, is_sandbox=True,
    show=lambda data: (sys.stdout.buffer.write(data), sys.stdout.flush()),
)
"""


def _sleeping(seconds: str) -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path("/proc", name, "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(name)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_step_ends_with_bareboat(number: signal.Signals) -> None:
    seconds = f"600.{os.getpid()}{number:d}"
    process = subprocess.Popen([sys.executable, "-c", STEP, seconds], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert wait_until(lambda: len(_sleeping(seconds)) == 2)
        process.send_signal(number)
        assert wait_until(lambda: not _sleeping(seconds))


def test_what_a_tool_leaves_stays() -> None:
    """Podman keeps a process that holds the user's namespace."""
    seconds = f"602.{os.getpid()}"
    words = ["sh", "-c", f"(setsid sleep {seconds} >&- 2>&- &) ; exit 0"]
    assert guarded_command.run_step(words, environment=ENVIRONMENT, show=print, is_sandbox=False) == 0
    assert wait_until(lambda: len(_sleeping(seconds)) == 1)
    for pid in _sleeping(seconds):
        os.kill(int(pid), signal.SIGKILL)


def test_a_step_that_cannot_start_and_one_that_a_signal_ends() -> None:
    with pytest.raises(ToolError, match="/none cannot be started: No such file"):
        guarded_command.run_step(["/none"], environment=ENVIRONMENT, show=print, is_sandbox=True)
    words = ["sh", "-c", "kill -TERM $$"]
    assert guarded_command.run_step(words, environment=ENVIRONMENT, show=print, is_sandbox=True) == 143


def test_a_step_without_output_is_stopped() -> None:
    began = time.monotonic()
    words = ["sh", "-c", "exec >&- 2>&-; sleep 603"]
    code = guarded_command.run_step(
        words, environment=ENVIRONMENT, show=print, is_sandbox=True,
        stopped=lambda: time.monotonic() > began + 1,
    )  # fmt: skip
    assert (code, time.monotonic() - began < 60) == (137, True)


BESIDE = r"""
import ctypes, os, subprocess, sys
from bareboat_base import foreground

other = subprocess.Popen(["sh", "-c", "exit 7"])
command = '"$0" -c "import sys, time; time.sleep(1); sys.exit(5)" 198>&- & '
engine = command + 'echo "{\\"child-pid\\": $!}" >&198; wait'
words = ["/bin/bash", "-c", engine, sys.executable]
code = foreground.run(words, environment=dict(os.environ), descriptors={}, own_init=False)
is_subreaper = ctypes.c_int()
ctypes.CDLL(None).prctl(37, ctypes.byref(is_subreaper))
print(code, other.wait(), is_subreaper.value)
"""


def test_a_command_in_the_place_of_this_process_leaves_its_other_children_alone() -> None:
    done = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["5", "7", "0"], done.stderr


def test_a_signal_that_ends_the_engine_as_the_command_begins_does_not_end_the_command() -> None:
    """Ctrl-C goes to both, and this process may not have seen yet that the command runs."""
    engine = 'bash -c "sleep 1; exit 9" & echo "{\\"child-pid\\": $!}" >&198; kill -INT $BASHPID'
    words = ["/bin/bash", "-c", engine]
    program = (
        "import os; from bareboat_base import foreground; "
        f"print(foreground.run({words!r}, environment=dict(os.environ), descriptors={{}}, own_init=False))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["9"], done.stderr
