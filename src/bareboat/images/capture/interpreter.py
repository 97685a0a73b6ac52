"""What a Python interpreter says of itself: where it, its library and its packages lie."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from bareboat import execute
from bareboat.errors import ToolError, UsageError

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
    "user_site": "" if alone else site.getusersitepackages(),
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Absolute paths, as the interpreter has them; `path` is its sys.path without the script's folder.
    `user_site`: where `pip install --user` installs, if the interpreter reads it; no part of `path`."""

    executable: str
    base_executable: str
    prefix: str
    base_prefix: str
    version: str
    stdlib: str
    path: tuple[str, ...]
    user_site: str = ""

    @property
    def owns_prefix(self) -> bool:
        """Whether everything under the prefix belongs to this environment: a venv, conda, pyenv."""
        return self.prefix not in ("/", "/usr", "/usr/local")


def choose(asked: str | None) -> str:
    """The interpreter to capture: the one asked for, the active environment's, or the one that runs
    Bareboat."""
    if asked is not None:
        found = execute.which(asked)
        if found is None:
            raise UsageError(f"no Python at {asked}", remedy=f"ls -l {asked}")
        return _first_name(found)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = os.environ.get(variable)
        if prefix and os.path.exists(os.path.join(prefix, "bin", "python")):
            return os.path.join(prefix, "bin", "python")
    return sys.executable


def _first_name(python: str) -> str:
    """`bin/python` of an environment for its `bin/python3`: the same environment is then the same capture."""
    folder = os.path.dirname(python)
    first = os.path.join(folder, "python")
    marks = (os.path.join(folder, "..", mark) for mark in ("pyvenv.cfg", "conda-meta"))
    if os.path.exists(first) and any(map(os.path.exists, marks)) and os.path.samefile(first, python):
        return first
    return python


def ask(python: str) -> Interpreter:
    """Start the interpreter once, isolated from the caller's PYTHON* variables, and ask it."""
    outcome = execute.run([python, "-I", "-c", _QUESTION], timeout_s=execute.patience(execute.START_S))
    if not outcome.ok:
        raise ToolError(
            f"the Python {python} does not start",
            context=(outcome.stderr or outcome.stdout).strip(),
            remedy="name one that does: --python PATH",
        )
    try:
        return msgspec.json.decode(outcome.stdout, type=Interpreter)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ToolError(
            f"the Python {python} answered what cannot be understood: {error}",
            context=outcome.stdout,
            remedy=f"{shlex.quote(python)} -I -c pass   # must print nothing; or name another: --python PATH",
        ) from None


def unseen(interpreter: Interpreter, environment: Mapping[str, str]) -> list[str]:
    """The directories of packages that the interpreter reads in this shell, and no captured environment has:
    those of `pip install --user` and of PYTHONPATH."""
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
