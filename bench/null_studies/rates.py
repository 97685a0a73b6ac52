"""How often is the verdict of real studies wrong? Of the studies that collect.py kept.

    python bench/null_studies/rates.py [--markdown]

Both arms are the same, or one does 3 % more work. Shares with exact 95 % intervals (Clopper and Pearson).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from null_studies.methods import METHODS, Block, Method, Window, cpu, waits_removed, wall  # noqa: E402

from bareboat_study.pooling import common_errors, pool  # noqa: E402
from bareboat_study.statistics import Comparison, Verdict, compare  # noqa: E402

MARGIN = 0.02
CONFIDENCE = 0.95
#: Of the throughput. Three samples more than 100, calibrated in one process that alternates, by the 5 %
#: quantile of the processor time of a step: 1.030 to 1.033 in four calibrations.
SLOWER = 1 / 1.03
TRUTH = {"native": 1.0, "bubblewrap": 1.0, "pinned": 1.0, "slower": SLOWER}
BUSY = 16.0


@dataclass(frozen=True, slots=True)
class Kept:
    """A study's raw data. `load`: the mean of the machine's during its runs."""

    name: str
    kind: str
    load: float
    took_s: float
    window_s: float
    runs: tuple[tuple[Block, ...], ...]

    @property
    def counts_waits(self) -> bool:
        """Whether each window has its processor time and waits; the oldest studies do not have them."""
        return all(window.inside_cpu_s > 0 for run in self.runs for block in run for window in block)


def read(path: Path) -> Kept:
    data = json.loads(path.read_text())
    return Kept(
        name=path.stem,
        kind=data["kind"],
        load=float(np.mean([run["load"] for run in data["runs"]])),
        took_s=data["took_s"],
        window_s=data["window_s"],
        runs=tuple(found for run in data["runs"] if (found := tuple(_blocks(run["windows"])))),
    )


def _blocks(rows: Sequence[Sequence[int]]) -> list[Block]:
    found: dict[int, dict[int, Window]] = {}
    for block, arm, began_us, step_ns, median_ns, *rest_us in rows:
        window = Window(
            block, arm, began_us / 1e6, step_ns / 1e9, median_ns / 1e9, *(each / 1e6 for each in rest_us)
        )
        found.setdefault(block, {})[arm] = window
    return [(arms[0], arms[1]) for arms in found.values() if len(arms) == 2]


def judged(study: Kept, method: Method) -> Comparison:
    return compare(method(study.runs), margin=MARGIN, confidence=CONFIDENCE)


def share(count: int, of: int) -> str:
    """A share with its exact interval."""
    low = stats.beta.ppf(0.025, count, of - count + 1) if count else 0.0
    high = stats.beta.ppf(0.975, count + 1, of - count) if count < of else 1.0
    return f"{count / of:.0%} [{low:.0%}, {high:.0%}]"


def row(name: str, studies: Sequence[Kept], method: Method) -> list[str]:
    said = [judged(study, method) for study in studies]
    of = len(said)
    counts = [sum(each.verdict is verdict for each in said) for verdict in Verdict][:3]
    right = sum(each.low <= TRUTH[study.kind] <= each.high for study, each in zip(studies, said, strict=True))
    width = float(np.median([math.log(each.high / each.low) / 2 for each in said]))
    took = float(np.median([study.took_s for study in studies]))
    load = float(np.median([study.load for study in studies]))
    return [
        name,
        str(of),
        f"{load:.0f}",
        f"{took:.0f} s",
        *(share(count, of) for count in counts),
        share(right, of),
        f"±{width:.1%}",
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool) -> str:
    widths = [max(len(line[column]) for line in (head, *rows)) for column in range(len(head))]
    lines = []
    for line in (head, *rows):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        lines.append(f"| {' | '.join(cells)} |" if markdown else "  ".join(cells).rstrip())
    if markdown:
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


RATES = (
    "studies",
    "number",
    "load",
    "took",
    "equivalent",
    "different",
    "not enough",
    "interval holds it",
    "half width",
)


def rates(studies: Sequence[Kept], method: Method) -> list[list[str]]:
    same = [study for study in studies if study.kind in ("native", "bubblewrap")]
    groups = {
        "A/A, all": same,
        "A/A on bare metal": [study for study in same if study.kind == "native"],
        "A/A in bubblewrap": [study for study in same if study.kind == "bubblewrap"],
        f"A/A, load below {BUSY:.0f}": [study for study in same if study.load < BUSY],
        f"A/A, load of {BUSY:.0f} or more": [study for study in same if study.load >= BUSY],
        "3 % more work, all": (slower := [study for study in studies if study.kind == "slower"]),
        f"3 % more work, load below {BUSY:.0f}": [study for study in slower if study.load < BUSY],
        f"3 % more work, load of {BUSY:.0f} or more": [study for study in slower if study.load >= BUSY],
    }
    return [row(name, group, method) for name, group in groups.items() if group]


def alternatives(studies: Sequence[Kept]) -> list[list[str]]:
    """Each method on the A/A studies and on those with more work: half width, and against that of `prove`."""
    same = [study for study in studies if study.kind in ("native", "bubblewrap", "pinned")]
    slower = [study for study in studies if study.kind == "slower"]
    rows = []
    before = [_width(judged(study, wall)) for study in same]
    for name, method in METHODS.items():
        said = [judged(study, method) for study in same]
        widths = [_width(each) for each in said]
        effects = [math.log(each.ratio) for each in said]
        error = np.std(effects, ddof=1) / len(effects) ** 0.5
        slow = [judged(study, method) for study in slower]
        rows.append(
            [
                name,
                f"±{np.median(widths):.1%}",
                f"{np.median(np.divide(widths, before)):.2f}",
                share(sum(each.low <= 1 <= each.high for each in said), len(said)),
                share(sum(each.low <= SLOWER <= each.high for each in slow), len(slow)),
                f"{math.exp(np.mean(effects)):.4f} ± {error * stats.t.ppf(0.975, len(effects) - 1):.4f}",
                f"{np.std(effects, ddof=1):.1%}",
            ]
        )
    return rows


def pooled(studies: Sequence[Kept]) -> list[list[str]]:
    """Each method on the studies of bare metal against bubblewrap: one ratio of all, by random effects."""
    cost = [study for study in studies if study.kind == "cost"]
    rows = []
    for name, method in METHODS.items():
        effects = [method(study.runs) for study in cost]
        means = [float(np.mean(each)) for each in effects]
        deviations = [float(np.std(each, ddof=1)) for each in effects]
        errors = common_errors(deviations, [len(each) for each in effects])
        found = pool(means, errors, margin=MARGIN, confidence=CONFIDENCE)
        interval = f"{found.ratio:.4f} [{found.low:.4f}, {found.high:.4f}]"
        rows.append([name, str(found.points), interval, f"{found.tau:.1%}", found.verdict or "none"])
    return rows


POOLED = ("one value per run from", "studies", "bubblewrap / bare metal", "tau", "verdict")
ALTERNATIVES = (
    "one value per run from",
    "half width",
    "against before",
    "A/A: interval holds 1",
    "3 %: holds it",
    "mean ratio of A/A",
    "deviation",
)


def _width(found: Comparison) -> float:
    return math.log(found.high / found.low) / 2


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    studies = [study for path in sorted(options.data.glob("*.json")) if len((study := read(path)).runs) > 1]
    counted = [study for study in studies if study.counts_waits]
    for name, method in (
        ("Time, as before", wall),
        ("Time, waits removed", waits_removed),
        ("Processor time", cpu),
    ):
        print(f"{'### ' if options.markdown else ''}{name}\n")
        print(table(RATES, rates(studies if method is wall else counted, method), markdown=options.markdown))
        print()
    print(table(ALTERNATIVES, alternatives(counted), markdown=options.markdown))
    if sum(study.kind == "cost" for study in counted) > 1:
        print()
        print(table(POOLED, pooled(counted), markdown=options.markdown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
