"""How much do the ratios of equal studies vary beyond their runs? Of the studies that collect.py kept.

    python bench/null_studies/between.py [--markdown]

One-way analysis of variance, studies as groups of runs. tau is the deviation of the true log ratios between
studies, with the exact 95 % interval of its square (Williams, Tukey) for studies of equal size; a negative
estimate of the square is shown as 0.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from null_studies.methods import METHODS  # noqa: E402
from null_studies.rates import Kept, read, table  # noqa: E402

KINDS = {
    "A/A": ("native", "bubblewrap"),
    "A/A on bare metal": ("native",),
    "A/A in bubblewrap": ("bubblewrap",),
    "A/A, pinned": ("pinned",),
    "bare metal against bubblewrap": ("cost",),
    "3 % more work": ("slower",),
}
USED = (
    "time (as before)",
    "time, all windows together",
    "time, waits removed",
    "processor time, all windows together",
)
#: These need the waits or the processor time of each window.
COUNTED = USED[2:]
HEADER = ("one value per run from", "studies", "number", "mean ratio", "run", "study mean", "F", "p", "tau")


@dataclass(frozen=True, slots=True)
class Variance:
    """Of log ratios. `run`, `study_mean`: deviations. `f`, `p`: the test of equal true ratios. `mean_low`,
    `mean_high`: the interval of the mean over the studies."""

    studies: int
    mean: float
    mean_low: float
    mean_high: float
    run: float
    study_mean: float
    f: float
    p: float
    tau: float
    tau_low: float
    tau_high: float


def variance(effects: Sequence[Sequence[float]]) -> Variance:
    groups = [np.asarray(each) for each in effects]
    sizes = np.array([len(each) for each in groups])
    means = np.array([each.mean() for each in groups])
    total, between_freedom = int(sizes.sum()), len(groups) - 1
    within_freedom = total - len(groups)
    within = sum(float(((each - each.mean()) ** 2).sum()) for each in groups) / within_freedom
    grand = float(np.average(means, weights=sizes))
    between = float((sizes * (means - grand) ** 2).sum()) / between_freedom
    size = (total - float((sizes**2).sum()) / total) / between_freedom
    f = between / within

    def tau(quotient: float) -> float:
        return math.sqrt(max(0.0, (quotient - 1) / size * within))

    quantiles = stats.f.ppf([0.975, 0.025], between_freedom, within_freedom)
    deviation = float(means.std(ddof=1))
    reach = float(stats.t.ppf(0.975, between_freedom)) * deviation / math.sqrt(len(groups))
    return Variance(
        studies=len(groups),
        mean=math.exp(grand),
        mean_low=math.exp(grand - reach),
        mean_high=math.exp(grand + reach),
        run=math.sqrt(within),
        study_mean=deviation,
        f=f,
        p=float(stats.f.sf(f, between_freedom, within_freedom)),
        tau=tau(f),
        tau_low=tau(f / quantiles[0]),
        tau_high=tau(f / quantiles[1]),
    )


def row(name: str, studies: Sequence[Kept], method: str) -> list[str]:
    found = variance([METHODS[method](study.runs) for study in studies])
    return [
        method,
        name,
        str(found.studies),
        f"{found.mean:.4f} [{found.mean_low:.4f}, {found.mean_high:.4f}]",
        f"{found.run:.1%}",
        f"{found.study_mean:.1%}",
        f"{found.f:.2f}",
        f"{found.p:.3f}",
        f"{found.tau:.1%} [{found.tau_low:.1%}, {found.tau_high:.1%}]",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    studies = [read(path) for path in sorted((HERE / "data").glob("*.json"))]
    rows = []
    for method in USED:
        usable = [each for each in studies if each.counts_waits or method not in COUNTED]
        for name, kinds in KINDS.items():
            rows.append(row(name, [each for each in usable if each.kind in kinds], method))
    print(table(HEADER, rows, markdown=options.markdown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
