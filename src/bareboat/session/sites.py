"""The machine on which the command was called, and the nodes on which a job runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from bareboat import registry
from bareboat.session import Purpose
from bareboat_base import codec
from bareboat_base.errors import NoEngineError, StoreError, UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from bareboat.model import Check, Job, Site
    from bareboat.probe import Needs
    from bareboat.session import Session

T = TypeVar("T")

#: Facts of a site with thousands of partitions.
_LARGEST_FACTS = 64 << 20
_EXPORT = "bareboat doctor --compute --export SITE.json   # on the site"


class Facts(NamedTuple):
    """A site as its doctor saw it: where jobs are submitted (None: this machine), and a compute node where
    one was probed."""

    title: str
    login: Site | None
    node: Site | None


def probe(session: Session, *, needs: Needs | None = None, thorough: bool = False) -> Site:
    """The facts about this machine; with `needs`, only those."""
    from bareboat.probe import probe

    registry.load_plugins()
    return probe(session.store, needs, thorough=thorough)


def probe_for(session: Session, job: Job, purpose: Purpose) -> Site:
    """The facts that this job's plan needs, if the preferred engine can run it; else `unprobed` of the site
    names the engines that are left. A plan that is shown weighs everything, but of engines only the
    one that the job names."""
    from bareboat.probe import Needs

    shown = purpose is Purpose.PLAN
    first = None if shown else registry.names("engines")[0]
    engine = job.engine.partition(":")[0] if job.engine else first
    scheduler = job.scheduler or registry.HERE
    topology = job.topology
    needs = Needs(
        engines=None if engine is None else tuple({engine: "", registry.BARE_METAL: ""}),
        # submit without a scheduler takes the first that works; others name it for several nodes.
        schedulers=None
        if shown or (scheduler == registry.HERE and (purpose is Purpose.SUBMIT or topology.nodes > 1))
        else (scheduler,),
        # Ranks, launchers, and what decides between images for one MPI each.
        mpis=shown
        or topology.world_size > 1
        or bool(job.launcher)
        or job.sweep is not None
        or "{" in job.image,
        network=shown or topology.nodes > 1,
    )
    return probe(session, needs=needs)


def with_engines(session: Session, site: Site, step: Callable[[Site], T]) -> T:
    """The step's result for the site; again with the engines that were not probed, where the others cannot
    run the job."""
    try:
        return step(site)
    except NoEngineError:
        if not site.unprobed:
            raise
    return step(probe_rest(session, site))


def probe_rest(session: Session, site: Site) -> Site:
    """The site with its unprobed engines."""
    from bareboat.probe import Needs

    needs = Needs(engines=site.unprobed, schedulers=(), mpis=False, network=False)
    rest = probe(session, needs=needs)
    order = registry.names("engines")
    checks: dict[str, Check] = {}
    for check in (*site.checks, *rest.checks):
        if check.works or check.name not in checks:
            checks[check.name] = check
    return msgspec.structs.replace(
        site,
        engines=tuple(sorted((*site.engines, *rest.engines), key=lambda facts: order.index(facts.name))),
        checks=tuple(checks.values()),
        remarks=tuple(dict.fromkeys((*site.remarks, *rest.remarks))),
        unprobed=(),
    )


def equipped(session: Session, job: Job, site: Site) -> Site:
    """The site with the programs of Bareboat that the job's nodes need."""
    if registry.is_queued(job.scheduler):
        from bareboat.runs.programs import provide

        site = provide(session.store, site)
    if job.shim:
        from bareboat.model.job import SHIMS_ALWAYS
        from bareboat.runs.programs import provide_shims

        site = provide_shims(session.store, site, always=job.shim == SHIMS_ALWAYS)
    return with_filters(session, site)


def compute_node(session: Session, job: Job, login: Site) -> Site | None:
    """The facts that `doctor --compute` stored about the job's nodes; None where it did not run."""
    from bareboat.model import Site

    if not registry.is_queued(job.scheduler):
        return None
    from bareboat.probe.compute import site_name

    path = session.store.site(site_name(job, login))
    if not path.exists():
        return None
    from bareboat.runs.programs import provide

    return with_filters(session, provide(session.store, session.store.read(path, Site)))


def with_filters(session: Session, site: Site) -> Site:
    """The site with the system call filters in the store."""
    from bareboat.runs.programs import provide_filters

    return provide_filters(session.store, site)


#: Of a site's file, without its ending.
_LONGEST_NAME = 200


def note_scheduler(session: Session, asked: str | None) -> None:
    """Note that this machine is measured, where submit would use a scheduler. `asked`: the study's."""
    from bareboat.probe import Needs
    from bareboat.runs import allocation

    if asked is None and allocation.find(session.environment) is None:
        here = probe(session, needs=Needs(engines=(), mpis=False, network=False))
        if (name := here.working_scheduler) is not None:
            also = f"--scheduler {name} measures a compute node"
            session.reporter.note(f"note: this measures {here.hostname}; {also}")


class NoSchedulerError(UsageError):
    """This machine has no scheduler."""


def scheduler_here(site: Site) -> str:
    """The machine's scheduler. Raises NoSchedulerError where there is none."""
    if not site.schedulers:
        raise NoSchedulerError(
            "no scheduler found on this machine",
            remedy="log in to the cluster, or run the job on this machine: bareboat run",
        )
    return site.working_scheduler or site.schedulers[0].name


def planned_for(session: Session, job: Job, site: Site) -> tuple[Job, Site]:
    """The job for this machine's scheduler, as `submit` takes it, unless one is requested or this shell is in
    a job; and the site with what is assumed of a requested scheduler that is not here."""
    from bareboat.runs import allocation

    if job.scheduler is None and allocation.find(session.environment) is None:
        return msgspec.structs.replace(job, scheduler=site.working_scheduler), site
    if not registry.is_queued(job.scheduler):
        return job, site
    facts = site.scheduler(job.scheduler)
    if facts is not None and facts.works:
        return job, site
    assumed = registry.scheduler(job.scheduler).assumed(job)
    others = tuple(each for each in site.schedulers if each.name != job.scheduler)
    return job, msgspec.structs.replace(site, schedulers=(*others, assumed))


def named(session: Session, text: str) -> Facts:
    """The site of --for: facts about compute nodes in the store, or a file of `doctor --export`. Raises
    UsageError, StoreError."""
    from bareboat.model import Site

    if not text or not text.isprintable() or ("/" not in text and len(text) > _LONGEST_NAME):
        shown = quoted(text) if text else "empty"
        raise UsageError(
            f"--for is {shown}; it must be the name of a site, or a file of `bareboat doctor --export`",
            remedy="--for here, or --for SITE.json",
        )
    stored = session.store.site(text)
    if "/" not in text and not text.endswith(".json") and stored.exists():
        return Facts(text, None, session.store.read(stored, Site))
    for path in (Path(text), Path(f"{text}.json")):
        if os.path.lexists(path):
            return read_facts(path)
    known = sorted(each.stem for each in stored.parent.glob("*.json"))
    raise UsageError(
        f"no facts about the site {quoted(text, limit=200)}",
        context=f"in the store: {', '.join(known[:20]) or 'none'}; files: {text}, {text}.json",
        remedy=f"{_EXPORT}; then: --for SITE.json",
    )


def read_facts(path: Path) -> Facts:
    """The facts of a file that `doctor --export`, `doctor --json` or `doctor --compute --json` wrote. Raises
    UsageError."""
    from bareboat.model import Site

    try:
        data = untrusted.read_bytes(path, limit=_LARGEST_FACTS, follow=True)
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    try:
        both = codec.decode(data, dict[str, msgspec.Raw])
        parts = {
            name: codec.from_json(bytes(both[name]), Site, what=f"{path}: {name}", remedy=_EXPORT)
            for name in ("login", "compute")
            if name in both
        }
        login = parts.get("login") or parts.get("compute")
        if login is None:
            login = codec.from_json(data, Site, what=str(path), remedy=_EXPORT)
    except (msgspec.DecodeError, RecursionError):
        raise UsageError(f"{path} has no facts about a site: it is not valid JSON", remedy=_EXPORT) from None
    except StoreError as error:
        raise UsageError(error.message, remedy=_EXPORT) from None
    return Facts(path.stem, login, parts.get("compute"))
