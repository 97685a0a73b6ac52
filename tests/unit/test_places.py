"""Places for mounts in a flat tree: made where missing, never over what is there, never outside the tree."""

from pathlib import Path

import pytest

from bareboat.model import Mount
from bareboat_base.errors import PlanError
from bareboat_images.layers.places import check_stacked, make_mount_points
from bareboat_images.layers.view import View


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/passwd").write_text("root")
    return tree


def folder(target: str) -> Mount:
    return Mount(source="/", target=target)


def file(target: str) -> Mount:
    return Mount(source=__file__, target=target)


def test_what_is_missing_is_made_empty_as_its_source_is(tree: Path) -> None:
    make_mount_points(tree, [folder("/data/a b"), file("/opt/x/alone"), folder("/data")])
    assert list((tree / "data/a b").iterdir()) == []
    assert (tree / "opt/x/alone").read_bytes() == b""


def test_what_is_there_stays(tree: Path) -> None:
    before = (tree / "etc").stat().st_mtime_ns, (tree / "etc/passwd").stat()
    for _ in range(2):
        make_mount_points(tree, [file("/etc/passwd"), folder("/etc"), folder("/"), file("/etc/new")])
    assert (tree / "etc/passwd").read_text() == "root"
    assert (tree / "etc").stat().st_mtime_ns == before[0]
    assert (tree / "etc/passwd").stat().st_mtime_ns == before[1].st_mtime_ns


def test_links_within_the_image_are_followed(tree: Path) -> None:
    (tree / "usr/lib").mkdir(parents=True)
    (tree / "lib").symlink_to("usr/lib")
    (tree / "usr/up").symlink_to("../../..//../usr")
    make_mount_points(tree, [folder("/lib/data"), folder("/usr/up/lib/more")])
    assert (tree / "usr/lib/data").is_dir()
    assert (tree / "usr/lib/more").is_dir()


@pytest.mark.parametrize(
    "leads",
    ["../oldroot/x", "../../newroot/../oldroot/x", "usr/../../oldroot", "../newroot/usr/../../oldroot"],
)
def test_a_link_that_leads_to_the_host_while_an_engine_mounts_is_an_error(tree: Path, leads: str) -> None:
    (tree / "usr").mkdir()
    (tree / "out").symlink_to(leads)
    with pytest.raises(PlanError, match="leads to the host"):
        make_mount_points(tree, [folder("/out/new")])
    with pytest.raises(PlanError, match="leads to the host"):
        check_stacked(View([tree]), [folder("/out/new")])
    with pytest.raises(PlanError, match="leads to the host"):
        check_stacked(View([tree]), [folder("/../oldroot/new")])
    check_stacked(View([tree]), [folder("/usr/new"), folder("/none"), file("/usr/x")])


def test_a_link_that_leads_nowhere_gives_way(tree: Path, tmp_path: Path) -> None:
    (tree / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    (tree / "etc/hosts").symlink_to(tmp_path / "outside")
    make_mount_points(tree, [file("/etc/resolv.conf"), file("/etc/hosts")])
    for name in ("resolv.conf", "hosts"):
        assert not (tree / "etc" / name).is_symlink()
        assert (tree / "etc" / name).is_file()
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("target", ["/away", "/away/inner", "/loop/x"])
def test_a_link_out_of_the_image_is_an_error_that_names_it(tree: Path, target: str) -> None:
    (tree / "away").symlink_to("/etc")
    (tree / "loop").symlink_to("loop")
    with pytest.raises(PlanError, match="is a link to"):
        make_mount_points(tree, [folder(target)])


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        (folder("/etc/passwd"), "where the image has a file"),
        (file("/etc"), "where the image has a directory"),
        (folder("/etc/passwd/below"), "the image has a file on the way"),
    ],
)
def test_what_cannot_be_mounted_there_is_an_error(tree: Path, mount: Mount, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        make_mount_points(tree, [mount])


def test_a_folder_that_forbids_writing_takes_a_place_and_keeps_its_mode(tree: Path) -> None:
    (tree / "etc").chmod(0o555)
    make_mount_points(tree, [folder("/etc/sub/deep")])
    assert (tree / "etc/sub/deep").is_dir()
    assert (tree / "etc").stat().st_mode & 0o777 == 0o555
    (tree / "etc").chmod(0o755)
