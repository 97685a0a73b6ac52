"""`image build --ids`: RUN with subordinate IDs, for programs that check what their chown did."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from building import Builds
from tools import tool

from bareboat_base.errors import ImageError, PlanError
from bareboat_base.execute import namespace

RANGES = Path("/etc/subuid")
IDS = """FROM base
RUN echo staff:x:50:app > /etc/group && mkdir /d && touch /d/a /x && chown app /d
RUN chown app:staff /d/a && ln /d/a /d/b && chmod 600 /d/a
RUN touch /secret && chmod 600 /secret
RUN test $(stat -c %u:%g:%a /d/b) = 1000:50:600 && chown 0:7 /x && chown app /etc && echo more >> /d/a
COPY --chown=app f /srv/f
USER app
RUN test $(id -u) = 1000 && test "$(id -G)" = "1001 50" && touch /d/mine /dev/shm/x && ! touch /bin/no
RUN ["sh", "-c", "test $(stat -c %u /srv/f) = 1000 && ! cat /secret"]
USER root
RUN chown root /d/b && rm /d/mine && mkdir -m 700 /d/e && chown 7:7 /d/e && touch /d/e/f
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    tool("busybox")
    tool("newuidmap")
    user = pwd.getpwuid(os.getuid()).pw_name
    if not any(line.startswith(f"{user}:") for line in RANGES.read_text().splitlines()):
        pytest.skip(f"{user} has no range in {RANGES}")
    made = Builds(tmp_path_factory.mktemp("ids"))
    made.base()
    return made


def owners(builds: Builds, name: str) -> list[dict[str, tuple[int, int]]]:
    image = builds.store.image(name)
    return [
        {path: (entry.uid, entry.gid) for path, entry in builds.tar(image, number).items()}
        for number in range(len(image.layers))
    ]


def test_owners_are_believed_and_kept(builds: Builds) -> None:
    builds.build(IDS, {"f": "f"}, "--ids", "-t", "ids")
    _, _, made, first, secret, second, copied, third, last = owners(builds, "ids")
    assert first == {
        "d": (1000, 0), "d/a": (1000, 50), "d/b": (1000, 50),
    }  # fmt: skip
    assert (made["d"], made["d/a"], made["etc/group"]) == ((1000, 0), (0, 0), (0, 0))
    assert secret == {"secret": (0, 0)}
    assert second["x"] == (0, 7)
    assert second["etc"] == (1000, 0)
    assert second["d/a"] == (1000, 50)
    assert copied["srv/f"] == (1000, 1001)
    assert third == {"d": (1000, 0), "d/mine": (1000, 1001)}
    assert last["d/b"] == (0, 50)
    assert (last["d/e"], last["d/e/f"]) == ((7, 7), (0, 0))
    assert all(path.lstat().st_uid == os.getuid() for path in builds.store.root.rglob("*"))
    assert "8 of 8 steps from the cache" in builds.build(IDS, {"f": "f"}, "--ids").out
    plain = builds.build(IDS, {"f": "f"}, code=1)  # one user: chown has no effect
    assert "RUN exited with code 1" in plain.err


def test_a_failed_step_leaves_nothing(builds: Builds) -> None:
    text = (
        "FROM base\nRUN --mount=type=cache,target=/c mkdir -m 700 /d /c/d && touch /d/f && "
        "chown -R app /d /c/d && false\n"
    )
    builds.build(text, {}, "--ids", code=1)
    assert not any((builds.store.root / "tmp").iterdir())
    assert all(path.lstat().st_uid == os.getuid() for path in builds.store.root.rglob("*"))


def test_a_killed_build_is_cleaned_up_by_the_next(builds: Builds) -> None:
    text = "FROM base\nRUN mkdir -m 700 /d && touch /d/f && chown -R app /d && echo made && sleep 60\n"
    made = builds.context(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "bareboat", "image", "build", "--ids", "-v", str(made)],
        env=os.environ | {"BAREBOAT_STORE": str(builds.store.root)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.endswith(b"made\n") and b"RUN" not in line and b"bwrap" not in line:
            break
    process.kill()
    process.communicate()
    assert any((builds.store.root / "tmp").iterdir())
    builds.build("FROM base\nRUN touch /n && chown app /n\n", {}, "--ids")
    assert not any((builds.store.root / "tmp").iterdir())


def test_an_owner_beyond_the_range_is_refused(builds: Builds) -> None:
    text = "FROM base\nCOPY --chown=3000000000 f /f\nRUN true\n"
    said = builds.build(text, {"f": "f"}, "--ids", code=ImageError.code)
    assert "/f belongs to user 3000000000" in said.err


def test_without_a_range_the_remedy_is_named(tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("somebody:100000:65536\n")
    with pytest.raises(PlanError, match="has no subordinate IDs") as caught:
        namespace._ranges(str(tmp_path / "subuid"))
    assert "usermod --add-subuids" in caught.value.remedy
    user = pwd.getpwuid(os.getuid()).pw_name
    (tmp_path / "subuid").write_text(f"{user}:100000:10\n{os.getuid()}:5000:3\nbad\n{user}:x:1\n")
    assert namespace._ranges(str(tmp_path / "subuid")) == [(100000, 10), (5000, 3)]
