"""The environment variables that mark the processes of a run."""

from __future__ import annotations

RUN_VARIABLE = "BAREBOAT_RUN"
#: An environment variable of processes that an engine starts outside of the container, with the run's name.
#: It identifies processes that the engine leaves behind, such as Podman's pause process, which get no
#: signals.
HELPER_VARIABLE = "BAREBOAT_HELPER_OF"
