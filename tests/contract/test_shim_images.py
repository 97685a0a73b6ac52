"""Shims with images of a registry, definition files, and SIF files; and their commands in the foreground."""

import io
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from images import busybox, pack, upload
from registries import RealRegistry
from strangers import copied_as_stranger
from terminals import Desk, desk  # noqa: F401
from tools import completed, started, tool
from watch import wait_until

from bareboat_shim import shims

_DEFINITION = """\
Bootstrap: localimage
From: base.sif

%environment
  export OF_FILE=defined

%files
  greeting /greeting

%post
  echo made > /made

%runscript
  cat /greeting /made; echo "$OF_FILE $*"
"""
#: Handles two signals, and exits with 9 after them.
_HANDLER = """
n=0
trap 'echo signal; n=$((n+1)); [ $n -lt 2 ] || exit 9' INT TERM
echo ready
while :; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a shim and an image as a directory."""
    folder = tmp_path_factory.mktemp("shim")
    with tarfile.open(fileobj=io.BytesIO(busybox(**{"bin/sleep": "busybox"}))) as archive:
        archive.extractall(folder / "box")
    shims.write(folder / "shims", ["singularity"], force=True, dry_run=False)
    (folder / "greeting").write_text("hello\n")
    return folder


def run(place: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    store = {"HOME": str(place), "BAREBOAT_STORE": str(place / "store"), "PATH": os.environ["PATH"]}
    done = completed(
        [place / "shims/singularity", *words], cwd=place, env={**store, **environment}, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def test_an_image_of_a_registry_runs_and_becomes_a_sif_file(place: Path, registry: RealRegistry) -> None:
    variables = ["PATH=/bin", 'A=a "b" $c']
    image = pack(busybox(), Env=variables, Entrypoint=["echo", "entry point"], Cmd=["default"])
    name = f"docker://{upload(registry, image, 'a/box:1.0')}"
    assert run(place, "run", "--no-https", name)[:2] == (0, "entry point default\n")
    assert run(place, "exec", name, "sh", "-c", "echo $A")[:2] == (0, 'a "b" $c\n'), "it is in the store"
    assert run(place, "pull", "--no-https", name)[:2] == (0, "")
    code, _, said = run(place, "pull", "--no-https", name)
    assert code == 255
    assert "will not overwrite" in said
    for words, shown in (((), "entry point default\n"), (("x", "y z"), "entry point x y z\n")):
        assert run(place, "run", "box_1.0.sif", *words)[:2] == (0, shown)
    assert run(place, "exec", "box_1.0.sif", "sh", "-c", "echo $A")[:2] == (0, 'a "b" $c\n')
    # As in Apptainer, which clears the shell's variables before the image's scripts run.
    assert run(place, "exec", "box_1.0.sif", "sh", "-c", "echo $A", A="mine")[1] == 'a "b" $c\n'
    theirs = completed(
        [tool("apptainer"), "--silent", "run", "--unsquash", "box_1.0.sif", "x"], cwd=place, timeout=120
    )
    assert (theirs.returncode, theirs.stdout) == (0, "entry point x\n"), theirs.stderr


def test_a_definition_file_becomes_a_sif_file(place: Path) -> None:
    assert run(place, "build", "base.sif", "box")[0] == 0
    (place / "image.def").write_text(_DEFINITION)
    built = run(place, "build", "built.sif", "image.def")
    assert built[:2] == (0, ""), built
    assert run(place, "run", "built.sif", "a")[:2] == (0, "hello\nmade\ndefined a\n")
    code, _, said = run(place, "build", "built.sif", "image.def")
    assert (code, "will not overwrite" in said) == (255, True)
    (place / "image.def").write_text("Bootstrap: localimage\nFrom: base.sif\n\n%post\n  exit 3\n")
    assert run(place, "build", "--force", "built.sif", "image.def")[0] == 255
    assert run(place, "run", "built.sif", "a")[0] == 0, "the file is replaced as a whole"


def test_a_changed_file_is_read_again(place: Path) -> None:
    for text in ("first\n", "second\n"):
        (place / "box/text").write_text(text)
        assert run(place, "build", "--force", "changing.sif", "box")[0] == 0
        assert run(place, "exec", "changing.sif", "cat", "/text")[:2] == (0, text)


def test_a_directory_of_another_owner_gets_the_mount_points_that_it_lacks(place: Path) -> None:
    box, home, kept = place / "box", place / "some/where", place / "kept"
    for folder in (home, kept, box / "home", box / "srv"):
        folder.mkdir(parents=True, exist_ok=True)
    (home / "file").write_text("here\n")
    flags = ("--home", str(home), "--bind", f"{home}:/srv/deep/er,{home}/file:/etc/extra")
    command = "cat ~/file /srv/deep/er/file /etc/extra; ls /srv"
    with copied_as_stranger(box) as tree:
        for more in ((), ("--contain",), ("--writable-tmpfs",), ("--overlay", str(kept))):
            code, shown, said = run(place, "exec", *flags, *more, str(tree), "sh", "-c", command)
            assert (code, shown) == (0, 3 * "here\n" + "deep\n"), said


def test_links_of_an_image_that_lead_nowhere_or_from_its_root_take_mounts(place: Path) -> None:
    box = place / "linked"
    shutil.copytree(place / "box", box, symlinks=True)
    (box / "run").mkdir()
    (box / "var").mkdir()
    (box / "var/run").symlink_to("/run")
    (box / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    (place / "mounted").mkdir()
    (place / "mounted/file").write_text("mounted\n")
    command = "cat /etc/resolv.conf /run/socket/file"
    code, shown, said = run(
        place, "exec", "--bind", f"{place}/mounted:/var/run/socket", "linked", "sh", "-c", command
    )
    assert (code, shown) == (0, Path("/etc/resolv.conf").read_text() + "mounted\n"), said


def test_the_store_is_read_only_in_containers(place: Path) -> None:
    code, shown, said = run(place, "exec", "--home", str(place), "box", "touch", f"{place}/store/x")
    assert (code, shown) == (1, "")
    assert "Read-only file system" in said
    assert run(place, "exec", "--home", str(place), "box", "touch", f"{place}/beside")[0] == 0


def test_a_directory_that_cannot_be_read_is_named(place: Path) -> None:
    (place / "closed").mkdir(0o000)
    code, shown, said = run(place, "exec", "closed", "true")
    assert (code, shown) == (255, "")
    assert f"you cannot read the directory {place}/closed" in said


def test_too_few_open_files_are_reported_with_the_fix(place: Path) -> None:
    line = f"ulimit -n 64; exec {place}/shims/singularity exec box true"
    done = completed(["sh", "-c", line], cwd=place, timeout=60)
    assert done.returncode == 255
    assert done.stderr == (
        "FATAL:   a container requires 256 open files, and the limit is 64\n  try: ulimit -n 256\n"
    )


def test_a_shim_in_a_container_of_a_shim_is_refused(place: Path) -> None:
    code, _, said = run(place, "exec", "box", str(place / "shims/singularity"), "exec", "box", "true")
    assert code == 255
    assert "in a container of apptainer's shim" in said


def test_signals_reach_the_command_and_end_it_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAREBOAT_STORE", str(place / "store"))
    shim, box = str(place / "shims/singularity"), str(place / "box")
    for flags in ((), ("--pid",)):
        process = started([shim, "exec", *flags, box, "sh", "-c", _HANDLER])
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in (signal.SIGTERM, signal.SIGINT):
            time.sleep(0.2)
            process.send_signal(number)
            assert process.stdout.readline() == "signal\n"
        assert process.wait(20) == 9
    process = subprocess.Popen([shim, "exec", box, "sleep", "60"])
    time.sleep(1.5)
    process.terminate()
    assert process.wait(20) == -signal.SIGTERM


def test_a_command_outlives_the_shell_that_started_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAREBOAT_STORE", str(place / "store"))
    monkeypatch.chdir(place)
    command = f"{place}/shims/singularity exec box sh -c 'sleep 2; echo alive > {place}/alive' & sleep 1"
    subprocess.run(["sh", "-c", command], check=True, timeout=60)
    assert wait_until((place / "alive").exists)
    assert (place / "alive").read_text() == "alive\n"


def test_the_command_has_the_terminal_and_ctrl_c_is_its_own(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    desk: Callable[[list[str]], Desk],  # noqa: F811
) -> None:
    monkeypatch.setenv("BAREBOAT_STORE", str(place / "store"))
    made = desk([str(place / "shims/singularity"), "exec", str(place / "box"), "sh", "-c", _HANDLER])
    made.until(b"ready")
    for number in (1, 2):
        made.type(b"\x03")
        made.until(b"signal" if number == 1 else b"code 9>")
    assert made.seen.count(b"signal") == 2
