"""Run real studies whose true ratio is known, and keep their raw data.

    python bench/null_studies/collect.py --until 23:30 [--kinds native,bubblewrap,slower,cost]

Kinds: `native` and `bubblewrap`, both arms the same; `slower`, both on bare metal, and the contender does 3 %
more work in each step; `pinned`, as `native`, both arms on the first core; `cost`, bare metal against
bubblewrap; `digits`, the same with examples/digits.toml. One study after another, as an ordinary user; each
becomes a file in data/.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from null_studies import watch  # noqa: E402

from bareboat import jobfile, session  # noqa: E402
from bareboat.model import Job, Plan, Record, Study  # noqa: E402
from bareboat.session import opening, preparation  # noqa: E402
from bareboat_study import matrix, meterlog, point_plans, point_runs, runs, studyfile  # noqa: E402
from bareboat_study.windows import step_s  # noqa: E402

_read_rank = meterlog.read_rank


def _read_rank_and_counters(folder: Path, rank: int) -> meterlog.Process:
    # The records are made of the arms in their order.
    seen_of_ranks.append(watch.of_rank(folder))
    return _read_rank(folder, rank)


#: Of the run that is being measured: of each arm's windows.
seen_of_ranks: list[list[tuple[float, ...]]] = []
vars(runs).update(Gate=watch.WatchingGate, read_rank=_read_rank_and_counters)

#: Of the training, on an idle and on a very busy machine: a study should take half a minute.
STEPS = (1000, 400)
#: Seconds of a step on an idle machine, about.
STEP_S = 0.0005
#: Of a run of an idle machine, drawn for each study: what length of windows is best?
BLOCKS = (5, 10, 20)
#: Of 100 samples in a step.
MORE = 3
REPEATS = 6
ENGINE = "bubblewrap"
#: The kinds with their shares, spread over the time.
CYCLE = (
    "native",
    "slower",
    "bubblewrap",
    "cost",
    "native",
    "pinned",
    "bubblewrap",
    "slower",
    "native",
    "cost",
)
DIGITS = HERE.parents[1] / "examples" / "digits.toml"


class _Silent:
    def say(self, text: str) -> None: ...
    def bytes(self, what: str, done: int, total: int) -> None: ...
    def end(self) -> None: ...
    def note(self, text: str) -> None:
        print(text, file=sys.stderr)

    warn = note


class Measured(NamedTuple):
    """A study's records and what was seen of the machine, run by run, the warm-up first."""

    study: Study
    records: list[tuple[Record, ...]]
    watched: list[list[watch.Watched]]
    of_ranks: list[list[list[tuple[float, ...]]]]
    took: list[float]


class Studies:
    """The studies that can be run here, prepared once."""

    def __init__(self) -> None:
        self._session = opening.open_session({}, folder=HERE, environment=os.environ, reporter=_Silent())
        self._prepared: dict[int, tuple[session.Prepared, Plan, Plan]] = {}

    def new(self, kind: str) -> Study:
        """Design a study of a kind with a random seed. Its length depends on the load before it."""
        idle, busy = STEPS
        steps = 0 if kind == "digits" else (busy if os.getloadavg()[0] > 6 else idle)
        prepared, bare, boxed = self._program(steps)
        draw = random.SystemRandom()
        request = msgspec.structs.replace(prepared.job.prove, seed=draw.randrange(10**6))
        if steps:
            request = msgspec.structs.replace(request, window_s=steps * STEP_S / draw.choice(BLOCKS))
        job = msgspec.structs.replace(prepared.job, prove=request)
        plans = {
            "native": (bare, bare),
            "slower": (bare, bare),
            "pinned": (bare, bare),
            "bubblewrap": (boxed, boxed),
        }.get(kind, (bare, boxed))
        store = self._session.store
        cells = [[(plan, prepared.image) for plan in plans]]
        made = matrix.design(store, studyfile.study_of_job(job), cells, prepared.site)
        (study,) = matrix.points(store, made)
        command = " ".join(job.command)
        if kind == "slower":
            study = _changed(study, (1,), command, f"{command} {MORE}")
        elif kind == "pinned":
            study = _changed(study, (0, 1), command, f"taskset --cpu-list 0 {command}")
        point_runs.keep(store, study)
        return study

    def conduct(self, study: Study) -> Measured:
        """Measure it."""
        store = self._session.store
        scripts = point_runs.write_scripts(store, study)
        watched, took = [], []
        of_ranks = []
        for run in range(study.job.prove.repeats + 1):
            watch.arms.clear()
            seen_of_ranks.clear()
            began = time.monotonic()
            study = point_runs.measure(store, study, run, scripts, say=lambda _: None)
            took.append(time.monotonic() - began)
            watched.append(sorted(watch.arms, key=lambda arm: arm.arm))
            of_ranks.append(list(seen_of_ranks))
        records = point_runs.read_records(store, study)
        pairs = [tuple(records[at : at + 2]) for at in range(0, len(records), 2)]
        return Measured(study, pairs, watched, of_ranks, took)

    def _program(self, steps: int) -> tuple[session.Prepared, Plan, Plan]:
        if steps not in self._prepared:
            prepared = preparation.prepare(self._session, self._job(steps), session.Purpose.PROVE)
            request = studyfile.study_of_job(prepared.job)
            (((bare, _), (boxed, _)),), _ = point_plans.cells(self._session, request)
            self._prepared[steps] = (prepared, bare, boxed)
        return self._prepared[steps]

    def _job(self, steps: int) -> Job:
        settings = self._session.settings
        if steps == 0:
            job = jobfile.read_job(DIGITS, settings)
        else:
            job = jobfile.job_of_command(("python", "train.py", str(steps)), settings, workdir=str(HERE))
            request = msgspec.structs.replace(job.prove, repeats=REPEATS)
            job = msgspec.structs.replace(job, prove=request)
        return msgspec.structs.replace(job, engine=ENGINE)


def _changed(study: Study, arms: tuple[int, ...], command: str, other: str) -> Study:
    """The study with another command in these arms' scripts."""
    changed = list(study.arms)
    for index in arms:
        script = changed[index].script
        if script.count(f" {command}\n") != 1:
            raise SystemExit(f"the script of {changed[index].name} does not have one {command!r}")
        script = script.replace(f" {command}\n", f" {other}\n")
        changed[index] = msgspec.structs.replace(changed[index], script=script)
    return msgspec.structs.replace(study, arms=tuple(changed))


#: Of a window. `step_ns`: the mean of its steps after those to settle. From outside, of the arm's processes
#: and of the machine; from inside, by the program itself, where it does that. `kept_`:
#: as Bareboat's meter counts them, of the steps after those to settle.
COLUMNS = (
    "block", "arm", "began_us", "step_ns", "median_ns",
    "wall_us", "cpu_us", "delay_us", "busy_us", "steal_us",
    "inside_wall_us", "inside_cpu_us", "inside_delay_us", "inside_steal_us",
    "kept_cpu_us", "kept_wait_us",
)  # fmt: skip


def described(kind: str, measured: Measured, load: list[float]) -> dict[str, object]:
    """A study as it is kept, without its warm-up."""
    study, records, watched, of_ranks, took = measured
    runs_of = []
    for number in range(1, len(records)):
        rows = []
        for index, record in enumerate(records[number]):
            inside = of_ranks[number][index] if index < len(of_ranks[number]) else []
            for place, (window, usage) in enumerate(
                zip(record.windows, watched[number][index].windows, strict=False)
            ):
                row = [
                    window.block,
                    index,
                    round(window.began_s * 1e6),
                    round(step_s(window) * 1e9),
                    round(sorted(window.step_s)[len(window.step_s) // 2] * 1e9),
                ]
                seen = (usage.wall_s, usage.cpu_s, usage.delay_s, usage.busy_s, usage.steal_s)
                own = inside[place] if place < len(inside) else (0.0,) * 4
                kept = (window.cpu_s, window.wait_s)
                times = [0.0 if each is UNSET else each for each in (*seen, *own, *kept)]
                rows.append(row + [round(each * 1e6) for each in times])
        rows.sort(key=lambda row: row[2])
        runs_of.append(
            {"took_s": round(took[number], 2), "load": records[number][0].load_1min, "windows": rows}
        )
    return {
        "kind": kind,
        "began": study.created_at,
        "seed": study.job.prove.seed,
        "command": list(study.job.command),
        "steps_per_window": study.steps_per_window,
        "window_s": study.job.prove.window_s,
        "took_s": round(sum(took), 1),
        "loads": load,
        "columns": COLUMNS,
        "runs": runs_of,
    }


def next_time_s(clock: str) -> float:
    """The next time that the clock shows HH:MM, as seconds of the epoch."""
    hour, minute = map(int, clock.split(":"))
    now = time.localtime()
    ahead_min = (hour * 60 + minute - now.tm_hour * 60 - now.tm_min) % (24 * 60)
    return time.time() - now.tm_sec + 60 * ahead_min


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--until", required=True, metavar="HH:MM", help="start no study after this")
    parser.add_argument("--kinds", default=",".join(CYCLE), help="kinds to run in turn")
    parser.add_argument("--output", type=Path, default=HERE / "data")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    studies = Studies()
    end_s = next_time_s(options.until)
    for kind in itertools.cycle(options.kinds.split(",")):
        if time.time() >= end_s:
            return 0
        before = os.getloadavg()[0]
        study = studies.new(kind)
        measured = studies.conduct(study)
        data = described(kind, measured, [before, os.getloadavg()[0]])
        name = f"{kind}-{'-'.join(study.whole.split('-')[-2:])}.json"
        (options.output / name).write_text(json.dumps(data, separators=(",", ":")) + "\n")
        print(
            time.strftime("%H:%M:%S"), kind, f"{sum(measured.took):.0f} s", f"load {before:.1f}", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
