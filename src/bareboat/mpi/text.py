"""Programs for images as one text: `python -c TEXT`. Pure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
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


def main_of(function: Callable[[], None]) -> str:
    """The program that consists of a call of this function."""
    return f"{inspect.getsource(function)}\n\n{function.__name__}()\n"


def run_script() -> None:
    """Run a script as `python SCRIPT` does, and let its exception end the other ranks of its MPI world: at
    its exit, Python would wait for them in MPI_Finalize. (With `-m mpi4py`, SystemExit also ends them, even
    while they save their state.)"""
    import sys
    from posixpath import abspath, dirname, realpath

    del sys.argv[0]
    path, names = abspath(sys.argv[0]), sys.modules["__main__"].__dict__
    if sys.path[:1] == [""]:  # it is not there with -I and -P
        sys.path[0] = dirname(realpath(path))
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    del names["run_script"]
    names["__file__"] = path
    try:
        exec(code, names)
    except Exception:
        if "mpi4py.MPI" in sys.modules:
            from mpi4py.run import set_abort_status

            set_abort_status(1)
        raise
