"""A recipe as a Dockerfile. Pure."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator

from bareboat.project.recipes.catalogue import MPIS
from bareboat.project.recipes.document import Arg, Copy, Env, Recipe, Run, Stage, Step, Workdir
from bareboat_base.printable import printable

_WIDTH = 110
#: What a RUN that downloads may be given: pip's settings, and certificates.
_SECRETS = (
    "--mount=type=secret,id=pip,target=/etc/pip.conf",
    "--mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt",
)
_BUILD = (
    "Build it: bareboat image build -t NAME .",
    "Behind a proxy with its own certificates, or with an index of your site, add: "
    "--secret id=ca,src=/etc/ssl/certs/ca-certificates.crt --secret id=pip,src=$HOME/.config/pip/pip.conf",
)
_VARIANTS = (
    "Other MPIs: bareboat image build --matrix "
    f"mpi={','.join(each.title for each in MPIS)} --tag NAME:{{mpi}} .",
)


def write(recipe: Recipe) -> str:
    """The whole file."""
    steps = [step for stage in recipe.stages for step in stage.steps]
    variants = _VARIANTS if any(isinstance(step, Arg) and step.name == "MPI" for step in steps) else ()
    blocks = ["\n".join(comments((*recipe.head, *_BUILD, *variants)))]
    for name, image in recipe.images.items():
        blocks.append(f"FROM {image} AS {name}")
    for stage in recipe.stages:
        blocks.append("\n".join(_stage(stage)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _stage(stage: Stage) -> Iterator[str]:
    yield from comments(stage.why)
    yield f"FROM {stage.base}" + (f" AS {stage.name}" if stage.name else "")
    for step in stage.steps:
        yield from comments(step.why)
        yield _step(step)


def _step(step: Step) -> str:
    match step:
        case Run():
            mounts = [f"--mount=from={stage},source={path},target={path}" for stage, path in step.mounts]
            if step.network:
                mounts += _SECRETS
            head = "".join(f"{mount} \\\n    " for mount in mounts)
            return f"RUN {head}" + " && \\\n    ".join(step.commands)
        case Copy():
            source = f"--from={step.source} " if step.source else ""
            paths = (*step.files, step.target)
            if all(re.fullmatch(r"[\w./@+-]+", each) for each in paths):
                return f"COPY {source}{' '.join(paths)}"
            escaped = [re.sub(r"([\\$])", r"\\\1", each) for each in paths]
            return f"COPY {source}{json.dumps(escaped, ensure_ascii=False)}"
        case Env():
            return "ENV " + " \\\n    ".join(f"{name}={value(text)}" for name, text in step.values.items())
        case Arg():
            return f"ARG {step.name}={value(step.value)}"
        case Workdir():
            return f"WORKDIR {step.path}"
        case _:
            raise AssertionError(type(step))


def comments(paragraphs: tuple[str, ...]) -> Iterator[str]:
    for each in paragraphs:
        yield from textwrap.wrap(
            printable(each), _WIDTH, initial_indent="# ", subsequent_indent="#   ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def value(text: str) -> str:
    """Text in which only $PATH is a variable."""
    return text if re.fullmatch(r"[\w./:@+=$-]+", text) else '"' + re.sub(r'([\\"])', r"\\\1", text) + '"'
