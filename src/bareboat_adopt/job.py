"""The keys of the job file that follow from a script that was read."""

from __future__ import annotations

import posixpath
import re

from bareboat.model.job import KEYS
from bareboat.model.variables import check_variable
from bareboat_adopt.containers import IMAGES_COMMAND, Container
from bareboat_adopt.layers import Launch
from bareboat_adopt.reading import Note, Reading, Value
from bareboat_adopt.values import ELEMENT, gap
from bareboat_base.errors import UsageError

#: The name of an array's elements in a sweep.
_ELEMENT = "element"
_SHELLS = frozenset({"bash", "sh", "dash", "ksh", "zsh", "csh", "tcsh"})
#: Names of variables whose values are not written.
SECRET = re.compile(r"\w*(?:TOKEN|KEY|PASSWORD|PASSWD|SECRET|CREDENTIAL)\w*", re.IGNORECASE)
_ORDER = ("name", "image", "entrypoint", "command", "workdir", "writable", "walltime_s", "environment_from")


def _shown(path: str, target: str) -> str:
    """A path in the job file, whose paths are relative to its directory `target`."""
    if path == target:
        return "."
    return f"./{path[len(target) + 1 :]}" if path.startswith(f"{target}/") else path


def complete(launch: Launch | None, line: int, reading: Reading, starts: str, target: str) -> None:
    """Write the keys of the program and its container; refuse values that a job file may not have.
    `starts`: the program's working directory; `target`: that of the job file."""
    values, lines = reading.values, reading.request.lines
    if launch is not None:
        _program(launch.program, line, reading)
        _container(launch.container, line, reading, starts, target)
        if reading.array:
            _sweep(reading)
        if "workdir" not in values and starts != target:
            reading.set("workdir", starts, lines.get("workdir", lines.get("starts_in", 0)))
    elif reading.array:
        reading.skip(lines["array"], f"an array of {len(reading.array)} elements")
    if "capture.python" in values:
        path, at = values["capture.python"]
        reading.set("capture.python", _shown(path, target), at)
    _check(reading)
    _check_environment(reading)
    if reading.modules and (launch is None or launch.container is None):
        text = "modules: load them also before bareboat submit, which captures the active environment"
        reading.differ(reading.modules[0].line, text)
    order = [*_ORDER, *KEYS, f"sweep.{_ELEMENT}"]
    reading.values = dict(sorted(values.items(), key=lambda item: order.index(item[0])))


def _program(program: list[str], line: int, reading: Reading) -> None:
    if not program or program == ["python"]:
        reading.refuse("the command", line, "no program is given")
    elif program != [IMAGES_COMMAND] and gap(program) is None:
        reading.set("command", program, line)
        words = program[posixpath.basename(program[0]) in _SHELLS :]
        script = next((each for each in words if not each.startswith("-")), "")
        if re.search(r"\.(sh|bash|csh|slurm|sbatch)$", script):
            reading.skip(line, f"{script} is a script that was not read: whether it starts ranks is unknown")


def _container(container: Container | None, line: int, reading: Reading, starts: str, target: str) -> None:
    """Write image, working directory and mounts."""
    if container is None:
        text = 'no container: image = "capture" takes the environment that is active when you submit'
        reading.different.insert(0, Note(line, text))
        return
    image = container.image
    if gap((image, container.mounts)) is not None:
        return
    if image.startswith(("./", "../")):
        image = _shown(posixpath.normpath(posixpath.join(starts, image)), target)
    reading.set("image", image, line)
    if container.entrypoint and not (container.entrypoint is True and "command" not in reading.values):
        reading.set("entrypoint", container.entrypoint, line)
    if container.writable:
        reading.set("writable", True, line)
    workdir = _workdir(container, reading, starts, target)
    found: dict[str, Value] = {}
    for source, inside, is_writable in container.mounts:
        if source == inside == workdir:
            continue
        shown = _shown(source, target)
        text = (shown if shown == inside else f"{shown}:{inside}") + (":rw" if is_writable else "")
        if ":" in source + inside or found.setdefault(inside, Value(text, line)).value != text:
            reading.refuse("the image", line, f"the mount {source}:{inside}: a colon, or another one there")
    reading.mounts = list(found.values())


def _workdir(container: Container, reading: Reading, starts: str, target: str) -> str:
    """The working directory on the machine; "" for the image's."""
    inside = container.workdir
    if inside is None:
        reading.set("workdir", "image", container.line)
        return ""
    if inside == ".":
        return starts
    around = [each for each in container.mounts if f"{inside}/".startswith(each[1].rstrip("/") + "/")]
    if not around:
        reading.refuse("the working directory", container.line, f"{inside} is a directory of the image")
        return ""
    source, mounted, _ = max(around, key=lambda each: len(each[1]))
    found = posixpath.normpath(source + inside[len(mounted.rstrip("/")) :])
    if found != target:
        reading.set("workdir", found, container.line)
    if found != inside:
        reading.differ(container.line, f"the working directory is {found}; {inside} shows it, too")
    return found


def _sweep(reading: Reading) -> None:
    """An array is a sweep over its numbers."""
    line = reading.request.lines.get("array", 0)
    others = [each.value for key, each in reading.values.items() if key != "command"]
    others += [each.value for each in (*reading.modules, *reading.options)]
    if ELEMENT in str(others):
        reading.refuse("the command", line, "the array's number is in a value other than the command")
        return
    places = [(reading.values, "command")] if "command" in reading.values else []
    places += [(reading.environment, name) for name in reading.environment]
    used = False
    for where, key in places:
        value, at = where[key]
        words = value if isinstance(value, list) else [value]
        used = used or any(ELEMENT in word for word in words)
        words = [re.sub(r"([{}])", r"\1\1", word).replace(ELEMENT, f"{{{_ELEMENT}}}") for word in words]
        where[key] = Value(words if isinstance(value, list) else words[0], at)
    reading.set(f"sweep.{_ELEMENT}", list(reading.array), line)
    if not used:
        reason = "an array whose program reads its number itself; pass it as an argument"
        reading.refuse("the command", line, reason)


def _check(reading: Reading) -> None:
    """Take out values that the job file's keys do not allow: they are not understood."""
    for key, value in list(reading.values.items()):
        try:
            str(value.value).encode()
            listed = tuple(value.value) if isinstance(value.value, list) else value.value
            if key in KEYS:
                KEYS[key].check_value(key, listed)
        except (UsageError, UnicodeEncodeError) as error:
            del reading.values[key]
            reason = error.message if isinstance(error, UsageError) else f"{key} is not UTF-8"
            reading.refuse("the command", value.line, reason)
    for option in list(reading.options):
        try:
            KEYS["scheduling.options"].check_value("scheduling.options", (option.value,))
        except UsageError as error:
            reading.skip(option.line, error.message)
            reading.options.remove(option)


def _check_environment(reading: Reading) -> None:
    """The same for variables; one whose value may be a secret is passed on from the shell that submits."""
    passed = reading.environment_from
    for name, (text, line) in list(reading.environment.items()):
        if SECRET.fullmatch(name):
            passed[name] = line
        try:
            check_variable(name, text)
            text.encode()
        except (UsageError, UnicodeEncodeError):
            reading.skip(line, f"{name}: no value of a variable")
            text = None
        if text is None or gap(text) is not None or name in passed:
            del reading.environment[name]
    if passed:
        reading.set("environment_from", sorted(passed), min(passed.values()))
