"""Compare the configuration of two images. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bareboat_images.inside.configuration import Configuration


class SettingChange(Struct, frozen=True, kw_only=True):
    """A setting that differs; None if an image does not have it. `kind`: setting, environment or label."""

    kind: str
    name: str
    before: str | None
    after: str | None


def compare(before: Configuration, after: Configuration) -> list[SettingChange]:
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
