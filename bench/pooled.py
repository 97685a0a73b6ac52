"""How often is the interval of the pooled ratio right? Simulated studies of several points, whose true mean
ratio is 1.

    python bench/pooled.py --studies 1000 --markdown

Exits with 1 if the intervals that Bareboat uses contain the truth less often than chance allows in 999 of
1,000 tables.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np
from scipy import stats

from bareboat_study.pooling import common_errors, pool

#: Deviation of the log ratios of a point's runs.
NOISE = 0.01
CONFIDENCE = 0.95


def coverage(
    points: int, runs: int, tau: float, unequal: float, studies: int, generator: np.random.Generator
) -> tuple[float, float, float]:
    """The shares of intervals that contain the truth: with the noise of all points together, and with each
    point's own; the median half width of the first. `unequal`: deviation of the logs of the points' noise."""
    right = [0, 0]
    widths = []
    for _ in range(studies):
        noise = NOISE * np.exp(generator.normal(0, unequal, points))
        truth = generator.normal(0, tau, points)
        values = truth[:, None] + generator.normal(0, 1, (points, runs)) * noise[:, None]
        means = values.mean(axis=1).tolist()
        deviations = values.std(axis=1, ddof=1).tolist()
        for at, errors in enumerate(
            (common_errors(deviations, [runs] * points), [each / math.sqrt(runs) for each in deviations])
        ):
            found = pool(means, errors, margin=0.02, confidence=CONFIDENCE)
            right[at] += found.low <= 1 <= found.high
            if at == 0:
                widths.append(math.log(found.high / found.low) / 2)
    return right[0] / studies, right[1] / studies, float(np.median(widths))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=1000, help="simulated studies per row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    head = ("points", "runs", "tau", "noise of points", "all points' noise", "each point's own", "half width")
    rows = []
    worst = 1.0
    for unequal in (0.0, 0.7):
        for tau in (0.0, 0.005, 0.02):
            for points in (2, 3, 6, 12, 60):
                for runs in (3, 10):
                    used, own, width = coverage(points, runs, tau, unequal, options.studies, generator)
                    worst = min(worst, used)
                    rows.append(
                        (
                            str(points), str(runs), f"{tau:.1%}", "unequal" if unequal else "equal",
                            f"{used:.1%}", f"{own:.1%}", f"±{width:.2%}",
                        )
                    )  # fmt: skip
    separator = " | " if options.markdown else "  "
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (head, *rows)]
    if options.markdown:
        lines.insert(1, ["-" * width for width in widths])
    for line in lines:
        print(f"| {separator.join(line)} |" if options.markdown else separator.join(line).rstrip())
    # In 999 of 1,000 tables of so many rows.
    least = stats.binom.ppf(1 - 0.999 ** (1 / len(rows)), options.studies, CONFIDENCE) / options.studies
    print(f"\nlowest: {worst:.1%}; chance allows {least:.1%}", file=sys.stderr)
    return 0 if worst >= least else 1


if __name__ == "__main__":
    sys.exit(main())
