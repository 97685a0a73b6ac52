"""bareboat init: write a job file from what a project and a site reveal, or from an old job, without running
its code; or copy an example."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from pathlib import Path

from bareboat import gallery
from bareboat.cli import console, drafts
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.printable import one_line

EXAMPLE = (
    "bareboat init train.py\n  bareboat init -- python train.py --epochs 3\n"
    "  bareboat init --example pytorch-ddp -o my-training"
)

_OTHER = "name another: -o OTHER.toml"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("script", metavar="SCRIPT", nargs="?", help="Python script")
    parser.add_argument(
        "--example",
        metavar="EXAMPLE",
        nargs="?",
        const="",
        help="copy this example to a new directory; without a name, list all",
    )
    parser.add_argument(
        "--from",
        dest="old",
        metavar="SCRIPT",
        help="write a skeleton of the job file of an old job: a batch script, or one that starts ranks or "
        "containers; exit code 9: something must be completed",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="job file or directory to write (default: SCRIPT.toml, or the example's name)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    add_dry_run(parser)


def _adopt(context: Context) -> int:
    """Write the job file of an old job."""
    from bareboat.session import drafting
    from bareboat_adopt import adopt
    from bareboat_base.files import outputs, untrusted

    options = context.options
    try:
        path, text = adopt.choose(options.old, Path.cwd())
    except BareboatError as error:
        raise error.of("--from") from None
    except OSError as error:
        raise untrusted.unreadable(options.old, error, flag="--from") from None
    if path.suffix == ".py" and not re.search(r"^#(SBATCH|PBS|BSUB|flux:|\$)", text, re.MULTILINE):
        remedy = f"bareboat init {shlex.quote(options.old)}"
        raise UsageError("--from takes a batch script, and this is a Python script", remedy=remedy)
    if options.script or options.command:
        raise UsageError(
            "--from names the old job: no script or command beside it",
            remedy=f"bareboat init --from {shlex.quote(options.old)}"[:1000],
        )
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-.") or "job"
    target = Path(os.path.abspath(options.output or drafting.default_name(name)))
    outputs.check(target, flag="--output" * (options.output is not None))
    if not options.dry_run:
        outputs.check_free(target, force=options.force, other=_OTHER, inputs=(path,))
    made = adopt.read(path, text, target, os.environ)
    try:
        written = made.text.encode()
    except UnicodeEncodeError:
        old = shlex.quote(os.path.relpath(path))
        raise UsageError(
            f"{path} has characters that are not UTF-8 where the job file needs them",
            remedy=f"iconv -f latin1 -t utf-8 {old} > new.sh; then: bareboat init --from new.sh",
        ) from None
    if not options.dry_run:
        outputs.write_new(target, written, force=options.force, other=_OTHER)
    old, file = os.path.relpath(path), os.path.relpath(target)
    if options.dry_run and not options.json:
        console.result(made.text.rstrip("\n"))
    elif not options.json:
        console.result(f"wrote {file} from {old}: {made.summary}")
    for note in made.notes:
        console.note(note)
    if not (made.verdict == "refused" or options.json or options.dry_run):
        console.note(f"next:\n  bareboat plan {shlex.quote(file)}")
    if options.json:
        console.result_json(
            {**made.facts, "file": str(target), "written": not options.dry_run, "text": made.text}
        )
    return adopt.REFUSED if made.verdict == "refused" else 0


def run(context: Context) -> int:
    from bareboat.session import drafting
    from bareboat_base.files import outputs

    options = context.options
    if options.example is not None and options.old is not None:
        raise UsageError("--example and --from cannot be used together", remedy="remove one of them")
    if options.example is not None:
        return _run_example(context)
    if options.old is not None:
        return _adopt(context)
    if options.script and options.command:
        raise UsageError(
            f"a script, {one_line(options.script)}, and a command after -- were both given",
            remedy=f"bareboat init {shlex.quote(options.script)}",
        )
    request = drafting.choose(options.script, options.command, Path.cwd())
    target = Path(os.path.abspath(options.output or drafting.default_name(request.named)))
    outputs.check(target, flag="--output" * (options.output is not None))
    if not options.dry_run:
        inputs = [Path(each) for each in (options.script, *(options.command or ())) if each]
        outputs.check_free(target, force=options.force, other=_OTHER, inputs=inputs)
    context.progress.say("reading the project and this site")
    try:
        drafted = drafting.draft(context.session, request, target)
    finally:
        context.progress.end()
    if not options.dry_run:
        outputs.write_new(target, drafted.text.encode(), force=options.force, other=_OTHER)
    file = shlex.quote(os.path.relpath(target))
    meter = "   # docs/meter.md: three lines in the script measure its steps"
    following = f"bareboat plan {file}\n  bareboat run {file}\n  bareboat prove {file}{meter}"
    drafts.report(context, drafted, target, following)
    return 0


def _run_example(context: Context) -> int:
    """List the examples of the gallery, or copy one."""
    options = context.options
    if options.script or options.command:
        name = gallery.find(options.example).name if options.example else ""
        raise UsageError(
            "an example and a script were both given", remedy=f"bareboat init --example {name}".rstrip()
        )
    if not options.example:
        _list_examples(context)
        return 0
    example = gallery.find(options.example)
    target = gallery.check(
        options.output or example.name, f"bareboat init --example {example.name} -o OTHER-DIR"
    )
    names = list(gallery.files(example))
    if not options.dry_run:
        gallery.copy(example, target)
    if options.json:
        console.result_json(
            {"example": example.name, "directory": str(target), "files": names, "copied": not options.dry_run}
        )
    elif options.dry_run:
        console.result("\n".join(str(target / name) for name in names))
    else:
        console.result(f"copied {example.name} to {target}: {', '.join(names)}")
        lines = [f"  {line}" for line in _next_for_example(example, str(target))]
        console.note("\n".join(["next:", *lines]))
    return 0


def _list_examples(context: Context) -> None:
    if context.options.json:
        console.result_json(
            [{"name": each.name, "meaning": each.meaning, "needs": each.needs} for each in gallery.EXAMPLES]
        )
        return
    rows = [("example", "what it is", "needs")]
    rows += [(each.name, each.meaning, each.needs) for each in gallery.EXAMPLES]
    console.result(console.table(rows))
    console.note("copy one: bareboat init --example EXAMPLE [-o DIR]")


def _next_for_example(example: gallery.Example, target: str) -> list[str]:
    """The commands that follow: where, what is to be installed, and the plan and the run."""
    lines = [f"cd {shlex.quote(os.path.relpath(target))}"]
    if example.install:
        lines.append(example.install)
    return [*lines, "bareboat plan job.toml", "bareboat run job.toml"]
