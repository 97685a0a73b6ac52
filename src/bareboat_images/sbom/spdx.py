"""Writes an inventory as SPDX 2.3, in JSON. Pure.

Source: https://spdx.github.io/spdx-spec/v2.3/
"""

from __future__ import annotations

from typing import Any

from bareboat_base import __version__
from bareboat_images.model import Image
from bareboat_images.sbom.inventory import Inventory
from bareboat_images.sbom.package import Package

_NONE = "NOASSERTION"
#: SPDX requires a date; an image without one gets this constant.
_NO_DATE = "1970-01-01T00:00:00Z"


def document(image: Image, inventory: Inventory, *, created: str) -> dict[str, Any]:
    """The document of an image. `created`: when the image was made, as RFC 3339, or ""."""
    name = image.reference or image.digest
    packages = [
        {
            "SPDXID": "SPDXRef-Image",
            "name": name,
            "versionInfo": image.digest,
            "downloadLocation": _NONE,
            "filesAnalyzed": False,
            "primaryPackagePurpose": "CONTAINER",
            "licenseConcluded": _NONE,
            "licenseDeclared": _NONE,
            "copyrightText": _NONE,
        }
    ]
    packages += [_package(number, each) for number, each in enumerate(inventory.packages, 1)]
    creation: dict[str, Any] = {
        "created": created[:19] + "Z" if created else _NO_DATE,
        "creators": [f"Tool: bareboat-{__version__}"],
    }
    if inventory.warnings:
        creation["comment"] = "\n".join(f"warning: {each}" for each in inventory.warnings)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://spdx.org/spdxdocs/bareboat-{image.digest.partition(':')[2]}",
        "creationInfo": creation,
        "packages": packages,
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"),
            *(
                _relation("SPDXRef-Image", "CONTAINS", f"SPDXRef-Package-{number}")
                for number in range(1, len(packages))
            ),
        ],
    }


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def _package(number: int, package: Package) -> dict[str, Any]:
    found: dict[str, Any] = {
        "SPDXID": f"SPDXRef-Package-{number}",
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": _NONE,
        "filesAnalyzed": False,
        "licenseConcluded": _NONE,
        "licenseDeclared": _NONE,
        "copyrightText": _NONE,
        "sourceInfo": f"listed in {package.path}",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": package.purl,
            }
        ],
    }
    if package.hashes:
        found["checksums"] = [
            {"algorithm": name, "checksumValue": value} for name, value in sorted(package.hashes)
        ]
    return found
