"""Bundles: one file that carries an image to a machine without a network.

It is an OCI archive, so podman and skopeo read it too, with a folder `fairlead/` more: what the image was
called, and Fairlead itself as wheels with a script that installs them.
"""

from __future__ import annotations

import platform
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from fairlead import codec
from fairlead.errors import ImageError
from fairlead.images import oci
from fairlead.images.progress import Progress
from fairlead.images.wheels import wheel_set
from fairlead.model import Image, Pin
from fairlead.store import Store

_PINS = "fairlead/pins.json"
_INSTALL = "fairlead/install.sh"
_LARGEST_PINS = 1 << 20

_INSTALL_SCRIPT = """\
#!/bin/sh
# Installs Fairlead from this bundle, without a network:
#   tar -xf BUNDLE fairlead && sh fairlead/install.sh [FOLDER]
#   FOLDER/bin/fairlead image load BUNDLE
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/venv}
python=${PYTHON:-python@VERSION@}
command -v "$python" > /dev/null || python=python3
[ "$("$python" -c 'import platform, sys
print("%d.%d" % sys.version_info[:2], platform.machine())')" = "@VERSION@ @MACHINE@" ] || {
  echo "these wheels are for Python @VERSION@ on @MACHINE@; name it: PYTHON=/path/to/it sh $0" >&2
  exit 2
}
"$python" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-index \\
  --find-links "$here/wheels" fairlead
echo "installed: $folder/bin/fairlead"
"""


def save(
    image: Image,
    pins: Sequence[Pin],
    store: Store,
    path: Path,
    *,
    name: str,
    progress: Progress = lambda *_: None,
) -> None:
    """Write the bundle, whole or not at all. Raises StoreError for a layer that was changed in the store,
    FairleadError when Fairlead cannot be packed."""
    extra = {_PINS: codec.to_json(tuple(pins)), _INSTALL: _install_script().encode()}
    extra |= {f"fairlead/wheels/{file}": data for file, data in wheel_set().items()}
    oci.save_archive(store, image, path, name=name, extra=extra, progress=progress)


def _install_script() -> str:
    """What is compiled among the wheels is for the Python that runs now."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return _INSTALL_SCRIPT.replace("@VERSION@", version).replace("@MACHINE@", platform.machine())


def pins(path: Path) -> tuple[Pin, ...]:
    """What the image of an archive was called where it was saved; nothing for another tool's archive.

    Raises ImageError for a damaged list.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            member = archive.getmember(_PINS)
            # Not of a link, which would stand for another member.
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is None:
                return ()
            data = stream.read(_LARGEST_PINS)
    except (KeyError, tarfile.TarError, OSError, ValueError, EOFError, OverflowError, RecursionError):
        return ()
    try:
        return codec.from_json(data, tuple[Pin, ...], what="the list of names")
    except Exception as error:
        raise ImageError(f"{path}: {error}", remedy="copy the bundle again") from None
