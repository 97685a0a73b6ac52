"""What of a lock can be had again on this machine, and which command gets what cannot.

Nothing here runs anything that the lock names.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from bareboat import registry
from bareboat.model import Job
from bareboat_base import digests
from bareboat_base.errors import BareboatError, ImageError, StoreError, UsageError
from bareboat_base.files import untrusted
from bareboat_base.paths import lies_in
from bareboat_base.printable import counted, one_line
from bareboat_images.store import Store
from bareboat_images.transfer import locate
from bareboat_study.reproduction import data
from bareboat_study.reproduction.document import Lock, LockedImage

_LARGEST_CODE = 16 << 20


class State(StrEnum):
    """Whether a part can be had."""

    HERE = "here"
    CAN_BE_HAD = "can be had"
    OTHER = "another"
    MISSING = "missing"


class Part(Struct, frozen=True, kw_only=True):
    """A part of the lock. `text`: what was found; `remedy`: the command that gets what is missing."""

    name: str
    state: State
    text: str
    remedy: str = ""


class Wishes(Struct, frozen=True, kw_only=True):
    """The user's choices for a replay. `image`: another image, or "capture". `code`: the directory with the
    code. `moved`: paths of the lock -> where they are here; `used`: those of them that a path of the lock
    begins with."""

    image: str | None = None
    code: str | None = None
    moved: tuple[tuple[str, str], ...] = ()
    used: set[str] = msgspec.field(default_factory=set)

    def here(self, path: str) -> str:
        """Where a path of the lock is on this machine; the longest match counts."""
        for old, new in sorted(self.moved, key=lambda pair: -len(pair[0])):
            if lies_in(path, old):
                self.used.add(old)
                return new.rstrip("/") + path[len(old.rstrip("/")) :] if path != old else new
        return path


def _lacks(name: str, text: str, remedy: str) -> Part:
    return Part(name=name, state=State.MISSING, text=text, remedy=remedy)


def check_moved(wishes: Wishes) -> None:
    """Raise UsageError for a `--path` that changed nothing. To be called when every part was looked for."""
    for old, _ in wishes.moved:
        if old not in wishes.used:
            raise UsageError(
                f"--path {old}=…: the lock has no path below {old}",
                remedy="bareboat replay --dry-run LOCK   # shows its paths",
            )


class Found(Struct, frozen=True, kw_only=True):
    """The parts, and the job as it can run here. `restores`: the directory to which the lock's code is
    written first; None: it is there."""

    parts: tuple[Part, ...]
    job: Job
    restores: str | None = None

    @property
    def missing(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.state is State.MISSING)


def read_moved(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The pairs of `--path OLD=NEW`. Raises UsageError."""
    found = []
    for text in given:
        old, equals, new = text.partition("=")
        if not equals or not old.startswith("/") or not new or "\0" in text:
            raise UsageError(
                f"--path is {one_line(repr(text), limit=100)}; it must be OLD=NEW, with an absolute OLD",
                remedy="--path /OLD=/NEW",
            )
        found.append((os.path.normpath(old), os.path.abspath(new)))
    return tuple(found)


def find(
    lock: Lock, store: Store, wishes: Wishes, *, environment: Mapping[str, str], progress: data.Progress
) -> Found:
    """Look for every part. `progress`: of checksums of data."""
    job, image = image_of(lock, store, wishes)
    job, restores, code = code_of(lock, job, wishes)
    job = moved_of(job, wishes)
    known = [image, *code, *data_of(lock, wishes, progress), *mounts_of(job, restores)]
    job, variables = variables_of(lock, job, environment)
    return Found(parts=(*known, *variables), job=job, restores=restores)


def image_of(lock: Lock, store: Store, wishes: Wishes) -> tuple[Job, Part]:
    job = lock.job
    if wishes.image is not None:
        text = f"{wishes.image} instead, as you asked"
        try:
            if wishes.image != "capture" and locate.in_store(wishes.image, store, folder=os.getcwd()) is None:
                _check_named(wishes.image, store)
        except BareboatError as error:
            raise error.of("--image") from None
            text += "; it is not in the store, and is pulled first"
        part = Part(name="image", state=State.OTHER, text=text)
        return msgspec.structs.replace(job, image=wishes.image), part
    if lock.image is None:
        if job.engine is None:
            job = msgspec.structs.replace(job, engine=registry.BARE_METAL)
        python = job.capture.python or ""
        if python and not os.path.exists(python):
            remedy = "bareboat replay … --python PATH   # the interpreter of an equal environment"
            return job, _lacks("environment", f"it ran without a container, by {python}", remedy)
        text = "it ran without a container; its packages are those of this machine now"
        return job, Part(name="environment", state=State.OTHER, text=text)
    image = lock.image
    if not image.digest:
        return job, _lacks("image", "not recorded", "bareboat replay … --image REFERENCE")
    if store.has_image(image.digest):
        text = f"{digests.short(image.digest)}, in the store"
        part = Part(name="image", state=State.HERE, text=text)
        return msgspec.structs.replace(job, image=image.digest), part
    if image.origin == "pulled" and (pinned := pinned_reference(image.reference, image.digest)):
        part = Part(name="image", state=State.CAN_BE_HAD, text=f"pulled again as {pinned}")
        return msgspec.structs.replace(job, image=pinned), part
    return job, _lacks("image", _origin_of(image), _how_to_get(image))


def _check_named(image: str, store: Store) -> None:
    """Raise an error for what cannot be an image, and for one that is not on this machine."""
    if digests.is_digest(image):
        raise StoreError(f"image {image} not found in the store {store.root}", remedy="bareboat image ls")
    found = locate.read(image, folder=os.getcwd())
    if found.path.startswith("/") and not os.path.exists(found.path):
        raise ImageError(f"{image} does not exist", remedy="check the path")


def pinned_reference(reference: str, digest: str) -> str | None:
    """The reference of a pulled image with its digest; None for an image of a file."""
    if not re.fullmatch(
        r"[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9._-]+)+(:[\w.-]{1,128})?(@\w+:[0-9a-f]+)?", reference
    ):
        return None
    if "@" in reference:
        return reference
    last = reference.rpartition("/")[2]
    name = reference[: len(reference) - len(last)] + last.partition(":")[0]
    return f"{name}@{digest}"


def _origin_of(image: LockedImage) -> str:
    count = "" if image.packages is None else f" of {len(image.packages)} packages"
    if image.origin == "captured":
        return f"{digests.short(image.digest)}, captured from an environment{count}, is not in the store"
    if image.origin == "site layer":
        return f"{digests.short(image.digest)}, {digests.short(image.base)} with {', '.join(image.added)}"
    return f"{digests.short(image.digest)} from {image.reference or 'an unknown source'} is not in the store"


def _how_to_get(image: LockedImage) -> str:
    short = digests.short(image.digest)
    if image.origin == "site layer" and image.base:
        added = " ".join(f"--with {shlex.quote(each)}" for each in image.added)
        return f"bareboat image layer {shlex.quote(digests.short(image.base))} {added}"
    return (
        f"where it is: bareboat image save {short} image.tar; here: bareboat image load image.tar; "
        "or use an environment like it: --image capture"
    )


def code_of(lock: Lock, job: Job, wishes: Wishes) -> tuple[Job, str | None, list[Part]]:
    """The job in the directory of its code."""
    code = lock.code
    if wishes.code is not None and (job.workdir is None or not os.path.isdir(wishes.code)):
        is_image = "the job's working directory is in the image"
        raise UsageError(
            f"--code {wishes.code!r}: {is_image if job.workdir is None else 'the directory does not exist'}",
            remedy="remove --code" if job.workdir is None else "name the directory that has the code",
        )
    if job.workdir is None:
        return job, None, []
    folder = wishes.code or wishes.here(job.workdir)
    there = in_folder(job, folder)
    if code is None:
        state = State.OTHER if os.path.isdir(folder) else State.MISSING
        text = f"not recorded; {folder} is used as it is" if state is State.OTHER else "not recorded"
        return there, None, [Part(name="code", state=state, text=text, remedy="--code DIRECTORY")]
    if not os.path.isdir(folder):
        kept = [file for file in code.files if file.text is not None]
        if kept and len(kept) == len(code.files) and code.repository is None:
            own = os.path.join(os.getcwd(), f"{lock.name}-code")
            there = in_folder(job, own)
            if os.path.isdir(own) and not _changed(lock, own):
                return there, None, [Part(name="code", state=State.HERE, text=own)]
            if not os.path.lexists(own):
                text = f"{len(kept)} file{'s' * (len(kept) > 1)} of the lock, written to {own}"
                return there, own, [Part(name="code", state=State.CAN_BE_HAD, text=text)]
            folder = own
        else:
            return there, None, [_lacks("code", f"{folder} does not exist", _checkout(lock))]
    if changed := _changed(lock, folder):
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        return there, None, [_lacks("code", f"{folder} differs from the lock in {shown}", _checkout(lock))]
    checked = sum(bool(file.sha256) for file in code.files)
    text = f"{folder}, {counted(checked, 'file')} as locked"
    return there, None, [Part(name="code", state=State.HERE, text=text)]


def _changed(lock: Lock, folder: str) -> list[str]:
    """The files of the lock's code that are other, or gone, in the directory."""
    changed = []
    for file in lock.code.files if lock.code is not None else ():
        if not file.sha256:
            continue
        try:
            found = untrusted.read_bytes(Path(folder, file.path), limit=_LARGEST_CODE, follow=True)
        except OSError:
            changed.append(file.path)
            continue
        if hashlib.sha256(found).hexdigest() != file.sha256:
            changed.append(file.path)
    return changed


def _checkout(lock: Lock) -> str:
    """The commands that get the code of a repository."""
    found = lock.code.repository if lock.code is not None else None
    if found is None or not found.remote or found.remote.startswith("-") or "::" in found.remote:
        return "copy the code from where it ran, and pass --code DIRECTORY"
    name = shlex.quote(f"{lock.name}-code")
    inner = f"{lock.name}-code/{found.below}" if found.below else f"{lock.name}-code"
    return (
        f"git clone {shlex.quote(found.remote)} {name} && cd {name} && git checkout {found.commit}; "
        f"then pass --code {shlex.quote(inner)}"
    )


def in_folder(job: Job, folder: str) -> Job:
    """The job in another working directory: paths below the old one move along."""
    old = job.workdir
    folder = os.path.abspath(folder)
    if old is None or old == folder:
        return job

    def moved(path: str) -> str:
        return folder + path[len(old) :] if lies_in(path, old) else path

    mounts = tuple(
        msgspec.structs.replace(each, source=moved(each.source), target=moved(each.target))
        for each in job.mounts
    )
    return msgspec.structs.replace(
        job, workdir=folder, command=tuple(moved(word) for word in job.command), mounts=mounts
    )


def moved_of(job: Job, wishes: Wishes) -> Job:
    """The job with the sources of its mounts where the user's choices place them."""
    mounts = tuple(msgspec.structs.replace(each, source=wishes.here(each.source)) for each in job.mounts)
    capture = job.capture
    if capture.python is not None:
        capture = msgspec.structs.replace(capture, python=wishes.here(capture.python))
    return msgspec.structs.replace(job, mounts=mounts, capture=capture)


def data_of(lock: Lock, wishes: Wishes, progress: data.Progress) -> list[Part]:
    parts = []
    for datum in lock.data:
        path = wishes.here(datum.path)
        option = f"--path {shlex.quote(datum.path)}"
        if not os.path.exists(path):
            remedy = f"{option}=DIRECTORY   # where it is here"
            parts.append(_lacks("data", f"{path} does not exist", remedy))
            continue
        try:
            found = data.checksum(path, progress=progress)
        except BareboatError as error:
            parts.append(_lacks("data", error.message, error.remedy))
            continue
        if found.sha256 == datum.sha256 and found.is_folder == datum.is_folder:
            parts.append(Part(name="data", state=State.HERE, text=f"{path}, checksum as locked"))
        else:
            was = f"{datum.size_bytes:,} bytes in {datum.files:,} files"
            now = f"{found.size_bytes:,} in {found.files:,}"
            remedy = f"{option}=PATH   # of the data with that checksum"
            parts.append(_lacks("data", f"{path} has other content: {now}, not {was}", remedy))
    return parts


def mounts_of(job: Job, restores: str | None) -> list[Part]:
    """Directories of this machine that the job needs."""
    gone = [each.source for each in job.mounts if not os.path.exists(each.source)]
    where = "=DIRECTORY   # where it is here"
    return [
        _lacks("mount", f"{each} does not exist", f"--path {shlex.quote(each)}{where}")
        for each in gone
        if restores is None or not lies_in(each, restores)
    ]


def variables_of(lock: Lock, job: Job, environment: Mapping[str, str]) -> tuple[Job, list[Part]]:
    """Variables that are not in the lock come from this shell, by name."""
    names = tuple(dict.fromkeys((*job.environment_from, *lock.withheld)))
    missing = [name for name in names if name not in environment]
    parts = [
        _lacks("variable", f"{name} is not in the lock, nor in this shell", f"export {shlex.quote(name)}=…")
        for name in missing
    ]
    try:
        return msgspec.structs.replace(job, environment_from=names), parts
    except UsageError as error:
        return job, [*parts, _lacks("variable", error.message, error.remedy)]


def restore(lock: Lock, folder: str) -> None:
    """Write the files of the code into a new directory. The reader has checked their paths."""
    assert lock.code is not None
    try:
        os.mkdir(folder, 0o700)
        for file in lock.code.files:
            path = Path(folder, file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                stream.write(file.text or "")
    except OSError as error:
        raise StoreError(
            f"the code cannot be written to {folder}: {error.strerror}", remedy="--code DIRECTORY"
        ) from None
