"""Builds the image of a capture: copies the files, hashes the layers and stores them."""

from __future__ import annotations

import importlib.util
import os
import stat
from pathlib import Path

from bareboat.captures import facts
from bareboat.captures.collect import Collection, Item, Part, changed, read
from bareboat.captures.interpreter import Interpreter
from bareboat.captures.libraries import Inventory
from bareboat.model import Image, Layer, Prefix
from bareboat_base import architectures, codec, execute
from bareboat_images.inside.survey import COMPILERS
from bareboat_images.layers import layer
from bareboat_images.progress import Progress
from bareboat_images.store import Store
from bareboat_images.transfer import export

_CREATED = "1980-01-01T00:00:00Z"


def build(found: Inventory, store: Store, progress: Progress) -> Image:
    """Copy, hash and publish the layers, then store the image."""
    with store.scratch() as scratch:
        layers: list[Layer] = []
        copied = 0
        for part in Part:
            made, copied = _build_layer(
                found.collection, part, part.name.lower(), scratch, (copied, found.size_bytes), progress
            )
            store.add_layer(scratch / made.comment, made)
            layers.append(made)
        return _join(found, tuple(layers), store)


def build_layer(collection: Collection, scratch: Path, name: str, progress: Progress) -> Layer:
    """Copy and hash a collection of one part as one layer below `scratch`."""
    part = next(iter(collection.items.values())).part
    return _build_layer(collection, part, name, scratch, (0, collection.size_bytes), progress)[0]


def _build_layer(
    collection: Collection,
    part: Part,
    name: str,
    scratch: Path,
    done: tuple[int, int],
    progress: Progress,
) -> tuple[Layer, int]:
    """Copy and hash one part below `scratch`; return the layer and the bytes copied so far. `done`: of so
    many."""
    copied, total = done
    tree = scratch / name / "tree"
    tree.mkdir(parents=True)
    for count, (path, item) in enumerate(_with_parents(collection, part), 1):
        _put(str(tree), path, item, collection)
        copied += item.size
        if count % 200 == 0:
            progress("copying", copied, total)
    progress(f"hashing layer {name}", copied, total)
    return layer.finish(tree, comment=name), copied


def _join(found: Inventory, layers: tuple[Layer, ...], store: Store) -> Image:
    """Store the image of the layers."""
    environment = {**facts.environment(found.interpreter), **found.variables}
    if found.library_folders:
        environment["LD_LIBRARY_PATH"] = ":".join(found.library_folders)
    frameworks = facts.frameworks(found.collection.items)
    has_mpi = bool(facts.MPI_PACKAGES & frameworks.keys()) or any(
        os.path.basename(path).startswith("libmpi") for path in found.collection.items
    )
    cuda = facts.cuda(found.collection.items)
    searched = list(dict.fromkeys([*environment["PATH"].split(":"), *found.program_folders]))
    environment["PATH"] = ":".join(searched)

    def has(program: str) -> bool:
        return any(f"{place}/{program}" in found.collection.items for place in searched)

    machine = os.uname().machine
    image = Image(
        digest="",
        layers=layers,
        environment=environment,
        python=found.interpreter.executable,
        python_version=found.interpreter.version,
        glibc=(os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ") or None,
        frameworks=frameworks,
        cuda=cuda,
        prefixes=tuple(Prefix(path=path, layer=layers[part].diff_id) for path, part in found.roots),
        unresolved_libraries=found.unresolved,
        notes=tuple(found.collection.left_out),
        architecture=architectures.oci(machine),
        compiler=any(map(has, COMPILERS)),
        **facts.searched([store.layer(each.diff_id) for each in layers], environment, mpi=has_mpi, cuda=cuda),
    )
    return export.keep(store, image, config=config_of(layers, machine=machine, environment=environment))


def config_of(content: tuple[Layer, ...], *, machine: str, environment: dict[str, str]) -> bytes:
    """The config of an image of these layers. Equal input gives equal bytes."""
    return codec.to_json(
        {
            "architecture": architectures.oci(machine),
            "os": "linux",
            "created": _CREATED,
            "config": {
                "Env": [f"{name}={value}" for name, value in sorted(environment.items())],
                "Cmd": ["/bin/sh"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in content]},
            "history": [
                {"created": _CREATED, "created_by": "bareboat image capture", "comment": each.comment}
                for each in content
            ],
        }
    )


def _with_parents(collection: Collection, part: Part) -> list[tuple[str, Item]]:
    """The part's items and all their parent directories, parents first."""
    chosen = {path: item for path, item in collection.items.items() if item.part == part}
    for path in list(chosen):
        while (path := os.path.dirname(path)) != "/":
            if path in chosen:
                break
            chosen[path] = collection.items.get(path, Item(part, "folder", 0o755))
    return sorted(chosen.items(), key=lambda pair: pair[0].split("/"))


def _put(tree: str, path: str, item: Item, collection: Collection) -> None:
    """Write one item into the tree, except for stale byte code."""
    target = tree + path
    if item.kind == "folder":
        os.mkdir(target)
        os.chmod(target, item.mode)
        return
    if item.kind == "link":
        os.symlink(item.link, target)
        return
    data = item.data
    if path.endswith(".pyc") and os.path.basename(os.path.dirname(path)) == "__pycache__":
        data = _restamped(path, collection)
        if data is None:
            return
    written = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if data is not None:
            _write(written, data)
        else:
            _copy(path, written, item)
        os.fchmod(written, item.mode)
    finally:
        os.close(written)


def _write(descriptor: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    return len(data)


def _copy(path: str, target: int, item: Item) -> None:
    """Copy a file, in the kernel if possible (which may share blocks).

    Raises UsageError for a file that was changed since it was collected or changes during the copy.
    """
    try:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in its place must not block
    except OSError as error:
        raise changed(path) from error
    done = 0
    try:
        if not _unchanged(source, item):
            raise changed(path)
        try:
            while count := os.copy_file_range(source, target, max(item.size, 1) if not done else 1 << 30):
                done += count
        except OSError:
            if done:
                raise
            while chunk := os.read(source, 1 << 20):
                done += _write(target, chunk)
        if done != item.size or not _unchanged(source, item):
            raise changed(path)
    finally:
        os.close(source)


def _unchanged(descriptor: int, item: Item) -> bool:
    state = os.fstat(descriptor)
    regular = stat.S_ISREG(state.st_mode)
    return regular and (state.st_size, state.st_mtime_ns) == (item.size, item.mtime_ns)


def compile_missing(interpreter: Interpreter, collection: Collection) -> bool:
    """Compile the files that a first import would compile, so that both arms of a study and later captures
    find the same files. Only in directories that the user can write to. Returns whether any was compiled."""
    paths = tuple(os.path.realpath(p) for p in (interpreter.stdlib, *interpreter.path) if os.path.isdir(p))
    tag = f"cpython-{''.join(interpreter.version.split('.')[:2])}"
    missing = []
    for path, item in collection.items.items():
        if path.endswith(".py") and item.kind != "folder" and path.startswith(paths):
            folder, name = os.path.split(path)
            cached = f"{folder}/__pycache__/{name[:-3]}.{tag}.pyc"
            if cached not in collection.items and os.access(folder, os.W_OK):
                missing.append(path)
    if not missing:
        return False
    # Files with the syntax of another Python version do not compile; that is not an error.
    execute.run(
        [interpreter.executable, "-I", "-m", "compileall", "-q", "-j", "0", "-i", "-"],
        stdin="\n".join(missing) + "\n",
        timeout_s=1800,
    )
    return any(
        os.path.exists(f"{os.path.dirname(p)}/__pycache__/{os.path.basename(p)[:-3]}.{tag}.pyc")
        for p in missing
    )


def _restamped(path: str, collection: Collection) -> bytes | None:
    """The content of a .pyc for the image; None if it is stale.

    Python uses byte code only if its header has the source's time and size (PEP 552). All sources in an
    image have the same time, which is written into the header; the code is not changed.
    """
    try:
        source = importlib.util.source_from_cache(path)
    except ValueError:
        return None
    item = collection.items.get(source)
    if item is not None and item.kind == "link":  # Debian's sitecustomize; all of uv's environments
        item = collection.items.get(os.path.realpath(source))
    if item is None or item.kind != "file":
        return None
    data = read(path)
    if len(data) < 16:
        return None
    flags, mtime_s, size = (int.from_bytes(data[at : at + 4], "little") for at in (4, 8, 12))
    if flags:  # checked by the source's hash or not at all, so it is valid
        return data
    if mtime_s != (item.mtime_ns // 10**9) & 0xFFFFFFFF or size != item.size & 0xFFFFFFFF:
        return None
    return data[:8] + layer.EPOCH.to_bytes(4, "little") + data[12:]
