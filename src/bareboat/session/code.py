"""What a job's code shows before the start, in the image that it runs in."""

from __future__ import annotations

import os

import msgspec

from bareboat.model import AbsentModule, CodeFacts, Image, Job, Site
from bareboat.program_analysis import executable, imports
from bareboat.project import packages
from bareboat.runs import code
from bareboat_base.paths import lies_in
from bareboat_images.store import Store


def look(store: Store, image: Image, job: Job, site: Site, *, home: str) -> CodeFacts:
    """The facts of the code, the modules that it does not find, and its program. `site`: a machine that the
    job runs on."""
    facts = code.facts(job, home)
    return msgspec.structs.replace(
        facts,
        absent=_absent(store, image, job, facts),
        program=executable.look(store, image, site, job),
    )


def _absent(store: Store, image: Image, job: Job, facts: CodeFacts) -> tuple[AbsentModule, ...]:
    named = None if facts.imports is msgspec.UNSET else frozenset(facts.outer_imports)
    found = imports.absent(store, image, job, named)
    if found is None:
        return ()
    names = [each.name for each in found.imports]
    if not found.is_certain:
        if job.image != "capture" or os.path.dirname(found.python) != os.path.dirname(image.python or ""):
            return ()
        from bareboat.captures.interpreter import lacks

        names = list(lacks(found.python, found.path, names))
    folder = job.workdir or "/"
    return tuple(
        AbsentModule(
            each.name,
            os.path.relpath(each.path, folder) if each.path and lies_in(each.path, folder) else each.path,
            each.line,
            packages.installed_by(each.name),
        )
        for each in found.imports
        if each.name in names
    )
