"""Builds by podman or buildah: the same Dockerfile and flags, and the result in the same store.

For what one user ID cannot do: programs that check their `chown`, a builder that a site prescribes. Their
cache is their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bareboat import execute
from bareboat.errors import BareboatError, ImageError, UsageError
from bareboat.images.build.options import Built, Options, Reporter
from bareboat.images.recipe import definition
from bareboat.model import Image
from bareboat.store import Store

BUILDERS = ("podman", "buildah")
_KEPT_BYTES = 4096
_LAST_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other builder. `path`: of its program; `secrets`, `sockets`: as on the command line; `pull`: ask
    registries for newer base images."""

    name: str
    path: str
    secrets: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    pull: bool = False


def command(peer: Peer, options: Options, result: Path) -> list[str]:
    """The command that builds. `result`: the file for the image's ID."""
    words = [peer.path, "build" if peer.name == "podman" else "bud"]
    words += ["--layers", "--iidfile", str(result), "--file", options.name]
    for flag, values in (
        ("--build-arg", [f"{name}={value}" for name, value in options.arguments.items()]),
        ("--secret", peer.secrets),
        ("--ssh", peer.sockets),
        ("--add-host", [f"{name}:{address}" for name, address in options.hosts]),
        ("--target", filter(None, [options.target])),
        ("--platform", filter(None, [options.platform])),
        ("--network", filter(lambda network: network != "default", [options.network])),
        ("--timestamp", [] if options.epoch is None else [str(options.epoch)]),
    ):
        for value in values:
            words += [flag, value]
    words += ["--no-cache"] * options.no_cache + ["--pull-always"] * peer.pull
    return [*words, str(options.context or ".")]


def export(peer: Peer, name: str, archive: Path) -> list[str]:
    """The command that writes an image as an OCI archive."""
    if peer.name == "podman":
        return [peer.path, "save", "--quiet", "--format", "oci-archive", "--output", str(archive), name]
    return [peer.path, "push", "--quiet", name, f"oci-archive:{archive}"]


def build(
    store: Store, peer: Peer, options: Options, reporter: Reporter, take: Callable[[Path], Image]
) -> Built:
    """Build with another builder. `take`: brings an OCI archive into the store. Raises BareboatError."""
    if definition.is_definition(options.dockerfile):
        raise UsageError(
            f"{peer.name} does not build definition files",
            context=options.name,
            remedy="remove --builder, or convert the file to a Dockerfile",
        )
    with store.scratch() as scratch:
        result, archive = scratch / "id", scratch / "built.tar"
        _run(peer, command(peer, options, result), f"building with {peer.name}", reporter)
        name = result.read_text().strip() if result.is_file() else ""
        if not name:
            raise ImageError(f"{peer.name} wrote no image ID", remedy=f"check: {peer.name} version")
        _run(peer, export(peer, name, archive), f"copying from {peer.name}", reporter)
        return Built(image=take(archive), steps=0, cached=0)


def _run(peer: Peer, words: list[str], title: str, reporter: Reporter) -> None:
    tail = bytearray()

    def show(data: bytes) -> None:
        reporter.output(title, data)
        tail.extend(data)
        del tail[:-_KEPT_BYTES]

    reporter.begin(title, words[1])
    code = execute.run_step(words, environment=os.environ, show=show)
    if code:
        last = tail.decode(errors="replace").splitlines()[-_LAST_LINES:]
        raise BareboatError(
            f"{peer.name} {words[1]} exited with code {code}",
            context="\n".join(line for line in last if line.strip()),
            remedy="repeat with --verbose for all output, or without --builder",
        )
