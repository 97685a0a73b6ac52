"""Series of runs for TensorBoard, written by its libraries and read back."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bareboat.cli.main import main
from bareboat_base.errors import UsageError
from bareboat_study import report_series, tensorboard
from bareboat_study.report_series import Point, Series
from bareboat_study.tensorboard import Tracked

LAB = (
    Path(os.environ.get("BAREBOAT_LAB", "/opt/bareboat-lab"))
    / "frameworks"
    / "tensorboard"
    / "bin"
    / "python"
)
SOURCE = Path(tensorboard.__file__).parents[1]
METER = """
import bareboat_meter
meter = bareboat_meter.Meter(samples_per_step=8)
meter.start()
for step in range(5):
    meter.step()
    meter.result(loss=1 / (step + 1))
meter.result(accuracy=float("nan"))
meter.close()
"""


@pytest.fixture
def metered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a run whose command has a meter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    Path("train.py").write_text(METER)
    words = [
        sys.executable,
        "-m",
        "bareboat",
        "run",
        "-q",
        "--engine",
        "native",
        "--",
        sys.executable,
        "train.py",
    ]
    subprocess.run(words, check=True, timeout=60)
    (run,) = (tmp_path / "store" / "runs").iterdir()
    return run.name


def test_a_meter_s_log_is_a_series_of_every_result(metered: str, tmp_path: Path) -> None:
    (log,) = report_series.rank_logs(tmp_path / "store" / "runs" / metered, 1)
    assert [point.step for point in log.steps] == [0, 1, 2, 3, 4]
    assert [(point.step, point.value) for point in log.results["loss"]] == [
        (step, 1 / step) for step in range(1, 6)
    ]
    assert math.isnan(log.results["accuracy"][0].value)
    assert log.is_complete
    assert log.peak_rss_bytes > 0
    assert log.samples_per_step == 8


def test_what_the_meter_did_not_write_is_ignored(tmp_path: Path) -> None:
    meter, progress = tmp_path / "meter", tmp_path / "ranks" / "progress"
    meter.mkdir()
    progress.mkdir(parents=True)
    begun = {"kind": "process", "rank": 0, "world_size": 2, "samples_per_step": "nan", "loaded_ns": 0,
             "imported_ns": 10**9}  # fmt: skip
    lines: list[object] = [
        begun,
        {"kind": "steps", "opened_ns": 2 * 10**9, "ends_ns": [3 * 10**9, 1, 4 * 10**9]},
        {"kind": "result", "name": "evil\x1b", "value": 1.0},
        {"kind": "result", "name": "loss", "value": "inf"},
        "not a line",
        {"kind": "result", "name": "late", "value": 1.0},
    ]
    (meter / "rank-00000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (meter / "rank-00001.jsonl").symlink_to("/etc/passwd")
    (log,) = report_series.rank_logs(tmp_path, 2)
    assert [point.value for point in log.steps] == [1.0, pytest.approx(4.0, abs=1e-6)]
    assert list(log.results) == ["loss"]
    assert log.samples_per_step == 1
    (meter / "rank-00000.jsonl").unlink()
    (progress / "0").write_text("1 0.5\n2 0.25\nx\n")
    (log,) = report_series.rank_logs(tmp_path, 2)
    assert [(p.step, p.value, p.at_s) for p in log.steps] == [(1, 0.5, None), (2, 0.25, None)]


def tracked(name: str = "train-1") -> Tracked:
    return Tracked(
        name=name,
        began_s=1_700_000_000,
        parameters={"lr": "0.1", "odd name!": "<b>|"},
        results={"loss": 0.25, "bad": math.nan},
        series=[
            Series("loss", 0, (Point(1, 1.0, 0.5), Point(2, math.inf), Point(3, 0.25, 1.5))),
            Series("memory_bytes", None, (Point(0, 1e9, 0.0),)),
        ],
        tags={"command": "python train.py"},
    )


def test_names_are_of_letters_that_tensorboard_accepts() -> None:
    assert tensorboard.name_of(Series("a/b:c", 3, ())) == "a_b_c/rank-3"
    assert tensorboard.plain("x" * 500) == "x" * 200
    assert tensorboard.plain("") == "_"


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> steps and values of the event files, read as TFRecord."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + size])
            data = data[12 + size + 4 :]
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    tensorboard.write([tracked()], tmp_path)
    found = events(tmp_path / "train-1")
    assert found["loss/rank-0"] == [(1, 1.0), (3, 0.25)]
    assert found["memory_bytes"] == [(0, 1e9)]
    assert found["result/loss"] == [(0, 0.25)]
    assert "run/text_summary" in found


def test_the_series_of_a_run_are_written_by_the_verb(metered: str, tmp_path: Path, capsys) -> None:
    pytest.importorskip("tensorboardX")
    assert main(["report", metered, "--tensorboard", "tb"]) == 0
    assert "tensorboard --logdir" in capsys.readouterr().err
    found = events(tmp_path / "tb")
    assert [step for step, _ in found["loss/rank-0"]] == [1, 2, 3, 4, 5]
    assert len(found["step_s/rank-0"]) == 5
    assert main(["report", metered, "--tensorboard", "tb"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["report", metered, "--tensorboard", "tb", "--force"]) == 0


def test_a_library_that_is_not_installed_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda _: None)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "any", "--tensorboard", "out"]) == 2
    err = capsys.readouterr().err
    assert "not installed, but required for --tensorboard" in err
    assert "pip install tensorboard" in err
    assert not Path("out").exists()


def test_a_library_s_own_error_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("proto\nmismatch")

    monkeypatch.setattr(tensorboard, "find_spec", lambda _: True)
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=fail))
    with pytest.raises(UsageError, match="tensorboardX failed: proto mismatch"):
        tensorboard.write([tracked()], tmp_path)


READ_BACK = """
import math, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bareboat_study import tensorboard
from bareboat_study.report_series import Point, Series
run = tensorboard.Tracked(name="train-1", began_s=1_700_000_000, parameters={"lr": "0.1"},
    results={"loss": 0.25, "bad": math.nan}, series=[Series("loss", 0, (Point(1, 1.0), Point(3, 0.25)))])
top = Path.cwd()
tensorboard.write([run], top / "tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(str(top / "tensorboard" / "train-1")); events.Reload()
assert [(e.step, e.value) for e in events.Scalars("loss/rank-0")] == [(1, 1.0), (3, 0.25)]
assert events.Tags()["tensors"] == ["run/text_summary"]

print("read back")
"""


@pytest.mark.frameworks
def test_tensorboard_s_own_reader_finds_the_runs(tmp_path: Path) -> None:
    if not LAB.exists():
        pytest.skip("tests/lab/frameworks.sh --all installs TensorBoard")
    done = subprocess.run(
        [LAB, "-c", READ_BACK, SOURCE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.stdout.endswith("read back\n"), done.stderr[-3000:]
