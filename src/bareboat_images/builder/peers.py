"""Builds by other tools, with the same command line and the same store.

For builds that need more than one user ID, a builder that a site prescribes, or an image that another tool
must build. Each tool has its own cache. Options that a tool does not support are refused, not ignored.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bareboat_base import execute
from bareboat_base.errors import BareboatError, ImageError, PlanError, UsageError
from bareboat_images.builder.options import Built, Options, Reporter
from bareboat_images.model import Image
from bareboat_images.oci.reference import Transport
from bareboat_images.recipe import definition
from bareboat_images.recipe.stages import EPOCH
from bareboat_images.store import Store

BUILDERS = ("podman", "buildah", "docker", "apptainer", "ch-image")
_KEPT_BYTES = 4096
_LAST_LINES = 12
#: Flag -> the builders that do not support it.
_LACKING: Mapping[str, tuple[str, ...]] = {
    "--secret": ("apptainer", "ch-image"),
    "--ssh": ("apptainer", "ch-image"),
    "--add-host": ("apptainer", "ch-image"),
    "--target": ("apptainer", "ch-image"),
    "--platform": ("apptainer", "ch-image"),
    "--network": ("apptainer", "ch-image"),
    "SOURCE_DATE_EPOCH": ("apptainer", "ch-image"),
    "--pip-index": BUILDERS,
    "--apt-mirror": BUILDERS,
    "--ca-bundle": BUILDERS,
}
#: Loads an image from a file into the store.
Take = Callable[[Transport, Path], Image]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other builder. `path`: its program; `secrets`, `sockets`: as on the command line; `pull`: pull
    newer base images."""

    name: str
    path: str
    secrets: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    pull: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The commands of a build. `title`: of the build command; `export`: returns the command that writes the
    image to `file`, given its name or ID; None if the build writes the file."""

    build: list[str]
    title: str
    file: Path
    transport: Transport
    export: Callable[[str], list[str]] | None = None


def build(store: Store, peer: Peer, options: Options, reporter: Reporter, take: Take) -> Built:
    """Build with another builder. Raises BareboatError."""
    _check(peer, options)
    with store.scratch() as scratch:
        commands = planned(peer, options, scratch)
        folder = options.context if peer.name == "apptainer" else None  # the source of %files
        _run(peer, commands.build, commands.title, f"building with {peer.name}", reporter, folder)
        if commands.export is not None:
            result = scratch / "id"
            name = result.read_text().strip() if result.is_file() else _name(scratch)
            if not name:
                raise ImageError(f"{peer.name} wrote no image ID", remedy=f"check: {peer.name} version")
            words = commands.export(name)
            try:
                _run(peer, words, words[1], f"copying from {peer.name}", reporter, None)
            finally:
                if peer.name == "ch-image":
                    execute.run([peer.path, "delete", name], environment=_environment(peer))
        return Built(image=take(commands.transport, commands.file), steps=0, cached=0)


def planned(peer: Peer, options: Options, scratch: Path) -> Commands:
    """The commands of a build. `scratch`: the directory for its results."""
    match peer.name:
        case "apptainer":
            return _apptainer(peer, options, scratch)
        case "ch-image":
            return _charliecloud(peer, options, scratch)
        case _:
            return _by_id(peer, options, scratch)


def _by_id(peer: Peer, options: Options, scratch: Path) -> Commands:
    """The commands for podman, buildah and docker, which write the image's ID."""
    arguments = dict(options.arguments)
    epoch = [] if options.epoch is None or peer.name == "docker" else [str(options.epoch)]
    if epoch and EPOCH not in options.dockerfile:  # the tools warn about arguments without an ARG
        arguments.pop(EPOCH, None)
    words = [peer.path, "bud" if peer.name == "buildah" else "build"]
    words += [] if peer.name == "docker" else ["--layers"]
    words += ["--iidfile", str(scratch / "id"), "--file", options.name]
    for flag, values in (
        ("--build-arg", [f"{name}={value}" for name, value in arguments.items()]),
        ("--secret", peer.secrets),
        ("--ssh", peer.sockets),
        ("--add-host", [f"{name}:{address}" for name, address in options.hosts]),
        ("--target", filter(None, [options.target])),
        ("--platform", filter(None, [options.platform])),
        ("--network", filter(lambda network: network != "default", [options.network])),
        ("--timestamp", epoch),
    ):
        for value in values:
            words += [flag, value]
    words += ["--no-cache"] * options.no_cache
    words += ["--pull" if peer.name == "docker" else "--pull-always"] * peer.pull
    words.append(str(options.context or "."))
    file = scratch / "built.tar"
    export: Callable[[str], list[str]]
    match peer.name:
        case "podman":
            export = lambda name: [  # noqa: E731
                peer.path, "save", "--quiet", "--format", "oci-archive", "--output", str(file), name,
            ]  # fmt: skip
        case "docker":
            export = lambda name: [peer.path, "save", "--output", str(file), name]  # noqa: E731
        case _:
            export = lambda name: [peer.path, "push", "--quiet", name, f"oci-archive:{file}"]  # noqa: E731
    transport = Transport.DOCKER_ARCHIVE if peer.name == "docker" else Transport.OCI_ARCHIVE
    return Commands(build=words, title=words[1], file=file, transport=transport, export=export)


def _apptainer(peer: Peer, options: Options, scratch: Path) -> Commands:
    file = scratch / "built.sif"
    words = [peer.path, "build"]
    for name, value in options.arguments.items():
        words += ["--build-arg", f"{name}={value}"]
    words += ["--disable-cache"] * (options.no_cache or peer.pull)
    return Commands(
        build=[*words, str(file), os.path.abspath(options.name)],
        title="build",
        file=file,
        transport=Transport.SIF,
    )


def _charliecloud(peer: Peer, options: Options, scratch: Path) -> Commands:
    words = [peer.path, "build", "--force", "--tag", _name(scratch), "--file", options.name]
    for name, value in options.arguments.items():
        words += ["--build-arg", f"{name}={value}"]
    words += ["--rebuild"] * options.no_cache + ["--always-download"] * peer.pull
    file = scratch / "built.tar.gz"
    convert = os.path.join(os.path.dirname(peer.path), "ch-convert")
    return Commands(
        build=[*words, str(options.context or ".")],
        title="build",
        file=file,
        transport=Transport.ROOTFS,
        export=lambda name: [convert, "-i", "ch-image", "-o", "tar", name, str(file)],
    )


def _name(scratch: Path) -> str:
    """A unique image name for ch-image, which has no image IDs."""
    return f"bareboat-{scratch.name.lower()}"


def _check(peer: Peer, options: Options) -> None:
    """Raise UsageError for options that the builder does not support, PlanError if it cannot run."""
    is_definition = definition.is_definition(options.dockerfile)
    if is_definition != (peer.name == "apptainer"):
        kind = "Dockerfiles" if peer.name == "apptainer" else "definition files"
        raise UsageError(
            f"{peer.name} does not build {kind}",
            context=options.name,
            remedy="remove --builder, or bareboat image init --format def"
            if peer.name == "apptainer"
            else "remove --builder, or convert the file to a Dockerfile",
        )
    given = {
        "--secret": peer.secrets,
        "--ssh": peer.sockets,
        "--add-host": options.hosts,
        "--target": options.target,
        "--platform": options.platform,
        "--network": options.network != "default",
        "SOURCE_DATE_EPOCH": options.epoch is not None,
        "--pip-index": options.packages.index,
        "--apt-mirror": options.packages.mirrors,
        "--ca-bundle": options.packages.certificates,
    }
    for flag, value in given.items():
        if value and peer.name in _LACKING[flag]:
            raise UsageError(
                f"{flag} does not work with --builder {peer.name}, which has nothing like it",
                remedy="remove one of them",
            )
    if peer.name == "docker":
        asked = execute.run([peer.path, "version", "--format", "{{.Server.Version}}"])
        if not asked.ok:
            last = (asked.stderr or asked.stdout).strip().splitlines()
            raise PlanError(
                "docker has no daemon that answers",
                context=last[-1][:300] if last else "",
                remedy="start Docker, or remove --builder: Bareboat builds without a daemon",
            )


def _environment(peer: Peer) -> Mapping[str, str]:
    """The environment of the builder. The Python program ch-image must not find the interpreter of Bareboat's
    own environment."""
    if peer.name != "ch-image":
        return os.environ
    own = os.path.dirname(sys.executable)
    path = [each for each in os.environ.get("PATH", "/usr/bin:/bin").split(":") if each != own]
    user = pwd.getpwuid(os.getuid()).pw_name
    # ch-image commits to a git repository, its cache.
    names = {f"GIT_{who}_{what}": user for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {"USER": user, **names, **os.environ, "PATH": ":".join(path)}


def _run(
    peer: Peer, words: list[str], what: str, title: str, reporter: Reporter, folder: Path | None
) -> None:
    tail = bytearray()

    def show(data: bytes) -> None:
        reporter.output(title, data)
        tail.extend(data)
        del tail[:-_KEPT_BYTES]

    reporter.begin(title, what)
    code = execute.run_step(words, environment=_environment(peer), show=show, is_sandbox=False, folder=folder)
    if code:
        last = tail.decode(errors="replace").splitlines()[-_LAST_LINES:]
        raise BareboatError(
            f"{peer.name} {what} exited with code {code}",
            context="\n".join(line for line in last if line.strip()),
            remedy="repeat with --verbose for all output, or without --builder",
        )
