"""bareboat image init: write a recipe for an image, from choices or from what a project has."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from bareboat.cli import drafts
from bareboat.cli.common import Context, add_common, add_dry_run

EXAMPLE = "bareboat image init --framework torch --mpi auto --for leonardo.json"

_FRAMEWORKS = ("torch", "tensorflow", "jax", "none")
_FILE = "Dockerfile"
_OTHER = "name another: -o FILE; show the recipe: --dry-run"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "project",
        metavar="DIR|SCRIPT",
        nargs="?",
        help="directory whose package list is installed, or Python script whose imports are (default: .)",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="LIST",
        help="package list to install, instead of the one found",
    )
    parser.add_argument(
        "--for",
        dest="site",
        metavar="SITE",
        help="site whose facts decide: here, a name of facts in the store, or a file of doctor --export",
    )
    parser.add_argument(
        "--framework", choices=_FRAMEWORKS, help="framework to install (default: what the project uses)"
    )
    parser.add_argument(
        "--cuda", metavar="VERSION|auto|none", default="auto", help="CUDA of the framework (default: auto)"
    )
    parser.add_argument(
        "--mpi",
        metavar="NAME|auto|none",
        help="MPI to install: auto, none, openmpi, mpich or a version such as openmpi-4.1.8 "
        "(default: auto if the project uses MPI)",
    )
    parser.add_argument("--horovod", action="store_true", help="compile Horovod in the image")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: DIR/Dockerfile)")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    add_dry_run(parser)


def run(context: Context) -> int:
    from bareboat.project.recipes.wanted import Choices
    from bareboat.session import recipes
    from bareboat_base.files import outputs

    options = context.options
    top, script = recipes.place(options.project, Path.cwd())
    target = outputs.check(options.output or top / _FILE, flag="--output" if options.output else "")
    if not options.dry_run:
        inputs = [Path(each) for each in (options.project, options.source, options.site) if each]
        outputs.check_free(target, force=options.force, other=_OTHER, inputs=inputs)
    request = recipes.Request(
        top=top,
        script=script,
        choices=Choices(
            framework=options.framework,
            cuda=options.cuda,
            mpi=options.mpi,
            horovod=options.horovod,
        ),
        source=options.source,
        site=options.site,
    )
    if options.site == "here":
        context.progress.say("probing this machine")
    try:
        drafted = recipes.write(context.session, request, _command(context))
    finally:
        context.progress.end()
    if not options.dry_run:
        outputs.write_new(target, drafted.text.encode(), force=options.force, other=_OTHER)
    drafts.report(context, drafted, target, _next(top, target))
    return 0


def _command(context: Context) -> str:
    """How to write the recipe again, without paths of this machine."""
    options = context.options
    words = ["bareboat", "image", "init"]
    if options.project:
        words.append(os.path.basename(os.path.abspath(options.project)))
    for flag, value in (
        ("--from", options.source),
        ("--for", os.path.basename(options.site) if options.site else None),
        ("--framework", options.framework),
        ("--cuda", options.cuda if options.cuda != "auto" else None),
        ("--mpi", options.mpi),
    ):
        if value is not None:
            words += [flag, value]
    words += ["--horovod"] if options.horovod else []
    return shlex.join(words)


def _next(top: Path, target: Path) -> str:
    """The command that builds the image."""
    file, folder = (shlex.quote(os.path.relpath(path)) for path in (target, top))
    named = "" if target == top / _FILE else f" -f {file}"
    return f"bareboat image build{named} -t NAME {folder}"
