"""bareboat image show --sbom: the software in an image for other tools."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.cli.image.common import find
from bareboat_base.expressions import expression
from bareboat_base.files import outputs

if TYPE_CHECKING:
    from bareboat.model import Image

_DATE = expression(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def run(context: Context) -> int:
    from bareboat_images.sbom import cyclonedx, inventory, spdx

    options, store = context.options, context.store
    path = outputs.check(options.output) if options.output is not None else None
    image = find(context, options.image)
    with store.guarded():
        found = inventory.take(store.trees(image))
    form = spdx if options.sbom == "spdx" else cyclonedx
    text = json.dumps(form.document(image, found, created=_created(context, image)), indent=2)
    if path is None:
        console.result(text)
    else:
        outputs.write(path, f"{text}\n".encode())
        console.result(f"{path}: {len(found.packages):,} packages")
    for warning in found.warnings:
        console.note(f"warning: {warning}")
    return 0


def _created(context: Context, image: Image) -> str:
    """When the image was made, from its config, to the second in UTC; else an empty string."""
    from bareboat_base.errors import BareboatError
    from bareboat_images.oci import documents
    from bareboat_images.transfer import export

    with contextlib.suppress(BareboatError, ValueError):
        created = documents.config(export.stored_config(context.store, image), name=image.digest).created
        found = _DATE.match(created or "")
        if found and datetime.fromisoformat(found[0]):
            return found[0] + "Z"
    return ""
