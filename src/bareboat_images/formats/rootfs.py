"""A root file system, as a directory or a tar, read as an image with one layer.

The layer's tar is generated while it is read: names in byte order, owner 0:0, times in whole seconds. Equal
trees give equal bytes, whoever owns them. Times are kept, because Python uses a .pyc only if it records the
time of its source (https://peps.python.org/pep-3147/).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from bareboat_base import codec, digests
from bareboat_base.architectures import ELF_BYTES, of_elf
from bareboat_base.errors import ImageError
from bareboat_base.files import untrusted
from bareboat_base.files.root import Root
from bareboat_base.paths import DEFAULT_PATH
from bareboat_base.printable import one_line
from bareboat_images.formats import enroot
from bareboat_images.layers.copies import tree_mode
from bareboat_images.oci.manifest import OCI_CONFIG, OCI_LAYER, document, make_manifest
from bareboat_images.oci.source import Blob, Descriptor, Document, Joined, LocalSource
from bareboat_images.recipe.environment import evaluated
from bareboat_images.sources.archive import Archive
from bareboat_images.tar import reader as tarreader
from bareboat_images.tar import writer as tarwriter
from bareboat_images.tar.limits import MAX_RATIO, RATIO_FROM_BYTES

_CREATED = "1980-01-01T00:00:00Z"
_CHUNK = 1 << 20
_LARGEST_TEXT = 1 << 20
_MOST_SHOWN = 5
#: In a directory of another user, as a system has some: in a container, you could not read them either.
_PRIVATE = ": you cannot read it"

#: Directories that the kernel fills on a running system.
_KERNEL = ("dev", "proc", "sys", "run")
#: Prefix of whiteouts in a layer's tar, https://github.com/opencontainers/image-spec (layer.md)
_WHITEOUT = b".wh."

_PROGRAMS = ("bin/sh", "usr/bin/env", "bin/busybox", "usr/bin/sh", "usr/bin/bash", "sbin/ldconfig")
#: For a tar, in which links are not followed.
_PROGRAM_FILES = (
    "bin/bash", "bin/busybox", "bin/dash", "bin/sh", "usr/bin/bash", "usr/bin/dash", "usr/bin/env",
    "usr/bin/sh",
)  # fmt: skip


class Facts(Struct, frozen=True, kw_only=True):
    """The known properties for an image's config. `made_from`: for the image's history; `own`: environment
    variables that an Apptainer image sets, but not the image that it was built from; `notes`: what was not
    understood."""

    made_from: str
    architecture: str = "unknown"
    environment: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ("/bin/sh",)
    workdir: str = "/"
    labels: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class FolderSource(LocalSource):
    """A root file system in a directory. Satisfies `Source`; `notes`: what is excluded."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str,
        facts: Facts | None = None,
        max_ratio: float = MAX_RATIO,
    ) -> None:
        """Check the path and read facts. Raises ImageError for a missing directory and for /."""
        self.name = name
        self._left_out: tuple[str, ...] = ()
        self._folder = os.fspath(folder)
        self._max_ratio = max_ratio
        if os.path.realpath(self._folder) == "/":
            raise ImageError(
                f"{name} is this machine itself",
                remedy="bareboat image capture   # takes the Python environment, and what it needs",
            )
        if not os.path.isdir(self._folder):
            raise ImageError(f"{name} does not exist", context=self._folder, remedy="check the path")
        with contextlib.suppress(PermissionError):  # which the first reading reports
            if not os.listdir(self._folder):
                raise ImageError(
                    f"{name} is an empty directory", context=self._folder, remedy="check the path"
                )
        self._facts = facts or read_facts(self._folder, made_from="a root file system")
        self._made: _Made | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is excluded from the image; known after a call of `document`."""
        return (*self._facts.notes, *self._left_out)

    def document(self, digest: str | None = None) -> Document:
        """The manifest or the config. The first call reads the whole tree."""
        made = self._documents()
        return self.one_of((made.manifest, made.config), digest)

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor, offset: int = 0) -> Iterator[Blob]:
        """The layer's tar."""
        self._documents().check(descriptor, self.name)
        stream = Joined(self._tar(set()))
        stream.skip(offset)
        yield stream

    def _documents(self) -> _Made:
        if self._made is None:
            hashed = digests.hasher()
            size = 0
            left_out: set[str] = set()
            for chunk in self._tar(left_out):
                hashed.update(chunk)
                size += len(chunk)
            self._made = _documents(self._facts, digests.written(hashed), size)
            self._left_out = _notes(left_out)
        return self._made

    def _tar(self, left_out: set[str]) -> Iterator[bytes]:
        try:
            yield from tar_of(self._folder, left_out, name=self.name, max_ratio=self._max_ratio)
        except PermissionError:
            raise self._unreadable() from None
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ImageError(
                f"{self.name} was changed while it was read: {_shown(str(error.filename))} vanished",
                remedy="wait until nothing writes to it, then again",
            ) from None

    def _unreadable(self) -> ImageError:
        found = []
        for folder, folders, files in os.walk(self._folder):
            paths = (os.path.join(folder, each) for each in (*folders, *files))
            found += [path for path in paths if not _is_readable(path)]
        found.sort()
        listed = [_shown(path) for path in found[:_MOST_SHOWN]] + ["…"] * (len(found) > _MOST_SHOWN)
        first = shlex.quote(_shown(found[0])) if found else shlex.quote(self._folder)
        return ImageError(
            f"{self.name}: {len(found)} of its entries cannot be read by this user",
            context="\n".join(listed),
            remedy=f"chmod u+rX {first}   # or, when podman made the directory: podman unshare bareboat …",
        )


class TarballSource(LocalSource):
    """A root file system in a tar file, plain, gzip or zstd, as written by `ch-convert` and `mmdebstrap`.
    Satisfies `Source`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        scratch: Path | None = None,
        max_ratio: float = MAX_RATIO,
    ) -> None:
        self.name = name
        self._archive = Archive(
            path,
            name=name,
            scratch=scratch,
            max_ratio=max_ratio,
            keep=lambda each: each.removeprefix("./") in (_CH, *_PROGRAM_FILES),
        )
        self._made: _Made | None = None

    def document(self, digest: str | None = None) -> Document:
        """The manifest or the config. The first call reads the whole tar."""
        made = self._documents()
        return self.one_of((made.manifest, made.config), digest)

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor, offset: int = 0) -> Iterator[Blob]:
        """The layer's tar, decompressed."""
        self._documents().check(descriptor, self.name)
        section = self._archive.whole()
        with contextlib.closing(section):
            stream = Joined(iter(lambda: section.read(_CHUNK) or b"", b""))
            stream.skip(offset)
            yield stream

    def _documents(self) -> _Made:
        if self._made is None:
            hashed = digests.hasher()
            with contextlib.closing(self._archive.whole()) as section:
                while chunk := section.read(_CHUNK):
                    hashed.update(chunk)
            environment = {"PATH": DEFAULT_PATH}
            architecture = "unknown"
            for each, member in self._archive.members.items():
                if member.kind != tarreader.FILE:
                    continue
                if each == _CH:
                    environment |= _lines(self._archive.read(member, largest=_LARGEST_TEXT))
                    continue
                with contextlib.closing(self._archive.section(member)) as section:
                    architecture = _machine(section.read(ELF_BYTES)) or architecture
            facts = Facts(
                made_from="a tar of a root file system", architecture=architecture, environment=environment
            )
            self._made = _documents(facts, digests.written(hashed), self._archive.size_bytes)
        return self._made


def _notes(left_out: set[str]) -> tuple[str, ...]:
    """What is excluded; of the many files that a system keeps private, the first ones."""
    private = sorted(each for each in left_out if each.endswith(_PRIVATE))
    if len(private) <= _MOST_SHOWN:
        return tuple(sorted(left_out))
    more = f"{len(private) - _MOST_SHOWN:,} more entries: you cannot read them"
    return (*sorted(left_out - set(private)), *private[:_MOST_SHOWN], more)


# --------------------------------------------------------------------------------------------------
# The tar of a directory.


def tar_of(folder: str, left_out: set[str], *, name: str, max_ratio: float = MAX_RATIO) -> Iterator[bytes]:
    """The tar, in pieces. Adds entries that a layer cannot hold to `left_out`. Raises OSError, ImageError."""

    def checked() -> Iterator[tuple[str, os.stat_result]]:
        for path, state in _entries(folder, left_out):
            claimed = stat.S_ISREG(state.st_mode) and state.st_size
            if claimed > max(RATIO_FROM_BYTES, max_ratio * state.st_blocks * tarwriter.BLOCK):
                _check_holes(os.path.join(folder, path), state.st_size, max_ratio, name)
            yield path, state

    rules = tarwriter.Rules(
        mode=lambda state: tree_mode(state.st_mode, is_folder=stat.S_ISDIR(state.st_mode)),
        mtime=lambda state: int(state.st_mtime_ns // 10**9),
        links=lambda state: state.st_nlink > 1,
        other=lambda path: left_out.add(f"/{_shown(path)}: not a file, directory or symbolic link"),
    )
    try:
        yield from tarwriter.of_tree(folder, checked(), rules)
    except EOFError as error:
        raise ImageError(
            f"{name} was changed while it was read: {_shown(str(error))} became shorter",
            remedy="wait until nothing writes to it, then again",
        ) from None


def _entries(folder: str, left_out: set[str]) -> Iterator[tuple[str, os.stat_result]]:
    """All paths below the directory, relative to it, parents first, in byte order of the names."""
    top = os.lstat(folder)
    is_other_s = top.st_uid != os.getuid()
    pending = [os.fsencode(each) for each in sorted(os.listdir(folder), key=os.fsencode, reverse=True)]
    while pending:
        raw = pending.pop()
        path = os.fsdecode(raw)
        full = os.path.join(folder, path)
        state = os.lstat(full)
        if os.path.basename(raw).startswith(_WHITEOUT):
            left_out.add(f"/{_shown(path)}: in a layer, this name would take away another file")
            continue
        if is_other_s and not _is_readable(full):
            left_out.add(f"/{_shown(path)}{_PRIVATE}")
            continue
        yield path, state
        if not stat.S_ISDIR(state.st_mode):
            continue
        if path in _KERNEL and state.st_dev != top.st_dev:
            left_out.add(f"/{path}: the files that the kernel shows there on a running system")
            continue
        children = [raw + b"/" + os.fsencode(each) for each in os.listdir(full)]
        children.sort(reverse=True)
        pending += children


def _is_readable(path: str) -> bool:
    if os.path.islink(path):
        return True
    return os.access(path, os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK)


def _check_holes(path: str, size: int, max_ratio: float, name: str) -> None:
    """Refuse a file that is nearly all holes, such as a /var/log/lastlog of 300 GB: a layer has zeros for
    holes. Uses SEEK_DATA, since a file system may count new blocks late, as Lustre does."""
    data_bytes = at = 0
    with untrusted.stream(path, buffering=0) as stream:
        while at < size and data_bytes * max_ratio < size:
            try:
                begin = os.lseek(stream.fileno(), at, os.SEEK_DATA)
            except OSError:  # no more data
                break
            at = os.lseek(stream.fileno(), begin, os.SEEK_HOLE)
            data_bytes += at - begin
    if data_bytes * max_ratio < size:
        raise ImageError(
            f"{name}: {_shown(path)} claims {size:,} bytes and has {data_bytes:,}; the rest are holes",
            remedy=f"truncate -s 0 {shlex.quote(_shown(path))}, if nobody needs it, "
            f"or --max-ratio {10 * max_ratio:.0f}",
        )


# --------------------------------------------------------------------------------------------------
# Manifest and config.


class _Made(Struct, frozen=True, kw_only=True):
    """The generated manifest and config."""

    manifest: Document
    config: Document
    layer_digest: str

    def check(self, descriptor: Descriptor, name: str) -> None:
        if descriptor.digest != self.layer_digest:
            raise ImageError(f"{name} has no layer {descriptor.digest}")


def _documents(facts: Facts, diff_id: str, size: int) -> _Made:
    config = codec.to_json(
        {
            "architecture": facts.architecture,
            "os": "linux",
            "created": _CREATED,
            "config": {
                "Env": [f"{variable}={value}" for variable, value in sorted(facts.environment.items())],
                "Entrypoint": list(facts.entrypoint),
                "Cmd": list(facts.command),
                "WorkingDir": facts.workdir,
                "Labels": facts.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
            "history": [{"created": _CREATED, "created_by": f"made from {facts.made_from}"}],
        }
    )
    described = document(config, OCI_CONFIG)
    layers = [Descriptor(media_type=OCI_LAYER, digest=diff_id, size=size)]
    return _Made(manifest=make_manifest(described, layers), config=described, layer_digest=diff_id)


# --------------------------------------------------------------------------------------------------
# Metadata of the original image in a tree.

_CH = "ch/environment"
#: Prefix of the script with variables of the image that an Apptainer image was built from.
_OF_BASE = "10-"


def read_facts(folder: str, *, made_from: str, architecture: str | None = None) -> Facts:
    """The metadata that Charliecloud, Enroot or Apptainer wrote to a tree. No script is executed; of shell
    code, only assignments of variables and Enroot's start of the image's process are read."""
    root = Root(folder)
    environment = {"PATH": DEFAULT_PATH} | _lines(root.read(_CH, _LARGEST_TEXT))
    own: dict[str, str] = {}
    notes: list[str] = []
    for script in _scripts(root):
        text = root.read(f".singularity.d/env/{script}", _LARGEST_TEXT).decode(errors="surrogateescape")
        # Those of the base do not depend on the defaults here.
        found, unread = evaluated(text, {} if script.startswith(_OF_BASE) else environment)
        environment |= found
        if not script.startswith(_OF_BASE):
            own |= found
        notes += [f"{script}: {one_line(row, limit=100)}" for row in unread]
    command: tuple[str, ...] = ("/bin/sh",)
    process = enroot.read(root)
    if root.is_file(".singularity.d/runscript"):
        command = ("/.singularity.d/runscript",)
    elif process is not None:
        command = process.command
    if process is not None:
        environment |= process.environment
        notes += [one_line(row, limit=100) for row in process.unread]
    return Facts(
        made_from=made_from,
        architecture=architecture or _architecture(root),
        environment=environment,
        own=own,
        entrypoint=() if process is None else process.entrypoint,
        command=command,
        workdir="/" if process is None else process.workdir,
        labels=_labels(root.read(".singularity.d/labels.json", _LARGEST_TEXT)),
        notes=_unread(notes),
    )


def _unread(rows: list[str]) -> tuple[str, ...]:
    """The note about lines of start scripts that engines other than their own cannot apply."""
    if not rows:
        return ()
    more = f", … ({len(rows):,} lines in all)" if len(rows) > _MOST_SHOWN else ""
    return (
        "the image's start scripts have lines that are not assignments of known values, and have no "
        f"effect in a job: {', '.join(rows[:_MOST_SHOWN])}{more}",
    )


def _scripts(root: Root) -> list[str]:
    """The scripts that set variables of an Apptainer image. 01, and 94 and higher, belong to Apptainer."""
    return [each for each in root.names(".singularity.d/env", "*.sh") if "02" <= each[:2] < "94"]


def _lines(data: bytes) -> dict[str, str]:
    """Parse Charliecloud's file of environment variables: one `NAME=VALUE` per line, without quoting."""
    found = {}
    for line in data.decode(errors="surrogateescape").split("\n"):
        name, equals, value = line.partition("=")
        if equals and enroot.NAME.fullmatch(name):
            found[name] = value
    return found


def _labels(data: bytes) -> dict[str, str]:
    try:
        found = codec.decode(data, dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}  # labels are only descriptions
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in found.items()
        if value is not None
    }


def _architecture(root: Root) -> str:
    for program in _PROGRAMS:
        found = _machine(root.read(program, ELF_BYTES))
        if found is not None:
            return found
    return "unknown"


def _machine(header: bytes) -> str | None:
    """OCI's name for the architecture of an ELF file; None for other files."""
    found = of_elf(header)
    return found.oci if found is not None else None


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")
