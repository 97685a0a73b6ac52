"""An image of the store as input of rules: the census of its layers, its config, and the facts about it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from bareboat_base.errors import BareboatError
from bareboat_images.inside.configuration import as_instruction
from bareboat_images.layers.view import View
from bareboat_images.lint import entries
from bareboat_images.lint.census import Census, take
from bareboat_images.lint.rule import Machine
from bareboat_images.model import Image
from bareboat_images.oci import documents
from bareboat_images.store import Store

_LARGEST_HEAD = 1 << 16
_MOST_HISTORY = 10_000


@dataclass(frozen=True, kw_only=True)
class ImageSubject:
    """An image. `history`: the instructions of its layers, as far as known; `commands`: all instructions,
    including those without a layer; `inode_quota`: of the user, if given; `unread`: what was not read, and
    why."""

    image: Image
    census: Census
    view: View
    trees: tuple[View, ...]
    history: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    execution: documents.Execution = field(default_factory=documents.Execution)
    site: Machine | None = None
    inode_quota: int | None = None
    unread: tuple[str, ...] = ()

    def by(self, layer: int) -> str:
        """The instruction that created a layer; "" when unknown."""
        return self.history[layer - 1] if 0 < layer <= len(self.history) else ""

    def head(self, path: str, layer: int) -> bytes:
        """The first bytes of a file in one layer."""
        if not 0 < layer <= len(self.trees):
            return b""
        return self.trees[layer - 1].read(path, most=_LARGEST_HEAD) or b""

    @property
    def is_musl(self) -> bool:
        """Whether the image has musl's dynamic loader."""
        return any(name.startswith("ld-musl-") for name in self.view.names("/lib"))

    @cached_property
    def process(self) -> tuple[str, ...]:
        """The command line that the image starts."""
        return (*self.image.process.entrypoint, *self.image.process.command)


def read(
    store: Store,
    image: Image,
    *,
    site: Machine | None = None,
    inode_quota: int | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> ImageSubject:
    """Read an image for the rules: the headers of each layer once, no content. Raises StoreError."""
    count = len(image.layers)
    notes: list[str] = []
    left = entries.MOST_ENTRIES

    def items(number: int) -> Iterator[entries.Item]:
        layer = image.layers[number]
        say(f"reading layers: {number + 1} of {count}")
        tree, recipe = store.layer(layer.diff_id), store.recipe(layer.diff_id)
        nonlocal left
        try:
            for item in entries.read(tree, recipe, name=f"layer {number + 1}", most=left):
                left -= 1
                yield item
        except (BareboatError, OSError) as error:
            notes.append(f"layer {number + 1} was not read to its end: {error}")

    census = take([items(number) for number in range(count)])
    trees = store.trees(image)
    config = documents.Config()
    with contextlib.suppress(BareboatError):
        config = store.read_config(image)
    by_layer, every = _history(config, count)
    return ImageSubject(
        image=image,
        census=census,
        view=View(trees),
        trees=tuple(View([tree]) for tree in trees),
        history=by_layer,
        commands=every,
        execution=config.config or documents.Execution(),
        site=site,
        inode_quota=inode_quota,
        unread=tuple(notes),
    )


def _history(config: documents.Config, layers: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The instruction of each layer, if the history has as many entries as there are layers; and all
    instructions."""
    found = (config.history or [])[:_MOST_HISTORY]
    every = tuple(as_instruction((each.created_by or "")[:_LARGEST_HEAD]) for each in found)
    made = [text for text, each in zip(every, found, strict=True) if not each.empty_layer]
    return (tuple(made) if len(made) == layers else ()), every
