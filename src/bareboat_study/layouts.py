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


def request_text(prove: ProveRequest, *, is_queued: bool) -> str:
    """What a study does about layouts, for its plan."""
    if why := _why_kept(prove, is_queued=is_queued):
        return "layouts in the page cache kept" + (f" ({why})" if prove.layout != KEPT else "")
    return "layouts in the page cache redrawn before each run"


def is_redrawing(study: Study) -> bool:
    """Whether the study is to redraw layouts."""
    return not _why_kept(study.job.prove, is_queued=registry.is_queued(study.job.scheduler))


def reads_same_files(study: Study) -> bool:
    """Whether both arms execute the same files, so that they have one layout."""
    if arm_differences.is_same(study):
        return True
    first, second = study.arms
    if not study.jobs or first.engine != second.engine or first.image_digest != second.image_digest:
        return False
    one, other = (_files_of(job) for job in study.jobs)
    return one == other


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


def note(study: Study, pairs: Sequence[Pair]) -> str:
    """What the study did about the layouts of its arms' files, and what it means for the interval."""
    if reads_same_files(study):
        return "Both arms execute the same files, so the layout of files in the page cache is the same."
    between = deviation(study, pairs)
    follows = f"So every interval of a speed contains {text(between)}, an assumption." if between else ""
    known = [[pair[arm].layout for pair in pairs] for arm in (0, 1)]
    layouts = [[each for each in arm if isinstance(each, Layout) and each.files] for arm in known]
    if not all(len(arm) == len(pairs) for arm in layouts):
        is_recorded = any(isinstance(each, Layout) for arm in known for each in arm)
        why = (
            _why_kept(study.job.prove, is_queued=registry.is_queued(study.job.scheduler))
            or (is_recorded and "the warm-up was too short to see which they are")
            or "not recorded"
        )
        return f"The layouts of the arms' files in the page cache stayed as they were: {why}. {follows}"
    sizes = [max(each.bytes for each in arm) / 1e6 for arm in layouts]
    seconds = max(a.took_s + b.took_s for a, b in zip(*layouts, strict=True))
    redrawn = (
        "Before each run, the files that the arms execute left the page cache and were read again in order "
        f"({sizes[0]:.0f} MB of {study.arms[0].name}, {sizes[1]:.0f} MB of {study.arms[1].name}; at most "
        f"{seconds:.1f} s), so that both arms have new and equally good layouts in memory."
    )
    if not between:
        return redrawn
    shares = [f"{each:.0%} of {arm.name}" for each, arm in zip(kept_shares(pairs), study.arms, strict=True)]
    return (
        f"{redrawn} What other programs have mapped, too, or is in memory (tmpfs), stayed where it was: "
        f"{' and '.join(shares)}. {follows}"
    )


def _why_kept(prove: ProveRequest, *, is_queued: bool) -> str:
    """Why a study does not redraw layouts; empty where it does."""
    if prove.layout == KEPT:
        return f'prove.layout = "{KEPT}"'
    return "jobs of a scheduler do not redraw them" if is_queued else ""
