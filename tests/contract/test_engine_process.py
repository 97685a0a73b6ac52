"""What every engine makes of the process that an image names: ENTRYPOINT, CMD, WORKDIR, USER and ENV."""

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from elves import AARCH64, make_elf
from engine_lab import Lab
from tools import completed_bytes, executable

from bareboat.model import Image, Mount, Process, Topology
from bareboat.model.sweep import Sweep
from bareboat_base.errors import PlanError, ProgramError

#: Prints its arguments, each between brackets.
SAYS = ("sh", "-c", 'printf "[%s]" "$@"', "entry")
ARM = make_elf(machine=AARCH64)
WHERE = ("python", "-c", "import os; print(os.getcwd(), sorted(os.listdir('.')))")


def an_image(lab: Lab, process: Process, **environment: str) -> Image:
    return msgspec.structs.replace(
        lab.image, process=process, environment={**lab.image.environment, **environment}
    )


@pytest.mark.one_in(5)
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
def test_entrypoint_and_cmd_follow_docker_s_rules(
    lab: Lab, command: tuple[str, ...], entrypoint: Any, expected: str
) -> None:
    image = an_image(lab, Process(entrypoint=SAYS, command=("cmd", "a b", "$x")))
    done = lab.run(*command, image=image, entrypoint=entrypoint)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, expected, b"")


def test_a_program_of_cmd_is_found_on_the_image_s_path(lab: Lab) -> None:
    folder = lab.workdir / "programs"
    folder.mkdir()
    executable(folder / "own-program", '#!/bin/sh\nprintf "%s" "$GREETING"\n')
    path = f"{folder}:{lab.image.environment['PATH']}"
    image = an_image(lab, Process(command=("own-program",)), PATH=path, GREETING="hello 'world'")
    done = lab.run(image=image)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello 'world'", b"")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("folder", ["/usr/bin", "/made/by/nobody", "/tmp/app"])
def test_the_image_s_workdir_has_no_files_of_the_host(lab: Lab, folder: str) -> None:
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


def test_a_directory_mounted_at_the_image_s_workdir_is_the_working_directory(lab: Lab) -> None:
    if not lab.contains:
        return
    mount = Mount(source=str(lab.workdir), target="/made/for/mounts", writable=True)
    process = Process(command=("sh", "-c", "pwd > where"), workdir=mount.target, workdir_missing=True)
    image = an_image(lab, process)
    done = lab.run(image=image, workdir=None, mounts=(mount,))
    assert done.returncode == 0, done.stderr.decode()
    assert (lab.workdir / "where").read_text() == "/made/for/mounts\n"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("user", ["0", "root", "1234:1234", "nobody"])
def test_the_user_is_the_caller_whatever_the_image_sets(lab: Lab, user: str) -> None:
    image = an_image(lab, Process(user=user), HOME="/root", USER="root", LOGNAME="root")
    said = lab.says(
        "import os, pwd; print(os.getuid(), os.getgid(), pwd.getpwuid(os.getuid()).pw_name,"
        " os.environ['USER'], os.environ['LOGNAME'], os.environ['HOME'], os.path.expanduser('~'))",
        image=image,
    )
    me = lab.site
    assert said == (f"{os.getuid()} {os.getgid()} {me.user} {me.user} {me.user} {me.home} {me.home}")


def test_the_job_s_environment_overrides_the_image_s(lab: Lab) -> None:
    image = an_image(lab, Process(), A="image", B="image", TZ="Asia/Tokyo", LANG="C")
    said = lab.says(
        "import os; print(*(os.environ[name] for name in ('A', 'B', 'TZ', 'LANG')))",
        image=image,
        environment={"B": "job"},
    )
    assert said == "image job Asia/Tokyo C"


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("word", "status", "says"),
    [
        ("pyhton", 127, "is not on the PATH of"),
        ("/usr/bin/no-such-program", 127, "there is no file /usr/bin/no-such-program"),
        ("./no-such-program", 127, "there is no file"),
        ("./text", 126, "is not executable"),
        ("./by-nobody", 127, "is a script for /opt/no/interpreter, which is not in"),
        ("./arm", 126, "is built for aarch64, and the job runs on"),
        (".", 126, "is a directory"),
        ("./folder", 126, "is a directory"),
    ],
)
def test_a_program_that_cannot_be_executed_is_refused_in_the_plan(
    lab: Lab, word: str, status: int, says: str
) -> None:
    (lab.workdir / "folder").mkdir()
    for name, content in (("text", b"x"), ("by-nobody", b"#!/opt/no/interpreter\n"), ("arm", ARM)):
        (lab.workdir / name).write_bytes(content)
        (lab.workdir / name).chmod(0o644 if name == "text" else 0o755)
    with pytest.raises(ProgramError) as caught:
        lab.script(word)
    assert f'"{word}"' in caught.value.message
    assert says in caught.value.message
    assert caught.value.remedy
    assert caught.value.status == status


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("mode", "code", "says"), [(None, 127, "is missing"), (0o644, 126, "is not executable")]
)
def test_a_program_that_changes_before_the_start_is_named(
    lab: Lab, mode: int | None, code: int, says: str, ranks: int
) -> None:
    program = lab.workdir / "program"
    executable(program, "#!/bin/sh\nexit 0\n")
    script = lab.script(
        "./program",
        topology=Topology(ranks_per_node=ranks),
        launcher="ranks" if ranks > 1 else None,
    )
    if mode is None:
        program.unlink()
    else:
        program.chmod(mode)
    done = subprocess.run(["bash", str(script)], capture_output=True, check=False)
    assert done.returncode == code
    said = done.stderr.decode()
    assert f'"./program" {says}' in said
    assert str(program) in said
    assert "try: " in said


@pytest.mark.parametrize(("word", "code"), [("no-such-program", 127), ("./text", 126)])
def test_a_program_that_only_the_start_knows_ends_with_the_code_of_a_shell(
    lab: Lab, tmp_path: Path, word: str, code: int
) -> None:
    (lab.workdir / "text").write_text("x")
    (tmp_path / "points" / "0").mkdir(parents=True)
    (tmp_path / "table").write_text(f"BAREBOAT_SWEEP_PROGRAM\n{word}\n")
    script = lab.script("{program}", sweep=Sweep(names=("program",), points=((word,),)))
    done = completed_bytes(
        ["bash", str(script), "sweep.0"],
        env={**os.environ, "BAREBOAT_CONTROL": str(tmp_path / "points" / "0")},
    )
    assert done.returncode == code, done.stderr.decode()
    assert Path(word).name in done.stderr.decode()
