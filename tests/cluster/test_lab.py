"""The clusters of the tests prove themselves: what the other tests here take for granted is true."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clusters import PREFIX, SCRIPT, Cluster, ClusterError, Process, bring_up, cluster, need
from tools import tool


def submit(up: Cluster, *arguments: str | Path) -> str:
    """A job's number."""
    return up.login(["sbatch", "--parsable", *arguments]).stdout.strip()


# --- the machines -------------------------------------------------------------------------------------------


@pytest.fixture(params=["slurm", "gridengine"])
def site(request: pytest.FixtureRequest) -> Cluster:
    """Each of the clusters."""
    up = request.getfixturevalue(request.param)
    assert isinstance(up, Cluster)
    return up


def test_each_machine_is_one_of_its_own(site: Cluster) -> None:
    look = "hostname; ip -4 -o addr show eth0 | awk '{print $4}'"
    found = [site.node(name, look).stdout.split() for name in site.nodes]
    assert found == [["c1", "10.77.0.1/24"], ["c2", "10.77.0.2/24"], ["c3", "10.77.0.3/24"]]
    site.node("c1", "echo here > /tmp/mark; echo here > /dev/shm/mark")
    assert "No such file" in site.node("c2", "cat /tmp/mark", check=False).stderr
    assert "No such file" in site.node("c2", "cat /dev/shm/mark", check=False).stderr
    assert not Path("/tmp/mark").exists()


def test_you_are_yourself_and_the_home_is_everywhere(site: Cluster) -> None:
    site.node("c1", "id -u > from-c1")
    assert (site.home / "from-c1").read_text() == f"{os.getuid()}\n"
    assert (site.home / "from-c1").stat().st_uid == os.getuid()
    (site.home / "from-outside").write_text("outside\n")
    for name in ("c3", "login"):
        run = site.login if name == "login" else lambda line: site.node("c3", line)
        done = run("pwd; cat from-c1 from-outside; id -u; echo $HOME")
        assert done.stdout.split() == [
            str(site.home),
            str(os.getuid()),
            "outside",
            str(os.getuid()),
            str(site.home),
        ]


def test_processes_of_one_node_are_not_seen_on_another(site: Cluster) -> None:
    mark = f"BAREBOAT_TEST={os.getpid()}"
    words = [str(SCRIPT), "node", str(site.folder), "c1", "env", mark, "sleep", "300"]
    sleeper = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        site.wait(lambda: site.processes("c1", mark), "the process on c1")
        (found,) = site.processes("c1", mark)
        assert found.command == "sleep 300"
        assert site.processes("c2", mark) == site.processes("login", mark) == []
        assert found in site.processes("c1")
        site.node("c1", ["kill", str(found.pid)])
        assert sleeper.wait(30) == -signal.SIGTERM
        assert site.processes("c1", mark) == []
    finally:
        sleeper.kill()
        sleeper.wait()


def test_nothing_of_the_caller_leaks_in(site: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAK", "1")
    names = {line.split("=")[0] for line in site.login("env").stdout.splitlines()}
    assert names <= {"HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "PATH", "PWD", "SHLVL", "_"}


def test_from_node_to_node_by_ssh(site: Cluster) -> None:
    line = "ssh c1 ssh c2 ssh c3 ssh login hostname"
    assert site.login(line).stdout == "login\n"


def test_each_site_has_its_own_commands_only(slurm: Cluster, gridengine: Cluster) -> None:
    look = "command -v sbatch qsub; true"
    assert slurm.login(look).stdout == "/usr/bin/sbatch\n"
    assert gridengine.login(look).stdout == "/usr/bin/qsub\n"
    assert slurm.login(look, path=slurm.torque_path).stdout.split()[-1] == str(PREFIX / "torque/bin/qsub")


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


def test_two_clusters_beside_one_another(slurm: Cluster, tmp_path: Path) -> None:
    with cluster(tmp_path / "two", nodes=1, gpus=0) as two:
        job = submit(two, "-p", "closed", "--wrap", "true")
        assert two.login("squeue -h -a -o %i").stdout.split() == [job]
        assert slurm.login("squeue -h -a -o %i").stdout.split() == []
        assert two.login("srun hostname").stdout == "c1\n"


def test_a_folder_holds_one_cluster(slurm: Cluster) -> None:
    with pytest.raises(ClusterError, match="a cluster is up in"):
        bring_up(slurm.folder)
    done = subprocess.run([SCRIPT, "login", "/nowhere", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no cluster is up" in done.stderr


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
