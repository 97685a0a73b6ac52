"""All rules. To add one: write it in the module of its group, or list a new module here."""

from __future__ import annotations

from bareboat_images.lint import (
    accelerators,
    caches,
    counts,
    credentials,
    homes,
    leftovers,
    parallel,
    pinning,
    privileges,
    references,
    systems,
)
from bareboat_images.lint.rule import Rule

#: The first two digits of the codes -> title of the group.
GROUPS = {
    "BB10": "Bytes that nobody needs",
    "BB11": "Places that engines hide",
    "BB12": "Privileges and the container's surroundings",
    "BB13": "C library, processor and GPU",
    "BB14": "MPI and networks",
    "BB15": "Number of files",
    "BB16": "Reproducibility",
    "BB17": "Secrets",
}

_MODULES = (
    caches,
    leftovers,
    homes,
    privileges,
    references,
    systems,
    accelerators,
    parallel,
    counts,
    pinning,
    credentials,
)

RULES: dict[str, Rule] = {
    rule.code: rule for rule in sorted((r for m in _MODULES for r in m.RULES), key=lambda rule: rule.code)
}
