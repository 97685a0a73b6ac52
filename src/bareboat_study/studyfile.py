"""Study files: a job file with arms, factors and metrics -> the job of each arm at each point.

    [arms]                    the first is the baseline; each sets keys of the job
    [sweep]                   factors: keys of the job, or values for {placeholders} in the command
    [metrics.NAME]            numbers in the program's output or files
    [prove]                   the design

Every arm at every point is read as a job file of its own, so it has the same checks.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from bareboat import jobfile, registry
from bareboat.config import Settings
from bareboat.model import Contrast, Job, MetricRequest, ProveRequest, sweep
from bareboat.model.matrix import Value, point_text, shown
from bareboat.model.metric import primary_of
from bareboat.model.variables import check_name
from bareboat_base import codec
from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.printable import one_line, quoted
from bareboat_base.toml import Document, TomlFile
from bareboat_study.factors import KEYS, check_scaling, export, fill, fill_command, is_key, put, read_points

#: Each arm at each point is planned before the first run.
MOST_CELLS = 5_000
_BARE_METAL, _CONTAINER = "bare metal", "container"
#: What may have placeholders.
_TEMPLATE = ("command", "environment", "metrics")
#: Keys of [prove] that only a study of this kind has.
_ONLY_HERE = ("baseline_python", "attribution", "within_s", "scaling")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """What a study file asks for. `jobs[point][arm]`; `keys[arm]`: what the arm sets itself, which no flag
    changes. `template`: what has placeholders, as the file has it. `digest`: of the file's content."""

    name: str
    arms: tuple[str, ...]
    keys: tuple[dict[str, Any], ...]
    factors: tuple[str, ...]
    points: tuple[tuple[Value, ...], ...]
    metrics: tuple[tuple[MetricRequest, ...], ...]
    contrasts: tuple[Contrast, ...]
    prove: ProveRequest
    jobs: tuple[tuple[Job, ...], ...]
    digest: str
    template: dict[str, Any] = field(default_factory=dict)


class _Variant(Document):
    """A study file as the job file of one arm at one point. `places`: changed keys -> where the file has
    them."""

    def __init__(
        self, file: TomlFile, values: dict[str, Any], places: Mapping[tuple[str, ...], tuple[str, ...]]
    ) -> None:
        self._file, self._moved = file, places
        super().__init__(values, file.name)
        self.places = {keys: place for keys, place in file.places.items() if keys not in places}

    def line(self, *keys: str) -> int | None:
        for length in range(len(keys), 0, -1):
            if (place := self._moved.get(keys[:length])) is not None:
                return self._file.line(*place)
        return self._file.line(*keys)


def is_study(file: Document) -> bool:
    """Whether the file has arms, points or metrics, or a design with more than one comparison."""
    prove = file.values.get("prove")
    own = isinstance(prove, dict) and any(prove.get(key) for key in _ONLY_HERE)
    return own or any(name in file.values for name in (*jobfile.STUDY_TABLES, "sweep"))


def read_study(file: TomlFile, settings: Settings, *, image: str | None = None) -> StudyRequest:
    """The study of a file. `image` overrides the job's. Raises UsageError, with the line, for what a job file
    refuses, and for arms, factors and metrics that cannot be studied."""
    values = copy.deepcopy(file.values)
    tables = {name: values.pop(name, {}) for name in (*jobfile.STUDY_TABLES, "sweep")}
    for name, table in tables.items():
        if not isinstance(table, dict) or (name in file.values and not table):
            raise file.no_table(name)
    if image:
        values["image"] = image
    whole = jobfile.merged(file, settings)
    prove = whole.convert(whole.values.get("prove", {}), ProveRequest, "prove")
    metrics = read_metrics(file)
    try:
        primary_of(metrics)
        factors, points = read_points(tables["sweep"])
        arms, contrasts = _arms(file, tables["arms"], values, prove)
        _check_baseline(values.get("prove", {}), arms)
        if len(points) * len(arms) > MOST_CELLS:
            raise UsageError(
                f"{len(points):,} points of {len(arms)} arms are more than {MOST_CELLS:,}",
                key="sweep",
                remedy="shorten the lists under [sweep], or write several study files",
            )
        check_scaling(prove, factors, points)
    except UsageError as error:
        raise file.placed(error, *(("sweep",) if "sweep" in file.values else ())) from None
    jobs = []
    of_points = []
    used: set[str] = set()
    for number, point in enumerate(points):
        row, place = [], _Place(factors, point, number)
        for arm in arms:
            try:
                row.append(_job(file, settings, values, arm, arms[arm], place, used))
            except BareboatError as error:
                where = place_of(arm, factors, point)
                raise error.but(context="\n".join(filter(None, (error.context, where)))) from None
        _check_files(file, metrics, row)
        jobs.append(tuple(row))
        of_points.append(tuple(_with_file(file, each, place, used) for each in metrics))
    _check_used(file, factors, used)
    return StudyRequest(
        name=jobs[0][0].name,
        arms=tuple(arms),
        keys=tuple(arms.values()),
        factors=factors,
        points=points,
        metrics=tuple(of_points),
        contrasts=contrasts,
        prove=prove,
        jobs=tuple(jobs),
        digest=codec.digest([file.values, image or ""]),
        template={name: file.values[name] for name in _TEMPLATE if name in file.values},
    )


def place_of(arm: str, factors: tuple[str, ...], point: tuple[Value, ...]) -> str:
    """The arm and the point for messages, as far as the user named them."""
    own = "" if arm in (_BARE_METAL, _CONTAINER) else f"arm {arm}"
    return "; ".join(filter(None, (own, f"point {point_text(factors, point)}" if factors else "")))


def study_of_job(job: Job) -> StudyRequest:
    """The study of a job without a study file: on bare metal, and in a container. A job for bare metal is
    compared with itself."""
    bare = msgspec.structs.replace(job, engine=registry.BARE_METAL)
    is_same = job.engine == registry.BARE_METAL
    return StudyRequest(
        name=job.name,
        arms=(f"{_BARE_METAL} A", f"{_BARE_METAL} B") if is_same else (_BARE_METAL, _CONTAINER),
        keys=({"engine": registry.BARE_METAL}, {"engine": registry.BARE_METAL} if is_same else {}),
        factors=(),
        points=((),),
        metrics=((),),
        contrasts=(Contrast(baseline=0, contender=1),),
        prove=job.prove,
        jobs=((bare, job),),
        digest=codec.digest(job),
    )


def read_metrics(file: Document) -> tuple[MetricRequest, ...]:
    """The tables [metrics.NAME]. Raises UsageError, with the line."""
    table = file.values.get("metrics", {})
    if not isinstance(table, dict):
        raise UsageError("metrics must be a table", context=file.at("metrics"), remedy="write [metrics.NAME]")
    found = []
    for name, keys in table.items():
        if not isinstance(keys, dict):
            raise UsageError(
                f"metrics.{one_line(name)} must be a table",
                context=file.at("metrics", name),
                remedy="write [metrics.NAME], and below it: pattern = 'images/sec: ([0-9.]+)'",
            )
        known = [field for field in MetricRequest.__struct_fields__ if field != "name"]
        file.check_keys(keys, known, "metrics", name)
        found.append(file.convert({"name": name, **keys}, MetricRequest, "metrics", name))
    return tuple(found)


# --------------------------------------------------------------------------------------------------
# Arms.


#: Arm -> the keys of the job that it sets itself.
_Arms = dict[str, dict[str, Any]]


def _arms(
    file: Document, table: dict[str, Any], values: dict[str, Any], prove: ProveRequest
) -> tuple[_Arms, tuple[Contrast, ...]]:
    if prove.attribution:
        return _attribution(table, values, prove)
    if not table:
        table = {_BARE_METAL: {"engine": registry.BARE_METAL}, _CONTAINER: {}}
    arms = {}
    for name, keys in table.items():
        check_name("the arm", name, key="arms")
        if len(name) > 40:
            raise UsageError(
                f"the arm {quoted(name, limit=200)} has {len(name)} characters; the limit is 40",
                key=f"arms.{name}",
                remedy="use a shorter name: it is the head of a column",
            )
        if not isinstance(keys, dict):
            raise UsageError(
                f"arms.{name} must be a table of the job's keys",
                key=f"arms.{name}",
                remedy=f'write {name} = {{engine = "apptainer"}}, or {name} = {{}} for the job as it is',
            )
        file.check_keys({key.partition(".")[0]: 0 for key in keys}, KEYS, "arms", name)
        arms[name] = _on_bare_metal(keys, values, prove)
    if len(arms) < 2:
        raise UsageError(
            f"[arms] has one arm, {next(iter(arms))}: there is nothing to compare it with",
            key="arms",
            remedy='add the baseline before it: bare = {engine = "native"}',
        )
    return arms, tuple(Contrast(baseline=0, contender=each) for each in range(1, len(arms)))


def _on_bare_metal(keys: dict[str, Any], values: dict[str, Any], prove: ProveRequest) -> dict[str, Any]:
    """The keys of an arm; on bare metal, with the environment that was named instead of a pulled image."""
    engine, image = keys.get("engine", values.get("engine")), keys.get("image", values.get("image"))
    if engine != registry.BARE_METAL or image in (None, "capture") or prove.baseline_python is None:
        return keys
    return {**keys, "image": "capture", "capture.python": prove.baseline_python}


def _check_baseline(prove: dict[str, Any], arms: _Arms) -> None:
    """Raise UsageError for an environment on bare metal that no arm uses."""
    if "baseline_python" in prove and not any("capture.python" in keys for keys in arms.values()):
        raise UsageError(
            "baseline_python has no effect: no arm runs on bare metal instead of a pulled image",
            key="prove.baseline_python",
            remedy="remove baseline_python under [prove]; to capture another Python: capture.python",
        )


def _attribution(
    table: dict[str, Any], values: dict[str, Any], prove: ProveRequest
) -> tuple[_Arms, tuple[Contrast, ...]]:
    """The environment on bare metal, the same in a container, and the image in a container: the effect of
    the container and that of the software stack, which multiply."""
    if table:
        raise UsageError(
            "attribution = true has its own three arms",
            key="prove.attribution",
            remedy="remove [arms], or attribution",
        )
    if values.get("image", "capture") == "capture":
        raise UsageError(
            "attribution = true compares your environment with an image, and the job names none",
            key="prove.attribution",
            remedy='remove attribution under [prove], or set image = "REGISTRY/NAME:TAG"',
        )
    python = {} if prove.baseline_python is None else {"capture.python": prove.baseline_python}
    captured = {"image": "capture", **python}
    arms = {_BARE_METAL: {"engine": registry.BARE_METAL, **captured}, "captured": captured, "image": {}}
    contrasts = (
        Contrast(baseline=0, contender=1, effect="container"),
        Contrast(baseline=1, contender=2, effect="software stack"),
        Contrast(baseline=0, contender=2, effect="both"),
    )
    return arms, contrasts


def _check_used(file: Document, factors: Sequence[str], used: set[str]) -> None:
    """Raise UsageError for a factor that changes nothing."""
    for factor in factors:
        if is_key(factor) or factor in used:
            continue
        raise UsageError(
            f"the factor {factor!r} is neither a key of the job nor a {{{factor}}} in its command",
            context=file.at("sweep", factor),
            remedy=f'use {{{factor}}} in the command, or name a key: "topology.ranks_per_node"',
        )


# --------------------------------------------------------------------------------------------------
# The job of an arm at a point.


class _Place(NamedTuple):
    """A point of a study: its number, and the values of the factors there."""

    factors: tuple[str, ...]
    point: tuple[Value, ...]
    number: int

    @property
    def texts(self) -> dict[str, str]:
        """Placeholder -> its value here."""
        return dict(zip(self.factors, map(shown, self.point), strict=True)) | {sweep.INDEX: str(self.number)}


def _job(
    file: TomlFile,
    settings: Settings,
    base: dict[str, Any],
    arm: str,
    keys: dict[str, Any],
    at: _Place,
    used: set[str],
) -> Job:
    values = copy.deepcopy(base)
    places: dict[tuple[str, ...], tuple[str, ...]] = {}
    for factor, value in zip(at.factors, at.point, strict=True):
        if is_key(factor):
            put(values, factor, value, places, ("sweep", factor), file)
    for key, value in keys.items():
        put(values, key, copy.deepcopy(value), places, ("arms", arm), file)
    if at.factors:
        fill_command(file, values, at.texts, used)
        export(values, at.factors, at.texts)
    variant = _Variant(file, values, places)
    path = file.path
    settings = settings.without((*keys, *at.factors))  # which are compared
    return jobfile.job_of(variant, settings, folder=path.resolve().parent, called=jobfile.name_of(path))


def _with_file(file: Document, metric: MetricRequest, at: _Place, used: set[str]) -> MetricRequest:
    """The metric with the name of its file at a point."""
    if metric.file is None or not at.factors:
        return metric
    try:
        return msgspec.structs.replace(metric, file=fill(metric.file, at.texts, used))
    except UsageError as error:
        raise file.placed(error, "metrics", metric.name, "file") from None


def _check_files(file: Document, metrics: Sequence[MetricRequest], jobs: Sequence[Job]) -> None:
    """Raise UsageError for a relative file where no directory of this machine is the working directory."""
    for metric in metrics:
        relative = metric.file is not None and not metric.file.startswith("/")
        if relative and any(job.workdir is None for job in jobs):
            raise UsageError(
                f"metrics.{metric.name}.file is relative, and the job's working directory is the image's own",
                context=file.at("metrics", metric.name, "file"),
                remedy='set workdir = "." (the directory of the study file)',
            )
