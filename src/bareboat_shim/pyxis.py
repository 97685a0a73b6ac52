"""srun, sbatch and salloc with the flags of Pyxis: Slurm's own program starts the tasks, whose commands run
in Bareboat's containers. A command line without such flags is passed on untouched."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from bareboat_shim import pyxis_script, pyxis_settings, shims, slurm_options
from bareboat_shim.pyxis_settings import NAMES, Settings
from bareboat_shim.pyxis_table import TABLE
from bareboat_shim.slurm_options import Words
from bareboat_shim.table import Malformed, Mistake

_PREFIX = TABLE.prefixes[0]
#: Options of srun that decide on the program of a task themselves.
_EXCLUDED = {
    "--multi-prog": "name one command for all tasks",
    "--bcast": "the image is in the store, which all nodes see",
    "--container": "it is Slurm's own container",
}
#: Starts the container on a node, where Bareboat may be missing.
_START = """\
if [ ! -x "$1" ]; then
  echo "{tool}: error: $(uname -n) does not see Bareboat's Python $1" >&2
  echo "  try: install Bareboat in a directory that all nodes see" >&2
  exit 1
fi
python=$1
shift
exec "$python" -I -c 'from bareboat_shim.pyxis_task import entry; entry()' "$@"
"""


def run(tool: str, shim: str, words: Sequence[str], environment: Mapping[str, str], *, forced: bool) -> int:
    """Run a command line in the place of this process; it returns for mistakes only. `forced`: the shim
    replaces Pyxis. Raises Mistake and BareboatError."""
    program = shims.installed(tool, shim, environment)
    if program is None:
        raise Mistake(f"{tool} is not installed", "use a machine with Slurm's commands on PATH")
    variables = any(environment.get(name) for name in pyxis_settings.VARIABLES)
    if tool != "sbatch" and not variables and not slurm_options.mentions(words, NAMES):
        _become(program, tool, words, environment)
    options = slurm_options.known(program)
    ours = {name: value for name, value in NAMES.items() if forced or not _is_installed(name, options)}
    read = slurm_options.read(words, options, ours)
    if tool == "sbatch":
        _submit(program, read, words, environment, options, ours)
    found = pyxis_settings.read([read.flags], environment if ours else {})
    if not found.is_given:
        _become(program, tool, words, environment)
    start = _start(tool, found, environment)
    if tool == "salloc":
        _become(program, tool, [*read.options, *read.rest], _for_steps(found, environment))
    _check_step(read)
    _become(program, tool, [*read.options, *start, *read.rest], environment)


def _is_installed(name: str, options: Mapping[str, str]) -> bool:
    """Whether Slurm has Pyxis for the flags of Pyxis, or CSCS' plug-in for its flag."""
    return name in options or (name != "--environment" and "--container-image" in options)


def _become(program: str, tool: str, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    os.execve(program, [tool, *words], dict(environment))


def _check_step(read: Words) -> None:
    given = next((name for name, _ in read.slurm if name in _EXCLUDED), None)
    if given is not None:
        raise Mistake(f"{given} is not supported in a container: {_EXCLUDED[given]}", f"srun without {given}")
    if ":" in read.rest:
        raise Mistake(
            "heterogeneous steps are not supported in containers", "start one srun for each component"
        )
    if not read.rest:
        raise Malformed("No command given to execute.", "srun [OPTIONS] COMMAND")


def _start(tool: str, found: Settings, environment: Mapping[str, str]) -> list[str]:
    """Prepare the image; return the words that start its container on a node, before the command."""
    from bareboat.api import container

    values = {"tool": tool, "tree": "", "store": container.store(), **found._asdict()}
    if found.image:
        values["tree"] = _prepared(found.image, environment)
    code = _START.format(tool=tool)
    return ["/bin/sh", "-c", code, tool, sys.executable, json.dumps(values, separators=(",", ":"))]


def _prepared(image: str, environment: Mapping[str, str]) -> str:
    """Pull and unpack an image; return its name for the nodes."""
    from bareboat.api import container

    text = reference(image)
    plain_http = environment.get("ENROOT_ALLOW_HTTP", "").lower() in ("1", "y", "yes", "true")
    registry = text.removeprefix("docker://").partition("/")[0] if plain_http else ""
    return container.prepare(text, plain_http=registry).name


def reference(text: str) -> str:
    """The image as Bareboat names it. Raises Mistake."""
    if text.startswith((".", "/")):
        path = os.path.abspath(text)
        if not os.path.isfile(path):
            what = "is not a file" if os.path.exists(path) else "does not exist"
            raise Mistake(f"the image {text} {what}", "name a SquashFS file, or [REGISTRY#]IMAGE[:TAG]")
        return path
    kind, separator, rest = text.partition("://")
    if separator and kind != "docker":
        raise Mistake(f"{text}: {kind}:// is not supported", "docker://[REGISTRY#]IMAGE[:TAG]")
    name = rest if separator else text
    if "/" not in name and os.path.isfile(name):
        raise Mistake(f"{name} without a directory is the name of an image", f"--container-image=./{name}")
    registry, mark, image = name.partition("#")
    if not mark:
        return f"docker://{name}"
    return f"docker://{registry.rpartition('@')[2]}/{image}" if registry else f"docker://{image}"


def _for_steps(found: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which each srun has the flags of salloc."""
    image = found.image or ""
    values = {
        "CONTAINER_IMAGE": os.path.abspath(image) if image.startswith((".", "/")) else image,
        "CONTAINER_MOUNTS": ",".join(found.mounts),
        "CONTAINER_WORKDIR": found.workdir,
        "CONTAINER_NAME": f"{found.name}:{found.name_flag}" if found.name else "",
        "CONTAINER_SAVE": found.save,
        "CONTAINER_ENV": ",".join(found.names),
        "CONTAINER_UNSHARE": ",".join(found.unshare),
        "CONTAINER_MOUNT_HOME": "1" if found.mount_home else "0",
        "CONTAINER_REMAP_ROOT": "1" if found.remap_root else "0",
        "CONTAINER_WRITABLE": None if found.writable is None else str(int(found.writable)),
        "CONTAINER_ENTRYPOINT": None if found.entrypoint is None else str(int(found.entrypoint)),
    }  # fmt: skip
    kept = {name: value for name, value in environment.items() if not name.startswith(f"{_PREFIX}CONTAINER_")}
    return kept | {f"{_PREFIX}{name}": value for name, value in values.items() if value}


def _submit(
    program: str,
    read: Words,
    words: Sequence[str],
    environment: Mapping[str, str],
    options: Mapping[str, str],
    ours: Mapping[str, bool],
) -> NoReturn:
    """Submit the batch script, or one that starts it in a container."""
    command, path = read.value("--wrap"), read.rest[0] if read.rest else None
    if command is not None:
        text = pyxis_script.wrapped(command)
    elif path is not None:
        text = pyxis_script.load(_on_path(path, environment))
    else:
        text = sys.stdin.buffer.read().decode(errors="surrogateescape")
        os.dup2(_memory(text), 0)
    script = pyxis_script.read(text, options, ours)
    found = pyxis_settings.read([read.flags, script.flags], environment if ours else {})
    if not found.is_given:
        _become(program, "sbatch", words, environment)
    if any(line.split()[1:] in (["hetjob"], ["packjob"]) for line in script.lines) or ":" in read.rest:
        raise Mistake(
            "heterogeneous jobs are not supported in containers", "submit one job for each component"
        )
    pyxis_script.interpreter(text, "")
    named = {"-J", "--job-name"}
    is_named = named & script.names or any(name in named for name, _ in read.slurm)
    name = []
    if not is_named and "SBATCH_JOB_NAME" not in environment:
        name = [f"--job-name={pyxis_script.name_of(path, is_wrapped=command is not None)}"]
    kept = [word for option, group in read.slurm if option != "--wrap" for word in group]
    written = pyxis_script.composed(script, _start("sbatch", found, environment))
    place = f"/proc/self/fd/{_memory(written)}"
    _become(program, "sbatch", [*kept, *name, place, *read.rest[1:]], environment)


def _on_path(path: str, environment: Mapping[str, str]) -> str:
    """The script, which sbatch searches for in the working directory and then on PATH."""
    if "/" in path or os.path.exists(path):
        return path
    folders = environment.get("PATH", os.defpath).split(":")
    return next((each for folder in folders if os.path.isfile(each := os.path.join(folder, path))), path)


def _memory(text: str) -> int:
    """An inheritable descriptor of a file in memory with the text."""
    descriptor = os.memfd_create("sbatch", 0)
    with os.fdopen(os.dup(descriptor), "wb") as stream:
        stream.write(text.encode(errors="surrogateescape"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
