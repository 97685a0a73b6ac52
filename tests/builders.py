"""Studies that nobody measured, for tests: realistic in size and noise, and the same on every machine.

study = make_study(metered=True, runs=10)
records = make_records(study, ratio=0.998)
analysis = make_analysis(study, records)
"""

import dataclasses
import math
import random
from collections.abc import Container, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from bareboat.launchers import Surroundings
from bareboat.model import (
    Arm,
    Check,
    Command,
    DriverFile,
    EngineFacts,
    FileSystem,
    GpuDriver,
    Image,
    Job,
    Layer,
    Layout,
    MemorySample,
    Phases,
    Prefix,
    ProveRequest,
    Record,
    Rootfs,
    Site,
    Study,
    Topology,
    Window,
)
from bareboat_images.store import FILE_KINDS
from bareboat_study.analysis import Analysis, analyse

MIB = 2**20
SAMPLES_PER_STEP = 128.0


def fake_digest(letter: str) -> str:
    return "sha256:" + letter * 64


def make_site(**changes: Any) -> Site:
    facts: dict[str, Any] = {
        "hostname": "node017",
        "kernel": "5.14.0-427.el9",
        "architecture": "x86_64",
        "distribution": "Rocky Linux 9.4",
        "glibc": "2.34",
        "cpu_model": "AMD EPYC 7543 32-Core Processor",
        "cpus": 64,
        "mem_bytes": 256 * 2**30,
        "user": "ada",
        "uid": 4711,
        "gid": 100,
        "home": "/home/ada",
        "timezone": "Europe/Rome",
        "load_1min": 0.12,
        "checks": (Check(name="user namespaces", works=True, detail="unshare -U worked"),),
        "engines": (
            EngineFacts(name="bubblewrap", path="/opt/bwrap", version="0.11.0", origin="embedded",
                        works=True, overlay=True),
            EngineFacts(name="apptainer", path="/usr/bin/apptainer", version="1.3.4", origin="host",
                        works=True),
            EngineFacts(name="podman", path="/usr/bin/podman", version="4.9.4", origin="host", works=False,
                        detail="no subuid range", remedy="ask for one in /etc/subuid"),
        ),
        "file_systems": (
            FileSystem(purpose="store", path="/scratch/ada", kind="xfs", free_bytes=2**40, free_inodes=10**8),
        ),
        "probed_at": "2025-03-03T08:59:00Z",
    }  # fmt: skip
    return Site(**(facts | changes))


def make_driver(**changes: Any) -> GpuDriver:
    """NVIDIA's, with CUDA 12.4 and four data-centre GPUs."""
    libraries = "/usr/lib64"
    facts: dict[str, Any] = {
        "vendor": "nvidia",
        "version": "550.54.15",
        "source": "the loader's cache",
        "cuda": "12.4",
        "models": ("NVIDIA A100-SXM4-80GB",) * 4,
        "devices": (*(f"/dev/nvidia{k}" for k in range(4)), "/dev/nvidiactl", "/dev/nvidia-uvm"),
        "majors": (195, 510),
        "libraries": (
            DriverFile(name="libcuda.so.1", path=f"{libraries}/libcuda.so.550.54.15"),
            DriverFile(name="libnvidia-ml.so.1", path=f"{libraries}/libnvidia-ml.so.550.54.15"),
        ),
        "programs": (DriverFile(name="nvidia-smi", path="/usr/bin/nvidia-smi"),),
        "glibc": "2.17",
        "glibc_by": "libcuda.so.550.54.15",
    }
    return GpuDriver(**(facts | changes))


def make_image(**changes: Any) -> Image:
    facts: dict[str, Any] = {
        "digest": fake_digest("a"),
        "layers": (
            Layer(diff_id=fake_digest("b"), size_bytes=84 * MIB, unpacked_bytes=86 * MIB, inodes=3_412,
                  comment="libraries of the host"),
            Layer(diff_id=fake_digest("c"), size_bytes=912 * MIB, unpacked_bytes=930 * MIB, inodes=28_977,
                  comment="python environment"),
        ),
        "environment": {"PATH": "/env/bin:/usr/bin"},
        "python": "/env/bin/python",
        "python_version": "3.12.4",
        "glibc": "2.34",
        "frameworks": {"torch": "2.13.0+cpu", "numpy": "2.1.0"},
        "prefixes": (Prefix(path="/env", layer=fake_digest("c")),),
    }  # fmt: skip
    return Image(**(facts | changes))


def make_rootfs(image: Image) -> Rootfs:
    """Where the image would lie in a store at /scratch/ada/bareboat."""
    store = "/scratch/ada/bareboat"
    return Rootfs(
        layers={
            layer.diff_id: f"{store}/layers/sha256/{layer.diff_id.removeprefix('sha256:')}/tree"
            for layer in image.layers
        },
        flat=f"{store}/flat/sha256/{image.digest.removeprefix('sha256:')}",
        drivers={vendor: f"{store}/drivers/{vendor}" for vendor in ("nvidia", "amd")},
        relinked=f"{store}/relinked/sha256/{image.digest.removeprefix('sha256:')}",
        packed={kind: f"{store}/packed/image.{kind}" for kind in FILE_KINDS},
        kernel_caches=f"{store}/kernel-caches",
    )


def make_job(**changes: Any) -> Job:
    facts: dict[str, Any] = {
        "name": "digits",
        "command": ("python", "digits.py", "--epochs", "40"),
        "workdir": "/home/ada/digits",
        "topology": Topology(ranks_per_node=2),
        "environment": {"OMP_NUM_THREADS": "1"},
        "prove": ProveRequest(goals={"test_accuracy": 0.97}),
    }
    return Job(**(facts | changes))


def environment_of(command: Command) -> dict[str, Any]:
    """The values that the command's engine hands on apart from its argv."""
    assert command.sealed is not UNSET
    return dict(zip(command.sealed.names, command.sealed.values, strict=True))


def make_surroundings(**changes: Any) -> Surroundings:
    facts: dict[str, Any] = {
        "site": make_site(), "scheduler": "local", "engine": "bubblewrap", "image": make_image(),
        "python": "/env/bin/python",
    }  # fmt: skip
    return Surroundings(**(facts | changes))


def make_study(*, metered: bool = True, runs: int = 10, **changes: Any) -> Study:
    """A study whose job asks for `runs` repeats. `changes` replace fields of the Study."""
    facts: dict[str, Any] = {
        "id": "20250303T090000-digits-1f2e3d",
        "created_at": "2025-03-03T09:00:00Z",
        "job": make_job(prove=ProveRequest(repeats=runs, goals={"test_accuracy": 0.97})),
        "arms": (
            Arm(name="bare metal", engine="native", plan_digest=fake_digest("d"),
                script="#!/bin/bash\nset -euo pipefail\nexec python digits.py --epochs 40\n"),
            Arm(name="container", engine="bubblewrap", plan_digest=fake_digest("e"),
                script="#!/bin/bash\nset -euo pipefail\nexec bwrap --ro-bind / / python digits.py && true\n"),
        ),
        "image": make_image(),
        "site": make_site(),
        "bareboat_version": "0.1.0",
        "metered": metered,
        "steps_per_window": 30 if metered else None,
    }  # fmt: skip
    return Study(**(facts | changes))


def altered(
    records: Sequence[Record], arm: str | None = None, runs: Container[int] | None = None, **facts: Any
) -> list[Record]:
    """The records, those of an arm and of these runs with other facts."""
    return [
        msgspec.structs.replace(each, **facts)
        if arm in (None, each.arm) and (runs is None or each.run in runs)
        else each
        for each in records
    ]


def make_records(
    study: Study, *, ratio: float = 0.998, windows: int = 12, warm_ups: int = 1, seed: int = 1
) -> tuple[Record, ...]:
    """Records of every run of the study, warm-ups first; run 0 is the first warm-up.

    `ratio` is contender over baseline: of throughput when the study is metered, of wall time when not.
    """
    chance = random.Random(seed)
    records: list[Record] = []
    for run in range(warm_ups + study.job.prove.repeats):
        speed = 1 + 0.03 * math.sin(run / 2) + chance.gauss(0, 0.01)  # drift that both arms share
        effect = chance.gauss(0, 0.003)  # of this pair of processes
        first = chance.randrange(2)
        for place in (first, 1 - first):
            slower = (1 / ratio if study.metered else ratio) * math.exp(effect) if place else 1.0
            position = int(place != first)
            records.append(
                _record(study, run, place, position, slower / speed, windows, run < warm_ups, chance)
            )
    return tuple(records)


def make_analysis(study: Study, records: Sequence[Record], *, notes: Sequence[str] = ()) -> Analysis:
    """What the records say."""
    return dataclasses.replace(analyse(study, records), notes=tuple(notes))


def make_layout(**changes: Any) -> Layout:
    """A new layout of an arm's files before a run."""
    facts: dict[str, Any] = {
        "files": 112, "bytes": 512 * MIB, "own_bytes": 496 * MIB, "stayed_bytes": 0, "took_s": 0.6,
    }  # fmt: skip
    return Layout(**(facts | changes))


def _record(
    study: Study, run: int, place: int, position: int, slowness: float, windows: int, warm_up: bool,
    chance: random.Random,
) -> Record:  # fmt: skip
    steady_s = 18.0 * slowness
    phases = Phases(
        process_start_s=chance.uniform(0.010, 0.014) + 0.022 * place,
        import_s=chance.gauss(2.4, 0.06) + 0.05 * place,
        setup_s=abs(chance.gauss(0.31, 0.02)),
        first_step_s=abs(chance.gauss(0.085, 0.008)),
        steady_s=steady_s,
        finish_s=abs(chance.gauss(0.12, 0.01)),
    )
    wall_s = 2.9 + steady_s + 0.08 * place + chance.gauss(0, 0.05)
    peak = int((612 + 9 * place + chance.gauss(0, 3)) * MIB)
    return Record(
        study=study.id,
        run=run,
        arm=study.arms[place].name,
        warm_up=warm_up,
        position=position,
        started_at=f"2025-03-03T09:{run:02d}:{position * 30:02d}Z",
        exit_code=0,
        wall_s=wall_s,
        plan_digest=study.arms[place].plan_digest,
        image_digest=study.image.digest if place else None,
        site_digest=fake_digest("f"),
        world_size=study.job.topology.world_size,
        samples_per_step=SAMPLES_PER_STEP if study.metered else None,
        phases=phases if study.metered else None,
        windows=_windows(study, place, slowness, windows, chance) if study.metered else (),
        memory=_memory(wall_s, peak, chance),
        peak_memory_bytes=peak,
        peak_rank_rss_bytes=(peak // 2,) * study.job.topology.world_size,
        results={"test_accuracy": round(chance.uniform(0.974, 0.982), 4)},
        load_1min=abs(chance.gauss(1.9, 0.2)),
        layout=UNSET if warm_up else make_layout(),
    )


def _windows(
    study: Study, place: int, slowness: float, count: int, chance: random.Random
) -> tuple[Window, ...]:
    """Windows of the two arms in turn; now and then one is hit by a hiccup of the machine."""
    steps = study.steps_per_window or 30
    made = []
    for block in range(count):
        hiccup = 1.1 if chance.random() < 0.03 else 1.0
        mean_s = 0.0133 * slowness * hiccup * math.exp(chance.gauss(0, 0.012))
        step_s = tuple(round(mean_s * math.exp(chance.gauss(0, 0.04)), 7) for _ in range(steps))
        began_s = 3.0 + 0.8 * block + 0.4 * place
        made.append(Window(block=block, began_s=began_s, step_s=step_s))
    return tuple(made)


def _memory(wall_s: float, peak: int, chance: random.Random) -> tuple[MemorySample, ...]:
    times = [0.25 * k for k in range(1, int(wall_s / 0.25))]
    levels = [min(1.0, 0.08 + t / 3.2) * (0.985 + chance.uniform(-0.01, 0.005)) for t in times]
    top = max(levels)
    return tuple(
        MemorySample(at_s=t, bytes=int(peak * level / top)) for t, level in zip(times, levels, strict=True)
    )
