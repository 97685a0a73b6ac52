"""The steps by which an image was built, as its config has them."""

from __future__ import annotations

import re

from bareboat_base.expressions import expression

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
