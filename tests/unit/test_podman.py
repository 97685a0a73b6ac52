"""What Podman is told of the caller, and what the plan says that it loses."""

import os
import stat
from pathlib import Path

import msgspec
import pytest
from builders import make_image, make_job, make_rootfs, make_site
from tools import output, tool

from bareboat import render
from bareboat.engines import FILTERS
from bareboat.model import Decision, EngineFacts, Plan, SchedulerFacts, Topology
from bareboat.plan import plan
from bareboat.render.words import texts


def planned(program: str = "/usr/bin/podman", queue: str | None = None, **settings: str) -> Plan:
    programs = {FILTERS: settings.pop("programs", "")}
    facts = EngineFacts(
        name="podman", path=program, version="4.9.4", origin="on PATH", works=True, settings=settings
    )
    slurm = SchedulerFacts(name="slurm", version="23.11")
    site = msgspec.structs.replace(make_site(schedulers=(slurm,)), engines=(facts,), other_tools=programs)
    image = make_image(prefixes=())
    job = make_job(engine="podman", topology=Topology(), scheduler=queue)
    return plan(job, image, make_rootfs(image), site)


def engine_decision(made: Plan) -> Decision:
    return next(each for each in made.decisions if each.subject == "engine")


def test_the_plan_says_that_runc_loses_groups() -> None:
    assert "without the user's supplementary groups" in engine_decision(planned(groups="lost")).reason
    assert "groups" not in engine_decision(planned()).reason
    assert any("save its state" in warning for warning in planned(queue="slurm").warnings)
    assert not any("save its state" in warning for warning in planned(programs="/p").warnings)


@pytest.fixture
def podman(tmp_path: Path) -> Path:
    """A program that says what it was called with, as podman would be."""
    path = tmp_path / "podman"
    path.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_limits_that_the_probe_found_to_be_needed_are_kept(podman: Path) -> None:
    said = called(planned(str(podman), ulimit="nofile=1024:1024 nproc=9:9"), "")
    found = [word for word in said if word.startswith("--ulimit")]
    assert found == ["--ulimit=nofile=1024:1024", "--ulimit=nproc=9:9"]


def called(made: Plan, before: str) -> list[str]:
    """What the program is called with by the command of the job script."""
    script = render.script(made)
    command = script[script.index("exec env") :].partition("\n) <&0 &")[0]
    environment = {"PATH": os.defpath, **texts(made.command)}
    return output(tool("bash"), "-c", before + command, env=environment).splitlines()
