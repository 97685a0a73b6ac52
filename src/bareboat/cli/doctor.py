"""bareboat doctor: show what this machine supports, and how to fix what is missing."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat import registry
from bareboat.cli import console
from bareboat.cli.argument_parser import Parser
from bareboat.cli.common import (
    SCHEDULING,
    Context,
    add_common,
    add_scheduling,
)
from bareboat.cli.folding import folded
from bareboat.model import EngineFacts, FileSystem, GpuDriver, MpiFacts, Partition, SchedulerFacts, Site
from bareboat.schedulers import by_partition
from bareboat.session import sites
from bareboat_base import digests
from bareboat_base.errors import BareboatError, StoreError, UsageError
from bareboat_base.files import outputs
from bareboat_base.printable import counted

if TYPE_CHECKING:
    from bareboat.mpi.checks import CheckResult

EXAMPLE = "bareboat doctor\n  bareboat doctor --compute --partition gpu"


def add(parser: Parser) -> None:
    add_common(parser)
    parser.add_argument("--compute", action="store_true", help="also probe a compute node, with a job")
    parser.add_argument(
        "--export",
        metavar="FILE",
        help="also write the facts to this file, for plan --for, image init --for and image lint --for",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="discard stored MPI check results, so that the checks run again",
    )
    add_scheduling(parser)


def run(context: Context) -> int:
    """Exit with 0 when a container can run, 3 when not, 4 when one can but a file is damaged."""
    options = context.options
    if options.scheduler is not None:
        registry.check("scheduler", options.scheduler, called="--scheduler")
    if not options.compute and (name := _given(options)):
        flag = "--" + name.replace("_", "-")
        raise UsageError(
            f"{flag} requires --compute: without it, no job is submitted",
            remedy=f"bareboat doctor --compute {flag} {shlex.quote(getattr(options, name))}",
        )
    from bareboat.runs import mpi_checks

    exported = outputs.check_new(options.export, flag="--export")
    with _writable(context) as (context, fault):
        if options.fresh and (forgotten := mpi_checks.forget(context.store)):
            console.note(f"discarded {forgotten} MPI check results")
        if not options.compute:
            return _report(context, exported, fault)
        if fault is not None:
            raise fault
        return _probe_node(context, sites.probe(context.session, thorough=True), exported)


@contextlib.contextmanager
def _writable(context: Context) -> Iterator[tuple[Context, BareboatError | None]]:
    """The context; where its store cannot be written, one with a temporary store, and the error."""
    try:
        with context.store.scratch(own=True):
            pass
    except BareboatError as error:
        from bareboat_images.store import Store

        with tempfile.TemporaryDirectory(prefix="bareboat-doctor-") as directory:
            yield context._replace(store=Store(Path(directory))), error
    else:
        yield context, None


def _report(context: Context, exported: Path | None, fault: BareboatError | None) -> int:
    """Print what this machine supports; `fault`: why the store cannot be used."""
    from bareboat.runs import mpi_checks

    options = context.options
    site = sites.probe(context.session, thorough=True)
    if exported is not None:
        _export(context, exported, {"login": site})
    if options.json:
        console.result_json(site)
    else:
        lines = [*_conclusion(site), "more: bareboat doctor -v"]
        if options.verbose:
            lines[-1:] = _details(site, mpi_checks.gather(context.store))
        console.result(folded("\n".join(lines), console.width()))
    faults = [*([] if fault is None else [fault]), *_damaged_sites(context)]
    for error in faults:
        console.show_error(error)
    if not any(e.works and e.name != registry.BARE_METAL for e in site.engines):
        return 3
    return StoreError.code if faults else 0


def _damaged_sites(context: Context) -> list[StoreError]:
    """Errors in the stored facts about compute nodes, which later plans would read."""
    found = []
    for path in sorted((context.store.own / "sites").glob("*.json")):
        try:
            context.store.read(path, Site)
        except StoreError as error:
            found.append(error)
    return found


def _given(options: argparse.Namespace) -> str | None:
    """The first flag about submission that was given."""
    return next((name for name in SCHEDULING if getattr(options, name) is not None), None)


def _export(context: Context, path: Path, facts: Mapping[str, Site]) -> None:
    from bareboat_base import codec

    outputs.write_new(path, codec.to_json(facts), other="--export OTHER")
    context.progress.note(f"note: wrote the facts about this site to {path}; bareboat plan --for {path}")


def _probe_node(context: Context, login: Site, exported: Path | None) -> int:
    """Print the facts about a compute node; 0 when jobs can run on it."""
    from bareboat.model import Job, Scheduling
    from bareboat.plan import choose_scheduler
    from bareboat.probe import compute
    from bareboat.runs.programs import moved, provide

    settings = context.settings
    names = ("partition", "account", "qos", "reservation", "constraint")
    try:
        scheduler = settings["scheduler"] or sites.scheduler_here(login)
    except sites.NoSchedulerError as error:
        raise error.but(remedy="bareboat doctor   # what works on this machine, without --compute") from None
    job = Job(
        name="doctor",
        command=("true",),
        workdir="/",
        scheduler=scheduler,
        scheduling=Scheduling(**{name: settings[name] for name in names}),
    )
    choose_scheduler(job, login)  # or raise PlanError
    provided = provide(context.store, login)
    try:
        node = compute.look(
            context.store, job, login, moved=moved(login, provided), say=context.progress.say_state
        )
    finally:
        context.progress.end()
    facts = {"login": login, "compute": node}
    if exported is not None:
        _export(context, exported, facts)
    works = not node.unseen and any(e.works and e.name != registry.BARE_METAL for e in node.engines)
    if context.options.json:
        console.result_json(facts)
    else:
        console.result(folded(_node_text(node), console.width()))
    return 0 if works else 3


def _node_text(node: Site) -> str:
    from bareboat.plan.container import NO_MODULES, SHARED_STORE

    lines = _details(node, ())
    for launch, said in node.broken_launches.items():
        lines.append(f"{console.mark(False)}  {launch} cannot start processes on the compute node: {said}")
        lines.append("     jobs use another launcher; report this to the administrators")
    if node.lacks_modules:
        lines.append(f'{console.mark(False)}  the command "module" does not exist on the compute node')
        lines.append(f"     jobs that set modules cannot run there: {NO_MODULES}")
    for path in node.unseen:
        lines.append(f"{console.mark(False)}  {path} does not exist on the compute node")
        lines.append(f"     try: {SHARED_STORE}")
    return "\n".join(lines)


def _details(site: Site, results: Sequence[CheckResult]) -> list[str]:
    lines = [
        "",
        console.bold(f"{site.hostname}"),
        f"  {site.distribution}, kernel {site.kernel}, glibc {site.glibc}, {site.architecture}",
        f"  {site.cpu_model}, {site.cpus} CPUs, {site.mem_bytes / 2**30:.1f} GiB, load {site.load_1min:.1f}",
        f"  {len(site.gpus)} GPUs" + (f": {', '.join(site.gpus)}" if site.gpus else ""),
        *(line for driver in site.gpu_drivers for line in _driver(driver)),
        *_network(site),
        "",
        console.bold("engines"),
    ]
    for engine in site.engines:
        name, version = _title(engine)
        lines.append(f"  {console.mark(engine.works)}  {name:<12} {version:<8} {engine.origin}")
        lines += _indented(engine.detail)
        for kind, fault in engine.files.items() if engine.works else ():
            lines.append(f"       {kind} image files: {fault or 'supported'}")
        if not engine.works and engine.remedy:
            lines.append(f"       try: {engine.remedy}")
    for missing in sorted({*registry.names("engines")} - {engine.name for engine in site.engines}):
        if command := registry.engine(missing).INSTALL:
            lines.append(f"  {console.mark(False)}  {missing:<11} not installed")
            lines.append(f"       try: {command}")
    if site.schedulers:
        lines += [
            "",
            console.bold("schedulers"),
            *(line for each in site.schedulers for line in _scheduler(each)),
        ]
    if site.mpis or results:
        lines += ["", console.bold("MPI"), *(line for mpi in site.mpis for line in _mpi(mpi))]
    for result in results:
        image = f", image {digests.short(result.image_digest)}" if result.image_digest else ""
        what = f"{result.subject.launch}, with any image" if result.of_site else ""
        what = what or f"{result.subject.step}, in {result.engine}{image}"
        lines.append(f"  {console.mark(result.holds)}  {what}")
        lines.append(f"       {result.said} ({result.day}, run {result.run_id})")
    if any(not result.holds for result in results):
        lines.append("       try: bareboat doctor --fresh   # runs the MPI checks again")
    lines += ["", console.bold("this user")] if site.checks else []
    for check in site.checks:
        lines.append(f"  {console.mark(check.works)}  {check.name}: {check.detail}")
        if check.works is False and check.remedy:
            lines.append(f"       try: {check.remedy}")
    lines += ["", console.bold("places")]
    lines += [f"  {_place(system)}" for system in site.file_systems]
    if site.remarks:
        lines += ["", console.bold("not probed"), *(f"  {console.mark(False)}  {r}" for r in site.remarks)]
    if site.other_tools:
        lines += ["", console.bold("also on this machine")]
        lines += [f"  {name}: {path}" for name, path in sorted(site.other_tools.items())]
    return lines


def _scheduler(scheduler: SchedulerFacts) -> list[str]:
    version = scheduler.version if scheduler.works else ""
    lines = [f"  {console.mark(scheduler.works)}  {scheduler.name:<11} {version}".rstrip()]
    lines += _indented(scheduler.detail)
    if not scheduler.works:
        remedy = by_partition.ask_again(registry.scheduler(scheduler.name), scheduler.detail)
        lines.append(f"       try: {remedy}")
    for partition in scheduler.partitions:
        lines.append(f"       {_partition(partition)}")
    if scheduler.accounts is not None:
        lines.append(f"       accounts: {', '.join(scheduler.accounts) or 'none'}")
    lines += [f"       note: {remark}" for remark in scheduler.remarks]
    return lines


def _title(engine: EngineFacts) -> tuple[str, str]:
    """An engine's name and the version beside it: with its modes, where each is of another program, and then
    with that program's name."""
    name, known = engine.name, registry.engine(engine.name)
    program = os.path.basename(engine.path)
    others = program and not program.startswith((name, known.PROGRAM or name))
    if known.MODES and engine.modes:
        name = f"{name}:{','.join(engine.modes)}"
    return name, f"{program} {engine.version}".strip() if others else engine.version


def _indented(detail: str) -> list[str]:
    """A detail, which may be several lines of a tool."""
    return [f"       {line}" for line in detail.splitlines()]


def _conclusion(site: Site) -> list[str]:
    """What is ready, a line for each thing that is not, and the one thing to do."""
    engines = [each for each in site.engines if each.name != registry.BARE_METAL]
    works = list(dict.fromkeys(each.name for each in engines if each.works))
    queues = [(registry.scheduler(each.name), each) for each in site.schedulers]
    here = ["this machine"] if works else []
    ready = [*works, *here, *(queue.TITLE for queue, each in queues if each.works)]
    # An engine of which one version works is ready: bubblewrap is embedded, and an older one may be on PATH.
    faults = [(e.name, e.detail, e.remedy) for e in engines if not e.works and e.name not in works]
    if not engines:
        faults.append(("containers", "no engine is installed", registry.engine("bubblewrap").INSTALL))
    for queue, each in queues:
        if not each.works:
            faults.append((queue.TITLE, each.detail, by_partition.ask_again(queue, each.detail)))
    faults += [(check.name, check.detail, check.remedy) for check in site.checks if check.works is False]
    lines = textwrap.wrap(f"ready: {', '.join(ready) or 'nothing'}", 80, subsequent_indent="  ")
    for name, detail, _ in faults:
        reason = f": {detail.splitlines()[0].rstrip(':')}" if detail else ""
        lines.append(textwrap.shorten(f"not ready: {name}{reason}", 80, placeholder=" …"))
    return [*lines, *[f"  try: {remedy}" for *_, remedy in faults if remedy][:1]]


def _mpi(mpi: MpiFacts) -> list[str]:
    """The MPI library, and what a container could use of it."""
    lines = [f"  {mpi.title}: {mpi.launcher or mpi.origin}"]
    if mpi.runtime is not None:
        glibc = f", which need glibc {mpi.runtime.glibc}" if mpi.runtime.glibc else ""
        lines.append(f"       {mpi.library} and {len(mpi.runtime.libraries) - 1} more libraries{glibc}")
    return lines


def _network(site: Site) -> list[str]:
    """The fabric and its inactive parts; nothing where there is none."""
    network = site.network
    if network is None or not network.ports:
        return []
    lines = [f"  fabric: {network.title or 'no active port'}"]
    lines += [
        f"       {p.name} ({p.kind.value}) is {p.state or 'down'}" for p in network.ports if not p.active
    ]
    return lines


def _driver(driver: GpuDriver) -> list[str]:
    """The GPU driver, and what a container gets of it."""
    models = [f"{driver.models.count(model)} x {model}" for model in dict.fromkeys(driver.models)]
    facts = [
        f"driver {driver.vendor} {driver.version or 'of unknown version'}, found by {driver.source}",
        f"supports CUDA up to {driver.cuda}" if driver.cuda else "",
        *models,
    ]
    names = [file.name for file in (*driver.libraries, *driver.programs)]
    glibc = f"; they need glibc {driver.glibc}" if driver.glibc else ""
    return [
        f"       {'; '.join(filter(None, facts))}",
        f"       for containers: {', '.join(names) or 'devices only'}{glibc}",
        *(f"       note: {note}" for note in driver.notes),
    ]


def _partition(partition: Partition) -> str:
    facts = [
        counted(partition.nodes, "node") if partition.nodes is not None else "",
        f"{partition.cpus_per_node} CPUs" if partition.cpus_per_node else "",
        f"{partition.gpus_per_node} GPUs" if partition.gpus_per_node else "",
        f"{partition.mem_per_node_bytes / 2**30:.0f} GiB" if partition.mem_per_node_bytes else "",
        f"at most {_time(partition.max_time_s)}" if partition.max_time_s else "",
        f"at most {counted(partition.max_nodes, 'node')} per job" if partition.max_nodes else "",
        "the default" if partition.default else "",
        "" if partition.up else "not accepting jobs",
    ]
    return f"{partition.name}: {', '.join(filter(None, facts))}"


def _time(seconds: int) -> str:
    return f"{seconds / 3600:g} h" if seconds % 3600 == 0 else f"{seconds / 60:g} min"


def _place(system: FileSystem) -> str:
    options = f", {', '.join(system.options)}" if system.options else ""
    inodes = f", {system.free_inodes:,} inodes free" if system.free_inodes else ""
    room = f"{system.free_bytes / 1e9:,.1f} GB free{inodes}"
    return f"{system.purpose:<6} {system.path} ({system.kind}{options}): {room}"
