"""Programs for images as one text: `python -c TEXT`. Pure."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

#: What `python -c TEXT` finds in the working directory, it finds after Python's own modules: files of a
#: job may have their names.
OWN_FIRST = """\
import sys
if sys.path[:1] == [""]:
    sys.path.append(sys.path.pop(0))

"""
_IMPORT = re.compile(r"^from bareboat\.mpi\.\w+ import (?:\([^)]*\)|.*)\n", re.MULTILINE)


def program(*modules: ModuleType) -> str:
    """The texts of modules, each after those that it imports from; those imports are left out."""
    return OWN_FIRST + "\n\n".join(_IMPORT.sub("", inspect.getsource(module)) for module in modules)
