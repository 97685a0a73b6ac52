"""What Bareboat has in the place of keys, flags and verbs that it had once, and of other tools' flags."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from bareboat_base.errors import UsageError

#: By the whole name: of a key, a setting, a flag (with its verb if another has it, too), or a verb with its
#: action.
_INSTEAD = {
    "capture.cuda": "a capture has the whole environment: capture one without CUDA, by capture.python",
    "capture.study": "a capture has the whole environment: capture one without it, by capture.python",
    "--without-cuda": "capture an environment without CUDA: --python PATH",
    "--without-study": "capture an environment without it: --python PATH",
    "bareboat plan --why": "bareboat plan -v shows all reasons",
    "bareboat config store --private": "choose a store of your own: --store DIR",
    "bareboat config site": "write ~/.config/bareboat/site.toml; bareboat config shows its values",
    "bareboat image diff": "compare the lists that bareboat image show --sbom spdx IMAGE writes",
    "bareboat image du --depth": "bareboat run --image IMAGE -- du -xhd 2 /",
    "bareboat image du --all": "bareboat run --image IMAGE -- du -xhd 2 /",
    "bareboat image init --base": "write the base in the Dockerfile's FROM",
    "bareboat image init --format": "bareboat image save NAME sif:FILE makes a SIF file of the built image",
    "bareboat image init --nccl": "name NCCL in the package list",
    "bareboat image init --python": "set requires-python in pyproject.toml",
    "bareboat image build --add-host": "RUN has the host's /etc/hosts: write the address in the recipe",
    "bareboat image build --ssh": "copy the repository into the context",
    "bareboat image layer --wheel": "put the wheel into DIR: export PIP_FIND_LINKS=DIR",
    "bareboat image lint --fix": "each finding shows the line to write",
    "bareboat lock --ro-crate": "deposit the lock, the code and the output: bareboat lock RUN -o run.lock",
    "bareboat replay --repeats": "a study's lock is its file: bareboat prove FILE --repeats N",
    "bareboat status --watch": "watch -n 10 bareboat status",
    "bareboat status --interval": "watch -n 10 bareboat status",
    "notify": 'mail is an option of the scheduler: set options = ["--mail-type=END"] or ["-m e"]',
    "--notify": 'mail is an option of the scheduler: set options = ["--mail-type=END"] or ["-m e"]',
    **dict.fromkeys(
        ("bareboat report --latex", "bareboat report --markdown"),
        "bareboat report NAME --csv writes the numbers, --pdf the figures",
    ),
    "bareboat report --tensorboard": "write the series as a table: bareboat report RUN --csv DIRECTORY",
    **dict.fromkeys(("shim docker", "shim podman"), "bareboat run --image IMAGE -- COMMAND"),
    "prove.quick": 'set within_s = "1m" under [prove]',
    "--quick": "measure as many runs as fit into a minute: --within 1m",
    "bareboat init --run": "bareboat init --from SCRIPT; then run both, and compare what they print",
}
#: Flags of tools that run containers, and of qsub.
_OF_TOOLS = {
    "-l": "--nodes N --ntasks N --time TIME --mem SIZE",
    **dict.fromkeys(("-e", "--env"), "--set environment.{}"),
    **dict.fromkeys(("-v", "--volume", "-B", "--bind"), "--set mounts={}   # read-only without :rw"),
    "--mount": "--set mounts=SOURCE:TARGET:rw",
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
    if flag in ("-v", "--volume", "-B", "--bind") and not value.endswith((":ro", ":rw")):
        value += ":rw"
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
