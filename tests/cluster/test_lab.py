"""The clusters of the tests prove themselves: what the other tests here take for granted is true."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clusters import SCRIPT, Cluster, Process, cluster, need
from tools import tool

# --- the machines -------------------------------------------------------------------------------------------


@pytest.fixture(params=["slurm", "gridengine"])
def site(request: pytest.FixtureRequest) -> Cluster:
    """Each of the clusters."""
    up = request.getfixturevalue(request.param)
    assert isinstance(up, Cluster)
    return up


def test_from_node_to_node_by_ssh(site: Cluster) -> None:
    line = "ssh c1 ssh c2 ssh c3 ssh login hostname"
    assert site.login(line).stdout == "login\n"


# --- the end ------------------------------------------------------------------------------------------------


def namespace(pid: int | str) -> str | None:
    """A process's user namespace."""
    try:
        return os.readlink(f"/proc/{pid}/ns/user")
    except OSError:
        return None


def members(of: str) -> list[str]:
    """The processes of a user namespace; a zombie is none, it waits for this machine's init to count it."""
    found = [pid for pid in os.listdir("/proc") if pid.isdigit() and namespace(pid) == of]
    return [line for pid in found if (line := command_line(pid))]


def test_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with cluster(folder, nodes=1) as up:
        own = namespace(int((folder / "pid").read_text()))
        assert own is not None
        assert own != namespace("self")
        up.login("sbatch --wrap 'sleep 300'; sleep 300 >/dev/null 2>&1 & disown")
        up.wait(lambda: named(up, "c1", "", "sleep 300"), "the job's start")
        assert len(members(own)) > 5
    assert members(own) == []
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    assert not any(folder.name in line and str(folder) in line for line in commands())
    # The logs are a subordinate user's, and go all the same.
    shutil.rmtree(folder)


def test_a_cluster_ends_with_who_brought_it_up(tmp_path: Path) -> None:
    need("slurm")
    folder = tmp_path / "one"
    program = (
        "import os, sys, pathlib; from clusters import bring_up\n"
        "up = bring_up(pathlib.Path(sys.argv[1]), nodes=1); os.kill(os.getpid(), 9)\n"
    )
    here = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program, folder], env={**os.environ, "PYTHONPATH": str(here)}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    end = time.monotonic() + 10
    while any(str(folder) in line for line in commands()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(str(folder) in line for line in commands())


def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    scripts = sorted(SCRIPT.parent.glob("*.sh"))
    done = subprocess.run([tool("shellcheck"), "-x", *scripts], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert len(scripts) > 5


# --- helpers ------------------------------------------------------------------------------------------------


def named(up: Cluster, node: str, mark: str, command: str) -> list[Process]:
    return [process for process in up.processes(node, mark) if process.command.endswith(command)]


def command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def commands() -> list[str]:
    """The command lines of all processes here that belong to a cluster."""
    found = [command_line(pid) for pid in filter(str.isdigit, os.listdir("/proc"))]
    return [line for line in found if "site.sh" in line or "node.sh" in line]
