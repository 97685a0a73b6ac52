"""An error at the edge: where the user set the key that it is about, and its remedy in the user's words."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from pathlib import Path
from typing import NamedTuple

from bareboat import jobfile
from bareboat.config import KNOWN, Origin, Settings
from bareboat.model.job import KEYS
from bareboat_base.errors import BareboatError, Command
from bareboat_base.toml import TomlFile


class _Place(NamedTuple):
    """Where a key is set, for messages, and its name there."""

    text: str
    name: str


def placed(error: BareboatError, options: argparse.Namespace, settings: Settings | None) -> BareboatError:
    """The error with the place of its key, unless it has one, and a remedy that can be copied."""
    place = _place(error.key, options, settings) if error.key and settings is not None else None
    if place is not None:
        error = error.set_by(place.name)
        if not error.problem.place and place.text:
            error = error.at(place.text)
    policy, remedy = getattr(options, "policy", None), error.problem.remedy
    if policy and isinstance(remedy, Command) and remedy.text.startswith("bareboat image pull "):
        error = error.with_flag(f"--policy {shlex.quote(policy)}")
    store = getattr(options, "store", None)
    return error.with_flag(f"--store {shlex.quote(store)}") if store else error


def _place(key: str, options: argparse.Namespace, settings: Settings) -> _Place | None:
    if key in KNOWN and key not in KEYS:
        setting = settings.settings[key]
        return None if setting.origin is Origin.DEFAULT else _Place(setting.place, setting.called(key))
    for assignment in getattr(options, "assignments", ()):
        if ".".join(jobfile.assigned(assignment)[0]) == key:
            flag = f"--set {assignment.partition('=')[0].strip()}"
            return _Place(flag, flag)
    known = KEYS.get(key)
    value = getattr(options, known.dest, None) if known is not None and known.flags else None
    if known is not None and value is not None and value is not False:
        return _Place(known.flags[-1], known.flags[-1])
    file = getattr(options, "file", None)
    if file is not None and file.endswith(".toml"):
        with contextlib.suppress(BareboatError):
            found = TomlFile(Path(file))
            if (text := found.at(*key.split("."))) != found.name:
                return _Place(text, key)
    return None
