"""Images that a tool keeps in a repository of its own, or gets from the site's gateway: Sarus, Shifter.

Such a tool cannot run a tree. The user loads the image once, under a name that contains its digest; the probe
finds it by that name, and the job runs it.
"""

from __future__ import annotations

import re

from bareboat.model import EngineFacts, Image, Refusal
from bareboat_base import digests

_DIGITS = 12


def name(digest: str) -> str:
    """The image's name there."""
    return f"bareboat:{key(digest)}"


_LONGEST_LINE = 4096


def key(digest: str) -> str:
    return digests.hexed(digest)[:_DIGITS] if digest else ""  # an environment that is only described has none


def listed(said: str) -> dict[str, str]:
    """From a table of images: the digits of those with such a name -> their full names. The tag follows a
    colon (Shifter) or is in a column of its own (Sarus)."""
    pattern = re.compile(rf"(?:^|\s)(\S*\bbareboat)(?::|[ \t]+)([0-9a-f]{{{_DIGITS}}})(?=\s|$)")
    lines = (line for line in said.splitlines() if len(line) < _LONGEST_LINE)
    found = [pair for line in lines for pair in pattern.findall(line)]
    return {digits: f"{repository}:{digits}" for repository, digits in found}


def missing(image: Image, facts: EngineFacts, *, tool: str, how: str) -> Refusal | None:
    """Why it cannot run: the image is not in the tool's repository. `how`: the commands, with NAME and
    DIGEST."""
    if not image.digest:
        return Refusal(
            f"{tool} runs images of its own repository, and this one is not captured yet",
            remedy="bareboat image capture",
        )
    if key(image.digest) in facts.settings:
        return None
    return Refusal(
        f"{tool} runs images of its own repository only, and has none called {name(image.digest)}",
        remedy=how.replace("NAME", name(image.digest)).replace("DIGEST", digests.short(image.digest)),
    )
