"""Jobs that tests hand to a cluster by Fairlead, as its user does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from clusters import Cluster

#: Fairlead's own environment is the login node's only; what jobs run is installed on all nodes.
LAB = Path("/opt/fairlead-lab")


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
        f'command = ["{python}", "script.py"]\nscheduler = "slurm"\nwalltime_s = 300\n{more}\n'
        f"[topology]\nnodes = {nodes}\nranks_per_node = {ranks}\n"
        f'[capture]\npython = "{python}"\n{capture}\n'
    )
    return job


def run_job(up: Cluster, job: Path, *options: str, path: str | None = None) -> Ended:
    """Submit, and wait for the end."""
    submitted = up.login(["fairlead", "submit", "--json", job, *options], cwd=job.parent, path=path)
    run_id = json.loads(submitted.stdout)["run_id"]
    waited = up.login(["fairlead", "wait", run_id], cwd=job.parent, check=False, timeout_s=240)
    log = up.login(["fairlead", "logs", run_id], cwd=job.parent, check=False)
    return Ended(run_id, waited.returncode, log.stdout + log.stderr)
