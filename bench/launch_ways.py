"""The ways of starting ranks that bench/launch.py compares: Bareboat's job scripts, and the same by hand."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bareboat import plan, render
from bareboat.model import ForwardEnv, IfSet, Image, Job, Plan, Rootfs, Site, Topology, Word
from bareboat.render import words

#: Where the driver has made the folder of this start.
RUN = "$BAREBOAT_BENCH_RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all ways start in: nodes and ranks, an image, and the folder that is shared by the nodes."""

    topology: Topology
    image: Image
    rootfs: Rootfs
    site: Site
    folder: Path

    @property
    def python(self) -> str:
        return self.image.python or "python3"


def container(ground: Ground) -> str:
    """bubblewrap as one would write it after reading its manual, in bash."""
    facts = ground.site.engine("bubblewrap")
    if facts is None or not facts.works:
        sys.exit("bubblewrap does not work here; see: bareboat doctor")
    work = str(ground.folder)
    return shlex.join([
        facts.path, "--ro-bind", ground.rootfs.flat, "/", "--dev-bind", "/dev", "/dev",
        "--bind", "/proc", "/proc", "--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp",
        "--bind", work, work, "--chdir", work,
    ])  # fmt: skip


def mpirun_words(program: str, topology: Topology) -> list[str]:
    return [
        program, "-n", str(topology.world_size), "--map-by", f"ppr:{topology.ranks_per_node}:node",
        "--bind-to", "none", "--oversubscribe",
    ]  # fmt: skip


def same_container(ground: Ground) -> str:
    """bubblewrap with the mounts that Bareboat gives it, in bash; the environment is left as it is."""
    options = iter(planned(ground, "ranks").command.argv)
    kept: list[Word] = []
    for word in options:
        match word:
            case "--":
                break
            case "--setenv":
                next(options), next(options)
            case "--clearenv" | ForwardEnv() | IfSet(words=("--setenv", *_)):
                pass
            case _:
                kept.append(word)
    return words.joined(tuple(kept))


def loop_by_hand(ground: Ground, bwrap: str, command: str = "/bin/true") -> str:
    """One node's part of a good script: each rank's output is kept, and the first failure gives the code.
    `bwrap`, `command`: the container and what runs in it, in bash."""
    each, size = ground.topology.ranks_per_node, ground.topology.world_size
    return f"""
logs={RUN}/logs pids=() code=0 BAREBOAT_RUN_DIR={RUN}
mkdir -p $logs
for ((i = 0; i < {each}; i++)); do
  rank=$((SLURM_NODEID * {each} + i))
  LOCAL_RANK=$i RANK=$rank WORLD_SIZE={size} MASTER_ADDR=$master MASTER_PORT=29500 \\
    {bwrap} {command} > $logs/$rank.out 2> $logs/$rank.err &
  pids+=($!)
done
for pid in ${{pids[@]}}; do wait $pid || {{ status=$?; [ $code -ne 0 ] || code=$status; }}; done
exit $code
"""


def on_each_node(topology: Topology, part: str) -> str:
    """A job's script that runs this part once on every node, which finds the first node's address."""
    return (
        "first=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
        "export master=$(getent ahostsv4 $first | awk '{ print $1; exit }')\n"
        f"{_srun(topology)} --ntasks={topology.nodes} --ntasks-per-node=1 bash -c {shlex.quote(part)}"
    )


def _srun(topology: Topology) -> str:
    return f"srun --nodes={topology.nodes} --overlap --mpi=none --kill-on-bad-exit=1"


def by_hand(ground: Ground) -> dict[str, str]:
    """With the loop, with srun alone, and with torchrun."""
    topology = ground.topology
    nodes, each, size = topology.nodes, topology.ranks_per_node, topology.world_size
    bwrap = container(ground)
    torchrun = (
        f"mkdir -p {RUN}/logs; exec {bwrap} --setenv OMP_NUM_THREADS 1 "
        f"{ground.python} -m torch.distributed.run --nnodes={nodes} --node-rank=$SLURM_NODEID "
        f"--master-addr=$master --master-port=29501 --nproc-per-node={each} "
        f"--no-python {ground.python} -c pass"
    )
    return {
        "ranks": on_each_node(topology, loop_by_hand(ground, bwrap)),
        "ranks-same": on_each_node(topology, loop_by_hand(ground, same_container(ground))),
        "srun": f"mkdir -p {RUN}/logs\n{_srun(topology)} --ntasks={size} --ntasks-per-node={each} "
        f"--output={RUN}/logs/%t.out {bwrap} /bin/true",
        "torchrun": on_each_node(topology, torchrun),
    }


def of_bareboat(ground: Ground, launcher: str, *, check: bool = True) -> str:
    """With one of the launchers, and ranks that do nothing."""
    made = planned(ground, launcher)
    return script_of(made if check else msgspec.structs.replace(made, mpi_check=None))


def script_of(made: Plan) -> str:
    """The job script as `bareboat submit` has it, except that each start has a folder of its own."""
    script = render.script(made, render.Place(made.job.name, "RUN-FOLDER"))
    return script.replace("BAREBOAT_RUN_DIR=RUN-FOLDER", f"BAREBOAT_RUN_DIR={RUN}")


def planned(ground: Ground, launcher: str) -> Plan:
    command = ("python", "-c", "pass") if launcher == "torchrun" else ("/bin/true",)
    job = Job(
        name=f"launch-{launcher}", command=command, workdir=str(ground.folder), launcher=launcher,
        topology=ground.topology, engine="bubblewrap", scheduler="slurm",
    )  # fmt: skip
    return plan.plan(job, ground.image, ground.rootfs, ground.site)


def mpirun_by_hand(ground: Ground, mpirun: str, bwrap: str) -> str:
    """`bwrap`: the container, in bash."""
    return f"BAREBOAT_RUN_DIR={RUN}\n{shlex.join(mpirun_words(mpirun, ground.topology))} {bwrap} /bin/true"


def published(ground: Ground, mpirun: str, udocker: Sequence[str]) -> str:
    """The published workflow: the host's mpirun starts `udocker run` for every rank, in its own mode."""
    return shlex.join([*mpirun_words(mpirun, ground.topology), *udocker])
