"""bareboat init --example: list the examples of the gallery, or copy one."""

from __future__ import annotations

import os
import shlex

from bareboat import gallery
from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat_base.errors import UsageError


def run(context: Context) -> int:
    options = context.options
    if options.script or options.command:
        name = gallery.find(options.example).name if options.example else ""
        raise UsageError(
            "an example and a script were both given", remedy=f"bareboat init --example {name}".rstrip()
        )
    if not options.example:
        _list(context)
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
        if not options.quiet:
            console.note("\n".join(["next:", *(f"  {line}" for line in _next(example, str(target)))]))
    return 0


def _list(context: Context) -> None:
    if context.options.json:
        console.result_json(
            [{"name": each.name, "meaning": each.meaning, "needs": each.needs} for each in gallery.EXAMPLES]
        )
        return
    rows = [("example", "what it is", "needs")]
    rows += [(each.name, each.meaning, each.needs) for each in gallery.EXAMPLES]
    console.result(console.table(rows))
    if not context.options.quiet:
        console.note("copy one: bareboat init --example EXAMPLE [-o DIR]")


def _next(example: gallery.Example, target: str) -> list[str]:
    """The commands that follow: where, what is to be installed, and the plan and the run."""
    lines = [f"cd {shlex.quote(os.path.relpath(target))}"]
    if example.install:
        lines.append(example.install)
    return [*lines, "bareboat plan job.toml", "bareboat run job.toml"]
