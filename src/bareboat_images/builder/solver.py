"""Build an image from a Dockerfile. Stages that do not depend on each other are built concurrently."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait

import msgspec

from bareboat_base import architectures, execute
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line, quoted
from bareboat_images import lease
from bareboat_images.builder import bases, config, dockerfile_checks
from bareboat_images.builder.options import Built, Machine, Options, Reporter
from bareboat_images.builder.rootfs import Rootfs
from bareboat_images.builder.stage import Builder, State
from bareboat_images.builder.work import Stopped, Work
from bareboat_images.model import Image
from bareboat_images.oci.manifest import OCI_CONFIG, document
from bareboat_images.oci.manifest import config as read_config
from bareboat_images.recipe import definition, stages
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.stages import SCRATCH, Recipe, Stage
from bareboat_images.store import Store
from bareboat_images.transfer import export

#: The number of stages that are built concurrently.
_AT_ONCE = 4
#: Long enough to hide nothing.
_LONGEST_TRIGGER = 4000


def parse(options: Options, machine: str) -> Recipe:
    """Parse and check a Dockerfile or definition file. Raises RecipeError, UsageError."""
    builtin = stages.builtin(machine, target=options.target or "default")
    if options.platform and options.platform not in (builtin["TARGETPLATFORM"], builtin["TARGETARCH"]):
        raise UsageError(
            f"--platform {quoted(options.platform)} is not this machine's platform",
            context=f"this machine is {builtin['TARGETPLATFORM']}; emulation is not supported",
            remedy=f"--platform {builtin['TARGETPLATFORM']}, or build on a machine of that architecture",
        )
    text, given = options.dockerfile, options.arguments
    if definition.is_definition(text):
        recipe = definition.read(text, given=given, name=options.name)
    else:
        recipe = stages.read(text, given=given, builtin=builtin, name=options.name)
    try:
        for stage in recipe.closure(recipe.target(options.target)):
            _check_platform(stage, builtin)
            dockerfile_checks.check(stage, recipe.escape)
            bases.check(recipe, stage, options)
    except RecipeError as error:
        raise error.named(options.name) from None
    return recipe


def _check_platform(stage: Stage, builtin: Mapping[str, str]) -> None:
    if stage.platform and stage.platform not in (builtin["TARGETPLATFORM"], builtin["TARGETARCH"]):
        raise stage.start.fault(
            f"the platform {quoted(stage.platform)} is not this machine's",
            remedy=f"remove --platform, or build on such a machine; this one is {builtin['TARGETPLATFORM']}",
        )


def build(store: Store, options: Options, machine: Machine, reporter: Reporter) -> Built:
    """Build the target stage. With `epoch`, equal files, base image and options give an equal image. Raises
    BareboatError."""
    recipe = parse(options, machine.name)
    target = recipe.target(options.target)
    moment = "" if options.epoch is None else _iso(options.epoch)
    with store.scratch() as scratch:
        work = Work(store, scratch, options, machine, reporter, moment)
        done = _build_stages(work, recipe, target)
        state = done[target.number]
        if not state.rootfs.layers:
            Builder(work, recipe, target, done, state).add_empty_layer()
        image = _image(work, state)
    lease.clear(store.lease("any").parent, "build-")
    warnings = [f"build argument {name} is not used: no ARG declares it" for name in recipe.unused]
    warnings += [
        f"{options.name}:{step.line}: HEALTHCHECK has no effect: no engine on a cluster runs it"
        for stage in recipe.stages
        for step in stage.steps
        if step.name == "HEALTHCHECK" and stage.number in done
    ]
    return Built(image=image, steps=work.steps, cached=work.cached, warnings=tuple(warnings))


class _Pending:
    """The stages that are not built yet, each with those that must be built before it."""

    def __init__(self, recipe: Recipe, stages: Iterable[Stage]) -> None:
        self._recipe = recipe
        self._missing: dict[int, set[int]] = {}
        self._dependents: dict[int, list[Stage]] = {}
        self.done: dict[int, State] = {}
        self.ready: list[Stage] = []
        for stage in stages:
            self._add(stage)

    def _add(self, stage: Stage) -> None:
        needed = {each.number for each in self._recipe.needs(stage)}
        self._missing[stage.number] = needed
        for number in needed:
            self._dependents.setdefault(number, []).append(stage)
        if not needed:
            self.ready.append(stage)

    def finish(self, stage: Stage, state: State) -> None:
        self.done[stage.number] = state
        for each in self._dependents.pop(stage.number, ()):
            missing = self._missing[each.number]
            if stage.number in missing:
                missing.remove(stage.number)
                if not missing:
                    self.ready.append(each)


def _build_stages(work: Work, recipe: Recipe, target: Stage) -> dict[int, State]:
    """Build all stages, each after its dependencies. The first error stops the others."""
    pending = _Pending(recipe, recipe.closure(target))
    running: dict[Future[State], Stage] = {}
    with execute.side_by_side(_AT_ONCE) as pool:
        try:
            while pending.ready or running:
                while pending.ready:
                    stage = pending.ready.pop(0)
                    running[pool.submit(_one, work, recipe, stage, pending.done)] = stage
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    stage = running.pop(future)
                    pending.finish(stage, future.result())
        except BaseException:
            work.stopped.set()
            with contextlib.suppress(BaseException):
                wait(running)
            raise
    return pending.done


def _one(work: Work, recipe: Recipe, stage: Stage, done: Mapping[int, State]) -> State:
    with contextlib.suppress(Stopped):
        return Builder(work, recipe, stage, done, _base(work, recipe, stage, done)).build()
    raise Stopped


def _base(work: Work, recipe: Recipe, stage: Stage, done: Mapping[int, State]) -> State:
    if stage.base == SCRATCH:
        return State(Rootfs(work.store), config.scratch())
    if not bases.external(recipe, stage):
        before = recipe.before(stage, stage.base)
        assert before is not None
        state = done[before.number]
        return State(state.rootfs, state.config.for_next_stage(), dict(state.arguments))
    image = work.image(stage.start, stage.base)
    _check_machine(work, stage, image)
    data = work.store.config(image)
    made = config.of_base(data, len(image.layers), name=stage.base)
    if triggers := made.execution.get("OnBuild"):
        rows = "\n".join(one_line(" ".join(str(each).split()), limit=_LONGEST_TRIGGER) for each in triggers)
        raise stage.start.fault(
            f"{one_line(stage.base)} adds instructions to builds (ONBUILD), which is not supported:\n{rows}",
            remedy="write those that you need in the recipe, and start from an image without them",
        ).named(work.options.name)
    return State(Rootfs(work.store, image.layers), made)


def _check_machine(work: Work, stage: Stage, image: Image) -> None:
    own = architectures.oci(work.machine.name)
    if architectures.oci(image.architecture) not in (own, "", "unknown"):
        raise stage.start.fault(
            f"{stage.base} is an image for linux/{image.architecture}, not for linux/{own}",
            remedy=f"choose an image or tag that is built for linux/{own}",
        ).named(work.options.name)


def _image(work: Work, state: State) -> Image:
    """Store the image of a stage."""
    store, layers = work.store, state.rootfs.layers
    created = work.moment or state.config.created or _iso(int(time.time()))
    data = state.config.document(layers, architecture=architectures.oci(work.machine.name), created=created)
    described = export.join(layers, config=data)
    if store.has_image(described.manifest_digest):
        return store.image(described.manifest_digest)
    from bareboat_images.transfer.fetch import join

    read = read_config(document(data, OCI_CONFIG), name=work.options.name)
    image = join(store, read, described.manifest_digest, "", ())
    image = msgspec.structs.replace(image, built=work.options.command)
    return export.keep(store, image, config=data)


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
