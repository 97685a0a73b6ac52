"""Job files: TOML -> Job. Detectable mistakes are reported before anything is done."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from bareboat import commands, gone, registry
from bareboat.config import Settings
from bareboat.model import CaptureRequest, Job, Mount, ProveRequest, check_variable, sweep
from bareboat.model.job import KEYS, TABLES
from bareboat.model.keys import keys_of
from bareboat.model.sweep import Sweep
from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line, quoted
from bareboat_base.toml import Document, TomlFile

#: Tables for `bareboat prove` (bareboat_study.studyfile), which other commands ignore.
STUDY_TABLES = ("arms", "metrics")
_CAPTURE = "capture"
#: Of a file or a directory, in bytes (NAME_MAX).
_LONGEST_NAME = 255
#: Each key with its table, by its last name and by what other tools call it.
BY_NAME = {name: full for full, key in KEYS.items() for name in (full.rpartition(".")[2], *key.aliases)}


def read_job(
    path: Path, settings: Settings, *, image: str | None = None, assignments: Iterable[str] = ()
) -> Job:
    """The job of a file, whose paths are relative to its directory. `image` and `assignments` (`set_keys`)
    override the file's keys.

    Raises UsageError, with the line, for unknown keys, wrong types, impossible values and missing files.
    """
    file = TomlFile(path)
    set_keys(file, assignments)
    return job_of(file, settings, folder=path.resolve().parent, called=name_of(path), image=image)


def name_of(path: Path) -> str:
    """The name of a file's job, where no key gives one."""
    return "".join(c if c.isprintable() else "-" for c in path.stem)


def job_of(
    file: Document, settings: Settings, *, folder: Path, called: str | None = None, image: str | None = None
) -> Job:
    """The job of these keys, whose paths are relative to `folder`. `called`: its name where no key gives one;
    None: its program's. Raises UsageError."""
    _check_tables(file)
    file = merged(file, settings)
    values = file.values
    image = image or _value(file, "image", str) or _CAPTURE
    if "command" not in values and image == _CAPTURE:
        raise UsageError(
            "the job has no command", context=file.name, remedy='add command = ["python", "train.py"]'
        )
    points = _sweep(file)
    workdir = _existing_workdir(file, folder)
    command = _command(file, points, workdir, image)
    goals = values.get("prove", {}).get("goals", {})
    file.convert(goals, dict[str, float], "prove", "goals")  # whose error has its line
    read: dict[str, Any] = {
        "name": called or _name(command, image),
        "command": command,
        "entrypoint": _entrypoint(file),
        "workdir": workdir,
        "image": image,
        "mounts": _mounts(values, file, folder),
        "environment": _environment(file, points),
        "capture": _capture(file, folder, is_used=image == _CAPTURE),
        "prove": file.convert(values.get("prove", {}), ProveRequest, "prove"),
        "sweep": points,
    }
    rest = {
        name: _value(file, name, key.type)
        for name, key in keys_of(Job).items()
        if name in values and (name not in read or name == "name")
    }
    if rest.get("node_scratch"):
        rest["node_scratch"] = rest["node_scratch"].rstrip("/") or "/"  # which is refused
    try:
        job = Job(**read | rest)
        for kind in ("engine", "launcher", "scheduler"):
            if (name := getattr(job, kind)) is not None:
                registry.check(kind, name, called=file.called(kind))
        if job.site_layer:
            from bareboat.mpi.site_layer import read_wish  # here, because few jobs have one

            read_wish(job.site_layer, called=file.called("site_layer"))
    except UsageError as error:
        raise file.placed(error) from None
    return job


def merged(file: Document, settings: Settings) -> Document:
    """The document with what the settings give its keys, below its own or over them."""
    whole = file.copied()
    for name, value, setting in settings.of_job({name for name in KEYS if file.has(*name.split("."))}):
        whole.put(tuple(name.split(".")), value, setting.source, called=setting.called(name))
    return whole


def _value(file: Document, key: str, hint: Any) -> Any:
    """The value of a key, None where the file has none; raises UsageError for an empty one."""
    if file.values.get(key) == "" and str in (hint, *get_args(hint)) and key in ranges.ALLOWED:
        remedy = f"{ranges.setting(file.called(key), ranges.ALLOWED[key][1])}, or remove it"
        raise UsageError(f"{file.called(key)} is empty", context=file.at(key), remedy=remedy)
    return file.convert(file.values[key], hint, key) if key in file.values else None


def _check_tables(file: Document) -> None:
    """Raise UsageError for an unknown key, and for a table that is none."""
    values = file.values
    for table, value in (("", values), *values.items()):
        for name in value if isinstance(value, dict) else ():
            keys = tuple(filter(None, (table, name)))
            gone.refuse(".".join(keys), functools.partial(file.at, *keys))
    file.check_keys(values, (*Job.__struct_fields__, *STUDY_TABLES), elsewhere=BY_NAME)
    for name in (*STUDY_TABLES, *TABLES):
        if not isinstance(values.get(name, {}), dict):
            raise file.no_table(name)
    for name, kind in TABLES.items():
        file.check_keys(values.get(name, {}), kind.__struct_fields__, name, elsewhere=BY_NAME)


def _existing_workdir(file: Document, folder: Path) -> str | None:
    workdir = _workdir(file, folder)
    if workdir is not None and (fault := _workdir_fault(workdir)) is not None:
        is_set = "workdir" in file.values
        instead = ranges.setting(file.called("workdir"), '"."')
        raise UsageError(
            f"the working directory {one_line(workdir)} {fault[0]}",
            context=file.at("workdir") if is_set else file.name,
            remedy=f"{fault[1]}, or {instead}" if fault[1] else instead,
        )
    return workdir


def _command(file: Document, points: Sweep | None, workdir: str | None, image: str) -> tuple[str, ...]:
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


def _environment(file: Document, points: Sweep | None) -> dict[str, str]:
    environment = file.convert(file.values.get("environment", {}), dict[str, str], "environment")
    for variable, value in environment.items():
        try:
            check_variable(variable, value)
            _at_every_point((value,), points)
        except UsageError as error:
            raise file.placed(error, "environment", variable) from None
    return environment


def _capture(file: Document, folder: Path, *, is_used: bool) -> CaptureRequest:
    """The request with absolute paths."""
    capture = file.convert(file.values.get("capture", {}), CaptureRequest, "capture")
    for path in capture.include if is_used else ():
        _check_included(file, folder, path, capture.include)
    resolve = {"path": _resolved, "program": _program}
    changes: dict[str, Any] = {}
    for name, key in keys_of(CaptureRequest).items():
        value = getattr(capture, name)
        if key.path and value is not None:
            of = functools.partial(resolve[key.path], folder)
            changes[name] = of(value) if isinstance(value, str) else tuple(map(of, value))
    try:
        return msgspec.structs.replace(capture, **changes)
    except UsageError as error:
        raise file.placed(error) from None


def _check_included(file: Document, folder: Path, path: str, included: Sequence[str]) -> None:
    """Raise UsageError for a missing file."""
    if os.path.exists(_resolved(folder, path)):
        return
    name = file.called("capture", "include")
    raise UsageError(
        f"{name} has {quoted(path, limit=100)}, to be added to the capture, which does not exist",
        context=file.at("capture", "include"),
        remedy=ranges.setting(name, [each for each in included if each != path]),
    )


def job_of_command(
    command: Sequence[str],
    settings: Settings,
    *,
    workdir: str,
    image: str | None = None,
    assignments: Iterable[str] = (),
) -> Job:
    """The job of `bareboat … [--image REF] -- COMMAND`: one process, in the current directory. Without a
    command, the image's own command in its own directory."""
    if not command and image in (None, _CAPTURE):
        raise UsageError("no command after --", remedy="bareboat prove -- python train.py")
    if command and not command[0]:
        raise UsageError(
            "no command after --: its first word is empty; check that your environment variables are set",
            remedy="bareboat prove -- python train.py",
        )
    document = Document({"command": list(command)} if command else {}, "")
    set_keys(document, assignments)
    return job_of(document, settings, folder=Path(workdir), image=image)


def set_keys(file: Document, assignments: Iterable[str]) -> None:
    """Set the keys of `--set KEY=VALUE`, as if the file had these values. Raises UsageError."""
    for assignment in assignments:
        keys, value = assigned(assignment)
        file.put(keys, value, f"--set {one_line(assignment)}", called=f"--set {'.'.join(keys)}")
        key = KEYS.get(".".join(keys))
        if key is None or not (key.range or key.values or key.check):
            continue
        try:
            value = file.convert(functools.reduce(operator.getitem, keys, file.values), key.type, *keys)
            key.check_value(f"--set {assignment.partition('=')[0].strip()}", value)
        except UsageError as error:
            raise file.placed(error, *keys) from None


def assigned(assignment: str) -> tuple[tuple[str, ...], Any]:
    """The key and the value of KEY=VALUE. KEY is a key with its table, or its name alone; VALUE is TOML, or
    text without quotes. Raises UsageError where it is no assignment."""
    name, equals, written = (part.strip() for part in assignment.partition("="))
    if not (name and equals and written):
        raise UsageError(
            f"--set is {quoted(assignment)}; it must be KEY=VALUE", remedy="--set topology.nodes=2"
        )
    full = name if name in KEYS else BY_NAME.get(name, name)
    table = full.partition(".")[0]
    kind = KEYS[full].type if full in KEYS else str if table == "environment" else Any
    value: Any = written
    if kind not in (str, str | None):
        import tomllib  # few command lines have --set

        with contextlib.suppress(ValueError, RecursionError):
            value = tomllib.loads(f"value = {written}")["value"]
    elif written[0] in "\"'" and written[0] == written[-1]:
        value = written[1:-1]
    is_list = tuple in {get_origin(each) for each in (kind, *get_args(kind))}
    if is_list and not (full in KEYS and KEYS[full].is_words) and not isinstance(value, list):
        value = [value if isinstance(value, str) else written]
    return tuple(full.split(".", 1) if table in ("environment", "sweep") else full.split(".")), value


def _name(command: Sequence[str], image: str) -> str:
    """A job's name from its script or program, or from its image."""
    if command:
        name = os.path.basename(
            commands.file(command) or (commands.program(command) or command)[0]
        ).removesuffix(".py")
    else:
        name = os.path.basename(image).partition("@")[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "command"


def _sweep(file: Document) -> Sweep | None:
    if "sweep" not in file.values:
        return None
    if not isinstance(file.values["sweep"], dict):
        raise file.no_table("sweep")
    try:
        return sweep.read(file.values["sweep"])
    except UsageError as error:
        raise file.placed(error, "sweep") from None


def _at_every_point(words: tuple[str, ...], points: Sweep | None) -> Iterable[tuple[str, ...]]:
    """The words as the sweep's points have them. Raises UsageError for a placeholder of no value."""
    if points is None:
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
    for script in _paths(command):
        if (script.startswith("/") and image != _CAPTURE) or os.path.exists(os.path.join(workdir, script)):
            continue  # it may be in the image
        raise UsageError(
            f"{one_line(script)} not found in {one_line(workdir)}",
            remedy=f"ls {shlex.quote(os.path.dirname(os.path.normpath(os.path.join(workdir, script))))}"
            "   # then correct the command or workdir",
        )


def _paths(command: tuple[str, ...]) -> Iterator[str]:
    """The program and the script that the command starts, where they are paths and not looked for on PATH."""
    if "/" in command[0]:
        yield command[0]
    script = commands.file(command)
    if script is not None and ("/" in script or not commands.is_shell(commands.program(command)[0])):
        yield script


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
        except ValueError:
            raise UsageError(
                f"{file.called(key)} is {quoted(value)}, in which a quotation mark is not closed",
                remedy=f"close it, or write a list: {ranges.setting(key, ranges.ALLOWED[key][1])}",
            ) from None
    return file.convert(value, tuple[str, ...], key)


def _entrypoint(file: Document) -> bool | tuple[str, ...] | None:
    value = file.values.get("entrypoint")
    return value if value is None or isinstance(value, bool) else words_of(value, file, "entrypoint")


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
    """`SOURCE`, `SOURCE:TARGET`, or either followed by `:rw` or `:ro`."""
    parts = text.split(":")
    mode = parts.pop() if len(parts) > 1 and parts[-1] in ("rw", "ro") else "ro"
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise UsageError(
            f"mounts has {quoted(text)}, which is not a mount",
            remedy='write it as "SOURCE:TARGET" or "SOURCE:TARGET:rw", such as "/tmp:/data"',
        )
    if "\0" in text:
        raise UsageError(
            f"mounts has {quoted(text)}, with a NUL byte, which no path has",
            remedy="write it without \\u0000",
        )
    source = _resolved(folder, parts[0])
    # Normal, because the planner compares targets to find what hides what.
    target = os.path.normpath(os.path.expanduser(parts[1])) if len(parts) == 2 else source
    if not target.startswith("/"):
        meant = ":".join([parts[0], f"/{target}", *([mode] if mode == "rw" else [])])
        raise UsageError(
            f"mounts has {quoted(text)}, whose target {quoted(target)} is not absolute",
            remedy=f'write it as "{meant}"',
        )
    return Mount(source=source, target=target, writable=mode == "rw")


def _resolved(folder: Path, path: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _program(folder: Path, name: str) -> str:
    """A program given as a path is relative to the job file; a bare name is looked up on PATH later."""
    return _resolved(folder, name) if "/" in name else name


def _workdir_fault(path: str) -> tuple[str, str] | None:
    """Why a command cannot run in a directory, as the end of a sentence, and the remedy; None: it can."""
    name = shlex.quote(path)
    if os.path.isdir(path):
        return None if os.access(path, os.X_OK) else ("cannot be entered", f"chmod u+rx {name}")
    if "\0" in path:
        return "has a NUL byte, which no path has", ""
    if max(map(len, os.fsencode(path).split(b"/"))) > _LONGEST_NAME:
        return f"has a name of more than {_LONGEST_NAME} bytes", ""
    if os.path.exists(path):
        return "is a file", ""
    return "does not exist", f"mkdir -p {name}" if path.isprintable() else ""
