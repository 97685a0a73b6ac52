"""Shims of other tools on the PATH of a job's command."""

from __future__ import annotations

from bareboat.model import Decision, Image, Job, Joined, Site, Variable
from bareboat_base.paths import DEFAULT_PATH

#: In `Site.other_tools`: their directory in the store.
SHIMS = "shims"
#: Their directory, for scripts that set PATH again.
_FOLDER = "BAREBOAT_SHIMS"


def choose_shims(
    job: Job, image: Image | None, site: Site
) -> tuple[tuple[tuple[str, Joined], ...], tuple[Decision, ...]]:
    """The variables of the command: the shims come first on PATH, then the job's or else the job script's
    directories, and those of the environment."""
    folder = site.other_tools.get(SHIMS)
    if not job.shim or folder is None:
        return (), ()
    own = (image.environment.get("PATH") if image is not None else None) or DEFAULT_PATH
    path = Joined((f"{folder}:", Variable("PATH"), f":{own}"))
    if "PATH" in job.environment:
        path = Joined((f"{folder}:{job.environment['PATH']}",))
    decision = Decision(
        subject="shims",
        choice=f"{folder} is the first directory on PATH",
        reason="asked for: shim = true; a tool that a node has on PATH has priority over its shim"
        if job.shim is True
        else f'asked for: shim = "{job.shim}"; the shims replace tools that a node has on PATH',
    )
    return (("PATH", path), (_FOLDER, Joined((folder,)))), (decision,)
