"""Studies in the list of runs: how far they are, and their verdict, without their analysis."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.model import Matrix, Study
from bareboat.runs.studies import Listed, Verdict
from bareboat_base import codec
from bareboat_base.clock import epoch_s
from bareboat_base.errors import StoreError
from bareboat_base.files import untrusted
from bareboat_images.store import Store

if TYPE_CHECKING:
    from bareboat.runs.state import Status
    from bareboat_study.findings import StudyFindings

#: The file with the design of a study.
MATRIX = "matrix.json"
_VERDICT = "verdict.json"
#: Why the first run of a study failed, as text.
_FAILURE = "failure"
_MOST_FAILURE_BYTES = 1 << 16


def is_study(store: Store, run_id: str) -> bool:
    return os.path.lexists(store.run(run_id) / MATRIX)


def is_point(store: Store, run_id: str) -> bool:
    """Whether the name is that of a point of a study."""
    folder = store.run(run_id)
    return folder.parent.name == "points" and os.path.lexists(folder / "study.json")


def look(store: Store, run_id: str) -> Listed:
    """The study as it is now; its records are counted, not read."""
    folder = store.run(run_id)
    try:
        matrix = store.read(folder / MATRIX, Matrix)
        points = [matrix.point_id(point) for point in range(len(matrix.points))]
        # Before the number of repeats is known, the warm-ups and one run more at each point.
        runs_of_each = 1 + (1 if matrix.repeats is None else matrix.planned_runs)
        study = store.read(store.run(points[0]) / "study.json", Study)
        done = [path for point in points for path in _runs(store.run(point))]
        verdict = None
        if os.path.lexists(folder / _VERDICT):
            verdict = store.read(folder / _VERDICT, Verdict)
        failure = _failure(folder) if not done else ""
        times = [int(path.lstat().st_mtime) for path in done]
    except (StoreError, OSError) as error:
        return Listed(run_id=run_id, damage=getattr(error, "message", str(error)))
    total = len(points) * runs_of_each
    jobs = _jobs(store, points) if len(done) < total else ""
    started = epoch_s(study.created_at)
    return Listed(
        run_id=run_id,
        command=study.job.command,
        name=matrix.name,
        host=study.site.hostname,
        done=min(len(done), total),
        total=total,
        is_measured=bool(jobs) or store.is_locked(run_id),
        jobs=jobs,
        verdict=verdict,
        failure=failure,
        started_at_epoch_s=started,
        changed_at_epoch_s=max([started, *times]),
    )


def _failure(folder: Path) -> str:
    try:
        return untrusted.read_text(folder / _FAILURE, limit=_MOST_FAILURE_BYTES)
    except FileNotFoundError:
        return ""


def keep_failure(store: Store, run_id: str, text: str) -> None:
    """Store why the first run of a study failed, for the list of runs."""
    store.write(store.run(run_id) / _FAILURE, text.encode(errors="replace"))


def _jobs(store: Store, points: Sequence[str]) -> str:
    """How many of the points' jobs wait and run; "" for none."""
    submitted = [point for point in points if os.path.lexists(store.run(point) / "submission.json")]
    if not submitted:
        return ""
    from bareboat.runs import state

    return jobs_text(state.look(store, submitted, must_answer=False))


def jobs_text(found: Iterable[Status]) -> str:
    """How many of these jobs wait and run, such as "2 PENDING, 1 RUNNING"."""
    counts = Counter(status.state.value for status in found if not status.over)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _runs(folder: Path) -> list[Path]:
    """The complete runs, also those that the nodes wrote and nobody collected."""
    found: dict[str, Path] = {}
    for place in (folder / "control" / "runs", folder):
        if os.path.isdir(place):
            names = (name for name in os.listdir(place) if len(name) == 4 and name.isdecimal())
            found |= {name: place / name for name in names}
    return list(found.values())


def keep_verdict(store: Store, found: StudyFindings) -> None:
    """Store what the analysis found, for the list of runs; nothing while the study is not complete."""
    known = [
        (str(point.verdict), point.analysis.comparison.runs)
        for contrast in found.contrasts
        for point in contrast.points
        if point.analysis is not None
    ]
    if found.missing:
        return
    words = [verdict for verdict, _ in known]
    kept = Verdict(
        verdict=words[0] if len({*words}) == 1 else "",
        sentence="; ".join(found.sentences),
        runs=max((number for _, number in known), default=0),
        comparisons=len(words),
    )
    store.write(store.run(found.study) / _VERDICT, codec.to_json(kept))
