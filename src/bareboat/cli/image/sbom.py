"""bareboat image show --sbom: the software in an image for other tools."""

from __future__ import annotations

import json

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.cli.image.common import find
from bareboat_base.files import outputs


def run(context: Context) -> int:
    from bareboat_images import sbom

    options = context.options
    path = outputs.check_new(options.output, flag="--output")
    document, found = sbom.document(context.store, find(context, options.image))
    text = json.dumps(document, indent=2)
    if path is None:
        console.result(text)
    else:
        outputs.write_new(path, f"{text}\n".encode())
        console.result(f"{path}: {len(found.packages):,} packages")
    for warning in found.warnings:
        console.note(f"warning: {warning}")
    return 0
