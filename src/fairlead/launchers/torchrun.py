"""torchrun: PyTorch's own launcher, one per node, inside the container.

Documentation: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from fairlead.launchers import Launchable, NotLaunchable
from fairlead.model import Command, Image, Joined, Position, Topology, Variable, Where

NAME = "torchrun"
POSITION = Position.INSIDE
RANK_LOG = "logs/*/attempt_0/$rank"

#: torchrun itself ends with 1 whatever its ranks said. This keeps each rank's own exit code, in the order
#: of their ends, so that the first failure is known and passed on.
_KEEP_EXIT_CODE = '"$@"; code=$?; echo "$RANK $code" >> "$FAIRLEAD_RUN_DIR/exits"; exit "$code"'


def judge(command: tuple[str, ...], topology: Topology, image: Image | None) -> Launchable | NotLaunchable:
    if not command[0].rpartition("/")[2].startswith("python"):
        return NotLaunchable(
            f"it starts Python scripts, and the command starts {command[0]!r}",
            remedy='write the command as ["python", "train.py", …]',
        )
    if topology.nodes > 1:
        return NotLaunchable(
            "on one machine it starts the ranks of one node", remedy="set nodes = 1 under [topology]"
        )
    if image is not None and "torch" not in image.frameworks:
        return NotLaunchable("PyTorch is not in the environment", remedy="pip install torch")
    return Launchable(f"PyTorch's launcher starts {topology.ranks_per_node} ranks and gives them their names")


def wrap(command: Command, topology: Topology, python: str) -> Command:
    environment = {
        # One node: everything goes over loopback. Otherwise gloo looks the host's name up, which fails or
        # waits where the name does not resolve.
        "GLOO_SOCKET_IFNAME": "lo",
        # Left alone each rank starts a thread per core, and the ranks fight for them.
        "OMP_NUM_THREADS": str(topology.cpus_per_rank or 1),
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank ${rank}] ",
    }
    argv = (
        python, "-m", "torch.distributed.run",
        # --standalone: a free port is found, so two jobs on one machine never meet.
        "--standalone", "--local-addr=127.0.0.1",
        f"--nproc-per-node={topology.ranks_per_node}",
        "--max-restarts=0",
        "--tee=3", Joined(("--log-dir=", Variable("FAIRLEAD_RUN_DIR"), "/logs")),
        "--no-python",
        "/bin/sh", "-c", _KEEP_EXIT_CODE, "rank",
    )  # fmt: skip
    return Command(
        argv=(*argv, *command.argv),
        environment={**environment, **command.environment},
        workdir=command.workdir,
        where=Where.NODE,
    )
