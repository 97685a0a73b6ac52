"""The environment variables that mark the processes of a run, and their value."""

from __future__ import annotations

import os

RUN_VARIABLE = "BAREBOAT_RUN"
#: An environment variable of processes that an engine starts outside of the container, with the run's mark.
#: It identifies processes that the engine leaves behind, such as Podman's pause process, which get no
#: signals.
HELPER_VARIABLE = "BAREBOAT_HELPER_OF"


def of(runs: str | os.PathLike[str], run_id: str) -> str:
    """The mark of a run, kept in the directory `runs` of a store: runs of one name in two stores have two. A
    point's mark is the sweep's with the point's number, as its name is."""
    import hashlib  # not for commands that start nothing

    place = hashlib.sha256(os.fsencode(os.path.realpath(runs))).hexdigest()
    return f"{place[:16]}-{run_id}"
