"""Planning with each engine, launcher and scheduler touches nothing on the machine.

Engines probe in the same file, so an import contract cannot show it: the interpreter reports what is opened,
listed and started.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tools import output

from bareboat import registry

ENGINES = [mode for name in registry.BUILT_IN["engines"] for mode in registry.modes(name)]
#: Engine, launcher, scheduler.
CASES = [
    *((name, "torchrun", "local") for name in ENGINES),
    *(("bubblewrap", launcher, "local") for launcher in ("single", "ranks")),
    *(
        ("bubblewrap", "torchrun", scheduler)
        for scheduler in registry.BUILT_IN["schedulers"]
        if scheduler != "local"
    ),
]
#: Plans each case twice: the first time loads modules.
_PLAN = """
import json, sys
from builders import make_image, make_job, make_rootfs, make_site
from bareboat import registry
from bareboat.model import EngineFacts, Topology
from bareboat.plan import plan

WATCHED = ("open", "os", "subprocess", "socket", "shutil", "tempfile", "glob")
image = make_image(frameworks={"torch": "2.13.0+cpu", "horovod": "0.28.1"}, prefixes=())
settings = {"unshare": "/usr/bin/unshare", "bash": "/bin/bash", "env": "/usr/bin/env"}
seen, is_on = [], False

def hook(event, arguments):
    if is_on and event.partition(".")[0] in WATCHED:
        seen.append(f"{event} {arguments[0] if arguments else ''}")

sys.addaudithook(hook)
found = []
for name, launcher, scheduler in json.loads(sys.argv[1]):
    base, _, mode = name.partition(":")
    facts = EngineFacts(name=base, path=f"/opt/{base}", version="1.0", origin="on PATH", works=True,
                        settings=settings, modes=(mode or "configured",))
    job = make_job(engine=name, launcher=launcher, scheduler=None if scheduler == "local" else scheduler,
                   topology=Topology(ranks_per_node=1 if launcher == "single" else 2))
    queues = () if scheduler == "local" else (registry.scheduler(scheduler).assumed(job),)
    site = make_site(engines=(facts,), schedulers=queues)
    plan(job, image, make_rootfs(image), site)
    is_on, seen = True, []
    made = plan(job, image, make_rootfs(image), site)
    is_on = False
    found.append([[made.engine, made.launcher, made.scheduler], seen])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def plans() -> dict[tuple[str, ...], Any]:
    path = [str(Path(__file__).parents[1]), *sys.path]
    code = f"import sys; sys.path[:0] = {path!r}\n{_PLAN}"
    made = json.loads(output(sys.executable, "-c", code, json.dumps(CASES)))
    return dict(zip(CASES, made, strict=True))


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_planning_decides_by_facts_alone(plans: dict[tuple[str, ...], Any], case: tuple[str, ...]) -> None:
    made, seen = plans[case]
    assert tuple(made) == case
    assert seen == []
