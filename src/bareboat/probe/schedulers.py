"""Which schedulers this machine can hand jobs to."""

from __future__ import annotations

from bareboat import registry
from bareboat.model import SchedulerFacts
from bareboat.probe.attempts import reason
from bareboat.schedulers import Asks


def probe_schedulers(host: Asks) -> tuple[SchedulerFacts, ...]:
    found = []
    for name in registry.names("schedulers"):
        try:
            facts = registry.scheduler(name).probe(host)
        except Exception as error:  # a controller that is down does not answer in time
            facts = SchedulerFacts(name=name, version="", works=False, detail=reason(error))
        if facts is not None:
            found.append(facts)
    return tuple(found)
