"""The types of images: frozen, free of I/O. Import all of them from here."""

from __future__ import annotations

from bareboat_images.model.facts import (
    CudaCompat,
    FabricLibrary,
    HostLibrary,
    Linked,
    MpiFacts,
    MpiFamily,
    Pmi,
)
from bareboat_images.model.image import (
    Image,
    Layer,
    Pin,
    Prefix,
    Process,
    Signer,
    SiteLayer,
    StoredCapture,
    StoredLayer,
    Trust,
)

__all__ = [
    "CudaCompat", "FabricLibrary", "HostLibrary", "Image", "Layer", "Linked", "MpiFacts", "MpiFamily",
    "Pin", "Pmi", "Prefix", "Process", "Signer", "SiteLayer", "StoredCapture", "StoredLayer", "Trust",
]  # fmt: skip
