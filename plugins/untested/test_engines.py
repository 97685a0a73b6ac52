"""Engines that could not be installed: their command lines, against fakes that know the documented ones only.

The fakes (tests/fakes/) are strict, and then really run the command. What this shows is that the command
lines are as documented, and that what Bareboat promises holds if the tools do what they are documented to do.
It does not show that the tools do.
"""

import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import engine_lab
import msgspec
import pytest
from builders import make_image, make_site
from contract.test_engines import (
    test_a_command_killed_by_a_signal_exits_as_in_a_shell,
    test_arguments_may_contain_any_byte,
    test_binary_data_passes_unchanged,
    test_stdout_and_stderr_are_separate,
    test_the_environment_is_exactly_the_documented_one,
    test_the_exit_code_is_the_command_s,
    test_values_of_environment_variables_may_contain_any_text,
)
from environments import Captured, with_engine
from processes import left_after
from tools import executable

from bareboat import registry, render
from bareboat.cli import doctor
from bareboat.deployment.present import rootfs_of
from bareboat.engines import Enclosure
from bareboat.model import Image, Job, Mount, Refusal, Site, Topology
from bareboat.plan import plan
from bareboat.probe import probe
from bareboat_base.errors import PlanError
from bareboat_images.formats.flatten import make_flat
from bareboat_untested import site_images

__all__ = [
    "test_a_command_killed_by_a_signal_exits_as_in_a_shell",
    "test_arguments_may_contain_any_byte",
    "test_binary_data_passes_unchanged",
    "test_stdout_and_stderr_are_separate",
    "test_the_environment_is_exactly_the_documented_one",
    "test_the_exit_code_is_the_command_s",
    "test_values_of_environment_variables_may_contain_any_text",
]

FAKES = Path(__file__).parents[2] / "tests/fakes"
ENGINES = ("enroot", "sarus", "shifter")
#: What each shows read-only, and what it lets be written, to vanish.
READ_ONLY = ("enroot", "shifter")


class Lab(engine_lab.Lab):
    __slots__ = ()

    @property
    def engine(self) -> str:
        return self.case.engine

    def plan(self, *command: str, **changes: Any) -> Any:
        facts: dict[str, Any] = {"name": "job", "command": command, "workdir": str(self.workdir)}
        job = Job(**(facts | {"engine": self.engine} | changes))
        store, image = self.captured.store, self.image
        made = plan(job, image, self.captured.rootfs(self.site, image), self.site)
        make_flat(store, image, made.mount_points)
        return made

    def script(self, *command: str, **changes: Any) -> Path:
        path = self.workdir / "job.sh"
        path.write_bytes(os.fsencode(render.script(self.plan(*command, **changes))))
        return path


def make_lab(engine: str, captured: Captured, site: Site, workdir: Path) -> Lab:
    return Lab(engine_lab.Case(engine), captured, site, workdir, Path(site.home))


@pytest.fixture(scope="module")
def sited(captured: Captured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """This machine with the fakes on PATH; the site's own repositories have the captured image."""
    top = tmp_path_factory.mktemp("fakes")
    bwrap = with_engine(captured.store, "bubblewrap").engine("bubblewrap")
    if bwrap is None or not bwrap.works:
        pytest.skip("the fakes run their commands by bwrap, which does not work here")
    for folder in ("bin", "images"):
        (top / folder).mkdir()
    for name in (*ENGINES, "shifterimg"):
        (top / "bin" / name).symlink_to(FAKES / name)
    (top / "bin" / "fake-settings").write_text(f"{bwrap.path}\n{top / 'images'}\n")
    rootfs = rootfs_of(captured.store, captured.image)
    make_flat(captured.store, captured.image, ())
    (top / "images" / site_images.name(captured.image.digest)).symlink_to(rootfs.flat)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{top / 'bin'}:{os.environ['PATH']}")
        yield probe(captured.store)


@pytest.fixture(params=ENGINES)
def lab(request: pytest.FixtureRequest, captured: Captured, sited: Site, tmp_path: Path) -> Lab:
    (tmp_path / "work").mkdir()
    return make_lab(request.param, captured, sited, tmp_path / "work")


# -- they are marked -----------------------------------------------------------------------------------


def test_what_was_never_run_for_real_says_so_wherever_it_is_listed(lab: Lab) -> None:
    mark = registry.engine(lab.engine).UNTESTED
    assert mark.startswith("untested: ")
    facts = lab.site.engine(lab.engine)
    assert facts is not None
    assert facts.works, facts.detail
    assert mark in facts.detail
    assert mark in "\n".join(doctor._details(lab.site, []))
    decision = next(each for each in lab.plan("true").decisions if each.subject == "engine")
    assert mark in decision.reason


def test_they_come_after_every_engine_that_was_tested_and_before_none() -> None:
    names = registry.names("engines")
    assert names[-3:] == ENGINES
    assert [name for name in names if registry.engine(name).UNTESTED] == [*ENGINES]


def test_left_to_itself_bareboat_takes_one_that_was_tested(lab: Lab) -> None:
    made = lab.plan("true", engine=None)
    assert made.engine == "bubblewrap"
    decision = next(each for each in made.decisions if each.subject == "engine")
    rejected = {each.choice: each.reason for each in decision.rejected}
    assert rejected[lab.engine].startswith("untested: ")


def test_where_there_is_nothing_else_it_is_taken(lab: Lab) -> None:
    site = msgspec.structs.replace(lab.site, engines=(lab.site.engine(lab.engine),))
    made = dataclasses.replace(lab, site=site).plan("true", engine=None)
    assert made.engine == lab.engine


# -- what is promised ----------------------------------------------------------------------------------


def test_a_command_may_have_an_equals_sign(lab: Lab) -> None:
    executable(lab.workdir / "a=b", "#!/bin/sh\necho ran\n")
    assert lab.run(f"{lab.workdir}/a=b").stdout == b"ran\n"


def test_user_and_working_directory_are_the_documented_ones(lab: Lab) -> None:
    said = lab.says("import os, ware; print(os.getuid(), os.getcwd(), ware.NAME); open('made', 'w')")
    assert said == f"{os.getuid()} {lab.workdir} ware"
    assert (lab.workdir / "made").exists()


def test_mounts(lab: Lab, tmp_path: Path) -> None:
    """For Shifter in a folder that the site shows: it makes no mount points."""
    for name in ("ro", "rw"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    places = {name: f"/data/{name}" for name in ("ro", "rw")}
    if lab.engine == "shifter":
        places = {name: f"{tmp_path}/at-{name}" for name in ("ro", "rw")}
        for place in places.values():
            Path(place).mkdir()
    mounts = (
        Mount(source=str(tmp_path / "ro"), target=places["ro"]),
        Mount(source=str(tmp_path / "rw"), target=places["rw"], writable=True),
    )
    program = """
import sys
for place in sys.argv[1:]:
    print(open(place + "/x").read())
    try:
        open(place + "/new", "w")
    except OSError as error:
        print(error.strerror)
"""
    said = lab.says(program, places["ro"], places["rw"], mounts=mounts)
    assert said.split("\n") == ["ro", "Read-only file system", "rw"]
    assert (tmp_path / "rw" / "new").exists()


def test_the_image_stays_what_it_is(lab: Lab) -> None:
    flat = Path(rootfs_of(lab.captured.store, lab.captured.image).flat)
    done = lab.run("sh", "-c", "echo changed > /changed")
    assert (done.returncode == 0) == (lab.engine not in READ_ONLY)
    assert not (flat / "changed").exists()


def test_sigterm_reaches_the_command_and_nothing_is_left(lab: Lab) -> None:
    program = "trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    script = lab.script("sh", "-c", program)
    run = subprocess.Popen(["bash", str(script), f"fake-{lab.engine}"], stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(signal.SIGTERM)
    # The bubblewrap of some fakes dies of the signal itself.
    assert run.wait(timeout=30) in (0, 128 + signal.SIGTERM)
    assert run.stdout.read() == b"goodbye\n"
    run.stdout.close()
    assert left_after(f"fake-{lab.engine}") == []


def test_the_folders_of_a_run(lab: Lab, tmp_path: Path) -> None:
    """Enroot and Sarus show them at places of their own; Shifter as the site does."""
    (tmp_path / "meter").mkdir()
    program = "import os; open(os.environ['BAREBOAT_METER_DIR'] + '/said', 'w').write('x')"
    done = lab.run("python", "-c", program, caller={"BAREBOAT_METER_DIR": str(tmp_path / "meter")})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "meter" / "said").read_text() == "x"


# -- what the tools do not take ------------------------------------------------------------------------


def refused(lab: Lab, **changes: Any) -> PlanError:
    with pytest.raises(PlanError) as caught:
        lab.plan("true", **changes)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("engine", "target"),
    [("enroot", "/data:x"), ("sarus", "/data,x"), ("shifter", "/data;x"), ("shifter", "/etc/x"),
     ("shifter", "/var/lib")],
)  # fmt: skip
def test_a_mount_that_the_tool_cannot_be_told_is_refused_beforehand(
    captured: Captured, sited: Site, tmp_path: Path, engine: str, target: str
) -> None:
    lab = make_lab(engine, captured, sited, tmp_path)
    assert engine in refused(lab, mounts=(Mount(source=str(tmp_path), target=target),)).message


def test_enroot_mounts_folders_with_odd_names(captured: Captured, sited: Site, tmp_path: Path) -> None:
    odd = tmp_path / "a b\\c\td"
    odd.mkdir()
    (odd / "x").write_text("odd")
    lab = make_lab("enroot", captured, sited, odd)
    assert lab.says("print(open('x').read())") == "odd"


def test_shifter_refuses_a_launcher_that_needs_a_mount_point(
    captured: Captured, sited: Site, tmp_path: Path
) -> None:
    lab = make_lab("shifter", captured, sited, tmp_path)
    image = msgspec.structs.replace(captured.image, frameworks={"torch": "2.13.0"})
    other = dataclasses.replace(lab, captured=dataclasses.replace(captured, image=image))
    with pytest.raises(PlanError, match="Shifter makes no mount points"):
        other.plan("python", "x.py", topology=Topology(ranks_per_node=2), launcher="torchrun")


@pytest.mark.parametrize(
    ("engine", "command"),
    [
        ("sarus", "sarus load bareboat.tar bareboat:"),
        ("shifter", "shifterimg pull docker:REGISTRY/YOU/bareboat:"),
    ],
)
def test_an_image_that_the_site_has_not_is_refused_with_the_commands_that_bring_it(
    sited: Site, engine: str, command: str
) -> None:
    image = make_image()
    judged = registry.engine(engine).judge(sited, image)
    assert isinstance(judged, Refusal)
    assert command + "a" * 12 in judged.remedy
    assert image.digest[:19] in judged.remedy
    uncaptured = registry.engine(engine).judge(sited, make_image(digest=""))
    assert isinstance(uncaptured, Refusal)
    assert uncaptured.remedy == "bareboat image capture"


def test_an_image_that_is_still_being_pulled_is_not_there(sited: Site) -> None:
    image: Image = make_image(digest="sha256:0123456789ab" + "0" * 52)
    assert isinstance(registry.engine("shifter").judge(sited, image), Refusal)
    facts = sited.engine("shifter")
    assert facts is not None
    assert len(facts.settings) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tool_that_says_something_else_is_shown_with_what_it_says(
    captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    for name in (engine, "shifterimg"):
        executable(tmp_path / name, "#!/bin/sh\necho hello\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    facts = with_engine(captured.store, engine).engine(engine)
    assert facts is not None
    assert not facts.works
    assert "hello" in facts.detail


@pytest.mark.parametrize("engine", ENGINES)
def test_without_it_the_module_is_named(engine: str) -> None:
    judged = registry.engine(engine).judge(make_site(), make_image())
    assert judged == Refusal(f"{engine} is not installed", f"module load {engine}")
    assert not isinstance(judged, Enclosure)


def test_facts_of_untested_engines_are_json(sited: Site) -> None:
    assert json.loads(msgspec.json.encode(sited.engines))
