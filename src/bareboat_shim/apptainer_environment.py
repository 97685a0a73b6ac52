"""The environment variables of a command in a container of Apptainer.

https://apptainer.org/docs/user/main/environment_and_metadata.html
"""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bareboat_shim import pmix, table
from bareboat_shim.table import Line, Malformed, Mistake

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Values for the container by the names of their variables; the last prefix has priority.
_PREFIXES = ("SINGULARITYENV_", "APPTAINERENV_")
#: Variables that change PATH, in the order in which they apply -> what they do to it.
_PATHS = {"PREPEND_PATH": r"PATH={}:\$PATH", "APPEND_PATH": r"PATH=\$PATH:{}", "PATH": "PATH={}"}
_OWN = ("HOME", "PATH", "LD_LIBRARY_PATH")
#: Passed on in a clean environment, too.
_ALWAYS = ("TERM", *(f"{kind}_proxy" for kind in ("http", "https", "no", "all", "ftp")))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What Apptainer's own search path ends with.
_USER_PATH = ":/bin:/usr/bin:/sbin:/usr/sbin:/usr/local/bin:/usr/local/sbin"
_LIBRARIES = "/.singularity.d/libs"
#: Prefix of the variables that carry the shell's values past the image's scripts.
_CARRIER = "BAREBOAT_SHIM_"
#: The shell's variables that the image's scripts see.
_SEEN = ("HOME", "PWD", "OPTIND", "UID", "GID")
_SCRIPTS = f"""\
for script in /.singularity.d/env/*.sh; do
  [ -f "$script" ] || continue
  . "$script"
  case $script in */10-docker2singularity.sh | */10-docker.sh)
    for folder in {DEFAULT_PATH.replace(":", " ")}; do
      case ":$PATH:" in *":$folder:"*) ;; *) PATH=$PATH:$folder ;; esac
    done ;;
  esac
done
unset script folder"""
#: For a variable of the shell: it has no value yet, or it is removed where the image sets an empty one.
_RESTORE = """\
for name in {names}; do
  eval "
    if [ -z \\"\\${{$name+x}}\\" ]; then export $name=\\"\\${carrier}$name\\"
    elif [ -z \\"\\$$name\\" ]; then unset $name; fi
    unset {carrier}$name"
done
unset name"""


class Start(NamedTuple):
    """A command with its environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


def is_clean(line: Line) -> bool:
    """Whether the shell's variables are left out."""
    return any(line.has(key) for key in ("cleanenv", "containall", "compat"))


class Variables(NamedTuple):
    """Of a container: its `own`, those of the `shell`, which apply where the image sets none, and those
    that a flag or a variable sets."""

    own: dict[str, str]
    shell: dict[str, str]
    forced: dict[str, str]


def environment(
    line: Line, outside: Mapping[str, str], image: Mapping[str, str], *, home: str, name: str, path: str
) -> Variables:
    """`image`: what its configuration sets; `name`: of the container's file; `path`: that file. Raises
    Mistake."""
    clean = is_clean(line)
    always = {each for name in _ALWAYS for each in (name, name.upper())}
    shell = {
        name: value
        for name, value in outside.items()
        if (not clean or name in always) and name not in _OWN and not name.startswith(_PREFIXES)
    }
    if clean:
        shell.setdefault("LANG", "C")
    elif "PATH" in outside:
        shell["USER_PATH"] = outside["PATH"] + _USER_PATH
    own = {**({} if clean else pmix.settings(outside)), **image, "HOME": home}
    own["PATH"] = _completed(image["PATH"]) if "PATH" in image else DEFAULT_PATH
    own |= {
        "APPTAINER_COMMAND": line.verb.name,
        "APPTAINER_APPNAME": "",
        "PS1": "Apptainer> ",
        "PROMPT_COMMAND": 'PS1="Apptainer> "; unset PROMPT_COMMAND',
    }
    targets = [spec.partition(":")[2].partition(":")[0] or spec for spec in line.mounts("bind")]
    for prefix in ("APPTAINER", "SINGULARITY"):
        own |= {
            f"{prefix}_CONTAINER": path,
            f"{prefix}_NAME": name,
            f"{prefix}_BIND": ",".join(targets),
            f"{prefix}_ENVIRONMENT": "/.singularity.d/env/91-environment.sh",
        }
    forced = _forced(line, outside)
    forced |= {name: forced.pop(name) for name in _PATHS if name in forced}
    if forced.get("LD_LIBRARY_PATH"):
        forced["LD_LIBRARY_PATH"] += f":{_LIBRARIES}"
    return Variables(own, shell, forced)


def _completed(path: str) -> str:
    """PATH of an OCI image, with the directories of the default one that it lacks."""
    found = path.split(":")
    return ":".join([path, *(each for each in DEFAULT_PATH.split(":") if each not in found)])


def _forced(line: Line, outside: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for prefix in _PREFIXES:
        found |= {
            name.removeprefix(prefix): value
            for name, value in outside.items()
            if name.startswith(prefix) and _NAME.fullmatch(name.removeprefix(prefix))
        }
    for file in line.values("env-file"):
        found |= _of_file(file, outside)
    for value in line.values("env"):
        found |= _pairs(value)
    return {name: found[name] for name in found if name != "HOME"}  # which --home alone sets


def _pairs(text: str) -> dict[str, str]:
    """`A=1,B=2`, as a line of CSV; with one `=`, commas belong to the value."""
    parts = [text] if text.count("=") == 1 else next(csv.reader([text]), [])
    found = dict(part.split("=", 1) for part in parts if "=" in part)
    if len(parts) != len(found) or not found or not all(map(_NAME.fullmatch, found)):
        raise Malformed(f"--env {text}: each part must be formatted as key=value", "--env NAME=VALUE")
    return found


def _of_file(path: str, outside: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file: lines NAME=VALUE, with quotes as in a shell and references to other
    variables."""
    rows = table.lines_of_file(path)
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
        words = shlex.split(text, comments=True)
    except ValueError:
        raise Mistake(f"{where}: a quote is not closed", "close it") from None
    if len(words) > 1:
        raise Mistake(f"{where}: {words[1]} would be a command, and commands are not run", "quote the value")
    return "".join(words)


def started(
    command: Sequence[str], found: Variables, *, scripts: bool, has_shell: bool, evaluates: bool
) -> Start:
    """The command with its environment. Where the image has `scripts` that set variables, a shell of the
    image sources them first, without the user's variables, as Apptainer's own does. `evaluates`: forced
    values are texts of a shell in double quotes. Raises Mistake where the image has no shell for that."""
    own, shell, forced = found
    needs_shell = evaluates and any(re.search(r"[$`\\]", value) for value in forced.values())
    if needs_shell and not has_shell:
        raise Mistake("the image has no /bin/sh, which evaluates the values of --env", "--no-eval")
    if not scripts:
        empty = {name for name, value in own.items() if not value and name in shell}
        own = {name: value for name, value in {**shell, **own}.items() if name not in empty}
        shell = {}
        if not needs_shell:
            return Start(tuple(command), own | _applied(forced, own["PATH"]))
    names = [name for name in shell if _NAME.fullmatch(name) and name not in _SEEN]
    carried = {f"{_CARRIER}{name}": shell[name] for name in names}
    lines = [_SCRIPTS] if scripts else []
    for number, (name, value) in enumerate(forced.items()):  # the values stay out of the command line
        carried[f"{_CARRIER}{number}"] = _word(value, evaluates)
        form = _PATHS.get(name, f"export {name}={{}}")
        lines.append(f'eval "{form.format(f"${_CARRIER}{number}")}"; unset {_CARRIER}{number}')
    if names:
        lines.append(_RESTORE.format(names=" ".join(names), carrier=_CARRIER))
    others = {name: value for name, value in shell.items() if name not in names}
    text = "\n".join([*lines, "export PATH", 'exec "$@"'])
    return Start(("/bin/sh", "-c", text, "sh", *command), {**others, **own, **carried})


def _applied(forced: Mapping[str, str], path: str) -> dict[str, str]:
    """The forced values, with those for PATH applied to it."""
    before, after, whole = (forced.get(name) for name in _PATHS)
    found = {name: value for name, value in forced.items() if name not in _PATHS}
    return {**found, "PATH": whole if whole is not None else ":".join(filter(None, (before, path, after)))}


def _word(text: str, evaluates: bool) -> str:
    """A value as a word of the shell."""
    if not evaluates:
        return shlex.quote(text)
    ends_open = (len(text) - len(text.rstrip("\\"))) % 2
    return '"' + text.replace('"', '\\"') + ("\\" if ends_open else "") + '"'
