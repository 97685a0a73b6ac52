"""Readers of what a build takes: Dockerfiles and .dockerignore."""

from pathlib import Path

from bareboat_base.errors import BareboatError
from bareboat_images.builder import config
from bareboat_images.lint import check
from bareboat_images.lint import recipe as linted
from bareboat_images.recipe import definition, expansion, ignore, mounts, stages
from bareboat_images.recipe.faults import RecipeError
from fuzzing import Finding, Reader

_BUILTIN = {"TARGETARCH": "amd64", "TARGETPLATFORM": "linux/amd64"}


def read_dockerfile(data: bytes, _scratch: Path) -> None:
    """As a Dockerfile, with everything that needs no image."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        check.recipe(linted.read(text, name="Dockerfile", machine="x86_64"))
        recipe = stages.read(text, given={"A": "1"}, builtin=_BUILTIN)
        for stage in recipe.stages:
            recipe.closure(stage)
            made = config.scratch()
            for step in stage.steps:
                if step.name == "RUN":
                    mounts.read(step, lambda each: each)
                elif step.name not in ("COPY", "ADD", "WORKDIR", "ARG"):
                    words = tuple(expansion.expand(each, _BUILTIN) for each in step.args)
                    if step.name == "EXPOSE":
                        words = tuple(w for each in step.args for w in expansion.words(each, _BUILTIN))
                    made.apply(step, words, {name: value or "" for name, value in step.pairs})
    except RecipeError as error:
        if error.line < 1:
            raise Finding("an error without a line") from None
        raise
    except expansion.ExpansionError as error:
        raise BareboatError(str(error), remedy="-") from None


def read_definition(data: bytes, _scratch: Path) -> None:
    """As a definition file, with everything that needs no image."""
    try:
        recipe = definition.read(data.decode("utf-8", "surrogateescape"), given={"A": "1"})
        for stage in recipe.stages:
            recipe.closure(stage)
            for step in stage.steps:
                mounts.read(step, lambda each: each)
                for _, value in step.pairs:
                    expansion.expand(value or "", _BUILTIN)
    except RecipeError as error:
        if error.line < 1:
            raise Finding("an error without a line") from None
        raise
    except expansion.ExpansionError as error:
        raise BareboatError(str(error), remedy="-") from None


def read_dockerignore(data: bytes, _scratch: Path) -> None:
    """Patterns, and paths that they are compared with."""
    rules = ignore.read(data.decode("utf-8", "surrogateescape"))
    for path in ("a", "a/b", "a" * 60 + "/" + "b" * 60, ".git/config"):
        rules.ignores(path)


READERS = (
    Reader(name="dockerfiles", read=read_dockerfile, modules=("bareboat_images.recipe",)),
    Reader(name="definitions", read=read_definition, modules=("bareboat_images.recipe",)),
    Reader(name="dockerignores", read=read_dockerignore, modules=("bareboat_images.recipe",)),
)
