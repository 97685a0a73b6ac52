"""A Dockerfile as input of rules: each instruction with its stage, user, home and environment. What the
commands of a RUN leave in the image is found there; their shell is hadolint's. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from bareboat_base.expressions import expression
from bareboat_images.lint.rule import Machine
from bareboat_images.recipe import definition, stages
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.stages import Recipe, Stage

_IGNORE = expression(r"#\s*bareboat\s+ignore\s*=\s*([A-Za-z0-9,][A-Za-z0-9, ]*)")
#: The longest text in which variables are replaced, and the longest result, in characters.
_LONGEST = 4096
_WITH_DEFAULT = expression(r"\$\{([A-Za-z_]\w*):-([^{}]*)\}")
_VARIABLE = expression(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")


class Step(Struct, frozen=True, kw_only=True):
    """One instruction. `environment`: ENV and ARG before it; `home`: of its user; `ships`: its layer is in
    the final image."""

    stage: Stage
    instruction: Instruction
    environment: Mapping[str, str]
    user: str
    workdir: str
    ships: bool = True

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def line(self) -> int:
        return self.instruction.line

    @property
    def last(self) -> int:
        return self.instruction.last

    @property
    def home(self) -> str:
        if home := self.environment.get("HOME"):
            return home
        name = self.user.partition(":")[0]
        return "/root" if name in ("", "root", "0") else f"/home/{name}"

    def expanded(self, text: str) -> str:
        """The text with known variables replaced; others stay."""
        return expand(text, self.environment)


class RecipeSubject(Struct, frozen=True, kw_only=True):
    """A Dockerfile or a definition file. `ignore`: the text of its .dockerignore, None without one;
    `site`: where the image will run, None when unknown."""

    name: str
    text: str
    recipe: Recipe
    steps: tuple[Step, ...]
    ignored: Mapping[int, frozenset[str]] = field(default_factory=dict)
    ignore: str | None = None
    site: Machine | None = None
    is_definition: bool = False

    @property
    def runs(self) -> Iterator[Step]:
        """The RUN steps."""
        return (step for step in self.steps if step.name == "RUN")

    def base(self, stage: Stage) -> str:
        """What the stage is based on, with known build arguments replaced."""
        return expand(stage.base, self.recipe.arguments)


def read(
    text: str, *, name: str, machine: str, ignore: str | None = None, site: Machine | None = None
) -> RecipeSubject:
    """Parse a Dockerfile or a definition file for the rules. `text`: with LF line ends, without a byte order
    mark. Raises RecipeError."""
    is_definition = definition.is_definition(text)
    if is_definition:
        recipe = definition.read(text, given={}, name=name)
    else:
        recipe = stages.read(text, given={}, builtin=stages.builtin(machine), name=name, is_open=True)
    shipping = _shipping(recipe)
    steps: list[Step] = []
    state: dict[str, tuple[Mapping[str, str], str, str]] = {}
    for stage in recipe.stages:
        base = recipe.before(stage, stage.base)
        new: tuple[Mapping[str, str], str, str] = {}, "", "/"
        environment, user, workdir = state.get(base.title, new) if base else new
        for instruction in stage.steps:
            made = Step(
                stage=stage,
                instruction=instruction,
                environment=environment,
                user=user,
                workdir=workdir,
                ships=stage.number in shipping,
            )
            steps.append(made)
            if instruction.name in ("ENV", "ARG"):
                known = {
                    each: expand(
                        recipe.arguments.get(each, "") if value is None else _unquoted(value), environment
                    )
                    for each, value in instruction.pairs
                }
                kept = {k: v for k, v in known.items() if instruction.name == "ENV" or k not in environment}
                environment = {**environment, **kept}
            elif instruction.name == "USER":
                user = expand(instruction.args[0], environment)
            elif instruction.name == "WORKDIR":
                workdir = posixpath.join(workdir, expand(_unquoted(instruction.args[0]), environment))
        state[stage.title] = environment, user, workdir
    return RecipeSubject(
        name=name, text=text, recipe=recipe, steps=tuple(steps), ignored=_ignored(text, steps), ignore=ignore,
        site=site, is_definition=is_definition,
    )  # fmt: skip


def expand(text: str, values: Mapping[str, str]) -> str:
    """The text with known variables replaced, and `${NAME:-default}` always; others stay. A text that becomes
    long stays as it is: variables of variables multiply."""
    if "$" not in text or len(text) > _LONGEST:
        return text

    def value(name: str) -> str:
        found = values.get(name, "")
        return found if len(found) <= _LONGEST else ""

    found = _WITH_DEFAULT.sub(lambda m: value(m[1]) or m[2], text)
    if len(found) <= _LONGEST:
        found = _VARIABLE.sub(lambda m: value(m[1] or m[2]) or m[0], found)
    return found if len(found) <= _LONGEST else text


def location(word: str, step: Step) -> str:
    """The absolute path that a word names; empty when unknown."""
    path = step.expanded(word)
    if path.startswith("~"):
        path = step.home + path[1:] if path[1:2] in ("", "/") else ""
    path = re.sub(r"^\$\{?HOME\}?", step.home, path)
    path = posixpath.join(step.workdir, path) if path else ""
    return posixpath.normpath(path) if path.startswith("/") and "$" not in path.split("/")[1] else ""


def _shipping(recipe: Recipe) -> set[int]:
    """The stages whose layers are in the image: the last one and those it is based on."""
    found: set[int] = set()
    stage: Stage | None = recipe.stages[-1]
    while stage is not None and stage.number not in found:
        found.add(stage.number)
        stage = recipe.before(stage, stage.base)
    return found


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _ignored(text: str, steps: list[Step]) -> dict[int, frozenset[str]]:
    """Line of an instruction -> the codes ignored by comments directly above or in it; 0: for the whole file,
    by comments that an empty line follows."""
    rows = text.split("\n")
    found: dict[int, frozenset[str]] = {}
    for number, row in enumerate(rows, 1):
        match = _IGNORE.fullmatch(row.strip())
        if match is None:
            continue
        codes = frozenset(each.strip().upper() for each in match[1].replace(",", " ").split())
        below = number
        while below < len(rows) and rows[below].strip().startswith("#"):
            below += 1
        line = below + 1 if below < len(rows) and rows[below].strip() else 0
        inside = next((s.line for s in steps if s.line <= number <= s.last), None)
        line = inside if inside is not None else line
        found[line] = found.get(line, frozenset()) | codes
    return found
