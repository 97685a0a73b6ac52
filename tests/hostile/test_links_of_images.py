"""Images whose links lead to the host while an engine mounts: nothing is made there."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import images
import pytest
from building import Builds
from tools import tool

from bareboat_shim import shims


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    tool("busybox")
    return Builds(tmp_path_factory.mktemp("points"))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("writable", [False, True], ids=["tree", "layers"])
@pytest.mark.parametrize(
    ("link", "leads"),
    [("run", "/oldroot{}"), ("mnt", "/oldroot{}"), ("mnt", "../oldroot{}"),
     ("a", "/newroot/../oldroot{}"), ("HOME", "/oldroot{}")],
)  # fmt: skip
def test_no_mount_point_is_made_on_the_host(builds: Builds, link: str, leads: str, writable: bool) -> None:
    """bubblewrap makes what is missing while the host's files are at /oldroot."""
    victim = builds.folder / "victim"
    victim.mkdir(exist_ok=True)
    top = Path(os.environ.get("HOME", "/root")).parts[1]
    name = top if link == "HOME" else link
    files: dict[str, bytes | str | None] = {name: leads.format(victim)}
    builds.foreign("hostile", images.busybox(**files))
    (builds.folder / "given").mkdir(exist_ok=True)
    target = f"/{name}/new/a" if link in ("mnt", "a") else "/given"
    job = builds.folder / "job.toml"
    job.write_text(
        'image = "hostile"\ncommand = ["true"]\nengine = "bubblewrap"\n'
        f'writable = {str(writable).lower()}\nmounts = ["{builds.folder}/given:{target}"]\n'
    )
    # On the way to what every container mounts, an absolute link becomes one within the image.
    code = 0 if link in ("run", "HOME") and not writable else 3
    said = builds.bareboat("run", job, code=code)
    if code:
        assert "mount" in said.err
        assert "link" in said.err
    assert list(victim.iterdir()) == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("link", "leads"),
    [("mnt", "../oldroot{}"), ("mnt", "/oldroot{}"), ("run", "/newroot/../oldroot{}"),
     ("home", "../oldroot{}")],
)  # fmt: skip
@pytest.mark.parametrize("exists", [False, True])
def test_shims_make_nothing_on_the_host(tmp_path: Path, link: str, leads: str, exists: bool) -> None:
    victim, box, given = tmp_path / "victim", tmp_path / "box", tmp_path / "given"
    for folder in (victim, box, given):
        folder.mkdir()
    leads = leads.format(victim)
    with tarfile.open(fileobj=io.BytesIO(images.busybox(**{link: leads}))) as archive:
        archive.extractall(box)
    if exists:  # to the image the link leads to a directory of its own
        (box / leads.lstrip("./")).mkdir(parents=True)
    (given / "file").write_text("given\n")
    (written,) = shims.write(tmp_path / "shims", ["apptainer"], force=True, dry_run=False)
    home = f"/{link}/new/home" if link == "home" else "/given"
    words = ["--home", f"{given}:{home}", "--bind", f"{given}:/{link}/new/a"]
    done = subprocess.run(
        [written.path, "exec", *words, box, "cat", f"/{link}/new/a/file", f"{home}/file"],
        env={"BAREBOAT_STORE": f"{tmp_path}/store", "HOME": "/given", "PATH": os.environ["PATH"]},
        cwd=given, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, 2 * "given\n"), done.stderr
    assert list(victim.iterdir()) == []
