"""What a command's first word leads to in a container, and why it cannot be executed."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from builders import make_image, make_job, make_site
from elves import fill, make_elf

from bareboat.program_analysis import executable
from bareboat.program_analysis.command import Fault, Program, Sight, resolve
from bareboat_images.store import Store

LOADER = "/lib64/ld-linux-x86-64.so.2"
PATH = "/usr/local/bin:/usr/bin:/bin"
SHELL = make_elf(interpreter=LOADER, needed=["libc.so.6"])


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return fill(
        tmp_path / "image",
        {
            "bin": "-> usr/bin",
            "lib64/ld-linux-x86-64.so.2": make_elf(),
            "usr/bin/dash": SHELL,
            "usr/bin/sh": "-> /etc/alternatives/sh",
            "etc/alternatives/sh": "-> ../../usr/bin/dash",
            "usr/bin/env": SHELL,
            "usr/bin/python3": SHELL,
            "usr/bin/static": make_elf(),
            "usr/bin/musl": make_elf(interpreter="/lib/ld-musl-x86_64.so.1"),
            "usr/bin/launch": b"#!/bin/sh -e\nexec true\n",
            "usr/bin/by-env": b"#!/usr/bin/env python3\n",
            "usr/bin/by-env-python": b"#!/usr/bin/env python\n",
            "usr/bin/bare": b"exit 0\n",
            "usr/bin/data": "no program",
            "usr/bin/folder": None,
            "opt/tool": b"#!opt/rel\n",
            "usr/bin/loop": "-> loop",
        },
    )


def judge(word: str, sight: Sight, *, path: str = PATH, workdir: str = "/") -> Program | Fault | None:
    return resolve(word, sight, path=path, workdir=workdir, machine="x86_64")


def test_a_file_of_no_known_format_is_left_to_the_shell(image: Path) -> None:
    found = judge("bare", Sight([image]))
    assert isinstance(found, Program)
    assert (found.machine, found.script) == (None, ())


@pytest.mark.parametrize(
    ("word", "code", "reason", "remedy"),
    [
        ("python", 127, "is not on the PATH of debian", "did you mean python3"),
        ("python3.12", 127, "is not on the PATH of debian", "did you mean python3"),
        ("loop", 127, "is not on the PATH of debian", ""),
        ("data", 126, "is not executable in debian: /usr/bin/data", "chmod +x"),
        ("folder", 126, "is a directory: /usr/bin/folder", ""),
        ("/usr/bin", 126, "is a directory: /usr/bin", ""),
        (
            "musl",
            127,
            "requires the program loader /lib/ld-musl-x86_64.so.1, which is not in debian",
            "static",
        ),
        ("by-env-python", 127, "is a script for python, which is not in debian", 'command = ["python3"'),
    ],
)
def test_what_cannot_be_executed_is_named_with_its_remedy(
    image: Path, word: str, code: int, reason: str, remedy: str
) -> None:
    found = judge(word, Sight([image], name="debian"))
    assert isinstance(found, Fault)
    assert found.code == code
    assert reason in found.reason
    assert remedy in found.remedy


def test_upper_layers_hide_lower_ones(image: Path, tmp_path: Path) -> None:
    upper = fill(tmp_path / "upper", {"usr/bin/.wh.python3": "", "usr/bin/new": SHELL})
    sight = Sight([image, upper])
    assert isinstance(judge("python3", sight), Fault)
    assert isinstance(judge("new", sight), Program)


def test_a_later_folder_of_path_is_taken_where_an_earlier_one_has_no_program(tmp_path: Path) -> None:
    tree = fill(tmp_path / "t", {"a/x": "text", "b/x": make_elf()})
    found = judge("x", Sight([tree]), path="/a:/b")
    assert isinstance(found, Program)
    assert found.path == "/b/x"


def test_mounts_show_the_host_and_unknown_ones_decide_nothing(image: Path, tmp_path: Path) -> None:
    host = fill(
        tmp_path / "host",
        {
            "train.py": "print()\n",
            "run.sh": b"#!/bin/sh\n",
            "env/bin/python": "the host's",
            "out": "-> /usr/bin/dash",
            "perl.sh": b"#!/opt/perl/bin/perl\n",
        },
    )
    sight = Sight([image], mounts={"/work": str(host), "/tmp": None}, kept=("/work/env/bin",))
    run = judge("./run.sh", sight, workdir="/work")
    assert isinstance(run, Program)
    assert run.mounted
    assert run.place == str(host / "run.sh")
    assert run.interpreter is not None
    assert run.interpreter.path == "/usr/bin/dash"
    out = judge("/work/out", sight)
    assert isinstance(out, Program)
    assert out.path == "/usr/bin/dash"
    assert judge("/tmp/x", sight) is None
    assert judge("x", sight, path="/tmp/bin:/usr/bin") is None
    assert isinstance(judge("/work/env/bin/python", sight), Fault)  # the image has none there
    missing = judge("./rum.sh", sight, workdir="/work")
    assert isinstance(missing, Fault)
    assert missing.remedy == "did you mean ./run.sh?"
    beside = judge("run.sh", sight, workdir="/work")
    assert isinstance(beside, Fault)
    assert beside.remedy == 'command = ["./run.sh"], or -- ./run.sh'
    shut = judge("./train.py", sight, workdir="/work")
    assert isinstance(shut, Fault)
    assert shut.code == 126


@pytest.mark.parametrize("word", ["sh", "true", "no-such-program-here", "/etc/passwd", "/bin", "python3"])
def test_bare_metal_is_judged_as_a_shell_judges_it(word: str) -> None:
    """The exit code of env(1), which executes it, is the reference."""
    code = subprocess.run(["env", word, "-c", ":"], capture_output=True, check=False).returncode
    found = resolve(
        word, Sight([], mounts={"/": "/"}, name="this machine"), path=PATH, workdir="/", machine="x86_64"
    )
    assert found is not None
    assert (found.code if isinstance(found, Fault) else 0) == (code if code in (126, 127) else 0)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("python3", "../odd/train.py"), "../odd/train.py"),
        (("/usr/bin/python3", "-u", "{odd}/train.py", "x"), "{odd}/train.py"),
        (("python3", "link.py"), "link.py"),
        (("torchrun", "--nproc-per-node", "2", "../odd/train.py"), "../odd/train.py"),
        (("bash", "../odd/run.sh"), "../odd/run.sh"),
        (("python3", "train.py", "../odd/train.py"), None),
        (("python3", "-m", "json.tool", "../odd/train.py"), None),
        (("python3", "/data/train.py"), None),
        (("python3", "{odd}/mounted/train.py"), None),
        (("cat", "../odd/train.py"), None),
        (("bash", "tool.sh"), None),
        (("bash", "train.py"), None),
        (("env", "-C", "/data", "python3", "run.sh"), None),
    ],
)
def test_a_script_that_the_container_does_not_show_is_refused(
    words: tuple[str, ...], refused: str | None, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, odd = tmp_path / "work", tmp_path / "odd"
    for path in (work / "train.py", odd / "train.py", odd / "run.sh", odd / "mounted/train.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (work / "link.py").symlink_to(odd / "train.py")
    fill(image, {f"usr/bin/{name}": SHELL for name in ("torchrun", "bash", "cat", "env", "tool.sh")})
    shown = {str(work): str(work), "/data": str(odd), f"{odd}/mounted": f"{odd}/mounted"}
    monkeypatch.setattr(executable, "sight_of", lambda *_: Sight([image], mounts=shown))
    monkeypatch.setattr(executable, "STARTERS", ())
    command = tuple(word.format(odd=odd) for word in words)
    job = make_job(command=command, workdir=str(work), environment={"PATH": "/usr/bin"})
    found = executable.look(Store(tmp_path / "store"), make_image(), make_site(), job)
    assert found is not None
    assert (found.code != 0, found.word) == (refused is not None, (refused or words[0]).format(odd=odd))
    if refused is not None:
        assert f'mounts = ["{odd}"]' in found.remedy
        monkeypatch.setattr(executable, "sight_of", lambda *_: Sight([], mounts={"/": "/"}))
        job = msgspec.structs.replace(job, engine="native")
        native = executable.look(Store(tmp_path / "store"), make_image(), make_site(), job)
        assert native is None or native.word == words[0]


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        ("python3 -u missing", "missing"),
        ("env A=1 python3 missing.py", "missing.py"),
        ("bash -euo pipefail missing.sh", "missing.sh"),
        ("python3 /data/missing.py", "/data/missing.py"),
        ("bash trian.sh", "trian.sh"),
    ],
)
def test_a_script_that_is_nowhere_is_refused(
    words: str, absent: str, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.sh").touch()
    fill(image, {f"usr/bin/{name}": SHELL for name in ("bash", "env")})
    sight = Sight([image], mounts={str(work): str(work), "/data": str(work)}, name="the image")
    monkeypatch.setattr(executable, "sight_of", lambda *_: sight)
    job = make_job(command=tuple(words.split()), workdir=str(work), environment={"PATH": "/usr/bin"})
    found = executable.look(Store(tmp_path / "store"), make_image(), make_site(), job)
    assert found is not None
    assert (found.word, found.code) == (absent, 127)
    assert ("did you mean train.sh?" in found.remedy) is (absent == "trian.sh")
    assert found.place == str(work / os.path.basename(absent))  # an earlier job may write it
