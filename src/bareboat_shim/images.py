"""Images of a tool's command line, as Bareboat names them; and SIF files, written by its own verbs."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import NamedTuple

from bareboat.api import images as api
from bareboat_shim.table import Mistake

_REFUSED = {
    "library": "the container library is not supported",
    "shub": "Singularity Hub does not exist any more",
    "oras": "SIF files in registries are not supported",
    "instance": "no container runs in the background",
    "http": "images are not downloaded from web servers",
    "https": "images are not downloaded from web servers",
    "docker-daemon": "no daemon is used",
}
_PASSED = ("docker", "docker-archive", "oci", "oci-archive")
_MAGICS = (b"hsqs", b"SIF_MAGIC")
_SIF_AT = 32


def reference(text: str) -> str:
    """The image as Bareboat's verbs and API name it. Raises Mistake."""
    kind, colon, rest = text.partition(":")
    if colon and not os.path.exists(text):
        if kind in _REFUSED:
            raise Mistake(
                f"{kind}:{rest} is not supported: {_REFUSED[kind]}",
                "name a SIF file, a directory, or docker://NAME:TAG",
            )
        if kind in _PASSED:
            return text
    if os.path.exists(text):
        return os.path.abspath(text)
    raise Mistake(
        f"could not open image {os.path.abspath(text)}: no such file or directory",
        "name a SIF file, a directory, or docker://NAME:TAG",
    )


def registry(text: str) -> str:
    """The registry of docker://HOST/NAME:TAG."""
    return text.removeprefix("docker://").partition("/")[0]


def for_stdout(text: str) -> str:
    """Text of an image as it is, and on a terminal without control characters."""
    if not sys.stdout.isatty():
        return text
    return "".join(each if each.isprintable() or each in "\t\n" else ascii(each)[1:-1] for each in text)


def is_image_file(path: str) -> bool:
    with open(path, "rb") as stream:
        head = stream.read(_SIF_AT + len(_MAGICS[1]))
    return head.startswith(_MAGICS[0]) or _MAGICS[1] in head


def default_file(source: str) -> str:
    """The file of `pull docker://HOST/NAME:TAG`: NAME_TAG.sif."""
    name, _, tag = source.rpartition("/")[2].partition("@")[0].partition(":")
    return f"{name or 'image'}_{tag or 'latest'}.sif"


class Form(NamedTuple):
    """How a file is written. `force`: it may exist; `machine`: the architecture, None for this one."""

    force: bool = False
    plain_http: bool = False
    machine: str | None = None


def save(source: str, target: str, form: Form) -> None:
    """Pull an image into the store, and write it as a SIF file."""
    text = reference(source)
    _check_target(target, force=form.force)
    api.save_sif(
        text, target, machine=form.machine, plain_http=registry(source) if form.plain_http else "", fresh=True
    )


def build(recipe: str, target: str, form: Form, values: Sequence[str]) -> int:
    """Build the image of a definition file, and write it as a SIF file; return the exit code. `values`:
    NAME=VALUE of its variables."""
    _check_target(target, force=form.force)
    name = _name(target)
    given = [word for value in values for word in ("--build-arg", value)]
    plain_http = ["--plain-http"] if form.plain_http else []
    code = verb("build", "-f", recipe, "-t", name, *plain_http, *given, ".")
    if code == 0:
        try:
            api.save_sif(name, target)
        finally:
            verb("rm", name)
    return code


def _check_target(target: str, *, force: bool) -> None:
    if os.path.lexists(target):
        if not force:
            raise Mistake(f"Image file already exists: {target!r} - will not overwrite", "--force")
        if os.path.isdir(target):
            raise Mistake(f"{target} is a directory", f"rm -r {shlex.quote(target)}")


def _name(target: str) -> str:
    """The name in the store while the file is written."""
    plain = re.sub(r"[^a-z0-9.-]", "-", os.path.basename(target).lower()).strip("-.")
    return f"shim-{plain}-{os.getpid()}"


def verb(action: str, *words: str) -> int:
    """What it prints is no output of the tool, which a script may read."""
    from bareboat_base import execute

    program = [sys.executable, "-m", "bareboat", "image", action, "--quiet", *words]
    return execute.run_in_terminal(["/bin/sh", "-c", 'exec "$@" >&2', "sh", *program])
