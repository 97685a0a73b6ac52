"""Jobs that tests hand to a cluster by Bareboat, as its user does."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from clusters import PATIENCE_S, TREE, Cluster
from tools import LAB, tool

#: Bareboat's own environment is the login node's only; what jobs run is installed on all nodes.
MPI = LAB / "mpi" / "debian" / "bin" / "python"
TORCH = LAB / "frameworks" / "lightning" / "bin" / "python"


def need_on_nodes(python: Path) -> None:
    """Skip where the nodes do not have this interpreter."""
    if not (Path(TREE or "/") / python.relative_to("/")).exists():
        script = "cluster/second-site.sh" if TREE else "mpi-pairs.sh" if python == MPI else "frameworks.sh"
        pytest.skip(f"{python} is not on the nodes: sudo tests/lab/{script}")


def need_program(name: str) -> None:
    """Skip where the nodes do not have this program."""
    if not TREE:
        tool(name)
    elif shutil.which(name, path=f"{TREE}/usr/bin:{TREE}/usr/sbin") is None:
        pytest.skip(f"{name} is not in {TREE}")


@dataclass(frozen=True)
class Ended:
    """A job that ended. `log`: what its ranks said."""

    run_id: str
    code: int
    log: str


def write_job(
    up: Cluster,
    name: str,
    python: Path,
    script: str,
    *,
    nodes: int = 2,
    ranks: int = 2,
    more: str = "",
    capture: str = "",
) -> Path:
    """A job file in the shared home for a script of its own. `more`, `capture`: further lines of TOML."""
    folder = up.home / name
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(script)
    job = folder / f"{name}.toml"
    job.write_text(
        f'command = ["{python}", "script.py"]\nscheduler = "{up.site}"\nwalltime_s = 300\n{more}\n'
        f"[topology]\nnodes = {nodes}\nranks_per_node = {ranks}\n"
        f'[capture]\npython = "{python}"\n{capture}\n'
    )
    return job


def run_job(
    up: Cluster,
    job: Path,
    *options: str,
    path: str | None = None,
    environment: dict[str, str] | None = None,
    submit_limit_s: float = PATIENCE_S,
    limit_s: float = 240,
) -> Ended:
    """Submit, and wait for the end. `submit_limit_s`: what is missing is made first."""
    submitted = up.login(
        ["bareboat", "submit", "--json", job, *options],
        cwd=job.parent,
        path=path,
        environment=environment,
        timeout_s=submit_limit_s,
    )
    run_id = json.loads(submitted.stdout)["run_id"]
    waited = up.login(["bareboat", "wait", run_id], cwd=job.parent, check=False, timeout_s=limit_s)
    log = up.login(["bareboat", "logs", run_id], cwd=job.parent, check=False)
    return Ended(run_id, waited.returncode, log.stdout + log.stderr)


@contextlib.contextmanager
def pip_finds(up: Cluster, *folders: Path) -> Iterator[None]:
    """pip on the login node, which has no way out, finds what lies there, by its own settings."""
    settings = up.home / ".config" / "pip" / "pip.conf"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("[global]\nno-index = true\nfind-links = " + "\n  ".join(map(str, folders)) + "\n")
    try:
        yield
    finally:
        settings.unlink()
