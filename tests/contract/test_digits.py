"""The example that `make prove` runs, with PyTorch, torchrun and two ranks."""

import json
import os
import shutil
import textwrap
from pathlib import Path

import pytest
from processes import bareboat, left_after
from tools import output

from bareboat_images.store import Store
from bareboat_study import analysis, matrix, point_runs

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the environment of the tests, captured once."""
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    store = tmp_path_factory.mktemp("digits") / "store"
    code, _, err = bareboat("image", "capture", store=store, cwd=store.parent)
    assert code == 0, err
    return store


@pytest.fixture
def work(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLES / "digits.py", tmp_path)
    return tmp_path


def write_job(work: Path, *, command: list[str], more: str = "") -> Path:
    job = work / "job.toml"
    job.write_text(
        f'name = "{work.name}"\ncommand = {json.dumps(command)}\n'
        "[topology]\nranks_per_node = 2\n" + textwrap.dedent(more)
    )
    return job


@pytest.mark.one_in(2)
@pytest.mark.parametrize("engine", ["bubblewrap", "native"])
def test_the_plans_script_trains_with_bareboat_off_the_path(captured: Path, work: Path, engine: str) -> None:
    example = (EXAMPLES / "digits.toml").read_text()
    (work / "digits.toml").write_text(example.replace('"40"', '"6"'))
    code, script, err = bareboat(
        "plan", "--prepare", "--engine", engine, "--script", "digits.toml", store=captured, cwd=work
    )
    assert code == 0, err
    (work / "job.sh").write_text(script)
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "TMPDIR": str(work)}
    assert shutil.which("bareboat", path=bare["PATH"]) is None
    shown = output("bash", "job.sh", cwd=work, env=bare, timeout=300)
    assert "[rank 0] world size 2, test accuracy 0.9" in shown
    assert list(work.glob("bareboat-run.*")) == []


@pytest.mark.long
def test_two_ranks_in_both_arms_reach_the_stated_accuracy(captured: Path, work: Path) -> None:
    job = write_job(
        work,
        command=["python", "digits.py", "--epochs", "14"],
        more="""
        [prove]
        repeats = 2
        window_s = 0.2
        goals = { test_accuracy = 0.9 }
        """,
    )
    code, out, err = bareboat("prove", job, store=captured, cwd=work)
    assert code == 0, err
    store = Store(captured)
    (run_id,) = [run for run in store.runs() if run.startswith(work.name)]
    (study,) = matrix.points(store, matrix.read(store, run_id))
    records = point_runs.read_records(store, study)
    assert len(records) == 6
    accuracies = {record.results["test_accuracy"] for record in records}
    assert len(accuracies) == 1, "the same seeds train the same model in both arms"
    for record in records:
        assert record.world_size == 2
        assert len(record.peak_rank_rss_bytes) == 2
        assert record.samples_per_step == 64
        assert record.phases is not None
        assert record.phases.import_s > 0.1
    assert all(goal.reached for goal in analysis.analyse(study, records).goals)
    assert "throughput" in out
    assert left_after(work.name, 1) == []


def test_when_one_rank_dies_the_others_end_and_both_arms_saw_the_same_environment(
    captured: Path, work: Path
) -> None:
    (work / "dies.py").write_text(
        "import importlib.util, json, os, sys, time\n"
        "torch = importlib.util.find_spec('torch').origin\n"
        "hidden = ('BAREBOAT', 'TORCHELASTIC_RUN_ID', 'MASTER_PORT', 'TORCHELASTIC_ERROR_FILE', 'PWD')\n"
        "mine = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}\n"
        "name = 'env-%s-%s.json' % (os.environ['RANK'], 'BAREBOAT_IMAGE' in os.environ)\n"
        "open(name + '.part', 'w').write(\n"
        "    json.dumps([mine, torch, os.getcwd(), os.getuid()], sort_keys=True))\n"
        "os.rename(name + '.part', name)\n"
        "if os.environ['RANK'] == '1':\n"
        "    while not os.path.exists(name.replace('env-1', 'env-0')): time.sleep(0.05)\n"
        "    print('rank one has had enough', file=sys.stderr)\n"
        "    sys.exit(7)\n"
        "time.sleep(600)\n"
    )
    job = write_job(work, command=["python", "dies.py"])
    for engine in ("bubblewrap", "native"):
        code, _, err = bareboat("run", "--engine", engine, job, store=captured, cwd=work, timeout_s=120)
        assert code == 7, err
        assert "rank 1 ended first, with exit code 7; its last output:" in err
        assert err.count("rank one has had enough") >= 2, "once as it was said, once in the summary"
        assert "Traceback (most recent call last)" not in err.partition("rank 1 ended first")[2]
        assert left_after(work.name, 1) == []
    for rank in (0, 1):
        inside, outside = (
            json.loads((work / f"env-{rank}-{contained}.json").read_text()) for contained in (True, False)
        )
        assert inside == outside
