"""Measure how often a study's verdict is wrong, with simulated studies whose true ratio is known.

    python bench/verdict.py [--studies 1000] [--markdown]

The simulated machines stall, settle, wait and drift, prefer the arm that starts first, and read copies that
lie differently in the page cache. Exits with 1 if the analysis that Bareboat uses breaks a guarantee.
Requires `bareboat[study]`; no machine is measured, so the output depends on the arguments only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from scipy import stats
from simulate import (
    BUSY,
    Design,
    Machine,
    Method,
    Rates,
    error_rates,
    peeking,
    until_decided,
)

MARGIN = 0.02
CONFIDENCE = 0.95
TRUE_RATIOS = (1.00, 1.01, 1.02, 1.04, 1.10)
HEADER = (
    "true ratio",
    "equivalent",
    "different",
    "undecided",
    "interval contains it",
    "half width",
    "runs",
    "kept",
)


class Case(NamedTuple):
    """A table. `is_guaranteed`: the command fails if it breaks a guarantee."""

    title: str
    method: Method
    machine: Machine
    is_guaranteed: bool = False


CASES = (
    Case("The analysis that Bareboat uses", Method.TOTAL, Machine(), True),
    Case("Stalls: 5 % of the contender's windows take twice as long", Method.TOTAL, STALLS := Machine(
        stall_share=0.05, stall_factor=2.0), True),
    Case("The same studies, trimmed mean", Method.TRIMMED, STALLS),
    Case("Settling steps add 5 % to the contender's time", Method.TOTAL, SETTLE := Machine(
        settle_cost=0.05), True),
    Case("The same studies, settled windows only, trimmed mean", Method.TRIMMED, SETTLE),
    Case("The arm that starts second is 3 % slower, the second window 1 %", Method.TOTAL, Machine(
        start_order=0.03, window_order=0.01), True),
    Case("Runs correlated by 0.3 from one to the next", Method.TOTAL, Machine(run_correlation=0.3)),
    Case("A busy machine", Method.TOTAL, BUSY, True),
    Case("Copies with a deviation of 0.5 %, drawn once for a study", Method.TOTAL, COPIES := Machine(
        copy_deviation=0.005)),
    Case("Copies with a deviation of 1 %, drawn once for a study", Method.TOTAL, replace(
        COPIES, copy_deviation=0.01)),
    Case("Copies with a deviation of 1 %, redrawn before each run", Method.TOTAL, replace(
        COPIES, copy_deviation=0.01, is_redrawn=True), True),
    Case("Every block counted as independent", Method.POOLED, Machine()),
    Case("All of one arm, then all of the other", Method.UNPAIRED, Machine()),
)  # fmt: skip


def broken(rates: Rates) -> list[str]:
    """The guarantees that these rates break by more than chance allows (1 in 1,000)."""
    alpha = 1 - CONFIDENCE
    most = stats.binom.ppf(0.999, rates.studies, alpha) / rates.studies
    found = []
    if rates.true_ratio >= 1 + MARGIN and rates.equivalent > most:
        found.append("equivalent")
    if rates.true_ratio == 1 and rates.different > most:
        found.append("different")
    if 1 - rates.coverage > most:
        found.append("interval")
    return found


def cells(rates: Rates) -> tuple[str, ...]:
    failures = broken(rates)
    return (
        f"{rates.true_ratio:.2f}",
        percent(rates.equivalent),
        percent(rates.different),
        percent(rates.undecided),
        percent(rates.coverage),
        "±" + percent(rates.half_width, digits=2),
        f"{rates.runs:.1f}",
        "no: " + ", ".join(failures) if failures else "yes",
    )


def percent(share: float, *, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def table(rows: Sequence[tuple[str, ...]], *, markdown: bool) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    left, between, right = ("| ", " | ", " |") if markdown else ("", "  ", "")
    lines = []
    for row in rows:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append((left + between.join(padded) + right).rstrip())
    if markdown:
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=1000, help="simulated studies per row")
    parser.add_argument("--runs", type=int, default=12, help="measured runs in each study")
    parser.add_argument("--blocks", type=int, default=60, help="blocks (pairs of windows) in each run")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal tables")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options = parser.parse_args()

    print(
        f"{options.studies} simulated studies per row, {options.runs} runs of {options.blocks} blocks, "
        f"margin {percent(MARGIN, digits=0)}, confidence {percent(CONFIDENCE, digits=0)}, "
        f"seed {options.seed}."
    )
    kept = True
    for case in CASES:
        results = _rates(options, case.method, case.machine)
        if case.is_guaranteed:
            kept = kept and not any(broken(rates) for rates in results)
        _show(options, case.title, results)
    noisy = Machine(run_deviation=0.03)
    for title, judge, is_guaranteed in (
        ("At most 40 runs that vary by 3 %: a look after each run, at the full level", peeking, False),
        ("The same studies, as `prove --until-decided`", until_decided, True),
    ):
        results = _rates(options, Method.TOTAL, noisy, runs=40, judge=judge(MARGIN, CONFIDENCE))
        if is_guaranteed:
            kept = kept and not any(broken(rates) for rates in results)
        _show(options, title, results)
    return 0 if kept else 1


def _rates(
    options: argparse.Namespace, method: Method, machine: Machine, *, runs: int = 0, judge: object = None
) -> list[Rates]:
    # Each row has its own seed: with a shared one all rows would share the same random numbers.
    return [
        error_rates(
            true_ratio,
            Design(runs=runs or options.runs, blocks=options.blocks, margin=MARGIN, confidence=CONFIDENCE),
            studies=options.studies,
            seed=options.seed + row,
            method=method,
            machine=machine,
            judge=judge,  # type: ignore[arg-type]
        )
        for row, true_ratio in enumerate(TRUE_RATIOS)
    ]


def _show(options: argparse.Namespace, title: str, results: Sequence[Rates]) -> None:
    print(f"\n{'### ' if options.markdown else ''}{title}\n")
    print(table([HEADER, *(cells(rates) for rates in results)], markdown=options.markdown))


if __name__ == "__main__":
    sys.exit(main())
