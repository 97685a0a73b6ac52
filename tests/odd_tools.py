"""FAKE. Made-up tools of clusters and machines, with and without faults.

`machine` makes a PATH of this machine's programs without its schedulers, engines and MPIs, and with the
made-up ones that a test names: `machine(folder, "slurm", sinfo="odd", sbatch="hang later")`.
"""

import contextlib
import os
import shlex
import signal
import zlib
from collections.abc import Mapping
from pathlib import Path

from tools import executable, linked

#: What the tools print when nothing is wrong: words of the command line -> bash; "" for all others.
_PARTITION = (
    "PartitionName={} Default={} State=UP TotalNodes=4 MaxNodes=UNLIMITED MaxTime=1-00:00:00 "
    "AllowAccounts=ALL"
)
_SLURM: dict[str, dict[str, str]] = {
    "sinfo": {
        "--version": "echo slurm 24.11.5",
        "": "echo 'main|64|256000|(null)'; echo 'gpu|64+|256000|gpu:4'",
    },
    "scontrol": {
        "partition": f"echo {shlex.quote(_PARTITION.format('main', 'YES'))}; "
        f"echo {shlex.quote(_PARTITION.format('gpu', 'NO'))}",
        "config": "echo 'MaxArraySize            = 1001'; "
        "echo 'AccountingStorageType = accounting_storage/slurmdbd'",
    },
    "sbatch": {"--version": "echo slurm 24.11.5", "": "echo 4711"},
    "squeue": {"": "echo '4711|RUNNING|None|n1'; echo '4712|PENDING|Priority|'"},
    "sacct": {"": "echo '4711|COMPLETED|None|n1'"},
    "sacctmgr": {"": "echo research"},
    "srun": {"--mpi=list": "echo 'MPI plugin types are...'; echo pmix"},
    "scancel": {"": "true"},
}
_GRIDENGINE: dict[str, dict[str, str]] = {
    "qconf": {
        "-sql": "echo all.q; echo gpu.q",
        "-spl": "echo mpi",
        "-sp": "echo 'pe_name mpi'; echo 'slots 999'; echo 'allocation_rule 1'; echo 'control_slaves TRUE'",
        "-sc": "echo 'gpu gpu INT <= YES YES 0 0'",
        "-sconf": "echo 'max_aj_tasks 75000'",
    },
    "qsub": {"": "echo 4711"},
    "qstat": {
        "-help": "echo SGE 8.1.9",
        "-g c": "echo 'CLUSTER QUEUE CQLOAD USED RES AVAIL TOTAL aoACDS cdsuE'; echo --------; "
        "echo 'all.q 0.01 0 0 8 8 0 0'; echo 'gpu.q 0.01 0 0 8 8 0 0'",
        "": "echo 'job-ID prior name user state submit/start at queue slots'; echo -----; "
        "echo '4711 0.5 job alice r 11/23/2026 01:00:00 all.q@n1 1'",
    },
    "qhost": {"": "echo 'HOSTNAME ARCH NCPU'"},
    "qacct": {"": "printf '====\\njobnumber 4711\\nexit_status 0\\nfailed 0\\n'"},
    "qdel": {"": "true"},
}
_PBS: dict[str, dict[str, str]] = {
    "qsub": {"--version": "echo 'pbs_version = 20.0.1'", "": "echo 4711.pbs01"},
    "qstat": {
        "-Q": "printf 'Queue: main\\n  queue_type = Execution\\n  enabled = True\\n  started = True\\n'",
        "": "printf 'Job Id: 4711.pbs01\\n    job_state = R\\n    exec_host = n1/0\\n'",
    },
    "pbsnodes": {"": "echo n1"},
    "qdel": {"": "true"},
}
_FLUX: dict[str, dict[str, str]] = {
    "flux": {
        "version": "printf 'commands:\\t\\t0.66.0\\n'",
        "queue": "echo 'batch*|y|y|1800.0|inf|0-inf|0|inf|0-inf'",
        "batch": "echo ƒ4711",
        "jobs": "echo 'ƒ4711|RUN||n1|n1||||||||'",
    }
}
SCHEDULERS: dict[str, dict[str, dict[str, str]]] = {
    "slurm": _SLURM, "gridengine": _GRIDENGINE, "pbs": _PBS, "flux": _FLUX,
}  # fmt: skip
#: Tools that may be there beside any scheduler.
OTHERS: dict[str, dict[str, str]] = {
    "nvidia-smi": {"": "echo 'GPU 0: NVIDIA A100 (UUID: GPU-1)'"},
    "mpirun": {"": "echo 'mpirun (Open MPI) 4.1.4'"},
    "ompi_info": {"": "echo path:prefix:/usr; echo ompi:version:full:4.1.4"},
    "podman": {"--version": "echo podman version 4.3.1", "": "exit 125"},
    "apptainer": {"--version": "echo apptainer version 1.4.5", "": "exit 255"},
    "ldconfig": {"": "echo '0 libs found in cache `/etc/ld.so.cache'"},
}

#: Fault -> what the tool does instead of what is right; GOOD stands for that.
FAULTS: Mapping[str, str] = {
    "fail": "echo 'error: the controller is down' >&2; exit 1",
    "hang": "exec sleep NAP",
    "deaf": "trap '' TERM INT HUP; while :; do sleep NAP; done",
    "garbage": r"printf 'caf\351 \000|||\n{\"x\": [\n<xml>\033[31m\n%s\n' 9999999999999999999999999999999",
    "nothing": "true",
    "closed": "exec >&- 2>&-",
    "megabytes": "head -c 60000000 /dev/zero | tr '\\0' 'x'",
    "endless": "exec yes 'a line without end'",
    "complains": "head -c 60000000 /dev/zero | tr '\\0' 'x' >&2; GOOD",
    "odd": "echo 'Welcome to the cluster: maintenance on Monday'; GOOD",
    "slow": "sleep 1; GOOD",
    "odd-bytes": r"GOOD; printf '\377\376|\000 caf\351\n'",
    "grandchild": "sleep NAP & GOOD",
    "daemon": "env -i setsid sleep NAP & GOOD",
    "daemon-hangs": "env -i setsid sleep NAP & exec sleep NAP",
    "orphan-hangs": "(env -i setsid sleep NAP &) ; exec sleep NAP",
}
_HIDDEN = (
    r"s(batch|info|queue|run|control|acct|acctmgr|cancel|alloc|attach|bcast|trigger)|q(sub|stat|conf|acct|del|host"
    r"|rsh|login|alter|hold|rls|mod|resub|quota|mon|sh)|pbs\w*|b(sub|jobs|queues|kill|hosts)|ls(id|hosts)|flux"
    r"|(mpi(run|exec)|ompi_info|orte|prte).*|podman.*|conmon|buildah|apptainer|singularity|udocker|proot|ch-.*"
    r"|enroot|sarus|shifter.*|nvidia-smi"
)  # fmt: skip


def nap(folder: Path) -> str:
    """For how long tools of this folder sleep: no others do for just so long."""
    return f"3600.{zlib.crc32(os.fsencode(folder))}"


def script(folder: Path, answers: Mapping[str, str], fault: str = "") -> str:
    """A program in bash that answers, or does what the fault says; a fault "later" spares `--version`."""
    cases = "\n".join(f"  *{shlex.quote(words)}*) {answer} ;;" for words, answer in answers.items())
    good = f'case "$*" in\n{cases}\nesac'
    body = good if not fault else FAULTS[fault.removesuffix(" later")].replace("GOOD", good)
    if fault.endswith(" later"):
        body = f'case "$*" in\n*--version*)\n{good}\n;;\n*)\n{body}\n;;\nesac'
    return f"#!/bin/bash\n{body.replace('NAP', nap(folder))}\n"


def machine(folder: Path, scheduler: str | None = None, **faults: str) -> str:
    """A PATH with this machine's harmless programs, the tools of the scheduler, and those that are named,
    each with its fault ("" for none). A dash in a name is an underscore here."""
    own = folder / "tools"
    own.mkdir(parents=True, exist_ok=True)
    known = {**OTHERS, **(SCHEDULERS[scheduler] if scheduler else {})}
    named = {name.replace("_", "-") if name != "ompi_info" else name: fault for name, fault in faults.items()}
    for name in {*named, *(SCHEDULERS[scheduler] if scheduler else {})}:
        path = own / name
        executable(path, script(folder, known[name], named.get(name, "")))
    return f"{own}:{linked('/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin', _HIDDEN)}"


def left(folder: Path, *, kill: bool = False) -> list[str]:
    """The command lines of processes that the tools of this folder left behind."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if os.fsencode(nap(folder)) in words or any(os.fsencode(f"{folder}/tools/") in w for w in words):
                found.append(" ".join(map(os.fsdecode, words)))
                if kill:
                    os.kill(int(path.parent.name), signal.SIGKILL)
    return found
