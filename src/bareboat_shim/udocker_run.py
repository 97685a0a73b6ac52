"""A command in a container of udocker: its user, variables, volumes and working directory."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bareboat_shim import docker_options, local_images, pmix, shims
from bareboat_shim.table import Line, Mistake

if TYPE_CHECKING:
    from bareboat.api.container import Container, User
    from bareboat.api.instances import Instance
    from bareboat.model import Mount

_PULLS = ("missing", "never", "always", "reuse")
_ROOT_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_USER_PATH = "/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_SHELL = ("bash", "-i")
#: Of the host's variables, without --hostenv.
_PASSED = ("TERM", "PATH")
_NEVER_PASSED = ("VTE_VERSION",)
_RENDERING = ("/usr/lib64/dri", "/lib64/dri", "/usr/lib/dri", "/lib/dri")
_ACCOUNTS = ("/etc/passwd", "/etc/group")
#: The exit code where a container cannot be prepared.
_NOT_PREPARED = 2


def image_of(line: Line, text: str) -> tuple[local_images.Source, docker_options.Name]:
    """The image of a command line, and its name. Raises Mistake."""
    platforms = line.value("platform")
    if platforms is not None:
        local_images.check_platform(platforms)
    scheme, _, rest = (line.value("registry") or "").rpartition("://")
    host = rest.rstrip("/")
    name = docker_options.name(text)
    if not host:
        return local_images.source(name), name
    remote = docker_options.name(f"{host}/{text}")
    return local_images.source(remote, plain_http=host if scheme == "http" else ""), name


def _container(line: Line) -> tuple[Instance | str, str, str]:
    """The container or image of a run, the vendor of its GPU driver, and the registry without TLS."""
    from bareboat.api import instances

    if (place := line.value("location")) is not None:
        if not os.path.isdir(place):
            raise Mistake(f"invalid container directory {place}", f"ls -ld {shlex.quote(str(place))}")
        return instances.at(place), "", ""  # a word for the container is required, and not used
    if not line.words:
        raise Mistake("must specify container_id or image:tag", f"udocker run {line.verb.usage}")
    when, name = line.value("pull") or "missing", line.value("name")
    if when not in _PULLS:
        raise Mistake(f"--pull {when} is not supported", f"use one of: {', '.join(_PULLS)}")
    found = instances.find(name) if when == "reuse" and name else None
    found = found or instances.find(line.words[0])
    if found is not None:
        if name is not None and name not in found.names:
            instances.change(found, names=(*found.names, name))
        return found, found.gpu, ""
    source, image = image_of(line, line.words[0])
    if when == "never" and local_images.in_store(image) is None:
        raise Mistake("image or container not available", f"udocker pull {line.words[0]}")
    if when == "always":
        local_images.pull(source)
    if name is None or line.has("rm"):
        return source.text, "", source.plain_http
    return create(source, name), "", ""


def create(source: local_images.Source, name: str | None) -> Instance:
    from bareboat.api import instances

    return instances.create(source.text, reference=source.remote, name=name, plain_http=source.plain_http)


def run(line: Line, outside: Mapping[str, str]) -> int:
    from bareboat.api.container import Container

    subject, gpu, plain_http = _container(line)
    shown = volumes(line)
    is_mounted = any(each.target in _ACCOUNTS for each in shown)
    is_host = line.has("hostauth") and not is_mounted
    hidden = [docker_options.mount(path, path, ["ro"], path) for path in _ACCOUNTS] if is_host else []
    if line.has("hostenv"):
        hidden += [docker_options.mount(path, path, [], path) for path in pmix.folders(outside)]
    mounts = docker_options.in_order([*hidden, *shown])
    container = Container(subject, mounts=mounts, home="/", gpu=gpu or None, plain_http=plain_http)
    user = _user(line, container, must_exist=is_host or (line.has("containerauth") and not is_mounted))
    workdir = line.value("workdir") or ("" if line.has("nometa") else _workdir(container)) or user.home
    if not workdir.startswith("/") or not container.is_directory(workdir):
        raise Mistake(
            f"invalid working directory: {workdir}",
            f"--workdir DIR, or --volume SRC:{workdir}",
            _NOT_PREPARED,
        )
    environment = _environment(line, outside, container, user)
    command = _command(line, container)
    if _program(container, command[0], environment["PATH"], workdir) is None:
        raise Mistake(f"command not found or has no execute bit set: {command}", "", _NOT_PREPARED)
    if (processors := line.value("cpuset-cpus")) is not None:
        docker_options.use_processors(processors)
    return container.run(
        command,
        environment={**environment, shims.INSIDE: "udocker"},
        workdir=workdir,
        writable=True,
        user=user,
    )


def _workdir(container: Container) -> str:
    """What the image sets, which may be `/`."""
    return container.workdir if container.workdir != "/" or container.sets_workdir else ""


def _program(container: Container, name: str, path: str, workdir: str) -> str | None:
    found = container.program(name, path, workdir)
    return found if found is not None and os.access(found, os.X_OK) else None


def volumes(line: Line) -> tuple[Mount, ...]:
    specs = list(line.values("volume"))
    if line.has("bindhome"):
        specs.append(os.path.expanduser("~"))
    if line.has("dri"):
        specs += [each for each in _RENDERING if os.path.exists(each)]
    for omitted in line.values("novol"):
        matching = [each for each in specs if omitted in (each, each.partition(":")[0])]
        if omitted in ("/dev", "/proc", "/sys"):
            raise Mistake(f"--novol {omitted} is not supported: every container has it")
        if not matching:
            print(f"Warning: --novol {omitted} not in volumes list", file=sys.stderr)
        specs = [each for each in specs if each not in matching]
    found = []
    for spec in specs:
        source, _, target = spec.partition(":")
        if ":" in target:
            raise Mistake(
                f"--volume {spec}: udocker has no options of volumes",
                f"--volume {source}:{target.partition(':')[0]}",
            )
        if not source.startswith("/"):
            raise Mistake(
                f"invalid host volume path: {source}", f"--volume {os.path.abspath(source)}", _NOT_PREPARED
            )
        try:
            found.append(docker_options.mount(source, target or source, [], f"--volume {spec}"))
        except Mistake as error:
            raise Mistake(error.message, error.remedy, _NOT_PREPARED) from None
    return docker_options.in_order(found)


def _user(line: Line, container: Container, *, must_exist: bool) -> User:
    """The user in the container: root is emulated, all others have your IDs. Raises Mistake."""
    from bareboat.api.container import User

    text = line.value("user") or ("" if line.has("nometa") else container.user) or "root"
    plain, _, group = text.partition(":")
    entry = docker_options.entry(container.place("/etc/passwd"), plain)
    home = os.path.expanduser("~") if line.has("bindhome") else entry.home if entry is not None else "/"
    if entry is not None:
        ids = (0, 0) if entry.name == "root" else (os.getuid(), os.getgid())
        return User(*ids, entry.name, home)
    if plain == "root":
        return User(0, 0, plain, "/root" if container.is_directory("/root") else home)
    if must_exist:
        raise Mistake(f"user not found: {text}", "--user NAME, of the host with --hostauth", _NOT_PREPARED)
    if not docker_options.is_number(plain):
        return User(os.getuid(), os.getgid(), plain, home)
    gid = int(group) if docker_options.is_number(group) else os.getgid()
    return User(int(plain), gid, f"udoc{plain[:4]}", home)


def _environment(line: Line, outside: Mapping[str, str], container: Container, user: User) -> dict[str, str]:
    """The host's variables, those of the container in their order of priority, and udocker's own."""
    passed = {
        name: value
        for name, value in outside.items()
        if name not in _NEVER_PASSED and (line.has("hostenv") or name in _PASSED)
    }
    given = docker_options.variables(line.values("env"), outside)
    files: dict[str, str] = {}
    for path in line.values("env-file"):
        files = {**docker_options.of_file(path, outside), **files}
    image = {} if line.has("nometa") else container.environment
    values = {"HOME": user.home, **files, **image, **given}
    values["PATH"] = values.get("PATH") or (_ROOT_PATH if user.uid == 0 else _USER_PATH)
    return {
        **(pmix.settings(outside) if line.has("hostenv") else {}),
        **passed,
        **values,
        **dict.fromkeys(("USER", "LOGNAME", "USERNAME"), user.name),
        "PS1": "# " if user.uid == 0 else r"\$ ",
        "SHLVL": "0",
        "container_ruser": outside.get("USER", str(os.getuid())),
        "container_root": container.tree,
        "container_execmode": "P1",
    }


def _command(line: Line, container: Container) -> tuple[str, ...]:
    arguments = tuple(line.words[1:])
    entrypoint: tuple[str, ...] = ()
    if line.has("entrypoint"):
        entrypoint = tuple((line.value("entrypoint") or "").split())
    elif not line.has("nometa"):
        entrypoint, arguments = container.entrypoint, arguments or container.default_command
    if not (entrypoint or arguments):
        print("Warning: no command assuming: ['bash', '-i']", file=sys.stderr)
        return _SHELL
    return (*entrypoint, *arguments)
