"""Values of environment variables on real clusters: they arrive at every rank, and stand in no argv and in no
file of Bareboat's on the way."""

import contextlib
import hashlib
import os
import subprocess
import threading
from pathlib import Path

import pytest
from desks import Desk, queue_desk, ranks_said

KEPT, PASSED = "canary-kept-41c7e2", "canary-passed-9a3d58 it's \\ of \u00fcs"

SAYS = """
import hashlib, os, time
for name in ("MY_SETTING", "MY_API_KEY"):
    print(hashlib.sha256(os.environb[name.encode()]).hexdigest(), flush=True)
time.sleep(2)
"""

#: The value comes by standard input, since what the login node is asked is an argv.
_EXPORT = 'IFS= read -r MY_API_KEY; export MY_API_KEY; exec "$@"'


@pytest.fixture(params=["slurm", "torque", "gridengine"])
def desk(request: pytest.FixtureRequest, python: Path, tmp_path: Path) -> Desk:
    made = queue_desk(request, python, tmp_path.name)
    (made.folder / "says.py").write_text(SAYS)
    return made


def submit(desk: Desk, job: Path, *, given: bool = True) -> subprocess.CompletedProcess[str]:
    words: list[str | Path] = ["bareboat", "submit", "-v", job]
    return desk.up.login(
        ["bash", "-c", _EXPORT, "with", *words] if given else words,
        check=False, cwd=desk.folder, environment=desk.environment, path=desk.path, stdin=f"{PASSED}\n",
    )  # fmt: skip


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


@pytest.mark.one_in(3)
def test_a_variable_reaches_every_rank_and_no_argv_and_no_file(desk: Desk) -> None:
    more = 'launcher = "ranks"\nenvironment_from = ["MY_API_KEY"]\nenvironment = {MY_SETTING = "%s"}' % KEPT  # noqa: UP031
    job = desk.job("secret", ["python", "says.py"], nodes=2, more=more)
    seen: set[bytes] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if any(value.encode() in words for value in (KEPT, PASSED)):
                        seen.add(words[:1000])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        done = submit(desk, job)
        assert done.returncode == 0, done.stderr
        run = done.stdout.strip()
        log = desk.wait(run)
    finally:
        stop.set()
        thread.join()
    said = ranks_said(log)
    assert sorted(said) == [0, 1, 2, 3], log
    for lines in said.values():
        assert lines == [digest(KEPT), digest(PASSED)]
    assert seen == set()
    status = desk.bareboat("status", run, "--json").stdout
    for text in (done.stdout, done.stderr, log, status):
        assert KEPT not in text
        assert "canary-passed" not in text
    folder = desk.store / "runs" / run
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in (path for path in (*folder.rglob("*"), *desk.folder.rglob("*")) if path.is_file()):
        content = path.read_bytes()
        assert b"canary-passed" not in content, path
        if KEPT.encode() in content and path != job:
            assert path.name in ("job.sh", "shell.sh", "provenance.json"), path
            assert path.stat().st_mode & 0o777 == 0o600


def test_a_variable_that_is_not_set_is_refused_before_the_queue(desk: Desk) -> None:
    more = 'launcher = "ranks"\nenvironment_from = ["MY_API_KEY"]'
    done = submit(desk, desk.job("unset", ["python", "says.py"], nodes=2, more=more), given=False)
    assert done.returncode == 2
    assert "not set in this shell: MY_API_KEY" in done.stderr
    assert done.stdout == ""
