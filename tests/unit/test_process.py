"""Which process runs: the job's command, and the image's ENTRYPOINT, CMD, WORKDIR, USER and ENV."""

from typing import Any

import msgspec
import pytest
from builders import environment_of, make_image, make_job, make_rootfs, make_site

from bareboat.model import Image, Job, Plan, Process, Topology
from bareboat.plan import plan
from bareboat_base.errors import PlanError, UsageError

SERVER = Process(entrypoint=("/entry", "--say"), command=("serve", "a b"), workdir="/app")


def an_image(process: Process = SERVER, **changes: Any) -> Image:
    facts = {"process": process, "reference": "docker.io/library/server:1", "prefixes": (), "python": None}
    return make_image(**(facts | changes))


def a_job(**changes: Any) -> Job:
    return make_job(**({"command": (), "topology": Topology(), "environment": {}} | changes))


def planned(job: Job, image: Image | None = None, *, overlay: bool = True) -> Plan:
    image, site = image or an_image(), make_site()
    engines = tuple(msgspec.structs.replace(each, overlay=overlay) for each in site.engines)
    return plan(job, image, make_rootfs(image), msgspec.structs.replace(site, engines=engines))


def argv(made: Plan) -> tuple[Any, ...]:
    words = made.command.argv
    return words[words.index("--") + 1 :]


def environment(made: Plan) -> dict[Any, Any]:
    return environment_of(made.command)


# Rows of the table in https://docs.docker.com/reference/dockerfile/ and what `docker run --entrypoint` does.
BOTH = SERVER
ONLY_ENTRYPOINT = Process(entrypoint=("/entry",))
ONLY_COMMAND = Process(command=("serve",))
SHELL_FORM = Process(entrypoint=("/bin/sh", "-c", "echo $HOME"), command=("/bin/sh", "-c", "ls"))


@pytest.mark.parametrize(
    ("process", "entrypoint", "command", "expected"),
    [
        (ONLY_ENTRYPOINT, None, (), ("/entry",)),
        (ONLY_COMMAND, None, (), ("serve",)),
        (SHELL_FORM, None, (), ("/bin/sh", "-c", "echo $HOME", "/bin/sh", "-c", "ls")),
        (ONLY_COMMAND, None, ("x",), ("x",)),
        (ONLY_COMMAND, True, ("x",), ("x",)),
        (BOTH, True, (), ("/entry", "--say", "serve", "a b")),
        (Process(), ("mine",), (), ("mine",)),
    ],
)
def test_entrypoint_and_command_are_put_together_as_docker_does(
    process: Process, entrypoint: bool | tuple[str, ...] | None, command: tuple[str, ...], expected: Any
) -> None:
    made = planned(a_job(entrypoint=entrypoint, command=command), an_image(process))
    assert argv(made) == expected
    assert made.job.command == command, "the job is kept as it was written"


@pytest.mark.parametrize(
    ("process", "entrypoint", "message"),
    [
        (Process(), None, "docker.io/library/server:1 has neither CMD nor ENTRYPOINT"),
        (Process(), True, "has neither CMD nor ENTRYPOINT"),
        (Process(command=("", "x")), None, "the first word of what the image runs is empty"),
    ],
)
def test_a_job_for_which_nobody_names_a_command_is_refused(
    process: Process, entrypoint: bool | None, message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        planned(a_job(entrypoint=entrypoint), an_image(process))
    assert message in caught.value.message
    assert "command" in caught.value.remedy


def test_a_job_without_an_image_needs_a_command() -> None:
    with pytest.raises(PlanError, match=r"(?m)^the job has no command$"):
        plan(a_job(engine="native"), None, None, make_site())


def test_launchers_judge_the_command_that_will_run() -> None:
    image = an_image(Process(command=("python", "/app/train.py")), frameworks={"torch": "2.9"})
    made = planned(a_job(topology=Topology(ranks_per_node=2)), image)
    assert made.launcher == "torchrun"
    assert argv(made)[-2:] == ("python", "/app/train.py")
    with pytest.raises(PlanError, match=r"no launcher can start '/entry --say serve a b'"):
        planned(
            a_job(topology=Topology(ranks_per_node=2), launcher="torchrun"),
            an_image(frameworks={"torch": "2.9"}),
        )


# -- the working folder ------------------------------------------------------------------------------


def test_bare_metal_has_no_working_folder_of_an_image() -> None:
    with pytest.raises(PlanError) as caught:
        planned(a_job(workdir=None, command=("x",), engine="native"), make_image())
    assert "working directory" in caught.value.message


def test_a_pulled_image_is_not_bare_metal_even_if_it_has_a_python() -> None:
    with pytest.raises(PlanError, match="not captured on this machine"):
        planned(a_job(command=("x",), engine="native"), an_image(python="/usr/bin/python3"))


# -- the job -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"entrypoint": ()}, {"entrypoint": ("",)}, {"entrypoint": ("a\0",)}])
def test_an_entrypoint_that_no_program_can_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        a_job(**wrong)
