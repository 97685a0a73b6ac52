"""Identity: whatever the image knows of users, this one is found by number and by name."""

import os
from pathlib import Path

import pytest
from builders import fake_digest, make_image, make_site

from bareboat.deployment import identity
from bareboat.model import Image, Layer, Site
from bareboat_images.store import Store

SITE = make_site(user="ada", uid=4711, gid=999_999, home="/home/ada")
LINE = "ada:x:4711:999999::/home/ada:/bin/sh"
ROOT = "root:x:0:0:root:/root:/bin/bash"


def image(store: Store, *layers: dict[str, str]) -> Image:
    """An image in the store whose layers, bottom first, hold these files."""
    made = []
    for letter, files in zip("bcdef", layers, strict=False):
        digest = fake_digest(letter)
        for path, text in files.items():
            place = store.layer(digest) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        store.layer(digest).mkdir(parents=True, exist_ok=True)
        made.append(Layer(diff_id=digest, size_bytes=1, unpacked_bytes=1, inodes=1))
    return make_image(layers=tuple(made), prefixes=())


def provided(store: Store, *layers: dict[str, str], site: Site = SITE) -> tuple[list[str], list[str]]:
    folder = identity.provide(store, image(store, *layers), site)
    assert folder is not None
    assert sorted(os.listdir(folder)) == ["etc"]
    read = [(Path(folder) / "etc" / name).read_text().splitlines() for name in ("passwd", "group")]
    return read[0], read[1]


def test_the_user_is_added_before_those_of_the_image(store: Store) -> None:
    """Also before another one with the same number, and before lines that are none."""
    theirs = f"{ROOT}\nubuntu:x:4711:4711:Ubuntu:/home/ubuntu:/bin/bash\n+::::::\n\nbroken\nx:y\n"
    passwd, group = provided(store, {"etc/passwd": theirs, "etc/group": "root:x:0:\n"})
    assert passwd == [LINE, *theirs.splitlines()]
    assert group == ["ada:x:999999:", "root:x:0:"]


def test_an_image_that_knows_the_user_needs_nothing(store: Store) -> None:
    known = {"etc/passwd": f"{ROOT}\n{LINE}\n", "etc/group": "ada:x:999999:\n"}
    assert identity.provide(store, image(store, known), SITE) is None


@pytest.mark.parametrize(
    "line",
    [
        "ada:x:4711:999999::/root:/bin/sh",
        "ada:x:4712:1::/home/ada:/bin/sh",
        "eve:x:4711:1::/home/ada:/bin/sh",
    ],
    ids=["another home", "another number", "another name"],
)
def test_an_image_that_knows_somebody_like_the_user_is_put_right(store: Store, line: str) -> None:
    passwd, _ = provided(store, {"etc/passwd": line + "\n"})
    assert passwd[0] == LINE


def test_the_same_user_and_files_share_one_folder(store: Store) -> None:
    made = image(store, {"etc/passwd": ROOT + "\n"})
    first = identity.provide(store, made, SITE)
    assert identity.provide(store, made, SITE) == first
    assert identity.provide(store, made, make_site(user="eve", uid=1)) != first
