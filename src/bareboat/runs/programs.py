"""Bareboat's programs that compute nodes need, copied into the store, which the nodes see.

Bareboat may be installed where only the login node sees it. Nodes need only the embedded bwrap and the system
call filters.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bareboat.engines import FILTERS, NO_SECCOMP, bubblewrap
from bareboat.model import EngineFacts, Site
from bareboat.plan.environment import SHIMS
from bareboat_base import seccomp
from bareboat_base.errors import StoreError
from bareboat_base.files import ownership
from bareboat_images.store import Store


def provide(store: Store, site: Site) -> Site:
    """The site with its embedded engine copied into the store."""
    return msgspec.structs.replace(
        site,
        engines=tuple(_provided(store, facts) for facts in site.engines),
    )


def provide_shims(store: Store, site: Site, *, always: bool) -> Site:
    """The site with shims of this installation in the store. For jobs with `shim`. `always`: they replace
    tools that a node has."""
    from bareboat_shim import shims

    key = hashlib.sha256("\0".join(("shims", str(always), str(store.root), *shims.KEY)).encode()).hexdigest()[
        :16
    ]
    final = store.program(key)
    texts = shims.texts(final, force=always, store=str(store.root))
    _make(store, final, tuple(texts), lambda: {name: os.fsencode(text) for name, text in texts.items()})
    return msgspec.structs.replace(site, other_tools={**site.other_tools, SHIMS: str(final)})


def provide_filters(store: Store, site: Site) -> Site:
    """The site with the system call filters for its machine in the store; unchanged where there are none, or
    the kernel does not support them."""
    key = seccomp.DIGESTS.get(site.architecture)
    check = site.check("seccomp")
    if key is None or (check is not None and check.detail == NO_SECCOMP):
        return site
    final = store.program(key)
    _make(store, final, seccomp.NAMES, lambda: seccomp.files(site.architecture))
    return msgspec.structs.replace(site, other_tools={**site.other_tools, FILTERS: str(final)})


def moved(site: Site, provided: Site) -> dict[str, str]:
    """The copied engine programs: path here -> path in the store."""
    pairs = zip(site.engines, provided.engines, strict=True)
    return {before.path: after.path for before, after in pairs if before.path != after.path}


def _is_believed(store: Store, folder: Path, names: Sequence[str]) -> bool:
    """Whether the programs exist and nobody else could have changed them; unsafe ones are removed. Raises
    StoreError when that fails."""
    if not folder.is_dir():
        return False
    doubts = (ownership.doubt_within(store.own, folder / name) for name in names)
    doubt = next((each for each in doubts if each is not None), None)
    if doubt is None:
        return True
    if Path(doubt.place) == folder.parent:
        raise StoreError(f"programs in the store {store.own} are not used: {doubt}", remedy=doubt.remedy)
    store.discard(folder)
    return False


def _make(
    store: Store, final: Path, names: Sequence[str], contents: Callable[[], Mapping[str, bytes]]
) -> None:
    """Make the directory of the store with these programs, unless it has them. Nobody else may write to it,
    whatever the umask."""
    if _is_believed(store, final, names):
        return
    with store.scratch(own=True) as scratch:
        made = scratch / final.name
        for name, content in contents().items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755)
        for folder in (made, *made.rglob("*/")):
            folder.chmod(0o755)
        store.publish(made, final)


def _embedded(facts: EngineFacts) -> str | None:
    """The name, below its package, of the program of the embedded engine; None for another engine."""
    if facts.name != bubblewrap.Bubblewrap.NAME or not facts.origin.startswith("embedded") or not facts.works:
        return None
    return next((name for name in bubblewrap.EMBEDDED if facts.path.endswith(name)), None)


def _provided(store: Store, facts: EngineFacts) -> EngineFacts:
    name = _embedded(facts)
    if name is None:
        return facts
    folder = Path(facts.path.removesuffix(name))
    key = hashlib.sha256("".join(sorted(bubblewrap.EMBEDDED.values())).encode()).hexdigest()[:16]
    final = store.program(key)
    _make(
        store,
        final,
        tuple(bubblewrap.EMBEDDED),
        lambda: {each: (folder / each).read_bytes() for each in bubblewrap.EMBEDDED},
    )
    return msgspec.structs.replace(facts, path=str(final / name))
