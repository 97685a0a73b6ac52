"""What an image has in the folders that become scratch, as the planner is told of it."""

import pytest
from builders import make_site
from stored import image_of

from bareboat.deployment.present import scratch_contents
from bareboat.model import ScratchEntry
from bareboat_images.store import Store


def found(store: Store, *trees: dict[str, str | None], home: str = "/home/ada") -> list[ScratchEntry]:
    return list(scratch_contents(store, image_of(store, *trees), make_site(home=home)))


def folder(path: str, leads_to: str = "") -> ScratchEntry:
    return ScratchEntry(path=path, leads_to=leads_to or path, is_folder=True)


def file(path: str, leads_to: str = "") -> ScratchEntry:
    return ScratchEntry(path=path, leads_to=leads_to or path, is_folder=False)


def test_files_and_folders_are_found_in_every_scratch_folder_and_nowhere_else(store: Store) -> None:
    tree: dict[str, str | None] = dict.fromkeys(
        ("tmp/a", "var/tmp/b", "run/c", "home/ada/d/e", "home/eve/f", "opt/g"), "x"
    )
    assert found(store, tree) == [
        folder("/home/ada/d"), file("/run/c"), file("/tmp/a"), file("/var/tmp/b"),
    ]  # fmt: skip


def test_a_folder_of_one_folder_stands_for_that(store: Store) -> None:
    """All of ~/.local need not be read-only for an interpreter in it."""
    python = "home/ada/.local/share/uv/python/3.12"
    assert found(store, {f"{python}/bin/python": "x", f"{python}/lib/os.py": "x"}) == [folder(f"/{python}")]
    more = {f"{python}/bin/python": "x", "home/ada/.local/bin/uv": "x"}
    assert found(store, more) == [folder("/home/ada/.local")]


def test_a_link_leads_to_what_it_leads_to_in_the_image(store: Store) -> None:
    tree: dict[str, str | None] = {
        "opt/env/lib/os.py": "x",
        "home/ada/env": "-> /opt/env",
        "home/ada/again": "-> env/lib",
        "home/ada/program": "-> ../../opt/env/lib/os.py",
        "home/ada/nowhere": "-> /data/of/the/host",
    }
    assert found(store, tree) == [
        folder("/home/ada/again", "/opt/env/lib"),
        folder("/home/ada/env", "/opt/env"),
        file("/home/ada/program", "/opt/env/lib/os.py"),
    ]


def test_what_an_upper_layer_hides_is_not_there_and_empty_folders_need_not_be_seen(store: Store) -> None:
    lower = dict.fromkeys(("tmp/gone/x", "tmp/kept/x"), "x")
    assert found(store, lower, {"tmp/.wh.gone": "", "run/lock": None, "run/deep/deeper": None}) == [
        folder("/tmp/kept")
    ]


@pytest.mark.parametrize("home", ["/tmp/ada", "/tmp/deep/ada"])
def test_a_home_in_another_scratch_folder_is_looked_at_for_itself(store: Store, home: str) -> None:
    tree = dict.fromkeys(("tmp/x", "tmp/deep/y", f"{home[1:]}/env/lib"), "x")
    held = {each.path for each in found(store, tree, home=home)}
    assert held == {"/tmp/x", f"{home}/env", "/tmp/deep/y" if "deep" in home else "/tmp/deep"}


def test_a_scratch_folder_that_is_a_link_is_left_to_the_engine(store: Store) -> None:
    assert found(store, {"real/x": "x", "tmp": "-> real"}) == []
