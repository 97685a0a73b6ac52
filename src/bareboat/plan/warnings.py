"""Problems that are likely on this site although nothing forbids the job."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from bareboat.engines import LEAST_SHM_BYTES
from bareboat.model import AbsentModule, CodeFacts, Image, Job, Site
from bareboat_base.paths import lies_in

#: Packages that compile while they run, and what does not work without a compiler.
_COMPILE = {
    "deepspeed": "DeepSpeed's operators",
    "triton": "Triton's kernels and torch.compile",
    "torch": "torch.compile",
}


def image_warnings(job: Job, image: Image | None, code: CodeFacts) -> tuple[str, ...]:
    """The missing C compiler, where the job's code compiles. A job can turn this off by
    `capture.compiler = false`."""
    if image is None:
        return ()
    return compiler_missing(job, image) if code.compiles else ()


def unseen(job: Job, code: CodeFacts) -> tuple[str, ...]:
    """What the job's code uses of this machine and the container does not show."""
    shown = [place for mount in job.mounts for place in (mount.source, mount.target)]
    if job.image == "capture":
        shown += job.capture.include
    hidden = [
        f'{path} is not in the container, and {reason}: add it to mounts = ["{path}"]'
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
    if image is None or "torch" not in image.frameworks:
        return site.remarks
    shm = next((system for system in site.file_systems if system.purpose == "shm"), None)
    ranks = job.topology.ranks_per_node
    if shm is None or shm.free_bytes >= LEAST_SHM_BYTES * ranks:
        return site.remarks
    return (
        *site.remarks,
        f"{shm.path} has {shm.free_bytes / 2**20:,.0f} MiB free for {ranks} ranks: a PyTorch DataLoader with "
        "workers passes batches through it, and is killed by a bus error when it is full; use num_workers=0, "
        f"or: sudo mount -o remount,size=50% {shm.path}",
    )
