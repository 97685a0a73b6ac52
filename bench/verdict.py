"""Measure how often a study's verdict is wrong, with simulated studies whose true ratio is known.

    python bench/verdict.py [--studies 1000] [--markdown]

Exits with 1 if the analysis that Bareboat uses breaks a guarantee. Requires `bareboat[study]`; no machine is
measured, so the output depends on the arguments only.
"""

from __future__ import annotations

import argparse
import sys

from scipy import stats

from bareboat_study.simulate import Method, Rates, error_rates

MARGIN = 0.02
CONFIDENCE = 0.95
TRUE_RATIOS = (1.00, 1.01, 1.02, 1.03, 1.10)
HEADER = (
    "true ratio",
    "equivalent",
    "different",
    "not enough",
    "interval contains it",
    "half width",
    "guarantee",
    "kept",
)


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


def guarantee(true_ratio: float) -> str:
    if true_ratio == 1:
        return "different ≤ 5 %, interval 95 %"
    if true_ratio >= 1 + MARGIN:
        return "equivalent ≤ 5 %, interval 95 %"
    return "interval 95 %"


def cells(rates: Rates) -> tuple[str, ...]:
    failures = broken(rates)
    return (
        f"{rates.true_ratio:.2f}",
        percent(rates.equivalent),
        percent(rates.different),
        percent(rates.not_enough),
        percent(rates.coverage),
        "±" + percent(rates.half_width, digits=2),
        guarantee(rates.true_ratio),
        "no: " + ", ".join(failures) if failures else "yes",
    )


def percent(share: float, *, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def table(rows: list[tuple[str, ...]], *, markdown: bool) -> str:
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
    arguments = parser.parse_args()

    print(
        f"{arguments.studies} simulated studies per row, {arguments.runs} runs of {arguments.blocks} blocks, "
        f"margin {percent(MARGIN, digits=0)}, confidence {percent(CONFIDENCE, digits=0)}, "
        f"seed {arguments.seed}."
    )
    kept = True
    for method in Method:
        # Each row has its own seed: with a shared one all rows would share the same random numbers.
        results = [
            error_rates(
                true_ratio,
                studies=arguments.studies,
                runs=arguments.runs,
                blocks=arguments.blocks,
                margin=MARGIN,
                confidence=CONFIDENCE,
                seed=arguments.seed + row,
                method=method,
            )
            for row, true_ratio in enumerate(TRUE_RATIOS)
        ]
        if method in (Method.PAIRED, Method.REMOVED):
            kept = kept and not any(broken(rates) for rates in results)
        print(f"\n{'### ' if arguments.markdown else ''}{method.value.capitalize()}\n")
        print(table([HEADER, *(cells(rates) for rates in results)], markdown=arguments.markdown))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
