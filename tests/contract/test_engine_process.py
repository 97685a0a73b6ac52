"""What every engine makes of the process that an image names: ENTRYPOINT, CMD, WORKDIR, USER and ENV."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from engine_lab import Lab

from fairlead.errors import PlanError
from fairlead.model import Image, Mount, Process

#: Prints its arguments, each between brackets.
SAYS = ("sh", "-c", 'printf "[%s]" "$@"', "entry")
WHERE = ("python", "-c", "import os; print(os.getcwd(), sorted(os.listdir('.')))")


def an_image(lab: Lab, process: Process, **environment: str) -> Image:
    return msgspec.structs.replace(
        lab.image, process=process, environment={**lab.image.environment, **environment}
    )


@pytest.mark.parametrize(
    ("command", "entrypoint", "expected"),
    [
        ((), None, "[cmd][a b][$x]"),
        (("x", ""), True, "[x][]"),
        (("printf", "<%s>", "x"), None, "<x>"),
        (("printf", "<%s>", "x"), False, "<x>"),
        (("-x", "a=b"), ("printf", "{%s}", "--"), "{--}{-x}{a=b}"),
        ((), ("printf", "{%s}", "only"), "{only}"),
    ],
)
def test_entrypoint_and_cmd_run_by_docker_s_rules(
    lab: Lab, command: tuple[str, ...], entrypoint: Any, expected: str
) -> None:
    image = an_image(lab, Process(entrypoint=SAYS, command=("cmd", "a b", "$x")))
    done = lab.run(*command, image=image, entrypoint=entrypoint)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, expected, b"")


def test_a_program_of_cmd_is_found_on_the_path_of_env(lab: Lab) -> None:
    folder = lab.workdir / "programs"
    folder.mkdir()
    (folder / "own-program").write_text('#!/bin/sh\nprintf "%s" "$GREETING"\n')
    (folder / "own-program").chmod(0o755)
    path = f"{folder}:{lab.image.environment['PATH']}"
    image = an_image(lab, Process(command=("own-program",)), PATH=path, GREETING="hello 'world'")
    done = lab.run(image=image)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello 'world'", b"")


@pytest.mark.parametrize("folder", ["/usr/bin", "/made/by/nobody", "/tmp/app"])
def test_workdir_is_the_image_s_with_nothing_of_the_host_there(lab: Lab, folder: str) -> None:
    """Docker makes a WORKDIR that the image does not have."""
    (lab.workdir / "of-the-host").write_text("x")
    process = Process(command=WHERE, workdir=folder, workdir_missing=folder != "/usr/bin")
    image = an_image(lab, process)
    if not lab.contains:
        with pytest.raises(PlanError, match="on bare metal"):
            lab.script(image=image, workdir=None)
        return
    done = lab.run(image=image, workdir=None)
    assert done.returncode == 0, done.stderr.decode()
    where, _, listed = done.stdout.decode().partition(" ")
    assert where == folder
    assert ("'sh'" in listed) if folder == "/usr/bin" else (listed == "[]\n")
    seen = lab.says(
        "import os, sys; print(os.path.exists(sys.argv[1]))", str(lab.workdir), image=image, workdir=None
    )
    assert seen == "False", "the job's folder is mounted"


def test_a_folder_mounted_at_the_image_s_workdir_is_worked_in(lab: Lab) -> None:
    if not lab.contains:
        return
    mount = Mount(source=str(lab.workdir), target="/made/for/mounts", writable=True)
    process = Process(command=("sh", "-c", "pwd > where"), workdir=mount.target, workdir_missing=True)
    image = an_image(lab, process)
    done = lab.run(image=image, workdir=None, mounts=(mount,))
    assert done.returncode == 0, done.stderr.decode()
    assert (lab.workdir / "where").read_text() == "/made/for/mounts\n"


@pytest.mark.parametrize("user", ["0", "root", "1234:1234", "nobody"])
def test_user_is_who_starts_it_whatever_the_image_says(lab: Lab, user: str) -> None:
    image = an_image(lab, Process(user=user), HOME="/root", USER="root", LOGNAME="root")
    said = lab.says(
        "import os, pwd; print(os.getuid(), os.getgid(), pwd.getpwuid(os.getuid()).pw_name,"
        " os.environ['USER'], os.environ['LOGNAME'], os.environ['HOME'], os.path.expanduser('~'))",
        image=image,
    )
    me = lab.site
    assert said == (f"{os.getuid()} {os.getgid()} {me.user} {me.user} {me.user} {me.home} {me.home}")


def test_env_is_the_image_s_below_the_job_s(lab: Lab) -> None:
    image = an_image(lab, Process(), A="image", B="image", TZ="Asia/Tokyo", LANG="C")
    said = lab.says(
        "import os; print(*(os.environ[name] for name in ('A', 'B', 'TZ', 'LANG')))",
        image=image,
        environment={"B": "job"},
    )
    assert said == "image job Asia/Tokyo C"
