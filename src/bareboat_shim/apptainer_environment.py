"""The environment variables of a command in a container of Apptainer.

https://apptainer.org/docs/user/main/environment_and_metadata.html
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bareboat_shim import pmix
from bareboat_shim.table import Line, Malformed, Mistake

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Values for the container by the names of their variables; the last prefix has priority.
_PREFIXES = ("SINGULARITYENV_", "APPTAINERENV_")
_OWN = ("HOME", "PATH", "LD_LIBRARY_PATH")
#: Passed on in a clean environment, too.
_ALWAYS = ("TERM", *(f"{kind}_proxy" for kind in ("http", "https", "no", "all", "ftp")))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Prefix of the variables that carry values past the image's scripts.
_CARRIER = "BAREBOAT_SHIM_"
_SCRIPTS = "/.singularity.d/env"


class Start(NamedTuple):
    """A command with its environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


def is_clean(line: Line) -> bool:
    """Whether the shell's variables are left out."""
    return any(line.has(key) for key in ("cleanenv", "containall", "compat"))


def environment(
    line: Line, outside: Mapping[str, str], image: Mapping[str, str], *, home: str, name: str, path: str
) -> tuple[dict[str, str], dict[str, str]]:
    """The variables before the image's scripts, and those that override them. `image`: what its configuration
    sets; `name`: of the container's file; `path`: that file. Raises Mistake."""
    clean = is_clean(line)
    always = {each for name in _ALWAYS for each in (name, name.upper())}
    kept = {
        name: value
        for name, value in outside.items()
        if (not clean or name in always) and name not in _OWN and not name.startswith(_PREFIXES)
    }
    forced = _forced(line, outside)
    values = {**({} if clean else pmix.settings(outside)), **_without(image, _OWN), **kept}
    values |= {"HOME": home, "PATH": image.get("PATH", DEFAULT_PATH)}
    if clean:
        values.setdefault("LANG", "C")
    if "LD_LIBRARY_PATH" in image:
        values["LD_LIBRARY_PATH"] = image["LD_LIBRARY_PATH"]
    if not clean and "PATH" in outside:
        values["USER_PATH"] = outside["PATH"]
    values |= {
        "APPTAINER_COMMAND": line.verb.name,
        "APPTAINER_APPNAME": "",
        "PS1": "Apptainer> ",
        "PROMPT_COMMAND": 'PS1="Apptainer> "; unset PROMPT_COMMAND',
    }
    for prefix in ("APPTAINER", "SINGULARITY"):
        values |= {
            f"{prefix}_CONTAINER": path,
            f"{prefix}_NAME": name,
            f"{prefix}_BIND": ",".join(line.values("bind")),
            f"{prefix}_ENVIRONMENT": "/.singularity.d/env/91-environment.sh",
        }
    return values, _with_paths(forced, values["PATH"])


def _without(values: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in names}


def _forced(line: Line, outside: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for prefix in _PREFIXES:
        found |= {
            name.removeprefix(prefix): value
            for name, value in outside.items()
            if name.startswith(prefix) and name != prefix
        }
    for file in line.values("env-file"):
        found |= _of_file(file, outside)
    for value in line.values("env"):
        found |= _pairs(value)
    return found


def _pairs(text: str) -> dict[str, str]:
    """`A=1,B=2`; a part without `=` belongs to the value before it."""
    found: dict[str, str] = {}
    last = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and _NAME.fullmatch(name):
            last, found[name] = name, value
        elif last:
            found[last] += f",{part}"
        else:
            raise Malformed(f"--env {text}: {part} must be formatted as key=value", "--env NAME=VALUE")
    return found


def _of_file(path: str, outside: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file: lines NAME=VALUE, with quotes as in a shell and references to other
    variables."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            rows = stream.read().split("\n")
    except OSError as error:
        raise Mistake(
            f"could not read the environment file {path}: {error.strerror}", f"ls -l {shlex.quote(str(path))}"
        ) from None
    found: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        text = row.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise Mistake(f"{path}, line {number}: not NAME=VALUE", f"correct line {number} of {path}")
        if any(mark in value for mark in ("$(", "`")):
            raise Mistake(f"{path}, line {number}: commands are not run", "write their result")
        found[name] = _unquoted(value, {**outside, **found}, f"{path}, line {number}")
    return found


def _unquoted(text: str, known: Mapping[str, str], where: str) -> str:
    if text.startswith("'"):
        return _words(text, where)
    expanded = re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda match: known.get(match[1] or match[2], ""), text)
    return _words(expanded, where)


def _words(text: str, where: str) -> str:
    try:
        return " ".join(shlex.split(text, comments=False))
    except ValueError:
        raise Mistake(f"{where}: a quote is not closed", "close it") from None


def _with_paths(forced: dict[str, str], path: str) -> dict[str, str]:
    """The values, with PREPEND_PATH and APPEND_PATH applied to PATH."""
    before, after = forced.pop("PREPEND_PATH", None), forced.pop("APPEND_PATH", None)
    if before is None and after is None:
        return forced
    return {**forced, "PATH": ":".join(filter(None, (before, forced.get("PATH", path), after)))}


def started(
    command: Sequence[str], values: Mapping[str, str], forced: Mapping[str, str], *, scripts: bool
) -> Start:
    """The command with its environment; where the image has `scripts` that set variables, a shell of the
    image sources them first, as Apptainer's does."""
    if not scripts:
        return Start(tuple(command), {**values, **forced})
    named = [name for name in forced if _NAME.fullmatch(name)]
    carried = {f"{_CARRIER}{number}": forced[name] for number, name in enumerate(named)}
    lines = [
        f'for script in {_SCRIPTS}/*.sh; do [ ! -f "$script" ] || . "$script"; done; unset script',
        *(
            f'export {name}="${_CARRIER}{number}"; unset {_CARRIER}{number}'
            for number, name in enumerate(named)
        ),
        'exec "$@"',
    ]
    others = _without(forced, named)
    return Start(("/bin/sh", "-c", "\n".join(lines), "sh", *command), {**values, **others, **carried})
