"""Run real studies whose true ratio is known through the command line, on a machine that is otherwise idle.

    python bench/null_studies/quiet.py --until 23:30 --json bench/null_studies/quiet.json
    python bench/null_studies/quiet.py --table bench/null_studies/quiet.json

Two of three are A/A studies, on bare metal and in bubblewrap in turn; in the third, the contender does its
work twice in 5 % of its windows. Each is a study file that `bareboat prove` reads, with 16 runs and a seed of
its own; the verdict is the program's. Before each, the processors that others keep busy are measured; above
0.3 the study waits. Continues a file.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from scipy import stats

HERE = Path(__file__).resolve().parent


def share(count: int, of: int) -> str:
    """A share with its exact interval (Clopper and Pearson)."""
    low = stats.beta.ppf(0.025, count, of - count + 1) if count else 0.0
    high = stats.beta.ppf(0.975, count + 1, of - count) if count < of else 1.0
    return f"{count / of:.0%} [{low:.0%}, {high:.0%}]"


def next_time_s(clock: str) -> float:
    """The next time that the clock shows HH:MM, as seconds of the epoch."""
    hour, minute = map(int, clock.split(":"))
    now = time.localtime()
    ahead_min = (hour * 60 + minute - now.tm_hour * 60 - now.tm_min) % (24 * 60)
    return time.time() - now.tm_sec + 60 * ahead_min


REPEATS = 16
STEPS = 3000
#: Processors that others may keep busy when a study starts.
QUIET = 0.3
STALLS = 0.05
STALLED = {"environment": {"STALLS": str(STALLS)}}
#: The arms of each kind, and the true ratio of the totals.
KINDS: dict[str, tuple[dict[str, object], dict[str, object], float]] = {
    "bare metal": ({"engine": "native"}, {"engine": "native"}, 1.0),
    "bubblewrap": ({"engine": "bubblewrap"}, {"engine": "bubblewrap"}, 1.0),
    "stalls": ({"engine": "native"}, {"engine": "native", **STALLED}, 1 / (1 + STALLS)),
}
ARMS = "baseline", "contender"


def used_s() -> float:
    """The processor time of the machine since its start, steal included."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """The processor time of this process and of what it waited for."""
    return sum(os.times()[:4])


def others_busy(seconds: float = 4.0) -> float:
    """The mean number of processors in use while this process sleeps."""
    before, began = used_s(), time.monotonic()
    time.sleep(seconds)
    return (used_s() - before) / (time.monotonic() - began)


def until_quiet() -> float:
    while (busy := others_busy()) > QUIET:
        print(f"others keep {busy:.2f} processors busy: waiting", file=sys.stderr, flush=True)
    return busy


def study_file(kind: str) -> str:
    """The text of a study file; JSON's strings and numbers are TOML's."""
    lines = [
        f'command = ["python", "train.py", "{STEPS}"]',
        "[arms]",
        *(f"{arm} = {_inline(keys)}" for arm, keys in zip(ARMS, KINDS[kind][:2], strict=True)),
        "[prove]",
        f"repeats = {REPEATS}",
        "window_s = 0.1",
    ]
    return "\n".join(lines) + "\n"


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def measure(kind: str, folder: Path, store: Path) -> dict[str, object]:
    """Run one study and return its result as `prove --json` prints it, with what was seen of the machine."""
    file = folder / "study.toml"
    file.write_text(study_file(kind))
    busy = until_quiet()
    began, used, own = time.time(), used_s(), own_s()
    called = subprocess.run(
        ["bareboat", "prove", "--json", "--force", "-q", "--store", str(store), str(file)],
        capture_output=True,
        text=True,
    )
    took_s = time.time() - began
    others_s = used_s() - used - (own_s() - own)
    try:
        result = json.loads(called.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"prove ended with {called.returncode}: {called.stderr}") from None
    return {
        "kind": kind,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "took_s": round(took_s, 1),
        "others_before": round(busy, 3),
        "others_during": round(others_s / took_s, 3),
        "exit_code": called.returncode,
        "result": result,
    }


def kept(measured: dict[str, object]) -> dict[str, object]:
    """What is published of a study: its verdict, and the raw numbers that led to it."""
    result = measured.pop("result")
    assert isinstance(result, dict)
    ((point,),) = [contrast["points"] for contrast in result["contrasts"]]
    primary = next(each for each in point["metrics"] if each["primary"])
    return measured | {
        "study": result["study"],
        "metric": primary["name"],
        "baseline": [round(each, 3) for each in primary["baseline"]],
        "contender": [round(each, 3) for each in primary["contender"]],
        "comparison": primary["comparison"],
        "blocks": [[round(each, 5) for each in run] for run in primary["blocks"]],
    }


HEADER = (
    "studies", "number", "true ratio", "reported", "equivalent", "different", "undecided", "too noisy",
    "interval holds it", "half width", "took",
)  # fmt: skip


def row(name: str, true: float, studies: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """One line of the table."""
    said = [each["comparison"] for each in studies]
    of = len(said)
    verdicts = [each["verdict"] for each in said]
    return (
        name,
        str(of),
        f"{true:.3f}",
        f"{median(each['ratio'] for each in said):.3f}",
        *(share(verdicts.count(word), of) for word in ("equivalent", "different", "undecided", "too noisy")),
        share(sum(each["low"] <= true <= each["high"] for each in said), of),
        f"±{median(math.log(each['high'] / each['low']) / 2 for each in said):.2%}",
        f"{median(float(str(each['took_s'])) for each in studies):.0f} s",
    )


def table(data: dict[str, list[dict[str, Any]]]) -> str:
    """The rates of a file as Markdown."""
    studies = data["studies"]
    same = [each for each in studies if KINDS[str(each["kind"])][2] == 1.0]
    groups = {"A/A, all": same} | {name: [each for each in studies if each["kind"] == name] for name in KINDS}
    rows = [row(name, KINDS[str(group[0]["kind"])][2], group) for name, group in groups.items() if group]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (HEADER, ("---",) * len(HEADER), *rows))


def _machine() -> str:
    model = next(
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    return f"{os.cpu_count()} processors of {model}, Linux {os.uname().release.partition('-')[0]}"


def collect(path: Path, end_s: float) -> None:
    """Add studies to the file until then, kind by kind."""
    data = json.loads(path.read_text()) if path.exists() else {}
    studies = data.setdefault("studies", [])
    data |= {"machine": _machine(), "commit": data.get("commit") or _commit()}
    with tempfile.TemporaryDirectory() as temporary:
        folder, store = Path(temporary, "work"), Path(temporary, "store")
        folder.mkdir()
        (folder / "train.py").write_text((HERE / "train.py").read_text())
        for kind in itertools.islice(itertools.cycle(KINDS), len(studies), None):
            if time.time() >= end_s:
                return
            studies.append(kept(measure(kind, folder, store)))
            partial = path.with_name(path.name + ".part")
            partial.write_text(json.dumps(data, separators=(",", ":")) + "\n")
            os.replace(partial, path)
            said = studies[-1]
            print(
                said["began"], kind, said["comparison"]["verdict"], f"{said['comparison']['ratio']:.4f}",
                f"{said['took_s']} s", f"others {said['others_before']} {said['others_during']}", flush=True,
            )  # fmt: skip


def _commit() -> str:
    called = ["git", "log", "-1", "--format=%h", "--", ":/src"]
    return subprocess.run(called, capture_output=True, text=True, check=True, cwd=HERE).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--until", metavar="HH:MM", help="start no study after this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="with --until: add studies to this file")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the rates of this file")
    options = parser.parse_args()
    if (options.until is None) != (options.json is None) or (options.json or options.table) is None:
        parser.error("--until and --json together, or --table")
    if options.json is not None:
        collect(options.json, next_time_s(options.until))
    if options.table is not None:
        print(table(json.loads(options.table.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
