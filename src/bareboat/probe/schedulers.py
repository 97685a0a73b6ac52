"""Which schedulers this machine can submit jobs to."""

from __future__ import annotations

from bareboat import registry
from bareboat.model import SchedulerFacts
from bareboat.probe.attempts import reason
from bareboat.probe.host import RealHost


def probe_scheduler(name: str, host: RealHost) -> SchedulerFacts | None:
    """The scheduler's facts; None where it is not installed."""
    try:
        return registry.scheduler(name).probe(host.for_one_subject())
    except Exception as error:  # a controller that is down does not answer in time
        return SchedulerFacts(name=name, version="", works=False, detail=reason(error))
