"""Settings: flag over environment over project file over site file over default, each with its source."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bareboat import consent, ranges
from bareboat.errors import BareboatError, UsageError
from bareboat.files import failures, ownership, untrusted
from bareboat.model import ProveRequest
from bareboat.model.job import DELIVERIES, check_node_scratch
from bareboat.model.names import check_name
from bareboat.printable import one_line
from bareboat.toml import TomlFile

log = logging.getLogger("bareboat")

PROJECT_FILE = "bareboat.toml"
SITE_FILE = Path("/etc/bareboat/site.toml")

#: Keys that a project's file sets only when the user agreed: they decide which programs start outside a
#: container (a store's tools, an environment module, no container at all), where such programs may lie, and
#: which servers images come from.
GUARDED = ("store", "mirrors", "plain_http", "ca_file", "engine", "modules", "node_scratch")

#: Asks the user whether a file may set these keys.
Ask = Callable[[Path, Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting's value and where it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class _Known:
    """`key`: of the range of a number, in `ranges`; `values`: all that there are, where they are few."""

    kind: type
    default: Any
    meaning: str
    key: str = ""
    values: tuple[str, ...] = ()

    def parsed(self, text: str, name: str) -> Any:
        """The value of an environment variable of this name. Raises UsageError."""
        if not text.strip():
            raise UsageError(
                f"the environment variable {name} is empty", remedy=f"unset {name}, or give it a value"
            )
        if self.kind is bool:
            if text.lower() not in _TRUTH:
                raise UsageError(
                    f"{name} is {text[:60]!r}; it must be true or false", remedy=f"export {name}=true"
                )
            return _TRUTH[text.lower()]
        return ranges.parse(self.key, text, name=name) if self.key else text

    def check(self, name: str, value: Any) -> None:
        """Raise UsageError for a value that the setting cannot have."""
        if value is None and self.default is None:
            return
        if self.key:
            ranges.check(self.key, value, name=name)
        elif isinstance(value, str) and not value.strip() and self.default is None:
            raise UsageError(f"{name} is empty", remedy=f"give {name} a value, or leave it out")
        elif self.values and value not in self.values:
            raise UsageError(
                f"{name} is {value!r}; it must be one of: {', '.join(self.values)}",
                remedy=f"set {name} = {self.values[0]}",
            )
        elif name == "store" and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value):
            raise UsageError(
                f"the store is {value!r}; it must be a directory",
                remedy="--store DIR, or export BAREBOAT_STORE=DIR",
            )
        elif name == "node_scratch":
            check_node_scratch(value)
        elif isinstance(value, str) and value and name not in _PATHS:
            check_name(name, value)
        elif isinstance(value, str) and any(ord(c) < 32 or ord(c) == 127 for c in value):
            raise UsageError(
                f"{name} is {value[:60]!r}, with a control character", remedy="name a path that has none"
            )


#: Paths need not be UTF-8.
_PATHS = ("store", "ca_file", "policy")
_TRUTH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


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
    "delivery": _Known(str, None, "where ranks read the image: shared, node, or auto", values=DELIVERIES),
    "node_scratch": _Known(str, None, "the folder of each node that images are brought to; without it /tmp"),
    "mirrors": _Known(str, "", "places asked before a registry itself: docker.io=HOST,…"),
    "plain_http": _Known(str, "", "registries that are spoken to without TLS, with commas between"),
    "ca_file": _Known(str, "", "a certificate authority that registries may be signed by"),
    "policy": _Known(str, "", "the signature policy; without it the user's or the machine's policy.json"),
    "require_digest": _Known(bool, False, "refuse references to images without a digest"),
    "tool_timeout_s": _Known(
        float,
        None,
        "seconds that tools have to answer; without it 7, 30 to cancel a job, 120 to take one",
        key="tool_timeout_s",
    ),
    "repeats": _Known(int, _PROVE.repeats, "measured runs of a proof", key="prove.repeats"),
    "margin": _Known(float, _PROVE.margin, "relative difference that counts as none", key="prove.margin"),
    "confidence": _Known(
        float, _PROVE.confidence, "confidence of the interval and of the tests", key="prove.confidence"
    ),
    "seed": _Known(int, _PROVE.seed, "seed of the order in which the arms take turns", key="prove.seed"),
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


def resolve(
    flags: Mapping[str, Any],
    *,
    folder: Path | None,
    environment: Mapping[str, str],
    ask: Ask | None = None,
    with_site: bool = True,
) -> Settings:
    """Find every setting's value. Raises UsageError for unknown keys, values of the wrong type, settings of
    the user's own that others may write, and keys of a project's file that the user has not agreed to; `ask`,
    where somebody can be asked, asks for that. `folder`: None where the working directory is gone.
    `with_site`: False where the site file is damaged, and the machine is looked at all the same."""
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        path = environment.get(variable)
        if path is not None and not path.startswith("/") and (path or variable == "HOME"):
            raise UsageError(
                f"the environment variable {variable} is {path!r}; it must be an absolute path",
                remedy=f"unset {variable}   # or: export {variable}=/DIR",
            )
    settings: dict[str, Setting] = {}
    files = [
        (name, file) for name, file in _files(folder, environment, with_site=with_site) if file is not None
    ]
    for label, file in files:
        file.check_keys(file.values, KNOWN)
        if label == "project file" and "policy" in file.values:
            # A project comes from anywhere; it must not choose whose images are accepted here.
            raise UsageError(
                "policy is a setting of the user or the site, not of a project",
                context=file.at("policy"),
                remedy="write it into ~/.config/bareboat/site.toml, or use --policy FILE",
            )
    for name, known in KNOWN.items():
        variable = f"BAREBOAT_{name.upper()}"
        setting = Setting(known.default, "default")
        for label, file in reversed(files):
            if name == "require_digest" and setting.value is True:
                continue  # the site's rule, which no project may lift
            if name in file.values:
                setting = Setting(value_of(file, name), f"{label} {file.path}, line {file.line(name)}")
        if variable in environment:
            setting = Setting(known.parsed(environment[variable], variable), f"environment {variable}")
        if flags.get(name) is not None:
            setting = Setting(flags[name], f"flag --{name.replace('_', '-')}")
        with placed(setting):
            known.check(name, setting.value)
        settings[name] = setting
    for label, file in files:
        if label == _PROJECT:
            _check_agreed(file, settings, environment, ask)
    if settings["store"].value is None:
        settings["store"] = _chosen_store(environment)
    settings["store"] = Setting(
        os.path.abspath(os.path.expanduser(settings["store"].value)), settings["store"].source
    )
    return Settings(settings)


def value_of(file: TomlFile, name: str) -> Any:
    """A file's value of a setting, whose path is relative to the file. Raises UsageError for a wrong type."""
    try:
        if KNOWN[name].key:
            KNOWN[name].check(name, file.values[name])
        value: Any = file.convert(file.values[name], KNOWN[name].kind, name)
        KNOWN[name].check(name, value)
    except UsageError as error:
        raise file.placed(error, name) from None
    is_path = name == "store" or (name == "policy" and value)
    return str(file.path.parent / os.path.expanduser(value)) if is_path else value


def default_store(environment: Mapping[str, str]) -> Path:
    """The user's own store where no setting names one."""
    return Path(_chosen_store(environment).value)


def _chosen_store(environment: Mapping[str, str]) -> Setting:
    """The place that suits a store best here."""
    from bareboat import place

    home = environment.get("HOME") or os.path.expanduser("~")
    chosen = place.choose(environment, home, place.Machine())
    return Setting(chosen.path, f"default: {chosen.reason}")


@contextlib.contextmanager
def placed(setting: Setting) -> Iterator[None]:
    """Add to an error about a setting's value where the value came from."""
    try:
        yield
    except BareboatError as error:
        error.context = error.context or setting.source
        kind, _, variable = setting.source.partition(" ")
        if kind == "environment":
            error.remedy += f"; or: unset {variable}"
        raise


_PROJECT = "project file"


def _files(
    folder: Path | None, environment: Mapping[str, str], *, with_site: bool
) -> list[tuple[str, TomlFile | None]]:
    """The nearest project file at or above the folder that is believed, then the site file, of the user or of
    the machine."""
    folders = () if folder is None else (folder, *folder.parents)
    projects = (_project_file(p / PROJECT_FILE, environment) for p in folders)
    sites = (user_site_file(environment), SITE_FILE)
    site = None
    try:
        site = next((path for path in sites if path.exists()), None) if with_site else None
    except OSError as error:
        raise failures.explain(error) or error from None
    if site is not None and (doubt := ownership.doubt(site)):
        raise UsageError(
            f"the settings in {site} are not believed, because others may have written them",
            context=str(doubt),
            remedy=doubt.remedy,
        )
    return [
        (_PROJECT, next((file for file in projects if file is not None), None)),
        ("site file", TomlFile(site) if site else None),
    ]


def _project_file(path: Path, environment: Mapping[str, str]) -> TomlFile | None:
    """The file, if there is one and it is believed. One that others own is passed over with a warning: else
    anybody could stop everybody's work below a directory that all may write to."""
    try:
        if not path.is_file():
            return None
    except OSError:  # a directory that is closed to this user holds no settings for them
        return None
    doubt = ownership.doubt(path)
    if doubt is None:
        return TomlFile(path)
    trust = f"bareboat trust {shlex.quote(str(path))}"
    try:
        content = untrusted.read_bytes(os.path.realpath(path))
    except OSError as error:
        content = None
        doubt = ownership.Doubt(doubt.place, f"{doubt.reason} ({error.strerror})", doubt.remedy)
    if content is not None and consent.is_given(path, whole(content), environment):
        return TomlFile(path, content)
    if doubt.remedy.startswith("chmod") and os.path.realpath(path) == doubt.place:
        raise UsageError(
            f"the settings in {path} are not believed, because others may have written them",
            context=str(doubt),
            remedy=f"{doubt.remedy}   # or, after reading it: {trust}",
        )
    log.warning(
        "%s is ignored: %s; after reading it, to use it: %s",
        one_line(str(path)), one_line(str(doubt)), one_line(trust, limit=1000),
    )  # fmt: skip
    return None


def whole(content: bytes) -> str:
    """What an agreement to all of a file stands for."""
    return "file:" + hashlib.sha256(content).hexdigest()


def guarded(file: TomlFile) -> dict[str, Any]:
    """The keys of a file that need an agreement."""
    return {name: file.values[name] for name in GUARDED if name in file.values}


def _check_agreed(
    file: TomlFile, settings: Mapping[str, Setting], environment: Mapping[str, str], ask: Ask | None
) -> None:
    """Raise UsageError when a key of a project's file that needs an agreement would hold and has none."""
    in_force = [name for name in guarded(file) if settings[name].source.startswith(_PROJECT)]
    if not in_force or file.agreed:
        return
    digest = "keys:" + consent.digest_of(guarded(file))
    if consent.is_given(file.path, digest, environment):
        return
    if ask is not None and ask(file.path, guarded(file)):
        consent.give(file.path, digest, environment)
        return
    raise UsageError(
        f"{file.path} sets {', '.join(in_force)}, to which you have not agreed",
        context="\n".join(
            f"{file.at(name)}: {name} = {one_line(str(file.values[name]))}" for name in in_force
        )
        + "\nA project's file may not choose what runs on this machine without your agreement.",
        remedy=f"bareboat trust {shlex.quote(str(file.path))}   # after reading it; again when they change",
    )


def agree(path: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Keep the user's agreement to a project's file; return what it sets. Raises UsageError for a file that
    cannot be one."""
    try:
        content = untrusted.read_bytes(path, follow=True)
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    file = TomlFile(path, content)
    file.check_keys(file.values, KNOWN)
    for name in file.values:
        value_of(file, name)
    if ownership.doubt(path) is None:
        consent.give(path, "keys:" + consent.digest_of(guarded(file)), environment)
    else:
        consent.give(path, whole(content), environment)
    return file.values


def user_site_file(environment: Mapping[str, str]) -> Path:
    """Where `bareboat site add` writes."""
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "/"), ".config")
    return Path(home) / "bareboat" / "site.toml"
