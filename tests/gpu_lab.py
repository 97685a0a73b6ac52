"""Jobs with GPUs in every engine, for tests/contract/test_gpu.py and test_nvidia.py."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from environments import Captured
from tools import completed

from bareboat import registry, render
from bareboat.deployment.present import present
from bareboat.model import Image, Job, Plan, Site, Topology
from bareboat.plan import plan
from bareboat_images.formats.flatten import make_flat

CASES = [
    (name, overlay)
    for each in registry.names("engines")
    for name in registry.modes(each)
    for overlay in ((True, False) if registry.engine(name).STACKS else (False,))
    if registry.engine(name).CONTAINS and not registry.engine(name).UNTESTED
]


@dataclass(frozen=True, slots=True)
class Lab:
    """Where jobs with GPUs are run."""

    engine: str
    captured: Captured
    site: Site
    workdir: Path
    root: Path

    def plan(self, *command: str, image: Image | None = None, gpus: int = 1, **changes: Any) -> Plan:
        image = image or self.captured.image
        facts: dict[str, Any] = {"name": "gpu", "command": command, "workdir": str(self.workdir)}
        job = Job(**(facts | {"engine": self.engine, "topology": Topology(gpus_per_rank=gpus)} | changes))
        store = self.captured.store
        return plan(job, image, present(store, image, self.site, job), self.site)

    def run(
        self,
        *command: str,
        caller: dict[str, str] | None = None,
        before: Sequence[str] = (),
        image: Image | None = None,
        **changes: Any,
    ) -> subprocess.CompletedProcess[str]:
        image = image or self.captured.image
        made = self.plan(*command, image=image, **changes)
        if made.needs_flat:
            make_flat(self.captured.store, image, made.mount_points, relinked=made.relinked)
        script = self.workdir.parent / "job.sh"
        script.write_text(render.script(made))
        return completed(
            [*before, "bash", str(script)],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(caller or {})},
            timeout=60,
        )

    def says(self, program: str, **changes: Any) -> Any:
        """What a Python program in the container prints, as JSON; it must succeed."""
        done = self.run("python", "-c", program, **changes)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def with_engine(site: Site, name: str, overlay: bool) -> Site:
    """The machine with this engine alone."""
    engines = tuple(
        msgspec.structs.replace(facts, overlay=facts.overlay and overlay)
        for facts in site.engines
        if facts.name == name.partition(":")[0] and facts.works
    )
    site = msgspec.structs.replace(site, engines=engines)
    if site.engine(name) is None:
        pytest.skip(f"{name} does not work here")
    return site
