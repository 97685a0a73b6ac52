"""torchrun: PyTorch's own launcher, one per node, inside the container.

Documentation: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from bareboat.launchers import INTERFACE, LET_SAVE, Launch, Launcher, Passed, Surroundings, threads
from bareboat.model import Job, Joined, NodePath, Refusal, Start, Variable, Word
from bareboat.mpi import text
from bareboat_base.versions import numbers

#: torchrun itself exits with 1 whatever its ranks returned. This keeps each rank's own exit code, in the
#: order in which they ended, so that the first failure is known and passed on; and its output, which
#: torchrun's own option (--tee) polls ten times a second, and once more at the end.
_KEEP = f"""\
trap : TERM INT HUP
log=$BAREBOAT_RUN_DIR/logs/$RANK; "$@" >> "$log.out" 2>> "$log.err"; code=$?
echo "$RANK $code" >> "$BAREBOAT_RUN_DIR/exits.$GROUP_RANK"
{LET_SAVE}exit "$code"
"""
_MAIN = """\
import signal
from torch.distributed.run import main

# The ranks get a signal for the run themselves: torchrun would pass it on to them, and end those that save.
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda *_: None)
signal.signal = lambda *_: None
main()
"""
#: The other nodes wait until a connection to the first one succeeds. torchrun's own retries are up to 0.7 s
#: apart, and all nodes take about the same time until the first retry.
_MEET = """\
import random, socket, time

node, host, port = sys.argv[1:4]
pause_s, deadline = 0.01, time.monotonic() + 60
while node != "0" and time.monotonic() < deadline:
    try:
        socket.create_connection((host, int(port)), 5).close()
        break
    except OSError:
        time.sleep(pause_s * random.uniform(0.5, 1))
        pause_s = min(2 * pause_s, 0.5)
del sys.argv[1:4]
"""


class Torchrun(Launcher):
    NAME = "torchrun"
    START = Start.NODES
    KEEPS_OUTPUT = True

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        program = job.command[0]
        if not program.rpartition("/")[2].startswith("python"):
            return Refusal(
                f"it starts Python scripts, and the command starts {program!r}",
                remedy='write the command as ["python", "train.py", …]',
            )
        if around.image is not None and "torch" not in around.image.frameworks:
            return Refusal("PyTorch is not in the environment", remedy="pip install torch")
        # Since PyTorch 2.4 torchrun's store uses libuv, and fails without it with any USE_LIBUV.
        version = "" if around.image is None else around.image.frameworks["torch"]
        if version.endswith("+debian") and numbers(version) >= (2, 4):
            return Refusal(
                "Debian's PyTorch is built without libuv, which torchrun requires",
                remedy='pip install torch in an environment; or launcher = "ranks" with '
                'environment = { USE_LIBUV = "0" }',
            )
        if job.launcher != self.NAME and around.image is not None and "horovod" in around.image.frameworks:
            return Refusal(
                "Horovod is in the environment, and takes its ranks from MPI",
                remedy='set launcher = "torchrun", for a script that uses torch.distributed',
            )
        topology = job.topology
        environment = threads(job)
        start: tuple[Word, ...]
        if topology.nodes == 1:
            # All traffic uses loopback. By default gloo resolves the host's name, which fails or waits where
            # the name does not resolve.
            environment["GLOO_SOCKET_IFNAME"] = "lo"
            # --standalone: it finds a free port, so two jobs on one machine never share one.
            start = ("-c", text.OWN_FIRST + _MAIN, "--standalone", "--local-addr=127.0.0.1")
        else:
            # Resolved by the job script, outside the container: no lookup inside, no fallback to localhost.
            start = (
                "-c", text.OWN_FIRST + _MEET + _MAIN,
                Variable("BAREBOAT_NODE"), Variable("BAREBOAT_MASTER"), Variable("BAREBOAT_PORT"),
                f"--nnodes={topology.nodes}",
                Joined(("--node-rank=", Variable("BAREBOAT_NODE"))),
                Joined(("--master-addr=", Variable("BAREBOAT_MASTER"))),
                Joined(("--master-port=", Variable("BAREBOAT_PORT"))),
            )  # fmt: skip
        node = "0" if topology.nodes == 1 else Variable("BAREBOAT_NODE")
        argv = (
            around.python, *start,
            f"--nproc-per-node={topology.ranks_per_node}",
            "--max-restarts=0",
            Joined(("--log-dir=", NodePath("BAREBOAT_RUN_DIR", "/torchrun/"), node)), # error files of ranks
            "--no-python",
            "/bin/sh", "-c", _KEEP, "rank",
        )  # fmt: skip
        nodes = f" on each of {topology.nodes} nodes" if topology.nodes > 1 else ""
        return Launch(
            reason=f"torchrun starts {topology.ranks_per_node} ranks{nodes} and sets RANK and WORLD_SIZE",
            argv=argv,
            environment=environment,
            passed=Passed() if topology.nodes == 1 else Passed(("GLOO_SOCKET_IFNAME",)),
            prelude=INTERFACE if topology.nodes > 1 else "",
        )
