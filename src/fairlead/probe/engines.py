"""What each engine says of a machine."""

from __future__ import annotations

from fairlead import registry
from fairlead.engines import Host
from fairlead.errors import ToolError
from fairlead.model import EngineFacts


def probe_engine(name: str, host: Host) -> tuple[EngineFacts, ...]:
    """An engine whose program hangs does not work; that is no reason to know nothing of the others."""
    try:
        return registry.engine(name).probe(host)
    except ToolError as error:
        modes = (mode.partition(":")[2] for mode in registry.modes(name))
        return (
            EngineFacts(
                name=name, path=host.which(name) or "", version="", origin="on PATH", works=False,
                detail=f"when tried, {error.message}", remedy="fairlead doctor",
                faults={mode: f"when tried, {error.message}" for mode in modes if mode},
            ),
        )  # fmt: skip
