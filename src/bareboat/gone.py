"""Keys, flags and verbs that Bareboat had once, and what took their place."""

from __future__ import annotations

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


def refuse(name: str, place: Callable[[], str] = str) -> None:
    """Raise UsageError for the name of what is gone, with what took its place. `place`: where it stands."""
    if name in _INSTEAD:
        raise UsageError(f"{name} no longer exists", context=place(), remedy=_INSTEAD[name])
