"""The engines' facts about a machine."""

from __future__ import annotations

import msgspec

from bareboat import registry
from bareboat.engines import Host
from bareboat.model import EngineFacts
from bareboat.probe.attempts import reason
from bareboat_base.printable import one_line

_MOST_DETAIL = 1000


def _short(detail: str) -> str:
    return detail if len(detail) <= _MOST_DETAIL else one_line(detail, limit=_MOST_DETAIL)


def probe_engine(name: str, host: Host) -> tuple[EngineFacts, ...]:
    """The engine's facts, with long tool output shortened. An engine whose probe fails counts as not working,
    without effect on the others."""
    try:
        found = registry.engine(name).probe(host)
        return tuple(msgspec.structs.replace(facts, detail=_short(facts.detail)) for facts in found)
    except Exception as error:
        why = f"the probe failed: {reason(error)}"
        modes = (mode.partition(":")[2] for mode in registry.modes(name))
        return (
            EngineFacts(
                name=name, path=host.which(name) or "", version="", origin="on PATH", works=False,
                detail=why, remedy="bareboat doctor", faults={mode: why for mode in modes if mode},
            ),
        )  # fmt: skip
