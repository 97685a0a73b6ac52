"""A recipe as a definition file of Apptainer. Pure.

https://apptainer.org/docs/user/latest/definition_files.html : one stage builds all, since a stage cannot
start from another; other images come first, as stages from which files are copied.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from bareboat.project.recipes.dockerfile import comments, value
from bareboat.project.recipes.document import Arg, Copy, Env, Recipe, Run, Step, Workdir
from bareboat.project.recipes.installing import TOOLS


def write(recipe: Recipe) -> str:
    """The whole file."""
    own = {stage.name for stage in recipe.stages}
    steps = [step for stage in recipe.stages for step in stage.steps]
    arguments = _arguments(steps)
    given = f" --build-arg MPI={arguments['MPI']}" if "MPI" in arguments else ""
    build = f"Build it, in the directory of this file: apptainer build{given} NAME.sif image.def"
    blocks = [list(comments((*recipe.head, build)))]
    blocks += [[*_header(image), f"Stage: {name}"] for name, image in recipe.images.items()]
    first = recipe.stages[0]
    stage = ["Stage: final"] if recipe.images else []
    blocks.append([*comments(first.why), *_header(first.base), *stage])
    if arguments:
        blocks.append(["%arguments", *(f"    {name}={value}" for name, value in arguments.items())])
    for source, lines in _files(steps, own).items():
        blocks.append([f"%files from {source}" if source else "%files", *lines])
    blocks.append(["%post", "    set -eu", *_post(steps)])
    if environment := list(_environment(steps)):
        blocks.append(["%environment", *environment])
    blocks.append(["%runscript", '    exec "$@"'])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _header(base: str) -> tuple[str, str]:
    """A base with a path is a file; apptainer pulls all others."""
    if base.startswith(("/", "./")):
        return "Bootstrap: localimage", f"From: {base}"
    return "Bootstrap: docker", f"From: {base.removeprefix('docker.io/library/').removeprefix('docker.io/')}"


def _arguments(steps: list[Step]) -> dict[str, str]:
    return {step.name: step.value for step in steps if isinstance(step, Arg) and not step.internal}


def _files(steps: list[Step], own: set[str]) -> dict[str, list[str]]:
    """The lines of %files, by the stage that they come from."""
    found: dict[str, list[str]] = {}
    for step in steps:
        if not isinstance(step, Copy) or step.source in own - {""}:
            continue
        for name in step.files:
            target = step.target
            if target.endswith("/") and name != ".":
                target += name
            found.setdefault(step.source, []).append(f"    {shlex.quote(name)} {shlex.quote(target)}")
    return {source: list(dict.fromkeys(lines)) for source, lines in found.items()}


def _post(steps: list[Step]) -> Iterator[str]:
    seen: set[Step] = set()
    for step in steps:
        if isinstance(step, Arg) and step in seen:
            continue
        if isinstance(step, Arg):
            seen.add(step)
        for line in comments(step.why):
            yield f"    {line}"
        match step:
            case Run():
                for command in step.commands:
                    yield from _indented(command)
            case Env():
                for name, text in step.values.items():
                    yield f"    export {name}={value(text)}"
            case Arg():
                default = value(step.value) if step.internal else f'"{{{{ {step.name} }}}}"'
                yield f"    export {step.name}={default}"
            case Workdir():
                yield f"    mkdir -p {step.path}"
                yield f"    cd {step.path}"
            case _:  # files are there already
                pass
    yield f"    rm -rf {TOOLS}"


def _indented(command: str) -> Iterator[str]:
    lines = command.splitlines()
    yield f"    {lines[0]}"
    for line in lines[1:]:
        yield line if line.startswith("    ") else f"    {line}"


def _environment(steps: list[Step]) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Env):
            for name, text in step.values.items():
                yield f"    export {name}={value(text)}"
