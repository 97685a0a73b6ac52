"""What a job's code shows before the start, in the image that it runs in."""

from __future__ import annotations

import msgspec

from bareboat.model import CodeFacts, Image, Job, Site
from bareboat.program_analysis import executable, imports
from bareboat.runs import code
from bareboat_images.store import Store


def look(store: Store, image: Image, job: Job, site: Site, *, home: str) -> CodeFacts:
    """The facts of the code, the modules that it does not find, and its program. `site`: a machine that the
    job runs on."""
    facts = code.facts(job, home)
    return msgspec.structs.replace(
        facts,
        absent=imports.absent(store, image, job),
        program=executable.look(store, image, site, job),
    )
