"""Settings: flag over environment over project file over site files, the user's over the machine's,
over default, each with its source."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bareboat import registry
from bareboat.model import Job, ProveRequest, keys
from bareboat.model.job import KEYS
from bareboat.model.keys import Key
from bareboat.model.variables import check_name
from bareboat_base import ranges
from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.files import failures, ownership
from bareboat_base.nearest import nearest
from bareboat_base.printable import one_line, quoted
from bareboat_base.toml import TomlFile

PROJECT_FILE = "bareboat.toml"
SITE_FILE = Path("/etc/bareboat/site.toml")

#: Settings that a project's file may not make, because it may come from anyone: they decide which programs
#: start outside of a container, where these lie, and which images are accepted, and from which servers.
PERSONAL = ("store", "mirrors", "plain_http", "ca_file", "engine", "modules", "node_scratch", "policy")


class Origin(StrEnum):
    """Where a setting's value comes from."""

    DEFAULT = "default"
    SITE = "site file"
    PROJECT = "project file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Setting(Struct, frozen=True):
    """One setting's value, where it comes from, and the place there."""

    value: Any
    origin: Origin = Origin.DEFAULT
    place: str = ""

    @property
    def source(self) -> str:
        """The origin and the place, for display."""
        colon = ":" * (self.origin is Origin.DEFAULT and bool(self.place))
        return f"{self.origin}{colon} {self.place}".rstrip()

    def called(self, name: str) -> str:
        """The user's name for the setting: a flag, an environment variable, or the key of a file."""
        return self.place if self.is_of_command else name

    @property
    def is_of_command(self) -> bool:
        """Whether it is of this command alone: a flag or an environment variable."""
        return self.origin in (Origin.FLAG, Origin.ENVIRONMENT)


class _Known(Struct, frozen=True):
    """`key`: of a number's range in `ranges`; `of_job`: the job's key that the setting completes;
    `example`: a value in TOML, where neither has one."""

    kind: type
    default: Any
    meaning: str
    key: str = ""
    of_job: Key | None = None
    example: str = ""

    @property
    def allowed(self) -> tuple[str, str, bool]:
        """As in `ranges.ALLOWED`."""
        if self.of_job is None:
            return "", self.example, False
        kind, example, is_any = self.of_job.allowed
        return (
            kind,
            example.strip("[]") if self.kind is str else example,
            is_any,
        )  # a list is text with commas

    def parsed(self, text: str, name: str) -> Any:
        """The value of an environment variable of this name. Raises UsageError."""
        if not text.strip():
            raise UsageError(
                f"the environment variable {name} is {'blank' if text else 'empty'}",
                remedy=f"unset {name}",
            )
        if self.kind is bool:
            if text.lower() not in _TRUTH:
                raise UsageError(
                    f"{name} is {quoted(text)}; it must be true or false", remedy=f"export {name}=true"
                )
            return _TRUTH[text.lower()]
        return ranges.parse(self.key, text, name=name) if self.key else text

    def check(self, name: str, value: Any, *, called: str = "") -> None:
        """Raise UsageError for a value that is not allowed. `called`: the user's name for the setting,
        where it is not a file's key."""
        called = called or name

        remedy = ranges.setting(called, self.allowed[1] or "1")
        if isinstance(value, str) and not value.strip():
            what = "blank" if value else "empty"
            raise UsageError(f"{called} is {what}", remedy=f"{remedy}, or remove it")
        if self.of_job is not None:
            try:
                self.of_job.check_value(called, value)
            except UsageError as error:
                raise error if self.kind is not str else error.but(remedy=remedy) from None
        if self.key:
            ranges.check(ranges.RANGES[self.key], value, name=called)
        elif name == "store" and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value):
            raise UsageError(
                f"{called} is {quoted(value)}; it must be a directory",
                remedy=remedy,
            )
        elif isinstance(value, str) and value and name not in _PATHS:
            check_name(called, value, remedy=str(remedy))
        elif isinstance(value, str) and any(ord(c) < 32 or ord(c) == 127 for c in value):
            raise UsageError(
                f"{called} is {quoted(value)}, with a control character",
                remedy=remedy,
            )


#: Settings that complete a job -> its keys.
OF_JOBS = {full.rpartition(".")[2]: full for full, key in KEYS.items() if key.is_setting}
_DESIGN = "prove."
#: Paths need not be UTF-8.
_PATHS = ("store", "ca_file", "policy")
_TRUTH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _completing(*, design: bool) -> dict[str, _Known]:
    """The settings for keys of the job; `design`: those of a study's design."""
    found = {}
    for name, full in OF_JOBS.items():
        key = KEYS[full]
        if full.startswith(_DESIGN) != design:
            continue
        if key.range is None:
            found[name] = _Known(str, "" if name == "modules" else None, key.help, of_job=key)
        else:
            kind = int if key.range.whole else float
            found[name] = _Known(kind, getattr(ProveRequest(), name), key.help, key=full, of_job=key)
    return found


KNOWN = {
    "store": _Known(str, None, "directory of images, runs and records", example='"~/bareboat"'),
    **_completing(design=False),
    "mirrors": _Known(
        str, "", "mirrors to try before a registry: docker.io=HOST,…",
        example='"docker.io=HOST:PORT"',
    ),
    "plain_http": _Known(
        str, "", "registries to use over plain HTTP, separated by commas", example='"HOST:PORT"'
    ),
    "ca_file": _Known(
        str, "", "additional certificate authority for registries", example='"FILE"'
    ),
    "policy": _Known(
        str, "", "signature policy (default: the user's or machine's policy.json)",
        example='"FILE"',
    ),
    "require_digest": _Known(bool, False, "reject image references without a digest", example="true"),
    "tool_timeout_s": _Known(
        float,
        None,
        "seconds to wait for a tool (default: 7; to cancel 30, to submit 120)",
        key="tool_timeout_s",
    ),
    **_completing(design=True),
}  # fmt: skip
ranges.RANGES.update({name: ranges.RANGES[each.key] for name, each in KNOWN.items() if each.key})
ranges.ALLOWED.update({name: each.allowed for name, each in KNOWN.items() if each.allowed[1]})


class Settings(Struct, frozen=True):
    """All settings, resolved."""

    settings: dict[str, Setting]

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value

    @property
    def store(self) -> Path:
        return Path(self["store"])

    def elsewhere(self) -> Settings:
        """The settings without those that a site file makes for jobs of this site."""
        of_site = {name for name, each in self.settings.items() if each.origin is Origin.SITE}
        return self.without([full for name, full in OF_JOBS.items() if name in of_site])

    def without(self, keys: Collection[str]) -> Settings:
        """The settings that leave these keys of jobs alone, but for those of a study's design."""
        names = (name for name, full in OF_JOBS.items() if full in keys and not full.startswith(_DESIGN))
        return Settings(self.settings | {name: Setting(KNOWN[name].default) for name in names})

    def of_queue(self, is_queued: bool) -> Settings:
        """The settings for a job that may, or may not, be given to a scheduler."""
        return self if is_queued else self.without(("scheduler",))

    def completed(self, job: Job) -> Job:
        """A job of another place with the settings of what it does not set, but for a study's design."""
        own = {key for key in OF_JOBS.values() if key.startswith(_DESIGN) or keys.value_of(job, key)}
        given = ((key, value) for key, value, _ in self.of_job(own) if not key.startswith(_DESIGN))
        return keys.replaced(job, dict(given))

    def of_job(self, own: Collection[str]) -> Iterator[tuple[str, Any, Setting]]:
        """What the layers around a job give its keys, of which it has `own` itself: files complete the job,
        variables and flags go over it. Raises UsageError for a name that is not known."""
        for name, full in OF_JOBS.items():
            setting = self.settings[name]
            value = setting.value
            if setting.origin is Origin.DEFAULT or value == "" or (full in own and not setting.is_of_command):
                continue
            if name in ("engine", "launcher", "scheduler"):
                with placed(setting):
                    registry.check(name, value, called=setting.called(name))
            yield full, tuple(filter(None, value.split(","))) if name == "modules" else value, setting


def resolve(
    flags: Mapping[str, Any],
    *,
    folder: Path | None,
    environment: Mapping[str, str],
    with_site: bool = True,
) -> Settings:
    """Find every setting's value. Raises UsageError for unknown keys, wrong types, the user's own settings
    that others may write, and keys that no project may set. `folder`: None where the working
    directory is gone. `with_site`: False where the site file is damaged and doctor probes the machine
    anyway."""
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        path = environment.get(variable)
        if path is not None and not path.startswith("/") and (path or variable == "HOME"):
            raise UsageError(
                f"the environment variable {variable} is {path!r}; it must be an absolute path"
                if path
                else f"the environment variable {variable} is empty",
                remedy=f"unset {variable}   # or: export {variable}=/DIR",
            )
    _warn_of_misspelt(environment)
    settings: dict[str, Setting] = {}
    files = [
        (name, file) for name, file in _files(folder, environment, with_site=with_site) if file is not None
    ]
    for label, file in files:
        file.check_keys(file.values, KNOWN)
        for name in PERSONAL if label is Origin.PROJECT else ():
            if name in file.values:
                raise UsageError(
                    f"{name} cannot be set in a project's file, only by you or the site",
                    context=file.at(name),
                    remedy=f"move the line to {user_site_file(environment)}, or use a flag",
                )
    for name, known in KNOWN.items():
        variable = f"BAREBOAT_{name.upper()}"
        setting = Setting(known.default)
        for label, file in reversed(files):
            if name == "require_digest" and setting.value is True:
                continue  # the site's rule, which neither a project nor the user's site file may relax
            if name in file.values:
                setting = Setting(value_of(file, name), label, f"{file.path}, line {file.line(name)}")
        if variable in environment:
            setting = Setting(known.parsed(environment[variable], variable), Origin.ENVIRONMENT, variable)
        if flags.get(name) is not None:
            setting = Setting(flags[name], Origin.FLAG, f"--{name.replace('_', '-')}")
        with placed(setting):
            if setting.origin is not Origin.DEFAULT:
                known.check(name, setting.value, called=setting.called(name))
        settings[name] = setting
    if settings["store"].value is None:
        settings["store"] = _chosen_store(environment)
    store = os.path.abspath(os.path.expanduser(settings["store"].value))
    settings["store"] = msgspec.structs.replace(settings["store"], value=store)
    return Settings(settings)


def _warn_of_misspelt(environment: Mapping[str, str]) -> None:
    """Name variables that are nearly a setting's: they would have no effect."""
    names = [name.upper() for name in KNOWN]
    for variable in environment:
        name = variable.removeprefix("BAREBOAT_")
        if name in (variable, "", *names):
            continue
        if (near := nearest(name, names, likeness=0.8)) is not None:
            import logging

            logging.getLogger("bareboat").warning(
                "the environment variable %s has no effect; did you mean BAREBOAT_%s?",
                one_line(variable),
                near,
            )


def value_of(file: TomlFile, name: str) -> Any:
    """A setting's value from a file; paths are relative to the file. Raises UsageError for a wrong type."""
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
    """The user's own store, where no setting gives one."""
    return Path(_chosen_store(environment).value)


def _chosen_store(environment: Mapping[str, str]) -> Setting:
    """The best place for a store on this machine."""
    from bareboat import store_place

    home = environment.get("HOME") or os.path.expanduser("~")
    of_a_job = functools.partial(is_of_a_job, environment)
    chosen = store_place.choose(environment, home, store_place.Machine(), of_a_job)
    return Setting(chosen.path, place=chosen.reason)


def is_of_a_job(environment: Mapping[str, str], folder: str) -> bool:
    """Whether the path has the ID of the scheduler's job that this process belongs to."""
    words = {*re.split(r"[/._-]", folder)} - {environment.get("USER", ""), ""}
    if not any(value.partition(".")[0] in words for value in environment.values()):
        return False  # before the schedulers are loaded
    variables = (registry.scheduler(name).JOB_VARIABLE for name in registry.names("schedulers"))
    return any(environment.get(name, "").partition(".")[0] in words for name in variables if name)


@contextlib.contextmanager
def placed(setting: Setting) -> Iterator[None]:
    """Add the source of a setting's value to errors about it."""
    try:
        yield
    except BareboatError as error:
        if setting.is_of_command:
            error = error.of(setting.place)
        elif setting.origin is not Origin.DEFAULT:
            error = error if error.context else error.at(setting.source)
        if setting.origin is Origin.ENVIRONMENT:
            error = error.but(remedy=f"{error.remedy}; or: unset {setting.place}")
        raise error from None


def _files(
    folder: Path | None, environment: Mapping[str, str], *, with_site: bool
) -> list[tuple[Origin, TomlFile | None]]:
    """The nearest project file at or above the directory that is believed, then the site files."""
    folders = () if folder is None else (folder, *folder.parents)
    projects = (_project_file(p / PROJECT_FILE) for p in folders)
    sites = site_files(environment) if with_site else ()
    return [
        (Origin.PROJECT, next((file for file in projects if file is not None), None)),
        *((Origin.SITE, file) for file in sites),
    ]


def site_files(environment: Mapping[str, str]) -> tuple[TomlFile, ...]:
    """The user's site file and the machine's, as far as they exist; the user's comes first. Raises UsageError
    for one that others may have written."""
    found = []
    for path in (user_site_file(environment), SITE_FILE):
        try:
            if not path.exists():
                continue
        except OSError as error:
            raise failures.explain(error) or error from None
        if doubt := ownership.doubt(path):
            raise UsageError(
                f"the settings in {path} are not trusted, because others may have written them",
                context=str(doubt),
                remedy=doubt.remedy,
            )
        found.append(TomlFile(path))
    return tuple(found)


def _project_file(path: Path) -> TomlFile | None:
    """The file, if it exists and is trusted. Files of other users are ignored with a warning, or anyone could
    stop others' work below a directory that all may write to."""
    try:
        if not path.is_file():
            return None
    except OSError:  # no settings from a directory that this user cannot read
        return None
    doubt = ownership.doubt(path)
    if doubt is None:
        return TomlFile(path)
    if doubt.remedy.startswith("chmod") and os.path.realpath(path) == doubt.place:
        raise UsageError(
            f"the settings in {path} are not trusted, because others may have written them",
            context=str(doubt),
            remedy=doubt.remedy,
        )
    import logging

    logging.getLogger("bareboat").warning("%s is ignored: %s", one_line(str(path)), one_line(str(doubt)))
    return None


def user_site_file(environment: Mapping[str, str]) -> Path:
    """The user's settings for this cluster."""
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "/"), ".config")
    return Path(home) / "bareboat" / "site.toml"
