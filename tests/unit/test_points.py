"""Mount points of containers in the foreground: paths without links, and the layer with missing ones."""

from pathlib import Path

import msgspec
import pytest
from builders import make_image, make_job, make_rootfs, make_site

from bareboat.deployment import points
from bareboat.engines import Container
from bareboat.model import Mount
from bareboat.plan import plan
from bareboat_images.layers.view import View
from bareboat_images.store import Store


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("dev", "proc", "sys", "etc", "tmp", "home", "run", "var", "srv/data"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    for name in ("hosts", "resolv.conf"):
        (tmp_path / "tree/etc" / name).touch()
    return tmp_path / "tree"


def found(tree: Path, *targets: str, home: str = "/home", source: str = "/") -> points.Points:
    mounts = tuple(Mount(source=source, target=target) for target in targets)
    container = Container(scratch=("/tmp",), home=home, mounts=mounts)
    return points.find(View([tree]), container)


def lacking(made: points.Points) -> list[str]:
    return [mount.target for mount in made.lacking]


def test_links_on_the_way_are_followed_within_the_image(tree: Path) -> None:
    (tree / "var/run").symlink_to("/run")
    (tree / "opt").symlink_to("../oldroot/opt")
    targets = ("/srv/data", "/var/run", "/var/run/a", "/opt/b", "/srv/../srv/c/")
    made = found(tree, *targets)
    assert [made.real[each] for each in targets] == ["/srv/data", "/run", "/run/a", "/opt/b", "/srv/c"]
    assert lacking(made) == ["/opt/b", "/srv/c"]


@pytest.mark.parametrize("writable", [True, False])
def test_a_job_s_mounts_behind_a_link_of_the_image_get_their_real_targets(tree: Path, writable: bool) -> None:
    """bwrap ends with "Can't mkdir /var/run/x: No such file or directory"."""
    (tree / "var/run").symlink_to("/run")
    (tree / "data").symlink_to("srv")
    mounts = tuple(Mount(source="/", target=target) for target in ("/var/run/x", "/data/in/", "/srv/y"))
    job = make_job(mounts=mounts, workdir="/data/w", writable=writable)
    real = {"/var/run/x": "/run/x", "/data/in/": "/srv/in", "/data/w": "/srv/w"}
    assert points.targets_of_job(View([tree]), job, make_site()) == real
    image = make_image()
    rootfs = msgspec.structs.replace(make_rootfs(image), targets=real)
    argv = plan(job, image, rootfs, make_site()).command.argv
    assert {"/run/x", "/srv/in", "/srv/w", "/srv/y"} < set(argv)
    assert not {"/var/run/x", "/data/in/"} & set(argv)
    assert argv[argv.index("--chdir") + 1] == "/data/w"


def test_points_in_other_mounts_are_not_the_image_s(tree: Path) -> None:
    (tree / "var/run").symlink_to("/run")
    (tree / "scratch").symlink_to("tmp")
    made = found(
        tree, "/srv", "/srv/data/a", "/run", "/var/run/x", "/dev/x", "/tmp/x", "/scratch/y", home="/srv/me"
    )
    assert lacking(made) == ["/srv/me"], "it is made before /srv is mounted"
    assert (made.real["/var/run/x"], made.real["/scratch/y"]) == ("/run/x", "/tmp/y")


def test_bwrap_makes_points_in_directories_of_its_user(tree: Path, tmp_path: Path) -> None:
    made = found(tree, "/mnt/deep")
    assert lacking(made) == ["/mnt/deep"]
    assert points.layer(Store(tmp_path / "store"), View([tree]), made.lacking) is None


def test_a_layer_has_what_bwrap_cannot_make(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, view = Store(tmp_path / "store"), View([tree])
    (tree / "away").symlink_to("no/where")
    (tree / "srv").chmod(0o1750)
    made = points.layer(store, view, found(tree, "/away/x").lacking)
    assert made is not None
    assert sorted(str(each.relative_to(made)) for each in Path(made).rglob("*")) == ["away", "away/x"]
    monkeypatch.setattr("os.getuid", lambda: 4711)
    there = [*found(tree, "/srv/data/x").lacking, *found(tree, "/srv/file", source=__file__).lacking]
    made = points.layer(store, view, there)
    assert made is not None
    modes = {str(each.relative_to(made)): oct(each.stat().st_mode) for each in Path(made).rglob("*")}
    assert modes == {"srv": "0o41750", "srv/data": "0o40755", "srv/data/x": "0o40755", "srv/file": "0o100644"}
    assert points.layer(store, view, there) == made
