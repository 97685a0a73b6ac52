"""A run's parameters, results and series for TensorBoard, as its own library or tensorboardX writes them to
files."""

from __future__ import annotations

import contextlib
import importlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line
from bareboat_study.report_series import Series
from bareboat_study.report_values import markdown

#: The modules of which one is required.
LIBRARIES = ("tensorboardX", "tensorboard")
_MOST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """One run. `began_s`: seconds since 1970; `results`: final values, which may not be finite."""

    name: str
    began_s: int
    parameters: Mapping[str, str]
    results: Mapping[str, float]
    series: Sequence[Series]
    tags: Mapping[str, str] = field(default_factory=dict)


def check() -> None:
    """Raise UsageError where no library is installed."""
    if not any(find_spec(module) for module in LIBRARIES):
        raise UsageError(
            "not installed, but required for --tensorboard: tensorboard", remedy="pip install tensorboard"
        )


def write(runs: Sequence[Tracked], folder: Path) -> None:
    """Write the runs into the directory. Raises UsageError where the library fails."""
    check()
    library = next(module for module in LIBRARIES if find_spec(module))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library's own dependencies
            is_own = library == LIBRARIES[0]
            writer = importlib.import_module(library).SummaryWriter if is_own else _EventWriter
            for run in runs:
                _write(run, writer(str(folder / plain(run.name))))
    except OSError:
        raise
    except Exception as error:  # a library's own errors, for example of an incompatible version
        raise UsageError(
            f"{library} failed: {one_line(str(error))}",
            context=type(error).__name__,
            remedy=f"pip install --upgrade {library}",
        ) from None


def name_of(series: Series) -> str:
    """The name of a series: `step_s/rank-0`; of characters that TensorBoard accepts."""
    rank = "" if series.rank is None else f"/rank-{series.rank}"
    return plain(series.name) + rank


def plain(name: str) -> str:
    """The name, of letters, digits and `_-. ` only."""
    kept = "".join(c if c.isalnum() or c in "_-. " else "_" for c in name)
    return kept[:_MOST_NAME] or "_"


def _write(run: Tracked, opened: Any) -> None:
    with contextlib.closing(opened) as writer:
        for series in run.series:
            for point in series.points:
                if math.isfinite(point.value):
                    at_s = run.began_s + (point.at_s or 0.0)
                    writer.add_scalar(name_of(series), point.value, point.step, at_s)
        for name, value in run.results.items():
            writer.add_scalar(f"result/{plain(name)}", value, 0, float(run.began_s))
        facts = {**run.parameters, **run.tags}
        lines = ["| | |", "|:--|:--|", *(f"| {k} | {markdown(v)} |" for k, v in facts.items())]
        writer.add_text("run", "\n".join(lines), 0, float(run.began_s))


class _EventWriter:
    """TensorBoard's writer of event files, with the methods of tensorboardX's."""

    def __init__(self, folder: str) -> None:
        writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._writer: Any = writer.EventFileWriter(folder)
        self._event: Any = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        tensor = importlib.import_module("tensorboard.compat.proto.tensor_pb2")
        types = importlib.import_module("tensorboard.compat.proto.types_pb2")
        self._tensor: Any = lambda text: tensor.TensorProto(
            dtype=types.DT_STRING, string_val=[text.encode("utf-8", "replace")]
        )

    def add_scalar(self, name: str, value: float, step: int, at_s: float) -> None:
        summary = self._summary.Summary(
            value=[self._summary.Summary.Value(tag=name, simple_value=float(value))]
        )
        self._writer.add_event(self._event(wall_time=at_s, step=step, summary=summary))

    def add_text(self, name: str, text: str, step: int, at_s: float) -> None:
        data = self._summary.SummaryMetadata.PluginData(plugin_name="text")
        value = self._summary.Summary.Value(
            tag=f"{name}/text_summary",
            metadata=self._summary.SummaryMetadata(plugin_data=data),
            tensor=self._tensor(text),
        )
        summary = self._summary.Summary(value=[value])
        self._writer.add_event(self._event(wall_time=at_s, step=step, summary=summary))

    def close(self) -> None:
        self._writer.close()
