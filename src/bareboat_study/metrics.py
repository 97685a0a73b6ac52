"""The metrics of one arm's run: its files are noted before it starts, and read when it has ended."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bareboat.model import MetricRequest
from bareboat.model.metric import AXES, primary_of
from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_study import matching, patterns
from bareboat_study.patterns import Curve

#: Of a run's output and of a JSON file.
_MOST_BYTES = 64 << 20

#: Device, inode, size and nanoseconds of the last change of a file; None: there is none.
_Mark = tuple[int, int, int, int] | None


@dataclass(slots=True)
class Reader:
    """Reads the metrics of one arm's run. `folder`: the working directory, to which files are relative."""

    metrics: Sequence[MetricRequest]
    folder: str
    _marks: dict[str, _Mark] = field(default_factory=dict)

    def start(self) -> None:
        """Note the files as they are before the run: a run must write them, since another arm's are no
        result of it."""
        names = [metric.file for metric in self.metrics if metric.file is not None]
        self._marks = {name: _mark(os.path.join(self.folder, name)) for name in names}

    def read(self, log: Path, kept: Path | None = None) -> tuple[dict[str, float], dict[str, Curve]]:
        """The numbers and curves of a run that ended, by their names. `kept`: the directory of the files that
        the run wrote, by their numbers in `files_of`. Raises UsageError for the first that cannot be read."""
        numbers: dict[str, float] = {}
        curves: dict[str, Curve] = {}
        output: str | None = None
        for metric in self.metrics:
            if metric.file is not None:
                numbers[metric.name] = patterns.entry(metric, self._content(metric, metric.file, kept))
                continue
            if output is None:
                output = _output(log)
            if metric.series is not None:
                found = matching.search(metric.name, metric.series, AXES, output)
                curves[metric.name] = patterns.curve(metric, found)
            else:
                assert metric.pattern is not None
                texts = matching.texts(metric.name, metric.pattern, output)
                numbers[metric.name] = patterns.number(metric, texts)
        if (primary := primary_of(tuple(self.metrics))) is not None:
            value = numbers[primary.name]
            if not (math.isfinite(value) and value > 0):
                raise UsageError(
                    f"metrics.{primary.name} is {value:g}: the primary metric must be a number above 0",
                    remedy="arms are compared by ratios; make another metric the primary one",
                )
        return numbers, curves

    def _content(self, metric: MetricRequest, name: str, kept: Path | None) -> bytes:
        path = place = os.path.join(self.folder, name)
        if kept is not None:
            path = str(kept / str(files_of(self.metrics, self.folder).index(place)))
        now = _mark(path)
        if now is None or now == self._marks.get(name):
            raise patterns.MissingMetricError(
                f"metrics.{metric.name}: the run did not write {place}",
                context="the file is older than the run" if now or kept else "the file does not exist",
                remedy="make the command write it; a relative path is below workdir",
            )
        try:
            return untrusted.read_bytes(path, limit=_MOST_BYTES)
        except OSError as error:
            raise UsageError(
                f"metrics.{metric.name}: {path} cannot be read: {error.strerror or error}",
                remedy=f"write a regular file of at most {_MOST_BYTES >> 20} MiB",
            ) from None


def files_of(metrics: Sequence[MetricRequest], folder: str) -> tuple[str, ...]:
    """The paths of the files that hold metrics."""
    names = (metric.file for metric in metrics if metric.file is not None)
    return tuple(dict.fromkeys(os.path.join(folder, name) for name in names))


def _mark(path: str) -> _Mark:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _output(log: Path) -> str:
    try:
        return untrusted.read_text(log, limit=_MOST_BYTES)
    except untrusted.UntrustedFileError as error:
        raise UsageError(
            f"the output of the run cannot be searched: it {error.strerror}",
            remedy="make the program print less, or read the metric from a JSON file: file, key",
        ) from None
