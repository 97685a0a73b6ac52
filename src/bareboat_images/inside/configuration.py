"""The parts of an image's config that are compared between images or shown to users.

Sources: https://github.com/opencontainers/image-spec/blob/main/config.md; Healthcheck, OnBuild and Shell are
Docker's: https://github.com/moby/docker-image-spec
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec
from msgspec import Struct, field

from bareboat_base.expressions import expression
from bareboat_images.oci import documents


class Step(Struct, frozen=True, kw_only=True):
    """One history entry. `created_by`: unchanged; `command`: as in a Dockerfile. `layer`: the number of its
    layer, from 0; None if it has none or the history does not match the layers."""

    created: str
    created_by: str
    command: str
    comment: str
    is_empty: bool
    layer: int | None


class Configuration(Struct, frozen=True, kw_only=True):
    """`settings`: name -> text; `environment` and `labels`: name -> value."""

    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    history: tuple[Step, ...] = ()


def read(data: bytes, *, layers: int, name: str) -> Configuration:
    """Read a config. `layers`: the number of the image's layers. Raises ImageError."""
    document = documents.config(data, name=name)
    execution = document.config or documents.Execution()
    platform = (document.os, document.architecture, document.variant)
    settings = {
        "platform": "/".join(part for part in platform if part),
        "user": execution.user or "",
        "directory": execution.working_dir or "",
        "entrypoint": shlex.join(execution.entrypoint or ()),
        "command": shlex.join(execution.cmd or ()),
        "shell": shlex.join(execution.shell or ()),
        "ports": ", ".join(sorted(execution.exposed_ports or ())),
        "volumes": ", ".join(sorted(execution.volumes or ())),
        "stop signal": execution.stop_signal or "",
        "health check": _compact(execution.healthcheck),
        "triggers": "; ".join(execution.on_build or ()),
        "author": document.author or "",
    }
    pairs = (entry.partition("=") for entry in execution.env or ())
    return Configuration(
        settings={key: value for key, value in settings.items() if value},
        environment={variable: value for variable, _, value in pairs},
        labels=dict(execution.labels or {}),
        history=_history(document.history or [], layers),
    )


def _compact(value: dict[str, Any] | None) -> str:
    return "" if not value else msgspec.json.encode(value, order="sorted").decode()


def _history(entries: list[documents.History], layers: int) -> tuple[Step, ...]:
    fits = sum(not entry.empty_layer for entry in entries) == layers
    steps = []
    number = 0
    for entry in entries:
        is_empty = bool(entry.empty_layer)
        created_by = entry.created_by or ""
        steps.append(
            Step(
                created=entry.created or "",
                created_by=created_by,
                command=as_instruction(created_by),
                comment=entry.comment or "",
                is_empty=is_empty,
                layer=number if fits and not is_empty else None,
            )
        )
        number += not is_empty
    return tuple(steps)


#: The prefix of instructions without a layer, written by Docker's classic builder.
_NOT_RUN = expression(r"/bin/sh -c #\(nop\)\s+")
#: Its prefix for build arguments: their number, followed by names and values.
_ARGUMENTS = expression(r"(?:RUN )?\|(\d{1,3}) ")
_SHELL = expression(r"(?:RUN )?/bin/(?:ba)?sh -c ")


def as_instruction(created_by: str) -> str:
    """An entry's `created_by` as in the Dockerfile if Docker or BuildKit wrote it; otherwise unchanged."""
    text = created_by.strip().removesuffix("# buildkit").rstrip()
    if (found := _NOT_RUN.match(text)) is not None:
        return text[found.end() :]
    if _ARGUMENTS.match(text) is not None and (shell := re.search(r" /bin/(?:ba)?sh -c ", text)) is not None:
        return "RUN " + text[shell.end() :]
    if (found := _SHELL.match(text)) is not None:
        return "RUN " + text[found.end() :]
    return text
