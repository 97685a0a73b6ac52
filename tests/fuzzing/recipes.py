"""Readers of what a build takes: Dockerfiles and .dockerignore."""

from __future__ import annotations

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


def _dockerfiles() -> dict[str, bytes]:
    return {
        "stages": b"ARG B=debian\nFROM ${B:-x} AS a\nRUN --mount=type=cache,target=/c a \\\n # c\n b\n"
        b"FROM scratch\nCOPY --from=a --chown=1:2 /a /b\nONBUILD RUN x\n",
        "heredocs": b"# syntax=x\n# escape=`\nFROM a\nRUN <<-'E' cat `\n b\n\tx\n\tE\n"
        b"COPY <<a <<b /d/\n1\na\n2\nb\n",
        "settings": b'FROM a\nENV A="b c" D=\'e\'\nENV F g h\nLABEL a=b\nEXPOSE 80-90/udp\nVOLUME ["/v"]\n'
        b'HEALTHCHECK --interval=1m30s CMD ["a"]\nSHELL ["/bin/sh"]\nCMD a\n'
        b'ENTRYPOINT ["b"]\nSTOPSIGNAL 9\nUSER a:b\n',
        "expansion": b"FROM ${A-x}${A:-y}${A:+${B:-'c'}}\nENV V=${A:?no}\n",
    }


def _definitions() -> dict[str, bytes]:
    return {
        "stages": b"Bootstrap: docker\nFrom: a:{{ A }}\nStage: b\n%post -c /bin/bash\n  x\n\n"
        b"bootstrap: scratch\n"
        b"%files from b\n  /a/*.c /d\n%files\n  'a b' /c\n%arguments\n  B=1\n",
        "settings": b'# c\nBootstrap: localimage\nFrom: a.sif\n%environment\n  export A=1 B="x y"\n  C=$A\n'
        b"  export C;\n%labels\n  a b $c\n%runscript\n  x\n%help\n  h\n%test\n  true\n",
    }


def _ignores() -> dict[str, bytes]:
    return {"patterns": b"# c\n*.md\n!README.md\n**/x?[a-z]\n/a/**/b\n\\#d\n"}


READERS = (
    Reader(name="dockerfiles", read=read_dockerfile, seeds=_dockerfiles, modules=("bareboat_images.recipe",)),
    Reader(name="definitions", read=read_definition, seeds=_definitions, modules=("bareboat_images.recipe",)),
    Reader(name="dockerignores", read=read_dockerignore, seeds=_ignores, modules=("bareboat_images.recipe",)),
)
