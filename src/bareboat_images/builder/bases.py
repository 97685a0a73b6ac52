"""Which images a recipe may name.

Somebody else may have written a recipe. So a reference in it is a
name of the store, an image of a registry, or an image file in the context. Directories, and files elsewhere,
are private to the user, who alone may name them: as the value of a build argument, prefix included.
"""

from __future__ import annotations

import os
import shlex
import stat

from bareboat_base.errors import UsageError
from bareboat_base.printable import quoted
from bareboat_images.builder.options import Options
from bareboat_images.oci import reference
from bareboat_images.oci.reference import Reference, Transport
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.stages import SCRATCH, Recipe, Stage, sources


def local(step: Instruction, text: str, options: Options) -> Reference | None:
    """The file or directory that a reference of a recipe names; None for a name of the store or of a
    registry. Raises RecipeError for one that only the user may name."""
    prefix, colon, _ = text.partition(":")
    if reference.looks_like_path(text):
        raise _refused(step, text, "is a path of this machine", options)
    if not colon or prefix == Transport.REGISTRY or prefix not in set(Transport):
        return None
    try:
        if text in options.arguments.values():
            return reference.parse(text, folder=os.getcwd())
        found = reference.parse(text, folder=str(options.context or "/"))
    except UsageError as error:
        raise step.fault(error.message, remedy=error.remedy).named(options.name) from None
    return Reference(
        transport=found.transport, path=_file_in_context(step, text, found.path, options), tag=found.tag
    )


def _file_in_context(step: Instruction, text: str, path: str, options: Options) -> str:
    """The real path of an image file in the context. Raises RecipeError."""
    real = os.path.realpath(path)
    if options.context is None or os.path.commonpath((real, options.context)) != str(options.context):
        raise _refused(step, text, "is outside the context", options)
    try:
        mode = os.stat(real).st_mode
    except OSError as error:
        raise step.fault(
            f"{quoted(text, limit=200)}: {error.strerror}",
            remedy=f"paths are relative to the context: ls -l {shlex.quote(str(options.context))}",
        ).named(options.name) from None
    if not stat.S_ISREG(mode):
        raise _refused(step, text, "is not a regular file", options)
    return real


def _refused(step: Instruction, text: str, why: str, options: Options) -> RecipeError:
    pull = f"bareboat image pull {shlex.quote(text[:200])} --name base"
    return step.fault(
        f"{quoted(text, limit=200)} {why}, and a recipe may name only image files in its context",
        remedy=f"if you trust this recipe: {pull}   # then write base instead",
    ).named(options.name)


def check(recipe: Recipe, stage: Stage, options: Options) -> None:
    """Check the references of a stage. Raises RecipeError with the line."""
    if base := external(recipe, stage):
        local(stage.start, base, options)
    for step in stage.steps:
        for name in sources(step):
            if recipe.source(stage, name) is None:
                local(step, name, options)


def external(recipe: Recipe, stage: Stage) -> str:
    """The reference of the base image; empty where the base is a stage or `scratch`."""
    if stage.base == SCRATCH or (recipe.before(stage, stage.base) is not None and not stage.base.isdigit()):
        return ""
    return stage.base
