"""The config of an image during a build: what ENV, CMD, USER and similar instructions set. Pure.

Source: https://github.com/opencontainers/image-spec/blob/main/config.md; OnBuild and Shell are Docker's: https://github.com/moby/docker-image-spec
"""

from __future__ import annotations

import copy
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
from bareboat_base.printable import quoted
from bareboat_images.model import Layer
from bareboat_images.oci import documents
from bareboat_images.recipe.instructions import Instruction

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_SHELL = ("/bin/sh", "-c")
_PORT = expression(r"(\d{1,5})(?:-(\d{1,5}))?(?:/(tcp|udp|sctp))?", re.IGNORECASE)
_REAL_TIME = expression(r"RTMIN(?:\+\d{1,2})?|RTMAX(?:-\d{1,2})?")


class Config(Struct, kw_only=True):
    """The config of a stage, which its instructions change. `execution`: its `config` object without `Env`;
    `history`: its entries; `created`: the last time in it; `has_command`: CMD was set in this stage, so
    ENTRYPOINT keeps it."""

    execution: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    history: list[Mapping[str, Any]] = field(default_factory=list)
    created: str = ""
    author: str = ""
    has_command: bool = False

    @property
    def workdir(self) -> str:
        return "/" + posixpath.normpath(f"/{self.execution.get('WorkingDir') or ''}").lstrip("/")

    @property
    def user(self) -> str:
        return str(self.execution.get("User") or "")

    @property
    def shell(self) -> tuple[str, ...]:
        return tuple(self.execution.get("Shell") or DEFAULT_SHELL)

    def for_next_stage(self) -> Config:
        """A copy for a stage that starts from this one."""
        return replace(copy.deepcopy(self), has_command=False)

    def record(self, created: str, by: str, *, is_empty: bool) -> None:
        """Add a history entry. `created`: empty for the time of the previous entry."""
        self.created = created or self.created
        entry: dict[str, Any] = {"created_by": by, "comment": "bareboat image build"}
        if self.created:
            entry["created"] = self.created
        if is_empty:
            entry["empty_layer"] = True
        self.history.append(entry)

    def apply(self, step: Instruction, words: tuple[str, ...], pairs: Mapping[str, str]) -> None:
        """Apply one instruction that only changes the config. `words`, `pairs`: its arguments, with variables
        replaced. Raises RecipeError."""
        settings = self.execution
        match step.name:
            case "ENV":
                self.environment.update(pairs)
            case "LABEL":
                settings.setdefault("Labels", {}).update(pairs)
            case "CMD" | "ENTRYPOINT":
                is_list = step.is_json or not words
                settings[step.name.capitalize()] = list(words) if is_list else [*self.shell, words[0]]
                if step.name == "CMD":
                    self.has_command = True
                elif not self.has_command:
                    settings.pop("Cmd", None)
            case "MAINTAINER":
                self.author = words[0]
            case "EXPOSE":
                ports = [port for word in words for port in _ports(step, word)]
                settings.setdefault("ExposedPorts", {}).update((port, {}) for port in ports)
            case "VOLUME":
                if not all(words):
                    raise step.fault("a volume's path is empty", remedy="VOLUME /data")
                settings.setdefault("Volumes", {}).update((word, {}) for word in words)
            case "USER":
                settings["User"] = words[0]
            case "STOPSIGNAL":
                if not _is_signal(words[0]):
                    raise step.fault(f"{quoted(words[0])} is not a signal", remedy="STOPSIGNAL SIGTERM")
                settings["StopSignal"] = words[0]
            case "SHELL":
                settings["Shell"] = list(words)
            case "HEALTHCHECK":
                pass  # nothing on a cluster runs it
            case _:
                raise ValueError(f"{step.name} is not a setting")

    def document(self, layers: Iterable[Layer], *, architecture: str, created: str) -> bytes:
        """The image's config as JSON. Equal states give equal bytes."""
        return codec.to_json(
            {
                **({"author": self.author} if self.author else {}),
                "architecture": architecture,
                "os": "linux",
                "created": created,
                "config": {
                    **self.execution,
                    "Env": [f"{name}={value}" for name, value in self.environment.items()],
                },
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
                "history": self.history,
            }
        )


def scratch() -> Config:
    """The config of an image without layers."""
    return Config(execution={"WorkingDir": "/"}, environment={"PATH": DEFAULT_PATH})


def of_base(data: bytes, layers: int, *, name: str) -> Config:
    """The state for a base image, from its config. Raises ImageError."""
    documents.config(data, name=name)  # checks all types
    read = json.loads(data)  # with the fields that only others know
    execution = {key: value for key, value in (read.get("config") or {}).items() if value is not None}
    history = list(read.get("history") or ())
    if not _is_text(execution):
        raise ImageError(
            f"the config of {name} has text with a NUL byte, or that is not Unicode",
            remedy="do not use this image; ask its publisher to rebuild it",
        )
    if sum(not each.get("empty_layer") for each in history) != layers:
        history = [{"created_by": f"a layer of {name}"}] * layers
    if workdir := execution.get("WorkingDir"):
        execution["WorkingDir"] = "/" + posixpath.normpath(f"/{workdir}").lstrip("/")
    settings = (entry.partition("=") for entry in execution.pop("Env", ()))
    environment = {name: value for name, _, value in settings if name}
    environment.setdefault("PATH", DEFAULT_PATH)
    created = next((str(each["created"]) for each in reversed(history) if each.get("created")), "")
    return Config(execution=execution, environment=environment, history=history, created=created)


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


def _ports(step: Instruction, word: str) -> list[str]:
    found = _PORT.fullmatch(word)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if found is None or not 0 < first <= last < 65536:
        raise step.fault(f"{quoted(word)} is not a port", remedy="EXPOSE 8080/tcp")
    kind = (found[3] or "tcp").lower()
    return [f"{port}/{kind}" for port in range(first, last + 1)]
