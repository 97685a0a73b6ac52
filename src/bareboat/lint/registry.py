"""All rules: those for any image, and those that compare it with a site's GPUs, MPI and networks."""

from __future__ import annotations

from bareboat.lint import accelerators, parallel
from bareboat_images.lint import registry

#: The first two digits of the codes -> title of the group.
GROUPS = {
    "BB10": "Bytes that nobody needs",
    "BB11": "Places that engines hide",
    "BB12": "Privileges and the container's surroundings",
    "BB13": "C library, processor and GPU",
    "BB14": "MPI and networks",
    "BB15": "Number of files",
    "BB17": "Secrets",
}

MODULES = (*registry.MODULES, accelerators, parallel)
RULES = registry.by_code(MODULES)
