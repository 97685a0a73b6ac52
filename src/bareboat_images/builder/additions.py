"""The sources of COPY and ADD: paths, patterns, heredocs, and for ADD archives and URLs."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bareboat_base.errors import ImageError
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.printable import quoted
from bareboat_images.builder.copying import Source
from bareboat_images.builder.files import Files, Item, UnmatchedError
from bareboat_images.builder.work import Work
from bareboat_images.layers.unpack import unpack
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.lines import opening
from bareboat_images.tar.inflation import inflate
from bareboat_images.tar.limits import Limits

_GIT = expression(r"(?:git@[^/:]+:.+|git://.+|ssh://.+|https?://.+\.git)(?:#.*)?")
_CHECKSUM = expression(r"sha256:[0-9a-f]{64}")
_CHUNK = 1 << 20


def sources(
    step: Instruction,
    given: Sequence[str],
    work: Work,
    source: Callable[[str], Files],
    expand: Callable[[str], str],
) -> list[Source]:
    """The sources of a step; a pattern may match nothing where another source exists. `source`: returns the
    files of a stage or image by name, or of the context for an empty name; `expand`: expands the variables of
    a heredoc. Downloaded and unpacked files are in the build's scratch directory. Raises RecipeError,
    ImageError, NotFoundError."""
    heredocs = {each.name: each for each in step.heredocs}
    checksum = step.flag("checksum") or ""
    if checksum and not _CHECKSUM.fullmatch(checksum):
        raise step.fault(f"--checksum={quoted(checksum)} is not a digest", remedy="--checksum=sha256:…")
    if checksum and (len(given) != 1 or not _is_remote(given[0])):
        raise step.fault("--checksum requires one URL as the source", remedy="remove --checksum")
    found: list[Source] = []
    unmatched: list[UnmatchedError] = []
    for number, text in enumerate(given):
        begun = opening(step.args[number], "\\") if not step.is_json else None
        if begun is not None and begun.name in heredocs:
            heredoc = heredocs[begun.name]
            content = expand(heredoc.data) if heredoc.expands else heredoc.data
            found.append(_written(work, begun.name, content.encode(errors="surrogateescape")))
        elif step.name == "ADD" and _GIT.fullmatch(text):
            raise step.fault(
                "ADD of a git repository is not supported",
                remedy=f"RUN git clone --depth 1 --branch TAG {shlex.quote(text)} /PATH",
            )
        elif step.name == "ADD" and _is_remote(text):
            from bareboat_images.builder import downloads

            place, name = downloads.downloaded(step, work, text, checksum)
            found.append(_single(place, name, text))
        else:
            try:
                found += _local(step, work, text, source(step.flag("from") or ""))
            except UnmatchedError as error:
                unmatched.append(error)
    if unmatched and not found:  # as with buildah; BuildKit copies nothing
        raise unmatched[0]
    return found


def _local(step: Instruction, work: Work, text: str, files: Files) -> Iterator[Source]:
    """Paths of the context or a stage. ADD unpacks archives."""
    plain: list[Item] = []
    for item in files.select(text):
        if step.name == "ADD" and stat.S_ISREG(item.state.st_mode) and _is_archive(item.real):
            yield _unpacked(work, item.real, item.path)
        else:
            plain.append(item)
    if plain:
        yield Source(files=files, items=tuple(plain))


def _single(folder: Path, name: str, shown: str) -> Source:
    files = Files([folder], name=shown)
    return Source(files=files, items=tuple(files.select(name)))


def _written(work: Work, name: str, data: bytes) -> Source:
    folder = work.folder("heredoc")
    folder.mkdir()
    (folder / name).write_bytes(data)
    (folder / name).chmod(0o644)
    return _single(folder, name, f"the heredoc {name}")


def _is_remote(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _unpacked(work: Work, path: str, name: str) -> Source:
    """The content of an archive as one directory. Raises ImageError."""
    folder = work.folder("archive")
    folder.mkdir()
    try:
        unpack(_inflated(path, name), folder, name=name, limits=Limits(), recipe=None)
    except (EOFError, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ImageError(f"{name} is damaged: {error}", remedy="copy or download the archive again") from None
    files = Files([folder], name=f"the archive {name}")
    return Source(files=files, items=tuple(files.select("/")))


def _is_archive(path: str) -> bool:
    """Whether a file is a tar archive, plain or compressed with gzip, bzip2, xz or zstd."""
    import tarfile  # a build of which each step is kept needs none

    with contextlib.suppress(OSError, EOFError, ImageError, lzma.LZMAError, StopIteration):
        head = b""
        for chunk in _inflated(path, "an archive"):
            head += chunk
            if len(head) >= 512:
                break
        if len(head) < 512:
            return False
        with contextlib.suppress(tarfile.TarError):
            tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape")
            return True
    return False


def _inflated(path: str, name: str) -> Iterator[bytes]:
    with open(untrusted.open_regular(path), "rb") as stream:
        head = stream.read(6)
        stream.seek(0)
        if head.startswith(b"BZh"):
            with bz2.open(stream) as inner:
                yield from iter(lambda: inner.read(_CHUNK), b"")
        elif head.startswith(b"\xfd7zXZ\0"):
            with lzma.open(stream) as inner:
                yield from iter(lambda: inner.read(_CHUNK), b"")
        else:
            yield from inflate(iter(lambda: stream.read(_CHUNK), b""), name=name)
