"""The only decoder of indexes, manifests and configs: their JSON with checked types, and nothing more.

What the values mean, and which are possible, is decided by those who use them. Unknown fields are ignored.

Sources: https://github.com/opencontainers/image-spec/blob/main/manifest.md, image-index.md and config.md;
OnBuild, Healthcheck and Shell are Docker's: https://github.com/moby/docker-image-spec
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from bareboat_base import codec
from bareboat_base.errors import ImageError
from bareboat_images.oci.source import LARGEST_DOCUMENT

_T = TypeVar("_T")


class Platform(msgspec.Struct):
    architecture: str = ""
    os: str = ""
    variant: str = ""


class Descriptor(msgspec.Struct, rename="camel"):
    digest: str
    size: int | None = None
    media_type: str = ""
    platform: Platform | None = None
    urls: list[str] | None = None
    annotations: dict[str, str] | None = None


class Manifest(msgspec.Struct, rename="camel"):
    """An index (`manifests`), or the manifest of an image or another artifact."""

    schema_version: int = 2
    media_type: str = ""
    manifests: list[Descriptor] | None = None
    config: Descriptor | None = None
    layers: list[Descriptor] | None = None


class Execution(msgspec.Struct, rename="pascal"):
    """The `config` of a config: the settings of a container."""

    env: list[str] | None = None
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    shell: list[str] | None = None
    working_dir: str | None = None
    user: str | None = None
    stop_signal: str | None = None
    labels: dict[str, str] | None = None
    exposed_ports: dict[str, Any] | None = None
    volumes: dict[str, Any] | None = None
    on_build: list[str] | None = None
    healthcheck: dict[str, Any] | None = None

    @property
    def environment(self) -> dict[str, str]:
        pairs = (entry.partition("=") for entry in self.env or ())
        return {name: value for name, equals, value in pairs if name and equals}


class RootFs(msgspec.Struct):
    diff_ids: list[str] | None = None


class History(msgspec.Struct):
    created: str | None = None
    created_by: str | None = None
    comment: str | None = None
    empty_layer: bool | None = None


class Config(msgspec.Struct):
    architecture: str | None = None
    variant: str | None = None
    os: str | None = None
    author: str | None = None
    created: str | None = None
    config: Execution | None = None
    rootfs: RootFs | None = None
    history: list[History] | None = None


def manifest(data: bytes, *, name: str, media_type: str = "") -> Manifest:
    """Decode an index or a manifest. Raises ImageError."""
    return _decoded(data, Manifest, "manifest", name, media_type)


def config(data: bytes, *, name: str) -> Config:
    """Decode a config. Raises ImageError."""
    return _decoded(data, Config, "config", name, "")


def execution(data: bytes, *, name: str) -> Execution:
    """Decode the settings of a container by themselves. Raises ImageError."""
    return _decoded(data, Execution, "oci-config.json", name, "")


def _decoded(data: bytes, kind: type[_T], what: str, name: str, media_type: str) -> _T:
    if len(data) > LARGEST_DOCUMENT:
        raise ImageError(f"the {what} of {name} has {len(data):,} bytes; that is not a {what}")
    try:
        return codec.decode(data, kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ImageError(
            f"the {what} of {name} cannot be read: {codec.fault(error)}", context=media_type
        ) from None
