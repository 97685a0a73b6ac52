"""bareboat report: show a study's results as text and one HTML page, or a sweep's points as a table."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.errors import BareboatError, StoreError, UsageError
from bareboat.files import outputs
from bareboat.model import Record, Study
from bareboat.printable import one_line
from bareboat.store import Store

if TYPE_CHECKING:
    from bareboat.study.analysis import Analysis, Metric

Finding = tuple[Study, Sequence[Record], "Analysis"]


EXAMPLE = "bareboat report digits-20261120-101500 -o report.html"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="studies, a sweep or a run, or job names")
    parser.add_argument("-o", "--output", metavar="FILE", help="path of the page, or of the table with --csv")
    parser.add_argument(
        "--csv", action="store_true", help="for a sweep: write the table as comma-separated values"
    )


def run(context: Context) -> int:
    options = context.options
    if not options.runs and options.output is not None:
        raise UsageError("--output requires a study", remedy=EXAMPLE)
    if not options.runs:
        return _list(context)
    from bareboat.cli.status import find
    from bareboat.runs import sweeps

    runs = [find(context, name) for name in options.runs]
    output = outputs.check(options.output) if options.output is not None else None
    whole = [name for name in runs if sweeps.find(context.store, name) is not None]
    if whole:
        from bareboat.cli import report_sweep

        if len(runs) > 1:
            raise UsageError(
                f"{whole[0]} is a sweep and cannot be combined with other runs",
                remedy=f"bareboat report {whole[0]}   # alone",
            )
        return report_sweep.run(context, whole[0], output)
    single = [name for name in runs if os.path.lexists(context.store.run(name) / "submission.json")]
    if single and not options.csv:
        from bareboat.cli import report_run

        if len(runs) > 1 or output is not None:
            raise UsageError(
                f"{single[0]} is a single run, with neither a page nor a comparison with other runs",
                remedy=f"bareboat report {single[0]}",
            )
        return report_run.run(context, single[0])
    if options.csv:
        raise UsageError(f"{runs[0]} is not a sweep, and --csv is for sweeps", remedy="remove --csv")
    check_library()
    found = write_report(context.store, runs, output)
    show(context, found, output)
    return 0


_LIBRARY = ("numpy", "scipy", "matplotlib")


def check_installed() -> None:
    """Raise UsageError where a library for analysis and plots is not installed."""
    from importlib.util import find_spec

    missing = [name for name in _LIBRARY if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"not installed, but required for a study: {', '.join(missing)}",
            remedy="pip install 'bareboat[study]'",
        )


def check_library() -> None:
    """Raise UsageError where one is not installed or does not work. Importing matplotlib makes a directory in
    the user's home."""
    from importlib import import_module

    check_installed()
    for name in _LIBRARY:
        try:
            import_module(name)
        except Exception as error:  # for example an incompatible version
            raise UsageError(
                f"{name}, required for a study, cannot be imported",
                context=one_line(f"{type(error).__name__}: {error}"),
                remedy=f"pip install --force-reinstall {name}",
            ) from None


def write_report(store: Store, runs: Sequence[str], output: Path | None) -> list[Finding]:
    """Analyse the studies from their raw records; write the page completely or not at all."""
    from bareboat.study import analysis, prove

    found: list[Finding] = []
    for run_id in runs:
        study = prove.read_study(store, run_id)
        records = prove.read_records(store, study)
        found.append((study, records, analysis.analyse(study, records)))
    if output is not None:
        from bareboat.study.report import render_report

        outputs.write(output, render_report(found).encode())
    return found


def show(context: Context, found: Sequence[Finding], output: Path | None) -> None:
    """Print the verdicts."""
    if context.options.json:
        console.result_json([analysis for _, _, analysis in found])
        return
    for study, _, analysis in found:
        console.result(_text(study, analysis))
    if output is not None:
        console.result(f"\nreport: {output}")


def _text(study: Study, analysis: Analysis) -> str:
    baseline, contender = (arm.name for arm in study.arms)
    lines = [
        f"\n{console.bold(analysis.text)}\n",
        f"  {'':<25} {baseline:>14} {contender:>14}   ratio   interval",
    ]
    lines += [f"  {_row(metric)}" for metric in analysis.metrics]
    for goal in analysis.goals:
        lowest = "not reported" if goal.lowest is None else f"lowest {goal.lowest:.4f}"
        if goal.not_numbers:
            lowest = f"not finite in {goal.not_numbers} of {len(analysis.primary.baseline)} runs"
        reached = "reached" if goal.reached else "NOT reached"
        lines.append(f"  goal {goal.name} >= {goal.least:g} {reached} by {goal.arm}: {lowest}")
    return "\n".join(lines)


def _row(metric: Metric) -> str:
    found = metric.comparison
    shown = [_quantity(statistics.median(v), metric.unit) for v in (metric.baseline, metric.contender)]
    unit = f", {metric.unit}" if metric.unit not in ("bytes", "s") else ""
    return (
        f"{metric.name + unit:<25} {shown[0]:>14} {shown[1]:>14}   {found.ratio:.3f}   "
        f"[{found.low:.3f}, {found.high:.3f}]  {found.verdict.value}"
    )


def _quantity(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 2**20:,.1f} MiB"
    if unit == "s" and value < 1:
        return f"{value * 1000:,.1f} ms"
    suffix = " s" if unit == "s" else ""
    return (f"{value:,.0f}" if value >= 1000 else f"{value:.4g}") + suffix


def _list(context: Context) -> int:
    """List the runs; exit with 4 where one is damaged."""
    shown = {run_id: _shown(context.store, run_id) for run_id in context.store.runs()}
    if context.options.json:
        console.result_json([{"run_id": run_id, "state": state} for run_id, (state, _) in shown.items()])
    elif not shown:
        console.note(f"no runs in {context.store.root}; start one: bareboat prove FILE")
    else:
        for run_id, (state, _) in shown.items():
            console.result(f"{run_id}  {state}")
    return max((code for _, code in shown.values()), default=0)


def _shown(store: Store, run_id: str) -> tuple[str, int]:
    """The state of a run and 0; for a damaged one, the reason and its exit code."""
    try:
        return _state(store, run_id), 0
    except BareboatError as error:  # the other runs are still listed
        return f"damaged: {one_line(error.message)}", StoreError.code


def _state(store: Store, run_id: str) -> str:
    from bareboat.runs import sweeps

    if (found := sweeps.find(store, run_id)) is not None:
        over = sum(os.path.lexists(store.run(name) / "record.json") for name in sweeps.points(store, run_id))
        return f"sweep, {over} of {len(found.points)} points recorded"
    if not os.path.lexists(store.run(run_id) / "study.json"):
        return "run" if os.path.lexists(store.run(run_id) / "record.json") else "stopped before it finished"
    from bareboat.study import prove

    study = prove.read_study(store, run_id)
    missing = len(prove.missing_runs(store, study))
    return f"study, {missing} runs left:  bareboat prove --resume {run_id}" if missing else "study, complete"
