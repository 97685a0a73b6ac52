"""One image with each of its parts named by its digest, in a layout, an archive, a registry."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archives import tar_of
from registries import INDEX, MANIFEST, FakeRegistry

_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def digest(data: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


@dataclass(frozen=True)
class Digested:
    """The image's blobs by digest; the digests of its parts, and of the top, an index."""

    blobs: dict[str, bytes]
    names: dict[str, str]

    @property
    def digest(self) -> str:
        return self.names["manifest"]

    def files(self) -> dict[str, bytes]:
        """The files of an OCI layout."""
        top = {
            "mediaType": INDEX,
            "digest": self.names["index"],
            "size": len(self.blobs[self.names["index"]]),
        }
        index = {"schemaVersion": 2, "manifests": [top]}
        return {
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps(index).encode(),
            **{"blobs/" + name.replace(":", "/"): data for name, data in self.blobs.items()},
        }

    def layout(self, folder: Path) -> Path:
        """Write an OCI layout."""
        for name, data in self.files().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder

    def archive(self, path: Path) -> Path:
        path.write_bytes(tar_of(self.files()))
        return path

    def serve(self, fake: FakeRegistry) -> str:
        """Put the image into a registry; return its reference, with the digest of the index."""
        fake.blobs |= self.blobs
        for name, kind in ((self.names["index"], INDEX), (self.names["manifest"], MANIFEST)):
            fake.manifests[name] = (self.blobs[name], kind)
        return f"{fake.address}/team/app@{self.names['index']}"


def make(*tars: bytes, **execution: Any) -> Digested:
    """An image of these layers."""

    def named(part: str, data: bytes) -> str:
        found = digest(data)
        names[part] = found
        if part != "diff_id":
            blobs[found] = data
        return found

    def described(part: str, data: bytes, media_type: str, **more: object) -> dict[str, object]:
        return {"mediaType": media_type, "digest": named(part, data), "size": len(data), **more}

    names: dict[str, str] = {}
    blobs: dict[str, bytes] = {}
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], **execution},
            "rootfs": {"type": "layers", "diff_ids": [named("diff_id", each) for each in tars]},
        }
    ).encode()
    layers = [described("layer", gzip.compress(each, 1, mtime=0), _LAYER) for each in tars]
    image = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described("config", config, _CONFIG)}
    manifest = json.dumps(image | {"layers": layers}).encode()
    platform = {"architecture": "amd64", "os": "linux"}
    entry = described("manifest", manifest, MANIFEST, platform=platform)
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode()
    named("index", index)
    return Digested(blobs=blobs, names=names)
