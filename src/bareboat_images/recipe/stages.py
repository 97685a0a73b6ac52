"""Parses a whole Dockerfile: the ARGs before its first FROM, and its stages."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from bareboat_base import architectures
from bareboat_base.expressions import expression
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted
from bareboat_images.recipe import expansion, lines, mounts
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.instructions import Instruction, check_argument, parse

_STAGE_NAME = expression(r"[a-z][a-z0-9-_.]*")
#: The name of an empty base.
SCRATCH = "scratch"


def builtin(machine: str, *, target: str = "default") -> dict[str, str]:
    """The ARGs that BuildKit defines."""
    found = architectures.oci(machine)
    values = {"PLATFORM": f"linux/{found}", "OS": "linux", "ARCH": found, "VARIANT": ""}
    sides = {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in values.items()}
    return sides | {"TARGETSTAGE": target}


class Stage(Struct, frozen=True, kw_only=True):
    """One stage. `base`: an image's reference, another stage's name, or `scratch`, with variables replaced.
    `name`: in lower case, empty if it has none. `steps`: its instructions after FROM."""

    number: int
    name: str
    base: str
    platform: str
    start: Instruction
    steps: tuple[Instruction, ...]

    @property
    def title(self) -> str:
        """Its name, or its number."""
        return self.name or f"stage-{self.number}"


class Recipe(Struct, frozen=True, kw_only=True):
    """A Dockerfile. `arguments`: the values of the ARGs before the first FROM; `unused`: build arguments that
    no ARG declares."""

    stages: tuple[Stage, ...]
    arguments: Mapping[str, str]
    escape: str
    unused: tuple[str, ...] = ()
    #: Name -> numbers of the stages that have it, in order.
    _named: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stage in self.stages:
            if stage.name:
                self._named.setdefault(stage.name, []).append(stage.number)

    def find(self, name: str) -> Stage | None:
        """A stage by its name or number; the last one if several have the name."""
        if numbers := self._named.get(name.lower()):
            return self.stages[numbers[-1]]
        if name.isascii() and name.isdigit() and len(name) < 6 and int(name) < len(self.stages):
            return self.stages[int(name)]
        return None

    def target(self, name: str | None) -> Stage:
        """The stage to build: the named one, or the last. Raises RecipeError."""
        if name is None:
            return self.stages[-1]
        found = self.find(name)
        if found is None:
            names = [stage.name or str(stage.number) for stage in self.stages]
            likely = nearest(name.lower(), names) or names[-1]
            raise RecipeError(
                f"--target {quoted(name)} is not a stage; stages: {', '.join(names[:20])}",
                line=self.stages[-1].start.line,
                remedy=f"--target {likely}",
            )
        return found

    def before(self, stage: Stage, name: str) -> Stage | None:
        """The earlier stage to which a name in `stage` refers."""
        numbers = self._named.get(name.lower(), [])
        if (earlier := bisect.bisect_left(numbers, stage.number)) > 0:
            return self.stages[numbers[earlier - 1]]
        found = self.find(name) if name.isdigit() else None
        return found if found is not None and found.number < stage.number else None

    def source(self, stage: Stage, name: str) -> Stage | None:
        """The stage to which COPY --from or a mount refers: an earlier one of this name, else a later one; or
        one by its number."""
        found = self.before(stage, name) or self.find(name)
        return found if found is None or found.number != stage.number else None

    def needs(self, stage: Stage) -> Iterator[Stage]:
        """The stages on which a stage depends directly. Raises RecipeError for a stage that depends on
        itself, and for a number without a stage."""
        if (base := self.before(stage, stage.base)) is not None:
            yield base
        for step in stage.steps:
            for name in sources(step):
                if (found := self.source(stage, name)) is not None:
                    yield found
                elif self.find(name) is not None:
                    raise step.fault(
                        f"the stage {quoted(name)} copies from itself", remedy="copy from another stage"
                    )
                elif name.isdigit():
                    raise step.fault(
                        f"{name} is not one of the {len(self.stages)} stages of this file",
                        remedy="number stages from 0, or name them: FROM … AS name",
                    )

    def closure(self, target: Stage) -> tuple[Stage, ...]:
        """The target and all stages on which it depends, in the order of the file. Raises RecipeError for
        circular dependencies."""
        found: dict[int, Stage] = {}
        #: Stages being visited, each with its remaining dependencies.
        path: dict[int, tuple[Stage, Iterator[Stage]]] = {}
        needed: Stage | None = target
        while needed is not None or path:
            if needed is None:
                number, (stage, _) = path.popitem()
                found[number] = stage
            elif needed.number in path:
                names = [stage.title for stage, _ in path.values()]
                circle = " needs ".join([*names[names.index(needed.title) :], needed.title])
                last = next(reversed(path.values()))[0]
                raise last.start.fault(f"stages form a circle: {circle}", remedy="remove one of the copies")
            elif needed.number not in found:
                path[needed.number] = (needed, self.needs(needed))
            needed = next(next(reversed(path.values()))[1], None) if path else None
        return tuple(found[number] for number in sorted(found))


def sources(step: Instruction) -> tuple[str, ...]:
    """The stages or images named in COPY --from and the mounts of a RUN."""
    found = [step.flag("from") or ""] if step.name == "COPY" else []
    if step.name == "RUN":
        found += mounts.stages(step)
    return tuple(each for each in found if each and "$" not in each)


def read(
    text: str,
    *,
    given: Mapping[str, str],
    builtin: Mapping[str, str],
    name: str = "Dockerfile",
    is_open: bool = False,
) -> Recipe:
    """Parse a Dockerfile. `given`: build arguments of the user; `builtin`: those of the platform, such as
    TARGETARCH; `is_open`: a FROM that requires others stays as it is written. Raises RecipeError with the
    file's `name` and the line."""
    try:
        return _read(text, given, builtin, is_open=is_open)
    except RecipeError as error:
        raise error.named(name) from None


def _read(text: str, given: Mapping[str, str], builtin: Mapping[str, str], *, is_open: bool) -> Recipe:
    found = lines.read(text)
    values: dict[str, str] = dict(builtin)
    arguments: dict[str, str] = dict(builtin)
    stages: list[tuple[Instruction, list[Instruction]]] = []
    declared: set[str] = set()
    growth = expansion.Growth()
    for line in found.lines:
        step = parse(line, found.escape)
        if step.name == "ARG":
            declared.update(name for name, _ in step.pairs)
            if any("$" in name for name, _ in step.pairs):
                declared.update(given)  # it may declare any
        if step.name == "RUN":
            mounts.stages(step)
        if step.name == "FROM":
            stages.append((step, []))
        elif stages:
            stages[-1][1].append(step)
        elif step.name != "ARG":
            raise step.fault(
                "it comes before the first FROM", remedy="begin with FROM; only ARG may come before it"
            )
        else:
            for written, default in step.pairs:
                if (name := argument_name(step, written, values, found.escape)) is None:
                    continue
                value = given.get(name)
                if value is None and default is not None:
                    value = expanded(step, default, values, found.escape, growth)
                if value is not None:
                    values[name] = arguments[name] = value
                elif name not in values:
                    arguments[name] = ""
    if not stages:
        number = found.lines[-1].last if found.lines else 1
        raise RecipeError("the Dockerfile has no FROM", line=number, remedy="begin with FROM debian:12")
    return Recipe(
        stages=tuple(
            _stage(number, start, steps, values, found.escape, is_open=is_open)
            for number, (start, steps) in enumerate(stages)
        ),
        arguments=arguments,
        escape=found.escape,
        unused=tuple(sorted(set(given) - declared - PROXIES - {EPOCH})),
    )


def _stage(
    number: int,
    start: Instruction,
    steps: list[Instruction],
    values: Mapping[str, str],
    escape: str,
    *,
    is_open: bool,
) -> Stage:
    base = expanded(start, start.args[0], values, escape)
    if is_open and not base.strip(' "'):
        base = start.args[0].strip('"')
    if not base.strip():
        raise start.fault(
            f"the name of the base image is empty ({start.args[0]})",
            remedy="give it a default: ARG NAME=debian:12 before FROM, or --build-arg NAME=…",
        )
    name = start.args[1].lower() if len(start.args) > 1 else ""
    if name and not _STAGE_NAME.fullmatch(name):
        raise start.fault(
            f"{quoted(name)} is not a name for a stage", remedy="begin with a letter: FROM debian:12 AS build"
        )
    if name == SCRATCH:
        raise start.fault(f"the name {name} is reserved", remedy="FROM debian:12 AS build")
    platform = expanded(start, start.flag("platform") or "", values, escape)
    return Stage(number=number, name=name, base=base, platform=platform, start=start, steps=tuple(steps))


def argument_name(step: Instruction, written: str, values: Mapping[str, str], escape: str) -> str | None:
    """The name that an ARG declares; None for one whose variables are empty. Raises RecipeError."""
    name = expanded(step, written, values, escape) if "$" in written else written
    if not name:
        return None
    check_argument(step, name)
    return name


def expanded(
    step: Instruction,
    text: str,
    values: Mapping[str, str],
    escape: str,
    growth: expansion.Growth | None = None,
) -> str:
    """The text with variables replaced, counted in `growth`. Raises RecipeError with the step's line."""
    try:
        found = expansion.expand(text, values, escape)
        if growth is not None:
            growth.add(text, found)
        return found
    except expansion.ExpansionError as error:
        raise step.fault(
            f"{quoted(text)}: {error}", remedy="write ${NAME}, ${NAME:-default} or \\$"
        ) from None


#: The build argument that sets the time of files; it needs no ARG.
EPOCH = "SOURCE_DATE_EPOCH"
#: Build arguments that need no ARG, and are part of neither cache keys nor images.
PROXIES = frozenset(
    name
    for plain in ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
    for name in (plain, plain.upper())
)
