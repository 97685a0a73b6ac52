"""Pure: what follows from the layouts of files in the page cache, redrawn before each run or kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from bareboat import registry
from bareboat.model import Job, Layout, ProveRequest, Record, Study

if TYPE_CHECKING:
    from bareboat_study.windows import Pair

KEPT = "kept"
#: The deviation of the true log ratio of two arms with files of their own from one layout to the next: an
#: assumption where a study does not redraw them (docs/measurement.md).
DEVIATION = 0.01
#: Keys of a job that change no file that it executes, and those of which a part does.
_NO_FILES = frozenset(
    ("name", "prove", "engine", "topology", "walltime_s", "scheduling", "seccomp", "notify")
) | {"command", "environment"}
_NAMES_FILES = re.compile(r"PATH|^LD_|^PYTHON|^VIRTUAL_ENV$|^CONDA")
#: The share of an arm's files that may stay in the cache: what other programs have mapped, too.
_MOST_STAYED = 0.1


def request_text(prove: ProveRequest, *, is_queued: bool) -> str:
    """What a study does about layouts, for its plan."""
    if prove.layout == KEPT:
        return "layouts in the page cache kept"
    if is_queued:
        return "layouts in the page cache kept (jobs of a scheduler do not redraw them)"
    return "layouts in the page cache redrawn before each run"


def is_redrawing(study: Study) -> bool:
    """Whether the study is to redraw layouts."""
    return study.job.prove.layout != KEPT and not registry.is_queued(study.job.scheduler)


def reads_same_files(study: Study) -> bool:
    """Whether both arms execute the same files, so that they have one layout."""
    first, second = study.arms
    if first.plan_digest == second.plan_digest:
        return True
    if study.jobs is UNSET or first.engine != second.engine or first.image_digest != second.image_digest:
        return False
    one, other = (_files_of(job) for job in study.jobs)
    return one == other


def _files_of(job: Job) -> list[object]:
    """What decides which files a job executes, besides its engine and its image."""
    kept = [getattr(job, name) for name in Job.__struct_fields__ if name not in _NO_FILES]
    variables = {name: value for name, value in job.environment.items() if _NAMES_FILES.search(name)}
    return [*kept, job.command[:1], variables]


def is_redrawn(pairs: Sequence[Pair]) -> bool:
    """Whether both arms had a new layout in every run."""
    return all(_has_new_layout(record) for pair in pairs for record in pair)


def _has_new_layout(record: Record) -> bool:
    found = record.layout
    return (
        isinstance(found, Layout)
        and found.files > 0
        and found.stayed_bytes <= _MOST_STAYED * max(found.own_bytes, 1)
    )


def recorded(between: float) -> bool | UnsetType:
    """Whether no layout was kept, as locks have it."""
    return UNSET if between else True


def of_lock(has_new_layouts: bool | UnsetType) -> float:
    """The deviation between layouts that no run of a locked study shows."""
    return 0.0 if has_new_layouts is True else DEVIATION


def deviation(study: Study, pairs: Sequence[Pair]) -> float:
    """The deviation of the true log ratio that no run of this study shows."""
    return 0.0 if reads_same_files(study) or is_redrawn(pairs) else DEVIATION


def note(study: Study, pairs: Sequence[Pair]) -> str:
    """What the study did about the layouts of its arms' files, and what it means for the interval."""
    if reads_same_files(study):
        return "Both arms execute the same files, so the layout of files in the page cache is the same."
    known = [[pair[arm].layout for pair in pairs] for arm in (0, 1)]
    layouts = [[each for each in arm if isinstance(each, Layout)] for arm in known]
    if is_redrawn(pairs):
        sizes = [max(each.bytes for each in arm) / 1e6 for arm in layouts]
        seconds = max(a.took_s + b.took_s for a, b in zip(*layouts, strict=True))
        return (
            "Before each run, the files that the arms execute left the page cache and were read again in "
            f"order ({sizes[0]:.0f} MB of {study.arms[0].name}, {sizes[1]:.0f} MB of {study.arms[1].name}; "
            f"at most {seconds:.1f} s), so that both arms have new and equally good layouts in memory."
        )
    return (
        f"The layouts of the arms' files in the page cache stayed as they were: {_why_kept(study, layouts)}. "
        f"So every interval of a speed contains a deviation of {DEVIATION:.0%} between layouts, which is an "
        "assumption."
    )


def _why_kept(study: Study, layouts: Sequence[Sequence[Layout]]) -> str:
    if registry.is_queued(study.job.scheduler):
        return "jobs of a scheduler do not redraw them"
    if study.job.prove.layout == KEPT:
        return f'prove.layout = "{KEPT}"'
    if not all(layouts):
        return "not recorded"
    if not all(each.files for arm in layouts for each in arm):
        return "the warm-up was too short to see which they are"
    shares = [max(each.stayed_bytes / max(each.own_bytes, 1) for each in arm) for arm in layouts]
    arm = shares.index(max(shares))
    return (
        f"{shares[arm]:.0%} of the files of {study.arms[arm].name} cannot be evicted; other programs have "
        "mapped them, or they are in memory (tmpfs)"
    )
