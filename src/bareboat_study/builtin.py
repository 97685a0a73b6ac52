"""The built-in studies: their files in this package, copied to a directory of the user's.

studies/NAME/laptop.toml, paper.toml    the study, for each scale; cluster.toml: on several nodes
             *.py                       the training script, as a user would write it
             published.csv              what the publication measured
             requirements.txt           the packages that the script imports
             README.md                  the publication, and how the study differs from it
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from bareboat_base.errors import UsageError

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


def copied(study: Builtin, folder: Path) -> tuple[Builtin, bool]:
    """The study in this directory, and whether it was copied there. A directory that exists stays as it is:
    its files may be edited ones.

    Raises UsageError for a directory that is no copy, and for one of another user, who could change the
    files before they run.
    """
    copy = Builtin(name=study.name, scale=study.scale, folder=folder)
    if os.path.lexists(folder):
        is_own = os.lstat(folder).st_uid == os.getuid()
        if not is_own or not copy.file.is_file():
            why = f"has no {copy.file.name}" if is_own else "belongs to another user"
            raise UsageError(
                f"{folder} {why}, so it is no copy of the study {study.name}",
                remedy="change to another directory, or remove it",
            )
        return copy, False
    try:
        with tempfile.TemporaryDirectory(prefix=f".{study.name}-", dir=folder.parent) as scratch:
            whole = Path(scratch, study.name)
            whole.mkdir()
            for path in study.folder.iterdir():
                if path.is_file():
                    (whole / path.name).write_bytes(path.read_bytes())
            whole.rename(folder)
    except OSError as error:
        raise UsageError(
            f"the files of the study {study.name} cannot be written to {folder}: {error.strerror}",
            remedy="change to a directory that you can write to",
        ) from None
    return copy, True
