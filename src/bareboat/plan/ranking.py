"""In which order engines are tried: by their cost for this job, as measured (`bareboat.engines.costs`)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bareboat import registry
from bareboat.engines import costs
from bareboat.model import Image, Job, Site

#: Assumed number of a job's file calls. `import torch` makes 18,000, and then the data is read, epoch after
#: epoch; a command of a shell makes 300, `import numpy` 1,100 (strace -f -c -e trace=%file).
_LONG_FILE_CALLS, _SHORT_FILE_CALLS = 200_000, 2_000
#: A job without a framework but with at least this wall time is not considered short.
_LONG_S = 600
_FRAMEWORKS = frozenset(("torch", "tensorflow", "jax"))


def least(job: Job) -> str | None:
    """The cheapest engine for this job if all worked here; None where that depends on the image."""
    form = _form(job)
    known = {name: costs.all_of(registry.engine(name), form=form) for name in registry.names("engines")}
    known = {
        name: each
        for name, each in known.items()
        if each and (registry.engine(name).STACKS or not job.writable)
    }
    found = set()
    for file_calls in (_SHORT_FILE_CALLS, _LONG_FILE_CALLS):
        most = {name: max(cost.added_s(file_calls) for cost in each) for name, each in known.items()}
        first = min(most, key=lambda name: most[name])
        others = (cost for name, each in known.items() if name != first for cost in each)
        found.add(first if all(most[first] < cost.added_s(file_calls) for cost in others) else None)
    return found.pop() if len(found) == 1 else None


def _form(job: Job) -> str:
    """The image's form in terms of costs."""
    return "layers" if job.writable else "file" if job.form == "file" else ""


class Ranking:
    """The engines' costs for this job: the seconds that one start and the job's file calls take longer than
    the calls alone on bare metal."""

    def __init__(self, job: Job, image: Image | None, site: Site) -> None:
        self._site = site
        self._form = _form(job)
        trains = image is not None and not _FRAMEWORKS.isdisjoint(image.frameworks)
        long = trains or (job.walltime_s or 0) >= _LONG_S
        self._file_calls = _LONG_FILE_CALLS if long else _SHORT_FILE_CALLS

    def sorted(self, names: Iterable[str]) -> list[str]:
        """The cheapest first; then those without measurements; last, those without a container. Stable."""

        def key(name: str) -> tuple[bool, float]:
            cost = self._cost(name)
            added_s = math.inf if cost is None else cost.added_s(self._file_calls)
            return not registry.engine(name).CONTAINS, added_s

        return sorted(names, key=key)

    def why(self, name: str) -> str:
        """The cost of the chosen engine; "" when unknown."""
        cost = self._cost(name)
        if cost is None:
            return ""
        return f"it adds about {self._added(cost)} for one start and {self._file_calls:,} file calls"

    def why_not(self, name: str, chosen: str) -> str:
        """The cost that ruled it out, compared with the chosen engine."""
        cost, less = self._cost(name), self._cost(chosen)
        if cost is None or less is None:
            return f"what it costs has not been measured; {chosen} comes first"
        start_s = (cost.start_ms - less.start_ms) / 1e3
        files_s = cost.added_s(self._file_calls) - less.added_s(self._file_calls) - start_s
        if start_s + files_s <= 0:
            return f"it costs as much as {chosen}, which comes first"
        if files_s > start_s:
            fault = f"file calls cost {cost.file_call:.2g}x"
        else:
            fault = f"a start takes {cost.start_ms:.0f} ms"
        return f"{fault}: it would add about {self._added(cost)}, {chosen} adds {self._added(less)}"

    def _added(self, cost: costs.Cost) -> str:
        seconds = cost.added_s(self._file_calls)
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"

    def _mode(self, name: str) -> str:
        """The mode that the engine uses here: the first that worked."""
        facts = self._site.engine(name.partition(":")[0])
        return facts.modes[0] if facts is not None and facts.modes else ""

    def _cost(self, name: str) -> costs.Cost | None:
        base, _, mode = name.partition(":")
        return costs.of(registry.engine(base), mode=mode or self._mode(name), form=self._form)
