"""The meter by itself: silent outside of Bareboat, exact inside."""

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import bareboat_meter
from bareboat.runs import records
from bareboat_base.errors import RunError
from bareboat_study.meterlog import read_rank


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BAREBOAT_METER_DIR", str(tmp_path))
    return tmp_path


def lines(folder: Path, rank: int = 0) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / f"rank-{rank:05d}.jsonl").read_text().splitlines()]


def test_outside_of_bareboat_it_writes_nothing_and_never_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    meter = bareboat_meter.Meter(samples_per_step=4)
    meter.start()
    meter.step()
    meter.result(loss=1)
    meter.close()
    assert list(tmp_path.iterdir()) == []


def test_every_step_is_kept_with_its_own_time(folder: Path) -> None:
    meter = bareboat_meter.Meter(samples_per_step=4)
    meter.start()
    for pause_s in (0.02, 0.001, 0.01):
        time.sleep(pause_s)
        meter.step()
    meter.result(test_accuracy=0.5, loss=2)
    meter.close()
    process = read_rank(folder, 0)
    seconds = process.step_seconds(0, 3)
    assert process.steps == 3
    assert seconds[0] >= 0.02
    assert seconds[1] >= 0.001
    assert process.samples_per_step == 4
    assert process.results == {"test_accuracy": 0.5, "loss": 2.0}
    assert process.loaded_ns <= process.imported_ns <= process.start_ns < process.ended_ns
    assert process.peak_rss_bytes > 10**6


def test_the_peak_of_memory_is_that_of_the_program_alone() -> None:
    """It is not that of the process that was forked for it."""
    ballast = b"x" * 2**27
    code = "import bareboat_meter; print(bareboat_meter._peak_bytes())"
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, preexec_fn=os.getpid)  # forks
    assert 10**6 < int(shown.stdout) < len(ballast)


def test_thousands_of_steps_are_written_in_pieces_and_none_is_lost(folder: Path) -> None:
    meter = bareboat_meter.Meter()
    meter.start()
    for _ in range(2500):
        meter.step()
    pieces = [line for line in lines(folder) if line["kind"] == "steps"]
    assert [len(piece["ends_ns"]) for piece in pieces] == [1000, 1000]  # type: ignore[arg-type]
    meter.close()
    process = read_rank(folder, 0)
    assert process.steps == 2500
    ends = [end for _, ends in process.stretches for end in ends]
    assert ends == sorted(ends)
    # No time between pieces is lost: the steps add up to the whole.
    assert sum(process.step_seconds(0, 2500)) == pytest.approx((ends[-1] - process.start_ns) / 1e9)


def test_results_go_to_the_run_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAREBOAT_RUN_DIR", str(tmp_path / "ranks"))
    monkeypatch.setenv("RANK", "3")
    meter = bareboat_meter.Meter()
    meter.result(loss=1, accuracy=0.5)
    meter.result(loss=0.5)
    assert (tmp_path / "ranks" / "results" / "3").read_text().splitlines() == [
        '["loss", 1.0]', '["accuracy", 0.5]', '["loss", 0.5]',
    ]  # fmt: skip
    assert records.results(tmp_path) == {"loss": 0.5, "accuracy": 0.5}


#: A loader that is forked after the first step and exits, which runs the functions of `atexit` in it.
_FORKS = """
import bareboat_meter, os, sys
meter = bareboat_meter.Meter()
meter.start()
meter.step()
child = os.fork()
if not child:
    meter.step()
    meter.result(loss=1)
    sys.exit(0)
os.waitpid(child, 0)
for _ in range(3):
    meter.step()
"""


def rank_at_a_gate(code: str, folder: Path) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """A rank that executes the code, and its connection to the gate."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        rank = subprocess.Popen(
            [sys.executable, "-c", code],
            env={
                "BAREBOAT_METER_DIR": str(folder),
                "BAREBOAT_GATE": f"127.0.0.1:{server.getsockname()[1]}:t",
                "PYTHONPATH": str(Path(bareboat_meter.__file__).parent),
            },
        )
        return rank, server.accept()[0]


def test_a_fork_of_a_rank_neither_ends_its_log_nor_says_goodbye(folder: Path) -> None:
    rank, connection = rank_at_a_gate(_FORKS, folder)
    with connection, connection.makefile() as words:
        words.readline()
        connection.sendall(b"go 2\n")
        assert words.readline() == "at 2\n"
        connection.sendall(b"go 1000\n")
        assert words.readline() == "bye\n"
        assert words.readline() == ""
    assert rank.wait(timeout=20) == 0
    process = read_rank(folder, 0)
    assert (process.steps, process.results) == (4, {})


@pytest.mark.parametrize(
    ("rank", "world"),
    [
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ],
)
def test_rank_and_world_size_come_from_the_launcher(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rank: str, world: str
) -> None:
    monkeypatch.setenv(rank, "3")
    monkeypatch.setenv(world, "8")
    bareboat_meter.Meter().close()
    assert read_rank(folder, 3).world_size == 8


class _Torch:
    def __init__(self, size: int | None) -> None:
        self._size = size

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self._size is not None

    def get_world_size(self) -> int:
        assert self._size is not None
        return self._size


@pytest.mark.parametrize(("knows", "size"), [(2, 2), (1, 1), (None, 1)])
def test_a_rank_that_trains_alone_says_so_and_is_no_measurement(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    knows: int | None,
    size: int,
) -> None:
    for name, value in (("BAREBOAT_RUN", "job-1"), ("RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "torch.distributed", _Torch(knows))
    meter = bareboat_meter.Meter()
    meter.start()
    meter.step()
    meter.step()
    meter.close()
    said = capsys.readouterr().err
    if size == 2:
        assert said == ""
        assert read_rank(folder, 0).steps == 2
        return
    assert said.count("2 ranks were started, but rank 0's framework has world size 1") == 1
    with pytest.raises(RunError, match="rank 0 trained with world size 1, but 2 ranks were started"):
        read_rank(folder, 0)


@contextlib.contextmanager
def gate(monkeypatch: pytest.MonkeyPatch, *, pause_s: float = 0.0) -> Iterator[list[tuple[str, float]]]:
    """A gate that lets two steps through, and the rest after a pause: what it is told, and when."""
    server = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setenv("BAREBOAT_GATE", f"127.0.0.1:{server.getsockname()[1]}:secret")
    heard: list[tuple[str, float]] = []

    def gatekeeper() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile() as words:
            for answer in (b"go 2\n", b"go 1000\n", b""):
                heard.append((words.readline(), time.monotonic()))
                time.sleep(pause_s if answer == b"go 1000\n" else 0)
                connection.sendall(answer)

    thread = threading.Thread(target=gatekeeper)
    thread.start()
    yield heard
    thread.join()
    server.close()


def take_four_steps() -> None:
    meter = bareboat_meter.Meter()
    meter.start()
    for _ in range(4):
        meter.step()
    meter.close()


def test_at_the_gate_it_waits_and_the_wait_is_no_step_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gate(monkeypatch, pause_s=0.3) as heard:
        take_four_steps()
    assert [words for words, _ in heard] == ["hello secret 0 1\n", "at 2\n", "bye\n"]
    process = read_rank(folder, 0)
    assert [len(ends) for _, ends in process.stretches] == [2, 2]
    assert max(process.step_seconds(0, 4)) < 0.3
    assert process.step_times()[2][0] - process.stretches[0][1][-1] > 0.25e9


class _Device:
    """A device with a queue, as PyTorch's: `synchronize` waits for its work."""

    def __init__(self) -> None:
        self.drained_s: list[float] = []

    def is_initialized(self) -> bool:
        return True

    def synchronize(self) -> None:
        time.sleep(0.2)
        self.drained_s.append(time.monotonic())


def test_at_the_gate_the_devices_are_drained_and_the_last_step_has_their_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, broken = _Device(), SimpleNamespace(backends_are_initialized=lambda: 1 / 0)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=device))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", broken)  # type: ignore[arg-type]
    with gate(monkeypatch) as heard:
        take_four_steps()
    (drained_s,) = device.drained_s
    assert drained_s <= heard[1][1]
    seconds = read_rank(folder, 0).step_seconds(0, 4)
    assert seconds[1] >= 0.2
    assert max(seconds[0], *seconds[2:]) < 0.2


def test_a_rank_ends_by_itself_when_the_gate_goes_away(folder: Path) -> None:
    code = "import bareboat_meter as f; m = f.Meter(); m.start(); [m.step() for _ in range(10)]"
    rank, connection = rank_at_a_gate(code, folder)
    connection.sendall(b"go 1\n")
    connection.close()
    assert rank.wait(timeout=20) == 75


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "",
        lambda text: text.splitlines()[0] + "\n",
        lambda text: text[:-20],
        lambda text: text.replace("process", "processor", 1),
        lambda text: "[]\n" + text,
    ],
    ids=["empty", "no end", "cut", "unknown", "not an object"],
)
def test_a_damaged_log_is_one_clear_error(folder: Path, damage: object) -> None:
    meter = bareboat_meter.Meter()
    meter.start()
    meter.step()
    meter.close()
    path = folder / "rank-00000.jsonl"
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with pytest.raises(RunError, match="meter log"):
        read_rank(folder, 0)


def test_a_missing_log_is_one_clear_error(folder: Path) -> None:
    with pytest.raises(RunError, match="rank 5 wrote no meter log"):
        read_rank(folder, 5)


def test_a_result_that_is_not_a_number_is_kept_with_its_step(folder: Path) -> None:
    meter = bareboat_meter.Meter()
    meter.start()
    for step in range(6):
        meter.step()
        meter.result(loss=1.0 if step < 3 else float("nan"), burst=float("inf") if step == 1 else 2.0)
    meter.result(late=float("-inf"))
    meter.close()
    assert [line["value"] for line in lines(folder) if line["kind"] == "result"][-3:] == ["nan", 2.0, "-inf"]
    process = read_rank(folder, 0)
    assert math.isnan(process.results["loss"])
    assert process.results["burst"] == 2.0
    assert process.results["late"] == float("-inf")
    assert process.diverged == {"loss": 4, "late": 0}


def test_a_copy_of_the_meter_that_writes_nan_as_python_does_is_read(folder: Path) -> None:
    meter = bareboat_meter.Meter()
    meter.step()
    meter.result(loss=1.0)
    meter.close()
    log = folder / "rank-00000.jsonl"
    log.write_text(log.read_text().replace('"value":1.0', '"value":NaN'))
    assert math.isnan(read_rank(folder, 0).results["loss"])


@pytest.mark.parametrize("samples", [float("nan"), float("inf"), 0.0, -4.0])
def test_samples_per_step_that_count_nothing_are_refused(folder: Path, samples: float) -> None:
    meter = bareboat_meter.Meter(samples_per_step=samples)
    meter.step()
    meter.close()
    with pytest.raises(RunError, match="samples_per_step"):
        read_rank(folder, 0)


@pytest.mark.parametrize(
    ("name", "told"),
    [("RANK", ""), ("WORLD_SIZE", ""), ("BAREBOAT_GATE", "BAREBOAT_GATE is 'x'")],
)
def test_a_variable_of_the_program_or_a_gate_that_is_no_address_does_not_end_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    monkeypatch.setenv(name, "x")
    meter = bareboat_meter.Meter()
    meter.step()
    meter.close()
    assert lines(folder)[0]["rank"] == 0
    assert told in capsys.readouterr().err


def test_a_full_disk_does_not_end_the_program(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rank-00000.jsonl").symlink_to("/dev/full")
    monkeypatch.setenv("BAREBOAT_RUN_DIR", str(folder))
    (folder / "results").mkdir()
    (folder / "results" / "0").symlink_to("/dev/full")
    meter = bareboat_meter.Meter()
    meter.start()
    for _ in range(3):
        meter.step()
    meter.result(loss=1)
    meter.close()
    said = capsys.readouterr().err
    assert said.count("the meter of rank 0 stops: ") == 1
    assert "the results loss are not stored: " in said


def test_a_directory_that_is_gone_does_not_end_the_program(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BAREBOAT_METER_DIR", str(folder / "gone"))
    (folder / "file").touch()
    monkeypatch.setenv("BAREBOAT_RUN_DIR", str(folder / "file"))
    meter = bareboat_meter.Meter()
    meter.start()
    meter.step()
    meter.result(loss=1)
    meter.close()
    assert "the meter of rank 0 stops: " in capsys.readouterr().err


def test_values_that_are_no_numbers_do_not_end_the_program(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meter = bareboat_meter.Meter()
    meter.result(loss=None, accuracy=0.5)  # type: ignore[arg-type]
    meter.close()
    assert [each["name"] for each in lines(folder) if each["kind"] == "result"] == ["accuracy"]
    assert "the result loss is not a number" in capsys.readouterr().err
    bareboat_meter.Meter(samples_per_step="many").step()  # type: ignore[arg-type]
    assert "the meter of rank 0 stops: " in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_rank_whose_gate_is_gone_at_its_start_exits_as_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAREBOAT_GATE", "127.0.0.1:1:token")
    with pytest.raises(SystemExit) as stopped:
        bareboat_meter.Meter()
    assert stopped.value.code == 75


@pytest.mark.usefixtures("folder")
def test_a_framework_that_raises_does_not_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("BAREBOAT_RUN", "r")
    monkeypatch.setitem(sys.modules, "torch.distributed", Broken())  # type: ignore[arg-type]
    meter = bareboat_meter.Meter()
    meter.step()
    meter.close()
