"""udocker's PRoot: the unsound one is found out, and the starter keeps what PRoot alone does not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site
from tools import completed, tool
from watch import wait_until

from bareboat import registry
from bareboat.engines import proot_start, udocker
from bareboat.model import EngineFacts, Mount, Topology
from bareboat.plan import plan
from bareboat.probe.host import RealHost
from bareboat_base.errors import PlanError

#: Takes PRoot's options and runs the command on the host, as a PRoot does whose translation is broken.
UNSOUND = b"""\
#!/bin/sh
case $1 in --version) echo 'proot 5.4.0'; exit;; esac
while :; do case $1 in -*) shift 2;; *) break;; esac; done
exec "$@"
"""
#: Works in mode P2 alone. The real one follows in the file: its loaders are looked for there.
P2_ONLY = b"""\
#!/bin/sh
[ -n "${PROOT_NO_SECCOMP:-}" ] || case $1 in --version) ;; *) echo 'proot error: ptrace' >&2; exit 255;; esac
exec PROOT "$@"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Path]:
    """Puts a program where udocker keeps its PRoot, and takes the system's off PATH."""
    folder = tmp_path / "udocker"
    folder.mkdir()
    monkeypatch.setenv("UDOCKER_BIN", str(folder))
    monkeypatch.setenv("UDOCKER_LIB", str(folder))

    def put(content: bytes) -> Path:
        path = folder / "proot"
        path.write_bytes(content)
        path.chmod(0o755)
        return path

    return put


class Host(RealHost):
    """This machine without a PRoot of its own."""

    def which(self, name: str) -> str | None:
        return None if name in ("proot", "udocker") else super().which(name)


def test_a_proot_whose_guests_see_the_host_is_refused(
    install: Callable[[bytes], Path], tmp_path: Path
) -> None:
    path = install(UNSOUND)
    (facts,) = registry.engine("udocker").probe(Host(tmp_path))
    assert (facts.path, facts.works, facts.modes) == (str(path), False, ())
    assert "P1: what runs in it sees other files" in facts.detail
    assert facts.remedy == "udocker install"


def test_the_first_mode_that_works_is_taken(install: Callable[[bytes], Path], tmp_path: Path) -> None:
    real = tool("proot")
    path = install(P2_ONLY.replace(b"PROOT ", os.fsencode(real) + b" ") + Path(real).read_bytes())
    (facts,) = registry.engine("udocker").probe(Host(tmp_path))
    assert (facts.path, facts.works, facts.modes) == (str(path), True, ("P2",))
    assert facts.faults == {"P1": "it failed with: proot error: ptrace"}
    site = make_site(engines=(facts,))
    assert registry.engine("udocker").judge(site, make_image()).reason.endswith(udocker.COST)
    made = plan(make_job(topology=Topology()), make_image(), None, site)
    assert made.engine == "udocker:P2"
    assert "--no-seccomp" in made.command.argv
    (engine,) = [each for each in made.decisions if each.subject == "engine"]
    reasons = {each.choice: each.reason for each in engine.rejected}
    assert reasons["udocker:P1"] == "it failed with: proot error: ptrace"


FACTS = EngineFacts(
    name="udocker", path="/opt/proot", version="5.4.0", origin="on PATH", works=True, modes=("P1",)
)


@pytest.mark.parametrize(
    ("mounts", "says"),
    [
        ((Mount(source="/data/a:b", target="/data"),), "a colon"),
        ((Mount(source="/data", target="/oh!"),), "exclamation mark"),
        (
            (Mount(source="/data/raw", target="/raw"), Mount(source="/data", target="/data", writable=True)),
            "cannot be read-only: /data/raw lies in /data",
        ),
        (
            (Mount(source="/", target="/host", writable=True), Mount(source="/data/raw", target="/raw")),
            "cannot be read-only: /data/raw lies in /, ",
        ),
    ],
)
def test_a_mount_that_proot_cannot_keep_is_refused_beforehand(mounts: tuple[Mount, ...], says: str) -> None:
    image = make_image()
    job = make_job(mounts=mounts, topology=Topology())
    with pytest.raises(PlanError, match=says):
        plan(job, image, make_rootfs(image), make_site(engines=(FACTS,)))


# -- the starter -------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with nothing but busybox."""
    folder = tmp_path / "root"
    for name in ("bin", "usr/bin", "etc"):
        (folder / name).mkdir(parents=True)
    busybox = Path(tool("busybox")).read_bytes()
    for name in ("bin/sh", "usr/bin/env", "bin/sleep", "bin/cat", "bin/mv", "bin/chmod"):
        (folder / name).write_bytes(busybox)
        (folder / name).chmod(0o755)
    (folder / "etc/seen").write_text("inside\n")
    return folder


def starter(root: Path, *words: str) -> list[str]:
    return [
        sys.executable, "-I", "-S", "-c", Path(proot_start.__file__).read_text(),
        "--proot", tool("proot"), "--root", str(root), "--bind", "/proc", "/proc", "--bind", "/dev", "/dev",
        "--env", "PATH=/bin", *words,
    ]  # fmt: skip


def start(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return completed(starter(root, *words), env=environment, timeout=30)


def test_the_exit_code_is_the_command_s_and_not_that_of_what_it_leaves(root: Path) -> None:
    done = start(root, "--", "sh", "-c", "(sleep 0.2; exit 3) & exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def sleeps_below(pid: int) -> bool:
    """Whether the program `sleep` has been started below this process, and has come to its sleep."""
    status = Path(f"/proc/{pid}/status").read_text()
    asleep = "Name:\tsleep\n" in status and "State:\tS" in status  # stopped by PRoot it would be "t"
    return asleep or any(map(sleeps_below, children(pid)))


def test_nothing_outlives_the_grace_or_a_killed_proot(root: Path) -> None:
    began = time.monotonic()
    assert start(root, "--", "sh", "-c", "sleep 61 & exit 7").returncode == 7
    assert time.monotonic() - began < 10
    run = subprocess.Popen(starter(root, "--", "sh", "-c", "cat /etc/seen; sleep 61"), stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == b"inside\n"
    (proot,) = children(run.pid)
    # Killed in the middle of a system call, PRoot leaves a program to itself, which may then crash by itself.
    assert wait_until(lambda: bool(sleeps_below(proot)))
    os.kill(proot, signal.SIGKILL)
    assert run.wait(timeout=20) == 137
    assert run.stdout.read() == b"", "nobody holds the pipe any more"
    run.stdout.close()


def test_an_image_below_a_writable_mount_is_copied(root: Path, tmp_path: Path) -> None:
    done = start(
        root, "--bind", str(tmp_path), "/data", "--", "sh", "-c", "echo a >>/etc/seen; cat /etc/seen"
    )
    assert (done.returncode, done.stdout) == (0, "inside\na\n"), done.stderr
    assert (root / "etc/seen").read_text() == "inside\n"


def test_an_image_without_a_shell_runs(root: Path) -> None:
    (root / "bin/sh").unlink()
    done = start(root, "--", "cat", "/etc/seen")
    assert (done.returncode, done.stdout, done.stderr) == (0, "inside\n", "")


def test_a_program_that_starts_another_keeps_its_heap_and_its_threads_their_directory(root: Path) -> None:
    source = Path(__file__).parents[1] / "lab/spawns.c"
    subprocess.run([tool("gcc"), "-static", "-pthread", "-o", root / "bin/spawns", source], check=True)
    assert start(root, "--", "spawns").stdout == "inside\n"
