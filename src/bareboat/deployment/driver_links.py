"""The directory of links to a driver's files, made once per driver. It holds links, never the files."""

from __future__ import annotations

from bareboat.gpu import inject
from bareboat.model import Site
from bareboat_base import codec
from bareboat_images.store import Store


def provide(store: Store, site: Site) -> dict[str, str]:
    """Vendor -> the directory of links to the files of its driver on this site.

    Raises StoreError when it cannot be made.
    """
    return {
        driver.vendor: _made(store, links) for driver in site.gpu_drivers if (links := inject.links(driver))
    }


def _made(store: Store, links: dict[str, str]) -> str:
    final = store.driver(codec.digest(links).removeprefix("sha256:"))
    if not final.is_dir():
        with store.scratch(own=True) as scratch:
            folder = scratch / "driver"
            for name, target in links.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True, mode=0o755)
                (folder / name).symlink_to(target)
            store.publish(folder, final)
    return str(final)
