"""The config of an image during a build: what ENV, CMD, USER and similar instructions set. Pure.

Source: https://github.com/opencontainers/image-spec/blob/main/config.md; Healthcheck, OnBuild and Shell are
Docker's: https://github.com/moby/docker-image-spec
"""

from __future__ import annotations

import json
import posixpath
import re
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from bareboat_base import codec
from bareboat_base.errors import ImageError
from bareboat_base.expressions import expression
from bareboat_images.model import Layer
from bareboat_images.oci import documents
from bareboat_images.recipe.instructions import Instruction

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_SHELL = ("/bin/sh", "-c")
_PORT = expression(r"(\d{1,5})(?:-(\d{1,5}))?(?:/(tcp|udp|sctp))?", re.IGNORECASE)
_REAL_TIME = expression(r"RTMIN(?:\+\d{1,2})?|RTMAX(?:-\d{1,2})?")
_DURATION = expression(r"(\d+(?:\.\d+)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}


class Config(Struct, frozen=True, kw_only=True):
    """One state of the config. `execution`: its `config` object; `history`: its entries;
    `has_command`: CMD was set in this stage, so ENTRYPOINT keeps it."""

    execution: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    author: str = ""
    has_command: bool = False

    @property
    def environment(self) -> dict[str, str]:
        found = {}
        for entry in self.execution.get("Env") or ():
            name, _, value = entry.partition("=")
            if name:
                found[name] = value
        return found

    @property
    def workdir(self) -> str:
        return "/" + posixpath.normpath(f"/{self.execution.get('WorkingDir') or ''}").lstrip("/")

    @property
    def user(self) -> str:
        return str(self.execution.get("User") or "")

    @property
    def shell(self) -> tuple[str, ...]:
        return tuple(self.execution.get("Shell") or DEFAULT_SHELL)

    @property
    def triggers(self) -> tuple[str, ...]:
        return tuple(self.execution.get("OnBuild") or ())

    @property
    def created(self) -> str:
        """The time of the last history entry that has one."""
        return next((str(each["created"]) for each in reversed(self.history) if each.get("created")), "")

    def having(self, **values: Any) -> Config:
        """A copy with these keys of `config` set; None removes a key."""
        execution = {**self.execution, **values}
        return replace(self, execution={key: value for key, value in execution.items() if value is not None})

    def for_next_stage(self) -> Config:
        """A copy for a stage that starts from this one."""
        return replace(self, has_command=False)

    def recorded(self, created: str, by: str, *, is_empty: bool) -> Config:
        """A copy with one more history entry. `created`: empty for the time of the previous entry."""
        created = created or self.created
        entry: dict[str, Any] = {"created_by": by, "comment": "bareboat image build"}
        if created:
            entry["created"] = created
        if is_empty:
            entry["empty_layer"] = True
        return replace(self, history=(*self.history, entry))

    def document(self, layers: Iterable[Layer], *, architecture: str, created: str) -> bytes:
        """The image's config as JSON. Equal states give equal bytes."""
        return codec.to_json(
            {
                **({"author": self.author} if self.author else {}),
                "architecture": architecture,
                "os": "linux",
                "created": created,
                "config": dict(self.execution),
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
                "history": list(self.history),
            }
        )


def scratch() -> Config:
    """The config of an image without layers."""
    return Config(execution={"Env": [f"PATH={DEFAULT_PATH}"], "WorkingDir": "/"})


def of_base(data: bytes, layers: int, *, name: str) -> Config:
    """The state for a base image, from its config. Raises ImageError."""
    documents.config(data, name=name)  # checks all types
    read = json.loads(data)  # with the fields that only others know
    execution = dict(read.get("config") or {})
    history = [dict(each) for each in read.get("history") or ()]
    if not _is_text(execution):
        raise ImageError(
            f"the config of {name} has text with a NUL byte, or that is not Unicode",
            remedy="do not use this image; ask its publisher to rebuild it",
        )
    if sum(not each.get("empty_layer") for each in history) != layers:
        history = [{"created_by": f"a layer of {name}"}] * layers
    if workdir := execution.get("WorkingDir"):
        execution["WorkingDir"] = "/" + posixpath.normpath(f"/{workdir}").lstrip("/")
    env = execution.get("Env") or []
    if not any(each.startswith("PATH=") for each in env):
        execution["Env"] = [*env, f"PATH={DEFAULT_PATH}"]
    return Config(execution=execution, history=tuple(history))


def _is_text(value: object) -> bool:
    """Whether all text in a JSON value can be an argument or an environment variable."""
    pending = [value]
    while pending:
        match pending.pop():
            case str() as text:
                try:
                    if b"\0" in text.encode(errors="surrogateescape"):
                        return False
                except UnicodeEncodeError:
                    return False
            case dict() as table:
                pending += [*table.keys(), *table.values()]
            case list() as row:
                pending += row
    return True


def _is_signal(text: str) -> bool:
    """Whether it is a signal of Linux, by number or by name with or without SIG."""
    if text.isascii() and text.isdigit():
        return 0 < int(text) <= 64
    name = text.removeprefix("SIG")
    return f"SIG{name}" in signal.Signals.__members__ or _REAL_TIME.fullmatch(name) is not None


def applied(config: Config, step: Instruction, words: tuple[str, ...], pairs: Mapping[str, str]) -> Config:
    """Apply one instruction that only changes the config. `words`, `pairs`: its arguments, with variables
    replaced. Raises RecipeError."""
    match step.name:
        case "ENV":
            values = {**config.environment, **pairs}
            return config.having(Env=[f"{name}={value}" for name, value in values.items()])
        case "LABEL":
            return config.having(Labels={**(config.execution.get("Labels") or {}), **pairs})
        case "CMD":
            command = list(words) if step.is_json or not words else [*config.shell, words[0]]
            return replace(config.having(Cmd=command), has_command=True)
        case "ENTRYPOINT":
            command = list(words) if step.is_json or not words else [*config.shell, words[0]]
            made = config.having(Entrypoint=command)
            return made if config.has_command else made.having(Cmd=None)
        case "MAINTAINER":
            return replace(config, author=words[0])
        case "EXPOSE":
            ports = [port for word in words for port in _ports(step, word)]
            return config.having(
                ExposedPorts={**(config.execution.get("ExposedPorts") or {}), **{p: {} for p in ports}}
            )
        case "VOLUME":
            if not all(words):
                raise step.fault("a volume's path is empty", remedy="VOLUME /data")
            return config.having(
                Volumes={**(config.execution.get("Volumes") or {}), **{word: {} for word in words}}
            )
        case "USER":
            return config.having(User=words[0])
        case "STOPSIGNAL":
            if not _is_signal(words[0]):
                raise step.fault(f"{words[0][:40]!r} is not a signal", remedy="STOPSIGNAL SIGTERM")
            return config.having(StopSignal=words[0])
        case "SHELL":
            return config.having(Shell=list(words))
        case "ONBUILD":
            return config.having(OnBuild=[*config.triggers, words[0]])
        case "HEALTHCHECK":
            return config.having(Healthcheck=_health(step))
    raise ValueError(f"{step.name} is not a setting")


def _ports(step: Instruction, word: str) -> list[str]:
    found = _PORT.fullmatch(word)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if found is None or not 0 < first <= last < 65536:
        raise step.fault(f"{word[:40]!r} is not a port", remedy="EXPOSE 8080/tcp")
    kind = (found[3] or "tcp").lower()
    return [f"{port}/{kind}" for port in range(first, last + 1)]


def _health(step: Instruction) -> dict[str, Any]:
    if step.inner is None:
        return {"Test": ["NONE"]}
    words = step.inner.args
    test = ["CMD", *words] if step.inner.is_json else ["CMD-SHELL", words[0]]
    found: dict[str, Any] = {"Test": test}
    for flag, key in (("interval", "Interval"), ("timeout", "Timeout"), ("start-period", "StartPeriod"),
                      ("start-interval", "StartInterval")):  # fmt: skip
        if (value := step.flag(flag)) is not None and (length := _nanoseconds(step, flag, value)):
            found[key] = length
    if (value := step.flag("retries")) is not None:
        if not value.isascii() or not value.isdigit() or len(value) > 9:
            raise step.fault(f"--retries={value[:40]!r} is not a number", remedy="--retries=3")
        if int(value):
            found["Retries"] = int(value)
    return found


def _nanoseconds(step: Instruction, flag: str, value: str) -> int:
    parts = _DURATION.findall(value)
    if value == "0":
        return 0
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise step.fault(f"--{flag}={value[:40]!r} is not a time", remedy=f"--{flag}=30s")
    total = sum(float(number) * _NANOSECONDS[unit] for number, unit in parts)
    if 0 < total < 10**6 or total >= 1 << 63:
        raise step.fault(f"--{flag}={value[:40]!r} is shorter than 1ms, or too long", remedy=f"--{flag}=30s")
    return int(total)
