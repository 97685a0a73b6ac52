"""Real clusters that the tests bring up and switch off: tests/lab/cluster/cluster.sh, with handles."""

import contextlib
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tools import completed

SCRIPT = Path(__file__).parent / "lab" / "cluster" / "cluster.sh"

#: What install-clusters.sh put aside.
PREFIX = Path(os.environ.get("PREFIX", "/opt/bareboat-lab"))

#: The system of the nodes: a tree that second-site.sh made; none: this machine's.
TREE = os.environ.get("BAREBOAT_LAB_TREE", "")

#: Seconds. Far above what anything takes here; a test that waits this long has failed.
PATIENCE_S = 120.0

_PROCESSES = r"""
import os, re, sys
owner, variable = int(sys.argv[1]), re.compile(os.fsencode(sys.argv[2]))
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if os.stat(f"/proc/{pid}").st_uid != owner:
            continue
        environment = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
        words = open(f"/proc/{pid}/cmdline", "rb").read().rstrip(b"\0").split(b"\0")
    except OSError:  # it ended meanwhile
        continue
    # A zombie, which has neither, only waits to be counted.
    if words != [b""] and any(map(variable.fullmatch, environment)):
        print(pid, os.fsdecode(b" ".join(words)).replace("\n", " "))
"""


class ClusterError(Exception):
    """A command on the cluster failed; with what it said."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the user's on a node, numbered as the node numbers it."""

    pid: int
    command: str


@dataclass(slots=True)
class Cluster:
    """A cluster that is up."""

    #: Its folder. Only `home` is seen by compute nodes.
    folder: Path
    site: str
    #: Compute nodes.
    nodes: tuple[str, ...]
    #: In front of the PATH of what runs on the login node.
    programs: list[Path] = field(default_factory=list)
    _power: subprocess.Popen[str] | None = None

    @property
    def home(self) -> Path:
        """The user's home folder, at the same path on all nodes and here."""
        return self.folder / "home"

    @property
    def logs(self) -> Path:
        """The daemons' logs."""
        return self.folder / "log"

    @property
    def path(self) -> str:
        """PATH on the login node."""
        return ":".join([*map(str, self.programs), "/usr/local/bin:/usr/bin:/bin"])

    @property
    def torque_path(self) -> str:
        """PATH on the login node with the Torque commands before all others."""
        return f"{torque()}:{self.path}"

    def login(
        self,
        command: str | Sequence[str | Path],
        *,
        check: bool = True,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
        path: str | None = None,
        stdin: str = "",
        timeout_s: float = PATIENCE_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell line, or words as they are, as the user on the login node, as after a fresh login."""
        return self._run(
            self.login_words(command, cwd=cwd, environment=environment, path=path), check, stdin, timeout_s
        )

    def login_words(
        self,
        command: str | Sequence[str | Path],
        *,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
        path: str | None = None,
    ) -> list[str]:
        """The same as an argument vector, for a process that the caller starts and watches."""
        where = ["-C", str(cwd)] if cwd else []
        given = {"PATH": path or self.path, **(environment or {})}
        return self._words(
            "login", "env", *where, *(f"{name}={value}" for name, value in given.items()), *_argv(command)
        )

    def node(self, name: str, command: str | Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        """Run as the user on a compute node."""
        return self._run(self._words("node", name, *_argv(command)), True, "", PATIENCE_S)

    def root(
        self, name: str, command: str | Sequence[str | Path], *, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run as the cluster's root on a compute node, or on "login"."""
        return self._run(self._words("root", name, *_argv(command)), check, "", PATIENCE_S)

    def processes(self, name: str, mark: str = "", *, run: str = "") -> list[Process]:
        """The user's processes on a node, or on "login"; or those with NAME=value in their environment, or
        those of a run."""
        variable = f"BAREBOAT_RUN=[0-9a-f]{{16}}-{re.escape(run)}" if run else re.escape(mark) or "(?s).*"
        found = self.root(name, ["/usr/bin/python3", "-c", _PROCESSES, str(os.getuid()), variable]).stdout
        pairs = (line.split(" ", 1) for line in found.splitlines())
        return [Process(int(pid), command) for pid, command in pairs]

    def kill_node(self, name: str) -> None:
        """Power a node off: all its processes are gone at once, nothing is said to anybody."""
        self._run(self._words("kill-node", name), True, "", PATIENCE_S)

    def restart_node(self, name: str) -> None:
        """Power a node on that was off; it is in service some seconds later."""
        self._run(self._words("start-node", name), True, "", PATIENCE_S)

    def in_service(self) -> bool:
        """Whether each node waits for work, and no job is left."""
        if self.site == "gridengine":
            return not self.login("qstat -f -q main -qs uaE; qstat -u '*'").stdout.strip()
        said = self.login("squeue -h -a; sinfo -h -p main -t idle -o %D").stdout
        return said.strip() == str(len(self.nodes))

    def restore(self) -> None:
        """What a test leaves behind is taken away: its jobs are ended, its dead nodes powered on."""
        for name in self.nodes:
            if not (self.folder / "nodes" / f"{name}.pid").exists():
                self.restart_node(name)
        user = _user()
        if self.site == "gridengine":
            self.login(f"qdel -u {user}", check=False)
        else:
            self.login(f"scancel --user {user}", check=False)
        self.wait(self.in_service, "all nodes in service, and no job")

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Until a condition holds."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise ClusterError(f"not within {timeout_s:.0f} s: {what}\n{self.queue()}")
            time.sleep(0.2)

    def queue(self) -> str:
        """What the scheduler says of jobs and nodes, for messages."""
        command = "qstat -f -u '*'" if self.site == "gridengine" else "squeue -a; sinfo -N -l"
        return self.login(command, check=False).stdout

    def stop(self) -> None:
        """Everything is switched off; the folder stays."""
        subprocess.run([SCRIPT, "down", self.folder], check=True, timeout=PATIENCE_S)
        if self._power is not None:
            assert self._power.stdin is not None
            self._power.stdin.close()
            self._power.wait(PATIENCE_S)
            self._power = None

    def _words(self, verb: str, *words: str) -> list[str]:
        return [str(SCRIPT), verb, str(self.folder), *words]

    def _run(
        self, words: Sequence[str], check: bool, stdin: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        done = completed(words, input=stdin, timeout=timeout_s, errors="replace")
        if check and done.returncode != 0:
            raise ClusterError(
                f"exit code {done.returncode}: {shlex.join(words)}\n{done.stdout}{done.stderr}"
            )
        return done


def bring_up(folder: Path, site: str = "slurm", nodes: int = 3, gpus: int = 2) -> Cluster:
    """Bring a cluster up in a folder. It ends with stop(), or with this process, however that ends."""
    need(site)
    words = [
        str(SCRIPT),
        "up",
        str(folder),
        "--site",
        site,
        "--nodes",
        str(nodes),
        "--gpus",
        str(gpus),
        "--hold",
        *(["--tree", TREE] if TREE else []),
    ]
    with tempfile.TemporaryFile("w+") as said:
        # stdin stays open: it is what holds the cluster.
        power = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=said, stderr=said, text=True)
        code = power.wait(PATIENCE_S)
        said.seek(0)
        if code != 0:
            raise ClusterError(f"no {site} cluster:\n{said.read()}")
    names = tuple(f"c{number}" for number in range(1, nodes + 1))
    return Cluster(folder=folder, site=site, nodes=names, _power=power)


@contextlib.contextmanager
def cluster(folder: Path, site: str = "slurm", nodes: int = 3, gpus: int = 2) -> Iterator[Cluster]:
    """A cluster for the length of a block."""
    up = bring_up(folder, site, nodes, gpus)
    try:
        yield up
    finally:
        up.stop()


def installed_in_tree(up: Cluster, source: Path) -> Path:
    """`bin` of this checkout on nodes of another system, with the Python and the packages that it has."""
    folder = up.folder / "installed"
    folder.mkdir()
    program = folder / "bareboat"
    program.write_text(
        f"#!/usr/local/bareboat/bin/python\nimport sys\nsys.path.insert(0, {str(source)!r})\n"
        "from bareboat.cli.main import entry\nsys.exit(entry())\n"
    )
    program.chmod(0o755)
    return folder


def need_this_system() -> None:
    """Skip where the nodes have another one, which does not run or see what is made here."""
    if TREE:
        pytest.skip(f"the test is made for this machine, and the nodes have {TREE}")


def need_accounting() -> None:
    """Skip where Slurm has no accounting: it takes every account and qos, and keeps no ends of jobs."""
    if TREE:
        pytest.skip(f"{TREE} has no slurmdbd")


def torque() -> Path:
    """The folder of the Torque commands."""
    if TREE or not (PREFIX / "torque" / "bin" / "qsub").exists():
        pytest.skip("the Torque commands are not installed: sudo tests/lab/cluster/install-clusters.sh")
    return PREFIX / "torque" / "bin"


def need(site: str) -> None:
    """Skips where a cluster cannot be had; says what is missing."""
    if os.getuid() == 0:
        pytest.skip("a cluster is brought up by an ordinary user, not by root")
    programs = {
        "slurm": ("slurmctld", "slurmd", "slurmdbd", "mariadbd"),
        "gridengine": ("sge_qmaster", "sge_execd"),
    }
    for program in (*programs[site], "munged", "sshd", "newuidmap", "unshare", "nsenter"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            pytest.skip(f"{program} is not installed: sudo tests/lab/cluster/install-clusters.sh")


def _argv(command: str | Sequence[str | Path]) -> list[str]:
    return ["bash", "-c", command] if isinstance(command, str) else list(map(str, command))


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
