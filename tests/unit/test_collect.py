"""What is collected of a tree: which paths, of what kind, and what is left out. Nothing is copied here."""

from pathlib import Path

import pytest

from bareboat.captures.collect import Collection, Part
from bareboat_base.errors import UsageError


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Where a test makes its tree."""
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / "private").mkdir(parents=True)
    (folder / "private" / "key").write_text("secret")
    monkeypatch.setenv("HOME", str(folder))
    return folder


def collect(*paths: Path, without: frozenset[str] = frozenset()) -> Collection:
    collection = Collection()
    for path in paths:
        collection.add(str(path), Part.PACKAGES, without=without)
    collection.follow_links()
    collection.check_readable()
    return collection


def below(collection: Collection, folder: Path) -> dict[str, str]:
    """Path below the folder -> kind."""
    start = f"{folder}/"
    return {p.removeprefix(start): i.kind for p, i in collection.items.items() if p.startswith(start)}


@pytest.mark.parametrize(
    "loop", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "../tree/a"}, {"a": "."}, {"a": ".."}]
)
def test_loops_of_links_end(top: Path, loop: dict[str, str]) -> None:
    for name, target in loop.items():
        (top / name).symlink_to(target)
    (top / "file").write_text("x")
    found = below(collect(top), top)
    assert found == {**dict.fromkeys(loop, "link"), "file": "file"}


def test_a_path_that_is_a_loop_is_one_clear_error(top: Path) -> None:
    (top / "a").symlink_to("b")
    (top / "b").symlink_to("a")
    with pytest.raises(UsageError, match="too many symbolic links") as caught:
        collect(top / "a")
    assert caught.value.remedy.startswith("ls -l ")


def test_a_link_through_another_link_leads_where_the_kernel_says(top: Path, tmp_path: Path) -> None:
    """`door/../file` is beside what `door` leads to, not beside `door`."""
    (tmp_path / "far" / "room").mkdir(parents=True)
    (tmp_path / "far" / "file").write_text("the right one")
    (tmp_path / "file").write_text("the wrong one")
    (top / "door").symlink_to(tmp_path / "far" / "room")
    (top / "link").symlink_to("door/../file")
    assert (top / "link").read_text() == "the right one"
    found = collect(top)
    assert str(tmp_path / "far" / "file") in found.items
    assert str(tmp_path / "file") not in found.items


@pytest.mark.parametrize("target", ["/", "/home", "/tmp", "/usr", "/etc", "/dev", "/proc", "/sys"])
def test_links_to_the_machine_s_own_folders_are_not_followed(top: Path, target: str) -> None:
    (top / "link").symlink_to(target)
    found = collect(top)
    assert below(found, top) == {"link": "link"}
    assert set(found.items) == {str(top / "link"), str(top)}
    assert len(found.left_out) == 1
    assert f" {target} is too wide" in found.left_out[0]


@pytest.mark.parametrize("target", ["/proc/self", "/proc/cpuinfo", "/sys/kernel", "/dev/null", "/dev/shm"])
def test_what_the_kernel_shows_is_left_out(top: Path, target: str) -> None:
    (top / "link").symlink_to(target)
    found = collect(top)
    assert [
        p for p, i in found.items.items() if p.startswith(("/proc/", "/sys/", "/dev/")) and i.kind != "link"
    ] == []
    assert len(found.left_out) == 1
    assert "is the kernel's" in found.left_out[0]


@pytest.mark.parametrize("name", [".git", ".hg", ".mypy_cache", ".pytest_cache", ".ruff_cache"])
def test_what_no_program_needs_is_left_out(top: Path, name: str) -> None:
    (top / "sub" / name).mkdir(parents=True)
    (top / "sub" / name / "file").write_text("x")
    (top / "sub" / f"{name}x").write_text("x")
    assert set(below(collect(top), top)) == {"sub", f"sub/{name}x"}


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("libcuda.so.1", True), ("libcuda.so.550.54", True), ("libnvidia-ml.so.1", True),
        ("libnvoptix.so", True), ("libcudart.so.12", False), ("libcudnn.so.9", False),
        ("libnvidia.txt", False), ("mylibcuda.so.1", False),
    ],
)  # fmt: skip
def test_the_gpu_driver_s_libraries_are_left_out(top: Path, name: str, left_out: bool) -> None:
    (top / name).write_text("x")
    found = collect(top)
    assert (str(top / name) not in found.items) == left_out
    assert len(found.left_out) == left_out


def test_named_folders_are_left_out_at_the_top_only(top: Path) -> None:
    for path in ("test/a", "sub/test/b", "site-packages/c"):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text("x")
    found = below(collect(top, without=frozenset({"test", "site-packages"})), top)
    assert set(found) == {"sub", "sub/test", "sub/test/b"}


def test_a_path_keeps_the_layer_that_it_was_given_to_first(top: Path) -> None:
    (top / "file").write_text("x")
    collection = Collection()
    collection.add(str(top / "file"), Part.SYSTEM)
    collection.add(str(top), Part.PACKAGES)
    assert collection.items[str(top / "file")].part is Part.SYSTEM


def test_a_path_that_goes_between_the_look_and_the_walk_is_one_clear_error(top: Path) -> None:
    with pytest.raises(UsageError, match="changed or vanished") as caught:
        collect(top / "nothing")
    assert "capture again" in caught.value.remedy
