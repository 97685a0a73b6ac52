"""bareboat diff: show what differs between two runs or locks."""

from __future__ import annotations

import argparse
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.status import find
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bareboat_study.reproduction.difference import Difference
    from bareboat_study.reproduction.document import Lock

EXAMPLE = "bareboat diff digits-20261120-101500 run.lock"
_WIDTH = 79
#: More packages without a known influence are counted, and listed by --all.
_MOST_UNLIKELY = 8


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("first", metavar="A", help="run, job name, or lock file")
    parser.add_argument("second", metavar="B", help="run, job name, or lock file")
    parser.add_argument("--all", action="store_true", help="list all differences, also unlikely explanations")


def run(context: Context) -> int:
    """Exit with 0, whether anything differs or not."""
    from bareboat_study.reproduction import difference, reading

    options = context.options
    names = (options.first, options.second)
    # The metrics of a lock that were found by patterns are looked for in the run, too.
    read = {name: reading.read(Path(name))[0] for name in names if _is_file(name)}
    patterns = {key: value for lock in read.values() for key, value in lock.patterns.items()}
    locks = [read[name] if name in read else _of_run(context, name, patterns) for name in names]
    differences = difference.compare(*locks)
    gaps = {name: lock.not_recorded for name, lock in zip("AB", locks, strict=True)}
    if options.json:
        console.result_json(
            {
                "first": locks[0].name,
                "second": locks[1].name,
                "identical": not differences,
                "differences": differences,
                "not_recorded": list(gaps.values()),
            }
        )
        return 0
    console.result(text(locks[0], locks[1], differences, every=options.all))
    return 0


def _is_file(name: str) -> bool:
    return os.path.isfile(name) or os.sep in name or name.endswith(".lock")


def _of_run(context: Context, name: str, patterns: dict[str, str]) -> Lock:
    """The lock of a run or job."""
    from bareboat_study.reproduction import making

    maker = making.Maker(context.store, metrics=patterns, strict=False, say=context.progress.say)
    try:
        return maker.lock(find(context, name))
    finally:
        context.progress.end()


def text(first: Lock, second: Lock, differences: Sequence[Difference], *, every: bool = False) -> str:
    """The differences for a terminal of 80 columns."""
    from bareboat_study.reproduction.difference import Weight

    lines = [f"A  {_title(first)}", f"B  {_title(second)}", ""]
    if not differences:
        lines.append("identical: nothing that was recorded differs")
    for weight, title in (
        (Weight.STRONG, "likely to explain a difference in results or time"),
        (Weight.POSSIBLE, "may explain one"),
        (Weight.UNLIKELY, "unlikely to explain one, or not recorded"),
        (Weight.RESULT, "results"),
    ):
        own = [each for each in differences if each.weight == weight]
        if not own:
            continue
        lines.append(console.bold(title))
        shown = own if every or weight is not Weight.UNLIKELY else own[:_MOST_UNLIKELY]
        for each in shown:
            lines += entry(each)
        if len(shown) < len(own):
            lines.append(f"  and {len(own) - len(shown)} more: --all")
        lines.append("")
    if not any(each.weight in (Weight.STRONG, Weight.POSSIBLE) for each in differences) and differences:
        lines.append(
            "nothing that was recorded explains a difference; what remains is noise, or was not recorded"
        )
    for name, lock in (("A", first), ("B", second)):
        for gap in lock.not_recorded:
            lines += textwrap.wrap(f"not recorded in {name}: {one_line(gap)}", _WIDTH, subsequent_indent="  ")
    return "\n".join(lines).rstrip()


def _title(lock: Lock) -> str:
    when = f", {lock.results.started_at}" if lock.results.started_at else ""
    return one_line(f"{lock.kind} {lock.name}{when}", limit=_WIDTH - 3)


def entry(each: Difference) -> list[str]:
    """One difference, in lines of 80 columns."""
    item = one_line(each.item, limit=40)
    head = f"  {each.section}: {item}" if item.lower() != each.section.lower() else f"  {item}"
    reason = f"   ({each.reason})" if each.reason else ""
    first, second = one_line(each.first), one_line(each.second)
    short = f"{head}  {first} -> {second}"
    if len(short) + len(reason) <= _WIDTH:
        return [short + reason]
    lines = [*textwrap.wrap(head + reason, _WIDTH, subsequent_indent="    ")]
    for name, value in (("A", first), ("B", second)):
        lines += textwrap.wrap(
            value,
            _WIDTH,
            initial_indent=f"      {name} ",
            subsequent_indent="        ",
            break_on_hyphens=False,
        )
    return lines
