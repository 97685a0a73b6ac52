"""Writes an inventory as CycloneDX 1.6, in JSON. Pure.

Source: https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import uuid
from typing import Any

from bareboat_base import __version__
from bareboat_images.model import Image
from bareboat_images.sbom.inventory import Inventory
from bareboat_images.sbom.package import Package

_ALGORITHMS = {"SHA256": "SHA-256", "MD5": "MD5"}


def document(image: Image, inventory: Inventory, *, created: str) -> dict[str, Any]:
    """The document of an image. `created`: when the image was made, as RFC 3339, or ""."""
    metadata: dict[str, Any] = {
        "tools": {"components": [{"type": "application", "name": "bareboat", "version": __version__}]},
        "component": {
            "type": "container",
            "bom-ref": image.digest,
            "name": image.reference or image.digest,
            "version": image.digest,
        },
    }
    if created:
        metadata["timestamp"] = created
    if inventory.warnings:
        metadata["properties"] = [
            {"name": "bareboat:warning", "value": warning} for warning in inventory.warnings
        ]
    components = [_component(number, each) for number, each in enumerate(inventory.packages, 1)]
    if inventory.distribution:
        system = {
            "type": "operating-system",
            "bom-ref": "os",
            "name": inventory.distribution,
            "version": inventory.distribution_version,
        }
        components.insert(0, system)
    # Derived from the digest, so that the same image always has the same serial number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, f"bareboat:{image.digest}")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": metadata,
        "components": components,
    }


def _component(number: int, package: Package) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"package-{number}",
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
    }
    if package.supplier:
        found["publisher"] = package.supplier
    if package.licence:
        found["licenses"] = [{"license": {"name": package.licence}}]
    if package.hashes:
        found["hashes"] = [
            {"alg": _ALGORITHMS[name], "content": value} for name, value in sorted(package.hashes)
        ]
    found["properties"] = [{"name": "bareboat:path", "value": package.path}]
    return found
