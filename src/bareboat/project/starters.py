"""Commands that start ranks (`torchrun --nproc-per-node 4 train.py`): their program, and how many ranks.

Bareboat is the launcher of a job, so a job file has the program alone. Pure.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bareboat import starting
from bareboat_base.errors import UsageError

PYTHON = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A command without its starter. `starter`: its name, "" for none. `ranks`: of all nodes; `each`: of one
    node; None: not named. `hosts`: the option that names hosts, with its value."""

    command: tuple[str, ...]
    starter: str = ""
    nodes: int | None = None
    ranks: int | None = None
    each: int | None = None
    cpus: int | None = None
    hosts: str = ""

    def per_node(self) -> int | None:
        """The ranks of one node. None: not named."""
        if self.each is not None:
            return self.each
        return None if self.ranks is None else max(1, self.ranks // (self.nodes or 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Syntax:
    """A starter's options. `counts`: those that are numbers of the job -> the field of `Started`. `alone`:
    those without a value; `pairs`: those with two. All others have one. `hosts`, `host_files`: those that
    name hosts, and a file of them; `several`: those of several programs, as is `colon` between them."""

    counts: dict[str, str]
    alone: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    scripts: bool = False
    hosts: frozenset[str] = frozenset()
    host_files: frozenset[str] = frozenset()
    several: frozenset[str] = frozenset()
    colon: bool = False


_TORCHRUN = _Syntax(
    counts={"nnodes": "nodes", "nproc-per-node": "each"},
    alone=frozenset({"standalone", "use-env", "m", "module", "no-python", "run-path"}),
    scripts=True,
)
_MPIRUN = _Syntax(
    counts={"n": "ranks", "np": "ranks", "c": "ranks", "N": "each", "npernode": "each", "ppn": "each",
            "perhost": "each"},
    alone=frozenset({
        "oversubscribe", "allow-run-as-root", "bynode", "byslot", "bind-to-core", "bind-to-none",
        "report-bindings", "tag-output", "use-hwthread-cpus", "display-map", "q", "quiet", "v", "verbose",
        "l", "nolocal", "disable-auto-cleanup", "forward-signals", "mpi-args",
    }),
    pairs=frozenset({"mca", "prtemca", "gmca", "pmixmca", "env", "genv", "tune-arg"}),
    hosts=frozenset({"H", "host", "hosts"}),
    host_files=frozenset({"hostfile", "machinefile", "default-hostfile", "f"}),
    several=frozenset({"app", "configfile"}),
    colon=True,
)  # fmt: skip
_STARTERS = {
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate launch": _Syntax(
        counts={"num-processes": "ranks", "num-machines": "nodes"},
        alone=frozenset({
            "cpu", "multi-gpu", "use-fsdp", "use-deepspeed", "tpu", "use-mps-device", "m", "module",
            "no-python", "debug", "quiet", "q", "same-network", "main-training-function",
        }),
        scripts=True,
    ),
    "deepspeed": _Syntax(
        counts={"num-gpus": "each", "num-nodes": "nodes"},
        alone=frozenset({"no-python", "no-local-rank", "module", "force-multi", "no-ssh"}),
        scripts=True,
        host_files=frozenset({"H", "hostfile"}),
    ),
    "horovodrun": _Syntax(
        counts={"np": "ranks", "num-proc": "ranks"},
        alone=frozenset({"verbose", "gloo", "mpi", "disable-cache", "autotune"}),
        hosts=frozenset({"H", "hosts"}),
        host_files=frozenset({"hostfile"}),
    ),
    "mpirun": _MPIRUN,
    "mpiexec": _MPIRUN,
    "orterun": _MPIRUN,
    "prterun": _MPIRUN,
    "srun": _Syntax(
        counts={"n": "ranks", "ntasks": "ranks", "N": "nodes", "nodes": "nodes", "ntasks-per-node": "each",
                "c": "cpus", "cpus-per-task": "cpus"},
        alone=frozenset({
            "exclusive", "l", "label", "overlap", "u", "unbuffered", "Q", "quiet", "v", "verbose", "pty",
            "s", "oversubscribe", "O", "overcommit", "contiguous", "exact", "E", "preserve-env",
            "multi-prog",
        }),
        several=frozenset({"multi-prog"}),
        colon=True,
    ),
}  # fmt: skip


def read(words: Sequence[str]) -> Started:
    """The program of the command, and the numbers of its starter. Raises UsageError where the program cannot
    be found in it, and for what no job is: several programs, other numbers of ranks on each node."""
    words = starting.program(words)
    found = _starter(words)
    if found is None:
        return Started(command=tuple(words))
    name, rest = found
    syntax = _STARTERS[name]
    counts: dict[str, int] = {}
    module = False
    hosts = named = ""
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option, equals, value = rest[0].lstrip("-").partition("=")
        long = rest[0].startswith("--") or len(option) > 2
        if not long and len(option) == 2 and option[1].isdigit() and not equals:  # -n4
            option, equals, value = option[0], "=", option[1:]
        key = option.replace("_", "-") if len(option) > 1 else option
        if key in syntax.several:
            raise _several(name, rest[0], words)
        spelled, rest = rest[0], rest[1:]
        if key in syntax.alone and key not in syntax.counts:
            module = module or key in ("m", "module")
            continue
        if not equals:
            taken = 2 if key in syntax.pairs else 1
            if len(rest) < taken:
                break
            value, rest = rest[0], rest[taken:]
        if key in syntax.counts and re.fullmatch(r"[0-9]{1,8}(:[0-9]{1,8})?", value):
            counts[syntax.counts[key]] = int(value.partition(":")[0])
        if key in syntax.hosts or key in syntax.host_files:
            hosts = spelled if equals else f"{spelled} {value}"
            named = value if key in syntax.hosts else ""
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if not rest or rest[0].startswith("-"):
        raise UsageError(
            f"the command has no program after the options of {name}",
            context=shlex.join(words)[:1000],
            remedy="give the program alone:  bareboat init -- python train.py",
        )
    if syntax.colon and ":" in rest:
        raise _several(name, ":", words)
    if module:
        rest = [PYTHON, "-m", *rest]
    elif syntax.scripts and rest[0].endswith(".py"):
        rest = [PYTHON, *rest]
    nodes, ranks, each = _shape(words, named, counts.get("nodes"), counts.get("ranks"), counts.get("each"))
    inner = read(rest)  # srun -N 2 torchrun …
    if inner.starter:
        if inner.each is None and inner.ranks is None:
            inner = replace(inner, ranks=ranks, each=each)
        return replace(inner, nodes=inner.nodes or nodes, hosts=inner.hosts or hosts)
    return Started(
        command=tuple(rest), starter=name, nodes=nodes, ranks=ranks, each=each, cpus=counts.get("cpus"),
        hosts=hosts,
    )  # fmt: skip


def _several(name: str, word: str, words: Sequence[str]) -> UsageError:
    return UsageError(
        f"the command of {name} starts several programs ({word}), and a job has one",
        context=shlex.join(words)[:1000],
        remedy="give one program:  bareboat init -- python train.py; or a script that chooses by the rank",
    )


def _shape(
    words: Sequence[str], hosts: str, nodes: int | None, ranks: int | None, each: int | None
) -> tuple[int | None, int | None, int | None]:
    """The nodes, the ranks, and those of each node, as far as they are known. Raises UsageError where the
    nodes would have different numbers of ranks."""
    if hosts:
        counts = _on_hosts(hosts, ranks)
        if len(set(counts)) > 1:
            raise _uneven(words, sum(counts), len(counts))
        return len(counts), ranks, each if each is not None and ranks is None else counts[0]
    if not ranks:
        return nodes, ranks, each
    if nodes:
        if ranks % nodes:
            raise _uneven(words, ranks, nodes)
        return nodes, ranks, each if each is None else ranks // nodes
    if each and ranks > each:
        if ranks % each:
            raise _uneven(words, ranks, -(-ranks // each))
        return ranks // each, ranks, each
    return nodes, ranks, None if each is None else ranks


def _on_hosts(text: str, ranks: int | None) -> list[int]:
    """The ranks of each host of `a:2,b:2`, as far as a host has any: a host is filled before the next one."""
    slots: Counter[str] = Counter()
    for part in text.split(","):
        host, _, number = part.partition(":")
        slots[host] += int(number) if re.fullmatch(r"[0-9]{1,8}", number) else 1
    total = sum(slots.values())
    if ranks is not None and ranks > total:  # in turn
        share, rest = divmod(ranks, len(slots))
        return [share + (index < rest) for index in range(len(slots))]
    left = total if ranks is None else ranks
    counts = []
    for slot in slots.values():
        counts.append(min(slot, left))
        left -= counts[-1]
    return [count for count in counts if count] or [1]


def _uneven(words: Sequence[str], ranks: int, nodes: int) -> UsageError:
    few = max(nodes, ranks - ranks % nodes)
    return UsageError(
        f"{ranks} ranks on {nodes} nodes: a job has the same number of ranks on each node",
        context=shlex.join(words)[:1000],
        remedy=f"ask for {few} or {few + nodes} ranks on {nodes} nodes",
    )


def script_of(command: Sequence[str]) -> str | None:
    """The Python script that the command starts; None for a module, and for other programs."""
    if not command:
        return None
    if command[0].endswith(".py"):
        return command[0]
    if not re.fullmatch(r"python[0-9.]*|pypy[0-9.]*", os.path.basename(command[0])):
        return None
    for word in command[1:]:
        if word in ("-m", "-c"):
            return None
        if not word.startswith("-"):
            return word if word.endswith(".py") else None
    return None


def _starter(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The starter's name and the words after it."""
    base = os.path.basename(words[0]) if words else ""
    if base == "accelerate" and tuple(words[1:2]) == ("launch",):
        return "accelerate launch", list(words[2:])
    if re.fullmatch(r"mpi(run|exec)\.\w+", base):  # mpirun.openmpi, mpiexec.hydra
        return base.partition(".")[0], list(words[1:])
    if base in _STARTERS:
        return base, list(words[1:])
    if re.fullmatch(r"python[0-9.]*", base) and "-m" in words[:5]:
        at = list(words).index("-m")
        module = words[at + 1] if at + 1 < len(words) else ""
        if module in _STARTERS:
            return module, list(words[at + 2 :])
        if module == "accelerate.commands.launch":
            return "accelerate launch", list(words[at + 2 :])
    return None
