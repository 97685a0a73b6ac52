"""The mounts of a RUN on this machine: cache directories, secrets, files of other stages."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct, field

from bareboat_base.errors import UsageError
from bareboat_base.printable import quoted
from bareboat_images import lease
from bareboat_images.builder.cache import mounts_folder
from bareboat_images.builder.copying import Copier, Entry, Request, Source, entries
from bareboat_images.builder.files import Files, Item, NotFoundError
from bareboat_images.builder.places import joined
from bareboat_images.builder.sandbox import Bind
from bareboat_images.builder.tree import Tree
from bareboat_images.builder.work import Work
from bareboat_images.layers.view import View
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.mounts import RunMount


class Mounted(Struct):
    """The mounts of one RUN. `described`: their part of its key; `binds`: usable inside `held`."""

    described: list[object] = field(default_factory=list)
    binds: tuple[Bind, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    #: Cache directories that one RUN at a time may use.
    _locked: list[str] = field(default_factory=list)
    _work: Work | None = None
    #: Copies to make before the command runs.
    _copies: list[Callable[[], None]] = field(default_factory=list)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the copies, and lock cache directories while the command runs."""
        assert self._work is not None
        for make in self._copies:
            make()
        with ExitStack() as stack:
            for name in sorted(set(self._locked)):  # one order for all builds
                path = self._work.store.lease(f"build-mount-{name}")
                stack.enter_context(lease.hold(path, until=self._stopped))
            yield

    def _stopped(self) -> bool:
        assert self._work is not None
        self._work.check_stopped()
        return False


def mounted(
    step: Instruction,
    mounts: Sequence[RunMount],
    workdir: str,
    work: Work,
    source: Callable[[str], Files],
) -> Mounted:
    """Prepare the mounts. Raises RecipeError, NotFoundError, UsageError."""
    made = Mounted(_work=work)
    binds: list[Bind] = []
    for mount in mounts:
        target = joined(workdir, mount.target) if mount.target else ""
        if target == "/":
            raise step.fault(
                f"--mount=type={mount.kind} has no target, and the working directory is /",
                remedy=f"--mount=type={mount.kind},target=/DIR",
            )
        match mount.kind:
            case "tmpfs":
                binds.append(Bind(source="", target=target, size_bytes=mount.size_bytes))
                made.described.append(["tmpfs", target, mount.size_bytes])
            case "cache":
                binds.append(_cache(mount, target, work, made))
            case "secret":
                _secret(step, mount, target, work, made, binds)
                made.described.append(["secret", target, mount.id, mount.variable])
            case _:
                binds.append(_bind(mount, target, work, made, source(mount.stage)))
    made.binds = tuple(binds)
    return made


def _cache(mount: RunMount, target: str, work: Work, made: Mounted) -> Bind:
    """A directory that is kept after the build."""
    made.described.append(["cache", target, mount.id, mount.writable, mount.mode])
    name = hashlib.sha256(os.fsencode(mount.id)).hexdigest()
    folder = mounts_folder(work.store) / name
    if not folder.is_dir():
        with work.store.scratch(own=True) as scratch:
            new = scratch / "mount"
            new.mkdir()
            new.chmod(0o755 if mount.mode is None else mount.mode | 0o700)
            work.store.publish(new, folder)
    if mount.sharing == "locked":
        made._locked.append(name)
    return Bind(source=str(folder), target=target, writable=mount.writable)


def _secret(
    step: Instruction, mount: RunMount, target: str, work: Work, made: Mounted, binds: list[Bind]
) -> None:
    data = work.options.secrets.get(mount.id)
    if data is None:
        if mount.required:
            raise step.fault(
                f"the secret {quoted(mount.id)} is required and was not given",
                remedy=f"--secret id={mount.id},src=FILE",
            )
        return
    if mount.variable:
        if b"\0" in data:
            raise step.fault(
                f"the secret {quoted(mount.id)} has a NUL byte", remedy="mount it as a file: target=PATH"
            )
        made.variables[mount.variable] = data.decode(errors="surrogateescape")
    if target:
        binds.append(
            Bind(source="", target=target, data=data, mode=mount.mode if mount.mode is not None else 0o400)
        )


def _bind(mount: RunMount, target: str, work: Work, made: Mounted, files: Files) -> Bind:
    """Files of the context, a stage or an image. Writes to them are discarded."""
    (item, *others) = files.select(mount.source or ".")
    if others:
        raise NotFoundError(f"{quoted(mount.source)} matches several paths in {files.name}")
    listed = _listed(files, item)
    made.described.append(["bind", target, mount.writable, _described(work, listed)])
    place = work.folder("bind")
    if len(files.layers) > 1 or files.is_stored:
        made._copies.append(lambda: _flatten(files, place))
        full = os.path.join(place, item.path)
    elif item.is_folder:
        made._copies.append(lambda: _copy(listed, place, "/"))
        full = str(place)
    else:
        made._copies.append(lambda: _copy(listed, place, "/file"))
        full = str(place / "file")
    if mount.writable and not item.is_folder:
        raise UsageError(
            f"{mount.source} is a file, and cannot be mounted with rw", remedy="mount its directory"
        )
    return Bind(source=full, target=target, stacked=mount.writable)


def _listed(files: Files, item: Item) -> tuple[Entry, ...]:
    """The current state of an entry and everything below it."""
    source = Source(files=files, items=(item,))
    return tuple(entries(Request(sources=(source,), target="/", is_folder=False)))


def _described(work: Work, listed: Sequence[Entry]) -> list[object]:
    return [
        ["top"] if not item.path else [item.path, *work.digester.describe(item, source.files)]
        for source, _, item, _ in listed
    ]


def _flatten(files: Files, place: Path) -> None:
    from bareboat_images.formats.flatten import flatten

    place.mkdir()
    place.chmod(0o755)
    flatten(files.layers, place)


def _copy(listed: Sequence[Entry], folder: Path, target: str) -> None:
    """Copy entries for a mount: a RUN would see changes of the original files."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    with Tree(folder) as tree:
        Copier(View([]), tree, Request(sources=(), target=target, is_folder=False, opens=True)).run(listed)
