"""The relay that starts an image's mpirun over several nodes; here the nodes are processes of one machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import said
from registries import free_port
from tools import started
from watch import wait_until

from bareboat.mpi import relay

SECRET = "0123456789abcdef" * 4

#: A node: the relay, with a name and a patience of its own.
NODE = f"""
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("relay", {relay.__file__!r})
relay = importlib.util.module_from_spec(spec)
spec.loader.exec_module(relay)
relay.socket.gethostname = lambda: os.environ["NODE"]
relay._folder = lambda _: relay.tempfile.mkdtemp()  # they have one /tmp
relay._PATIENCE_S = float(os.environ.get("PATIENCE", "20"))
sys.exit(relay.main(sys.argv[1:]))
"""


class Nodes:
    """Starts the relay as the job script does on every node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self, node: int, nodes: int, *command: str, launcher: int = 0, check: int = 0, secret: str = SECRET,
        patience: float = 20,
    ) -> subprocess.Popen[str]:  # fmt: skip
        process = started(
            [
                sys.executable, "-c", NODE, "--node", str(node), "--nodes", str(nodes), "--ranks", "2",
                "--master", "127.0.0.1", "--port", str(self.port),
                "--launcher", str(launcher), "--check", str(check), "--", *command,
            ],
            env={
                **os.environ, "NODE": f"c{node + 1}", "PATIENCE": str(patience), "BAREBOAT_RUN": "a-run",
                "BAREBOAT_SECRET": secret,
            },
            cwd=self.folder, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    found = Nodes(tmp_path)
    yield found
    for process in found.started:
        process.kill()
        process.communicate(timeout=20)


#: In the place of mpirun: starts a daemon on the second node by its "ssh", and then the command.
MPIRUN = (
    "shift; agent=$1 hosts=$2 names=$3; shift 3; "
    '"$agent" -x me@c2 "$DAEMON" || exit; echo "$hosts $names"; "$@"'
)


def mpirun(daemon: str) -> tuple[str, ...]:
    return (
        "/bin/sh",
        "-c",
        f"DAEMON='{daemon}'; {MPIRUN}",
        "mpirun",
        "-",
        "AGENT",
        "HOSTS",
        "NAMES",
    )


def test_the_launchers_ssh_runs_a_command_on_the_other_node(nodes: Nodes) -> None:
    start = mpirun("echo daemon on $NODE")
    lead = nodes.start(0, 2, *start, "sh", "-c", "echo job; exit 7", launcher=len(start))
    other = nodes.start(1, 2, "-")
    assert said(lead)[:2] == (7, "c1:2,c2:2 c1,c2\njob\n")
    assert said(other)[:2] == (0, "daemon on c2\n")


def test_a_daemon_does_not_read_the_profile_of_the_working_directory(nodes: Nodes) -> None:
    """OpenMPI's line for its "ssh" does, where the user's shell is sh."""
    (nodes.folder / ".profile").write_text("NODE=profile\n")
    start = mpirun("( test ! -r ./.profile || . ./.profile; echo daemon on $NODE )")
    lead = nodes.start(0, 2, *start, "sh", "-c", "echo job", launcher=len(start))
    other = nodes.start(1, 2, "-")
    assert said(lead)[0] == 0
    assert said(other)[:2] == (0, "daemon on c2\n")


def test_a_daemons_exit_code_is_that_of_the_ssh(nodes: Nodes) -> None:
    start = mpirun("exit 5")
    lead = nodes.start(0, 2, *start, "true", launcher=len(start))
    nodes.start(1, 2, "-")
    assert said(lead)[0] == 5


def test_a_node_that_is_not_of_the_run_is_unknown(nodes: Nodes) -> None:
    start = ("/bin/sh", "-c", '"$1" c9 true; echo "$?"; shift; "$@"', "-", "AGENT")
    lead = nodes.start(0, 2, *start, "true", launcher=len(start))
    nodes.start(1, 2, "-")
    code, out, _ = said(lead)
    assert (code, out) == (0, "255\n")


def test_an_ssh_that_is_ended_ends_its_daemon(nodes: Nodes) -> None:
    daemon = f"echo \\$\\$ > {nodes.folder}/pid; sleep 300"
    start = ("/bin/sh", "-c", f'"$1" c2 "{daemon}" & until [ -s {nodes.folder}/pid ]; do sleep 0.1; done; '
             'kill "$!"; sleep 2; shift; "$@"', "-", "AGENT")  # fmt: skip
    lead = nodes.start(0, 2, *start, "echo", "job", launcher=len(start))
    nodes.start(1, 2, "-")
    assert said(lead)[:2] == (0, "job\n")
    assert not Path("/proc", (nodes.folder / "pid").read_text().strip()).exists()


def test_a_lost_node_ends_the_launcher(nodes: Nodes) -> None:
    start = ("/bin/sh", "-c", 'echo up; exec "$@"', "-")
    lead = nodes.start(0, 2, *start, "sleep", "300", launcher=len(start))
    other = nodes.start(1, 2, "-")
    assert lead.stdout is not None
    assert lead.stdout.readline() == "up\n"
    other.kill()
    code, _, _ = said(lead)
    assert code != 0


def test_the_other_nodes_end_with_the_first(nodes: Nodes) -> None:
    script = (
        f'"$1" c2 "echo \\$\\$ > {nodes.folder}/pid; exec sleep 300" & '
        f'until [ -s {nodes.folder}/pid ]; do sleep 0.1; done; echo up; shift; exec "$@"'
    )
    start = ("/bin/sh", "-c", script, "-", "AGENT")
    lead = nodes.start(0, 2, *start, "sleep", "300", launcher=len(start))
    other = nodes.start(1, 2, "-")
    assert lead.stdout is not None
    assert lead.stdout.readline() == "up\n"
    lead.kill()
    assert said(other)[0] == 1
    daemon = Path("/proc", (nodes.folder / "pid").read_text().strip())
    assert wait_until(lambda: not daemon.exists())


@pytest.mark.parametrize("secret", ["", "ab", "no hexadecimal digits at all, but long enough"])
def test_a_secret_that_is_empty_is_none(nodes: Nodes, secret: str) -> None:
    code, _, err = said(nodes.start(0, 2, "echo", launcher=1, secret=secret))
    assert code == 1
    assert "the run's secret is missing" in err


def test_the_launcher_and_the_daemons_do_not_get_the_secret(nodes: Nodes) -> None:
    start = mpirun('echo "daemon ${BAREBOAT_SECRET-none}"')
    lead = nodes.start(0, 2, *start, "sh", "-c", 'echo "job ${BAREBOAT_SECRET-none}"', launcher=len(start))
    other = nodes.start(1, 2, "-")
    assert said(lead)[1].splitlines()[-1] == "job none"
    assert said(other)[1] == "daemon none\n"


def test_one_node_needs_nobody(nodes: Nodes) -> None:
    lead = nodes.start(0, 1, "env", "sh", "-c", 'echo "${BAREBOAT_RUN-unmarked} $BAREBOAT_MARK"', launcher=1)
    assert said(lead)[:2] == (0, "unmarked a-run\n")


def test_a_proof_that_fails_is_shown_and_stops_the_job(nodes: Nodes) -> None:
    command = ("env", "sh", "-c", "echo each alone; exit 3", "echo", "job")
    code, out, _ = said(nodes.start(0, 1, *command, launcher=1, check=3))
    assert (code, out) == (3, "")


def test_a_proof_that_holds_is_silent(nodes: Nodes) -> None:
    command = ("env", "sh", "-c", "echo one world", "echo", "job")
    assert said(nodes.start(0, 1, *command, launcher=1, check=3)) == (0, "job\n", "")


def test_a_launcher_that_dies_of_a_signal(nodes: Nodes) -> None:
    command = ("env", "sh", "-c", "kill -9 $$")
    assert said(nodes.start(0, 1, *command, launcher=1))[0] == 137
