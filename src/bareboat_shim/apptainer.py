"""The verbs of Apptainer: exec, run and shell in this process; pull and build by Bareboat's own verbs."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bareboat_base.files.root import Root
from bareboat_shim import apptainer_environment, apptainer_mounts, images, pmix, shims
from bareboat_shim.apptainer_table import TABLE
from bareboat_shim.table import Line, Malformed, Mistake

if TYPE_CHECKING:
    from bareboat.api.container import Container

_METADATA = "/.singularity.d"
#: What `inspect` shows: key -> file.
_FILES = {
    "runscript": "runscript", "deffile": "Singularity", "helpfile": "runscript.help", "test": "test",
}  # fmt: skip
_VENDORS = {"nv": "nvidia", "rocm": "amd"}
_NAMESPACES = ("pid", "ipc", "uts")


def run(line: Line, environment: Mapping[str, str]) -> int:
    """Run a command line; return the exit code, -N for signal N. Raises Mistake and
    BareboatError."""
    if line.has("version") or line.verb.name == "version":
        print(f"apptainer version {TABLE.version}" if line.has("version") else TABLE.version)
        return 0
    verbs: dict[str, Callable[[Line, Mapping[str, str]], int]] = {
        "exec": _exec, "run": _exec, "shell": _exec, "pull": _pull, "build": _build, "inspect": _inspect,
    }  # fmt: skip
    return verbs[line.verb.name](line, environment)


def _note(line: Line, text: str, level: str = "WARNING") -> None:
    if not line.has("quiet") and not line.has("silent"):
        print(f"{level + ':':<8} {text}", file=sys.stderr)


def _exec(line: Line, outside: Mapping[str, str]) -> int:
    from bareboat.api.container import Container

    image, *arguments = line.words
    needed = [] if apptainer_environment.is_clean(line) else pmix.folders(outside)
    shown = apptainer_mounts.shown(line, user_home=user_home(outside), needed=needed)
    vendor = next((name for flag, name in _VENDORS.items() if line.has(flag)), None)
    container = Container(
        images.reference(image),
        mounts=shown.mounts,
        empty=shown.empty,
        home=shown.home,
        namespaces=_namespaces(line),
        gpu=vendor,
        plain_http=images.registry(image) if line.has("no-https") else "",
    )
    container.lay_over(*apptainer_mounts.overlays(line))
    if vendor is not None and not container.has_gpu_driver:
        _note(line, f"Could not find any {vendor} files on this host!", "INFO")
    has_shell = container.program("/bin/sh", "") is not None
    scripts = has_shell and container.is_directory(f"{_METADATA}/env")
    found = apptainer_environment.environment(
        line,
        outside,
        {} if scripts else container.environment,
        home=shown.home,
        name=os.path.basename(image.rstrip("/")),
        path=os.path.realpath(image) if os.path.exists(image) else image,
    )
    workdir = _workdir(container, shown)
    command = _command(line, container, arguments)
    # The scripts may change PATH; of those, what can be read is in the container's variables.
    path = found.forced.get("PATH") or container.environment.get("PATH", apptainer_environment.DEFAULT_PATH)
    evaluates = not (line.has("no-eval") or line.has("compat"))
    if not (evaluates and re.search(r"[$`]", path)):
        check_program(container, command[0], path, workdir)
    found.own.update({"PWD": workdir, shims.INSIDE: "apptainer"})
    start = apptainer_environment.started(
        command, found, scripts=scripts, has_shell=has_shell, evaluates=evaluates
    )
    if container.timezone:  # Apptainer mounts /etc/localtime, which may be a link in the image
        start.environment.setdefault("TZ", container.timezone)
    if line.has("no-umask") or line.has("compat"):
        os.umask(0o022)
    writable = line.has("writable-tmpfs") or line.has("compat")
    return container.run(start.command, environment=start.environment, workdir=workdir, writable=writable)


def user_home(outside: Mapping[str, str]) -> str:
    """The home directory of the user's account, as Apptainer takes it; HOME for a user without an entry."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return outside.get("HOME", "/")


def _namespaces(line: Line) -> list[str]:
    found = {name for name in _NAMESPACES if line.has(name)}
    if line.has("containall") or line.has("compat"):
        found |= {"pid", "ipc"}
    if line.has("no-pid"):
        found.discard("pid")
    network = line.value("network")
    if network not in (None, "none"):
        raise Mistake(f"--network {network} is not supported: only none", "--net --network none")
    if line.has("net"):
        if network != "none":
            raise Mistake(
                "--net is supported with --network none only: a bridge requires root", "--net --network none"
            )
        found.add("net")
    return sorted(found)


def _workdir(container: Container, shown: apptainer_mounts.Shown) -> str:
    """The directory in which the command starts. Raises Mistake for one of --pwd that does not exist."""
    if shown.workdir is not None and container.is_directory(shown.workdir):
        return os.path.normpath(shown.workdir)
    if shown.workdir is not None and shown.is_asked:
        raise Mistake(f"failed to set working directory: chdir {shown.workdir}: no such file or directory")
    return shown.home if container.is_directory(shown.home) else "/"


def _command(line: Line, container: Container, arguments: Sequence[str]) -> tuple[str, ...]:
    if line.verb.name == "exec":
        return tuple(arguments)
    if line.verb.name == "shell":
        if arguments:
            _note(line, "Parameters to shell command are ignored")
        if (named := line.value("shell")) is not None:
            return (named,)
        return ("/bin/bash", "--norc") if container.program("/bin/bash", "") is not None else ("/bin/sh",)
    if container.program(f"{_METADATA}/runscript", "") is not None:
        return (f"{_METADATA}/runscript", *arguments)
    words = (*container.entrypoint, *(arguments or container.default_command))
    if not os.path.isdir(line.words[0]):
        if not words:
            raise Mistake(
                "the image has no runscript, ENTRYPOINT or CMD", f"{TABLE.names[0]} exec IMAGE COMMAND"
            )
        return words
    _note(line, "No runscript found in container, executing /bin/sh", "INFO")
    return ("/bin/sh", *arguments)


def check_program(container: Container, name: str, path: str, workdir: str) -> None:
    found = container.program(name, path, workdir)
    if found is None:
        if "/" in name:
            raise Mistake(f"stat {name}: no such file or directory")
        raise Mistake(f'"{name}": executable file not found in $PATH')
    if not os.access(found, os.X_OK):
        raise Mistake("permission denied")


def _pull(line: Line, _: Mapping[str, str]) -> int:
    if len(line.words) > 2:
        raise Malformed("pull takes a file and a reference", f"{TABLE.names[0]} pull [FILE] REFERENCE")
    *named, source = line.words
    target = (named or [line.value("name") or images.default_file(source)])[0]
    target = os.path.join(line.value("dir") or "", target)
    form = images.Form(force=line.has("force"), plain_http=line.has("no-https"), machine=line.value("arch"))
    images.save(source, target, form)
    return 0


def _build(line: Line, _: Mapping[str, str]) -> int:
    if len(line.words) > 2:
        raise Malformed("build takes a file and a source", f"{TABLE.names[0]} build FILE SOURCE")
    target, source = line.words
    form = images.Form(force=line.has("force"), plain_http=line.has("no-https"))
    if os.path.isfile(source) and not images.is_image_file(source):
        return images.build(source, target, form, line.values("build-arg")) and TABLE.fatal
    images.save(source, target, form)
    return 0


def _read_labels(text: str) -> dict[str, object]:
    import json  # `exec` starts without it

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Mistake(f"the image's {_METADATA}/labels.json is damaged", f"{TABLE.names[0]} inspect -e IMAGE")
    return found


def _inspect(line: Line, _: Mapping[str, str]) -> int:
    import json

    from bareboat.api.container import Container

    if len(line.words) > 1:
        raise Malformed("inspect takes one image", f"{TABLE.names[0]} inspect IMAGE")
    root = Root(Container(images.reference(line.words[0])).tree)
    attributes: dict[str, object] = {}
    names = [name for name in _FILES if line.has(name)]
    for name in names:
        if text := root.text(f"{_METADATA}/{_FILES[name]}"):
            attributes[name] = text.rstrip("\n")
    if line.has("environment"):
        scripts = root.names(f"{_METADATA}/env", "*.sh")
        attributes["environment"] = {
            f"{_METADATA}/env/{name}": root.text(f"{_METADATA}/env/{name}").rstrip("\n") for name in scripts
        }
    if line.has("labels") or not (names or line.has("environment")):
        labels = root.text(f"{_METADATA}/labels.json")
        if labels:
            attributes["labels"] = _read_labels(labels)
    if line.has("json"):
        print(
            json.dumps({"data": {"attributes": attributes}, "type": "container"}, indent="\t", sort_keys=True)
        )
        return 0
    for value in attributes.values():
        if isinstance(value, dict):
            value = "\n".join(f"{name}: {text}" for name, text in sorted(value.items()))
        print(images.for_stdout(str(value)))
    return 0
