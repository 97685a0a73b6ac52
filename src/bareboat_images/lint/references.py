"""Rules about what a build takes from elsewhere: instructions of a base image, files of the builder."""

from __future__ import annotations

from collections.abc import Iterator

from bareboat_base.printable import one_line
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.rule import Hit, Rule, Severity
from bareboat_images.oci.reference import Transport, looks_like_path
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.stages import shown_trigger, sources

_MOST_SHOWN = 10
#: Transports of directories, which a recipe may not name.
_DIRECTORIES = (Transport.ROOTFS, Transport.OCI)


def _added(subject: RecipeSubject) -> Iterator[Hit]:
    for stage in subject.recipe.stages:
        for text in (subject.triggers.get(stage.base) or ())[:_MOST_SHOWN]:
            yield Hit(
                message=f"{one_line(stage.base)} adds to this build: {shown_trigger(text)}",
                line=stage.start.line,
                last=stage.start.last,
            )


def _adds(subject: ImageSubject) -> Iterator[Hit]:
    for text in (subject.execution.on_build or ())[:_MOST_SHOWN]:
        yield Hit(message=f"the image adds to builds: {shown_trigger(text)}")


def _private(subject: RecipeSubject) -> Iterator[Hit]:
    named: list[tuple[Instruction, str]] = [(each.start, each.base) for each in subject.recipe.stages]
    for step in subject.steps:
        inner = step.instruction.inner or step.instruction
        named += [(step.instruction, name) for name in sources(inner)]
    for step_, name in named:
        if _leaves(name):
            yield Hit(
                message=f"{step_.name} names {one_line(name, limit=160)}, which is outside the context",
                line=step_.line,
                last=step_.last,
            )


def _leaves(name: str) -> bool:
    """Whether a reference can only be a directory, or a path outside the context."""
    prefix, colon, path = name.partition(":")
    if looks_like_path(name):
        return True
    if not colon or prefix == Transport.REGISTRY or prefix not in set(Transport):
        return False
    return Transport(prefix) in _DIRECTORIES or path.startswith(("/", "~")) or ".." in path.split("/")


RULES = (
    Rule(
        code="BB1207",
        title="The base image adds instructions to the build.",
        why="ONBUILD instructions of a base image run in every build on it, with the context and the "
        "network, and are in no file of the project.",
        remedy="read them, or use another base image",
        recipe=_added,
        image=_adds,
    ),
    Rule(
        code="BB1208",
        title="The recipe names a file or directory of the builder.",
        why="Only image files in the context may be named by a recipe; others could be private. The build "
        "refuses it.",
        remedy="FROM an image of a registry or of the store: bareboat image pull rootfs:DIR --name NAME",
        severity=Severity.ERROR,
        recipe=_private,
        bad="FROM debian:12.7\nCOPY --from=rootfs:/opt/tool /bin/tool /bin/tool\n",
        good="FROM debian:12.7\nCOPY --from=tool:1.0 /bin/tool /bin/tool\n",
    ),
)
