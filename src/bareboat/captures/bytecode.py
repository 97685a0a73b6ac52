"""Python's byte code: compile missing files, and set the source time in existing ones."""

from __future__ import annotations

import importlib.util
import os

from bareboat.captures.collect import Collection, read
from bareboat.captures.interpreter import Interpreter
from bareboat_base import execute
from bareboat_images.layers import layer


def complete(interpreter: Interpreter, collection: Collection) -> bool:
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


def restamped(path: str, collection: Collection) -> bytes | None:
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
