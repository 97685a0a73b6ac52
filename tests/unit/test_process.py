"""Which process runs: the job's command, and the image's ENTRYPOINT, CMD, WORKDIR, USER and ENV."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from builders import environment_of, make_image, make_job, make_rootfs, make_site

from bareboat.model import Decision, Image, Job, Mount, Plan, Process, Topology
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


def option(made: Plan, name: str) -> Any:
    words = made.command.argv
    return words[words.index(name) + 1]


def places(made: Plan) -> set[str]:
    """What is made in the image's tree beforehand."""
    return {mount.target for mount in made.mount_points}


def environment(made: Plan) -> dict[Any, Any]:
    return environment_of(made.command)


def decisions(made: Plan, subject: str) -> list[Decision]:
    return [each for each in made.decisions if each.subject == subject]


# Rows of the table in https://docs.docker.com/reference/dockerfile/ and what `docker run --entrypoint` does.
BOTH = SERVER
ONLY_ENTRYPOINT = Process(entrypoint=("/entry",))
ONLY_COMMAND = Process(command=("serve",))
SHELL_FORM = Process(entrypoint=("/bin/sh", "-c", "echo $HOME"), command=("/bin/sh", "-c", "ls"))


@pytest.mark.parametrize(
    ("process", "entrypoint", "command", "expected"),
    [
        (BOTH, None, (), ("/entry", "--say", "serve", "a b")),
        (ONLY_ENTRYPOINT, None, (), ("/entry",)),
        (ONLY_COMMAND, None, (), ("serve",)),
        (SHELL_FORM, None, (), ("/bin/sh", "-c", "echo $HOME", "/bin/sh", "-c", "ls")),
        (BOTH, None, ("x", ""), ("x", "")),
        (ONLY_COMMAND, None, ("x",), ("x",)),
        (BOTH, False, ("x",), ("x",)),
        (BOTH, True, ("x", "y"), ("/entry", "--say", "x", "y")),
        (ONLY_COMMAND, True, ("x",), ("x",)),
        (BOTH, True, (), ("/entry", "--say", "serve", "a b")),
        (BOTH, ("mine", "-v"), ("x",), ("mine", "-v", "x")),
        (BOTH, ("mine",), (), ("mine",)),
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
        (BOTH, False, "entrypoint = false leaves the image's ENTRYPOINT and CMD out"),
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


def test_what_was_put_before_or_left_out_is_told() -> None:
    (left_out,) = decisions(planned(a_job(command=("x",))), "process")
    assert left_out.reason == "the job's command runs as it is"
    assert [(each.choice, each.remedy) for each in left_out.rejected] == [
        ("the image's ENTRYPOINT /entry --say before it", "entrypoint = true")
    ]
    (before,) = decisions(planned(a_job(command=("x",), entrypoint=True)), "process")
    assert before.choice == "/entry --say x"
    assert "asked for: the image's ENTRYPOINT /entry --say" in before.reason
    (instead,) = decisions(planned(a_job(entrypoint=("mine",))), "process")
    assert "in place of ENTRYPOINT /entry --say" in instead.reason
    assert [each.choice for each in instead.rejected] == ["the image's CMD serve 'a b' after it"]
    (whole,) = decisions(planned(a_job()), "process")
    assert whole.reason == "the job names no command: the image's ENTRYPOINT /entry --say and CMD serve 'a b'"
    (nothing,) = decisions(planned(a_job(command=("x",), entrypoint=True), an_image(ONLY_COMMAND)), "process")
    assert "the image has no ENTRYPOINT" in nothing.reason
    assert decisions(planned(a_job(command=("x",)), an_image(ONLY_COMMAND)), "process") == []


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


@pytest.mark.parametrize(
    ("said", "folder"), [("/app", "/app"), ("", "/"), ("app", "/app"), ("/a/../b/", "/b"), ("//c", "/c")]
)
@pytest.mark.parametrize("overlay", [True, False])
def test_the_image_s_working_folder_is_entered_and_nothing_is_mounted(
    said: str, folder: str, overlay: bool
) -> None:
    made = planned(
        a_job(workdir=None), an_image(msgspec.structs.replace(SERVER, workdir=said)), overlay=overlay
    )
    assert option(made, "--chdir") == folder
    assert "/home/ada/digits" not in made.command.argv
    assert not [each for each in made.requirements if each.what == "the working directory"]
    (told,) = decisions(made, "working directory")
    assert told.choice == f"{folder}, the image's own"
    assert not {folder, "/home/ada/digits"} & places(made)


@pytest.mark.parametrize("writable", [True, False])
def test_a_working_folder_that_the_image_does_not_have_is_made(writable: bool) -> None:
    image = an_image(msgspec.structs.replace(SERVER, workdir_missing=True))
    made = planned(a_job(workdir=None, writable=writable), image)
    assert "/app" in places(made)
    assert (("--dir", "/app") in itertools.pairwise(made.command.argv)) == writable
    elsewhere = planned(a_job(writable=writable), image)
    assert "/app" not in places(elsewhere)
    assert "/app" not in elsewhere.command.argv


def test_an_image_s_working_folder_in_a_scratch_folder_is_put_back() -> None:
    made = planned(
        a_job(workdir=None),
        an_image(msgspec.structs.replace(SERVER, workdir="/home/ada/app", workdir_missing=True)),
        overlay=False,
    )
    at = made.command.argv.index("/home/ada/app")
    assert made.command.argv[at - 2] == "--ro-bind"
    assert str(made.command.argv[at - 1]).endswith("/home/ada/app")
    assert "/home/ada/app" in places(made)


def test_an_image_s_working_folder_may_be_mounted_over() -> None:
    mount = Mount(source="/data", target="/app", writable=True)
    made = planned(a_job(workdir=None, mounts=(mount,)))
    at = made.command.argv.index("/data")
    assert made.command.argv[at - 1 : at + 2] == ("--bind", "/data", "/app")
    assert option(made, "--chdir") == "/app"


def test_bare_metal_has_no_working_folder_of_an_image() -> None:
    with pytest.raises(PlanError) as caught:
        planned(a_job(workdir=None, command=("x",), engine="native"), make_image())
    assert "working directory" in caught.value.message
    assert caught.value.remedy == 'set workdir = "."'


def test_a_pulled_image_is_not_bare_metal_even_if_it_has_a_python() -> None:
    with pytest.raises(PlanError, match="not captured on this machine"):
        planned(a_job(command=("x",), engine="native"), an_image(python="/usr/bin/python3"))


# -- who, and with which variables -------------------------------------------------------------------


@pytest.mark.parametrize("user", ["root", "0", "1000", "1000:1000", "nobody", "4711:0"])
def test_a_user_that_the_image_names_is_told_and_not_followed(user: str) -> None:
    made = planned(a_job(), an_image(msgspec.structs.replace(SERVER, user=user)))
    (told,) = decisions(made, "user")
    assert told.choice == "ada (4711:100), home /home/ada"
    assert told.reason.startswith(f"the image asks for user {user}, but ")


def test_an_image_s_variables_lie_below_the_launcher_s_and_those_below_the_job_s() -> None:
    image = an_image(
        Process(command=("python", "t.py")),
        environment={"OMP_NUM_THREADS": "image", "GLOO_SOCKET_IFNAME": "image", "A": "image", "B": "image"},
        frameworks={"torch": "2.9"},
    )
    found = environment(
        planned(
            a_job(topology=Topology(ranks_per_node=2), environment={"GLOO_SOCKET_IFNAME": "job", "B": "job"}),
            image,
        )
    )
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["GLOO_SOCKET_IFNAME"] == "job"
    assert (found["A"], found["B"]) == ("image", "job")
    assert found["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def test_an_image_does_not_say_who_one_is_and_a_job_may() -> None:
    own = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "LANG": "it_IT.UTF-8"}
    made = planned(a_job(), an_image(environment=own))
    found = environment(made)
    assert (found["HOME"], found["USER"], found["LOGNAME"]) == ("/home/ada", "ada", "ada")
    assert found["LANG"] == "it_IT.UTF-8"
    (told,) = decisions(made, "user")
    assert "HOME=/root, USER=root, LOGNAME=root" in told.reason
    asked = environment(planned(a_job(environment={"HOME": "/mine"}), an_image(environment=own)))
    assert asked["HOME"] == "/mine"


# -- the job -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"entrypoint": ()}, {"entrypoint": ("",)}, {"entrypoint": ("a\0",)}])
def test_an_entrypoint_that_no_program_can_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        a_job(**wrong)
