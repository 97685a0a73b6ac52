"""Flags shared by several commands, and the steps from a job file to a plan."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bareboat import digests, registry
from bareboat.cli import console
from bareboat.cli.command_line import number
from bareboat.errors import ImageError, StoreError, UsageError

if TYPE_CHECKING:  # `bareboat --help` builds every parser and must stay fast on login nodes
    from bareboat.config import Settings
    from bareboat.images.oci.reference import Reference
    from bareboat.images.transfer.locate import Access
    from bareboat.model import CaptureRequest, Image, Job, Plan, Site
    from bareboat.mpi.site_layer import Contents
    from bareboat.store import Store


class Context(NamedTuple):
    """The arguments of every command."""

    options: argparse.Namespace
    settings: Settings
    store: Store
    progress: console.Progress


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--store", metavar="DIR", help="directory of images, runs and records")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not show progress")
    parser.add_argument("-v", "--verbose", action="store_true", help="show each command that Bareboat runs")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the engine and the launcher."""
    parser.add_argument(
        "--engine",
        metavar="NAME[:MODE]",
        help="engine to use, optionally in a given mode; native: no container",
    )
    parser.add_argument("--launcher", metavar="NAME", help="launcher that starts the ranks")


def add_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--writable", action="store_true", help="let the command write anywhere; changes are discarded"
    )
    parser.add_argument(
        "--form",
        choices=("tree", "file"),
        help="image as a directory, or as one file (SIF, squashfs) where the engine supports it",
    )


#: The flags of `add_scheduling`.
SCHEDULING = (
    "scheduler", "partition", "account", "qos", "reservation", "constraint", "delivery", "node_scratch",
)  # fmt: skip


def add_scheduling(parser: argparse.ArgumentParser) -> None:
    """Add the scheduler flags; each overrides the job file."""
    for name, meaning in (
        ("scheduler", "submit to this scheduler"),
        ("partition", "partition or queue"),
        ("account", "account or project to charge"),
        ("qos", "quality of service"),
        ("reservation", "reservation to run in"),
        ("constraint", "required node features"),
    ):
        parser.add_argument(f"--{name}", metavar="NAME", help=meaning)
    parser.add_argument(
        "--delivery",
        choices=("auto", "shared", "node"),
        help="read the image from the shared store, or copy it to node-local storage",
    )
    parser.add_argument(
        "--node-scratch", metavar="DIR", help="node-local directory for image copies (default: /tmp)"
    )


def add_at_once(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at-once",
        metavar="N",
        type=number("--at-once"),
        help="run at most N sweep points at a time",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the flags that decide which images are accepted."""
    parser.add_argument(
        "--require-digest",
        action="store_true",
        default=None,
        help="reject image references without a digest",
    )
    add_policy(parser)


def add_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy", metavar="FILE", help="signature policy, in the format of containers-policy.json(5)"
    )


def add_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="Python interpreter of the environment to capture (default: the active one)",
    )


def add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE | -- COMMAND", nargs="?", help="job file (TOML), or a command after --"
    )
    parser.add_argument(
        "--image",
        metavar="REF",
        help="image to run in; without FILE or a command, run the image's own command",
    )
    parser.add_argument(
        "--env-from",
        metavar="NAME",
        action="append",
        help="pass this environment variable to the job; its value is never stored",
    )


def read_job(context: Context) -> Job:
    """The job of FILE or `-- COMMAND`, with the flags applied."""
    import msgspec

    from bareboat import jobfile

    options = context.options
    command = getattr(options, "command", None)
    if options.file and command:
        raise UsageError("a job file and a command were both given", remedy="give one: FILE, or -- COMMAND")
    if options.file:
        job = jobfile.read_job(Path(options.file), context.settings, image=options.image)
    elif command or options.image:
        job = jobfile.job_of_command(
            command or (), context.settings, workdir=os.getcwd(), image=options.image
        )
    else:
        raise UsageError("nothing to run", remedy="give a job file, or a command after --")
    if named := getattr(options, "env_from", None):
        names = tuple(dict.fromkeys((*job.environment_from, *named)))
        job = msgspec.structs.replace(job, environment_from=names)
    if getattr(options, "writable", False):
        job = msgspec.structs.replace(job, writable=True)
    if getattr(options, "form", None):
        job = msgspec.structs.replace(job, form=options.form)
    if (at_once := getattr(options, "at_once", None)) is not None:
        if job.sweep is msgspec.UNSET:
            raise UsageError("--at-once needs a sweep, and the job has no [sweep]", remedy="remove --at-once")
        job = msgspec.structs.replace(job, sweep=msgspec.structs.replace(job.sweep, at_once=at_once))
    for name in ("engine", "launcher", "scheduler"):
        if name != "scheduler" or hasattr(options, "scheduler"):
            job = msgspec.structs.replace(job, **{name: _over(context, name, getattr(job, name))})
    scheduling = {
        name: _over(context, name, getattr(job.scheduling, name))
        for name in ("partition", "account", "qos", "reservation", "constraint")
    }
    job = msgspec.structs.replace(job, scheduling=msgspec.structs.replace(job.scheduling, **scheduling))
    if not job.modules and context.settings["modules"]:
        modules = tuple(filter(None, context.settings["modules"].split(",")))
        job = msgspec.structs.replace(job, modules=modules)
    for name in ("delivery", "node_scratch"):
        asked = getattr(job, name)
        found = _over(context, name, None if asked is msgspec.UNSET else asked)
        job = msgspec.structs.replace(job, **{name: found.rstrip("/") if found else msgspec.UNSET})
    if getattr(options, "python", None):
        job = msgspec.structs.replace(
            job, capture=msgspec.structs.replace(job.capture, python=os.path.abspath(options.python))
        )
    return job


def _over(context: Context, name: str, value: str | None) -> str | None:
    """Combine a setting with the job's value: flags and environment variables override it; a file's setting
    applies only where the job has none."""
    setting = context.settings.settings[name]
    if not setting.value or (value is not None and not setting.source.startswith(("flag", "environment"))):
        return value
    from bareboat.config import placed

    found: str = setting.value
    with placed(setting):
        if name in ("engine", "launcher", "scheduler"):
            getattr(registry, name)(found)
    return found


def probe_site(context: Context, *, thorough: bool = False) -> Site:
    from bareboat.probe import probe

    return probe(context.store, thorough=thorough)


def registry_access(context: Context) -> Access:
    """How to reach this site's registries, from the settings."""
    from bareboat.images.transfer import locate

    settings = context.settings
    return locate.read_access(
        plain_http=settings["plain_http"],
        mirrors=settings["mirrors"],
        ca_file=settings["ca_file"],
        policy=settings["policy"],
        say=console.note,
    )


def _bring(context: Context, job: Job, machine: str) -> Image:
    """The image that the job names: from the store, or pulled for this `machine` (uname -m) unless nothing
    may be changed."""
    from bareboat.images.transfer import locate

    folder = os.getcwd()
    access = registry_access(context)
    image = locate.in_store(job.image, context.store, folder=folder)
    if context.settings["require_digest"]:
        from bareboat.images.transfer.pinning import check_job_image

        check_job_image(
            job.image, image, context.store, access, folder=folder, ask=not is_only_looking(context)
        )
    if image is not None:
        source = _policy_source(context, job.image, image)
        if source is None:
            return image
        if is_only_looking(context):
            raise ImageError(
                f"the signature policy has not accepted the stored image {job.image}",
                context="it was not checked against the current policy, or the policy rejects it",
                remedy=f"bareboat image pull {shlex.quote(str(source))}   # checks it",
            )
        found = source
    else:
        found = locate.read(job.image, folder=folder)
    if image is None and is_only_looking(context):
        raise StoreError(
            f"image {job.image!r} not found in the store {context.store.root}",
            remedy=f"bareboat image pull {shlex.quote(job.image)}  # run, submit and prove do this, too",
        )
    from bareboat.images.layers.limits import Limits
    from bareboat.images.transfer.obtain import obtain

    try:
        pulled = obtain(
            found,
            context.store,
            access,
            machine=machine,
            limits=Limits(),
            progress=context.progress.bytes,
        )
    finally:
        context.progress.end()
    return pulled.image


def _policy_source(context: Context, text: str, image: Image) -> Reference | None:
    """Where to pull a stored image from to check it against the signature policy; None when the policy has
    accepted it or the image was made here."""
    from bareboat.images.signatures import place

    if place.requires_nothing(context.settings["policy"], os.environ):
        return None
    from bareboat.images.signatures.check import holds
    from bareboat.images.transfer import locate

    folder = os.getcwd()
    if image.site_layer is not None:
        image = context.store.image(image.site_layer.base)
    name = image.reference
    if not context.store.knows(text):
        with contextlib.suppress(UsageError):
            name = str(locate.read(text, folder=folder))
    if not name:
        return None
    found = locate.read(name, folder=folder)
    pin = context.store.pinned(str(found))
    return None if holds(found, pin, registry_access(context)) else found


def prepare(context: Context, *, always: bool = False) -> tuple[Job, Site, Image]:
    """The job, this site, and the job's image: the inputs of a plan.

    `capture` stores the active environment unless it is stored already. A bare-metal job needs only a
    description of it, unless `always`. Jobs that cannot run are refused before a capture spends time and
    space.
    """
    import msgspec

    from bareboat.images.capture import capture, describe
    from bareboat.images.inside.executable import look
    from bareboat.plan import plan

    job = in_allocation(context, read_job(context))
    if not is_only_looking(context):
        check_set(job)
    if context.options.verb == "prove" and job.sweep is not msgspec.UNSET:
        raise UsageError(
            "prove measures one job, and this job is a sweep", remedy="remove [sweep] from the job file"
        )
    site = probe_site(context)
    if context.options.verb == "submit" and job.scheduler in (None, registry.HERE):
        job = msgspec.structs.replace(job, scheduler=scheduler_here(site))
    if job.scheduler not in (None, registry.HERE):
        from bareboat.runs.programs import provide, provide_py_spy

        site = provide(context.store, site)
        if job.scheduling.after:
            from bareboat.runs import dependencies

            after = dependencies.job_ids(context.store, job.scheduler, job.scheduling.after)
            job = msgspec.structs.replace(
                job, scheduling=msgspec.structs.replace(job.scheduling, after=after)
            )
        if job.scheduling.watchdog_s:
            site = provide_py_spy(context.store, site)
    site = with_filters(context, site)
    if job.image != "capture":
        machine = (compute_node(context, job, site) or site).architecture
        return job, site, _with_site_layer(context, job, _bring(context, job, machine), site)
    described = describe(job.capture)
    node = compute_node(context, job, site)
    plan(job, _described_with_site_layer(context, job, described, site), None, site, node=node,
         program=look(context.store, described, node or site, job))  # fmt: skip
    if not registry.contains(job.engine) and not always:
        return job, site, _with_linked(context, job, described, site)
    try:
        image, made = capture(_with_program(job), context.store, progress=context.progress.bytes)
    finally:
        context.progress.end()
    if made and not context.options.quiet:
        console.note(
            f"captured the environment: {digests.short(image.digest)}, {image.size_bytes / 1e6:,.0f} MB, "
            f"{image.inodes:,} files and directories"
        )
    return job, site, _with_site_layer(context, job, image, site)


def in_allocation(context: Context, job: Job) -> Job:
    """The job inside the scheduler job in which this command was called: `run` uses its nodes; the other
    commands note what they use instead."""
    from bareboat.runs import allocation

    verb, found = context.options.verb, allocation.find(os.environ)
    if found is None or job.scheduler not in (None, found.scheduler):
        return job
    where = f"{found.scheduler} job {found.job_id}"
    if verb == "submit" and not context.options.quiet:
        console.note(
            f"this shell is in {where}: submit starts a new job; bareboat run uses the nodes of this one"
        )
    if verb == "prove" and not found.here:
        raise UsageError(
            f"this shell is in {where}, but not on one of its nodes: prove would measure this machine",
            remedy=shlex.join([*found.start, "--pty", "bareboat", "prove"]) + " …",
        )
    if verb != "run" or (found.here and job.topology.nodes == 1 and job.scheduler is None):
        return job
    import msgspec

    from bareboat.errors import PlanError

    if job.topology.nodes > found.nodes:
        raise PlanError(
            f"the job needs {job.topology.nodes} nodes, but {where} has {found.nodes}",
            remedy=f"set nodes = {found.nodes} under [topology], or bareboat submit",
        )
    if job.sweep is not msgspec.UNSET:
        raise UsageError(
            f"a sweep cannot share the nodes of {where}, in which this shell runs",
            remedy="bareboat submit, or bareboat run on a node of the job",
        )
    # Requeueing the job would terminate this shell.
    scheduling = msgspec.structs.replace(job.scheduling, requeue=False)
    return msgspec.structs.replace(job, scheduler=found.scheduler, scheduling=scheduling)


def _with_site_layer(context: Context, job: Job, image: Image, site: Site) -> Image:
    """The image with this site's layer; only a description of it where nothing may be changed."""
    import msgspec

    seen = _with_linked(context, job, image, site)
    if not (job.site_layer or seen.mpi_users or seen.program):
        return seen
    from bareboat import site_layer
    from bareboat.mpi.site_layer import expected
    from bareboat.plan.site_layer import needed_layer

    needed = needed_layer(job, seen, site, node=compute_node(context, job, site))
    if needed is None:
        return seen
    made = site_layer.find(context.store, image, needed.contents)
    if made is None and is_only_looking(context):
        made = expected(image, needed.contents)
        because = f"{needed.because}; {site_layer.how_long(context.store, image, needed.contents)}"
    else:
        because = needed.because
    if made is None:
        made = make_site_layer(context, image, needed.contents, site)
    assert made.site_layer is not None
    layer = msgspec.structs.replace(made.site_layer, because=because)
    return msgspec.structs.replace(made, site_layer=layer, program=seen.program)


def _with_linked(context: Context, job: Job, image: Image, site: Site) -> Image:
    """The image with MPI facts from the files of the job's command; needed only for several ranks."""
    if job.topology.world_size == 1:
        return image
    import msgspec

    from bareboat.images.inside.executable import sight_of
    from bareboat.images.inside.linked import look
    from bareboat.plan.process import command_of

    sight = sight_of(context.store, image, job)
    if sight is None:
        return image
    contains = image.digest and registry.contains(job.engine)
    around = image.environment if contains else {"PATH": os.environ.get("PATH", "")}
    found = look(
        command_of(job, image),
        sight,
        environment={**around, **job.environment},
        workdir=job.workdir or image.process.workdir,
        machine=site.architecture,
    )
    return msgspec.structs.replace(image, program=found)


def make_site_layer(
    context: Context,
    image: Image,
    contents: Contents,
    site: Site,
    *,
    given: tuple[Path, ...] = (),
    fresh: bool = False,
) -> Image:
    """Make the layer, report it, and return the image with it."""
    from bareboat import site_layer

    try:
        made = site_layer.provide(
            context.store, image, contents, site, given=given, fresh=fresh, say=context.progress.say
        )
    finally:
        context.progress.end()
    if not context.options.quiet:
        added = ", ".join(each.replace("==", " ") for each in contents.requirements)
        console.note(
            f"site layer: {digests.short(made.digest)} is {digests.short(image.digest)} with {added}"
        )
    return made


def _described_with_site_layer(context: Context, job: Job, described: Image, site: Site) -> Image:
    """The description of a capture with the planned site layer."""
    described = _with_linked(context, job, described, site)
    if not (job.site_layer or described.mpi_users or described.program):
        return described
    import msgspec

    from bareboat.mpi.site_layer import expected
    from bareboat.plan.site_layer import needed_layer

    with_libc = msgspec.structs.replace(described, glibc=site.glibc)
    needed = needed_layer(job, with_libc, site, node=compute_node(context, job, site))
    return described if needed is None else expected(with_libc, needed.contents)


def check_set(job: Job) -> None:
    """Raise UsageError for a variable of environment_from that is not set here."""
    missing = [name for name in job.environment_from if name not in os.environ]
    if missing:
        raise UsageError(
            f"environment_from: not set in this shell: {', '.join(missing)}",
            remedy=f"export {missing[0]}=…, or remove it from environment_from",
        )


def is_only_looking(context: Context) -> bool:
    return context.options.verb == "plan" or bool(getattr(context.options, "dry_run", False))


def scheduler_here(site: Site) -> str:
    if not site.schedulers:
        raise UsageError(
            "no scheduler found on this machine",
            remedy="log in to the cluster, or run the job on this machine: bareboat run",
        )
    return site.schedulers[0].name


def compute_node(context: Context, job: Job, login: Site) -> Site | None:
    """The facts that `doctor --compute` stored about the job's nodes; None where it did not run."""
    from bareboat.model import Site

    if job.scheduler in (None, registry.HERE):
        return None
    from bareboat.probe.compute import site_name

    path = context.store.site(site_name(job, login))
    if not path.exists():
        return None
    from bareboat.runs.programs import provide

    return with_filters(context, provide(context.store, context.store.read(path, Site)))


def with_filters(context: Context, site: Site) -> Site:
    from bareboat.runs.programs import provide_filters

    return provide_filters(context.store, site)


def _with_program(job: Job) -> CaptureRequest:
    """Capture a command outside of the Python environment along with it."""
    import msgspec

    from bareboat import execute

    program = job.command[0] if job.command else ""
    if not program or os.path.basename(program).startswith("python") or "/" in program:
        return job.capture
    found = execute.which(program)
    if found is None:
        return job.capture
    return msgspec.structs.replace(job.capture, include=(*job.capture.include, found))


def make_plan(context: Context, job: Job, image: Image, site: Site) -> Plan:
    """Plan the job; unpack the image or write it as one file where the plan needs that."""

    import msgspec

    from bareboat.images.deployment.present import present
    from bareboat.images.inside.executable import look
    from bareboat.mpi.ladder import needs_mpi
    from bareboat.plan import plan
    from bareboat.runs import mpi_checks

    node = compute_node(context, job, site)
    rootfs = None  # None for an environment that is described but not captured
    if image.digest:
        rootfs = present(context.store, image, site, job, node=node)
    before = mpi_checks.gather(context.store) if image.mpis or needs_mpi(image) else ()
    program = look(context.store, image, node or site, job)
    made = plan(job, image, rootfs, site, node=node, proofs=before, program=program)
    if rootfs is None:
        return made
    if made.needs_flat:
        from bareboat.images.deployment import roots

        if not context.store.flat(image.digest).is_dir():
            context.progress.say("unpacking the image")
        made = roots.settle(
            context.store,
            image,
            rootfs,
            made,
            lambda rootfs: plan(job, image, rootfs, site, node=node, proofs=before, program=program),
        )
        context.progress.end()
    if made.delivery is not msgspec.UNSET:
        from bareboat.images.deployment import flat_tar

        try:
            flat_tar.provide(
                context.store,
                image,
                made.mount_points,
                relinked=made.relinked,
                progress=context.progress.bytes,
            )
        finally:
            context.progress.end()
    if made.packs is not None:
        from bareboat.images.formats import pack

        try:
            pack.provide(context.store, image, made.packs, made.mount_points, progress=context.progress.bytes)
        finally:
            context.progress.end()
    return made
