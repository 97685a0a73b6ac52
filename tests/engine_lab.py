"""Where the contract of engines is tried, on the real ones: through the planner, the renderer and bash.

`lab` is the fixture that tests/contract/test_engine*.py share; a test that takes it runs once for each case.
An engine that stacks is tried three times: on the flat tree, on the flat tree where overlayfs is not to be
had, and with a root to write to.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from _pytest.mark import ParameterSet
from engine_limits import limits
from environments import Captured
from tools import completed_bytes

from bareboat import registry, render
from bareboat.deployment import roots
from bareboat.engines import bubblewrap
from bareboat.model import CodeFacts, Image, Job, Refusal, Site
from bareboat.plan import plan
from bareboat.probe import probe
from bareboat.program_analysis.executable import look
from bareboat.runs import programs
from bareboat_base import execute

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Case:
    """An engine (NAME, or NAME:MODE), which of the programs found for it, and how the root file system is
    made."""

    engine: str
    origin: str = ""
    overlay: bool = True
    writable: bool = False

    def __str__(self) -> str:
        how = ["writable"] * self.writable + ["no-overlay"] * (not self.overlay)
        return "-".join([self.engine, *filter(None, [self.origin]), *how])


#: Engines that run another's program: Apptainer's former name, Podman in a wrapper, PRoot without seccomp.
#: By default one test in four runs with each of them.
ALIKE = ("singularity", "podman-hpc", "udocker:P2")


def params(cases: Iterable[T], name: Callable[[T], str]) -> list[ParameterSet]:
    """Cases for pytest, sampled where they are much like others. `name`: the engine of a case."""
    sampled = pytest.mark.sampled(4)
    return [pytest.param(case, marks=[sampled] if name(case) in ALIKE else []) for case in cases]


def cases() -> list[Case]:
    found = []
    for name in [mode for each in registry.names("engines") for mode in registry.modes(each)]:
        if registry.engine(name).UNTESTED:  # no real one: tests/contract/test_untested_engines.py
            continue
        origins = ["embedded"] if name == "bubblewrap" else [""]
        if name == "bubblewrap" and _system_bwrap_is_new():
            origins.append("on PATH")
        for origin in origins:
            found.append(Case(name, origin))
            if registry.engine(name).STACKS:
                found.append(Case(name, origin, overlay=False))
                found.append(Case(name, origin, writable=True))
    return found


def _system_bwrap_is_new() -> bool:
    path = shutil.which("bwrap")
    if path is None:
        return False
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    return number is not None and tuple(map(int, number.groups())) >= bubblewrap.OLDEST


@dataclass(frozen=True, slots=True)
class Lab:
    """Where jobs are run: `job` and `script` make them, `run` runs them to their end."""

    case: Case
    captured: Captured
    site: Site
    workdir: Path
    home: Path

    @property
    def contains(self) -> bool:
        return registry.engine(self.case.engine).CONTAINS

    @property
    def image(self) -> Image:
        return self.captured.image

    def script(self, *command: str, name: str = "job", image: Image | None = None, **changes: Any) -> Path:
        """The job script; `image`: the captured one with other facts, such as another process."""
        facts: dict[str, Any] = {"name": name, "command": command, "workdir": str(self.workdir)}
        job = Job(**(facts | {"engine": self.case.engine, "writable": self.case.writable} | changes))
        store, image = self.captured.store, image or self.image
        program = look(store, image, self.site, job)
        rootfs = self.captured.rootfs(self.site, image)
        code = CodeFacts(program=program)
        made = plan(job, image, rootfs, self.site, code=code)
        assert made.needs_flat == (self.contains and not self.case.writable)
        if made.needs_flat:
            made = roots.settle(
                store,
                image,
                rootfs,
                made,
                lambda found: plan(job, image, found, self.site, code=code),
            )
        path = self.workdir.parent / "job.sh"
        path.write_bytes(os.fsencode(render.script(made)))
        return path

    def run(
        self, *command: str, stdin: bytes = b"", caller: dict[str, str] | None = None, **changes: Any
    ) -> subprocess.CompletedProcess[bytes]:
        return completed_bytes(
            ["bash", str(self.script(*command, **changes))],
            input=stdin,
            env={**os.environ, **(caller or {})},
            timeout=60,
        )

    def python(self, program: str, *arguments: str, **changes: Any) -> subprocess.CompletedProcess[bytes]:
        return self.run("python", "-c", program, *arguments, **changes)

    def says(self, program: str, *arguments: str, **changes: Any) -> str:
        """What a Python program prints in the engine; it must succeed."""
        done = self.python(program, *arguments, **changes)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().removesuffix("\n")


@pytest.fixture(scope="session")
def base_site(captured: Captured) -> Site:
    """This machine. Podman refuses now and then while others of the same user start it, too."""
    execute.set_patience(60.0)  # of a machine that runs other tests, too
    site = probe(captured.store)
    for _ in range(2):
        if all(facts.works for facts in site.engines):
            break
        time.sleep(2)
        site = probe(captured.store)
    execute.set_patience(None)
    return programs.provide_filters(captured.store, site)


@pytest.fixture(params=params(cases(), lambda case: case.engine), ids=str)
def lab(request: pytest.FixtureRequest, captured: Captured, base_site: Site, tmp_path: Path) -> Lab:
    case: Case = request.param
    limit = limits(case.engine).get(request.node.originalname)
    if limit is not None:
        request.applymarker(pytest.mark.xfail(strict=True, reason=limit))
    engines = tuple(
        msgspec.structs.replace(facts, overlay=facts.overlay and case.overlay)
        for facts in base_site.engines
        if facts.name == case.engine.partition(":")[0] and facts.origin.startswith(case.origin)
    )
    if not engines:
        pytest.skip(f"{case} is not installed")
    site = msgspec.structs.replace(base_site, engines=engines)
    verdict = registry.engine(case.engine).judge(site, captured.image)
    if isinstance(verdict, Refusal):
        pytest.skip(f"{case} does not work here: {verdict.reason}")
    for folder in ("work", "home"):
        (tmp_path / folder).mkdir()
    (tmp_path / "home" / "secret").write_text("secret")
    site = msgspec.structs.replace(site, home=str(tmp_path / "home"))
    return Lab(case, captured, site, tmp_path / "work", tmp_path / "home")
