"""The differences between two images: packages, files and configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat_images.comparison import packages
from bareboat_images.comparison.files import Change, Comparison, counts
from bareboat_images.comparison.packages import PackageChange
from bareboat_images.inside.configuration import Configuration

if TYPE_CHECKING:
    from bareboat_images.model import Image
    from bareboat_images.store import Store


class Differences(Struct, frozen=True, kw_only=True):
    """What differs. `unreadable`: paths that this user cannot read, and that were not compared; `warnings`:
    what else is not known."""

    settings: list[SettingChange]
    packages: list[PackageChange]
    files: list[Change]
    unreadable: list[str]
    warnings: list[str]

    def __bool__(self) -> bool:
        """Whether anything is known to differ."""
        return bool(self.settings or self.packages or self.files)

    def summary(self) -> dict[str, int]:
        """Counts and bytes of all files that differ."""
        return counts(self.files)

    def directories(self, depth: int) -> list[tuple[str, dict[str, int]]]:
        """Directory, cut at a depth -> counts and bytes; those with most bytes first."""
        found: dict[str, list[Change]] = {}
        for each in self.files:
            parts = each.path.split("/")[1:-1][:depth]
            found.setdefault("/" + "/".join(parts), []).append(each)
        counted = [(path, counts(below)) for path, below in found.items()]
        return sorted(
            counted, key=lambda each: (-sum(v for k, v in each[1].items() if k.endswith("bytes")), each[0])
        )


def compare(store: Store, images: tuple[Image, Image], say: Callable[[str], None]) -> Differences:
    """Compare two images of the store; `say` is called with what is being read. Raises BareboatError."""
    from bareboat_images.sbom import inventory

    settings = compare_settings(*map(store.configuration, images))
    with store.guarded():
        listed = []
        for image in images:
            say(f"listing packages: {image.reference or image.digest}")
            listed.append(inventory.take(store.trees(image)))
        comparison = Comparison(*map(store.view, images), progress=say)
        changes = list(comparison.changes())
    return Differences(
        settings=settings,
        packages=packages.compare(listed[0].packages, listed[1].packages),
        files=changes,
        unreadable=comparison.unreadable,
        warnings=[
            *dict.fromkeys([*listed[0].warnings, *listed[1].warnings]),
            *(f"{path} cannot be read, and is not compared" for path in comparison.unreadable),
        ],
    )


class SettingChange(Struct, frozen=True, kw_only=True):
    """A setting that differs; None if an image does not have it. `kind`: setting, environment or label."""

    kind: str
    name: str
    before: str | None
    after: str | None


def compare_settings(before: Configuration, after: Configuration) -> list[SettingChange]:
    """The settings that differ; the history is not compared."""
    return [
        *_pairs("setting", before.settings, after.settings),
        *_pairs("environment", before.environment, after.environment),
        *_pairs("label", before.labels, after.labels),
    ]


def _pairs(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[SettingChange]:
    names = [*before, *(name for name in after if name not in before)]
    return [
        SettingChange(kind=kind, name=name, before=before.get(name), after=after.get(name))
        for name in (names if kind == "setting" else sorted(names))
        if before.get(name) != after.get(name)
    ]
