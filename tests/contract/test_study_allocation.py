"""The job script of a study's allocation, run by bash on this machine with arms of two lines.

Whatever ends it, each run is there once, with all arms."""

import json
import os
import random
import signal
import subprocess
import time

import msgspec
import pytest
from builders import make_image, make_job, make_site
from tools import tool

from bareboat.model import Arm, Job, MetricRequest, ProveRequest, Record, SchedulerFacts, Study, Topology
from bareboat_base.errors import RunError, StoreError
from bareboat_images.store import Store
from bareboat_study import allocation, collection, point_runs, turns

pytestmark = pytest.mark.thorough

SITE = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
#: What a point of a study is called.
NAME = "grid-20261123-120000.0"


def make_study(store: Store, *arms: str, repeats: int = 3, **changes: object) -> Study:
    """A study with these bash lines as its arms' job scripts."""
    job: Job = make_job(
        scheduler="slurm",
        topology=Topology(),
        prove=ProveRequest(repeats=repeats),
        workdir=str(store.root.parent),
    )
    study = Study(
        id=NAME, created_at="2026-11-23T12:00:00Z", job=job, image=make_image(), site=SITE, point=0,
        arms=tuple(
            Arm(name=f"arm {number}", engine="native", plan_digest=f"sha256:{number}", script=text)
            for number, text in enumerate(arms)
        ),
        bareboat_version="1",
    )  # fmt: skip
    study = msgspec.structs.replace(study, **changes)
    store.run(study.id).mkdir(parents=True)
    point_runs.keep(store, study)
    for number, arm in enumerate(study.arms):
        folder = store.run(study.id) / "arms" / str(number)
        folder.mkdir(parents=True)
        (folder / "job.sh").write_text(f"cd {store.root.parent}\n{arm.script}\n")
    return study


def start(
    store: Store, study: Study, *, limit_s: int | None = None, number: int = 1
) -> subprocess.Popen[bytes]:
    """Start the job script, as the scheduler does."""
    control = store.run(study.id) / "control"
    control.mkdir(exist_ok=True)
    (control / "allocation").write_text(f"{number}\n")
    every = range(study.job.prove.repeats + 1)
    (control / "job.sh").write_text(allocation.script(store, study, every, limit_s, number=number))
    return subprocess.Popen(
        [tool("bash"), control / "job.sh"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def run(store: Store, study: Study, *, limit_s: int | None = None) -> tuple[int, str]:
    """The exit code, and what this start added to the log."""
    log = store.run(study.id) / "output.log"
    before = len(log.read_text()) if log.exists() else 0
    running = start(store, study, limit_s=limit_s)
    out, _ = running.communicate(timeout=120)
    assert out == b""
    return running.returncode, log.read_text()[before:]


def records(store: Store, study: Study) -> list[Record]:
    return point_runs.read_records(store, study)


def test_each_run_has_all_arms_in_the_order_of_its_seed(store: Store) -> None:
    study = make_study(
        store, "echo 0 >> order; sleep 0.02", "echo 1 >> order; sleep 0.02; exit 0", "echo 2 >> order"
    )
    code, out = run(store, study)
    assert code == 0, out
    study = collection.collect(store, study)
    found = records(store, study)
    assert [(each.run, each.arm) for each in found] == [(r, f"arm {a}") for r in range(4) for a in range(3)]
    assert [each.warm_up for each in found[:4]] == [True, True, True, False]
    order = [
        int(each.arm[-1])
        for number in range(4)
        for each in sorted((one for one in found if one.run == number), key=lambda one: one.position)
    ]
    assert order == [arm for number in range(4) for arm in turns.starts(study, number)]
    assert list(map(int, (store.root.parent / "order").read_text().split())) == order
    assert all(each.wall_s >= 0.02 for each in found if each.arm != "arm 2")
    assert found[0].scheduler == "slurm"
    assert found[0].starts[0].node == os.uname().nodename
    assert study.metered is False
    assert point_runs.took_s(store, study, 1) > 0.04
    assert collection.waiting(store, study) == []


def test_killed_at_any_moment_no_run_counts_twice_and_none_is_half(store: Store) -> None:
    study = make_study(store, *[f"echo {arm} >> count; sleep 0.1" for arm in range(2)], repeats=7)
    draw, kills = random.Random(7), 0
    control = store.run(study.id) / "control"
    while len(point_runs.stored_runs(store, study)) <= study.job.prove.repeats:
        (control / "progress").unlink(missing_ok=True)  # as for a new submission
        running = start(store, study)
        time.sleep(draw.uniform(0.3, 0.9))
        if running.poll() is None:
            kills += 1
            if kills % 2:
                os.killpg(running.pid, signal.SIGKILL)
            else:
                running.terminate()
        running.communicate(timeout=60)
        if draw.random() < 0.5:
            study = collection.collect(store, study)
    assert kills > 2
    study = collection.collect(store, study)
    found = records(store, study)
    assert [(each.run, each.arm) for each in found] == [(r, f"arm {a}") for r in range(8) for a in range(2)]
    assert all(each.exit_code == 0 for each in found)
    for number in range(8):
        assert len({each.starts for each in found if each.run == number}) == 1


def test_an_older_job_that_starts_late_changes_nothing(store: Store) -> None:
    study = make_study(store, "true", "true")
    older = start(store, study, number=1)
    older.communicate()
    before = sorted(path.name for path in allocation.runs_folder(store, NAME).iterdir())
    control = store.run(NAME) / "control"
    (control / "allocation").write_text("2\n")
    done = subprocess.run([tool("bash"), control / "job.sh"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "another job was submitted for these runs" in done.stderr
    assert sorted(path.name for path in allocation.runs_folder(store, NAME).iterdir()) == before


def test_the_time_limit_leaves_the_rest(store: Store) -> None:
    study = make_study(store, "sleep 0.2", "sleep 0.2", repeats=5)
    code, out = run(store, study, limit_s=16)
    assert (code, "leaves no time for the next run" in out) == (0, True), out
    assert 1 <= len(collection.waiting(store, study)) < 6
    code, out = run(store, study)
    assert (code, "run warm-up: " in out) == (0, True), out  # of these nodes
    study = collection.collect(store, study)
    assert len(point_runs.stored_runs(store, study)) == study.job.prove.repeats + 1


def test_failed_runs_are_kept_and_a_failed_warm_up_ends_the_job(store: Store) -> None:
    study = make_study(store, "true", "echo x >> n; [ $(wc -l < n) -ne 3 ] || { echo no memory; exit 9; }")
    code, out = run(store, study)
    assert code == 0, out
    study = collection.collect(store, study)
    failed = [
        (each.run, each.arm, each.exit_code, each.ended_because)
        for each in records(store, study)
        if each.exit_code
    ]
    assert failed == [(2, "arm 1", 9, "arm 1: the job ended with exit code 9")]
    assert "no memory" in (store.run(NAME) / "0002/contender.log").read_text()


def test_a_failed_warm_up_ends_the_job(store: Store) -> None:
    study = make_study(store, "echo first", "echo no data; exit 4")
    code, out = run(store, study)
    assert (code, "the warm-up failed" in out) == (1, True), out
    assert collection.waiting(store, study) == []
    error = collection.failure(store, study)
    assert error is not None
    assert (error.code, error.message) == (4, "arm 1: the job ended with exit code 4")
    assert error.context == "no data"


def test_metrics_come_from_the_output_and_from_files_of_the_own_run(store: Store) -> None:
    metrics = (
        MetricRequest(name="v", pattern="v (.*)"),
        MetricRequest(name="w", file="w.json", key="/0"),
    )
    study = make_study(
        store, "echo v 1; echo '[3]' > w.json", "echo v 2; echo '[4]' > w.json", metrics=metrics
    )
    assert run(store, study)[0] == 0
    study = collection.collect(store, study)
    assert {(each.arm, each.results["v"], each.results["w"]) for each in records(store, study)} == {
        ("arm 0", 1.0, 3.0), ("arm 1", 2.0, 4.0),
    }  # fmt: skip


@pytest.mark.parametrize("left", ["mkfifo w.json", "ln -s secret w.json"])
def test_what_a_container_leaves_in_place_of_its_metrics_is_not_read(store: Store, left: str) -> None:
    (store.root.parent / "secret").write_text("[3]")
    study = make_study(store, left, "true", metrics=(MetricRequest(name="w", file="w.json", key="/0"),))
    assert run(store, study)[0] == 0
    with pytest.raises(RunError, match=r"arm 0: metrics.w: the run did not write .*w.json"):
        collection.collect(store, study)
    assert 0 not in point_runs.stored_runs(store, study)
    assert 0 not in collection.waiting(store, study)


METER = """
mkdir -p $2/meter; now=$(awk '{{ printf "%d", $1 * 1e9 }}' /proc/uptime)
python3 - $now $2/meter/rank-00000.jsonl <<'END'
import json, sys
now = int(sys.argv[1])
with open(sys.argv[2], "w") as file:
    def say(**line): file.write(json.dumps(line) + "\\n")
    say(kind="process", rank=0, world_size=1, samples_per_step=8, loaded_ns=now, imported_ns=now + 1000)
    say(kind="start", at_ns=now + 2000)
    say(kind="steps", opened_ns=now + 2000, ends_ns=[now + 10**9 + n * {step} for n in range(1, 102)])
    say(kind="result", name="accuracy", value=0.5, step=3)
    say(kind="end", opened_ns=now + 10**9 + 101 * {step}, at_ns=now + 10**9 + 101 * {step}, peak_rss_bytes=5)
END
"""


def test_the_steps_of_the_meter_are_compared_in_windows(store: Store) -> None:
    study = make_study(store, METER.format(step=10_000_000), METER.format(step=11_000_000))
    code, out = run(store, study)
    assert code == 0, out
    study = collection.collect(store, study)
    assert (study.metered, study.steps_per_window) == (True, 19)
    first, second = records(store, study)[2:4]
    assert [len(window.step_s) for window in first.windows] == [19] * 5
    assert [window.block for window in second.windows] == list(range(5))
    assert sum(second.windows[0].step_s) == pytest.approx(19 * 0.011)
    assert first.results == {"accuracy": 0.5}
    assert first.peak_memory_bytes == 5
    from bareboat_study.analysis import analyse

    assert analyse(study, records(store, study)).primary.comparison.ratio == pytest.approx(10 / 11)


@pytest.mark.parametrize(
    "content",
    ["", "code 0\n", "code x\nposition 0\nbegan 1 2 3\nended 1 2\nload 1\n",
     "code 0\nposition 0\nbegan 500 1 3\nended 1 1\nload 1\n",
     "code 0\nposition 0\nbegan 1 1 3\nended 5 1\nload nan\n",
     "code 0\nposition 2\nbegan 1 1 3\nended 5 1\nload 1\n",
     f"code 0\nposition 0\nbegan 1 1 {'9' * 30}\nended 5 1\nload 1\n",
     "code 999\nposition 0\nbegan 1 1 3\nended 5 1\nload 1\n"],
)  # fmt: skip
def test_damaged_results_are_named(store: Store, content: str) -> None:
    study = make_study(store, "true", "true")
    assert run(store, study)[0] == 0
    path = allocation.runs_folder(store, NAME) / "0000/0/result"
    path.write_text(content)
    with pytest.raises(StoreError, match="result of the run cannot be read"):
        collection.collect(store, study)


def test_a_clock_that_was_set_is_not_believed(store: Store) -> None:
    study = make_study(store, "true", "true")
    assert run(store, study)[0] == 0
    path = allocation.runs_folder(store, NAME) / "0001/0/result"
    path.write_text(
        "code 0\nposition 0\nbegan 1000 1700000000.5 1700000000\nended 1250 1700003600.5\nload 0.5 1\n"
    )
    study = collection.collect(store, study)
    (found,) = (each for each in records(store, study) if (each.run, each.arm) == (1, "arm 0"))
    assert found.wall_s == 2.5


@pytest.mark.parametrize(
    ("asked_s", "taken_s", "left", "limit_s"),
    [
        (None, [10.0], 5, None),
        (3600, [], 5, 3600),
        (3600, [20.0, 10.0], 10, 360),  # 120 + 1.25 * (20 + 10 * 15) = 332.5
        (300, [20.0, 10.0], 10, 300),
    ],
)
def test_later_jobs_ask_for_what_they_need(
    asked_s: int | None, taken_s: list[float], left: int, limit_s: int | None
) -> None:
    assert allocation.time_limit_s(asked_s, taken_s, left) == limit_s


def test_the_script_has_no_value_unquoted(store: Store) -> None:
    metrics = (MetricRequest(name="w", file="$(touch oops) 'x.json", key="/0"),)
    study = make_study(store, "true", "true", metrics=metrics, job=make_job(scheduler="slurm"))
    text = allocation.script(store, study, range(2), None)
    done = subprocess.run([tool("bash"), "-n"], input=text, text=True, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.dumps("$(touch oops)")[1:-1] in text
