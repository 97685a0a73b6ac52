"""A run's parameters, results and series for TensorBoard, MLflow and Weights & Biases, as their own libraries
write them to files. Nothing is sent: W&B is used offline, MLflow with a directory."""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line
from bareboat_study.report_series import Series
from bareboat_study.report_values import markdown

#: Tracker -> its modules, of which one is required, and what installs it.
LIBRARIES = {
    "tensorboard": (("tensorboard", "tensorboardX"), "pip install tensorboard"),
    "mlflow": (("mlflow",), "pip install mlflow"),
    "wandb": (("wandb",), "pip install wandb"),
}
_MOST_NAME = 200
_PROJECT = "bareboat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """One run for a tracker. `group`: the study or sweep that it is part of; `began_s`: seconds since 1970;
    `results`: final values, which may not be finite."""

    name: str
    group: str
    began_s: int
    parameters: Mapping[str, str]
    results: Mapping[str, float]
    series: Sequence[Series]
    is_good: bool = True
    tags: Mapping[str, str] = field(default_factory=dict)


def check(tracker: str) -> None:
    """Raise UsageError where the tracker's library is not installed."""
    modules, install = LIBRARIES[tracker]
    if not any(find_spec(module) for module in modules):
        raise UsageError(f"not installed, but required for --{tracker}: {modules[0]}", remedy=install)


def write(tracker: str, runs: Sequence[Tracked], folder: Path) -> None:
    """Write the runs with the tracker's library into the directory. Raises UsageError where the library
    fails."""
    check(tracker)
    modules, _ = LIBRARIES[tracker]
    library = next(module for module in modules if find_spec(module))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library's own dependencies
            _WRITERS[tracker](runs, folder)
    except OSError:
        raise
    except Exception as error:  # a library's own errors, for example of an incompatible version
        raise UsageError(
            f"{library} failed: {one_line(str(error))}",
            context=type(error).__name__,
            remedy=f"pip install --upgrade {library}",
        ) from None


def points(series: Series) -> Iterator[tuple[int, float, float]]:
    """Step, value and seconds since the start of each point whose value is finite."""
    for point in series.points:
        if math.isfinite(point.value):
            yield point.step, point.value, point.at_s or 0.0


def name_of(series: Series) -> str:
    """The name of a series: `step_s/rank-0`; of characters that every tracker accepts."""
    rank = "" if series.rank is None else f"/rank-{series.rank}"
    return plain(series.name) + rank


def plain(name: str) -> str:
    """The name, of letters, digits and `_-. ` only."""
    kept = "".join(c if c.isalnum() or c in "_-. " else "_" for c in name)
    return kept[:_MOST_NAME] or "_"


def _tensorboard(runs: Sequence[Tracked], folder: Path) -> None:
    for run in runs:
        with contextlib.closing(_summary_writer(folder / plain(run.name))) as writer:
            for series in run.series:
                for step, value, at_s in points(series):
                    writer.add_scalar(name_of(series), value, step, run.began_s + at_s)
            for name, value in run.results.items():
                writer.add_scalar(f"result/{plain(name)}", value, 0, float(run.began_s))
            facts = {**run.parameters, **run.tags}
            lines = ["| | |", "|:--|:--|", *(f"| {k} | {markdown(v)} |" for k, v in facts.items())]
            writer.add_text("run", "\n".join(lines), 0, float(run.began_s))


def _summary_writer(folder: Path) -> Any:
    """tensorboardX's writer, or TensorBoard's own with the same methods."""
    if find_spec("tensorboardX"):
        writer: Any = importlib.import_module("tensorboardX").SummaryWriter(str(folder))
        return writer
    return _EventWriter(folder)


class _EventWriter:
    """TensorBoard's writer of event files."""

    def __init__(self, folder: Path) -> None:
        writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._writer: Any = writer.EventFileWriter(str(folder))
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


def _mlflow(runs: Sequence[Tracked], folder: Path) -> None:
    # Newer versions refuse the plain directory without this. https://github.com/mlflow/mlflow/issues/18534
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    mlflow: Any = importlib.import_module("mlflow")
    entities: Any = importlib.import_module("mlflow.entities")
    client = mlflow.MlflowClient(tracking_uri=folder.absolute().as_uri())
    for group in dict.fromkeys(run.group for run in runs):
        found = client.get_experiment_by_name(plain(group))
        experiment = found.experiment_id if found else client.create_experiment(plain(group))
        for run in runs:
            if run.group != group:
                continue
            made = client.create_run(experiment, start_time=run.began_s * 1000, run_name=run.name)
            run_id = made.info.run_id
            _mlflow_run(client, entities, run, run_id)
            client.set_terminated(run_id, "FINISHED" if run.is_good else "FAILED")


def _mlflow_run(client: Any, entities: Any, run: Tracked, run_id: str) -> None:
    for name, text in run.parameters.items():
        client.log_param(run_id, plain(name), text[:5000] or "-")
    for name, text in run.tags.items():
        client.set_tag(run_id, plain(name), text[:5000])
    metrics = [
        entities.Metric(f"result.{plain(name)}", value, run.began_s * 1000, 0)
        for name, value in run.results.items()
    ]
    for series in run.series:
        name = name_of(series).replace("/", ".")
        metrics += [
            entities.Metric(name, value, int((run.began_s + at_s) * 1000), step)
            for step, value, at_s in points(series)
        ]
    for at in range(0, len(metrics), 1000):  # of one request
        client.log_batch(run_id, metrics=metrics[at : at + 1000])


def _wandb(runs: Sequence[Tracked], folder: Path) -> None:
    wandb: Any = importlib.import_module("wandb")
    folder.mkdir(exist_ok=True)
    for run in runs:
        made = wandb.init(
            project=_PROJECT,
            group=plain(run.group)[:128],
            name=run.name,
            dir=str(folder),
            config={**run.parameters, **run.tags},
            mode="offline",
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True, save_code=False, disable_git=True),
        )
        for series in run.series:
            name = name_of(series)
            made.define_metric(f"{name}.step", hidden=True)
            made.define_metric(name, step_metric=f"{name}.step")
            for step, value, at_s in points(series):
                made.log({name: value, f"{name}.step": step, f"{name}.at_s": at_s})
        made.summary.update({f"result/{plain(name)}": value for name, value in run.results.items()})
        made.finish(exit_code=0 if run.is_good else 1)


_WRITERS: Mapping[str, Callable[[Sequence[Tracked], Path], None]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
