"""The paths of a Python interpreter, its library and its packages, as the interpreter reports them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from bareboat_base import codec, execute, ranges
from bareboat_base.errors import ToolError, UsageError
from bareboat_base.printable import one_line

_QUESTION = r"""
import json, os, re, site, sys, sysconfig
venv = os.path.join(sys.prefix, "pyvenv.cfg")
shared = r"(?im)^\s*include-system-site-packages\s*=\s*true"
alone = os.path.exists(venv) and not re.search(shared, open(venv, errors="replace").read())
print(json.dumps({
    "executable": sys.executable,
    "base_executable": getattr(sys, "_base_executable", sys.executable),
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "version": ".".join(map(str, sys.version_info[:3])),
    "stdlib": sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix}),
    "path": [p for p in sys.path if p],
    "sites": site.getsitepackages(),
    "user_site": "" if alone else site.getusersitepackages(),
}))
"""


class Interpreter(Struct, frozen=True, kw_only=True):
    """Absolute paths, as the interpreter reports them. `path`: sys.path without the script's directory.
    `sites`: directories of packages that are in its path if they exist. `user_site`: where `pip install
    --user` installs, if the interpreter reads it; not in `path`."""

    executable: str
    base_executable: str
    prefix: str
    base_prefix: str
    version: str
    stdlib: str
    path: tuple[str, ...]
    sites: tuple[str, ...] = ()
    user_site: str = ""

    @property
    def owns_prefix(self) -> bool:
        """Whether all files under the prefix belong to this environment: a venv, conda, pyenv."""
        return self.prefix not in ("/", "/usr", "/usr/local")


def choose(asked: str | None) -> str:
    """The interpreter to capture: the requested one, that of the active environment, or the one that runs
    Bareboat."""
    if asked is not None:
        found = execute.which(asked)
        if found is None:
            raise UsageError(
                f"no Python at {one_line(asked, limit=100)}",
                key="capture.python",
                remedy=ranges.setting("capture.python", f'"{choose(None)}"'),
            )
        return _first_name(found)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = os.environ.get(variable)
        if prefix and os.path.exists(os.path.join(prefix, "bin", "python")):
            return os.path.join(prefix, "bin", "python")
    return sys.executable


def _first_name(python: str) -> str:
    """Replace `bin/python3` of an environment by its `bin/python`, so that both give the same capture."""
    folder = os.path.dirname(python)
    first = os.path.join(folder, "python")
    marks = (os.path.join(folder, "..", mark) for mark in ("pyvenv.cfg", "conda-meta"))
    if os.path.exists(first) and any(map(os.path.exists, marks)) and os.path.samefile(first, python):
        return first
    return python


def ask(python: str) -> Interpreter:
    """Query the interpreter: start it once, isolated from the caller's PYTHON* variables."""
    outcome = execute.run([python, "-I", "-c", _QUESTION], timeout_s=execute.patience(execute.START_S))
    if not outcome.ok:
        raise ToolError(
            f"the Python {python} does not start",
            context=(outcome.stderr or outcome.stdout).strip(),
            remedy="name one that does: --python PATH",
        )
    try:
        return codec.decode(outcome.stdout, Interpreter)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ToolError(
            f"the Python {python} answered what cannot be understood: {error}",
            context=outcome.stdout,
            remedy=f"{shlex.quote(python)} -I -c pass   # must print nothing; or name another: --python PATH",
        ) from None


def of_shell(word: str, interpreter: Interpreter, path: str) -> str | None:
    """The Python that a shell with this PATH starts by a name; None where it is that of the environment, or
    the one that the environment was made with."""
    python = execute.which(word, path=path)
    if python is None or not os.path.basename(word).startswith("python"):
        return None
    folder = os.path.dirname(python)
    if os.path.exists(os.path.join(folder, "..", "pyvenv.cfg")):
        both = (folder, os.path.dirname(interpreter.executable))
    else:
        both = (python, interpreter.base_executable)
    return None if len(set(map(os.path.realpath, both))) == 1 else python


def unseen(interpreter: Interpreter, environment: Mapping[str, str]) -> list[str]:
    """Package directories that the interpreter reads in this shell and that a capture does not include: those
    of `pip install --user` and of PYTHONPATH."""
    listed = [interpreter.user_site, *environment.get("PYTHONPATH", "").split(":")]
    if environment.get("PYTHONNOUSERSITE"):
        del listed[0]
    outside = (each for each in listed if each.startswith("/") and each not in interpreter.path)
    return [each for each in dict.fromkeys(outside) if _has_packages(each)]


def _has_packages(folder: str) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False
