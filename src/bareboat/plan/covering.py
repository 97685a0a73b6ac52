"""Directories of the host that would replace the image's own. Pure.

The job would run with the host's programs and libraries, and its result would not be the image's.
"""

from __future__ import annotations

from bareboat.model import Job
from bareboat_base.errors import PlanError
from bareboat_base.paths import lies_in

#: Directories of images with programs, libraries and settings, and those that the engine mounts.
_SYSTEM = (
    "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/local",
    "/usr/local/bin", "/usr/local/lib", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc",
    "/proc", "/sys", "/dev",
)  # fmt: skip
#: Kernel file systems, whose directories are not on a disk.
_KERNEL = ("/proc", "/sys")


def refuse(job: Job) -> None:
    """Raise PlanError for a working directory that would replace the image's own, and for a mount that would
    replace the whole image."""
    whole = next((mount for mount in job.mounts if mount.target == "/"), None)
    if whole is not None:
        raise PlanError(
            f"the mount of {whole.source} at / would replace the whole image",
            key="mounts",
            remedy=f'mount it elsewhere: mounts = ["{whole.source}:/host"]',
        )
    folder = job.workdir
    if folder is not None and (_hidden(folder) or any(lies_in(folder, each) for each in _KERNEL)):
        what = "all of the image" if folder == "/" else "the image's directory of that name"
        raise PlanError(
            f"the working directory {folder} of the host would replace {what}",
            key="workdir",
            context="a job's working directory is mounted into its container at the same path",
            remedy='mkdir -p ~/job && cd ~/job   # or, in a job file: workdir = "image"',
        )


def warnings(job: Job) -> tuple[str, ...]:
    """Warn about mounts of the job that hide files which the image's programs need."""
    return tuple(
        f"the mount of {mount.source} hides the image's {', '.join(hidden[:3])}: the job runs with what this "
        f'machine has there; to see both: mounts = ["{mount.source}:/host{mount.source}"]'
        for mount in job.mounts
        if (hidden := _hidden(mount.target))
    )


def _hidden(path: str) -> list[str]:
    """The image's system directories at or below a path, without those inside another."""
    found = [each for each in _SYSTEM if lies_in(each, path)]
    return [each for each in found if not any(each != other and lies_in(each, other) for other in found)]
