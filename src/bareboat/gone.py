"""What Bareboat has in the place of keys, flags and verbs that it had once, and of other tools' flags."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from bareboat_base.errors import UsageError

#: By the whole name: of a key, a setting, a flag (with its verb if another has it, too), or a verb with its
#: action.
_INSTEAD = {
    "capture.cuda": "a capture has the whole environment: capture one without CUDA, by capture.python",
    "--without-study": "capture an environment without it: --python PATH",
    "bareboat config site": "write ~/.config/bareboat/site.toml; bareboat config shows its values",
    "bareboat image diff": "compare the lists that bareboat image show --sbom spdx IMAGE writes",
    "bareboat image du --depth": "bareboat run --image IMAGE -- du -xhd 2 /",
    "bareboat image init --base": "write the base in the Dockerfile's FROM",
    "bareboat status --watch": "watch -n 10 bareboat status",
    "notify": 'mail is an option of the scheduler: set options = ["--mail-type=END"] or ["-m e"]',
    "--notify": 'mail is an option of the scheduler: set options = ["--mail-type=END"] or ["-m e"]',
    **dict.fromkeys(("shim docker", "shim podman"), "bareboat run --image IMAGE -- COMMAND"),
}
#: Flags of tools that run containers, and of qsub.
_OF_TOOLS = {
    "-l": "--nodes N --ntasks N --time TIME --mem SIZE",
    **dict.fromkeys(("-e", "--env"), "--set environment.{}"),
    **dict.fromkeys(("-v", "--volume", "-B", "--bind", "--mount"), "--set mounts={}"),
    **dict.fromkeys(("-w", "--workdir", "--pwd"), "--set workdir={}"),
    "--rm": "remove --rm: a container leaves nothing behind",
}
#: Requests of a scheduler's job, by their kind or the beginning of their name.
_OF_SCHEDULERS = {
    "nodes": "--nodes N", "tasks_per_node": "--ranks-per-node N", "tasks": "--ntasks N",
    "cpus": "--cpus-per-rank N", "gpus_per": "--gpus-per-rank N", "gpus": "--gpus N", "memory": "--mem SIZE",
    "minutes": "--time TIME", "gres": "--gpus-per-rank N", "exclusive": "--set scheduling.exclusive=true",
    "array": "write the values of an array under [sweep] in a job file", "variables": "--env-from NAME",
    "starts_in": "--set workdir={}", "pass": "--set scheduling.options={}", "differ": "remove {}: {}",
}  # fmt: skip


def of_another_tool(flag: str, value: str) -> str:
    """What to write instead of a flag of sbatch, qsub, or a tool that runs containers; "" for other flags."""
    from bareboat.model.job import KEYS
    from bareboat_adopt.directives import OF_SLURM  # few command lines have such a flag

    kind, name = OF_SLURM.get(flag, ("", ""))
    value = shlex.quote(value)
    if flag in _OF_TOOLS and (flag not in ("-e", "--env") or "=" in value):
        return _OF_TOOLS[flag].format(value)
    if kind == "key":
        own = KEYS[name].flags
        return f"{own[-1]} {value}" if own and flag not in own else f"--set {name}={value}"
    meant = next((text for key, text in _OF_SCHEDULERS.items() if kind == key or name.startswith(key)), "")
    written = f"{flag}={value}" if kind == "pass" and value else flag if kind != "starts_in" else value
    return meant.format(written, name)


def refuse(name: str, place: Callable[[], str] = str) -> None:
    """Raise UsageError for the name of what is gone, with what took its place. `place`: where it stands."""
    if name in _INSTEAD:
        raise UsageError(f"{name} no longer exists", context=place(), remedy=_INSTEAD[name])
