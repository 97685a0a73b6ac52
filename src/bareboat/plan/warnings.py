"""Problems that are likely on this site although nothing forbids the job; and what a job sets and nothing
uses in this plan, by the table of keys."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import UNSET

from bareboat.engines import LEAST_SHM_BYTES
from bareboat.model import AbsentModule, CodeFacts, Decision, Image, Job, Site
from bareboat.model.job import KEYS
from bareboat.model.keys import value_of
from bareboat_base.paths import lies_in
from bareboat_base.printable import one_line

#: Packages that compile while they run, and what does not work without a compiler.
_COMPILE = {
    "deepspeed": "DeepSpeed's operators",
    "triton": "Triton's kernels and torch.compile",
    "torch": "torch.compile",
}


def unseen(job: Job, code: CodeFacts) -> tuple[str, ...]:
    """What the job's code uses of this machine and the container does not show."""
    shown = [place for mount in job.mounts for place in (mount.source, mount.target)]
    if job.image == "capture":
        shown += job.capture.include
    hidden = [
        f'{path} is not in the container, and {reason}: add it to mounts = ["{path}"], or ["{path}:rw"]'
        for path, reason in code.outside
        if not any(lies_in(path, place) for place in shown)
    ]
    if code.scratch is not UNSET and not any(lies_in(code.scratch[0], place) for place in shown):
        path, file = code.scratch
        hidden.append(
            f"{file} names {path}: what the job writes there is discarded with the container; write to the "
            "working directory, or to a directory under mounts"
        )
    if code.submits is not None:
        command, file = code.submits
        hidden.append(
            f"{file} starts {command}, which is not in the container: submit such jobs from this machine "
            '(bareboat submit --after RUN), or set engine = "native"'
        )
    return tuple(hidden)


def absent_modules(job: Job, code: CodeFacts) -> tuple[str, ...]:
    """The modules that the job's code imports and its Python does not find."""
    known = [each for each in code.absent if each.package]
    others = [each for each in code.absent if not each.package]
    names = " ".join(dict.fromkeys(each.package for each in known))
    if job.image == "capture":
        place, remedies = "the environment", (f"pip install {names}", "install what has it")
    else:
        then = "to its Dockerfile, then bareboat image build"
        place, remedies = "the image", (f"add RUN pip install {names} {then}", f"add what has it {then}")
    or_path = "; or set PYTHONPATH under [environment]"
    return tuple(
        f"{place} has no module {_imported(each)}: {remedy}{or_path if each is others else ''}"
        for each, remedy in zip((known, others), remedies, strict=True)
        if each
    )


def _imported(modules: Sequence[AbsentModule]) -> str:
    shown = [
        f"{each.module} ({f'{each.file}, line {each.line}' if each.file else 'the command'})"
        for each in modules[:4]
    ]
    return ", ".join(shown) + f" and {len(modules) - 4} more" * (len(modules) > 4)


def compiler_missing(job: Job, image: Image | None) -> tuple[str, ...]:
    """What does not work without a C compiler; nothing where the image has one, or the job needs none."""
    if image is None or image.compiler is not False or job.capture.compiler is False:
        return ()
    what = next((what for package, what in _COMPILE.items() if package in image.frameworks), None)
    if what is None:
        return ()
    remedy = (
        "set compiler = true under [capture], or false if the job does not use it"
        if job.image == "capture"
        else "use an image that has gcc, if the job uses it"
    )
    requires = "require" if " and " in what or what.endswith("s") else "requires"
    return (f"the image has no C compiler, which {what} {requires}: {remedy}",)


def site_warnings(job: Job, image: Image | None, site: Site) -> tuple[str, ...]:
    """Facts that could not be probed, and too little shared memory."""
    shm = next((system for system in site.file_systems if system.purpose == "shm"), None)
    ranks = job.topology.ranks_per_node
    least_bytes = LEAST_SHM_BYTES * ranks
    if image is None or "torch" not in image.frameworks or shm is None or shm.free_bytes >= least_bytes:
        return site.remarks
    return (
        *site.remarks,
        f"{shm.path} has {shm.free_bytes / 2**20:,.0f} MiB free for {ranks} ranks: a PyTorch DataLoader with "
        "workers passes batches through it, and is killed by a bus error when it is full; use num_workers=0, "
        f"or: sudo mount -o remount,size=50% {shm.path}",
    )


def unused_decisions(job: Job, *, contains: bool, is_local: bool) -> tuple[Decision, ...]:
    """A decision for each kind of plan whose keys have no effect in this one. `contains`: whether the engine
    makes containers; `is_local`: whether the job runs here at once."""
    lacking = {"schedulers": is_local, "containers": not contains}
    return tuple(
        Decision(subject="without effect", choice=", ".join(names), reason=f"only {users} use it")
        for users, are_absent in lacking.items()
        if are_absent and (names := _set_unused(job, users.removesuffix("s")))
    )


def unused_warnings(job: Job, *, contains: bool) -> tuple[str, ...]:
    """Of what the job sets and nothing uses in this plan, what changes what the command finds."""
    found = []
    if not contains:
        found += [
            f"the mount of {one_line(mount.source)} at {one_line(mount.target)} has no effect: without a "
            "container, the command finds this machine's files"
            for mount in job.mounts
            if mount.source != mount.target
        ]
    if job.image != "capture" and (names := _set_unused(job, "capture")):
        has = "has" if len(names) == 1 else "have"
        found.append(f"{', '.join(names)} {has} no effect: the image is {one_line(job.image)}, not a capture")
    return tuple(found)


def _set_unused(job: Job, user: str) -> list[str]:
    """The keys that only this uses and that the job sets; none that settings complete, which are a site's."""
    return [name for name, default in _defaults(user).items() if value_of(job, name) != default]


@functools.cache
def _defaults(user: str) -> Mapping[str, Any]:
    usual = Job(name="usual", command=("true",), workdir=None)
    names = [name for name, key in KEYS.items() if key.used_by == user and not key.is_setting]
    return MappingProxyType({name: value_of(usual, name) for name in names})
