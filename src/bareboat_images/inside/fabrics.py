"""An image's libraries for fast networks: libibverbs, libfabric, UCX, NCCL and its plug-ins, and the adapters
that each supports. Based on file names and linked libraries; no program is executed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from bareboat_base.elf import binary
from bareboat_base.expressions import expression
from bareboat_images.layers.view import View
from bareboat_images.model import FabricLibrary

#: libfabric contains the names of all providers, even those it was built without; its linked libraries show
#: which ones it has.
_LINKED = {
    "libcxi.so": "cxi",
    "libefa.so": "efa",
    "libpsm2.so": "psm2",
    "libpsm_infinipath.so": "psm",
    "libibverbs.so": "verbs",
    "libpsm3.so": "psm3",
}
#: Providers in separate files: libpsmx2-fi.so is psm2.
_PROVIDER_FILE = expression(r"lib(?P<name>[a-z0-9_]+?)-fi\.so")
_PROVIDER_NAMES = {"psmx2": "psm2", "psmx": "psm", "psmx3": "psm3"}
_VERBS_DRIVER = expression(r"lib(?P<name>[a-z0-9_]+)-rdmav\d+\.so")
_UCX_TRANSPORT = expression(r"libuct_(?P<name>[a-z0-9_]+)\.so(?:\.\d+)*")


def find(
    view: View, libraries: Mapping[str, Sequence[tuple[str, str]]], nccl: str | None
) -> Iterator[FabricLibrary]:
    """Find the libraries. `libraries`: stem -> (version in the file name, path), in the loader's order.
    `nccl`: the version of NCCL."""
    for _, path in libraries.get("ucp", ()):
        folder = path.rpartition("/")[0]
        yield FabricLibrary(name="UCX", path=path, parts=_named(view, f"{folder}/ucx", _UCX_TRANSPORT))
    for _, path in libraries.get("fabric", ()):
        yield _libfabric(view, path)
    for version, path in libraries.get("ibverbs", ()):
        folder = path.rpartition("/")[0]
        drivers = (
            *_named(view, f"{folder}/libibverbs", _VERBS_DRIVER),  # Debian, and rdma-core's own install
            *_named(view, folder, _VERBS_DRIVER),
        )
        version = ".".join(version.split(".")[2:])  # libibverbs.so.1.14.44.0 belongs to rdma-core 44
        yield FabricLibrary(name="libibverbs", version=version or None, path=path, parts=drivers)
    if nccl is not None:
        path = next((path for _, path in libraries.get("nccl", ())), "")
        yield FabricLibrary(name="NCCL", version=nccl, path=path)
    for _, path in libraries.get("nccl-net", ()):
        with view.open(path) as descriptor, binary.read(descriptor) as found:
            linked = found.needed if found is not None else ()
        parts = ("libfabric",) if any(name.startswith("libfabric.so") for name in linked) else ()
        yield FabricLibrary(name="NCCL plug-in", path=path, parts=parts)


def _libfabric(view: View, path: str) -> FabricLibrary:
    folder = path.rpartition("/")[0]
    with view.open(path) as descriptor, binary.read(descriptor) as library:
        linked = library.needed if library is not None else ()
        version = library.search(rb"\0([12]\.\d{1,2}\.\d{1,2})\0") if library is not None else None
    built_in = [part for name, part in _LINKED.items() if any(each.startswith(name) for each in linked)]
    files = _named(view, f"{folder}/libfabric", _PROVIDER_FILE)
    parts = dict.fromkeys((*built_in, *(_PROVIDER_NAMES.get(name, name) for name in files)))
    return FabricLibrary(name="libfabric", version=version, path=path, parts=tuple(parts))


def _named(view: View, folder: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    found = (pattern.fullmatch(name) for name in sorted(view.names(folder)))
    return tuple(dict.fromkeys(each["name"] for each in found if each is not None))
