"""The verbs of Docker and Podman on images."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from bareboat_shim import docker_options, docker_run, images, local_images
from bareboat_shim.docker_table import TABLE
from bareboat_shim.table import Line, Malformed, Mistake

_FIELD = re.compile(r"\{\{\s*(json\s+)?\.([A-Za-z_.]*)\s*\}\}")
_ID = 12


def run(line: Line, environment: Mapping[str, str]) -> int:
    """Run a command line; return the exit code, -N for signal N. Raises Mistake and BareboatError."""
    verbs: dict[str, Callable[[Line, Mapping[str, str]], int]] = {
        "run": docker_run.run, "pull": _pull, "push": _push, "build": _build, "images": _images, "tag": _tag,
        "rmi": _rmi, "save": _save, "load": _load, "inspect": _inspect, "exists": _exists,
        "version": _version, "info": _info,
    }  # fmt: skip
    return verbs[line.verb.name](line, environment)


def _version(line: Line, _: Mapping[str, str]) -> int:
    if line.has("version"):
        print(f"Docker version {TABLE.version}, Bareboat's shim")
    else:
        print(f"Version: {TABLE.version}\nRuntime: Bareboat's shim")
    return 0


def _info(_: Line, __: Mapping[str, str]) -> int:
    print("no daemon is used; images are in Bareboat's store: see bareboat config show")
    return 0


def _pull(line: Line, _: Mapping[str, str]) -> int:
    for text in line.words:
        name = docker_options.name(text)
        image = local_images.pull(docker_run.remote(line, name))
        print(image.digest if line.has("quiet") else f"pulled {name.written}: {image.digest}")
    return 0


def _push(line: Line, _: Mapping[str, str]) -> int:
    if len(line.words) > 2:
        raise Malformed("push takes an image and a destination", "docker push IMAGE")
    name, target = docker_options.name(line.words[0]), docker_options.name(line.words[-1])
    return local_images.push(name, target, plain_http=bool(docker_run.remote(line, target).plain_http))


def _build(line: Line, _: Mapping[str, str]) -> int:
    if len(line.words) > 1:
        raise Malformed("build takes one directory", f"docker build {line.verb.usage}")
    if (text := line.value("platform")) is not None:
        local_images.check_platform(text)
    context = line.words[0] if line.words else "."
    if not os.path.isdir(context):
        raise Mistake(f"{context} is not a directory: contexts are directories", "docker build DIR")
    words = [flag for flag in ("--no-cache", "--pull") if line.has(flag.lstrip("-"))]
    for key in ("build-arg", "secret", "ssh", "add-host"):
        words += [word for value in line.values(key) for word in (f"--{key}", value)]
    for key in ("file", "target", "network"):
        if (value := line.value(key)) is not None:
            words += [f"--{key}", value]
    names = [docker_options.name(text) for text in line.values("tag")]
    mark = f"shim-build-{os.getpid()}"
    words += [word for each in (*(name.local for name in names), mark) for word in ("--tag", each)]
    code = images.verb("build", *words, context)
    if code == 0:
        image = local_images.by_name(mark)
        print(image.digest.partition(":")[2])
        if names:
            images.verb("rm", mark)
    return code


def _images(line: Line, _: Mapping[str, str]) -> int:
    wanted = docker_options.name(line.words[0]) if line.words else None
    rows = []
    for name, digest in local_images.listed():
        if wanted is not None and name.repository != wanted.repository:
            continue
        if wanted is not None and ":" in line.words[0].rpartition("/")[2] and name.tag != wanted.tag:
            continue
        key = digest if line.has("no-trunc") else digest.partition(":")[2][:_ID]
        rows.append({"Repository": name.repository, "Tag": name.tag, "ID": key})
    template = line.value("format")
    if template is not None:
        print_as(template, [{**row, "Id": row["ID"]} for row in rows])
    elif line.has("quiet"):
        print("".join(f"{key}\n" for key in dict.fromkeys(row["ID"] for row in rows)), end="")
    else:
        lines = [] if line.has("noheading") else [("REPOSITORY", "TAG", "IMAGE ID")]
        lines += [(row["Repository"], row["Tag"], row["ID"]) for row in rows]
        widths = [max((len(each[column]) for each in lines), default=0) for column in range(3)]
        for each in lines:
            print("  ".join(text.ljust(width) for text, width in zip(each, widths, strict=True)).rstrip())
    return 0


def _as_json(value: object, *, indent: int | None = None) -> str:
    import json  # `run` starts without it

    return json.dumps(value, indent=indent)


def print_as(template: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print each row by a template of Go with fields only. Raises Mistake for another one."""
    if template == "json":
        print(_as_json(list(rows), indent=4))
        return

    if "{{" in _FIELD.sub("", template):
        raise Mistake(f"--format {template}: only fields such as {{{{.Id}}}} are supported", "--format json")
    text = template.removeprefix("table ").replace(r"\t", "\t")
    for row in rows:
        print(images.for_stdout(_FIELD.sub(functools.partial(_field, row, template), text)))


def _field(row: Mapping[str, object], template: str, match: re.Match[str]) -> str:
    value: object = row
    for part in filter(None, match[2].split(".")):
        if not isinstance(value, Mapping) or part not in value:
            raise Mistake(f"--format {template}: .{match[2]} is not known here", "--format json")
        value = value[part]
    return value if isinstance(value, str) and not match[1] else _as_json(value)


def _tag(line: Line, _: Mapping[str, str]) -> int:
    for text in line.words[1:]:
        local_images.tag(docker_options.name(line.words[0]), docker_options.name(text))
    return 0


def _rmi(line: Line, _: Mapping[str, str]) -> int:
    code = 0
    for text in line.words:
        name = docker_options.name(text)
        if local_images.in_store(name) is None:
            print(f"{TABLE.error}{text}: image not known", file=sys.stderr)
            code = 0 if line.has("force") else 1
        elif local_images.remove(name) == 0:
            print(f"Untagged: {name.written}")
        else:
            code = 1
    return code


def _exists(line: Line, _: Mapping[str, str]) -> int:
    return 0 if local_images.in_store(docker_options.name(line.words[0])) is not None else 1


def _save(line: Line, _: Mapping[str, str]) -> int:
    if line.value("format") not in (None, "docker-archive"):
        raise Mistake(f"--format {line.value('format')} is not supported", "use bareboat image save")
    names = [docker_options.name(text) for text in line.words]
    target = line.value("output")
    if target is not None:
        if os.path.isfile(target):
            os.unlink(target)  # Docker replaces it
        local_images.save(names, target)
        return 0
    import shutil
    import tempfile

    from bareboat_base.files import ownership

    with tempfile.TemporaryDirectory(dir=ownership.temporary_directory()) as folder:
        local_images.save(names, f"{folder}/image.tar")
        with open(f"{folder}/image.tar", "rb") as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
    return 0


def _load(line: Line, _: Mapping[str, str]) -> int:
    path = line.value("input")
    if path is not None:
        loaded = local_images.load(path)
    else:
        import shutil
        import tempfile

        from bareboat_base.files import ownership

        with tempfile.NamedTemporaryFile(dir=ownership.temporary_directory()) as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
            stream.flush()
            loaded = local_images.load(stream.name)
    for name in loaded:
        print(f"Loaded image: {name.written}")
    return 0


def _inspect(line: Line, _: Mapping[str, str]) -> int:
    if line.value("type") not in (None, "image"):
        raise Mistake("containers are removed at their end: only images are inspected", "--type image")
    found, code = [], 0
    for text in line.words:
        name = docker_options.name(text)
        image = local_images.in_store(name)
        if image is None:
            print(f"{TABLE.error}no such image: {text}", file=sys.stderr)
            code = 1 if TABLE.names[0] == "docker" else 125
            continue
        document = local_images.configuration(image)
        entry = {
            "Id": image.digest,
            "RepoTags": [each.written for each, digest in local_images.listed() if digest == image.digest],
            "Architecture": document["architecture"],
            "Os": document["os"],
            "Config": document["config"],
            "RootFS": {"Type": "layers", "Layers": [layer.diff_id for layer in image.layers]},
            "Size": image.size_bytes,
        }
        found.append(entry)
    template = line.value("format")
    if template is None:
        print(_as_json(found, indent=4))
    else:
        print_as(template, found)
    return code
