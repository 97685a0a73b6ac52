"""One stage of a build: its instructions in order, each taken from the cache or executed."""

from __future__ import annotations

import posixpath
import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from bareboat_base.clock import utc_now
from bareboat_base.errors import BareboatError, ImageError
from bareboat_images.builder import additions, copying, dockerfile_checks, mounting
from bareboat_images.builder.cache import Record, key_of
from bareboat_images.builder.config import Config
from bareboat_images.builder.copying import Copier, Request
from bareboat_images.builder.files import Files, NotFoundError
from bareboat_images.builder.places import Owner, PlaceError, User, find_owner, find_user, joined, locate
from bareboat_images.builder.rootfs import Rootfs, discard, is_empty
from bareboat_images.builder.sandbox import Bind
from bareboat_images.builder.tree import Tree
from bareboat_images.builder.work import Make, Work
from bareboat_images.layers.view import View
from bareboat_images.model import Layer, StoredLayer
from bareboat_images.recipe import expansion, lines, mounts
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.ignore import Ignored
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.stages import PROXIES, Recipe, Stage, argument_name, expanded

if TYPE_CHECKING:
    from bareboat_images.builder.metadata import Below


class State(Struct):
    """The state of a stage, which its instructions change. `arguments`: the ARGs declared so far."""

    rootfs: Rootfs
    config: Config
    arguments: dict[str, str] = field(default_factory=dict)

    @property
    def values(self) -> Mapping[str, str]:
        """The values of variables; an ENV overrides an ARG of the same name."""
        return ChainMap(self.config.environment, self.arguments)


class Builder:
    """Builds one stage. `state`: that of its base, which becomes that of the stage."""

    def __init__(
        self, work: Work, recipe: Recipe, stage: Stage, done: Mapping[int, State], state: State
    ) -> None:
        self._work = work
        self._recipe = recipe
        self._stage = stage
        self._done = done
        self._state = state
        self._count = 0
        self._total = len(stage.steps)

    def build(self) -> State:
        """Execute all instructions. Raises BareboatError with the line."""
        for step in self._stage.steps:
            self._count += 1
            self._work.check_stopped()
            try:
                self._step(step)
            except (PlaceError, NotFoundError, ValueError) as error:
                raise self._named(step, error) from None
            except RecipeError as error:
                raise error.named(self._work.options.name) from None
            except BareboatError as error:
                place = f"{self._work.options.name}:{step.line}: "
                if place not in error.context:
                    place += step.text.partition("\n")[0][:160]
                    error.context = f"{error.context}\n{place}".strip()
                raise
        return self._state

    def _named(self, step: Instruction, error: Exception) -> BareboatError:
        remedy = (
            "check the path, and .dockerignore"
            if isinstance(error, NotFoundError)
            else "check the instruction"
        )
        if isinstance(error, PlaceError):
            remedy = "check the path or the name, or create it first: RUN useradd …, RUN mkdir …"
        return step.fault(str(error), remedy=remedy).named(self._work.options.name)

    @property
    def _title(self) -> str:
        return f"{self._stage.title} {self._count}/{self._total}"

    def _step(self, step: Instruction) -> None:
        match step.name:
            case "ARG":
                self._argument(step)
            case "RUN":
                self._run(step)
            case "COPY" | "ADD":
                self._copy(step)
            case "WORKDIR":
                self._workdir(step)
            case _:
                words = step.args
                if step.name in dockerfile_checks.EXPANDED:
                    words = tuple(self._expand(step, each) for each in words)
                elif step.name == "EXPOSE":
                    values = self._state.values
                    words = tuple(
                        word for each in words for word in expansion.words(each, values, self._recipe.escape)
                    )
                pairs = {
                    self._expand(step, name): self._expand(step, value or "") for name, value in step.pairs
                }
                if step.switch("unexported"):
                    self._assign(pairs)
                else:
                    self._state.config.apply(step, words, pairs)
                self._note(step)

    def _assign(self, pairs: Mapping[str, str]) -> None:
        """An assignment of a definition file: for later values, or of a variable that is exported already."""
        environment = self._state.config.environment
        self._state.arguments.update(pairs)
        for name, value in pairs.items():
            if name in environment or name == "PATH":
                environment[name] = value

    def _note(self, step: Instruction) -> None:
        """Report and record a step without a layer."""
        work, text = self._work, _one_line(step)
        work.reporter.begin(self._title, text)
        work.reporter.end(self._title, text, 0.0, cached=True)
        self._state.config.record(work.moment, text, is_empty=True)

    def _expand(self, step: Instruction, text: str) -> str:
        return expanded(step, text, self._state.values, self._recipe.escape, self._work.growth)

    def _argument(self, step: Instruction) -> None:
        values, given = self._state.values, self._work.options.arguments
        for written, default in step.pairs:
            if (name := argument_name(step, written, values, self._recipe.escape)) is None:
                continue
            value = given.get(name)
            if value is None and default is not None:
                value = self._expand(step, default)
            if value is None:
                value = self._recipe.arguments.get(name)
            if value is not None:
                self._state.arguments[name] = value
        self._note(step)

    def _workdir(self, step: Instruction) -> None:
        state = self._state
        path = joined(state.config.workdir, self._expand(step, step.args[0]))
        state.config.execution["WorkingDir"] = path
        if state.rootfs.view.find(path) is not None:
            self._note(step)
            return
        user = find_user(state.rootfs.view, state.config.user or "root")
        request = Request(sources=(), target=path + "/", is_folder=True, owner=(user.uid, user.gid))

        def make(folder: Path) -> Mapping[bytes, Owner]:
            (folder / "tree").mkdir(parents=True)
            with Tree(folder / "tree") as tree:
                copier = Copier(state.rootfs.view, tree, request)
                copier.make_folder(locate(state.rootfs.view, path).path)
            return copier.owners

        key = key_of(
            "workdir", below=state.rootfs.diff_ids, path=path, owner=[user.uid, user.gid], newest=self._newest
        )
        self._layer(step, key, make, f"WORKDIR {path}")

    @property
    def _newest(self) -> int | None:
        return self._work.options.epoch

    # RUN.

    def _run(self, step: Instruction) -> None:
        work, state = self._work, self._state
        asked = self._expand(step, step.flag("network") or "")
        network = dockerfile_checks.network(step, asked or work.options.network)
        user = find_user(state.rootfs.view, state.config.user or "root")
        found = mounts.read(step, lambda text: self._expand(step, text))
        mounted = mounting.mounted(
            step, found, state.config.workdir, work, lambda name: self._source(step, name)
        )
        proxies = {name: value for name, value in work.options.arguments.items() if name in PROXIES}
        hidden = {name: value for name, value in proxies.items() if name not in state.arguments}
        environment = {**state.arguments, **state.config.environment}
        if "HOME" not in environment:
            environment["HOME"] = user.home or "/"
        words, script = self._words(step, state.config)
        key = key_of(
            "run",
            below=state.rootfs.diff_ids,
            words=[*words, script],
            environment=sorted(environment.items()),
            workdir=state.config.workdir,
            user=[user.uid, user.gid],
            network=network == "none",
            mounts=mounted.described,
            newest=self._newest,
            machine=work.machine.name,
        )

        def make(folder: Path) -> Mapping[bytes, Owner]:
            from bareboat_images.builder.run import Command

            command = Command(
                step=step,
                name=work.options.name,
                words=words,
                environment={
                    **work.options.packages.variables(),
                    **hidden,
                    **environment,
                    **mounted.variables,
                },
                workdir=state.config.workdir,
                user=user,
                binds=(*mounted.binds, *_script_bind(script)),
                network=network != "none",
                packages=work.options.packages,
            )
            with mounted.held():
                work.run(command, state.rootfs, folder, self._title)
            return {}

        shown = " ".join(f"{name}={value}" for name, value in state.arguments.items())
        prefix = f"|{len(state.arguments)} {shown} " if shown else ""
        by = f"RUN {prefix}{' '.join(words)}" if not script else f"RUN {prefix}{_one_line(step)[4:]}"
        self._layer(step, key, make, by, user=user)

    def _words(self, step: Instruction, current: Config) -> tuple[tuple[str, ...], str]:
        """The command of a RUN, and its script if it is one: a heredoc is a script, or input that the shell
        reads."""
        if step.is_json:
            return step.args, ""
        text = step.args[0]
        if step.heredocs:
            first = step.heredocs[0]
            if lines.opening(text, self._recipe.escape) is not None:
                text = first.data
                if text.startswith("#!"):
                    return (_SCRIPT,), text
            else:
                text += "".join(f"\n{each.content}{each.name}" for each in step.heredocs)
        return (*current.shell, text), ""

    # COPY and ADD.

    def _source(self, step: Instruction, name: str) -> Files:
        """The files of a stage, an image, or the context (an empty name)."""
        work = self._work
        if not name:
            return work.context(step)
        stage = self._recipe.source(self._stage, name)
        if stage is not None:
            rootfs, name = self._done[stage.number].rootfs, f"stage {stage.title}"
        else:
            rootfs, name = Rootfs(work.store, work.image(step, name).layers), f"image {name}"
        return Files(rootfs.trees, name=name, is_stored=True, metadata=work.metadata(rootfs).of)

    def _copy(self, step: Instruction) -> None:
        state = self._state
        *given, last = (self._expand(step, each) for each in step.args)
        last = last or "."  # as in BuildKit: the working directory
        is_link = step.switch("link")
        view = View([]) if is_link else state.rootfs.view
        target = joined(state.config.workdir, last)
        is_folder = last.endswith(("/", "/.")) or last in (".", "..") or len(given) > 1
        chmod = self._expand(step, step.flag("chmod") or "")
        if chmod:
            copying.mode_change(chmod)
        chown = self._expand(step, step.flag("chown") or "")
        user = find_owner(state.rootfs.view, chown) if chown else User()
        found = additions.sources(
            step, given, self._work, lambda name: self._source(step, name),
            lambda text: expansion.expand(text, state.values, self._recipe.escape, quotes=False),
        )  # fmt: skip
        request = Request(
            sources=tuple(found),
            target=target,
            is_folder=is_folder or sum(len(source.items) for source in found) > 1,
            chmod=chmod,
            excluded=Ignored(self._expand(step, each) for each in step.all("exclude")),
            owner=(user.uid, user.gid),
        )
        listed = tuple(copying.entries(request))
        key = key_of(
            "copy",
            below=[] if is_link else state.rootfs.diff_ids,
            target=[target, request.is_folder],
            chmod=chmod,
            owner=[user.uid, user.gid],
            newest=self._newest,
            files=self._describe(listed),
        )

        def make(folder: Path) -> Mapping[bytes, Owner]:
            (folder / "tree").mkdir(parents=True)
            with Tree(folder / "tree") as tree:
                copier = Copier(view, tree, request, check=self._work.check_stopped)
                copier.run(listed)
            return copier.owners

        self._layer(step, key, make, _one_line(step))

    def _describe(self, listed: Sequence[copying.Entry]) -> list[object]:
        digester = self._work.digester
        found: list[object] = []
        for source, top, item, inner in listed:
            name = "" if top.is_folder else posixpath.basename(top.given)
            is_top = not inner and top.is_folder
            what: list[object] = ["top"] if is_top and not top.path else digester.describe(item, source.files)
            found.append([name, inner, what])
        return found

    # Layers.

    def _layer(
        self,
        step: Instruction,
        key: str,
        make: Make,
        by: str,
        *,
        user: User | None = None,
        keeps_empty: bool = False,
    ) -> None:
        """Add the step's layer, taken from the cache or made now. `keeps_empty`: also one without files."""
        work, state = self._work, self._state
        text = _one_line(step)
        work.reporter.begin(self._title, text)
        began = time.monotonic()

        def produce(folder: Path) -> tuple[Record, StoredLayer | None]:
            owners = make(folder)
            created = work.moment or utc_now()
            if not keeps_empty and is_empty(folder / "tree"):
                discard(folder)
                return Record(created=created, step=text), None
            from bareboat_images.builder.layer import Rules, finish
            from bareboat_images.builder.metadata import keep

            below = work.metadata(state.rootfs)
            rules = Rules(
                owner=_owner(below, owners, user),
                mode=below.mode,
                newest=self._newest,
                check=work.check_stopped,
            )
            facts, described = finish(folder, rules)
            keep(work.store, facts.diff_id, described)
            return Record(created=created, diff_id=facts.diff_id, step=text), facts

        record, facts, cached = work.step(key, produce, self._title)
        work.reporter.end(self._title, text, time.monotonic() - began, cached=cached)
        work.count(cached=cached)
        state.config.record(record.created, by, is_empty=facts is None)
        if facts is None:
            return
        layer = Layer(
            diff_id=facts.diff_id,
            size_bytes=facts.size_bytes,
            unpacked_bytes=facts.unpacked_bytes,
            inodes=facts.inodes,
            comment=by,
            stackable=facts.stackable,
        )
        if len(state.rootfs.layers) >= _MOST_LAYERS:
            raise ImageError(
                f"the image has more than {_MOST_LAYERS} layers", remedy="join steps: RUN a && b"
            )
        state.rootfs = state.rootfs.above(layer)

    def add_empty_layer(self) -> None:
        """Add a layer without files to an image of settings only: other tools refuse those without layers."""
        key = key_of("empty", below=(), newest=self._newest, machine=self._work.machine.name)

        def make(folder: Path) -> Mapping[bytes, Owner]:
            (folder / "tree").mkdir(parents=True)
            return {}

        self._layer(self._stage.start, key, make, "empty layer", keeps_empty=True)


def _owner(below: Below, owners: Mapping[bytes, Owner], user: User | None) -> Callable[[bytes], Owner]:
    """The owner of an entry by its path: what a step changes keeps it. `owners`: those that the step sets."""

    def owner(path: bytes) -> Owner:
        if (found := owners.get(path)) is not None:
            return found
        if user is not None and (user.uid, user.gid) != (0, 0) and below.entry(path) is None:
            return (user.uid, user.gid)
        known = below.find(path)
        return (0, 0) if known is None else known.owner

    return owner


#: The limit in Docker.
_MOST_LAYERS = 127
#: A script that begins with `#!` is executed as a file, which is not part of the image.
_SCRIPT = "/dev/.bareboat-script"


def _script_bind(script: str) -> tuple[Bind, ...]:
    if not script:
        return ()
    return (Bind(source="", target=_SCRIPT, data=script.encode(errors="surrogateescape"), mode=0o755),)


def _one_line(step: Instruction) -> str:
    return " ".join(step.text.split())[:1000]
