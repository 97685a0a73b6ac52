"""What a run was made from, for `lock` and `diff`: written when it begins.

provenance.json   environment variables, code and machine
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from bareboat.model import Job, Site
from bareboat.model.provenance import Provenance
from bareboat.runs import code, withheld
from bareboat_base import __version__, codec
from bareboat_images.store import Store

log = logging.getLogger("bareboat")
FILE = "provenance.json"


def keep(store: Store, run_id: str, job: Job, site: Site, *, others: Sequence[Job] = ()) -> None:
    """Write it into the directory of a run that begins. Code that cannot be read does not stop the run.
    `others`: further jobs of a study, whose code is in the same directory."""
    try:
        found = code.look(job, others)
        found = withheld.of_code(found) if found is not None else None
    except OSError as error:
        log.debug("the code is not recorded: %s", error)
        found = None
    secret = withheld.names(job.environment)
    made = Provenance(
        bareboat_version=__version__,
        environment={name: value for name, value in job.environment.items() if name not in secret},
        withheld=secret,
        code=found,
        site=site,
    )
    store.write(store.run(run_id) / FILE, codec.to_json(made))


def read(store: Store, run_id: str) -> Provenance | None:
    """That of a run; of a point, that of its sweep; None for runs of earlier versions. Raises StoreError."""
    for name in (run_id, run_id.rpartition(".")[0]):
        path = store.run(name) / FILE if name else None
        if path is not None and os.path.lexists(path):
            return store.read(path, Provenance)
    return None
