"""Rules about files that no layer should contain: caches, temporary files, files that are deleted later or
stored twice, and version control data."""

from __future__ import annotations

from collections.abc import Iterator

from bareboat_images.lint.census import Group
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.rule import Hit, Rule, Severity, files, size

_LEAST_BYTES = 64_000
#: A finding of fewer bytes has severity INFO.
SMALL_BYTES = 1_000_000


def grouped(groups: list[Group], what: str, *, least: int = _LEAST_BYTES) -> Iterator[Hit]:
    """A hit for each group of files of at least `least` bytes."""
    for group in groups:
        if group.size_bytes < least:
            continue
        yield Hit(
            message=f"{what} in {group.place}: {size(group.size_bytes)} in {files(group.files)}",
            layer=group.layer,
            paths=group.paths,
            size_bytes=group.size_bytes,
            files=group.files,
            severity=None if group.size_bytes >= SMALL_BYTES else Severity.INFO,
        )


def _system_image(subject: ImageSubject) -> Iterator[Hit]:
    return grouped(subject.census.labelled("package cache"), "package manager's cache")


def _language_image(subject: ImageSubject) -> Iterator[Hit]:
    return grouped(subject.census.labelled("language cache"), "cache")


def _temporary_image(subject: ImageSubject) -> Iterator[Hit]:
    yield from grouped(subject.census.labelled("temporary"), "temporary files", least=1)
    yield from grouped(subject.census.labelled("archive"), "archive or core dump")


def _hidden(subject: ImageSubject, *kinds: str) -> Iterator[Hit]:
    said = {"deleted": "deletes", "replaced": "replaces", "copied": "holds again, with the same size,"}
    for each in subject.census.hidden.values():
        group = each.group
        # Upgraded packages, and a package manager's database, are replaced for good reasons.
        least = SMALL_BYTES * (10 if each.kind == "replaced" else 1)
        if each.kind not in kinds or group.size_bytes < _LEAST_BYTES:
            continue
        yield Hit(
            message=f"{said[each.kind]} {size(group.size_bytes)} in {files(group.files)} that layer "
            f"{each.below} still has",
            layer=each.layer,
            paths=group.paths,
            size_bytes=group.size_bytes,
            files=group.files,
            severity=None if group.size_bytes >= least else Severity.INFO,
        )


def _context(subject: RecipeSubject) -> Iterator[Hit]:
    if subject.ignore is not None:
        return
    for step in subject.steps:
        if step.name not in ("COPY", "ADD") or step.instruction.flag("from") is not None or not step.ships:
            continue
        if any(source.rstrip("/") in (".", "./", "") for source in step.instruction.args[:-1]):
            yield Hit(
                message="copies the whole context, and there is no .dockerignore: .git, caches and "
                "credentials come along",
                line=step.line,
                last=step.last,
                severity=Severity.INFO,
                remedy="write a .dockerignore: printf '.git\\n**/__pycache__\\n.env\\n' > .dockerignore",
            )


def _history(subject: ImageSubject) -> Iterator[Hit]:
    return grouped(subject.census.labelled("history"), "version control data", least=1)


RULES = (
    Rule(
        code="BB1001",
        title="A distribution's package manager leaves its cache or lists in a layer.",
        why="Lists of packages and downloaded packages are of no use at run time, and grow every copy of "
        "the image.",
        remedy="remove the cache in the RUN that makes it, or keep it in a mount: --mount=type=cache",
        image=_system_image,
    ),
    Rule(
        code="BB1002",
        title="A language's package manager or compiler leaves its cache in a layer.",
        why="pip, conda, npm and others keep what they downloaded; conda's cache doubles an environment.",
        remedy="switch the cache off or empty it in the same RUN, or keep it in a mount: --mount=type=cache",
        image=_language_image,
    ),
    Rule(
        code="BB1003",
        title="A temporary file, a downloaded archive or a core dump stays in a layer.",
        why="Engines mount a scratch directory over /tmp, so nobody sees these files; every copy carries "
        "them.",
        remedy="remove it in the RUN that writes it, or unpack without storing: curl … | tar -xz",
        image=_temporary_image,
    ),
    Rule(
        code="BB1004",
        title="A layer deletes or replaces files that a layer below still has.",
        why="A layer only hides what is below it: the bytes are stored, pulled and unpacked all the same.",
        remedy="delete files in the RUN that makes them, or build in another stage and copy the result",
        image=lambda subject: _hidden(subject, "deleted", "replaced"),
    ),
    Rule(
        code="BB1005",
        title="A change of owner or mode stores files a second time.",
        why="chown and chmod in a RUN of their own copy every file into a new layer. Engines ignore "
        "owners anyway.",
        remedy="use COPY --chown or --chmod, or run chown in the RUN that makes the files",
        image=lambda subject: _hidden(subject, "copied"),
    ),
    Rule(
        code="BB1006",
        title="Version control data or the whole build context is copied into the image.",
        why="A .git directory is often larger than the program, and has everything that was ever in it.",
        remedy="list it in .dockerignore, or remove it in the RUN that clones: rm -rf .git",
        recipe=_context,
        image=_history,
        bad="FROM debian:12.7\nCOPY . /opt/app\n",
        good="FROM debian:12.7\nCOPY src /opt/app\n",
    ),
)
