"""A drawn study as the records that `prove` writes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from bareboat.model import Arm, Image, Job, Layout, Phases, ProveRequest, Record, Site, Study, Window
from generated_studies.process import CONTENDER, Drawn, Process, draw

MARGIN = 0.02
CONFIDENCE = 0.95
THREADS = 4
ARMS = ("bare metal", "container")
_ENGINES = ("native", "bubblewrap")
_LAYOUT = Layout(files=100, bytes=500_000_000, own_bytes=500_000_000, stayed_bytes=0, took_s=0.5)
_AT = "2026-01-01T00:00:00Z"

#: A study, its records, and its true ratio with its own copy.
Made = tuple[Study, tuple[Record, ...], float]


def make(process: Process, generator: np.random.Generator, *, number: int = 0, redraws: bool = False) -> Made:
    """A complete study with its warm-up. `number`: tells studies of one scenario apart. `redraws`: the design
    redraws the copies before each run, and the records show it."""
    study = _study(process, number)
    drawn = draw(process, generator, redraws=redraws)
    peaks = 6e8 * np.exp(generator.normal(0, 0.003, (process.size.runs, 2)))
    measured = [
        _record(study, drawn, run, arm, int(peaks[run, arm]))
        for run in range(process.size.runs)
        for arm in np.argsort(drawn.second[run]).tolist()
    ]
    if redraws:
        measured = [msgspec.structs.replace(record, layout=_LAYOUT) for record in measured]
    warm_up = [_warm_up(record) for record in measured[:2]]
    return study, (*warm_up, *measured), drawn.true_ratio


def _study(process: Process, number: int) -> Study:
    return Study(
        id=f"20260101T000000-generated-{number:06x}",
        created_at=_AT,
        job=Job(
            name="generated",
            command=("python", "train.py"),
            workdir="/home/ada",
            prove=ProveRequest(
                repeats=process.size.runs, margin=MARGIN, confidence=CONFIDENCE, seed=number + 1
            ),
        ),
        arms=tuple(
            Arm(name=name, engine=engine, plan_digest=_digest(letter), script="")
            for name, engine, letter in zip(ARMS, _ENGINES, "bc", strict=True)
        ),
        image=Image(
            digest=_digest("a"),
            layers=(),
            environment={},
            python=None,
            python_version=None,
            glibc=None,
            frameworks={},
            prefixes=(),
        ),
        site=Site(
            hostname="node001", kernel="6.1", architecture="x86_64", distribution="Debian 12", glibc="2.36",
            cpu_model="", cpus=16, mem_bytes=2**36, user="ada", uid=1000, gid=1000, home="/home/ada",
            timezone="UTC", load_1min=0.0,
        ),
        bareboat_version="0",
        metered=True,
        steps_per_window=process.size.steps,
        settle=process.size.settle,
    )  # fmt: skip


def _record(study: Study, drawn: Drawn, run: int, arm: int, peak_bytes: int) -> Record:
    second, imported_s = int(drawn.second[run, arm]), float(drawn.import_s[run, arm])
    windows = _windows(study, drawn, run, arm)
    steady_s = float(drawn.step_s[run, :, arm].sum())
    return Record(
        study=study.id,
        run=run + 1,
        arm=ARMS[arm],
        warm_up=False,
        position=second,
        started_at=_AT,
        exit_code=0,
        wall_s=imported_s + 0.4 + steady_s,
        plan_digest=study.arms[arm].plan_digest,
        image_digest=study.image.digest if arm == CONTENDER else None,
        site_digest=_digest("d"),
        samples_per_step=32.0,
        phases=Phases(
            process_start_s=0.02,
            import_s=imported_s,
            setup_s=0.3,
            first_step_s=float(drawn.step_s[run, 0, arm, 0]),
            steady_s=steady_s,
            finish_s=0.05,
        ),
        windows=windows,
        peak_memory_bytes=peak_bytes,
        peak_rank_rss_bytes=(peak_bytes,),
        load_1min=1.0,
        scheduled_as=("SCHED_OTHER",),
    )


def _windows(study: Study, drawn: Drawn, run: int, arm: int) -> tuple[Window, ...]:
    took = drawn.step_s[run].sum(axis=-1)
    in_time = np.zeros(took.size)
    in_time[drawn.places[run]] = took
    began = np.cumsum(in_time) - in_time
    columns: Sequence[Sequence[float]] = (
        began[drawn.places[run, :, arm]].tolist(),
        (THREADS * drawn.cpu_s[run, :, arm]).tolist(),
        (THREADS * drawn.wait_s[run, :, arm]).tolist(),
    )
    steps = drawn.step_s[run, :, arm].tolist()
    return tuple(
        Window(
            block=block,
            began_s=began_s,
            settle=study.settle,
            step_s=tuple(steps[block]),
            cpu_s=cpu_s,
            wait_s=wait_s,
            threads=THREADS,
        )
        for block, (began_s, cpu_s, wait_s) in enumerate(zip(*columns, strict=True))
    )


def _warm_up(record: Record) -> Record:
    return msgspec.structs.replace(record, run=0, warm_up=True, windows=record.windows[:2])


def _digest(letter: str) -> str:
    return "sha256:" + letter * 64
