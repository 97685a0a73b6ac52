"""What each engine says of a machine."""

from __future__ import annotations

from fairlead import registry
from fairlead.engines import Host
from fairlead.model import EngineFacts
from fairlead.probe.attempts import reason


def probe_engine(name: str, host: Host) -> tuple[EngineFacts, ...]:
    """An engine whose probe fails does not work; that is no reason to know nothing of the others."""
    try:
        return registry.engine(name).probe(host)
    except Exception as error:
        why = f"when tried, {reason(error)}"
        modes = (mode.partition(":")[2] for mode in registry.modes(name))
        return (
            EngineFacts(
                name=name, path=host.which(name) or "", version="", origin="on PATH", works=False,
                detail=why, remedy="fairlead doctor", faults={mode: why for mode in modes if mode},
            ),
        )  # fmt: skip
