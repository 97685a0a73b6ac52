"""udocker's mode F1: what it refuses beforehand, and the starter against the real libfakechroot."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site
from tools import tool

from bareboat import registry
from bareboat.engines import fakechroot, proot_start
from bareboat.engines.fakechroot_start import _MOST_EXCLUDED
from bareboat.model import EngineFacts, Mount, Topology
from bareboat.plan import plan
from bareboat.probe.host import RealHost
from bareboat_base.errors import PlanError

FACTS = EngineFacts(
    name="udocker", path="/opt/libfakechroot.so", version="", origin="udocker's engine 1.2.11", works=True,
    modes=("F1",),
)  # fmt: skip
PROOT = EngineFacts(
    name="udocker", path="/opt/proot", version="5.4.0", origin="on PATH", works=True, modes=("P1", "P2")
)
#: Of the loader's search, as the kernel's exec names it.
LOADER = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}

pytestmark = pytest.mark.skipif(
    proot_start.landlock_abi() < proot_start.OLDEST_LANDLOCK, reason="no Landlock here"
)


# -- what is known beforehand ------------------------------------------------------------------------


def make_plan(engine: str | None = "udocker:F1", mounts: tuple[Mount, ...] = (), **changes: object) -> str:
    image = make_image(**changes)
    job = make_job(mounts=mounts, topology=Topology(), engine=engine)
    return plan(job, image, make_rootfs(image), make_site(engines=(FACTS, PROOT))).engine


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"glibc": None}, "the image has no glibc"),
        ({"glibc": "2.36"}, "the image has glibc 2.36, this machine 2.34"),
    ],
)
def test_an_image_that_the_library_cannot_be_loaded_in_is_refused(
    changes: dict[str, str | None], says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        make_plan(**changes)
    assert make_plan(engine="udocker", **changes) == "udocker:P1"


@pytest.mark.parametrize(
    ("mounts", "says"),
    [
        ((Mount(source="/data/a:b", target="/data"),), "a colon"),
        ((Mount(source="/usr/lib/nvidia", target="/drivers"),), "the image's /usr would be the host's"),
        (
            (Mount(source="/home/ada/digits", target="/home/ada/digits"),
             Mount(source="/data", target="/home/ada/digits/data")),
            "/home/ada/digits/data cannot be shown in /home/ada/digits",
        ),
        (
            (Mount(source="/data/raw", target="/raw"), Mount(source="/data", target="/data", writable=True)),
            "cannot be read-only: /data/raw lies in /data",
        ),
        ((Mount(source="/scratch", target="/scratch", writable=True),), "must not lie in a writable mount"),
    ],
)  # fmt: skip
def test_a_mount_that_a_link_cannot_stand_for_is_refused(mounts: tuple[Mount, ...], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        make_plan(mounts=mounts)


def test_a_job_that_needs_what_it_cannot_do_goes_to_the_next_mode_and_the_plan_says_why() -> None:
    assert make_plan(engine=None) == "udocker:F1"
    image = make_image()
    mounts = (Mount(source="/data", target="/home/ada/digits/data"),)
    made = plan(
        make_job(mounts=mounts, topology=Topology()),
        image,
        make_rootfs(image),
        make_site(engines=(FACTS, PROOT)),
    )
    assert (made.engine, made.relinked, made.needs_flat) == ("udocker:P1", False, True)
    (engine,) = [each for each in made.decisions if each.subject == "engine"]
    reasons = {each.choice: each.reason for each in engine.rejected}
    assert "cannot be shown in /home/ada/digits" in reasons["udocker:F1"]
    assert reasons["udocker:P2"] == "it costs as much as udocker:P1, which comes first"


def test_the_tree_is_the_relinked_one() -> None:
    image = make_image()
    rootfs = make_rootfs(image)
    job = make_job(topology=Topology(), engine="udocker:F1")
    made = plan(job, image, rootfs, make_site(engines=(FACTS,)))
    assert made.relinked
    assert rootfs.relinked in made.command.argv
    assert rootfs.flat not in made.command.argv
    assert made.requirements[0].path == rootfs.relinked


def test_a_mode_that_is_none_is_answered_with_those_that_are_and_what_they_say_here() -> None:
    with pytest.raises(PlanError, match="unknown engine udocker:R1") as caught:
        make_plan(engine="udocker:R1")
    assert caught.value.context.splitlines() == [
        "udocker:S1: Apptainer or Singularity is not installed",
        "udocker:F1: works here",
        "udocker:P1: works here",
        "udocker:P2: works here",
    ]
    assert caught.value.remedy.startswith("--engine udocker:F1; or: ")
    with pytest.raises(PlanError, match="the engine native has no mode 'P1': it has no modes"):
        make_plan(engine="native:P1")


def test_a_library_that_does_nothing_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """libc's own libm, say, which is no libfakechroot: what runs sees the host, and is denied it."""
    for name in ("lib", "scratch"):
        (tmp_path / name).mkdir()
    machine = os.uname().machine
    libm = next(Path("/usr").glob(f"lib*/{machine}-linux-gnu/libm.so.6"), Path("/usr/lib64/libm.so.6"))
    if not libm.exists():
        pytest.skip("libm.so.6 is not where it was looked for")
    shutil.copy(libm, tmp_path / "lib" / f"libfakechroot-{machine}.so")
    monkeypatch.setenv("UDOCKER_BIN", str(tmp_path / "lib"))
    monkeypatch.setenv("UDOCKER_LIB", str(tmp_path / "lib"))

    class Host(RealHost):
        def which(self, name: str) -> str | None:
            hidden = ("proot", "udocker", "fakechroot", "apptainer", "singularity")
            return None if name in hidden else super().which(name)

    (facts,) = registry.engine("udocker").probe(Host(tmp_path / "scratch"))
    assert (facts.works, facts.modes) == (False, ())
    assert "F1" in facts.faults


# -- the starter -------------------------------------------------------------------------------------


@pytest.fixture
def library() -> str:
    path = f"/usr/lib/{os.uname().machine}-linux-gnu/fakechroot/libfakechroot.so"
    if not os.path.exists(path):
        pytest.skip("libfakechroot is not installed")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with a few of the host's programs and their libraries."""
    folder = tmp_path / "root"
    for name in ("bin", "usr/bin", "etc", "deep/er"):
        (folder / name).mkdir(parents=True)
    for name in ("sh", "env", "cat", "sleep", "ls", "readlink", "mv"):
        source = os.path.realpath(tool(name))
        shutil.copy(source, folder / "bin" / name)
        said = subprocess.run(["ldd", source], capture_output=True, text=True, check=True).stdout
        for word in said.split():
            if word.startswith("/") and not (folder / word[1:]).exists():
                (folder / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, folder / word[1:])
    (folder / "etc/seen").write_text("inside\n")
    (folder / "deep/er/script").write_text("#!/bin/sh -e\necho $0 $*\n")
    (folder / "deep/er/script").chmod(0o755)
    return folder


Start = Callable[..., "subprocess.CompletedProcess[str]"]


def words_of(library: str, root: Path, *words: str) -> list[str]:
    return [
        sys.executable, "-I", "-S", "-c", fakechroot._STARTER, "--library", library, "--root", str(root),
        "--bind", "/proc", "/proc", "--bind", "/dev", "/dev", "--env", "PATH=/bin", *words,
    ]  # fmt: skip


@pytest.fixture
def start(library: str, root: Path, tmp_path: Path) -> Start:
    (tmp_path / "tmp").mkdir()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words_of(library, root, *words),
            env={"TMPDIR": str(tmp_path / "tmp")},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run


def test_the_tree_is_kept_and_mounts_are_seen(start: Start, root: Path, tmp_path: Path) -> None:
    for name in ("ro/inner", "rw/a", "rw/b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "rw/a/x").write_text("x")
    (tmp_path / "ro/x").write_text("y\n")
    done = start(
        "--scratch", "/home/ada", "--ro", str(tmp_path / "ro"), "/home/ada/deep/ro",
        "--bind", str(tmp_path / "rw"), "/data/rw", "--",
        "sh", "-c", "echo a >/etc/seen; echo b >/new; echo c >/home/ada/deep/ro/c; cat /home/ada/deep/ro/x; "
        "mv /data/rw/a/x /data/rw/b/ && echo d >/home/ada/d && cat /home/ada/d /etc/seen",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "y\nd\ninside\n"), done.stderr
    assert done.stderr.count("Permission denied") == 3
    assert (root / "etc/seen").read_text() == "inside\n"
    assert os.listdir(tmp_path / "rw/b") == ["x"]
    assert os.listdir(tmp_path / "ro") in (["inner", "x"], ["x", "inner"])
    assert os.listdir(tmp_path / "tmp") == [], "nothing is left behind"


def test_paths_are_resolved_through_the_links_of_the_command_s_root(
    start: Start, root: Path, tmp_path: Path
) -> None:
    (root / "etc/alias").symlink_to("seen")
    (root / "deep/link").symlink_to("../etc/alias")
    (tmp_path / "ro").mkdir()
    (tmp_path / "ro/x").write_text("x\n")
    done = start(
        "--ro", str(tmp_path / "ro"), "/etc/mounted", "--",
        "sh", "-c", "readlink -f /deep/link /etc/mounted/x; cat $(readlink -f /deep/link /etc/mounted/x)",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{root}/etc/seen", f"{tmp_path}/ro/x", "inside", "x"]


def test_scripts_keep_their_arguments(start: Start) -> None:
    done = start("--", "sh", "-c", "/deep/er/script a 'b c'; exec /deep/er/script")
    assert (done.returncode, done.stdout) == (0, "/deep/er/script a b c\n/deep/er/script\n"), done.stderr
    assert start("--", "/deep/er/script", "x").stdout == "/deep/er/script x\n"
    assert start("--cwd", "/deep", "--", "er/script", "x").stdout == "er/script x\n"


def test_a_static_program_is_refused_and_started_by_another_is_denied_the_host_s_files(
    start: Start, root: Path, tmp_path: Path
) -> None:
    shutil.copy(tool("busybox"), root / "bin" / "busybox")
    done = start("--", "busybox", "cat", "/etc/seen")
    assert done.returncode == 126
    assert "busybox is a static program: fakechroot cannot keep it in the image" in done.stderr
    (tmp_path / "secret").write_text("of the host\n")
    done = start("--", "sh", "-c", f"busybox cat {tmp_path}/secret; busybox cat /etc/passwd")
    assert (done.returncode, done.stdout) == (1, ""), "it names files by itself"
    assert done.stderr.count("Permission denied") == 2


def test_the_exit_code_is_the_command_s_and_nothing_outlives_the_grace(start: Start) -> None:
    assert start("--", "sh", "-c", "exit 7").returncode == 7
    assert start("--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = start("--", "nothing-here")
    assert (missing.returncode, missing.stderr) == (127, "bareboat: nothing-here: not found\n")
    assert start("--", "/etc/seen").returncode == 126
    began = time.monotonic()
    assert start("--", "sh", "-c", "sleep 61 & exit 3").returncode == 3
    assert time.monotonic() - began < 30


def test_the_command_sees_its_own_variables_and_those_that_the_limit_names(start: Start) -> None:
    done = start("--env", "MINE=a b", "--env", "LD_LIBRARY_PATH=/no/where:/bin", "--", "env", "-0")
    seen = dict(word.split("=", 1) for word in done.stdout.split("\0") if word)
    limit = fakechroot.LIMITS["test_the_environment_is_exactly_the_documented_one"]
    named = set(limit.partition("sees: ")[2].split(", "))
    assert seen.keys() == {"MINE", "PATH", *named}
    assert seen["MINE"] == "a b"
    assert seen["LD_LIBRARY_PATH"].split(":")[0].endswith("/root/bin"), "the image's, by its place"


def test_a_killed_starter_takes_the_command_along(library: str, root: Path) -> None:
    run = subprocess.Popen(
        words_of(library, root, "--", "sh", "-c", "cat /etc/seen; exec sleep 61"), stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    assert run.stdout.readline() == b"inside\n"
    run.send_signal(signal.SIGKILL)
    run.wait(timeout=20)
    assert run.stdout.read() == b"", "nobody holds the pipe any more"
    run.stdout.close()


def test_what_cannot_be_kept_apart_is_refused(start: Start, tmp_path: Path) -> None:
    words = []
    for number in range(_MOST_EXCLUDED):
        (tmp_path / f"m{number}").mkdir()
        words += ["--ro", str(tmp_path / f"m{number}"), f"/m/{number}"]
    done = start(*words, "--", "cat", "/etc/seen")
    assert (done.returncode, done.stdout) == (3, "")
    assert "there are too many mounts" in done.stderr
