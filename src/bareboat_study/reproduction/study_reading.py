"""Pure: what cannot be in a lock's study, beyond the types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bareboat.model import sweep
from bareboat.model.metric import primary_of
from bareboat.model.names import check_name
from bareboat_base import digests
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line, quoted
from bareboat_base.ranges import RANGES
from bareboat_study.factors import KEYS, check_scaling, is_key
from bareboat_study.reproduction.document import Lock, LockedStudy, PairResult
from bareboat_study.studyfile import MOST_CELLS

#: Values of metrics. Others are no measurements, and their quotients leave the range of numbers.
_SMALLEST, _LARGEST = 1e-40, 1e40
_LONGEST_NAME = 40


def wrong(lock: Lock, matrix: LockedStudy) -> str | None:
    """What is wrong, as a sentence; None: nothing."""
    try:
        return next(_faults(lock, matrix), None)
    except UsageError as error:
        return one_line(error.message, limit=300)


def _faults(lock: Lock, matrix: LockedStudy) -> Iterator[str]:
    yield from _design(matrix)
    yield from _cells(lock, matrix)
    yield from _results(matrix)


def _design(matrix: LockedStudy) -> Iterator[str]:
    for arm in matrix.arms:
        check_name("the arm", arm, key="arms")
        if len(arm) > _LONGEST_NAME:
            yield f"the name of an arm is longer than {_LONGEST_NAME} characters"
    if len(matrix.arms) < 2 or len(set(matrix.arms)) < len(matrix.arms):
        yield "the study has fewer than two arms, or one twice"
    if len(matrix.fixed) != len(matrix.arms) or any(key not in KEYS for own in matrix.fixed for key in own):
        yield "the keys that the arms set are not keys of a job"
    if any(len(name) > 100 or not name.isprintable() for name in matrix.factors):
        yield "the name of a factor is none"
    sweep.check_names(tuple(name for name in matrix.factors if not is_key(name)))
    if len({name.lower() for name in matrix.factors}) < len(matrix.factors):
        yield "the study has a factor twice"
    if not matrix.points or len(matrix.points) * len(matrix.arms) > MOST_CELLS:
        yield f"the study has {len(matrix.points):,} points"
    for point in matrix.points:
        if len(point) != len(matrix.factors):
            yield "a point of the study has another number of values than factors"
            return
        for name, value in zip(matrix.factors, point, strict=True):
            sweep.text_of(name, value)
    if len(set(map(repr, matrix.points))) < len(matrix.points):
        yield "the study has a point twice"
    check_scaling(matrix.prove, matrix.factors, matrix.points)
    if not RANGES["prove.repeats"].holds(matrix.repeats):
        yield f"the study has {matrix.repeats} repeats"
    if not matrix.contrasts:
        yield "the study compares no arms"
    arms = range(len(matrix.arms))
    for contrast in matrix.contrasts:
        if contrast.baseline not in arms or contrast.contender not in arms:
            yield "a comparison of the study is of an arm that it does not have"
        if contrast.baseline == contrast.contender:
            yield "the study compares an arm with itself"
    if len(matrix.metrics) != len(matrix.points):
        yield "the study does not have metrics for each point"
    for metrics in matrix.metrics:
        primary_of(metrics)
        names = [metric.name for metric in metrics]
        if len(set(names)) < len(names) or names != [each.name for each in matrix.metrics[0]]:
            yield "the points of the study have different metrics, or one twice"
    is_pair = len(matrix.arms) == 2 and len(matrix.points) == len(matrix.contrasts) == 1
    if matrix.prove.until_decided and (not is_pair or matrix.metrics[0]):
        yield "the study ends when it is decided, and has several comparisons or metrics of its own"


def _cells(lock: Lock, matrix: LockedStudy) -> Iterator[str]:
    known = [image.digest for image in matrix.images]
    if len(set(known)) < len(known):
        yield "the study has an image twice"
    for image in matrix.images:
        if any(each and not digests.is_digest(each) for each in (image.digest, image.base)):
            yield "the digest of an image of the study is not a digest"
    if len(matrix.cells) != len(matrix.points) or any(len(row) != len(matrix.arms) for row in matrix.cells):
        yield "the study does not have a job for each arm at each point"
        return
    for cell in (cell for row in matrix.cells for cell in row):
        if cell.image not in known:
            yield "the image of an arm is not among the study's"
        if any(not name.isidentifier() for name in cell.withheld):
            yield "what is withheld of an arm is not the name of an environment variable"
    # What is shown of the lock as a whole must be what runs.
    last = matrix.cells[0][-1]
    if (lock.job, lock.withheld) != (last.job, last.withheld) or lock.image != matrix.image(last.image):
        yield "its job or image is not that of the last arm"


def _results(matrix: LockedStudy) -> Iterator[str]:
    points = range(len(matrix.points))
    places = [(each.contrast, each.point) for each in matrix.compared]
    if len(set(places)) < len(places):
        yield "the study has a comparison twice"
    for each in matrix.compared:
        if each.contrast not in range(len(matrix.contrasts)) or each.point not in points:
            yield "a result of the study is of a comparison that it does not have"
        yield from _values(each)
    for failed in matrix.failed:
        if failed.arm not in range(len(matrix.arms)) or failed.point not in points:
            yield "a failed run of the study is of an arm or point that it does not have"


def _values(pair: PairResult) -> Iterator[str]:
    names = [each.name for each in pair.metrics]
    if len(set(names)) < len(names):
        yield "the study has a metric twice"
    if pair.metrics and sum(each.primary for each in pair.metrics) != 1:
        yield "a comparison of the study does not have one primary metric"
    for each in pair.metrics:
        if len(each.baseline) != len(each.contender) or len(each.baseline) < 2:
            yield f"the metric {quoted(each.name, limit=50)} does not have two or more pairs of values"
        if not _in_range(each.baseline) or not _in_range(each.contender):
            yield f"a value of the metric {quoted(each.name, limit=50)} is no measurement"


def _in_range(values: Sequence[float]) -> bool:
    return all(_SMALLEST <= value <= _LARGEST for value in values)
