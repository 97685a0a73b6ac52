"""How often is the verdict wrong, over generated studies whose true ratio is known?

    python bench/generated_verdicts.py --json before.json     # continues a file that has some of the rows
    python bench/generated_verdicts.py --redraws --json after.json  # studies redraw layouts before each run
    python bench/generated_verdicts.py --table before.json [after.json]

The same seed gives every analysis the same studies. No machine is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from generated_studies import judging
from generated_studies.judging import Judgement
from generated_studies.records import CONFIDENCE, MARGIN, Made, make
from generated_studies.scenarios import SCENARIOS, Kind, Scenario

SEED = 20261126


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario. Shares are of all verdicts; `covered`, `covered_between` of those with an interval.

    `true_ratio`: of the total times, for a copy of median speed. `covered`: the interval holds the true ratio
    of the study, with its copy; `covered_between`: it holds `true_ratio`. `ratio`: the median of the reported
    ones. `half_width`: the median, on the log scale. `ideal`: the half width that a normal interval for
    `true_ratio` would need, from the deviation of the reported ratios.
    """

    name: str
    true_ratio: float
    verdicts: int
    equivalent: float
    different: float
    without: float
    secondary_different: float
    covered: float | None
    covered_between: float | None
    ratio: float | None
    half_width: float | None
    ideal: float | None
    runs: float


def judge(
    scenario: Scenario, generator: np.random.Generator, number: int, redraws: bool
) -> tuple[Judgement, float]:
    """One verdict, and the true ratio of the studies that it is about."""
    made = [
        make(scenario.process, generator, number=number * scenario.studies + part, redraws=redraws)
        for part in range(scenario.studies)
    ]
    truth = math.prod(true for _, _, true in made) ** (1 / len(made))
    match scenario.kind:
        case Kind.STUDY:
            return judging.of_study(made[0][0], made[0][1]), truth
        case Kind.LOOKS:
            return judging.of_looks(made[0][0], made[0][1]), truth
        case Kind.POOLED:
            return judging.of_pooled(made), truth
        case Kind.CHANGE:
            return judging.of_change(made[0], made[1]), _changed(made)


def _changed(made: Sequence[Made]) -> float:
    return made[1][2] / made[0][2]


def row(scenario: Scenario, verdicts: int, seed: int, redraws: bool) -> Row:
    seeds = np.random.SeedSequence([seed, zlib.crc32(scenario.name.encode())]).spawn(verdicts)
    judged = [
        judge(scenario, np.random.default_rng(each), number, redraws) for number, each in enumerate(seeds)
    ]
    between = 1.0 if scenario.kind is Kind.CHANGE else scenario.process.true_ratio
    known = [(found, truth) for found, truth in judged if math.isfinite(found.low)]
    logs = [math.log(found.ratio) for found, _ in known]

    def share(count: int, of: int = verdicts) -> float:
        return count / of

    said = [found.verdict for found, _ in judged]
    return Row(
        name=scenario.name,
        true_ratio=between,
        verdicts=verdicts,
        equivalent=share(said.count("equivalent")),
        different=share(said.count("different")),
        without=share(verdicts - said.count("equivalent") - said.count("different")),
        secondary_different=share(sum(found.secondary for found, _ in judged)),
        covered=share(sum(f.low <= t <= f.high for f, t in known), len(known)) if known else None,
        covered_between=share(sum(f.low <= between <= f.high for f, _ in known), len(known))
        if known
        else None,
        ratio=math.exp(float(np.median(logs))) if known else None,
        half_width=float(np.median([math.log(f.high / f.low) / 2 for f, _ in known])) if known else None,
        ideal=1.96 * float(np.std(logs, ddof=1)) if len(known) > 1 else None,
        runs=float(np.mean([found.runs for found, _ in judged])),
    )


def measure(path: Path, verdicts: int, seed: int, only: str, redraws: bool) -> None:
    """Add the rows that the file lacks."""
    data = json.loads(path.read_text()) if path.exists() else {}
    rows = {each["name"]: each for each in data.get("rows", ())}
    for scenario in SCENARIOS:
        if scenario.name in rows or only not in scenario.name:
            continue
        rows[scenario.name] = {
            key: round(value, 6) if isinstance(value, float) else value
            for key, value in asdict(row(scenario, verdicts, seed, redraws)).items()
        }
        content = {
            "command": "python bench/generated_verdicts.py"
            f"{' --redraws' * redraws} --verdicts {verdicts} --seed {seed}",
            "commit": data.get("commit") or _commit(),
            "margin": MARGIN,
            "confidence": CONFIDENCE,
            "rows": [rows[each.name] for each in SCENARIOS if each.name in rows],
        }
        partial = path.with_name(path.name + ".part")
        partial.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(partial, path)
        print(scenario.name, file=sys.stderr, flush=True)


def _commit() -> str:
    called = ["git", "log", "-1", "--format=%h", "--", ":/src/bareboat_study"]
    return subprocess.run(called, capture_output=True, text=True, check=True).stdout.strip()


HEADER = (
    "scenario", "true ratio", "reported", "equivalent", "different", "no verdict", "holds the study's",
    "holds the true ratio", "half width", "needed", "a secondary metric is different",
)  # fmt: skip


def cells(found: Row) -> tuple[str, ...]:
    bad = found.equivalent > 0.06 and abs(math.log(found.true_ratio)) > math.log1p(MARGIN) - 1e-6
    bad_difference = found.different > 0.06 and abs(found.true_ratio - 1) < 1e-9
    return (
        found.name,
        f"{found.true_ratio:.3f}",
        "" if found.ratio is None else f"{found.ratio:.3f}",
        _percent(found.equivalent, bold=bad),
        _percent(found.different, bold=bad_difference),
        _percent(found.without),
        _percent(found.covered, bold=_is_low(found.covered)),
        _percent(found.covered_between, bold=_is_low(found.covered_between)),
        "" if found.half_width is None else f"±{100 * found.half_width:.2f} %",
        "" if found.ideal is None else f"±{100 * found.ideal:.2f} %",
        _percent(found.secondary_different),
    )


def _is_low(coverage: float | None) -> bool:
    return coverage is not None and coverage < 0.93


def _percent(value: float | None, *, bold: bool = False) -> str:
    text = "" if value is None else f"{100 * value:.1f} %"
    return f"**{text}**" if bold else text


def table(paths: Sequence[Path]) -> str:
    """The rows of one file, or those of several below each other, scenario by scenario."""
    files = [json.loads(path.read_text()) for path in paths]
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    for scenario in SCENARIOS:
        for path, data in zip(paths, files, strict=True):
            found = next((each for each in data["rows"] if each["name"] == scenario.name), None)
            if found is not None:
                name, *rest = cells(Row(**found))
                label = f"{name} ({path.stem})" if len(paths) > 1 else name
                lines.append("| " + " | ".join([label, *rest]) + " |")
    head = "\n".join(
        f"`{path.stem}`: commit {data['commit']}, `{data['command']}`."
        for path, data in zip(paths, files, strict=True)
    )
    return f"{head}\n\n" + "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--table", type=Path, nargs="+", help="print the rows of these files")
    parser.add_argument("--verdicts", type=int, default=1000, help="verdicts in each scenario")
    parser.add_argument("--seed", type=int, default=SEED, help="equal seeds give equal studies")
    parser.add_argument("--only", default="", help="scenarios whose name has this text")
    parser.add_argument(
        "--redraws", action="store_true", help="the studies redraw the layouts of files before each run"
    )
    arguments = parser.parse_args()
    if arguments.json is not None:
        measure(arguments.json, arguments.verdicts, arguments.seed, arguments.only, arguments.redraws)
    if arguments.table:
        print(table(arguments.table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
