"""`image tag`, `history`, `tree` and `diff` as a user runs them, on images built here."""

import json
import re
from pathlib import Path

import pytest
from building import Builds


@pytest.fixture(scope="module")
def builds(builds: Builds) -> Builds:
    text = (
        "FROM base\nENV A=1\nCOPY {0} /srv/data\n"
        "RUN mkdir -p /opt/app && echo {0} > /opt/app/x && echo {0} > /{0}\nLABEL v={0}\n"
    )
    for name in ("one", "two"):
        builds.build(text.format(name), {name: name * 1000}, "-t", f"app:{name}")
    return builds


def test_a_tag_is_another_name(builds: Builds) -> None:
    before = set(Path(builds.store.root).rglob("*"))
    said = builds.bareboat("image", "tag", "app:one", "stable")
    assert re.fullmatch(r"stable is sha256:[0-9a-f]{12}\n", said.out)
    assert said.err == ""
    assert set(Path(builds.store.root).rglob("*")) - before == {builds.store.root / "names/stable"}
    assert builds.bareboat("run", "--image", "stable", "--", "cat", "/opt/app/x").out == "one\n"
    said = builds.bareboat("image", "tag", "app:two", "stable")
    assert "note: stable was sha256:" in said.err
    assert "no other name" not in said.err
    assert builds.bareboat("run", "--image", "stable", "--", "cat", "/opt/app/x").out == "two\n"
    digest = builds.store.image("app:one").digest
    builds.bareboat("image", "tag", digest[7:20], "by-digest:1")
    found = json.loads(builds.bareboat("image", "tag", "--json", "app:one", "by-digest:1").out)
    assert found == {"name": "by-digest:1", "digest": digest, "previous": digest}


@pytest.mark.parametrize("kind", ["", "oci-archive:", "docker-archive:"])
def test_a_saved_name_is_offered_where_the_file_is_loaded(builds: Builds, tmp_path: Path, kind: str) -> None:
    """A file gives no name by itself: a job that has the name would run what the file contains."""
    builds.bareboat("image", "save", "app:one", f"{kind}{tmp_path}/saved.tar")
    other = Builds(tmp_path)
    said = other.bareboat("image", "load", "saved.tar", "--bind-tags")
    (offer,) = re.findall("names this image app:one.*\n.*: bareboat (image tag .*)", said.err)
    assert other.store.names() == {}
    other.bareboat(*offer.split())
    assert "names this image" not in other.bareboat("image", "load", "saved.tar").err
    other.bareboat("image", "load", "saved.tar", "--name", "mine:2")
    assert [*other.store.names()] == ["app:one", "mine:2"]


def test_a_dry_run_sets_no_name(builds: Builds) -> None:
    said = builds.bareboat("image", "tag", "app:one", "never", "--dry-run")
    assert said.out.startswith("never would be sha256:")
    assert "never" not in builds.store.names()


def test_the_last_name_of_an_image_is_not_lost_silently(builds: Builds) -> None:
    builds.build("FROM base\nRUN echo last > /last\n", {}, "-t", "last:1")
    said = builds.bareboat("image", "tag", "app:one", "last:1")
    assert "which has no other name" in said.err


def test_the_history_has_each_step_with_its_layer(builds: Builds) -> None:
    lines = builds.bareboat("image", "show", "--history", "app:one").out.splitlines()
    assert lines[1].split() == ["layer", "size", "files", "date", "step"]
    steps = [line.split("  ")[-1].strip() for line in lines[2:-1]]
    assert steps[-4:] == [
        "ENV A=1", "COPY one /srv/data", "RUN mkdir -p /opt/app && echo one > /opt/app/x && echo one > /one",
        "LABEL v=one",
    ]  # fmt: skip
    image = builds.store.image("app:one")
    assert lines[-1].startswith(f"{len(image.layers)} layers, ")
    found = json.loads(builds.bareboat("image", "show", "--history", "app:one", "--json").out)
    assert [step["layer"] for step in found["steps"]][-4:] == [None, 3, 4, None]
    assert [each["diff_id"] for each in found["layers"]] == [layer.diff_id for layer in image.layers]
    assert [each["size_bytes"] for each in found["layers"]] == [layer.size_bytes for layer in image.layers]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("tag", "none", "x"), 4, "image 'none' not found"),
        (("tag", "app:one", "a/b"), 2, "not a valid image name"),
        (("tag", "app:one", "sha256:" + "a" * 64), 2, "not a valid image name"),
        (("tag", "app:one"), 2, "arguments are required: NAME[:TAG]"),
        (("show", "--history", "none"), 4, "not found"),
        (("diff", "app:one", "app:two"), 2, "no longer exists"),
        (("du", "--depth", "3"), 2, "no longer exists"),
    ],
)
def test_what_is_wrong_is_said(builds: Builds, arguments: tuple[str, ...], code: int, said: str) -> None:
    answer = builds.bareboat("image", *arguments, code=code)
    assert said in answer.err
    assert "try: " in answer.err
    assert answer.out == ""
