"""The sources of COPY and ADD: paths, patterns, heredocs, and for ADD archives and URLs."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bareboat_base.expressions import expression
from bareboat_base.printable import quoted
from bareboat_images.builder.copying import Source
from bareboat_images.builder.files import Files, Item, UnmatchedError
from bareboat_images.builder.work import Work
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.lines import opening

_GIT = expression(r"(?:git@[^/:]+:.+|git://.+|ssh://.+|https?://.+\.git)(?:#.*)?")
_CHECKSUM = expression(r"sha256:[0-9a-f]{64}")


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


def _is_archive(path: str) -> bool:
    from bareboat_images.builder import archives

    return archives.is_archive(path)


def _unpacked(work: Work, path: str, name: str) -> Source:
    """The content of an archive as one directory."""
    from bareboat_images.builder import archives

    folder = work.folder("archive")
    folder.mkdir()
    archives.unpacked(path, name, folder)
    files = Files([folder], name=f"the archive {name}")
    return Source(files=files, items=tuple(files.select("/")))
