"""Processes that lose the mark of their run end with it all the same, and nobody else's do."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from environments import Captured
from processes import start_bareboat
from tools import tool
from watch import kill, wait_until

pytestmark = pytest.mark.one_in(10)

ENGINES = ("native", "bubblewrap", "charliecloud", "udocker", "podman")

#: Programs that a run's environment does not tell any more; each writes a line when it is ready.
_READY = "open({ready!r} + '/' + str(os.getpid()), 'w').close()\n"
_WAIT = "import time\ntime.sleep({seconds})\n"
#: What setproctitle and Ray do, with no package: the block of the environment, overwritten in memory.
_OVERWRITE = """
fields = open('/proc/self/stat').read().rpartition(') ')[2].split()
start, end = int(fields[47]), int(fields[48])
import ctypes
ctypes.memset(start, 0, end - start)
assert b'BAREBOAT_RUN' not in open('/proc/self/environ', 'rb').read()
"""
_DAEMON = """
import sys
for _ in range({forks}):
    if os.fork(): os._exit(0)
    os.setsid()
os.closerange(0, 256)
os.execve(sys.executable, [sys.executable, '-c', {inner!r}], {{}})
"""


def programs(ready: str, seconds: int) -> dict[str, str]:
    begin = "import os, signal, sys\n"
    say, wait = _READY.format(ready=ready), _WAIT.format(seconds=seconds)
    inner = begin + say + wait
    stay = f"if os.fork():\n    import time; time.sleep({seconds}); os._exit(0)\n"
    return {
        "overwritten": begin + _OVERWRITE + say + wait,
        "overwritten below a rank": begin + stay + _OVERWRITE + say + wait,
        "overwritten, in a new session": begin + stay + "os.setsid()\n" + _OVERWRITE + say + wait,
        "overwritten and deaf": begin
        + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + _OVERWRITE
        + say
        + wait,
        "no environment": begin + f"os.execve(sys.executable, ['x', '-c', {inner!r}], {{}})\n",
        "daemon": begin + stay + _DAEMON.format(forks=1, inner=inner),
        "daemon, twice forked": begin + stay + _DAEMON.format(forks=2, inner=inner),
        "daemon of a rank without a mark": begin + stay + _OVERWRITE + _DAEMON.format(forks=2, inner=inner),
        "another mark": begin
        + f"os.execve(sys.executable, ['x', '-c', {inner!r}], {{'BAREBOAT_RUN': 'another'}})\n",
    }


#: What a run's processes cannot be taken for: each test's own number of seconds stands in their arguments.
def left(seconds: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if str(seconds).encode() in words and int(name) != os.getpid():
            found.append(int(name))
    return found


@pytest.fixture
def seconds() -> Iterator[int]:
    """A number that no other process has in its arguments."""
    number = 10_000_000 + time.monotonic_ns() % 89_000_000
    yield number
    kill(left(number))


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of the user's, in a session of its own."""
    process = subprocess.Popen([tool("sleep"), "600"], start_new_session=True)
    yield process
    assert process.poll() is None, "a process that is not the run's was ended"
    process.kill()
    process.wait()


#: Every program in every way on bare metal, where only these rules find a process; some in containers,
#: whose namespaces find all alike. (Under PRoot a daemon of a rank without a mark never gets ready.)
CASES = [
    *(("native", kind, end) for kind in programs("", 0) for end in ("cancel", "failure", "kill")),
    *(
        (engine, kind, end)
        for engine in ENGINES
        if engine != "native"
        for kind, end in (
            ("overwritten", "cancel"),
            ("overwritten", "failure"),
            ("overwritten", "kill"),
            ("no environment", "cancel"),
            ("daemon, twice forked", "cancel"),
            ("another mark", "cancel"),
        )
    ),
]


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize(("engine", "kind", "end"), CASES)
def test_a_process_without_the_mark_ends_with_its_run(
    captured: Captured,
    tmp_path: Path,
    seconds: int,
    engine: str,
    kind: str,
    end: str,
) -> None:
    ready = tmp_path / "work" / "ready"
    ready.mkdir(parents=True)
    program = programs(str(ready), seconds)[kind]
    failing = end == "failure"
    if failing:  # the second rank ends when the first has lost its mark
        wait = f"while not os.listdir({str(ready)!r}): time.sleep(0.05)\n"
        program = (
            "import os, time\n"
            f"if os.environ['RANK'] == '1':\n    {wait.strip()}\n    time.sleep(0.3); os._exit(3)\n{program}"
        )
    (tmp_path / "work" / "program.py").write_text(program)
    launcher = "ranks" if failing else "single"
    (tmp_path / "work" / "job.toml").write_text(
        f'image = "{captured.image.digest}"\nengine = "{engine}"\nlauncher = "{launcher}"\n'
        f'command = ["python", "program.py", "{seconds}"]\n'
        f"[topology]\nranks_per_node = {2 if failing else 1}\n"
    )
    process = start_bareboat("run", "job.toml", store=captured.store.root, cwd=tmp_path / "work")
    try:
        begun = wait_until(lambda: bool(os.listdir(ready)) or process.poll() is not None, limit_s=60)
        if process.poll() is not None and not os.listdir(ready):
            said = process.communicate()[1]
            if "cannot run here" in said or "cannot be used" in said:
                pytest.skip(said)
            pytest.fail(said)
        assert begun
        if end == "cancel":
            process.terminate()
        elif end == "kill":
            process.kill()
        assert wait_until(lambda: process.poll() is not None)
        assert wait_until(lambda: not left(seconds), limit_s=25), left(seconds)
    finally:
        process.kill()
        process.communicate()


# -- which processes are the run's ---------------------------------------------------------------------

#: What a script starts as its job; `$1` is a number that the test finds it by.
JOBS = {
    "marked": 'env BAREBOAT_RUN="$BAREBOAT_RUN" sleep "$1" &',
    "not marked": 'env -u BAREBOAT_SCRIPT sleep "$1" &',
    "an empty environment": 'env -i sleep "$1" &',
    "another run's mark": 'env -u BAREBOAT_SCRIPT BAREBOAT_RUN=another sleep "$1" &',
    "a new session": 'env -i setsid sleep "$1" &',
    "below a marked one": 'env BAREBOAT_RUN="$BAREBOAT_RUN" bash -c \'env -i sleep "$1"; :\' x "$1" &',
    "an orphan in a marked one's session":
        'env BAREBOAT_RUN="$BAREBOAT_RUN" setsid bash -c '
        '\'(env -i sleep "$1" &); read -r _ < <(sleep "$1")\' x "$1" &',
}  # fmt: skip
#: What is not: the script's own helpers, and what others have.
HELPERS = {"a helper": 'sleep "$1" &', "a copy of the script": '( read -r -t 30 _ < <(sleep "$1") ) &'}


def found_by_script(tmp_path: Path, start: str, number: int, apart: str = "") -> tuple[set[int], set[int]]:
    """The run's processes as the script tells them, and those that have the number in their arguments."""
    from bareboat import render

    (tmp_path / "job.sh").write_text(
        f"set -u\nunset BAREBOAT_RUN\nBAREBOAT_RUN=${{2:-run-$$}}\nrun_apart={apart}\n"
        f"{render.subject('processes')}\nexport BAREBOAT_SCRIPT=$BAREBOAT_RUN\n"
        f'{start}\nsleep 0.5\nrun_pids > "$3"\nread -r _\n'
    )
    argv = [tool("bash"), str(tmp_path / "job.sh"), str(number), f"run-{number}", str(tmp_path / "found")]
    script = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
    try:
        assert wait_until(lambda: (tmp_path / "found").exists() and bool(left(number)))
        time.sleep(1.5)
        told = set(map(int, (tmp_path / "found").read_text().split()))
        return told, set(left(number)) - {script.pid}
    finally:
        script.kill()
        script.communicate()


@pytest.mark.parametrize("apart", ["", "user", "tracer"])
@pytest.mark.parametrize("kind", JOBS)
def test_the_run_s_processes(tmp_path: Path, seconds: int, kind: str, apart: str) -> None:
    told, there = found_by_script(tmp_path, JOBS[kind], seconds, apart)
    assert told
    assert there <= told


def test_a_signal_after_a_success_finds_no_process_of_others(tmp_path: Path) -> None:
    """In a trap, bash's `return` without a status has that of the command before the signal."""
    from bareboat import render

    (tmp_path / "job.sh").write_text(
        f"set -u\nunset BAREBOAT_RUN\nexport BAREBOAT_SCRIPT=run-1\n"
        f"BAREBOAT_RUN=run-1\nrun_apart=user\n{render.subject('processes')}\n"
        "trap 'run_pids; exit 7' TERM\ntrue\nkill -s TERM $$\n"
    )
    other = subprocess.Popen([tool("bash"), "-c", "sleep 600; :"])
    try:
        argv = [tool("bash"), str(tmp_path / "job.sh")]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    finally:
        other.kill()
        other.wait()
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "", "")


@pytest.mark.parametrize("apart", ["", "user", "tracer"])
@pytest.mark.parametrize("kind", HELPERS)
def test_the_script_s_own_processes_are_none_of_the_run_s(
    tmp_path: Path, seconds: int, kind: str, apart: str
) -> None:
    told, _ = found_by_script(tmp_path, HELPERS[kind], seconds, apart)
    assert told == set()


OTHERS = {
    "another process": ["sleep", "600"],
    "of another run": ["env", "BAREBOAT_RUN=another-run", "sleep", "600"],
    "in a user namespace": ["unshare", "--user", "--map-root-user", "sleep", "600"],
    "with the beginning of the mark": ["env", "BAREBOAT_RUN=run-", "sleep", "600"],
    "with the mark in its arguments": ["bash", "-c", "sleep 600; :", "BAREBOAT_RUN=run-1"],
    "traced by none": ["setsid", "sleep", "600"],
}


@pytest.mark.parametrize("apart", ["", "user", "tracer"])
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("job", ["marked", "not marked"])
def test_others_processes_are_none_of_the_run_s(
    tmp_path: Path, seconds: int, kind: str, apart: str, job: str
) -> None:
    program, *more = OTHERS[kind]
    other = subprocess.Popen([tool(program), *more])
    try:
        told, there = found_by_script(tmp_path, JOBS[job], seconds, apart)
        assert there <= told
        assert other.pid not in told
        assert os.getpid() not in told
        assert os.getppid() not in told
    finally:
        other.kill()
        other.wait()


def test_a_script_with_the_same_command_line_is_another(tmp_path: Path, seconds: int) -> None:
    from bareboat import render

    text = (
        f"set -u\nunset BAREBOAT_RUN\nBAREBOAT_RUN=run-$$ run_apart=\n{render.subject('processes')}\n"
        f"export BAREBOAT_SCRIPT=$BAREBOAT_RUN\n{JOBS['not marked'].replace('$1', str(seconds))}\n"
        "echo $! > job\nsleep 1.5\nrun_pids > told\nread -r _\n"
    )
    folders = tmp_path / "a", tmp_path / "b"
    scripts = []
    for folder in folders:
        folder.mkdir()
        (folder / "job.sh").write_text(text)
        scripts.append(subprocess.Popen([tool("bash"), "job.sh"], cwd=folder, stdin=subprocess.PIPE))
    try:
        for folder in folders:
            assert wait_until(lambda at=folder / "told": at.exists() and bool(at.read_text()))  # type: ignore[misc]
            assert (folder / "told").read_text() == (folder / "job").read_text()
    finally:
        for script in scripts:
            script.kill()
            script.communicate()
        kill(left(seconds))


def test_what_shares_a_container_s_user_namespace_is_the_run_s(tmp_path: Path, seconds: int) -> None:
    """A daemon that has lost mark, session and parent, in the namespace of one that is marked."""
    inner = f"(setsid env -i sleep {seconds} &); sleep {seconds}"
    start = f'env BAREBOAT_RUN="$BAREBOAT_RUN" unshare --user bash -c "{inner}" &'
    told, there = found_by_script(tmp_path, start, seconds, "user")
    assert len(there) >= 2
    assert there <= told


@pytest.mark.parametrize("store", ["runs", "a store/runs"])
@pytest.mark.parametrize("beside", ["", 'env BAREBOAT_RUN="$3" sleep "$1" &'])
def test_a_daemon_in_a_container_ends_with_a_job_that_succeeds(
    tmp_path: Path, seconds: int, beside: str, store: str
) -> None:
    """On a node, where the script is nobody's subreaper; also where a marked process ends before it."""
    from bareboat import render

    directory, other = tmp_path / store / "run-1/ranks", tmp_path / "other/runs/run-1/ranks"
    for each in (directory, other):
        each.mkdir(parents=True)
        (each.parent / "seen").mkdir()
    daemon = 'mount --bind "$2" "$2/../seen" && { setsid env -i sleep "$1" & }; ' + beside
    start = f"env -u BAREBOAT_SCRIPT unshare --user --map-root-user --mount bash -c '{daemon}' x"
    (tmp_path / "job.sh").write_text(
        f"set -u\nunset BAREBOAT_RUN\nBAREBOAT_RUN=run-$1 BAREBOAT_RUN_DIR=$2\nrun_apart=user\n"
        f"{render.subject('processes')}\nexport BAREBOAT_SCRIPT=$BAREBOAT_RUN\n"
        f'{start} "$1" "$2" "$BAREBOAT_RUN"\n{start} "$4" "$3" another-run\nsleep 0.5\nend_left\n'
    )
    of_another_store = seconds - 1
    argv = [tool("bash"), str(tmp_path / "job.sh"), str(seconds), str(directory), str(other)]
    script = subprocess.Popen(
        [*argv, str(of_another_store)], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        assert script.wait(30) == 0
        assert left(of_another_store)
        assert wait_until(lambda: not left(seconds), limit_s=2), left(seconds)
    finally:
        kill(left(of_another_store))
        script.kill()
        script.wait()


def test_setproctitle_from_pypi_does_not_save_a_process(
    captured: Captured, tmp_path: Path, seconds: int
) -> None:
    import setproctitle as package

    folder = Path(package.__file__).parent
    program = (
        f"import os, sys, time\nsys.path.insert(0, {str(folder.parent)!r})\nimport setproctitle\n"
        "setproctitle.setproctitle(sys.argv[1] + ' ' + 'x' * 5000)\n"
        "assert b'BAREBOAT_RUN' not in open('/proc/self/environ', 'rb').read()\n"
        "open('ready', 'w').close()\ntime.sleep(int(sys.argv[1]))\n"
    )
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "job.toml").write_text(
        f'image = "{captured.image.digest}"\nengine = "native"\nlauncher = "single"\n'
        f'command = ["python", "program.py", "{seconds}"]\n'
    )
    process = start_bareboat("run", "job.toml", store=captured.store.root, cwd=tmp_path)
    try:
        assert wait_until(lambda: (tmp_path / "ready").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        assert left(seconds)
        process.kill()
        assert wait_until(lambda: not left(seconds), limit_s=30)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shed", ["env -i setsid", "env -i", "setsid"])
def test_what_a_command_leaves_behind_ends_with_its_run(
    captured: Captured, tmp_path: Path, seconds: int, engine: str, shed: str
) -> None:
    """Also when the command itself ended well."""
    command = f"({shed} sleep {seconds} </dev/null >/dev/null 2>&1 &) ; exit 0"
    (tmp_path / "job.toml").write_text(
        f'image = "{captured.image.digest}"\nengine = "{engine}"\nlauncher = "single"\n'
        f"command = ['sh', '-c', '{command}']\n"
    )
    process = start_bareboat("run", "job.toml", store=captured.store.root, cwd=tmp_path)
    assert process.wait(60) == 0, process.communicate()
    assert wait_until(lambda: not left(seconds), limit_s=25), left(seconds)
