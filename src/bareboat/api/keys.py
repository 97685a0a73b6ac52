"""The keys of a job as keyword arguments: those of a job file, without its tables topology and scheduling."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypedDict

from bareboat.api import boundary
from bareboat.model import Scheduling, Topology
from bareboat_base.errors import UsageError
from bareboat_base.nearest import most_similar, nearest

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
