"""Measure arms whose cost is known, because each was measured alone, without Bareboat's turns.

    python bench/known_costs.py [KIND ...] [--studies 5] [--steps 2000] [--repeats 8] [--json FILE]

For each kind: the true ratio of the speeds, from the trainings alone, one after the other; and of each study
the ratio with its interval and its verdict. The command fails if a study calls arms equivalent that differ by
more than the margin, or gives a verdict whose interval, with the one of the truth, excludes equality.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

TRAINING = Path(__file__).resolve().parent / "known_costs" / "train.py"
MARGIN = 0.02


class Kind(NamedTuple):
    """What the trainings do beside their steps, and the cost of it in both arms."""

    work: str
    costs: tuple[float, float]
    workers: int = 0


KINDS = {
    "prefetch thread, 14 ms": Kind("thread", (5, 14)),
    "prefetch thread, 20 ms": Kind("thread", (5, 20)),
    "prefetch thread, equal": Kind("thread", (14, 14)),
    "DataLoader, 2 workers": Kind("workers", (10, 27), workers=2),
    "DataLoader, 4 workers": Kind("workers", (10, 54), workers=4),
    "device queue": Kind("device", (10, 13)),
    "device queue that nobody synchronises": Kind("unknown_device", (10, 13)),
    "checkpoints": Kind("checkpoints", (0, 40)),
    "CPU quota": Kind("quota", (100, 80)),
    "stalls, 1 %": Kind("stalls", (0, 1)),
    "stalls, 5 %": Kind("stalls", (0, 5)),
    "nothing": Kind("stalls", (0, 0)),
}


def environment(kind: Kind, arm: int) -> dict[str, str]:
    return {"KIND": kind.work, "COST": str(kind.costs[arm]), "WORKERS": str(kind.workers)}


def alone(kind: Kind, steps: int, times: int) -> tuple[float, float]:
    """The log of contender / baseline of the speeds, and its standard error."""
    logs = []
    for _ in range(times):
        seconds = []
        for arm in (0, 1):
            with tempfile.TemporaryDirectory() as folder:
                variables = {**os.environ, **environment(kind, arm), "BAREBOAT_METER_DIR": folder}
                subprocess.run([sys.executable, TRAINING, str(steps)], env=variables, check=True)
                lines = (Path(folder) / "rank-00000.jsonl").read_text().splitlines()
            ends = [end for line in map(json.loads, lines) for end in line.get("ends_ns", ())]
            seconds.append(ends[-1] - ends[0])
        logs.append(math.log(seconds[0] / seconds[1]))
    return statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))


def study(kind: Kind, steps: int, repeats: int, folder: Path) -> dict[str, Any]:
    """One study by the command line, with the same interpreter on bare metal in both arms."""
    arms = [json.dumps(environment(kind, arm)).replace(":", " =") for arm in (0, 1)]
    job = folder / "study.toml"
    job.write_text(
        f'name = "known"\ncommand = ["python", "{TRAINING}", "{steps}"]\n[arms]\n'
        f'baseline = {{ engine = "native", environment = {arms[0]} }}\n'
        f'contender = {{ engine = "native", environment = {arms[1]} }}\n'
        f"[prove]\nrepeats = {repeats}\nmargin = {MARGIN}\n"
    )
    program = [sys.executable, "-m", "bareboat", "prove", "--json", "--force", "-q"]
    program += ["--store", str(folder / "store"), "--python", sys.executable, str(job)]
    called = subprocess.run(program, capture_output=True, text=True, cwd=folder)
    if called.returncode:
        return {"verdict": "refused", "why": called.stderr.strip().splitlines()[0]}
    ((point,),) = (each["points"] for each in json.loads(called.stdout)["contrasts"])
    found = next(each for each in point["metrics"] if each["primary"])["comparison"]
    return {"verdict": point["verdict"], "why": point["sentence"]} | {
        name: found[name] for name in ("ratio", "low", "high")
    }


def is_wrong(found: dict[str, Any], truth: float, error: float) -> bool:
    if found["verdict"] not in ("equivalent", "different"):
        return False
    if found["verdict"] == "equivalent" and abs(truth) - 3 * error > math.log1p(MARGIN):
        return True
    low, high = math.log(found["low"]) - 3 * error, math.log(found["high"]) + 3 * error
    return not low <= truth <= high


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], metavar="KIND")
    parser.add_argument("--studies", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kept, wrong = {}, 0
    print("| kind | truth, alone | study | interval | verdict |\n|---|---|---|---|---|")
    for name in options.kinds or KINDS:
        truth, error = alone(KINDS[name], options.steps, 3)
        found = []
        for _ in range(options.studies):
            with tempfile.TemporaryDirectory() as folder:
                found.append(study(KINDS[name], options.steps, options.repeats, Path(folder)))
            last = found[-1]
            wrong += is_wrong(last, truth, error)
            numbers = (
                f"{last['ratio']:.3f} | [{last['low']:.3f}, {last['high']:.3f}]" if "low" in last else "|"
            )
            verdict = last["verdict"] + (" **wrong**" if is_wrong(last, truth, error) else "")
            print(f"| {name} | {math.exp(truth):.3f} | {numbers} | {verdict} |", flush=True)
        kept[name] = {"truth": math.exp(truth), "error": error, "studies": found}
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
