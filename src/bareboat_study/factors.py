"""Factors of a study file: the points, and a job file's values at one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bareboat import jobfile
from bareboat.model import Job, ProveRequest, sweep
from bareboat.model.job import KEYS as ALL_KEYS
from bareboat.model.matrix import Value, shown
from bareboat.model.sweep import Field
from bareboat_base.errors import UsageError
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted
from bareboat_base.toml import Document

#: The keys of the job that an arm or a factor can set.
KEYS = tuple(key for key in Job.__struct_fields__ if key not in ("name", "prove", "sweep"))


def read_points(table: dict[str, Any]) -> tuple[tuple[str, ...], tuple[tuple[Value, ...], ...]]:
    """The factors, and their values at each point."""
    if not table:
        return (), ((),)
    names, rows = sweep.expand(table)
    for name in names:
        if not is_key(name):
            sweep.check_names((name,))
    if len({name.lower() for name in names}) < len(names):
        raise UsageError("two factors have the same name", key="sweep", remedy="rename one of them")
    points = tuple(tuple(row) for row in rows)
    for row in points:
        for name, value in zip(names, row, strict=True):
            sweep.text_of(name, value)
    if len(set(map(repr, points))) < len(points):
        raise UsageError(
            "two points of the study have the same values", key="sweep", remedy="remove one of them"
        )
    return names, points


def is_key(factor: str) -> bool:
    """Whether a factor is a key of the job, and not a value for a placeholder."""
    return "." in factor or factor in KEYS


def check_scaling(
    prove: ProveRequest, factors: tuple[str, ...], points: tuple[tuple[Value, ...], ...]
) -> None:
    """Raise UsageError where the factor that counts the workers is none, or has other values."""
    if prove.scaling is None:
        return
    if prove.scaling not in factors:
        raise UsageError(
            f"prove.scaling is {quoted(prove.scaling)}, which is not a factor under [sweep]",
            key="prove.scaling",
            remedy=f'set scaling = "{factors[0]}" under [prove]'
            if factors
            else "remove scaling under [prove]",
        )
    at = factors.index(prove.scaling)
    for point in points:
        value = point[at]
        if isinstance(value, bool | str) or not value > 0:
            raise UsageError(
                f"prove.scaling is {prove.scaling!r}, whose value {shown(value)!r} is no number of workers",
                key="prove.scaling",
                remedy="name a factor whose values are numbers above 0",
            )


def put(
    values: dict[str, Any],
    key: str,
    value: Any,
    places: dict[tuple[str, ...], tuple[str, ...]],
    place: tuple[str, ...],
    file: Document,
) -> None:
    """Set a key of the job file, such as `engine` or `topology.nodes`; a table is merged with the job's."""
    keys = tuple(key.split(".", 1))
    table = values
    if len(keys) == 2:
        near = nearest(key, (each for each in ALL_KEYS if "." in each))
        if keys[0] not in ("topology", "scheduling", "capture", "environment"):
            raise UsageError(
                f"{quoted(key)} is not a key of the job" + (f"; did you mean {near!r}?" if near else ""),
                context=file.at(*place),
                remedy=f"rename it to {near}"
                if near
                else f"keys: {', '.join(KEYS)}; and keys of tables, such as topology.nodes",
            )
        table = values.setdefault(keys[0], {})
        if not isinstance(table, dict):
            raise UsageError(
                f"{keys[0]} must be a table", context=file.at(keys[0]), remedy=f"write [{keys[0]}]"
            )
    if isinstance(value, dict) and isinstance(table.get(keys[-1]), dict):
        table[keys[-1]] |= value
    else:
        table[keys[-1]] = value
    places[keys] = place


def export(values: dict[str, Any], factors: Sequence[str], texts: Mapping[str, str]) -> None:
    """Set the variables that a sweep's points have."""
    environment = values.setdefault("environment", {})
    if isinstance(environment, dict):
        for name in (sweep.INDEX, *(factor for factor in factors if not is_key(factor))):
            environment.setdefault(sweep.variable(name), texts[name])


def fill_command(file: Document, values: dict[str, Any], texts: Mapping[str, str], used: set[str]) -> None:
    """Replace the placeholders in the command and in the environment."""
    try:
        if "command" in values:
            words = jobfile.words_of(values["command"], file, "command")
            values["command"] = [fill(word, texts, used) for word in words]
    except UsageError as error:
        raise file.placed(error, "command") from None
    environment = values.get("environment")
    if isinstance(environment, dict):
        for name, text in environment.items():
            if isinstance(text, str):
                try:
                    environment[name] = fill(text, texts, used)
                except UsageError as error:
                    raise file.placed(error, "environment", name) from None


def fill(text: str, texts: Mapping[str, str], used: set[str]) -> str:
    """The text with values for its placeholders; their names are added to `used`."""
    names = tuple(name for name in texts if name != sweep.INDEX)
    parts = sweep.parse(text, names)
    used |= {part.name for part in parts if isinstance(part, Field)}
    return "".join(part if isinstance(part, str) else texts[part.name] for part in parts)
