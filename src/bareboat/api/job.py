"""A job: what to run, how often, with what; planned, run, submitted and measured from here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from bareboat import jobfile, model, registry, render
from bareboat.api import boundary, opened
from bareboat.api.boundary import translated
from bareboat.model import Scheduling, Topology
from bareboat.session import Prepared, Purpose, Session, planning, preparation
from bareboat_base.errors import UsageError
from bareboat_base.nearest import most_similar, nearest
from bareboat_base.toml import Document, TomlFile

if TYPE_CHECKING:
    from bareboat.api.run import Run, SweepRun
    from bareboat_study.api import Study


_EXAMPLE = "bareboat.sweep(job, lr=[0.1, 0.01])"


class Job:
    """What to run. The keyword arguments are the keys of a job file (`JobKeys`); paths are relative to the
    working directory.

    A job is only a description: its values are checked by `plan`, `run`, `submit` and `prove`. Each of these
    takes further keys, which override the job's. Settings come from the same files and variables as on the
    command line. All raise BareboatError, whose `remedy` is what to do.
    """

    @translated()
    def __init__(self, command: Sequence[str] | str | None = None, **keys: Unpack[JobKeys]) -> None:
        self._values = nested(keys)
        if command is not None:
            is_text = isinstance(command, str)
            self._values["command"] = command if is_text else plain(boundary.several("command", command))
        #: The file, and its values with their lines while none is replaced.
        self._file: Path | None = None
        self._lines: TomlFile | None = None

    @classmethod
    @translated()
    def read(cls, path: str | os.PathLike[str]) -> Job:
        """The job of a job file, whose paths are relative to its directory. Raises UsageError."""
        job = cls()
        job._file = Path(os.path.realpath(boundary.path("the job file", path)))
        job._lines = TomlFile(job._file)
        job._values = job._lines.values
        return job

    @translated()
    def replace(self, **keys: Unpack[JobKeys]) -> Job:
        """The job with these keys instead of its own."""
        job = Job()
        job._values = dict(self._values)
        for key, value in nested(keys).items():
            if key in ("topology", "scheduling"):
                table = self._values.get(key, {})
                # What is no table is left for the reader of jobs, which names the key.
                value = {**table, **value} if isinstance(table, dict) else table
            job._values[key] = value
        job._file = self._file
        job._lines = None if keys else self._lines
        return job

    def __repr__(self) -> str:
        return f"Job({', '.join(f'{key}={value!r}' for key, value in self._values.items())})"

    @translated()
    def plan(self, **keys: Unpack[JobKeys]) -> Plan:
        """What would be done, and why. Nothing is captured, pulled or started."""
        session = opened.session(looks=True)
        prepared = self.replace(**keys)._prepared(session, Purpose.PLAN)
        return Plan(planning.plan(session, prepared))

    @translated()
    def run(self, **keys: Unpack[JobKeys]) -> Run:
        """Run the job on this machine, or on the nodes of the scheduler job around this process, to its end.
        Its output goes to this process's standard output."""
        from bareboat.api.run import run

        return run(*self._single(self.replace(**keys))._planned(Purpose.RUN))

    @translated()
    def submit(self, **keys: Unpack[JobKeys]) -> Run:
        """Submit the job to the scheduler."""
        from bareboat.api.run import submit

        return submit(*self._single(self.replace(**keys))._planned(Purpose.SUBMIT))

    @translated()
    def prove(self, **keys: Unpack[JobKeys]) -> Study:
        """Measure what the container costs the job, against bare metal."""
        from bareboat_study import studyfile
        from bareboat_study.api import prove

        job = self.replace(**keys)
        if studyfile.is_study(Document(plain(job._values), "bareboat.Job")):
            raise UsageError(
                "the job is a study of several arms, points or metrics, which the command line measures",
                remedy="write it to a file, and: bareboat prove FILE; or remove arms, metrics and sweep, and "
                "within_s, baseline_python, attribution and scaling under prove",
            )
        session = opened.session()
        described = job._described(session, Purpose.PROVE)
        if registry.is_queued(described.scheduler):
            raise UsageError(
                "the job names a scheduler, and Job.prove measures on this machine",
                remedy="remove scheduler; or write the job to a file, and: bareboat prove FILE",
            )
        return prove(session, described)

    @staticmethod
    def _single(job: Job) -> Job:
        if "sweep" in job._values:
            raise UsageError("the job is a sweep", remedy="bareboat.sweep(job)")
        return job

    def _described(self, session: Session, purpose: Purpose) -> model.Job:
        settings = session.settings.of_queue(purpose in (Purpose.PLAN, Purpose.SUBMIT))
        folder, called = Path(session.folder), None
        if self._file is not None:
            folder, called = self._file.parent, jobfile.name_of(self._file)
        source = "bareboat.Job" if self._file is None else f"bareboat.Job.read({str(self._file)!r})"
        document = self._lines or Document(plain(self._values), source)
        return jobfile.job_of(document, settings, folder=folder, called=called)

    def _prepared(self, session: Session, purpose: Purpose, *, at_once: int | None = None) -> Prepared:
        job = self._described(session, purpose)
        if at_once is not None and job.sweep is not None:
            job = msgspec.structs.replace(job, sweep=msgspec.structs.replace(job.sweep, at_once=at_once))
        return preparation.prepare(session, job, purpose)

    def _planned(
        self, purpose: Purpose, *, at_once: int | None = None
    ) -> tuple[Session, Prepared, model.Plan]:
        session = opened.session()
        prepared = self._prepared(session, purpose, at_once=at_once)
        plan = planning.plan(session, prepared)
        for warning in plan.warnings:
            session.reporter.warn(warning)
        return session, prepared, plan


class Sweep:
    """A job at many points: every combination of the values of each name, which the command refers to as
    {name}. `points`: the points themselves, instead. Without either, the points of the job's own [sweep]."""

    @translated()
    def __init__(
        self, job: Job, *, points: Sequence[dict[str, Any]] | None = None, **values: Sequence[Any]
    ) -> None:
        if not isinstance(job, Job):
            raise UsageError(f"a sweep is of a bareboat.Job, not of {type(job).__name__}", remedy=_EXAMPLE)
        if points is not None and values:
            raise UsageError("a sweep has values or points, not both", remedy=_EXAMPLE)
        if points is not None or values:
            job = job.replace(
                sweep={"points": boundary.several("points", points)} if points is not None else values
            )
        elif "sweep" not in job._values:
            raise UsageError("the sweep has no values", remedy=_EXAMPLE)
        self._job = job

    def __repr__(self) -> str:
        return f"Sweep({self._job!r})"

    def plan(self, **keys: Unpack[JobKeys]) -> Plan:
        """What would be done at each point, and why."""
        return self._job.plan(**keys)

    @translated()
    def run(self, **keys: Unpack[JobKeys]) -> SweepRun:
        """Run the points on this machine, one after another."""
        from bareboat.api.run import run_sweep

        return run_sweep(*self._job.replace(**keys)._planned(Purpose.RUN))

    @translated()
    def submit(self, *, at_once: int | None = None, **keys: Unpack[JobKeys]) -> SweepRun:
        """Submit all points, of which at most `at_once` run at a time: as one array job where the scheduler
        has these."""
        from bareboat.api.run import submit_sweep

        return submit_sweep(*self._job.replace(**keys)._planned(Purpose.SUBMIT, at_once=at_once))


def sweep(job: Job, *, points: Sequence[dict[str, Any]] | None = None, **values: Sequence[Any]) -> Sweep:
    """The job at every combination of these values, or at these points."""
    return Sweep(job, points=points, **values)


class Plan:
    """Everything that would be done for a job, with the reasons. `str` gives the text of `bareboat plan`."""

    def __init__(self, plan: model.Plan) -> None:
        self._plan = plan

    @property
    def decisions(self) -> tuple[model.Decision, ...]:
        """Each choice with its reason, and the alternatives with the reasons against them."""
        return self._plan.decisions

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._plan.warnings

    @property
    def engine(self) -> str:
        return self._plan.engine

    @property
    def launcher(self) -> str:
        return self._plan.launcher

    @property
    def scheduler(self) -> str:
        return self._plan.scheduler

    @property
    def digest(self) -> str:
        """Equal for plans that do the same."""
        return render.digest(self._plan)

    def __str__(self) -> str:
        return render.text(self._plan)

    __repr__ = __str__


#: The keys of these tables are given directly.
_TABLES = {"topology": Topology.__struct_fields__, "scheduling": Scheduling.__struct_fields__}


class JobKeys(TypedDict, total=False):
    """Every key of a job file but `command`; docs/keys.md explains them. Sizes and times are numbers, or
    text with a unit: "16 GiB", "2h30m"."""

    name: str
    entrypoint: bool | str | Sequence[str]
    workdir: str | os.PathLike[str]
    image: str
    mounts: Sequence[str]
    environment: Mapping[str, str]
    environment_from: Sequence[str]
    walltime_s: int | str
    engine: str
    launcher: str
    scheduler: str
    modules: Sequence[str]
    writable: bool
    form: str
    delivery: str
    node_scratch: str
    site_layer: Sequence[str]
    fabric: str
    health: str | bool
    seccomp: bool
    kernel_cache: bool
    shim: bool | str
    capture: Mapping[str, Any]
    prove: Mapping[str, Any]
    sweep: Mapping[str, Any]
    # Topology
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int
    gpus_per_rank: int
    # Scheduling
    partition: str
    account: str
    qos: str
    reservation: str
    constraint: str
    exclusive: bool
    mem_per_node_bytes: int | str
    requeue: bool
    warning_s: int | str
    watchdog_s: int | str
    after: Sequence[str]
    options: Sequence[str]


def nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys as a job file has them, in TOML's types. Raises UsageError for an unknown one."""
    values: dict[str, Any] = {}
    for key, value in keys.items():
        if key not in JobKeys.__annotations__:
            near = nearest(key, JobKeys.__annotations__)
            raise UsageError(
                f"unknown key {key!r}" + (f"; did you mean {near!r}?" if near else ""),
                context="bareboat.Job",
                remedy=f"nearest keys: {', '.join(most_similar(key, JobKeys.__annotations__, count=4))}",
            )
        table = next((name for name, fields in _TABLES.items() if key in fields), None)
        (values if table is None else values.setdefault(table, {}))[key] = plain(value)
    return values


def plain(value: Any) -> Any:
    """The value in TOML's types, as far as it has them. Raises UsageError for a table's key that is not text,
    and for a set, which has no order."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {boundary.text("a key", key): plain(each) for key, each in value.items()}
    if isinstance(value, Set):
        return boundary.several("a list", value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(each) for each in value]
    return value
