"""The keys of the job file that follow from a script that was read."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from bareboat.model.job import KEYS
from bareboat.model.variables import check_variable
from bareboat_adopt.containers import IMAGES_COMMAND, Container
from bareboat_adopt.layers import Launch
from bareboat_adopt.reading import Note, Reading, Value
from bareboat_adopt.values import ELEMENT, gap
from bareboat_base.errors import UsageError

#: The name of an array's elements in a sweep.
_ELEMENT = "element"
_ELEMENTS = {"slurm": "SLURM_ARRAY_TASK_ID", "pbs": "PBS_ARRAY_INDEX", "gridengine": "SGE_TASK_ID",
             "lsf": "LSB_JOBINDEX"}  # fmt: skip
_SHELLS = frozenset({"bash", "sh", "dash", "ksh", "zsh", "csh", "tcsh"})
_SECRET = re.compile(r".*(_TOKEN|_KEY|_PASSWORD|_SECRET)")
_ORDER = ("name", "image", "entrypoint", "command", "workdir", "writable", "walltime_s", "environment_from")


class Job(Struct, kw_only=True):
    """What the job file holds. `old`: the file that was read; `scheduler`: that of its directives, or ""."""

    old: str
    scheduler: str
    verdict: str
    values: dict[str, Value]
    environment: dict[str, Value]
    mounts: list[Value]
    modules: list[Value]
    options: list[Value]
    unread: list[Note]
    different: list[Note]
    left: list[int]
    refusals: dict[str, list[Note]] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The same for programs."""
        values = {key: value.value for key, value in self.values.items()}
        return {
            "from": self.old,
            "scheduler": self.scheduler,
            "understood": self.verdict,
            **{key.rpartition(".")[2]: value for key, value in values.items()},
            "mounts": [each.value for each in self.mounts],
            "modules": [each.value for each in self.modules],
            "environment": {name: value.value for name, value in self.environment.items()},
            "options": [each.value for each in self.options],
            "refused": [
                [note.line, f"{subject}: {note.text}"]
                for subject, found in self.refusals.items()
                for note in found
            ],
            "not_understood": [[note.line, note.text] for note in sorted(self.unread)],
            "different": [[note.line, note.text] for note in sorted(self.different)],
        }


class Place(Struct, frozen=True):
    """Where the old job lies and starts, and where the job file will lie; absolute. `base`: the old script's
    directory; `starts`: the working directory that its program has."""

    base: str
    starts: str
    target: str

    def shown(self, path: str) -> str:
        """A path in the job file, whose paths are relative to it."""
        if path == self.target:
            return "."
        return f"./{path[len(self.target) + 1 :]}" if path.startswith(f"{self.target}/") else path


def made(launch: Launch | None, line: int, reading: Reading, place: Place, old: str) -> Job:
    """The job; refused where a value is none that a job file may have."""
    mounts: list[Value] = []
    if launch is not None:
        _program(launch, line, reading)
        mounts = _container(launch.container, line, reading, place)
        if reading.array:
            _sweep(reading)
    elif reading.array:
        reading.skip(reading.request.lines["array"], f"an array of {len(reading.array)} elements")
    if "workdir" not in reading.values and place.starts != place.target and launch is not None:
        reading.set(
            "workdir",
            place.starts,
            reading.request.lines.get("workdir", reading.request.lines.get("starts_in", 0)),
        )
    if "capture.python" in reading.values:
        path, at = reading.values["capture.python"]
        reading.set("capture.python", place.shown(path), at)
    _check(reading)
    if reading.modules and (launch is None or launch.container is None):
        reading.differ(
            reading.modules[0].line,
            "modules: load them also before bareboat submit, which captures the active environment",
        )
    order = {key: number for number, key in enumerate(dict.fromkeys((*_ORDER, *KEYS)))}
    return Job(
        old=old,
        scheduler=reading.request.scheduler,
        verdict=reading.verdict,
        values={
            key: reading.values[key] for key in sorted(reading.values, key=lambda key: order.get(key, 99))
        },
        environment=reading.environment,
        mounts=mounts,
        modules=reading.modules,
        options=reading.options,
        unread=reading.unread,
        different=reading.different,
        left=reading.left,
        refusals=reading.refusals,
    )


def _program(launch: Launch, line: int, reading: Reading) -> None:
    if not launch.program or launch.program == ["python"]:
        reading.refuse("the command", line, "no program is given")
    elif launch.program != [IMAGES_COMMAND] and gap(launch.program) is None:
        reading.set("command", list(launch.program), line)
        script = _script(launch.program)
        if script:
            reading.skip(line, f"{script} is a script that was not read: whether it starts ranks is unknown")


def _script(program: list[str]) -> str:
    """The shell script that the program is or that its shell runs; "" if it is none."""
    words = program[1:] if posixpath.basename(program[0]) in _SHELLS else program
    word = next((each for each in words if not each.startswith("-")), "")
    return word if re.search(r"\.(sh|bash|csh|slurm|sbatch)$", word) else ""


def _container(container: Container | None, line: int, reading: Reading, place: Place) -> list[Value]:
    """Write image, working directory and so on; returns the mounts."""
    if container is None:
        reading.different.insert(
            0,
            Note(
                line, 'no container: image = "capture" takes the environment that is active when you submit'
            ),
        )
        return []
    image = container.image
    if gap((image, container.mounts)) is not None:
        return []
    if image.startswith(("./", "../")):
        image = place.shown(posixpath.normpath(posixpath.join(place.starts, image)))
    reading.set("image", image, line)
    if container.entrypoint and not (container.entrypoint is True and "command" not in reading.values):
        reading.set(
            "entrypoint",
            container.entrypoint,
            line,
        )
    if container.writable:
        reading.set("writable", True, line)
    workdir = _workdir(container, reading, place)
    found: dict[str, Value] = {}
    for source, target, is_writable in container.mounts:
        if source == target == workdir:
            continue
        if ":" in source + target:
            reading.skip(line, f"the mount {source}:{target}: a colon in a path")
            continue
        shown = place.shown(source)
        text = (shown if shown == target else f"{shown}:{target}") + (":rw" if is_writable else "")
        if found.setdefault(target, Value(text, line)).value != text:
            reading.refuse("the image", line, f"two mounts on {target}")
    return list(found.values())


def _workdir(container: Container, reading: Reading, place: Place) -> str:
    """The working directory on the machine; "" for the image's."""
    inside = container.workdir
    if inside is None:
        reading.set("workdir", "image", container.line)
        return ""
    if inside == ".":
        return place.starts
    around = [
        each for each in container.mounts if inside == each[1] or inside.startswith(each[1].rstrip("/") + "/")
    ]
    if not around:
        reading.refuse("the working directory", container.line, f"{inside} is a directory of the image")
        return ""
    source, target, _ = max(around, key=lambda each: len(each[1]))
    found = posixpath.normpath(source + inside[len(target.rstrip("/")) :])
    if found != place.target:
        reading.set("workdir", found, container.line)
    if found != inside:
        reading.differ(
            container.line, f"the working directory is {found} by its own path; {inside} shows it, too"
        )
    return found


def _sweep(reading: Reading) -> None:
    """An array is a sweep over its numbers."""
    line = reading.request.lines.get("array", 0)
    if any(ELEMENT in str(each.value) for each in (*reading.modules, *reading.options)) or any(
        ELEMENT in str(value.value) for key, value in reading.values.items() if key != "command"
    ):
        reading.refuse("the command", line, "the array's number is in a value other than the command")
        return
    used = False
    for where, key in (
        (reading.values, "command"),
        *((reading.environment, name) for name in list(reading.environment)),
    ):
        if key not in where:
            continue
        value = where[key]
        words = value.value if isinstance(value.value, list) else [value.value]
        used = used or any(ELEMENT in word for word in words)
        words = [re.sub(r"([{}])", r"\1\1", word).replace(ELEMENT, f"{{{_ELEMENT}}}") for word in words]
        where[key] = Value(words if isinstance(value.value, list) else words[0], value.line)
    reading.set(f"sweep.{_ELEMENT}", list(reading.array), line)
    if not used:
        name = _ELEMENTS.get(reading.request.scheduler, "")
        reading.refuse(
            "the command",
            line,
            f"an array whose program reads {name or 'its number'} itself; pass the number as an argument",
        )


def _check(reading: Reading) -> None:
    """Take out values that the job file's keys do not allow: they are not understood."""
    for key, value in list(reading.values.items()):
        if "\udc80" <= max(str(value.value), default="") <= "\udcff":
            reading.refuse("the command", value.line, f"{key} is not UTF-8")
            del reading.values[key]
        elif key in KEYS:
            try:
                KEYS[key].check_value(
                    key, tuple(value.value) if isinstance(value.value, list) else value.value
                )
            except UsageError as error:
                del reading.values[key]
                reading.refuse("the command", value.line, error.message)
    for name, value in list(reading.environment.items()):
        if gap(value.value) is not None:  # the command is refused for it
            del reading.environment[name]
            continue
        if _SECRET.fullmatch(name):
            del reading.environment[name]
            reading.differ(
                value.line, f"{name} may be a secret: its value comes from your shell, by environment_from"
            )
            kept_names = reading.values.get("environment_from", Value([], value.line))
            reading.set("environment_from", [*kept_names.value, name], kept_names.line)
            continue
        try:
            check_variable(name, value.value)
            value.value.encode()
        except (UsageError, UnicodeEncodeError) as fault:
            del reading.environment[name]
            reading.skip(
                value.line, f"{name}: {fault.message if isinstance(fault, UsageError) else 'not UTF-8'}"
            )
    kept: list[Value] = []
    for option in reading.options:
        try:
            KEYS["scheduling.options"].check_value("scheduling.options", (option.value,))
            kept.append(option)
        except UsageError as error:
            reading.skip(option.line, error.message)
    reading.options = kept


def plain_environment(outside: Mapping[str, str]) -> dict[str, str]:
    """The variables of the shell that a submitted script would have, without those of an allocation."""
    of_jobs = ("SLURM_", "PBS_", "SGE_", "LSB_", "LS_", "FLUX_", "OMPI_", "PMI_", "PMIX_", "BAREBOAT_")
    return {
        name: text
        for name, text in outside.items()
        if not name.startswith(of_jobs) and name not in ("PWD", "NSLOTS")
    }
