"""Settings: flag over environment over project file over site file over default, each with its source."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.errors import UsageError
from fairlead.model import ProveRequest
from fairlead.toml import TomlFile

PROJECT_FILE = "fairlead.toml"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting's value and where it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class _Known:
    kind: Callable[[str], Any]
    default: Any
    meaning: str


_PROVE = ProveRequest()
KNOWN = {
    "store": _Known(str, None, "where images, runs and records are kept"),
    "engine": _Known(str, None, "the engine to use; without it the planner chooses"),
    "launcher": _Known(str, None, "the launcher to use; without it the planner chooses"),
    "scheduler": _Known(str, None, "the scheduler of `submit`; without it the one that is here"),
    "partition": _Known(str, None, "the partition or queue that jobs are sent to"),
    "account": _Known(str, None, "the account or project that pays for jobs"),
    "qos": _Known(str, None, "the quality of service that jobs ask for"),
    "reservation": _Known(str, None, "the reservation that jobs run in"),
    "constraint": _Known(str, None, "features that nodes must have"),
    "modules": _Known(str, "", "environment modules that jobs load, with commas between"),
    "delivery": _Known(str, None, "where ranks read the image: shared, node, or auto"),
    "node_scratch": _Known(str, None, "the folder of each node that images are brought to; without it /tmp"),
    "mirrors": _Known(str, "", "places asked before a registry itself: docker.io=HOST,…"),
    "plain_http": _Known(str, "", "registries that are spoken to without TLS, with commas between"),
    "ca_file": _Known(str, "", "a certificate authority that registries may be signed by"),
    "repeats": _Known(int, _PROVE.repeats, "measured runs of a proof"),
    "margin": _Known(float, _PROVE.margin, "relative difference that counts as none"),
    "confidence": _Known(float, _PROVE.confidence, "confidence of the interval and of the tests"),
    "seed": _Known(int, _PROVE.seed, "seed of the order in which the arms take turns"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, resolved."""

    settings: dict[str, Setting]

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value

    @property
    def store(self) -> Path:
        return Path(self["store"])

    def over_job(self, prove: Mapping[str, Any]) -> dict[str, Any]:
        """The [prove] table of a job file, completed. A flag or a variable goes over the job file, which
        goes over the project's and the site's files."""
        result = dict(prove)
        for name in ("repeats", "margin", "confidence", "seed"):
            setting = self.settings[name]
            if name not in result or setting.source.startswith(("flag", "environment")):
                result[name] = setting.value
        return result


def resolve(flags: Mapping[str, Any], *, folder: Path, environment: Mapping[str, str]) -> Settings:
    """Find every setting's value. Raises UsageError for unknown keys and values of the wrong type."""
    settings = {}
    files = [(name, file) for name, file in _files(folder, environment) if file is not None]
    for _, file in files:
        file.check_keys(file.values, KNOWN)
    for name, known in KNOWN.items():
        variable = f"FAIRLEAD_{name.upper()}"
        setting = Setting(known.default, "default")
        for label, file in reversed(files):
            if name in file.values:
                setting = Setting(value_of(file, name), f"{label} {file.path}, line {file.line(name)}")
        if environment.get(variable):
            setting = Setting(
                _parsed(known, environment[variable], f"the variable {variable}"), f"environment {variable}"
            )
        if flags.get(name) is not None:
            setting = Setting(flags[name], f"flag --{name}")
        settings[name] = setting
    if settings["store"].value is None:
        settings["store"] = _chosen_store(environment)
    settings["store"] = Setting(
        os.path.abspath(os.path.expanduser(settings["store"].value)), settings["store"].source
    )
    return Settings(settings)


def value_of(file: TomlFile, name: str) -> Any:
    """A file's value of a setting, whose path is relative to the file. Raises UsageError for a wrong type."""
    value = file.convert(file.values[name], type(KNOWN[name].kind("1")), name)
    return str(file.path.parent / os.path.expanduser(value)) if name == "store" else value


def _chosen_store(environment: Mapping[str, str]) -> Setting:
    """The place that suits a store best here."""
    from fairlead import place

    home = environment.get("HOME") or os.path.expanduser("~")
    chosen = place.choose(environment, home, place.Machine())
    return Setting(chosen.path, f"default: {chosen.reason}")


def _parsed(known: _Known, text: str, where: str) -> Any:
    try:
        return known.kind(text)
    except ValueError:
        raise UsageError(
            f"{where} is {text!r}, which is not of type {known.kind.__name__}",
            remedy="correct or unset it",
        ) from None


def _files(folder: Path, environment: Mapping[str, str]) -> list[tuple[str, TomlFile | None]]:
    """The nearest project file at or above the folder, then the site file, of the user or of the machine."""
    project = next(
        (p / PROJECT_FILE for p in (folder, *folder.parents) if (p / PROJECT_FILE).is_file()), None
    )
    sites = (user_site_file(environment), Path("/etc/fairlead/site.toml"))
    site = next((path for path in sites if path.is_file()), None)
    return [
        ("project file", TomlFile(project) if project else None),
        ("site file", TomlFile(site) if site else None),
    ]


def user_site_file(environment: Mapping[str, str]) -> Path:
    """Where `fairlead site add` writes."""
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "/"), ".config")
    return Path(home) / "fairlead" / "site.toml"
