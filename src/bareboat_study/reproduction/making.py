"""Making the lock of a run, from what was recorded when it ran."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import msgspec
from msgspec import Struct

from bareboat import registry
from bareboat.model import Job, Matrix, Record, Site, Study, Submission, sweep
from bareboat.model.provenance import Provenance
from bareboat.runs import directory, provenance, submission, sweeps
from bareboat.runs.records import results as reported
from bareboat.runs.state import Status
from bareboat_base import __version__, codec, digests
from bareboat_base.clock import epoch_s
from bareboat_base.errors import StoreError, UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line
from bareboat_images.store import Store
from bareboat_study import listing, matching, patterns
from bareboat_study.reproduction import data, images, machines, secrets
from bareboat_study.reproduction.document import (
    MOST_BYTES,
    Datum,
    Decided,
    Lock,
    LockedImage,
    LockedPlan,
    Machine,
    Results,
)

_MOST_OUTPUT_BYTES = 16 << 20


class _KeptPlan(Struct, frozen=True, kw_only=True):
    """What a lock takes from plan.json."""

    job: Job
    image_digest: str | None
    engine: str
    launcher: str
    scheduler: str
    decisions: tuple[Decided, ...]

    def locked(self, digest: str, site: Site | None) -> LockedPlan:
        """The plan with the version of its engine at the site where it was submitted, if that is known."""
        return LockedPlan(
            digest=digest,
            engine=self.engine,
            launcher=self.launcher,
            scheduler=self.scheduler,
            engine_version="" if site is None else _engine_version(site, self.engine),
            decisions=self.decisions,
        )


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the locks of runs, and of a study's arms, to compare them. `declared`: the paths of data;
    `metrics`: patterns of metrics in the output; `without`: parts that are left out. `strict`: a pattern
    must match."""

    store: Store
    _: KW_ONLY
    declared: Sequence[str] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    strict: bool = True
    say: Callable[[str], None] = lambda _text: None
    progress: data.Progress = lambda *_: None

    def lock(self, run_id: str) -> Lock:
        """The lock of a run, or of a point of a sweep. Raises UsageError, StoreError."""
        made = self._submitted(run_id)
        (status,) = sweeps.look(self.store, [run_id])
        records = sweeps.records_of(self.store, status)
        if not records:
            raise UsageError(
                f"{run_id} has not ended: it is {status.state.value}",
                remedy=f"bareboat wait {run_id} && bareboat lock {run_id}"
                if not status.over
                else f"bareboat status {run_id}",
            )
        record = records[0]
        point = sweeps.of_point(self.store, run_id)
        place = submission.plan_file(self.store, run_id)
        found = provenance.read(self.store, run_id)
        lacks = _lacks(found)
        plan = self.store.read(place, _KeptPlan) if os.path.lexists(place) else None
        if plan is None:
            raise UsageError(
                f"{run_id} has no plan.json: it was not submitted by this version", remedy="run it again"
            )
        job = _with_environment(plan.job, found, lacks)
        if point is not None:
            job = _at_point(job, *point)
        image = None
        if plan.image_digest:
            image, gone = images.of_digest(
                self.store, plan.image_digest, packages="packages" not in self.without, say=self.say
            )
            lacks += [gone] if gone else []
        node = self._node(run_id, record)
        if node is None and record.scheduler != registry.HERE:
            lacks.append("the compute node's CPU, kernel and driver")
        results = self._results(record, run_id)
        return self._checked(
            Lock(
                kind="run",
                name=run_id,
                made_by=f"bareboat {__version__}",
                recorded_by=f"bareboat {found.bareboat_version}" if found else "",
                job=job,
                withheld=found.withheld if found else (),
                plan=plan.locked(made.plan_digest, found.site if found else None),
                image=image,
                code=found.code if found and "code" not in self.without else None,
                machine=machines.of_site(found.site) if found else None,
                node=node,
                nodes=self._nodes(run_id, record, status, found),
                data=self._data(record.started_at, lacks),
                patterns=dict(self.metrics),
                results=results,
                not_recorded=tuple(lacks),
            )
        )

    def _submitted(self, run_id: str) -> Submission:
        """What was submitted. Raises UsageError for what is more than a run."""
        if listing.is_point(self.store, run_id):
            whole = run_id.rpartition(".")[0]
            raise UsageError(f"{run_id} is a point of a study", remedy=f"bareboat lock {whole}   # its file")
        if listing.is_study(self.store, run_id):
            raise UsageError(
                f"{run_id} is a study, and no run", remedy=f"bareboat report {run_id} STUDY   # compares two"
            )
        made = submission.read(self.store, run_id)
        if made.points:
            raise UsageError(
                f"{run_id} is a sweep of {made.points} points; a lock holds one run",
                remedy=f"bareboat lock {run_id}.0   # one point; each has a number",
            )
        return made

    def origins(self, matrix: Matrix, study: Study) -> dict[str, Lock]:
        """Arm -> what made it, at a point of a study; without results and secrets."""
        known = {}
        for arm in study.arms:
            if arm.image_digest not in known:
                image = next((each for each in matrix.images if each.digest == arm.image_digest), study.image)
                packages = "packages" not in self.without
                known[arm.image_digest] = images.of_image(self.store, image, packages=packages, say=self.say)
        return {
            arm.name: secrets.without(self._of_arm(matrix, study, number, known[arm.image_digest]))
            for number, arm in enumerate(study.arms)
        }

    def _of_arm(self, matrix: Matrix, study: Study, arm: int, image: LockedImage | None) -> Lock:
        """The lock of an arm at a point, without data and results."""
        found = provenance.read(self.store, matrix.id)
        job = study.jobs[arm] if study.jobs else study.job
        kept, hidden = secrets.apart(job.environment)
        return Lock(
            kind="study",
            name=matrix.id,
            made_by=f"bareboat {__version__}",
            recorded_by=f"bareboat {matrix.bareboat_version}",
            job=msgspec.structs.replace(job, environment=kept),
            withheld=hidden,
            plan=LockedPlan(
                digest=digests.of("\n".join(each.plan_digest for each in study.arms).encode()),
                engine=study.arms[arm].engine,
                launcher=study.job.launcher or "",
                scheduler=study.job.scheduler or registry.HERE,
                engine_version=_engine_version(study.site, study.arms[arm].engine),
            ),
            image=image,
            code=found.code if found and "code" not in self.without else None,
            machine=machines.of_site(matrix.site),
            nodes=(matrix.site.hostname,),
            results=Results(started_at=matrix.created_at),
            not_recorded=tuple(_lacks(found, study=True)),
        )

    def _results(self, record: Record, run_id: str) -> Results:
        folder = self.store.run(run_id)
        values = reported(folder)
        if self.metrics:
            output = output_of(self.store, run_id)
            for name, pattern in self.metrics.items():
                if found := patterns.finite(matching.texts(name, pattern, output)):
                    values[name] = found[-1]
            missing = [name for name in self.metrics if name not in values]
            if missing and self.strict:
                raise UsageError(
                    f"the pattern of {missing[0]} matches nothing in the output of {run_id}",
                    context=f"pattern: {one_line(self.metrics[missing[0]])}",
                    remedy=f"bareboat logs {run_id}   # shows the output",
                )
        return Results(
            exit_code=record.exit_code,
            wall_s=record.wall_s,
            started_at=record.started_at,
            peak_memory_bytes=record.peak_memory_bytes,
            metrics=values or dict(record.results),
            transports=tuple(dict.fromkeys(f"{way.by}: {way.way}" for way in record.transports)),
            ended_because=one_line(record.ended_because),
        )

    def _data(self, began: str, lacks: list[str]) -> tuple[Datum, ...]:
        if not self.declared:
            lacks.append("checksums of data: none was declared with --data")
            return ()
        return tuple(
            data.checksum(path, began_epoch_s=epoch_s(began), progress=self.progress)
            for path in dict.fromkeys(self.declared)
        )

    def _node(self, run_id: str, record: Record) -> Machine | None:
        control = self.store.run(run_id) / directory.CONTROL
        text = directory.text(control / "machine", limit=1 << 16)
        name = record.starts[-1].node if record.starts else ""
        return machines.of_node(text, name) if text else None

    def _nodes(
        self, run_id: str, record: Record, status: Status, found: Provenance | None
    ) -> tuple[str, ...]:
        if record.scheduler == registry.HERE:
            return (found.site.hostname,) if found else ()
        names = self._hosts(run_id)
        return names or tuple(start.node for start in (record.starts or status.starts)[-1:])

    def _hosts(self, run_id: str) -> tuple[str, ...]:
        """The names of all nodes, where its job wrote them."""
        text = directory.text(self.store.run(run_id) / directory.CONTROL / "hosts") or ""
        return tuple(one_line(line) for line in text.splitlines() if line.strip())

    def _checked(self, lock: Lock) -> Lock:
        """The lock without secrets that can be left out.

        Raises UsageError for a lock that still holds one, or is too large."""
        lock = secrets.without(lock)
        secrets.refuse(msgspec.to_builtins(lock), [lock.job.command])
        size = len(written(lock))
        if size > MOST_BYTES:
            raise _too_large(lock, size)
        return lock


def _too_large(lock: Lock, size: int) -> UsageError:
    held: dict[str, object] = {name: getattr(lock, name) for name in ("image", "code", "job")}
    flags = {"image": "packages", "code": "code"}
    sizes = {name: len(codec.to_pretty_json(part)) for name, part in held.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    flag = flags.get(largest)
    return UsageError(
        f"the lock of {lock.name} would have {size:,} bytes; the limit is {MOST_BYTES:,}",
        context=f"the largest part is its {largest}: {sizes[largest]:,} bytes",
        remedy=f"bareboat lock {lock.name} --without {flag}"
        if flag
        else "shorten the command or the environment variables of the job",
    )


def written(lock: Lock) -> bytes:
    """The bytes of the document."""
    return codec.to_pretty_json(lock).encode() + b"\n"


def output_of(store: Store, run_id: str) -> str:
    """The end of the output of a run."""
    try:
        tail = untrusted.read_tail(submission.output_log(store, run_id), limit=_MOST_OUTPUT_BYTES)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StoreError(f"the output of {run_id} cannot be read: {error.strerror}") from None
    return tail.decode(errors="replace")


def _lacks(found: Provenance | None, *, study: bool = False) -> list[str]:
    if found is None:
        what = "the code" if study else "the code, environment variables and machine"
        return [f"{what}: it ran before Bareboat recorded them"]
    if found.code is None:
        return ["the code: the job has no working directory of the host"]
    lacks = list(found.code.notes)
    if found.code.repository is None and not found.code.files:
        lacks.append(
            "the code: no file of the working directory is named in the command, and no repository holds it"
        )
    return lacks


def _with_environment(job: Job, found: Provenance | None, lacks: list[str]) -> Job:
    """The job with the values of its variables that were recorded: its plan is kept without values."""
    if found is None and job.environment:
        lacks.append(f"the values of the environment variables {', '.join(sorted(job.environment))}"[:300])
    return msgspec.structs.replace(job, environment=found.environment if found else {})


def _at_point(job: Job, points: sweep.Sweep, index: int) -> Job:
    """The job of one point of a sweep, as a job of its own."""
    values = {**points.values(index), sweep.INDEX: str(index)}
    command = tuple(sweep.fill(word, points, index) for word in job.command)
    environment = {name: sweep.fill(value, points, index) for name, value in job.environment.items()}
    environment |= {sweep.variable(name): value for name, value in values.items()}
    return msgspec.structs.replace(job, command=command, environment=environment, sweep=None)


def _engine_version(site: Site, name: str) -> str:
    engine = site.engine(name)
    return engine.version if engine is not None else ""
