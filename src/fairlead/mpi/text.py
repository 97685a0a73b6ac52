"""Programs for images as one text: `python -c TEXT`. Pure."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

_IMPORT = re.compile(r"^from fairlead\.mpi\.\w+ import (?:\([^)]*\)|.*)\n", re.MULTILINE)


def program(*modules: ModuleType) -> str:
    """The texts of modules, each after those that it imports from; those imports are left out."""
    return "\n\n".join(_IMPORT.sub("", inspect.getsource(module)) for module in modules)
