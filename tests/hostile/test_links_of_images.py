"""Images whose links lead to the host while an engine mounts: nothing is made there."""

from __future__ import annotations

import os
from pathlib import Path

import images
import pytest
from building import Builds
from tools import tool


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
