"""Programs of Fairlead's own that compute nodes need: copied into the store, which they see.

Fairlead itself may be installed where only the login node sees it; nothing of it is needed elsewhere but the
embedded bwrap.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import msgspec

from fairlead.engines import bubblewrap
from fairlead.model import EngineFacts, Site
from fairlead.plan.watchdog import PY_SPY
from fairlead.store import Store


def provide(store: Store, site: Site) -> Site:
    """The site with its embedded engine at a place in the store."""
    return msgspec.structs.replace(
        site,
        engines=tuple(_provided(store, facts) if _is_embedded(facts) else facts for facts in site.engines),
    )


def provide_py_spy(store: Store, site: Site) -> Site:
    """The site with its py-spy, which is one file, at a place in the store. For jobs with a watchdog."""
    path = site.other_tools.get(PY_SPY)
    if path is None or Path(path).is_relative_to(store.root):
        return site
    with open(path, "rb") as stream:
        key = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    final = store.program(key)
    if not final.is_dir():
        with store.scratch() as scratch:
            made = scratch / key
            made.mkdir()
            shutil.copyfile(path, made / PY_SPY)
            os.chmod(made / PY_SPY, 0o755)
            store.publish(made, final)
    return msgspec.structs.replace(site, other_tools={**site.other_tools, PY_SPY: str(final / PY_SPY)})


def moved(site: Site, provided: Site) -> dict[str, str]:
    """Where the engines' programs went: place here -> place in the store."""
    pairs = zip(site.engines, provided.engines, strict=True)
    return {before.path: after.path for before, after in pairs if before.path != after.path}


def _is_embedded(facts: EngineFacts) -> bool:
    return facts.name == bubblewrap.NAME and facts.origin.startswith("embedded") and facts.works


def _provided(store: Store, facts: EngineFacts) -> EngineFacts:
    name = next(name for name in bubblewrap.EMBEDDED if facts.path.endswith(name))
    folder = Path(facts.path.removesuffix(name))
    key = hashlib.sha256("".join(sorted(bubblewrap.EMBEDDED.values())).encode()).hexdigest()[:16]
    final = store.program(key)
    if not final.is_dir():
        with store.scratch() as scratch:
            made = scratch / key
            for each in bubblewrap.EMBEDDED:
                target = made / each
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / each, target)
                os.chmod(target, 0o755)
            store.publish(made, final)
    return msgspec.structs.replace(facts, path=str(final / name))
