"""The verbs of udocker: containers keep changes in a root file system of their own."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bareboat_shim import docker_options, local_images, udocker_run
from bareboat_shim.table import Line, Malformed, Mistake
from bareboat_shim.udocker_table import TABLE

if TYPE_CHECKING:
    from bareboat.api.instances import Instance

_MODES = ("P1", "P2", "F1", "F2", "F3", "F4", "R1", "R2", "R3", "S1")


def run(line: Line, environment: Mapping[str, str]) -> int:
    """Run a command line; return the exit code, -N for signal N. Raises Mistake and BareboatError."""
    verbs: dict[str, Callable[[Line, Mapping[str, str]], int]] = {
        "run": udocker_run.run, "pull": _pull, "create": _create, "setup": _setup, "ps": _ps,
        "images": _images, "rm": _rm, "rmi": _rmi, "inspect": _inspect, "name": _name, "rename": _rename,
        "rmname": _rmname, "tag": _tag, "load": _load, "save": _save, "verify": _verify, "install": _nothing,
        "version": _version,
    }  # fmt: skip
    return verbs[line.verb.name](line, environment)


def _nothing(_: Line, __: Mapping[str, str]) -> int:
    return 0


def _version(_: Line, __: Mapping[str, str]) -> int:
    print(f"version: {TABLE.version}")
    return 0


def _pull(line: Line, _: Mapping[str, str]) -> int:
    source, name = udocker_run.image_of(line, line.words[0])
    image = local_images.pull(source)
    if line.has("registry"):  # create and run know the image without its registry
        local_images.tag_image(image, name)
    return 0


def _create(line: Line, _: Mapping[str, str]) -> int:
    from bareboat.api import instances

    name = line.value("name")
    if name is not None and (before := instances.find(name)) is not None:
        if not line.has("force"):
            raise Mistake(f"container name already exists: {name}", f"udocker rm {name}; or --force")
        instances.change(before, names=tuple(each for each in before.names if each != name))
    source, _name = udocker_run.image_of(line, line.words[0])
    made = udocker_run.create(source, name)
    print(made.id)
    return 0


def _setup(line: Line, _: Mapping[str, str]) -> int:
    from bareboat.api import instances

    found = _instance(line.words[0])
    mode = line.value("execmode")
    if mode is not None and mode.upper() not in _MODES:
        raise Mistake(f"invalid execmode: {mode}", f"use one of: {', '.join(_MODES)}")
    if line.has("nvidia"):
        instances.change(found, gpu="nvidia")
    if mode is not None:
        if not line.has("quiet"):
            print(f"Info: the mode {mode.upper()} has no effect: bubblewrap is used", file=sys.stderr)
    elif not line.options:
        print("execmode: P1")
        print(f"nvidiamode: {found.gpu == 'nvidia'}")
    return 0


def _instance(text: str) -> Instance:
    from bareboat.api import instances

    found = instances.find(text)
    if found is None:
        raise Mistake(f"invalid container id {text}", "udocker ps   # lists the containers")
    return found


def _ps(_: Line, __: Mapping[str, str]) -> int:
    from bareboat.api import instances

    print(f"{'CONTAINER ID':<36} P M {'NAMES':<18} {'IMAGE':<20}")
    for each in instances.every():
        names = "[" + ", ".join(repr(name) for name in each.names) + "]" if each.names else ""
        print(f"{each.id:<36} . W {names:<18} {local_images.shown(each.reference):<20}")
    return 0


def _images(line: Line, _: Mapping[str, str]) -> int:
    if not line.has("quiet"):
        print("REPOSITORY")
    for name, _digest in local_images.listed():
        print(f"{name.written}    .")
    return 0


def _rm(line: Line, _: Mapping[str, str]) -> int:
    from bareboat.api import instances

    code = 0
    for text in line.words:
        found = instances.find(text)
        if found is None:
            print(f"{TABLE.error}invalid container id {text}", file=sys.stderr)
            code = 1
            continue
        instances.remove(found)
        if not line.has("quiet"):
            print(f"Info: deleting container: {found.id}")
    return code


def _rmi(line: Line, _: Mapping[str, str]) -> int:
    if not line.has("quiet"):
        print(f"Info: deleting image: {line.words[0]}")
    return local_images.remove(docker_options.name(line.words[0]))


def _tag(line: Line, _: Mapping[str, str]) -> int:
    source, target = map(docker_options.name, line.words[:2])
    if local_images.in_store(target) is not None:
        raise Mistake("target already exists", f"udocker rmi {line.words[1]}")
    local_images.tag(source, target)
    return 0


def _load(line: Line, _: Mapping[str, str]) -> int:
    if line.value("input") is None:
        raise Malformed("must specify filename of docker exported image", "udocker load -i FILE")
    for name in local_images.load(line.value("input") or ""):
        print(name.written)
    return 0


def _save(line: Line, _: Mapping[str, str]) -> int:
    target = line.value("output")
    if target is None:
        raise Mistake("images are written to files only", "udocker save -o FILE IMAGE")
    if os.path.lexists(target):
        raise Mistake(f"output file already exists: {target}", f"rm {shlex.quote(str(target))}")
    local_images.save([docker_options.name(each) for each in line.words], target)
    return 0


def _verify(line: Line, _: Mapping[str, str]) -> int:
    print(f"Info: verifying: {line.words[0]}")
    code = local_images.verify(docker_options.name(line.words[0]))
    if code == 0:
        print("Info: image Ok")
    return code


def _name(line: Line, _: Mapping[str, str]) -> int:
    from bareboat.api import instances

    found = _instance(line.words[0])
    instances.change(found, names=(*found.names, line.words[1]))
    return 0


def _rename(line: Line, _: Mapping[str, str]) -> int:
    from bareboat.api import instances

    found = _instance(line.words[0])
    others = tuple(each for each in found.names if each != line.words[0])
    instances.change(found, names=(*others, line.words[1]))
    return 0


def _rmname(line: Line, _: Mapping[str, str]) -> int:
    from bareboat.api import instances

    found = instances.find(line.words[0])
    if found is None or line.words[0] not in found.names:
        raise Mistake("removing container name", "udocker ps   # lists the names")
    instances.change(found, names=tuple(each for each in found.names if each != line.words[0]))
    print(f"Info: container name: {line.words[0]} removed.")
    return 0


def _inspect(line: Line, _: Mapping[str, str]) -> int:
    import json  # `run` starts without it

    from bareboat.api import instances

    found = instances.find(line.words[0])
    if found is not None and line.has("p"):
        print(found.tree)
        return 0
    image = local_images.in_store(docker_options.name(line.words[0])) if found is None else found.image
    if image is None:
        raise Mistake(f"image or container not found {line.words[0]}", f"udocker pull {line.words[0]}")
    print(json.dumps(local_images.configuration(image), sort_keys=True, indent=4, separators=(",", ": ")))
    return 0
