"""The sampler: the program itself, its series as curves and totals, and their bands over several runs."""

import csv
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from watch import wait_until

from bareboat.model import Usage
from bareboat.runs import sampler_series
from bareboat_base.execute import SAMPLER, sampler
from bareboat_study import bands

MIB = 1 << 20


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_it_follows_the_marked_processes_of_each_rank_until_the_script_ends(tmp_path: Path) -> None:
    sleeper = "import sys; kept = b'x' * int(sys.argv[1]); sys.stdin.read()"
    script = subprocess.Popen(["sleep", "60"])
    environments = [{"BAREBOAT_RUN": "run-1", "RANK": str(rank)} for rank in range(2)]
    environments += [{"BAREBOAT_RUN": "run-1"}, {"BAREBOAT_RUN": "run-12", "RANK": "0"}]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", sleeper, str((place + 1) * 30 * MIB)],
            env=environment,
            stdin=subprocess.PIPE,
        )
        for place, environment in enumerate(environments)
    ]
    follower = subprocess.Popen(
        [sys.executable, "-I", "-S", SAMPLER, "run-1", str(script.pid), tmp_path, "0.02"]
    )
    sizes = {rank: (place + 1) * 30 * MIB for place, rank in enumerate(("0", "1", ""))}

    def complete() -> bool:
        sampled = tmp_path / "processes.csv"
        found = [row for row in (rows(sampled) if sampled.exists() else ()) if row["rss_bytes"]]
        last = {row["rank"]: row for row in found}
        # The shares of shared pages are read more rarely.
        shares = [int(row["pss_bytes"]) for row in found if row["pss_bytes"] and row["rank"] == "0"]
        is_whole = all(rank in last and int(last[rank]["rss_bytes"]) > size for rank, size in sizes.items())
        return is_whole and any(share > 30 * MIB for share in shares)

    try:
        # On a busy machine a rank takes seconds to start.
        assert wait_until(complete)
    finally:
        script.kill()
        script.wait()
        assert follower.wait(20) == 0
        for each in ranks:
            each.communicate()
    found = rows(tmp_path / "processes.csv")
    assert list(found[0]) == list(sampler.PROCESSES)
    last = {row["rank"]: row for row in found}
    assert sorted(last) == ["", "0", "1"]
    for rank, size in sizes.items():
        assert last[rank]["processes"] == "1"
        assert size < int(last[rank]["rss_bytes"]) < size + 25 * MIB
    assert all(float(row["cpu_s"]) >= 0 and int(row["minor_faults"]) > 0 for row in last.values())
    assert not (tmp_path / "devices.csv").exists() or rows(tmp_path / "devices.csv")


def test_it_ends_at_once_when_asked(tmp_path: Path) -> None:
    follower = subprocess.Popen(
        [sys.executable, "-I", "-S", SAMPLER, "run-1", str(os.getpid()), tmp_path, "60"]
    )

    time.sleep(1)  # it has begun, or the signal ends it before that
    follower.terminate()
    assert follower.wait(30) in (0, -signal.SIGTERM)


def test_counts_of_processes_that_ended_stay() -> None:
    child = subprocess.Popen(["sleep", "60"], env={"BAREBOAT_RUN": "run-1", "RANK": "3"})
    processes = sampler.Processes("run-1")
    processes.search(time.monotonic())
    (line,) = processes.sample(1.0, False)
    child.kill()
    child.wait()
    assert processes.watched
    list(processes.sample(2.0, False))
    assert not processes.watched
    (after,) = processes.sample(3.0, False)
    before, left = line.split(","), after.split(",")
    assert before[1:3] == ["3", "1"]
    assert left[1:4] == ["3", "0", "0"]
    assert int(left[8]) >= int(before[8]) > 0


def test_a_process_that_becomes_another_program_changes_its_rank() -> None:
    child = subprocess.Popen(
        ["bash", "-c", "read; RANK=5 exec sleep 60"], env={"BAREBOAT_RUN": "run-1"}, stdin=subprocess.PIPE
    )
    try:
        processes = sampler.Processes("run-1")
        processes.search(0.0)
        assert [each.rank for each in processes.watched.values()] == [""]
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert wait_until(lambda: b"RANK=5" in Path(f"/proc/{child.pid}/environ").read_bytes())
        processes.search(0.05)  # too early to look again
        assert [each.rank for each in processes.watched.values()] == [""]
        processes.search(0.2)
        assert [each.rank for each in processes.watched.values()] == ["5"]
    finally:
        child.kill()
        child.wait()


def package(folder: Path, number: int, joules: float, name: str = "package-0") -> None:
    place = folder / f"intel-rapl:{number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "name").write_text(f"{name}\n")
    (place / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
    (place / "max_energy_range_uj").write_text("1000000000\n")


def test_the_energy_of_processors_goes_on_when_the_counter_begins_again(tmp_path: Path) -> None:
    package(tmp_path, 0, 990)
    package(tmp_path, 1, 5, name="psys")
    (tmp_path / "intel-rapl:0:0").mkdir()
    rapl = sampler.Rapl(str(tmp_path))
    assert list(rapl.sample(1.0)) == ["1.000,package-0,,,,,,,990.000000\n"]
    package(tmp_path, 0, 10)
    assert list(rapl.sample(2.0)) == ["2.000,package-0,,,,,,,1010.000000\n"]


def test_without_devices_nothing_is_written(tmp_path: Path) -> None:
    assert sampler.Nvidia("libno-such-library.so.1").handles == []
    assert sampler.Rapl(str(tmp_path / "none")).packages == []
    output = sampler.Output(str(tmp_path / "devices.csv"), sampler.DEVICES)
    output.write([], 100.0)
    output.flush(100.0)
    assert list(tmp_path.iterdir()) == []


class FakeNvml:
    """Answers as NVML does: a code, and values where the last argument points. No power, as on some GPUs."""

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = 100 + index
        return 0

    def nvmlDeviceGetMemoryInfo(self, _handle: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.used = 7 * MIB
        return 0

    def nvmlDeviceGetUtilizationRates(self, _handle: ctypes.c_void_p, rates: Any) -> int:
        rates._obj.gpu = 83
        return 0

    def nvmlDeviceGetPowerUsage(self, _handle: ctypes.c_void_p, _power: Any) -> int:
        return 3  # not supported

    def nvmlDeviceGetClockInfo(self, _handle: ctypes.c_void_p, kind: int, clock: Any) -> int:
        clock._obj.value = {1: 1980, 2: 2619}[kind]
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle: ctypes.c_void_p, reasons: Any) -> int:
        reasons._obj.value = 0x20
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle: ctypes.c_void_p, energy: Any) -> int:
        energy._obj.value = 123456
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        found[0].pid, count._obj.value = 7, handle.value - 100  # on the second GPU only
        return 0


def test_gpus_by_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: FakeNvml())
    lines = list(sampler.Nvidia().sample(5.0))
    assert lines[1] == f"5.000,gpu-1,{7 * MIB},83,,1980,2619,0x20,123.456\n"
    assert len(lines) == 2


def test_a_gpu_is_used_by_processes_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: FakeNvml())
    gpus = sampler.Nvidia()
    assert list(gpus.newly_used(5.0, {8})) == ["5.000,\n"]
    assert list(gpus.newly_used(6.0, {7, 8})) == ["6.000,gpu-1\n"]
    assert list(gpus.newly_used(7.0, {7})) == []


def series(folder: Path, lines: list[str], devices: list[str] | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / sampler_series.PROCESSES).write_text("\n".join([",".join(sampler.PROCESSES), *lines, ""]))
    if devices is not None:
        (folder / sampler_series.DEVICES).write_text("\n".join([",".join(sampler.DEVICES), *devices, ""]))
    return folder


def test_series_of_two_nodes_become_curves_and_totals(tmp_path: Path) -> None:
    first = series(
        tmp_path / "a",
        ["10.0,0,1,100,80,0.5,1,2,3,0", "10.0,,1,10,,0.1,0,0,1,0", "11.0,0,1,200,,1.5,5,6,7,1", "11.0,,0,0"],
        ["10.0,gpu-0,1000,50,100.0,1,1,0x1,10", "11.0,gpu-0,3000,70,200.0,1,1,0x20,160"],
    )
    second = series(tmp_path / "b", ["500.0,1,1,1000,,0.0,0,0,0,0", "501.0,1,1,1000,,2.0,0,0,0,0"])
    found = sampler_series.read([first, second, tmp_path / "none"], began_s=9.0)
    assert found is not UNSET
    assert found.at_s == (1.0, 2.0)
    assert found.curves["rss_bytes"] == (1110, 1200)
    assert found.curves["gpu_memory_bytes"] == (1000, 3000)
    assert found.curves["gpu_percent"] == (50, 70)
    assert found.totals == {
        "cpu_s": pytest.approx(3.6), "read_bytes": 5, "written_bytes": 6, "minor_faults": 8,
        "major_faults": 1, "energy_j": 150, "throttled_percent": 50, "nodes": 2,
    }  # fmt: skip
    alone = sampler_series.read([first], began_s=9.0, is_alone=False, exact={"cpu_s": 9.0})
    assert alone is not UNSET
    assert "energy_j" not in alone.totals
    assert alone.totals["cpu_s"] == 9.0


def test_damaged_series_are_no_error(tmp_path: Path) -> None:
    folder = series(tmp_path / "a", ["1.0,0,1,5,,0,0,0,0,0", "nan,0,1,5,,0,0,0,0,0", "2.0,0,1,x,,0,0,0,0,0"])
    found = sampler_series.read([folder], began_s=None)
    assert found is not UNSET
    assert found.curves["rss_bytes"] == (5,)
    (folder / sampler_series.PROCESSES).write_bytes(b"\xff\xfe")
    assert sampler_series.read([folder], began_s=None) is UNSET
    known = sampler_series.read([folder], began_s=None, exact={"cpu_s": 2.0})
    assert known == Usage(at_s=(), curves={}, totals={"cpu_s": 2.0})


def test_long_series_are_reduced_to_their_peaks(tmp_path: Path) -> None:
    lines = [f"{at / 10},0,1,{9999 if at == 5001 else 10},,{at / 10},0,0,0,0" for at in range(1, 10_001)]
    found = sampler_series.read([series(tmp_path / "a", lines)], began_s=0.0)
    assert found is not UNSET
    assert len(found.at_s) == sampler_series.MOST_POINTS
    assert found.curves["rss_bytes"].count(9999) == 1
    assert found.curves["cpu_s"][-1] == 1000


def run(import_s: float, training_s: float) -> Usage:
    """10 bytes until the end of the imports, and then 30."""
    end = import_s + training_s
    at_s = tuple(end * (place + 1) / 200 for place in range(200))
    return Usage(
        at_s=at_s,
        curves={"rss_bytes": tuple(10.0 if at <= import_s else 30.0 for at in at_s), "cpu_s": at_s},
        totals={},
        phase_ends_s=(import_s, end),
    )


def test_runs_are_aligned_by_phase() -> None:
    runs = [run(1, 9), run(3, 7), run(2, 11)]
    ends = bands.mean_ends_s(runs)
    assert ends == pytest.approx([2, 11])
    times, means, deviations = bands.band(runs, "rss_bytes", ends)
    away = [k for k, at in enumerate(times) if abs(at - 2) > 0.1]
    assert {round(means[k]) for k in away if times[k] < 2} == {10}
    assert {round(means[k]) for k in away if times[k] > 2} == {30}
    assert max(deviations[k] for k in away) == 0
    _, cores, _ = bands.band(runs, "cores", ends)
    assert cores == pytest.approx([1.0] * len(cores))


def test_without_phases_the_whole_run_is_one() -> None:
    runs = [Usage(at_s=(1.0, 2.0), curves={"rss_bytes": (1.0, 3.0)}, totals={}) for _ in range(2)]
    assert bands.mean_ends_s([*runs, run(1, 1)]) == [2.0]
    times, means, _ = bands.band(runs, "rss_bytes", [2.0])
    assert (times[-1], means[0], means[-1]) == (2.0, 1.0, 3.0)


def test_a_run_writes_its_series_where_they_are_read(tmp_path: Path) -> None:
    folder = sampler_series.of_node(tmp_path)
    assert folder.name == os.uname().nodename
    series(folder, ["1.0,0,1,5,,0,0,0,0,0"])
    series(tmp_path / "usage" / "aaa", ["1.0,0,1,5,,0,0,0,0,0"])
    found = sampler_series.folders(tmp_path, folder.name)
    assert [each.name for each in found] == [folder.name, "aaa"]
    sampler_series.keep(found, tmp_path / "kept")
    assert (tmp_path / "kept" / "aaa" / sampler_series.PROCESSES).read_text().count("\n") == 2
    assert sampler_series.folders(tmp_path / "none") == []
