"""A command in a container of Docker or Podman: its user, variables, volumes and working directory."""

from __future__ import annotations

import os
import re
import resource
import shlex
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bareboat_shim import docker_options, local_images, shims
from bareboat_shim.docker_options import is_number
from bareboat_shim.docker_table import TABLE
from bareboat_shim.table import Line, Malformed, Mistake

if TYPE_CHECKING:
    from bareboat.api.container import Container, User
    from bareboat.model import Mount

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PULLS = ("missing", "never", "always", "newer")
#: As Podman passes them on; the network is the host's.
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")
_GPUS = "CUDA_VISIBLE_DEVICES"
_CDI = "nvidia.com/gpu="
_NOT_FOUND, _NOT_EXECUTABLE, _NO_USER = 127, 126, 126


def remote(line: Line, name: docker_options.Name) -> local_images.Source:
    """An image in its registry, by the flags for registries."""
    if (text := line.value("platform")) is not None:
        local_images.check_platform(text)
    is_plain = (line.value("tls-verify") or "").lower() in ("false", "0") or _is_local(name)
    host = name.reference.partition("/")[0]
    reference = f"docker://{name.reference}"
    return local_images.Source(reference, host if is_plain else "", reference)


def _is_local(name: docker_options.Name) -> bool:
    """Whether Docker takes the registry for one without TLS."""
    host = name.reference.partition("/")[0].rpartition(":")[0] or name.reference.partition("/")[0]
    return host == "localhost" or host.startswith("127.")


def run(line: Line, outside: Mapping[str, str]) -> int:
    from bareboat.api.container import Container

    source = _source(line)
    shown, empty = mounts(line)
    chosen = gpus(line, outside.get(_GPUS, ""))
    container = Container(
        source.text,
        mounts=shown,
        empty=empty,
        home="/",
        namespaces=namespaces(line),
        gpu=None if chosen is None else "nvidia",
        plain_http=source.plain_http,
    )
    if chosen is not None and not container.has_gpu_driver:
        raise Mistake("no NVIDIA driver is installed on this machine", "bareboat doctor")
    user = _user(line, container)
    workdir = line.value("workdir") or container.workdir
    if not workdir.startswith("/"):
        raise Malformed(f"the working directory {workdir} is invalid: it must be an absolute path", "-w /DIR")
    environment = _environment(line, outside, container, user)
    if chosen:
        environment[_GPUS] = chosen
    command = _command(line, container)
    code = _cannot_start(container, command[0], environment["PATH"], workdir)
    if code:
        return code
    _prepare(line)
    return container.run(
        command,
        environment={**environment, shims.INSIDE: TABLE.names[0]},
        workdir=workdir,
        writable=not line.has("read-only"),
        user=user,
    )


def _source(line: Line) -> local_images.Source:
    name, when = docker_options.name(line.words[0]), line.value("pull") or "missing"
    if when not in _PULLS:
        raise Mistake(f"--pull {when} is not supported", f"use one of: {', '.join(_PULLS)}")
    wanted = remote(line, name)
    if when == "never" and local_images.in_store(name) is None:
        raise Mistake(f"{name.written}: image not known", f"docker pull {name.written}")
    if when in ("always", "newer"):
        local_images.pull(wanted)
    local = local_images.source(name)
    return wanted if local.text.startswith("docker://") else local


def namespaces(line: Line) -> list[str]:
    for key in ("ipc", "pid", "uts"):
        if (value := line.value(key)) not in (None, "host"):
            raise Mistake(f"--{key} {value} is not supported", f"--{key} host")
    network = line.value("network")
    if network not in (None, "host", "none"):
        raise Mistake(f"--network {network} is not supported: the network is the host's", "--network host")
    found = [] if line.value("pid") == "host" else ["pid"]
    return [*found, "net"] if network == "none" else found


def mounts(line: Line) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """The mounts, and the directories in memory."""
    found, empty = [], [value.partition(":")[0] for value in line.values("tmpfs")]
    for spec in line.values("volume"):
        parts = spec.split(":")
        if len(parts) > 3:
            raise Malformed(f"-v {spec}: too many parts", "-v /SOURCE:/TARGET[:ro]")
        if len(parts) == 1:
            raise Mistake(f"-v {spec} is not supported: volumes are not kept", f"-v /SOURCE:{spec}")
        source, target, *options = parts
        if "/" not in source and source != ".":
            raise Mistake(f"-v {spec} is not supported: volumes have no names", f"-v /SOURCE:{target}")
        words = options[0].split(",") if options else []
        found.append(docker_options.mount(source, target, words, f"-v {spec}"))
    for spec in line.values("mount"):
        keys = _keys(spec)
        if keys.pop("type", "volume") == "tmpfs":
            empty.append(keys["destination"])
            continue
        if not keys.get("source") or not keys.get("destination"):
            raise Malformed(f"--mount {spec}: source and destination are required",
                            "--mount type=bind,src=SRC,dst=DEST")  # fmt: skip
        options = [name for name in ("ro",) if keys.get(name, "false").lower() in ("", "true", "1")]
        found.append(docker_options.mount(keys["source"], keys["destination"], options, f"--mount {spec}"))
    return docker_options.in_order(found), tuple(os.path.normpath(each) for each in empty)


#: Spelling of a key of --mount -> the key.
_KEYS = {
    "type": "type", "src": "source", "source": "source", "dst": "destination", "target": "destination",
    "destination": "destination", "ro": "ro", "readonly": "ro",
}  # fmt: skip
_KEYS_WITHOUT_EFFECT = ("bind-propagation", "relabel", "z", "consistency", "tmpfs-size", "tmpfs-mode",
                        "bind-nonrecursive")  # fmt: skip


def _keys(spec: str) -> dict[str, str]:
    found = {}
    for part in spec.split(","):
        key, _, value = part.partition("=")
        if key in _KEYS:
            found[_KEYS[key]] = value
        elif key not in _KEYS_WITHOUT_EFFECT:
            raise Mistake(f"--mount {spec}: {key} is not supported", "--mount type=bind,src=SRC,dst=DEST,ro")
    kind = found.get("type", "volume")
    if kind not in ("bind", "tmpfs"):
        raise Mistake(f"--mount {spec}: type={kind} is not supported", "type=bind, or type=tmpfs")
    if not found.get("destination"):
        raise Malformed(f"--mount {spec}: destination is required", "--mount type=bind,src=SRC,dst=DEST")
    return found


def gpus(line: Line, granted: str) -> str | None:
    """The GPUs for the command, as in CUDA_VISIBLE_DEVICES; "" for all that are granted; None for none."""
    devices = [each.removeprefix(_CDI) for each in line.values("device") if each.startswith(_CDI)]
    value = line.value("gpus")
    if value is None and not devices and line.value("runtime") is None:
        return None
    if line.value("runtime") not in (None, "nvidia"):
        raise Mistake(f"--runtime {line.value('runtime')} is not supported", "--runtime nvidia")
    if value is not None:
        text = value.strip('"').removeprefix("device=")
        devices = [] if text in ("all", "") else text.split(",")
        if re.fullmatch("[0-9]{5,}", value):
            raise Mistake(f"--gpus {value}: no machine has so many", "--gpus all")
        if is_number(value):
            devices = [str(number) for number in range(int(value))]
    if "all" in devices or not devices:
        return granted
    usable = granted.split(",") if granted else []
    try:
        return ",".join(usable[int(each)] if usable and is_number(each) else each for each in devices)
    except IndexError:
        raise Mistake(f"--gpus {value}: the job has {len(usable)} GPUs: {granted}", "--gpus all") from None


def _user(line: Line, container: Container) -> User:
    """Raises Mistake for a name that the image lacks."""
    from bareboat.api.container import User

    text = line.value("user") or container.user
    userns = line.value("userns")
    if userns not in (None, "keep-id", "host"):
        raise Mistake(f"--userns {userns} is not supported", "--userns keep-id")
    if not text and userns == "keep-id":
        text = f"{os.getuid()}:{os.getgid()}"
    plain, _, named = (text or "0").partition(":")
    entry = docker_options.entry(container.place("/etc/passwd"), plain)
    if entry is None and not is_number(plain):
        raise Mistake(f"unable to find user {plain} in the image's /etc/passwd", "-u UID", _NO_USER)
    gid = docker_options.group(container.place("/etc/group"), named) if named else None
    if named and gid is None:
        raise Mistake(f"unable to find group {named} in the image's /etc/group", "-u UID:GID", _NO_USER)
    if entry is None:
        home = "/root" if plain == "0" and container.is_directory("/root") else "/"
        return User(int(plain), gid or 0, "root" if plain == "0" else f"user{plain}", home)
    return User(entry.uid, entry.gid if gid is None else gid, entry.name, entry.home or "/")


def _environment(line: Line, outside: Mapping[str, str], container: Container, user: User) -> dict[str, str]:
    proxies = {each: outside[each] for name in _PROXIES for each in (name, name.upper()) if each in outside}
    files: dict[str, str] = {}
    for path in line.values("env-file"):
        files |= docker_options.of_file(path, outside)
    values = {"PATH": _PATH, "HOSTNAME": os.uname().nodename, "HOME": user.home, **proxies}
    if line.has("tty"):
        values["TERM"] = "xterm"
    for name in (_GPUS, "NVIDIA_VISIBLE_DEVICES"):  # what the scheduler grants
        if name in outside:
            values[name] = outside[name]
    return {
        **values,
        **container.environment,
        **files,
        **docker_options.variables(line.values("env"), outside),
    }


def _command(line: Line, container: Container) -> tuple[str, ...]:
    entrypoint, arguments = container.entrypoint, tuple(line.words[1:]) or container.default_command
    if (text := line.value("entrypoint")) is not None:
        entrypoint, arguments = _words(text), tuple(line.words[1:])
    if not (entrypoint or arguments):
        raise Mistake("no command is given, and the image sets none", f"docker run {line.words[0]} COMMAND")
    return (*entrypoint, *arguments)


def _words(text: str) -> tuple[str, ...]:
    """Those of --entrypoint: a program, or a list as JSON."""
    if text.startswith("["):
        import json

        try:
            words = json.loads(text)
        except (ValueError, RecursionError):
            words = None
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            return tuple(words)
    return (text,) if text else ()


def _cannot_start(container: Container, name: str, path: str, workdir: str) -> int:
    """The exit code where the command does not exist or cannot be executed; else 0."""
    found = container.program(name, path, workdir)
    if found is None and not ("/" in name and container.is_directory(name)):
        what = f'exec: "{name}": executable file not found in $PATH: no such file or directory'
        print(f"{TABLE.error}{what}", file=sys.stderr)
        return _NOT_FOUND
    if found is None or not os.access(found, os.X_OK):
        print(f'{TABLE.error}exec: "{name}": permission denied', file=sys.stderr)
        return _NOT_EXECUTABLE
    return 0


def _prepare(line: Line) -> None:
    """The limits, processors, standard input and ID of the command. Raises Mistake."""
    for value in line.values("security-opt"):
        if not value.startswith("label"):
            raise Mistake(f"--security-opt {value} is not supported", "leave it out")
    _limit(line.values("ulimit"))
    if (processors := line.value("cpuset-cpus")) is not None:
        docker_options.use_processors(processors)
    if (path := line.value("cidfile")) is not None:
        if os.path.lexists(path):
            raise Mistake(f"container id file exists: {path}", f"rm {shlex.quote(path)}")
        with open(path, "w", encoding="ascii") as stream:
            stream.write(uuid.uuid4().hex * 2)
    if not line.has("interactive"):
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.dup2(descriptor, 0)
        os.close(descriptor)


def _limit(values: Sequence[str]) -> None:
    for value in values:
        name, _, text = value.partition("=")
        kind = getattr(resource, f"RLIMIT_{name.upper()}", None)
        soft, _, hard = text.partition(":")
        try:
            if kind is None:
                raise ValueError(name)
            most = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (int(soft), int(hard) if hard and int(hard) != -1 else most))
        except (ValueError, OverflowError, OSError):
            raise Mistake(
                f"--ulimit {value}: the machine does not allow this limit", "ulimit -a -H"
            ) from None
