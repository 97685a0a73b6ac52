"""torchrun: PyTorch's own launcher, one per node, inside the container.

Documentation: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from fairlead.launchers import INTERFACE, Launchable, NotLaunchable, Passed, Surroundings, threads
from fairlead.model import Command, Job, Joined, Position, Start, Variable, Where, Word

NAME = "torchrun"
POSITION = Position.INSIDE
START = Start.NODES
RANK_LOG = "logs/$node/*/attempt_0/$local_rank"

#: torchrun itself ends with 1 whatever its ranks said. This keeps each rank's own exit code, in the order
#: of their ends, so that the first failure is known and passed on.
_KEEP_EXIT_CODE = '"$@"; code=$?; echo "$RANK $code" >> "$FAIRLEAD_RUN_DIR/exits.$GROUP_RANK"; exit "$code"'


def judge(job: Job, surroundings: Surroundings) -> Launchable | NotLaunchable:
    program = job.command[0]
    if not program.rpartition("/")[2].startswith("python"):
        return NotLaunchable(
            f"it starts Python scripts, and the command starts {program!r}",
            remedy='write the command as ["python", "train.py", …]',
        )
    if surroundings.image is not None and "torch" not in surroundings.image.frameworks:
        return NotLaunchable("PyTorch is not in the environment", remedy="pip install torch")
    if job.launcher != NAME and surroundings.image is not None and "horovod" in surroundings.image.frameworks:
        return NotLaunchable(
            "Horovod is in the environment, and takes its ranks from MPI or from Gloo",
            remedy='set launcher = "torchrun", for a script that uses torch.distributed',
        )
    nodes = f" on each of {job.topology.nodes} nodes" if job.topology.nodes > 1 else ""
    return Launchable(
        f"PyTorch's launcher starts {job.topology.ranks_per_node} ranks{nodes} and gives them their names"
    )


def wrap(command: Command, job: Job, surroundings: Surroundings) -> Command:
    topology = job.topology
    environment = {**threads(job), "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank ${rank}] "}
    rendezvous: tuple[Word, ...]
    if topology.nodes == 1:
        # Everything goes over loopback. Otherwise gloo looks the host's name up, which fails or waits where
        # the name does not resolve.
        environment["GLOO_SOCKET_IFNAME"] = "lo"
        # --standalone: a free port is found, so two jobs on one machine never meet.
        rendezvous = ("--standalone", "--local-addr=127.0.0.1")
    else:
        # Worked out by the job script, outside the container: no look-up inside, no fall-back to localhost.
        rendezvous = (
            f"--nnodes={topology.nodes}",
            Joined(("--node-rank=", Variable("FAIRLEAD_NODE"))),
            Joined(("--master-addr=", Variable("FAIRLEAD_MASTER"))),
            Joined(("--master-port=", Variable("FAIRLEAD_PORT"))),
        )
    node = "0" if topology.nodes == 1 else Variable("FAIRLEAD_NODE")
    argv = (
        # -u: it keeps back what the ranks print otherwise, until some pages are full or it ends.
        surroundings.python, "-u", "-m", "torch.distributed.run",
        *rendezvous,
        f"--nproc-per-node={topology.ranks_per_node}",
        "--max-restarts=0",
        "--tee=3", Joined(("--log-dir=", Variable("FAIRLEAD_RUN_DIR"), "/logs/", node)),
        "--no-python",
        "/bin/sh", "-c", _KEEP_EXIT_CODE, "rank",
    )  # fmt: skip
    return Command(
        argv=(*argv, *command.argv),
        environment={**environment, **command.environment},
        workdir=command.workdir,
        where=Where.NODE,
    )


def passed(job: Job) -> Passed:
    return Passed() if job.topology.nodes == 1 else Passed(("GLOO_SOCKET_IFNAME",))


def program(job: Job, surroundings: Surroundings) -> tuple[Word, ...]:
    return ()


def prelude(job: Job, surroundings: Surroundings) -> str:
    return INTERFACE if job.topology.nodes > 1 else ""


def proof(job: Job, surroundings: Surroundings) -> tuple[str, ...] | None:
    return None
