"""Commands that start ranks (`torchrun --nproc-per-node 4 train.py`): their program, and how many ranks.

Bareboat is the launcher of a job, so a job file has the program alone. Pure.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from bareboat.errors import UsageError

PYTHON = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A command without its starter. `starter`: its name, "" for none. `ranks`: of all nodes; `each`: of one
    node; None: not named."""

    command: tuple[str, ...]
    starter: str = ""
    nodes: int | None = None
    ranks: int | None = None
    each: int | None = None
    cpus: int | None = None

    def per_node(self) -> int | None:
        """The ranks of one node. None: not named."""
        if self.each is not None:
            return self.each
        return None if self.ranks is None else max(1, self.ranks // (self.nodes or 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Syntax:
    """A starter's options. `counts`: those that are numbers of the job -> the field of `Started`. `alone`:
    those without a value; `pairs`: those with two. All others have one."""

    counts: dict[str, str]
    alone: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    scripts: bool = False


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
    ),
    "horovodrun": _Syntax(
        counts={"np": "ranks", "num-proc": "ranks"},
        alone=frozenset({"verbose", "gloo", "mpi", "disable-cache", "autotune"}),
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
        }),
    ),
}  # fmt: skip


def read(words: Sequence[str]) -> Started:
    """The program of the command, and the numbers of its starter. Raises UsageError where the program cannot
    be found in it."""
    found = _starter(words)
    if found is None:
        return Started(command=tuple(words))
    name, rest = found
    syntax = _STARTERS[name]
    counts: dict[str, int] = {}
    module = False
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option, equals, value = rest[0].lstrip("-").partition("=")
        long = rest[0].startswith("--") or len(option) > 2
        if not long and len(option) == 2 and option[1].isdigit() and not equals:  # -n4
            option, equals, value = option[0], "=", option[1:]
        key = option.replace("_", "-") if len(option) > 1 else option
        rest = rest[1:]
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
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if not rest or rest[0].startswith("-"):
        raise UsageError(
            f"the command has no program after the options of {name}",
            context=shlex.join(words)[:1000],
            remedy="give the program alone:  bareboat init -- python train.py",
        )
    if module:
        rest = [PYTHON, "-m", *rest]
    elif syntax.scripts and rest[0].endswith(".py"):
        rest = [PYTHON, *rest]
    inner = read(rest)  # mpirun -np 2 accelerate launch …
    if inner.starter:
        return inner
    return Started(command=tuple(rest), starter=name, **counts)


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
    if base == "accelerate" and words[1:2] == ["launch"]:
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
