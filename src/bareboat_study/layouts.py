"""Pure: what follows from the layouts of files in the page cache, redrawn before each run or kept."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bareboat import registry
from bareboat.model import Job, Layout, ProveRequest, Record, Study
from bareboat.model.keys import keys_of
from bareboat_study import arm_differences

if TYPE_CHECKING:
    from bareboat_study.windows import Pair

KEPT = "kept"
#: The deviation of the true log ratio of two arms with files of their own from one layout to the next: an
#: assumption where a study does not redraw them (docs/measurement.md).
DEVIATION = 0.01
_NAMES_FILES = re.compile(r"PATH|^LD_|^PYTHON|^VIRTUAL_ENV$|^CONDA")
#: A smaller share that stays in the cache is none.
_LEAST_KEPT = 0.01


def request_text(prove: ProveRequest, scheduler: str | None) -> str:
    """What a study does about layouts, for its plan."""
    if why := why_kept(prove, scheduler):
        return "layouts in the page cache kept" + (f" ({why})" if prove.layout != KEPT else "")
    return "layouts in the page cache redrawn before each run"


def reads_same_files(study: Study) -> bool:
    """Whether both arms execute the same files, so that they have one layout."""
    if arm_differences.is_same(study):
        return True
    first, second = study.arms
    if not study.jobs or first.engine != second.engine or first.image_digest != second.image_digest:
        return False
    return _files_of(study.jobs[0]) == _files_of(study.jobs[1])


def _files_of(job: Job) -> list[object]:
    """What decides which files a job executes, besides its engine and its image."""
    kept = [getattr(job, name) for name, key in keys_of(Job).items() if key.names_files]
    variables = {name: value for name, value in job.environment.items() if _NAMES_FILES.search(name)}
    return [*kept, job.command[:1], variables]


def kept_shares(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Of what each arm uses of files of its own, the share whose layout was not redrawn: the mean over the
    runs, baseline first."""
    baseline, contender = (math.fsum(_kept_share(pair[arm]) for pair in pairs) / len(pairs) for arm in (0, 1))
    return baseline, contender


def _kept_share(record: Record) -> float:
    found = record.layout
    if not isinstance(found, Layout) or not found.files:
        return 1.0
    return found.stayed_bytes / found.own_bytes if found.own_bytes else 0.0


def deviation(study: Study, pairs: Sequence[Pair]) -> float:
    """The deviation of the true log ratio that no run of this study shows. Each byte that an arm uses has the
    same part in the variance, and both arms have half of it."""
    if reads_same_files(study):
        return 0.0
    share = math.fsum(kept_shares(pairs)) / 2
    return DEVIATION * math.sqrt(share) if share > _LEAST_KEPT else 0.0


def text(between: float) -> str:
    """The deviation that an interval contains."""
    return f"a deviation of {between * 100:.2g} % between layouts of files in the page cache"


def done(study: Study, pairs: Sequence[Pair]) -> str:
    """What the study did about the layouts of its arms' files, for its page and its method."""
    if reads_same_files(study):
        return "Both arms execute the same files, so the layout of files in the page cache is the same."
    redrawn = [[record for record in arm if _is_redrawn(record)] for arm in zip(*pairs, strict=True)]
    if not any(redrawn):
        is_recorded = any(isinstance(record.layout, Layout) for pair in pairs for record in pair)
        why = (
            why_kept(study.job.prove, study.job.scheduler)
            or (is_recorded and "the files of at least one arm were not found in the warm-up")
            or "not recorded"
        )
        return f"The layouts of the arms' files in the page cache stayed as they were: {why}."
    names = [arm.name for arm in study.arms]
    counts = [f"{len(own)} of {len(pairs)} runs of {name}" for own, name in zip(redrawn, names, strict=True)]
    where = "each run" if all(len(own) == len(pairs) for own in redrawn) else " and ".join(counts)
    return (
        f"Before {where}, the files that the arms execute were evicted from the page cache and read again "
        "in order, for new layouts in memory."
    )


def note(study: Study, pairs: Sequence[Pair]) -> str:
    """What the study did about the layouts of its arms' files, and what it means for the interval."""
    parts = [done(study, pairs)]
    if between := deviation(study, pairs):
        if all(_is_redrawn(record) for pair in pairs for record in pair):
            arms = zip(kept_shares(pairs), study.arms, strict=True)
            parts.append(
                "What other programs have mapped, too, or is in memory (tmpfs), stayed where it was: "
                f"{' and '.join(f'{share:.0%} of {arm.name}' for share, arm in arms)}."
            )
        parts.append(f"So every interval of a speed contains {text(between)}, an assumption.")
    return " ".join(parts)


def _is_redrawn(record: Record) -> bool:
    """Whether files of the arm were read again before the run."""
    return isinstance(record.layout, Layout) and record.layout.files > 0


def why_kept(prove: ProveRequest, scheduler: str | None) -> str:
    """Why a study does not redraw layouts; empty where it does."""
    if prove.layout == KEPT:
        return f'prove.layout = "{KEPT}"'
    return "jobs of a scheduler do not redraw them" if registry.is_queued(scheduler) else ""
