"""An image as one SIF file that Apptainer runs as it runs those that it makes from OCI images."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from msgspec import Raw, Struct

from bareboat_base import architectures, codec
from bareboat_base.files import outputs
from bareboat_base.sif import write_sif
from bareboat_images.formats.flatten import flatten
from bareboat_images.formats.squash import make_squashfs
from bareboat_images.model import Image
from bareboat_images.progress import Progress
from bareboat_images.store import Store

_FOLDER = ".singularity.d"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Configured(Struct):
    config: Raw = Raw(b"{}")


def save(store: Store, image: Image, path: Path, *, progress: Progress = lambda *_: None) -> None:
    """Write the file, whole or not at all. Raises StoreError, and ImageError without mksquashfs."""
    machine = architectures.machine(image.architecture) if image.architecture else os.uname().machine
    config = bytes(codec.decode(store.config(image), _Configured).config)
    with store.scratch() as scratch, outputs.beside(path) as part:
        tree = scratch / "tree"
        flatten(store.trees(image), tree)
        _add_metadata(tree, image)
        make_squashfs(tree, scratch / "image.squashfs", progress=progress)
        write_sif(scratch / "image.squashfs", part, machine, oci_config=config)
        part.chmod(part.stat().st_mode | 0o111)


def _add_metadata(tree: Path, image: Image) -> None:
    """Write the scripts that the tree lacks: an image built from a definition file has its own."""
    scripts = tree / _FOLDER / "env"
    scripts.mkdir(parents=True, exist_ok=True)
    if not any(scripts.glob("10-docker*.sh")):
        _write(scripts / "10-docker2singularity.sh", "#!/bin/sh\n" + _environment(image))
    if not (tree / _FOLDER / "runscript").exists():
        _write(tree / _FOLDER / "runscript", _runscript(image))


def _write(path: Path, text: str) -> None:
    with open(path, "xb") as stream:  # other files are links into the store
        stream.write(os.fsencode(text))
    path.chmod(0o755)


def _environment(image: Image) -> str:
    """The variables: PATH always, others unless the shell outside has them."""
    lines = []
    for name, value in image.environment.items():
        if not _NAME.fullmatch(name):
            continue
        quoted = re.sub(r'(["\\$`])', r"\\\1", value)
        lines.append(f'export {name}="{quoted if name == "PATH" else f"${{{name}:-{quoted}}}"}"\n')
    return "".join(lines)


def _runscript(image: Image) -> str:
    """ENTRYPOINT and CMD: arguments replace CMD."""
    entrypoint, default = shlex.join(image.process.entrypoint), shlex.join(image.process.command)
    if not entrypoint and not default:
        return '#!/bin/sh\nexec /bin/sh "$@"\n'
    return f'#!/bin/sh\n[ $# -gt 0 ] || set -- {default}\nexec {entrypoint} "$@"\n'
