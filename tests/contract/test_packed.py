"""An image as one file, run by the real tools: the promises of test_engines.py that depend on it.

Apptainer and Charliecloud mount such a file by FUSE. Where only root may open /dev/fuse:
`sudo tests/lab/with-fuse.sh su - USER -c …`.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import engine_lab
import msgspec
import pytest
from contract.test_engines import (
    test_a_command_killed_by_a_signal_exits_as_in_a_shell,
    test_sigterm_to_the_script_reaches_the_command,
    test_the_exit_code_is_the_command_s,
)
from environments import Captured, make_captured, site_packages
from processes import left_after
from tools import output, tool

from bareboat import registry, render
from bareboat.deployment import pack, roots
from bareboat.model import Job, Mount, Plan, Rootfs, Site
from bareboat.plan import plan
from bareboat.probe import probe
from bareboat_base.errors import PlanError
from bareboat_images.formats import packed
from bareboat_images.formats.sif import read_sif
from bareboat_images.layers import layer

__all__ = [
    "test_a_command_killed_by_a_signal_exits_as_in_a_shell",
    "test_sigterm_to_the_script_reaches_the_command",
    "test_the_exit_code_is_the_command_s",
]

ENGINES = [name for name in registry.names("engines") if registry.engine(name).FILES]


@pytest.fixture(scope="module")
def packed_captured() -> Iterator[Captured]:
    """Not below /tmp, which ch-run hides before it looks for what is in the image."""
    top = Path(tempfile.mkdtemp(prefix="bareboat-packed-", dir="/var/tmp"))
    try:
        yield make_captured(top)
    finally:
        shutil.rmtree(top)


@pytest.fixture(scope="module")
def probed(packed_captured: Captured) -> Site:
    return probe(packed_captured.store)


class Lab(engine_lab.Lab):
    """Runs jobs with the image as one file."""

    __slots__ = ()

    def plan(self, *command: str, **changes: Any) -> Plan:
        facts: dict[str, Any] = {
            "name": "packed", "command": command, "workdir": str(self.workdir), "engine": self.case.engine,
            "form": "file",
        }  # fmt: skip
        job = Job(**(facts | changes))
        store, image, rootfs = self.captured.store, self.image, self.captured.rootfs(self.site)

        def again(found: Rootfs) -> Plan:
            return plan(job, image, found, self.site)

        made = again(rootfs)
        assert made.packs is not None
        assert not made.needs_flat
        return roots.settle(store, image, rootfs, made, again)

    def script(self, *command: str, **changes: Any) -> Path:
        path = self.home.parent / "job.sh"
        path.write_bytes(os.fsencode(render.script(self.plan(*command, **changes))))
        return path


def make_lab(engine: str, captured: Captured, site: Site, folder: Path) -> Lab:
    home = folder / "home"
    (home / "work").mkdir(parents=True)
    site = msgspec.structs.replace(site, home=str(home))
    return Lab(engine_lab.Case(engine), captured, site, home / "work", home)


@pytest.fixture(params=ENGINES)
def lab(request: pytest.FixtureRequest, packed_captured: Captured, probed: Site, tmp_path: Path) -> Lab:
    facts = probed.engine(request.param)
    kind = registry.engine(request.param).FILES[0]
    if facts is None or not facts.works:
        pytest.skip(f"{request.param} does not work here")
    if facts.files[kind]:
        pytest.skip(f"{request.param} cannot run a {kind} here: {facts.files[kind]}")
    return make_lab(request.param, packed_captured, probed, tmp_path)


def test_the_environment_is_the_image_s_whatever_is_mounted_around_it(lab: Lab) -> None:
    """The usual `.venv` in the project, and one below the home folder."""
    project = lab.captured.folder.parent
    changed = site_packages(lab.captured.folder) / "ware" / "part.py"
    original, times = changed.read_bytes(), changed.stat()
    (project / "train.py").write_text("import sys, ware; print(sys.prefix, ware.NAME)\n")
    for site in (lab.site, msgspec.structs.replace(lab.site, home=str(project.parent))):
        try:
            changed.write_text("NAME = 'changed after the capture'\n")
            done = replace(lab, site=site).run("python", "-B", "train.py", workdir=str(project))
        finally:
            changed.write_bytes(original)
            os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert done.stdout.decode() == f"{lab.captured.folder} ware\n", done.stderr


def test_mounts_and_what_is_written(lab: Lab, tmp_path: Path) -> None:
    for name in ("ro", "rw"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    program = """
import errno, os, sys
def tried(path):
    try:
        open(path, "a").close()
        return "written"
    except OSError as error:
        return "refused" if error.errno in (errno.EROFS, errno.EACCES) else error.strerror
print(open("/data/ro/x").read(), tried("/data/ro/new"), open("/data/rw/x").read(), tried("/data/rw/new"))
print(*map(tried, ["made", "/tmp/x", "/var/tmp/x", os.environ["HOME"] + "/x", "/etc/mine", *sys.argv[1:]]))
print(open("/etc/hosts").read() == sys.argv[2])
"""
    mounts = (
        Mount(source=str(tmp_path / "ro"), target="/data/ro"),
        Mount(source=str(tmp_path / "rw"), target="/data/rw", writable=True),
    )
    lab.plan("true", mounts=mounts)
    before = digest(lab)
    ware = str(site_packages(lab.captured.folder) / "ware" / "part.py")
    said = lab.says(program, ware, Path("/etc/hosts").read_text(), mounts=mounts).split("\n")
    assert digest(lab) == before
    assert said[0] == "ro refused rw written"
    assert said[1].split()[:6] == ["written"] * 4 + ["refused"] * 2
    assert said[2] == "True"
    assert (lab.workdir / "made").exists()
    assert lab.says("import os; print(os.path.exists('/tmp/x'))") == "False"


def digest(lab: Lab) -> str:
    kind = registry.engine(lab.case.engine).FILES[0]
    return packed.sha256(lab.captured.store.packed(lab.captured.image.digest, kind))


def test_a_job_sees_its_own_mount_points_and_none_of_another_job(lab: Lab, tmp_path: Path) -> None:
    kind = registry.engine(lab.case.engine).FILES[0]
    (tmp_path / "file").touch()
    look = "import os; print(os.path.isfile('/y'), os.path.isdir('/y'))"
    assert lab.says(look, mounts=(Mount(source=str(tmp_path / "file"), target="/y"),)) == "True False"
    assert lab.says(look, mounts=(Mount(source=str(tmp_path), target="/y"),)) == "False True"
    assert lab.says(look) == "False False"
    inodes = {
        path: path.stat().st_ino for path in packed.files(lab.captured.store, lab.captured.image.digest)
    }
    files = [path for path in inodes if path.suffix == f".{kind}"]
    lab.says(look, mounts=(Mount(source=str(tmp_path), target="/y"),))
    assert {path: path.stat().st_ino for path in files} == {path: inodes[path] for path in files}
    trees = [lab.captured.store.layer(each.diff_id) for each in lab.captured.image.layers]
    assert [layer.digest_tree(str(tree))[0] for tree in trees] == [
        each.diff_id for each in lab.captured.image.layers
    ], "the layers, whose files were linked to be packed, are what they were"


def test_no_process_and_no_file_is_left(lab: Lab) -> None:
    script = str(lab.script("true"))
    store = lab.captured.store.root
    before = sorted(map(str, [*store.glob("*"), *store.glob("tmp/*"), *store.glob("packed/**/*")]))
    mounts = Path("/proc/self/mounts").read_text()
    for _ in range(5):
        subprocess.run(["bash", script, f"left-{lab.case.engine}"], check=True, stdin=subprocess.DEVNULL)
    assert left_after(f"left-{lab.case.engine}") == []
    assert sorted(map(str, [*store.glob("*"), *store.glob("tmp/*"), *store.glob("packed/**/*")])) == before
    assert Path("/proc/self/mounts").read_text() == mounts


@pytest.mark.parametrize("engine", ENGINES)
def test_without_fuse_it_is_refused_beforehand_with_the_reason(
    engine: str, packed_captured: Captured, probed: Site, tmp_path: Path
) -> None:
    """Apptainer's failure to mount a SIF is fatal, and ch-run tries for seconds."""
    facts = probed.engine(engine)
    if facts is None or not facts.works:
        pytest.skip(f"{engine} does not work here")
    kind = registry.engine(engine).FILES[0]
    if not facts.files[kind]:
        return  # it works here
    assert "/dev/fuse" in facts.files[kind]
    with pytest.raises(PlanError, match=f"a {kind} cannot be run here: .*/dev/fuse") as caught:
        make_lab(engine, packed_captured, probed, tmp_path).plan("true")
    assert "form = " in caught.value.remedy


def test_the_sif_is_one_for_apptainer_too(packed_captured: Captured) -> None:
    tool("mksquashfs")
    path = pack.provide(packed_captured.store, packed_captured.image, "sif")
    assert read_sif(path, name="it").system().size > 0
    assert "Squashfs/*System" in output(tool("apptainer"), "sif", "list", path)
