"""One Dockerfile, built on what could be two machines: another store, context, user, umask, time zone, time.
With SOURCE_DATE_EPOCH the image has one digest."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import images
import pytest
from building import BASE, GROUP, PASSWD
from tools import output, tool

EPOCH = "1700000000"
RECIPE = """FROM base AS made
RUN mkdir -p /d/e && echo 1 > /d/e/one && ln /d/e/one /d/two && ln -s e /d/link && touch /d/now && mkfifo /d/p
RUN rm /d/e/one && mkdir -m 1777 /d/t && echo x > /d/t/x && chmod 640 /d/t/x && date > /dev/null
WORKDIR /w/v
COPY --chown=app f sub ./
ADD k.tar /k/
RUN <<EOF
cp -p f g
echo $HOME $PWD $0 > env
EOF
FROM base
COPY --from=made /d /d
COPY --from=made --chmod=755 /w /w
USER app
RUN umask > /tmp/mask; touch /tmp/mine
LABEL a=b
"""
#: What differs between two runs of a package manager.
LOGS = "/var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/apt /var/cache/ldconfig/aux-cache"


class Machine:
    """`bareboat` with surroundings of its own."""

    def __init__(self, top: Path, number: int) -> None:
        self.top = top / ("one" if number == 1 else "a longer/path")
        self.top.mkdir(parents=True)
        self.mask = (0o022, 0o077)[number - 1]
        self.as_other = ["unshare", "--map-user=4711", "--map-group=4712"] if number == 2 else []
        self.variables = {
            "BAREBOAT_STORE": str(self.top / "store"),
            "HOME": str(self.top),
            "TZ": ("UTC", "Pacific/Kiritimati")[number - 1],
            "USER": ("one", "two")[number - 1],
            "LC_ALL": ("C.UTF-8", "C")[number - 1],
            "SOURCE_DATE_EPOCH": EPOCH,
        }

    def __call__(self, *words: str | Path) -> str:
        return output(
            *self.as_other, sys.executable, "-m", "bareboat", *words,
            env=os.environ | self.variables, cwd=self.top, umask=self.mask, timeout=3000,
        )  # fmt: skip

    def build(self, context: Path) -> str:
        found: str = json.loads(self("image", "build", "--no-cache", "--json", context))["digest"]
        return found


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Machine, Machine]:
    tool("unshare")
    return Machine(tmp_path, 1), Machine(tmp_path, 2)


def lay(folder: Path, mode: int) -> Path:
    """The same files, with other times and, for other users, other modes of the directories above."""
    folder.mkdir(parents=True)
    tar = images.tar({"t": None, "t/one": b"1"}, modes={"t/one": 0o640})
    for name, data in {"f": b"f", "sub/s": b"s", "k.tar": tar, "Dockerfile": RECIPE.encode()}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o644)
        os.utime(folder / name, (mode, 1_750_000_000 + mode))
    (folder / "sub").chmod(0o755)
    return folder


def test_two_machines_make_one_image(machines: tuple[Machine, Machine]) -> None:
    tool("busybox")
    found = []
    for number, machine in enumerate(machines):
        base = machine.top / "base"
        base.mkdir()
        (base / "base.tar").write_bytes(images.busybox(**{"etc/passwd": PASSWD, "etc/group": GROUP}))
        (base / "Dockerfile").write_text(BASE)
        machine("image", "build", "-q", "-t", "base", base)
        context = lay(machine.top / f"context{'s' * number}", 0o700 + number)
        found.append(machine.build(context))
        time.sleep(1.1)  # files have whole seconds
    assert found[0] == found[1]


@pytest.mark.compiles
@pytest.mark.parametrize("recipe", ["apt", "c", "conda", "torch", "openmpi"])
def test_two_machines_make_one_image_of_a_real_recipe(
    machines: tuple[Machine, Machine], contexts: Any, recipe: str, tmp_path: Path
) -> None:
    """With the logs of package managers removed in the step that writes them."""
    archive = tmp_path / "base.tar"
    subprocess.run(
        [tool("mmdebstrap"), "--quiet", "--mode=unshare", "--variant=minbase", "bookworm", str(archive)],
        check=True,
    )
    found = []
    for number, machine in enumerate(machines):
        shutil.copyfile(archive, machine.top / "base.tar")
        machine("image", "pull", f"rootfs:{machine.top}/base.tar", "--name", "base")
        folder = machine.top / f"context{number}"
        contexts.lay(recipe, folder, "base", tmp_path / "downloads")
        text = (folder / "Dockerfile").read_text()
        text = text.replace("/var/lib/apt/lists/*", f"/var/lib/apt/lists/* {LOGS}")
        (folder / "Dockerfile").write_text(text)
        found.append(machine.build(folder))
    assert found[0] == found[1]
