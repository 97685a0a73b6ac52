"""Programs for images as one text: `python -c TEXT`. Pure."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

from bareboat_base.expressions import expression

#: Makes `python -c TEXT` search the working directory after Python's own modules: files of a job may have
#: their names.
OWN_FIRST = """\
import sys
if sys.path[:1] == [""]:
    sys.path.append(sys.path.pop(0))

"""
_IMPORT = expression(r"^from bareboat\.mpi\.\w+ import (?:\([^)]*\)|.*)\n", re.MULTILINE)


def program(*modules: ModuleType) -> str:
    """The texts of `modules`, dependencies first, without the imports between them."""
    return OWN_FIRST + "\n\n".join(_IMPORT.sub("", inspect.getsource(module)) for module in modules)
