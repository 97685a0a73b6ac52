"""The steps by which an image was built, from its config.

Source: https://github.com/opencontainers/image-spec/blob/main/config.md
"""

from __future__ import annotations

import re

from msgspec import Struct

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


def history(data: bytes, *, layers: int, name: str) -> tuple[Step, ...]:
    """The steps in a config. `layers`: the number of the image's layers. Raises ImageError."""
    return _history(documents.config(data, name=name).history or [], layers)


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
