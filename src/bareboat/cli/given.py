"""Where the user set the key that an error is about: a flag, --set, or a line of the job file."""

from __future__ import annotations

import argparse
import contextlib
import re
from pathlib import Path

from bareboat import jobfile
from bareboat.config import KNOWN, Origin, Setting, Settings
from bareboat.model.job import KEYS
from bareboat_base import ranges
from bareboat_base.errors import BareboatError
from bareboat_base.toml import TomlFile


def placed(error: BareboatError, options: argparse.Namespace, settings: Settings) -> BareboatError:
    """The error in the user's words, as far as it names a key and not yet its place."""
    if error.key in KNOWN and error.key not in KEYS:
        return _of_setting(error, settings.settings[error.key])
    name = _name_on_command_line(error.key, options)
    if name:
        return error if name in f"{error.message} {error.context}" else renamed(error, name)
    place = _place_in_file(error.key, getattr(options, "file", None))
    return error if place in error.context else error.at(place)


def _of_setting(error: BareboatError, setting: Setting) -> BareboatError:
    """The error about the value of a setting, with its flag, its environment variable or its file."""
    if setting.origin is Origin.DEFAULT:
        return error
    value = error.remedy.removeprefix(f"set {error.key} = ")
    if error.key == "store":
        value = KNOWN[error.key].example
    if value != error.remedy:
        error = error.but(remedy=ranges.setting(setting.called(error.key), value))
    return error.of(setting.place) if setting.is_of_command else error.at(setting.place)


def _name_on_command_line(name: str, options: argparse.Namespace) -> str:
    """The flag of the key, or its --set; "" where the command line sets it in no way."""
    for assignment in getattr(options, "assignments", ()):
        if ".".join(jobfile.assigned(assignment)[0]) == name:
            return f"--set {assignment.partition('=')[0].strip()}"
    key = KEYS.get(name)
    is_given = key is not None and key.flags and getattr(options, key.dest, None) not in (None, False)
    return key.flags[-1] if key is not None and is_given else ""


def renamed(error: BareboatError, name: str) -> BareboatError:
    """The error of a key of a file as that of a flag."""
    last = error.key.rpartition(".")[2]
    start = rf"({re.escape(error.key)}|{last}) (?=is |has |names )"
    message = re.sub(rf"^{start}", lambda _: f"{name} ", error.message)
    remedy = re.sub(rf"^set {last} = (.+?)(?: under \[\w+\])?(?=$|,|;)", r"\1", error.remedy)
    if remedy != error.remedy:
        value = re.match(r"\[.*?\]|\"[^\"]*\"|[^,; ]+", remedy)
        remedy = ranges.setting(name, value[0]) + remedy[value.end() :] if value else error.remedy
    remedy = re.sub(rf"^remove {last}(?: under \[\w+\])?", lambda _: f"remove {name}", remedy)
    made = error.but(message=message, remedy=remedy)
    return made if message != error.message else made.of(name)


def _place_in_file(name: str, file: str | None) -> str:
    """The file and the line of the key in the job file; "" where it has none."""
    if file is None or not file.endswith(".toml"):
        return ""
    with contextlib.suppress(BareboatError):
        found = TomlFile(Path(file))
        if (place := found.at(*name.split("."))) != found.name:
            return place
    return ""
