"""The lock of a study: its study file, with everything resolved and its images pinned by their digests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct

from bareboat import registry
from bareboat.model import Arm, Image, Job, Matrix, Mount, Study, sweep
from bareboat.model.keys import changed, value_of
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line
from bareboat_base.toml_values import assignment
from bareboat_images.store import Store
from bareboat_study import study_report
from bareboat_study.reproduction import retrieval, secrets


def text(store: Store, name: str) -> str:
    """The study file, which `prove` measures again; its first lines say what was found.

    Raises UsageError for a study that does not record the jobs of its arms, and for a secret.
    """
    shown = study_report.read(store, name)
    found, studies = shown.matrix, shown.studies
    if not all(study.jobs for study in studies):
        raise UsageError(
            f"{name} does not record the jobs of its arms, and cannot be locked",
            remedy="bareboat prove FILE   # again",
        )
    values = _values(found, studies)
    secrets.refuse(values, [job.command for study in studies for job in study.jobs])
    site, sentences = found.site, shown.found.sentences
    machine = f"measured on {site.hostname}: {site.cpu_model}, {site.cpus} cores"
    head = (f"{name}, of {found.created_at}, by Bareboat {found.bareboat_version}", machine, *sentences)
    return "".join(f"# {one_line(line)}\n" for line in head) + "\n" + "\n".join(_lines(values)) + "\n"


def _values(found: Matrix, studies: Sequence[Study]) -> dict[str, Any]:
    """The tables and keys of the file."""
    prove = dict(changed(found.prove))
    prove["repeats"] = found.repeats or found.prove.repeats
    if not found.prove.until_decided:
        prove.pop("within_s", None)
    pins = [[_pinned(found, study, arm) for arm in study.arms] for study in studies]
    values = _job(found, studies[0].jobs) | {"prove": prove}
    first = zip(found.arms, found.keys, studies[0].jobs, strict=True)
    arms = {name: {key: _of_arm(key, keys, job) for key in keys} for name, keys, job in first}
    if found.prove.attribution:  # whose arms are its own
        values["image"] = pins[0][-1]
    else:
        for number, keys in enumerate(arms.values()):
            own = {row[number] for row in pins}
            if len(own) == 1 and "image" not in found.factors and (pin := own.pop()):
                keys["image"] = pin
        values["arms"] = arms
    if found.factors:
        images = [next(filter(None, row), None) for row in pins]
        rows = [_at_point(found, point, image) for point, image in enumerate(images)]
        values["sweep"] = {sweep.POINTS: rows}
    if "metrics" in found.template:
        values["metrics"] = found.template["metrics"]
    return values


def _of_arm(key: str, keys: Mapping[str, Any], job: Job) -> Any:
    """The value of a key that an arm sets: with the paths of the job, and with the placeholders of the
    file. Raises UsageError for a variable that may be a secret."""
    head, _, name = key.partition(".")
    if head not in ("command", "environment"):
        return _plain(value_of(job, key))
    value = keys[key]
    if head == "environment" and (hidden := secrets.apart(value if key == head else {name: value})[1]):
        raise UsageError(
            f"an arm sets {hidden[0]}, which may be a secret, and a lock is made to be shared",
            remedy=f'set environment_from = ["{hidden[0]}"] in the study file, and measure it again',
        )
    return value


def _plain(value: Any) -> Any:
    """A value of a job as a job file has it."""
    if isinstance(value, Mount):
        return f"{value.source}:{value.target}{':rw' * value.writable}"
    if isinstance(value, Struct):
        value = dict(changed(value))
    if isinstance(value, Mapping):
        return {name: _plain(own) for name, own in value.items()}
    return [*map(_plain, value)] if isinstance(value, list | tuple) else value


def _at_point(found: Matrix, point: int, image: str | None) -> dict[str, Any]:
    values: dict[str, Any] = found.values(point)
    return values | {"image": image} if image and "image" in values else values


def _job(found: Matrix, jobs: tuple[Job, ...]) -> dict[str, Any]:
    """The keys that the arms share, without what belongs to the site and without variables that may be
    secrets: their names are in environment_from."""
    heads = [{key.partition(".")[0] for key in keys} for keys in found.keys]
    # Each key of an arm that does not set it.
    places = {
        name: next((arm for arm, own in enumerate(heads) if name not in own), -1)
        for name in Job.__struct_fields__
    }
    plain = [_plain(job.elsewhere()) for job in jobs]
    values = {name: plain[arm][name] for name, arm in places.items() if name in plain[arm]}
    own = jobs[places["environment"]]
    variables = own.environment
    if found.factors:
        filled = {sweep.variable(factor) for factor in (sweep.INDEX, *found.factors)}
        variables = {key: value for key, value in variables.items() if key not in filled}
        variables |= found.template.get("environment", {})
        values["command"] = found.template.get("command", values.get("command", ()))
    values["environment"], hidden = secrets.apart(variables)
    values["environment_from"] = [*dict.fromkeys((*own.environment_from, *hidden))]
    values["workdir"] = jobs[places["workdir"]].workdir or "image"
    for name in ("prove", "sweep"):
        values.pop(name, None)
    return {name: value for name, value in values.items() if value or value is False}


def _pinned(found: Matrix, study: Study, arm: Arm) -> str | None:
    """The image of an arm by its digest, from where it can be had again; None on bare metal."""
    if arm.engine == registry.BARE_METAL:
        return None
    digest = study.image.digest if arm.image_digest is UNSET else arm.image_digest
    image = next((each for each in found.images if each.digest == digest), study.image)
    return _reference(image)


def _reference(image: Image) -> str:
    if image.site_layer is not None:
        return image.site_layer.base
    return retrieval.pinned_reference(image.reference, image.digest) or image.digest


def _lines(values: Mapping[str, Any]) -> Iterator[str]:
    """The keys, and then the tables, as TOML."""
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    yield from (assignment(name, value) for name, value in values.items() if name not in tables)
    for name, table in tables.items():
        yield from ("", f"[{name}]", *(assignment(key, value) for key, value in table.items()))
