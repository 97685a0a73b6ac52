"""Pure: what differs between two locks, ranked by what can explain a difference in results or time."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from bareboat.model.provenance import Code
from bareboat_base.printable import one_line
from bareboat_study.reproduction.document import Lock, LockedImage, Machine

#: In the place of a value that a run did not record.
UNKNOWN = "not recorded"
NOTHING = "none"
NOT_SET = "not set"
_OTHER_LIBC = "other implementations of exp, log, memcpy, malloc"
#: A variable that is not set, which is not one with the value "none".
_ABSENT = object()


class Weight(IntEnum):
    """How much a difference can explain. RESULT: it is what is to be explained."""

    STRONG = 3
    POSSIBLE = 2
    UNLIKELY = 1
    RESULT = 0


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that differs. `section`: code, packages, image, CUDA, driver, MPI, fabric, CPU, glibc,
    kernel, node, plan, environment, data or results. `reason`: what it can explain."""

    section: str
    item: str
    first: str
    second: str
    weight: int
    reason: str = ""


def compare(first: Lock, second: Lock) -> list[Difference]:
    """All differences, what explains most first, and the results last."""
    parts = (_command, _environment, of_data, _code, _image, _packages, _machine, _plan, _job, _results)
    found = [each for part in parts for each in part(first, second)]
    return sorted(found, key=lambda each: -each.weight)


def differ(
    section: str,
    item: str,
    first: object,
    second: object,
    weight: Weight,
    reason: str,
    *,
    show: Callable[[Any], str] | None = None,
) -> Iterator[Difference]:
    """A difference where both are known; with one unknown, it cannot be excluded. The whole values are
    compared; `show` makes short texts of them."""
    if _whole(first) == _whole(second):
        return
    a, b = (
        show(value) if show is not None and value not in (None, NOTHING) else _shown(value)
        for value in (first, second)
    )
    if a == b:
        is_number = isinstance(first, int | float) and isinstance(second, int | float)
        a, b = (repr(first), repr(second)) if is_number else _apart(_text(first), _text(second))
    if first is None or second is None:
        yield Difference(
            section=section, item=item, first=a, second=b, weight=Weight.UNLIKELY, reason="cannot be compared"
        )
        return
    yield Difference(section=section, item=item, first=a, second=b, weight=weight, reason=reason)


def _whole(value: object) -> object:
    """What is compared: an empty text or list is nothing."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list):
        return tuple(map(str, value)) or NOTHING
    return str(value) or NOTHING


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return shlex.join(map(str, value))
    return NOT_SET if value is _ABSENT else str(value)


def _apart(first: str, second: str) -> tuple[str, str]:
    """Two texts that look the same when shortened: the part where they begin to differ, and their digests."""
    pairs = enumerate(zip(first, second, strict=False))
    at = next((place for place, (x, y) in pairs if x != y), min(len(first), len(second)))
    begin = max(0, at - 20)
    return _excerpt(first, begin), _excerpt(second, begin)


def _excerpt(text: str, begin: int) -> str:
    part = text[begin : begin + 60]
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    before, after = "…" * (begin > 0), "…" * (begin + 60 < len(text))
    return one_line(f"{before}{part!r}{after} ({len(text):,} characters, sha256:{digest})")


def _shown(value: object) -> str:
    if value is None:
        return UNKNOWN
    if value is _ABSENT:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return one_line(", ".join(map(str, value))) or NOTHING
    return one_line(str(value)) or NOTHING


def _command(first: Lock, second: Lock) -> Iterator[Difference]:
    yield from differ(
        "command", "command", first.job.command, second.job.command, Weight.STRONG,
        "another command does other work", show=_joined,
    )  # fmt: skip


def _joined(words: Iterable[str]) -> str:
    """A command as a short text."""
    text = " ".join(one_line(word, limit=60) for word in words)
    return text if len(text) <= 180 else f"{text[:120]}… ({len(text):,} characters)"


def _environment(first: Lock, second: Lock) -> Iterator[Difference]:
    a, b = first.job.environment, second.job.environment
    for name in sorted(a.keys() | b.keys()):
        weight, reason = Weight.POSSIBLE, "programs read it"
        if re.search(r"SEED", name):
            weight, reason = Weight.STRONG, "a seed of random numbers"
        elif re.search(r"THREADS|AFFINITY|PROC_BIND|PLACES", name):
            weight, reason = Weight.STRONG, "threads change speed, and the order of sums"
        yield from differ("environment", name, a.get(name, _ABSENT), b.get(name, _ABSENT), weight, reason)
    names = (tuple(first.withheld), tuple(second.withheld))
    why = "their values are not in locks"
    yield from differ("environment", "variables that may be secrets", *names, Weight.UNLIKELY, why)


def of_data(first: Lock, second: Lock) -> Iterator[Difference]:
    a = {datum.path: f"sha256:{datum.sha256}" for datum in first.data}
    b = {datum.path: f"sha256:{datum.sha256}" for datum in second.data}
    is_moved = a.keys() != b.keys() and sorted(a.values()) == sorted(b.values())
    if is_moved or not (a and b):
        return
    for path in sorted(a.keys() | b.keys()):
        yield from differ(
            "data", path, a.get(path), b.get(path), Weight.STRONG, "other data, other results", show=_short
        )


def _code(first: Lock, second: Lock) -> Iterator[Difference]:
    a, b = first.code, second.code
    if a is None or b is None:
        if (a is None) != (b is None):
            known = (None if a is None else "recorded", None if b is None else "recorded")
            yield from differ("code", "code", *known, Weight.UNLIKELY, "")
        return
    why = "other code does other work"
    files = _files(a), _files(b)
    changed = [path for path in sorted(files[0].keys() & files[1].keys()) if files[0][path] != files[1][path]]
    # Of files that both have, the content counts; the commit also covers files that no run used.
    for path in changed:
        yield from differ("code", path, files[0][path], files[1][path], Weight.STRONG, why, show=_short)
    for path in sorted(files[0].keys() ^ files[1].keys()):
        found = (files[0].get(path, NOTHING), files[1].get(path, NOTHING))
        yield from differ("code", path, *found, Weight.POSSIBLE, why, show=_short)
    if a.repository is not None and b.repository is not None:
        weight = Weight.STRONG if changed or not files[0] else Weight.POSSIBLE
        yield from differ("code", "commit", a.repository.commit, b.repository.commit, weight, why)
        yield from differ(
            "code", "changes since the commit", a.repository.difference, b.repository.difference, weight,
            why, show=_change,
        )  # fmt: skip


def _files(code: Code) -> dict[str, str]:
    return {
        file.path: f"sha256:{file.sha256}" if file.sha256 else f"{file.size_bytes:,} bytes, too large"
        for file in code.files
    }


def _short(digest: str) -> str:
    return digest[:19] if digest.startswith("sha256:") else one_line(digest)


def _change(difference: str) -> str:
    if not difference:
        return NOTHING
    lines = difference.count("\n")
    return f"{lines} lines, sha256:{hashlib.sha256(difference.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _image(first: Lock, second: Lock) -> Iterator[Difference]:
    a, b = first.image, second.image
    if a is None or b is None:
        words = tuple("no container" if image is None else image.digest for image in (a, b))
        yield from differ(
            "image", "image", words[0], words[1], Weight.POSSIBLE, "other programs", show=_short
        )
        return
    if a.digest == b.digest:
        return
    weight = Weight.UNLIKELY if a.packages and a.packages == b.packages else Weight.POSSIBLE
    why = "the packages are equal" if weight is Weight.UNLIKELY else "other programs and libraries"
    yield from differ("image", "digest", a.digest, b.digest, weight, why, show=_short)
    for section, item, x, y, level, reason in (
        ("image", "origin", a.origin, b.origin, Weight.UNLIKELY, "how it was made"),
        ("image", "architecture", a.architecture, b.architecture, Weight.STRONG, "other machine code"),
        ("image", "Python", a.python_version, b.python_version, Weight.STRONG, "another interpreter"),
        ("image", "glibc", a.glibc, b.glibc, Weight.POSSIBLE, _OTHER_LIBC),
        ("image", "distribution", a.distribution, b.distribution, Weight.POSSIBLE, "other builds"),
        ("image", "MPI", a.mpis, b.mpis, Weight.POSSIBLE, "other algorithms of collective operations"),
        ("CUDA", "CUDA of the image", a.cuda, b.cuda, Weight.STRONG, "other kernels"),
        ("CUDA", "ROCm of the image", a.rocm, b.rocm, Weight.STRONG, "other kernels"),
    ):
        if item != "distribution" or (x and y):
            yield from differ(section, item, x, y, level, reason)


#: Package -> why it can explain a difference. The first match counts.
_EXPLAINS: tuple[tuple[str, str], ...] = (
    (r"torch|tensorflow.*|jax.*|keras|mxnet|paddlepaddle.*", "kernels, initial weights, random numbers"),
    (r"numpy|scipy|scikit-learn|.*blas.*|.*lapack.*|mkl.*|intel-openmp|pandas", "sums in another order"),
    (r"nvidia-.*|cuda.*|libcu.*|.*cudnn.*|triton|cupy.*", "other kernels on GPUs"),
    (r".*nccl.*|.*openmpi.*|mpich.*|mpi4py|horovod|ucx|libfabric.*", "order and speed of reductions"),
    (r"python3?(\.\d+)?|libc6|glibc|musl", "runs everything"),
    (r"deepspeed|.*lightning|transformers|accelerate|datasets|torchvision|timm", "defaults of the training"),
)  # fmt: skip


def _packages(first: Lock, second: Lock) -> Iterator[Difference]:
    a, b = first.image, second.image
    if a is None or b is None or a.digest == b.digest:
        return
    if a.packages is None or b.packages is None:
        x, y = (None if each is None else f"{len(each)} packages" for each in (a.packages, b.packages))
        yield from differ("packages", "packages", x, y, Weight.UNLIKELY, "")
        return
    versions = _versions(a), _versions(b)
    for name in sorted(versions[0].keys() | versions[1].keys()):
        x, y = versions[0].get(name, NOTHING), versions[1].get(name, NOTHING)
        if x == y:
            continue
        short = name.partition(":")[2]
        reason = next((why for pattern, why in _EXPLAINS if re.fullmatch(pattern, short.lower())), "")
        yield from differ(
            "packages", short, x, y, Weight.STRONG if reason else Weight.UNLIKELY,
            reason or "no known influence",
        )  # fmt: skip


def _versions(image: LockedImage) -> dict[str, str]:
    """Kind and name -> version. Of several versions, all."""
    found: dict[str, list[str]] = {}
    for package in image.packages or ():
        kind, _, rest = package.purl.removeprefix("pkg:").partition("/")
        path, _, version = rest.partition("?")[0].partition("@")
        found.setdefault(f"{kind}:{unquote(path.rpartition('/')[2])}", []).append(unquote(version) or "?")
    return {name: " and ".join(sorted(set(each))) for name, each in found.items()}


#: Section, item, how it is read, and how much a difference explains.
_OF_MACHINES: tuple[tuple[str, str, Callable[[Machine], object], Weight, str], ...] = (
    ("CPU", "CPU", lambda m: m.cpu, Weight.STRONG, "speed; libraries choose code by its instructions"),
    ("CPU", "architecture", lambda m: m.architecture, Weight.STRONG, "other machine code"),
    ("CPU", "cores", lambda m: m.cpus, Weight.POSSIBLE, "number of threads, and so the order of sums"),
    ("GPU", "GPUs", lambda m: m.gpus, Weight.STRONG, "speed; libraries choose kernels by the GPU"),
    ("driver", "GPU driver", lambda m: m.driver, Weight.POSSIBLE, "compiles kernels; clocks and limits"),
    ("driver", "CUDA of the driver", lambda m: m.driver_cuda, Weight.POSSIBLE, "compiles kernels"),
    ("fabric", "fabric", lambda m: m.fabric, Weight.STRONG, "speed of communication"),
    ("kernel", "kernel", lambda m: m.kernel, Weight.POSSIBLE, "scheduling and memory management"),
    ("node", "memory", lambda m: _memory(m.mem_bytes), Weight.UNLIKELY, "caches of the file system"),
    ("node", "distribution", lambda m: m.distribution, Weight.UNLIKELY, "a container brings its own"),
)


def _machine(first: Lock, second: Lock) -> Iterator[Difference]:
    a, b = _where(first), _where(second)
    if a is None or b is None:
        if (a is None) != (b is None):
            x, y = (None if machine is None else machine.hostname for machine in (a, b))
            yield from differ("node", "machine", x, y, Weight.UNLIKELY, "")
        return

    def known(read: Callable[[Machine], object]) -> tuple[object, object]:
        """Both values; an empty one is unknown."""
        x, y = read(a), read(b)
        return (x or None, y or None) if (x or y) else ("", "")

    for section, item, read, weight, reason in _OF_MACHINES:
        yield from differ(section, item, *known(read), weight, reason)
    in_container = first.image is not None and second.image is not None
    yield from differ(
        "glibc", "glibc of the host", *known(lambda m: m.glibc),
        Weight.UNLIKELY if in_container else Weight.POSSIBLE,
        "the image brings its own" if in_container else _OTHER_LIBC,
    )  # fmt: skip
    if first.job.topology.world_size > 1 or second.job.topology.world_size > 1:
        mpis, why = known(lambda m: m.mpis), "may start or connect the ranks"
        yield from differ("MPI", "MPI of the host", *mpis, Weight.POSSIBLE, why)
    yield from differ(
        "node", "nodes", first.nodes or None, second.nodes or None, Weight.UNLIKELY,
        "equal hardware can differ in clock and temperature",
    )  # fmt: skip


def _where(lock: Lock) -> Machine | None:
    """The machine that did the work."""
    scheduler = lock.plan.scheduler if lock.plan is not None else ""
    is_unknown = lock.kind == "study" and lock.node is None
    return lock.machine if scheduler == "local" or is_unknown else lock.node


def _memory(size: int) -> str:
    """Rounded, since kernels reserve different parts of the same memory."""
    return f"{size / 2**30:.0f} GiB" if size else ""


def _plan(first: Lock, second: Lock) -> Iterator[Difference]:
    a, b = first.plan, second.plan
    if a is None or b is None:
        return
    for item, x, y, weight, reason in (
        ("engine", a.engine, b.engine, Weight.POSSIBLE, "file access and start of the container"),
        ("engine's version", a.engine_version, b.engine_version, Weight.UNLIKELY, "start of the container"),
        ("launcher", a.launcher or None, b.launcher or None, Weight.POSSIBLE, "binding of ranks to cores"),
        ("scheduler", a.scheduler, b.scheduler, Weight.POSSIBLE, "limits and binding of cores"),
    ):
        if item == "engine's version" and (a.engine != b.engine or not (x and y)):
            continue
        yield from differ("plan", item, x, y, weight, reason)
    decided = _choices(first), _choices(second)
    for subject in sorted(decided[0].keys() | decided[1].keys()):
        if subject in ("engine", "launcher", "scheduler", "image"):
            continue
        x, y = decided[0].get(subject, NOTHING), decided[1].get(subject, NOTHING)
        is_fabric = "fabric" in subject
        yield from differ(
            "fabric" if is_fabric else "plan", subject, x, y, Weight.STRONG if is_fabric else Weight.UNLIKELY,
            "speed of communication" if is_fabric else "decided otherwise",
        )  # fmt: skip
    ways = first.results.transports, second.results.transports
    if any(ways):
        yield from differ("fabric", "transport", *ways, Weight.STRONG, "speed of communication")


def _choices(lock: Lock) -> Mapping[str, str]:
    return {each.subject: each.choice for each in lock.plan.decisions} if lock.plan is not None else {}


def _job(first: Lock, second: Lock) -> Iterator[Difference]:
    a, b = first.job.topology, second.job.topology
    for item, x, y in (
        ("nodes", a.nodes, b.nodes),
        ("ranks per node", a.ranks_per_node, b.ranks_per_node),
        ("cores per rank", a.cpus_per_rank or "all", b.cpus_per_rank or "all"),
        ("GPUs per rank", a.gpus_per_rank, b.gpus_per_rank),
    ):
        yield from differ("job", item, x, y, Weight.STRONG, "batch per rank, order of sums, speed")
    yield from differ(
        "job", "modules", first.job.modules, second.job.modules, Weight.POSSIBLE, "programs, libraries"
    )
    mounts = [
        tuple(f"{m.source}:{m.target}{':rw' * m.writable}" for m in job.mounts)
        for job in (first.job, second.job)
    ]
    yield from differ("job", "mounts", mounts[0], mounts[1], Weight.POSSIBLE, "other files")


def _results(first: Lock, second: Lock) -> Iterator[Difference]:
    a, b = first.results, second.results
    yield from differ("results", "exit code", a.exit_code, b.exit_code, Weight.RESULT, "")
    for name in sorted(a.metrics.keys() | b.metrics.keys()):
        x, y = a.metrics.get(name), b.metrics.get(name)
        yield from differ("results", name, x, y, Weight.RESULT, ratio_of(x, y))
    if a.wall_s and b.wall_s:
        yield from differ(
            "results", "wall time", f"{a.wall_s:.1f} s", f"{b.wall_s:.1f} s", Weight.RESULT,
            ratio_of(a.wall_s, b.wall_s),
        )  # fmt: skip


def ratio_of(first: float | str | None, second: float | str | None) -> str:
    if isinstance(first, int | float) and isinstance(second, int | float) and first:
        return f"ratio {second / first:.4f}"
    return ""
