"""bareboat image build --matrix: several images from one Dockerfile."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat_base.errors import UsageError

if TYPE_CHECKING:
    from bareboat.session.variants import Result, Table, Variant
    from bareboat_images.builder.options import Built, Options


def run(context: Context, asked: Options, build: Callable[[Options], Built]) -> int:
    """Build all variants, each by `build`. The exit code is that of the first that fails."""
    from bareboat.session import variants

    options = context.options
    matrix = variants.read(options.matrix)
    if len(options.tag) > 1:
        raise UsageError("--matrix takes one --tag", remedy=f"--tag {options.tag[0]}")
    tag = options.tag[0] if options.tag else None
    planned = variants.plan(matrix, tag, lambda given: _unused(asked, given))
    if twice := {name for each in planned for name in each.arguments} & asked.arguments.keys():
        raise UsageError(f"--matrix and --build-arg both set {min(twice)}", remedy="remove one of them")
    for variant in planned:
        context.store.check_name(variant.tag)
    if options.dry_run:
        _show(context, planned)
        return 0
    results = variants.build(asked, planned, lambda given, each: _build(context, given, each, build))
    table = variants.judge(context.session, results)
    context.progress.end()
    for each in table.results:
        if each.error is not None:
            context.progress.warn(f"{each.variant.title} failed:")
            console.show_error(each.error)
    if options.json:
        console.result_json(_as_json(table))
    else:
        console.result(_text(table))
    if table.chosen is not None and not (options.quiet or options.json):
        console.note(
            f"on {table.site}, jobs should use {table.chosen.variant.tag}: {table.chosen.start}\n"
            f"next:\n  bareboat run --image {shlex.quote(table.chosen.variant.tag)} …"
        )
    return next((each.error.code for each in table.results if each.error is not None), 0)


def _unused(asked: Options, given: Mapping[str, str]) -> tuple[str, ...]:
    """Build arguments that no ARG declares."""
    from msgspec.structs import replace

    from bareboat_images.builder import solver

    unused = solver.parse(replace(asked, arguments=dict(given)), os.uname().machine).unused
    return tuple(name for name in given if name in unused)


def _build(context: Context, given: Options, variant: Variant, build: Callable[[Options], Built]) -> Built:
    context.progress.note(f"{variant.title}: {variant.tag}")
    built = build(given)
    context.store.name_image(variant.tag, built.image.digest)
    return built


def _show(context: Context, planned: tuple[Variant, ...]) -> None:
    if context.options.json:
        console.result_json([{"name": each.tag, "arguments": dict(each.arguments)} for each in planned])
        return
    for each in planned:
        arguments = " ".join(f"{name}={value}" for name, value in each.arguments.items())
        console.result(f"{each.tag}  {arguments}")


def _text(table: Table) -> str:
    """One line for each variant, and why this site cannot start some."""
    rows = [("  variant", "MB", "cached", "MPI", "start here")]
    for each in table.results:
        title = f"{'*' if each is table.chosen else ' '} {each.variant.title}"
        if each.built is None:
            rows.append((title, "", "", "", "failed"))
            continue
        image = each.built.image
        mpi = image.mpis[0].title if image.mpis else "none"
        rung = each.start.partition(":")[0] if each.starts else "no" if each.start else ""
        cached = f"{each.built.cached}/{each.built.steps}"
        rows.append((title, f"{image.size_bytes / 1e6:,.0f}", cached, mpi, rung))
    refused = [
        f"{each.variant.title}: {each.start}" for each in table.results if each.start and not each.starts
    ]
    return "\n".join([console.table(rows, right=(1, 2)), *refused])


def _as_json(table: Table) -> dict[str, Any]:
    return {
        "variants": [_result(each) for each in table.results],
        "chosen": table.chosen.variant.tag if table.chosen is not None else None,
    }


def _result(each: Result) -> dict[str, Any]:
    built = each.built
    return {
        "name": each.variant.tag,
        "values": dict(each.variant.values),
        "digest": built.image.digest if built is not None else None,
        "size_bytes": built.image.size_bytes if built is not None else None,
        "steps": built.steps if built is not None else None,
        "cached": built.cached if built is not None else None,
        "mpi": built.image.mpis[0].title if built is not None and built.image.mpis else None,
        "start": each.start or None,
        "starts": each.starts,
        "error": each.error.message if each.error is not None else None,
    }
