"""The built-in studies: their files in this package, copied to a directory of the user's.

studies/NAME/laptop.toml, paper.toml    the study, for each scale; cluster.toml: on several nodes
             *.py                       the training script, as a user would write it
             published.csv              what the publication measured
             requirements.txt           the packages that the script imports
             README.md                  the publication, and how the study differs from it
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted

#: Every study has the first and the last.
SCALES = ("laptop", "cluster", "paper")
#: name -> what it measures.
NAMES = {
    "galileo": "images/s of five networks x batch x ranks, container beside bare metal",
    "lincoln": "training and inference time and accuracy of a small and a large network",
    "ifca": "InceptionV3, ResNet50 and ResNet101 on 1 to 6 workers, with their speed-up",
    "downscaling": "a climate-downscaling network: images/s and loss per number of workers",
    "sharing": "several containers on one device, against one that has it alone",
}
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """A built-in study in the directory `folder`."""

    name: str
    scale: str
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / f"{self.scale}.toml"

    @property
    def published(self) -> Path:
        return self.folder / "published.csv"


def packaged(name: str, scale: str = SCALES[0]) -> Builtin:
    """The study where it is installed."""
    return Builtin(
        name=name, scale=scale, folder=Path(str(resources.files("bareboat_study"))) / "studies" / name
    )


def scales(name: str) -> list[str]:
    """The scales that a study has."""
    return [scale for scale in SCALES if packaged(name, scale).file.is_file()]


def copied(study: Builtin, folder: Path) -> tuple[Builtin, int]:
    """The study in this directory, and the number of files written there. Files that are there and the same
    stay as they are.

    Raises UsageError for files that differ, which are the user's: nothing is written then.
    """
    _check_owner(folder)
    files = {path.name: path.read_bytes() for path in sorted(study.folder.iterdir()) if path.is_file()}
    there = {name: _content(folder / name) for name in files}
    changed = [name for name, data in files.items() if there[name] not in (None, data)]
    if changed:
        own = folder / f"{study.scale}.toml"
        raise UsageError(
            f"{folder / changed[0]} differs from the built-in study's"
            + (f", and {len(changed) - 1} more" if len(changed) > 1 else ""),
            remedy=f"bareboat prove {shlex.quote(str(own))}   # measures the files as they are; "
            "or remove the directory",
        )
    missing = [name for name in files if there[name] is None]
    try:
        folder.mkdir(exist_ok=True)
        for name in missing:
            # Never through a link, and never over a file that appeared since.
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            with os.fdopen(descriptor, "wb") as target:
                target.write(files[name])
    except OSError as error:
        raise UsageError(
            f"the files of the study {study.name} cannot be written to {folder}: {error.strerror}",
            remedy="change to a directory that you can write to",
        ) from None
    return Builtin(name=study.name, scale=study.scale, folder=folder), len(missing)


def _check_owner(folder: Path) -> None:
    """Raise UsageError for a directory of another user, who could change the files before they run."""
    try:
        owner = os.lstat(folder).st_uid
    except OSError:
        return
    if owner != os.getuid():
        raise UsageError(
            f"the directory {folder} belongs to another user, who could change the study",
            remedy="change to a directory of your own",
        )


def _content(path: Path) -> bytes | None:
    """None: there is nothing of this name."""
    try:
        return untrusted.read_bytes(path, limit=_MOST_BYTES)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise UsageError(
            f"{path.parent} is a file; the study's files need a directory of this name",
            remedy="change to another directory",
        ) from None
    except OSError:  # a link, a directory, a huge file: not ours
        return b""
