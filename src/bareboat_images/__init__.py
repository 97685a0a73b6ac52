"""Container images without root or daemon: pull, read, build and push.

store = bareboat_images.Store(Path("images"))
image = bareboat_images.pull("docker.io/library/debian:12", store)
print(store.view(image).read("/etc/os-release", most=10_000))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bareboat_images.layers.view import View
    from bareboat_images.model import Image
    from bareboat_images.registry.access import Access
    from bareboat_images.store import Store
    from bareboat_images.tar.limits import Limits
    from bareboat_images.toolkit import build, pull, push, save
    from bareboat_images.transfer.options import PullOptions

#: Loaded when first used: each command needs few of them.
_MODULES = {
    "Access": "bareboat_images.registry.access",
    "Image": "bareboat_images.model",
    "Limits": "bareboat_images.tar.limits",
    "PullOptions": "bareboat_images.transfer.options",
    **dict.fromkeys(("build", "pull", "push", "save"), "bareboat_images.toolkit"),
    "Store": "bareboat_images.store",
    "View": "bareboat_images.layers.view",
}
__all__ = ["Access", "Image", "Limits", "PullOptions", "Store", "View", "build", "pull", "push", "save"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
