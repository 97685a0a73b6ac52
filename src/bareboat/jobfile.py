"""Job files: TOML -> Job. Detectable mistakes are reported before anything is done."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from bareboat import registry
from bareboat.config import Settings
from bareboat.model import (
    CaptureRequest,
    Job,
    Mount,
    ProveRequest,
    Scheduling,
    Topology,
    check_variable,
    sweep,
)
from bareboat.model.sweep import Sweep
from bareboat_base.errors import PlanError, UsageError
from bareboat_base.expressions import expression
from bareboat_base.nearest import nearest
from bareboat_base.printable import one_line
from bareboat_base.toml import Document, TomlFile

T = TypeVar("T")

_KEYS = Job.__struct_fields__
#: Tables for `bareboat prove` (bareboat_study.studyfile), which other commands ignore.
STUDY_TABLES = ("arms", "metrics")
_TABLES = {
    "topology": Topology,
    "scheduling": Scheduling,
    "capture": CaptureRequest,
    "prove": ProveRequest,
}
_CAPTURE = "capture"
#: Each key with its table, by its name and by what other tools call it.
_BY_NAME = {
    **{key: f"{table}.{key}" for table, kind in _TABLES.items() for key in kind.__struct_fields__},
    **{key: key for key in _KEYS},
    "args": "command",
    "cmd": "command",
    "cpus": "topology.cpus_per_rank",
    "cpus_per_task": "topology.cpus_per_rank",
    "env": "environment",
    "gpus": "topology.gpus_per_rank",
    "gpus_per_task": "topology.gpus_per_rank",
    "mem": "scheduling.mem_per_node_bytes",
    "memory": "scheduling.mem_per_node_bytes",
    "nproc_per_node": "topology.ranks_per_node",
    "ntasks_per_node": "topology.ranks_per_node",
    "num_nodes": "topology.nodes",
    "queue": "scheduling.partition",
    "time": "walltime_s",
    "time_limit": "walltime_s",
    "volumes": "mounts",
    "walltime": "walltime_s",
}
_STARTS_SCRIPT = expression(r"(python[0-9.]*|torchrun)")


def read_job(path: Path, settings: Settings, *, image: str | None = None) -> Job:
    """The job of a file, whose paths are relative to its directory. `image` overrides the file's.

    Raises UsageError, with the line, for unknown keys, wrong types, impossible values and missing files.
    """
    return job_of(TomlFile(path), settings, folder=path.resolve().parent, called=name_of(path), image=image)


def name_of(path: Path) -> str:
    """The name of a file's job, where no key gives one."""
    return "".join(c if c.isprintable() else "-" for c in path.stem)


def job_of(
    file: Document, settings: Settings, *, folder: Path, called: str | None = None, image: str | None = None
) -> Job:
    """The job of these keys, whose paths are relative to `folder`. `called`: its name where no key gives one;
    None: its program's. Raises UsageError."""
    values = file.values
    _check_tables(file)

    def given(key: str, kind: type[T], default: T) -> T:
        return _given(file, key, kind, default)

    image = image or given("image", str, _CAPTURE)
    if "command" not in values and image == _CAPTURE:
        raise UsageError(
            "the job has no command", context=file.name, remedy='add command = ["python", "train.py"]'
        )
    points = _sweep(file)
    workdir = _existing_workdir(file, folder)
    command = _command(file, points, workdir, image)
    entrypoint = values.get("entrypoint")
    if entrypoint is not None and not isinstance(entrypoint, bool):
        entrypoint = words_of(entrypoint, file, "entrypoint")
    environment = _environment(file, points)
    prove = values.get("prove", {})
    file.convert(prove, ProveRequest, "prove")  # first alone, because mistakes in flags are not the file's
    capture = _capture(file, folder)

    try:
        return Job(
            name=given("name", str, called or _name(command, image)),
            command=command,
            entrypoint=entrypoint,
            workdir=workdir,
            image=image,
            topology=file.convert(values.get("topology", {}), Topology, "topology"),
            mounts=_mounts(values, file, folder),
            environment=environment,
            environment_from=given("environment_from", tuple[str, ...], ()),
            walltime_s=None if "walltime_s" not in values else given("walltime_s", int, 0),
            engine=_known("engine", given("engine", str, "") or None),
            launcher=_known("launcher", given("launcher", str, "") or None),
            scheduler=_known("scheduler", given("scheduler", str, "") or None),
            scheduling=file.convert(values.get("scheduling", {}), Scheduling, "scheduling"),
            modules=given("modules", tuple[str, ...], ()),
            writable=given("writable", bool, False),
            form=given("form", str, "") or None,
            delivery=given("delivery", str, "") or UNSET,
            node_scratch=_node_scratch(given("node_scratch", str, "")),
            site_layer=UNSET if "site_layer" not in values else given("site_layer", tuple[str, ...], ()),
            fabric=given("fabric", str, "") or UNSET,
            notify=UNSET if "notify" not in values else _notify(values["notify"], file),
            # On by default.
            seccomp=UNSET if given("seccomp", bool, True) else False,
            kernel_cache=UNSET if given("kernel_cache", bool, True) else False,
            capture=capture,
            prove=file.convert(settings.over_job(prove), ProveRequest),
            sweep=points,
        )
    except UsageError as error:
        raise file.placed(error) from None


def _given(file: Document, key: str, kind: type[T], default: T) -> T:
    """The value of a key; raises UsageError for an empty one."""
    if file.values.get(key) == "":
        raise UsageError(f"{key} is empty", context=file.at(key), remedy=f"give {key} a value, or remove it")
    return file.convert(file.values[key], kind, key) if key in file.values else default


def _check_tables(file: Document) -> None:
    """Raise UsageError for an unknown key, and for a table that is none."""
    values = file.values
    file.check_keys(values, (*_KEYS, *STUDY_TABLES), elsewhere=_BY_NAME)
    for name in (*STUDY_TABLES, *_TABLES):
        if not isinstance(values.get(name, {}), dict):
            raise UsageError(f"{name} must be a table", context=file.at(name), remedy=f"write [{name}]")
    for name, kind in _TABLES.items():
        file.check_keys(values.get(name, {}), kind.__struct_fields__, name, elsewhere=_BY_NAME)


def _existing_workdir(file: Document, folder: Path) -> str | None:
    workdir = _workdir(file, folder)
    if workdir is not None and (fault := _workdir_fault(workdir)) is not None:
        raise UsageError(
            f"the working directory {workdir} {fault[0]}",
            context=file.at("workdir") if "workdir" in file.values else file.name,
            remedy=f"{fault[1]}, or correct workdir",
        )
    return workdir


def _command(file: Document, points: Sweep | UnsetType, workdir: str | None, image: str) -> tuple[str, ...]:
    """The command, whose script is there at each point of the sweep; () for the image's own."""
    values = file.values
    if "command" not in values:
        return ()
    try:
        command = words_of(values["command"], file, "command")
        for each in _at_every_point(command, points):
            check_script(each, workdir, image=image, wrapped=bool(values.get("entrypoint")))
    except UsageError as error:
        raise file.placed(error, "command") from None
    return command


def _environment(file: Document, points: Sweep | UnsetType) -> dict[str, str]:
    environment = file.convert(file.values.get("environment", {}), dict[str, str], "environment")
    for variable, value in environment.items():
        try:
            check_variable(variable, value)
            _at_every_point((value,), points)
        except UsageError as error:
            raise file.placed(error, "environment", variable) from None
    return environment


def _capture(file: Document, folder: Path) -> CaptureRequest:
    """The request with absolute paths."""
    capture = file.convert(file.values.get("capture", {}), CaptureRequest, "capture")
    try:
        return msgspec.structs.replace(
            capture,
            python=None if capture.python is None else _program(folder, capture.python),
            include=tuple(_resolved(folder, path) for path in capture.include),
            programs=UNSET
            if capture.programs is UNSET
            else tuple(_program(folder, name) for name in capture.programs),
        )
    except UsageError as error:
        raise file.placed(error) from None


def job_of_command(
    command: Sequence[str], settings: Settings, *, workdir: str, image: str | None = None
) -> Job:
    """The job of `bareboat … [--image REF] -- COMMAND`: one process, in the current directory. Without a
    command, the image's own command in its own directory."""
    if not command and image in (None, _CAPTURE):
        raise UsageError("no command after --", remedy="bareboat prove -- python train.py")
    image = image or _CAPTURE
    if command:
        check_script(tuple(command), workdir, image=image)
    return Job(
        name=_name(command, image),
        command=tuple(command),
        workdir=workdir if command else None,
        image=image,
        prove=ProveRequest(**settings.over_job({})),
    )


def _name(command: Sequence[str], image: str) -> str:
    """A job's name from its script or program, or from its image."""
    if command:
        name = os.path.basename(_script(tuple(command)) or command[0]).removesuffix(".py")
    else:
        name = os.path.basename(image).partition("@")[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "command"


def _known(kind: str, name: str | None) -> str | None:
    """The name of an engine, launcher or scheduler. Raises UsageError for an unknown one."""
    if name is not None:
        try:
            getattr(registry, kind)(name)
        except PlanError as error:
            raise UsageError(error.message, remedy=error.remedy, code=error.code, key=kind) from None
    return name


def _sweep(file: Document) -> Sweep | UnsetType:
    if "sweep" not in file.values:
        return UNSET
    if not isinstance(file.values["sweep"], dict):
        raise UsageError("sweep must be a table", context=file.at("sweep"), remedy="write [sweep]")
    try:
        return sweep.read(file.values["sweep"])
    except UsageError as error:
        raise file.placed(error, "sweep") from None


def _at_every_point(words: tuple[str, ...], points: Sweep | UnsetType) -> Iterable[tuple[str, ...]]:
    """The words as the sweep's points have them. Raises UsageError for a placeholder of no value."""
    if points is UNSET:
        return (words,)
    if not any(isinstance(part, sweep.Field) for word in words for part in sweep.parse(word, points.names)):
        return (tuple(sweep.fill(word, points, 0) for word in words),)
    return dict.fromkeys(
        tuple(sweep.fill(word, points, index) for word in words) for index in range(len(points.points))
    )


def check_script(
    command: tuple[str, ...], workdir: str | None, *, image: str = _CAPTURE, wrapped: bool = False
) -> None:
    """Raise UsageError when the command is empty, or its script is missing. `wrapped`: the command follows an
    entrypoint, and need not start with a program."""
    if not command or not command[0]:
        raise UsageError("the job has no command", remedy='set command = ["python", "train.py"]')
    if workdir is None or wrapped:
        return
    script = _script(command)
    if script is not None and script.startswith("/") and image != _CAPTURE:
        return  # it may be in the image
    if script is not None and not os.path.exists(os.path.join(workdir, script)):
        raise UsageError(
            f"{one_line(script)} not found in {one_line(workdir)}",
            remedy=_likeliest(script, os.path.dirname(os.path.join(workdir, script))),
        )


def _likeliest(script: str, folder: str) -> str:
    """The remedy for a script that is missing from the directory."""
    place, name = os.path.split(script)
    try:
        ending = os.path.splitext(name)[1]
        found = nearest(name, (each for each in os.listdir(folder) if each.endswith(ending)))
    except OSError:
        found = None
    if found is not None:
        return f"did you mean {one_line(os.path.join(place, found))}?"
    return f"ls {shlex.quote(folder)}   # then correct the command or workdir"


def _script(command: tuple[str, ...]) -> str | None:
    """The path that the command starts; None where it starts a program by its name."""
    if "/" in command[0]:
        return command[0]
    if _STARTS_SCRIPT.fullmatch(command[0]) and "-m" not in command[:2] and "-c" not in command[:2]:
        return next((word for word in command[1:] if word.endswith(".py")), None)
    return None


def _workdir(file: Document, folder: Path) -> str | None:
    """None: the image's own directory, which is the default for the image's own command."""
    text = file.convert(
        file.values.get("workdir", "." if "command" in file.values else "image"), str, "workdir"
    )
    if not text.strip():
        raise UsageError(
            "workdir is empty",
            context=file.at("workdir"),
            remedy='set workdir = "." (the directory of the job file) or workdir = "image"',
        )
    return None if text == "image" else _resolved(folder, text)


def words_of(value: Any, file: Document, key: str) -> tuple[str, ...]:
    """The words of a command: a list, or text that is split as a shell splits it. Raises UsageError."""
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise UsageError(
                f"the {key} cannot be split into words: {error}",
                remedy='write it as a list: ["python", "train.py"]',
            ) from None
    return file.convert(value, tuple[str, ...], key)


def _notify(value: Any, file: Document) -> str | tuple[str, ...]:
    """Also `{command = […]}`."""
    if isinstance(value, dict) and tuple(value) == ("command",):
        value = value["command"]
        return words_of(value, file, "notify")
    return value if isinstance(value, str) else file.convert(value, tuple[str, ...], "notify")


def _mounts(values: dict[str, Any], file: Document, folder: Path) -> tuple[Mount, ...]:
    mounts = []
    for text in file.convert(values.get("mounts", []), list[str], "mounts"):
        try:
            mount = parse_mount(text, folder)
        except UsageError as error:
            raise file.placed(error, "mounts") from None
        mounts.append(mount)
    return tuple(mounts)


def parse_mount(text: str, folder: Path) -> Mount:
    """`SOURCE`, `SOURCE:TARGET`, or either followed by `:rw` or `:ro`. The source must exist."""
    parts = text.split(":")
    mode = parts.pop() if len(parts) > 1 and parts[-1] in ("rw", "ro") else "ro"
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise UsageError(
            f"{text!r} is not a mount",
            remedy='write mounts as "SOURCE", "SOURCE:TARGET" or "SOURCE:TARGET:rw"',
        )
    source = _resolved(folder, parts[0])
    if not os.path.exists(source):
        raise UsageError(f"the mount source {source} does not exist", remedy=f"ls -d {shlex.quote(source)}")
    # Normal, because the planner compares targets to find what hides what.
    target = os.path.normpath(os.path.expanduser(parts[1])) if len(parts) == 2 else source
    return Mount(source=source, target=target, writable=mode == "rw")


def _resolved(folder: Path, path: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _program(folder: Path, name: str) -> str:
    """A program given as a path is relative to the job file; a bare name is looked up on PATH later."""
    return _resolved(folder, name) if "/" in name else name


def _workdir_fault(path: str) -> tuple[str, str] | None:
    """Why a command cannot run in a directory, as the end of a sentence, and the remedy; None: it can."""
    quoted = shlex.quote(path)
    if os.path.isdir(path):
        return None if os.access(path, os.X_OK) else ("cannot be entered", f"chmod u+rx {quoted}")
    if os.path.exists(path):
        return "is a file", f"ls -l {quoted}"
    return "does not exist", f"mkdir -p {quoted}"


def _node_scratch(path: str) -> str | UnsetType:
    """The path without a slash at its end; "/" itself stays, and is refused."""
    return (path.rstrip("/") or "/") if path else UNSET
