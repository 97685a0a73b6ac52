"""Images for tests that pull them: real tars with real files, compressed as registries have them."""

import io
import json
import random
import re
import tarfile
from collections.abc import Mapping

from registries import INDEX, MANIFEST, Packed, RealRegistry, pack, push, sha256
from tools import tool

from bareboat_images.registry.options import Options
from bareboat_images.registry.pusher import open_pusher

__all__ = ["Packed", "busybox", "fetched", "noise", "pack", "tar", "upload", "upload_index"]

_MOMENT = 1_700_000_000


def tar(files: Mapping[str, bytes | str | None], *, modes: Mapping[str, int] | None = None) -> bytes:
    """A tar of these paths: bytes are a file's content, text a link's target, None makes a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mtime = _MOMENT
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(content, str):
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, content, 0o777
            else:
                entry.size, entry.mode = len(content), (modes or {}).get(name, 0o644)
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()


def busybox(**more: bytes | str | None) -> bytes:
    """A layer in which commands run: one static program with its links, and these files."""
    with open(tool("busybox"), "rb") as stream:
        program = stream.read()
    files: dict[str, bytes | str | None] = {"bin": None, "bin/busybox": program}
    for name in ("sh", "cat", "ls", "id", "env", "echo", "touch", "rm", "stat", "whoami", "true"):
        files[f"bin/{name}"] = "busybox"
    for name in ("tmp", "proc", "dev", "sys", "etc", "root"):
        files[name] = None
    return tar(files | more, modes={"bin/busybox": 0o755})


def noise(size: int, seed: int) -> bytes:
    """Bytes that do not compress, the same each time."""
    return random.Random(seed).randbytes(size)


def upload(registry: RealRegistry, image: Packed, name: str) -> str:
    """Push an image to `NAME:TAG` of a registry; return its whole reference."""
    repository, _, tag = name.partition(":")
    options = Options(environment={}, plain_http=registry.ca_file is None)
    with open_pusher(registry.address, repository, options=options) as pusher:
        push(pusher, image, tag)
    return f"{registry.address}/{name}"


def upload_index(registry: RealRegistry, images: Mapping[str, Packed], name: str) -> str:
    """Push an index of images for several architectures; return its whole reference."""
    entries = []
    for architecture, image in images.items():
        upload(registry, image, f"{name.partition(':')[0]}:{architecture}")
        platform = {"os": "linux", "architecture": architecture}
        size = len(image.manifest)
        entries.append({"mediaType": MANIFEST, "digest": image.digest, "size": size, "platform": platform})
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
    repository, _, tag = name.partition(":")
    options = Options(environment={}, plain_http=registry.ca_file is None)
    with open_pusher(registry.address, repository, options=options) as pusher:
        pusher.put_manifest(tag, index, INDEX)
    return f"{registry.address}/{name}"


def fetched(registry: RealRegistry, blob: bytes) -> int:
    """How often a blob was asked for, by the registry's access log."""
    request = re.compile(rf'"GET /v2/\S+/blobs/{sha256(blob)} HTTP')
    return len(request.findall(registry.log))
