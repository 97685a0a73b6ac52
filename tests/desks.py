"""Where a user of a cluster works: a folder and a store in the shared home, Bareboat on the login node."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster

from bareboat_base.toml import TomlFile

#: Seconds. A job's start, its containers' and its end; far above what they take here.
PATIENCE_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A way to hand jobs over on one cluster."""

    up: Cluster
    #: The scheduler's name in Bareboat, and PATH on the login node.
    scheduler: str
    path: str
    #: The interpreter whose environment is captured. Login nodes see it, compute nodes do not.
    python: Path
    folder: Path

    @property
    def store(self) -> Path:
        return self.up.home / "store"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "BAREBOAT_STORE": str(self.store),
            "BAREBOAT_SCHEDULER": self.scheduler,
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }

    def bareboat(
        self, *arguments: str | Path, code: int | None = 0, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a verb on the login node; `code` is the exit code that it must have, None for any."""
        done = self.up.login(
            ["bareboat", *arguments],
            check=False, cwd=self.folder, environment=self.environment, path=self.path, timeout_s=timeout_s,
        )  # fmt: skip
        said = f"bareboat {arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert code is None or done.returncode == code, said
        assert "Traceback" not in done.stderr, said
        return done

    def start(self, *arguments: str | Path) -> subprocess.Popen[bytes]:
        """Start a verb there that the caller watches."""
        words = self.up.login_words(
            ["bareboat", *arguments], cwd=self.folder, environment=self.environment, path=self.path
        )
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def job(
        self, name: str, command: Sequence[str], *, nodes: int = 3, ranks_per_node: int = 2, more: str = "",
        **topology: int,
    ) -> Path:  # fmt: skip
        """A job file; `more` stands before its tables, or brings tables of its own."""
        lines = [f"command = {json.dumps(list(command))}", more]
        lines += ["[topology]", f"nodes = {nodes}", f"ranks_per_node = {ranks_per_node}"]
        lines += [f"{key} = {value}" for key, value in topology.items()]
        lines += ["[capture]", f"python = {json.dumps(str(self.python))}"]
        path = self.write(f"{name}.toml", "\n".join(lines) + "\n")
        assert TomlFile(path).values["command"]
        return path

    def job_of_whole_nodes(self, name: str, command: Sequence[str]) -> Path:
        """A job file whose ranks leave nothing of three nodes to another job."""
        more = 'launcher = "ranks"'
        if self.scheduler == "gridengine":
            return self.job(name, command, ranks_per_node=1, cpus_per_rank=4, more=more)
        # Torque's is that of the whole job, which Slurm's front end for it takes for a node's.
        memory_bytes = 16_000_000_000 // (3 if self.scheduler == "pbs" else 1)
        more += f"\n[scheduling]\nmem_per_node_bytes = {memory_bytes}"
        return self.job(name, command, ranks_per_node=1, cpus_per_rank=2, more=more)

    def submit(self, *arguments: str | Path) -> str:
        """A run's name."""
        return self.bareboat("submit", *arguments).stdout.strip()

    def status(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.bareboat("status", run, "--json", code=None).stdout)[0]
        return found

    def record(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.store / "runs" / run / "record.json").read_text())
        return found

    def record_of_plan(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.store / "runs" / run / "plan.json").read_text())
        return found

    def wait(self, run: str, *, code: int = 0) -> str:
        """Wait for the run's end and for its exit code; what it printed."""
        done = self.bareboat("wait", run, code=None)
        log = self.log(run)
        assert done.returncode == code, (
            f"exit code {done.returncode}\n{done.stderr}\n{log}\n{self.up.queue()}"
        )
        return log

    def log(self, run: str) -> str:
        path = self.store / "runs" / run / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def left(self, run: str) -> list[str]:
        """The run's processes on all compute nodes that are on."""
        on = [name for name in self.up.nodes if (self.up.folder / "nodes" / f"{name}.pid").exists()]
        return [f"{node}: {process.command}" for node in on for process in self.up.processes(node, run=run)]


def desk_on(up: Cluster, name: str, python: Path, folder: str) -> Desk:
    """A new directory for `name`: a scheduler, or `torque`, whose commands hand over to Slurm."""
    is_torque = name == "torque"
    made = Desk(
        up=up, scheduler="pbs" if is_torque else name, path=up.torque_path if is_torque else up.path,
        python=python, folder=up.home / f"{name}-{folder}",
    )  # fmt: skip
    made.folder.mkdir()
    return made


def queue_desk(request: pytest.FixtureRequest, python: Path, folder: str) -> Desk:
    """The same for the name that is the parameter of a fixture, on the cluster that has it."""
    up = request.getfixturevalue("gridengine" if request.param == "gridengine" else "slurm")
    assert isinstance(up, Cluster)
    return desk_on(up, request.param, python, folder)


def ranks_said(log: str) -> dict[int, list[str]]:
    """What each rank printed, by the job's output."""
    found: dict[int, list[str]] = {}
    for line in log.splitlines():
        if line.startswith("[rank "):
            number, _, rest = line.removeprefix("[rank ").partition("] ")
            found.setdefault(int(number), []).append(rest)
    return found


def on_nodes(up: Cluster) -> list[str]:
    """What lies in the scratch folders of all nodes that jobs bring their images to."""
    found = []
    for node in up.nodes:
        found += up.node(node, "find /tmp -path '/tmp/bareboat-*' -maxdepth 3").stdout.split()
    return found
