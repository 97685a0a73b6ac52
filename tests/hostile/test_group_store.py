"""A group's store with two real users: images are shared, all else is private, and nothing goes by half."""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from images import tar
from stored import image_of
from strangers import remove_as_stranger, run_as_stranger

import bareboat_images
from bareboat import store_access
from bareboat.model import Image
from bareboat_base import digests
from bareboat_base.errors import StoreError
from bareboat_images.formats.flatten import make_flat
from bareboat_images.store import Store
from bareboat_images.upkeep import removal
from bareboat_images.upkeep.verification import verify


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bareboat-group-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    for path in [path for path in folder.rglob("*") if path.lstat().st_uid != os.getuid()]:
        if path.is_dir():
            remove_as_stranger(path)
    shutil.rmtree(folder)


@pytest.fixture
def shared(place: Path) -> Store:
    """A group's store, of the tester's own group, with one image in it."""
    root = place / "shared"
    store_access.make_group_store(root, os.getgid(), Store.VERSION)
    return Store(root, own=place / "own")


def put(store: Store, name: str = "app", **files: str) -> Image:
    image = image_of(store, {"etc/hello": "hello", "bin/x": "x", **files})
    store.put_image(image, manifest=b"{}", config=b"{}")
    store.name_image(name, image.digest)
    return image


def as_member(place: Path, *words: str | Path) -> tuple[int, str]:
    """`bareboat …` as the other member, with a home of their own."""
    done = run_as_stranger(
        'mkdir -p "$1/their"; export HOME=$1/their BAREBOAT_STORE=$1/shared;'
        ' unset XDG_CONFIG_HOME XDG_DATA_HOME; shift; python=$1; shift; "$python" -m bareboat "$@" 2>&1',
        place, sys.executable, *words,
        our_group=True,
    )  # fmt: skip
    assert "Traceback" not in done.stdout
    return done.returncode, done.stdout


def everything(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b""
        for path in sorted(root.rglob("*"))
        if "tmp" not in path.relative_to(root).parts[:1]
    }


def members_home(place: Path) -> None:
    place.chmod(0o1777)


@pytest.mark.parametrize("reference", ["app", "sha256:" + "a" * 64, "aaaaaa"])
@pytest.mark.parametrize("more_names", [0, 1])
def test_another_member_removes_all_or_nothing(
    reference: str, more_names: int, shared: Store, place: Path
) -> None:
    put(shared)
    for number in range(more_names):
        shared.name_image(f"other{number}", "sha256:" + "a" * 64)
    members_home(place)
    before = everything(shared.root)
    code, said = as_member(place, "image", "rm", reference)
    by_name = reference == "app" and more_names
    if by_name:  # a name is the group's, and the image stays
        assert code == 0, said
        assert set(before) - set(everything(shared.root)) == {"names/app"}
    else:
        assert code == 4, said
        assert "nothing was removed" in said
        assert "belongs to" in said
        assert everything(shared.root) == before
    assert shared.image("sha256:" + "a" * 64).layers


def test_another_member_changes_no_file_of_an_image(shared: Store, place: Path) -> None:
    """Whatever modes the image has: those are in the layer's recipe, and its digest stays."""
    modes = {"open": 0o777, "open/file": 0o666, "open/program": 0o775, "group": 0o2775, "group/file": 0o664}
    files: dict[str, bytes | str | None] = {name: b"1" if "/" in name else None for name in modes}
    (place / "root.tar").write_bytes(tar(files | {"usr": None}, modes=modes))
    image = bareboat_images.pull(f"rootfs:{place}/root.tar", shared)
    trees = [*shared.trees(image), make_flat(shared, image)]
    members_home(place)
    done = run_as_stranger(
        'for tree; do [ "$(cat "$tree/open/file" "$tree/group/file")" = 11 ]; '
        "for file in open/file open/program group/file open/new group/new; do "
        'if echo x 2>/dev/null >> "$tree/$file"; then echo "$file"; fi; done; '
        'if mv "$tree/open/file" "$tree/open/other" 2>/dev/null; then echo moved; fi; done',
        *trees,
        our_group=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert verify(shared, image).ok


def test_a_name_that_another_member_gave_is_replaced_only_by_force(shared: Store, place: Path) -> None:
    members_home(place)
    image = put(shared)
    other = "sha256:" + "b" * 64
    shared.name_image("stable", other)
    code, said = as_member(place, "image", "tag", "app", "theirs")
    assert (code, shared.names()["theirs"]) == (0, image.digest), said
    before = everything(shared.root)
    code, said = as_member(place, "image", "tag", "app", "stable")
    assert (code, "the name stable belongs to" in said, "try: choose another name" in said) == (4, True, True)
    assert everything(shared.root) == before
    code, said = as_member(place, "image", "tag", "app", "stable", "--force")
    assert (code, shared.names()["stable"]) == (0, image.digest), said


def test_who_made_it_removes_all_of_it(shared: Store) -> None:
    image = put(shared)
    assert removal.remove(shared, "app").image_gone
    assert not shared.layer_folder(image.layers[0].diff_id).exists()


def test_another_member_reads_images_and_collects_nothing_of_others(shared: Store, place: Path) -> None:
    put(shared)
    image_of(shared, {"unused": "layer"})
    members_home(place)
    before = everything(shared.root)
    code, said = as_member(place, "image", "ls")
    assert (code, "app" in said) == (0, True), said
    code, said = as_member(place, "image", "rm", "--unused")
    assert code == 0, said
    assert everything(shared.root) == before
    code, said = as_member(place, "config", "store")
    assert (code, "image store of the group" in said) == (0, True), said


def test_what_a_member_runs_stays_theirs(shared: Store, place: Path) -> None:
    run = shared.run(shared.new_run("mine"))
    shared.write(run / "ranks/job.sh", b"TOKEN=1")
    assert run.is_relative_to(place / "own")
    assert stat.S_IMODE((place / "own").stat().st_mode) == 0o700
    done = run_as_stranger('! cat "$1"', run / "ranks/job.sh", our_group=True)
    assert done.returncode == 0
    for path in (shared.program("x"), shared.site("x"), shared.mpi_checks(), shared.driver("x"),
                 shared.host_mpi("x"), shared.host_library("x"), shared.identity("x")):  # fmt: skip
        assert path.is_relative_to(place / "own")


MAKE = """
import sys
from pathlib import Path
from bareboat_base.host_files import Mount
from bareboat_images.formats.flatten import make_flat
from bareboat_images.store import Store
store = Store(Path(sys.argv[1]) / "shared", own=Path(sys.argv[1]) / "their")
image = store.image("app")
print(make_flat(store, image, [Mount(source="/proc", target="/their")]), store.roots(image.digest))
"""


@pytest.mark.parametrize("first", ["the other member", "who pulled it", "the other member, by hand"])
def test_what_another_member_makes_of_an_image_is_used_by_them_alone(
    first: str, shared: Store, place: Path
) -> None:
    image = put(shared)
    members_home(place)
    if first == "who pulled it":
        make_flat(shared, image)
    planted = shared.root / "flat" / digests.place(image.digest)
    if first == "the other member, by hand":
        run_as_stranger('mkdir -p "$1/bin"', planted, our_group=True)
    done = run_as_stranger('mkdir "$1/their"; "$2" -c "$3" "$1"', place, sys.executable, MAKE, our_group=True)
    flat, roots = map(Path, done.stdout.split())
    assert flat.is_relative_to(place / ("shared" if first == "who pulled it" else "their")), done.stderr
    assert roots.is_relative_to(place / "their")
    assert make_flat(shared, image).stat().st_uid == os.getuid()
    assert removal.remove(shared, "app").image_gone
    run_as_stranger('rm -rf "$1"', planted, our_group=True)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o007, 0o000])
def test_the_group_reads_what_is_published_whatever_the_umask(umask: int, shared: Store, place: Path) -> None:
    old = os.umask(umask)
    try:
        put(shared)
    finally:
        os.umask(old)
    members_home(place)
    code, said = as_member(place, "image", "show", "app")
    assert code == 0, said
    # No other user gets in.
    assert run_as_stranger('! ls "$1"', shared.root).returncode == 0


@pytest.mark.parametrize("name", ["programs", "sites", "runs"])
def test_what_is_planted_in_a_group_store_is_not_looked_at(name: str, shared: Store) -> None:
    """Not even by the group store's owner."""
    (shared.root / name / "planted").mkdir(parents=True)
    (shared.root / name / "planted/record.json").write_text("{}")
    assert shared.runs() == []


def test_a_group_store_in_a_directory_of_every_user_is_refused(tmp_path: Path) -> None:
    """Who can write there puts another store in its place."""
    root = tmp_path / "open/inner/store"
    root.mkdir(parents=True, mode=0o750)
    (root / store_access.MARK).touch()
    own = tmp_path / "own"
    assert store_access.admit(root, {}, lambda: own) == own
    for mode, refused in ((0o1777, False), (0o777, True), (0o770, False)):
        (tmp_path / "open").chmod(mode)
        if not refused:
            assert store_access.admit(root, {}, lambda: own) == own
            continue
        with pytest.raises(StoreError, match="every user can put another in its place") as caught:
            store_access.admit(root, {}, lambda: own)
        assert f"chmod o-w {tmp_path}/open" in caught.value.remedy


@pytest.mark.parametrize("mode", [0o2770, 0o2777, 0o770, 0o3777])
def test_a_group_store_whose_root_others_may_write_is_refused(mode: int, shared: Store, place: Path) -> None:
    shared.root.chmod(mode)
    with pytest.raises(StoreError, match="has unsafe permissions"):
        store_access.admit(shared.root, {"HOME": str(place)}, lambda: place / "own")
    store_access.make_group_store(shared.root, os.getgid(), Store.VERSION)
    assert store_access.admit(shared.root, {"HOME": str(place)}, lambda: place / "own") == place / "own"


def test_a_group_store_is_made_in_an_empty_directory_only(place: Path) -> None:
    (place / "full").mkdir()
    (place / "full/x").touch()
    with pytest.raises(StoreError, match="is not empty"):
        store_access.make_group_store(place / "full", os.getgid(), Store.VERSION)
    assert sorted(os.listdir(place / "full")) == ["x"]


def test_a_group_of_which_one_is_no_member_is_refused(shared: Store, place: Path) -> None:
    members_home(place)
    shared.root.chmod(0o2755)
    done = run_as_stranger(
        'export HOME=$1/their BAREBOAT_STORE=$1/shared; mkdir "$HOME"; unset XDG_CONFIG_HOME XDG_DATA_HOME;'
        ' "$2" -m bareboat image ls 2>&1',
        place, sys.executable,
    )  # fmt: skip
    assert (done.returncode, "you are not a member" in done.stdout) == (4, True), done.stdout


def test_a_job_that_may_write_where_the_own_store_lies_cannot_write_to_it(shared: Store, place: Path) -> None:
    """The group's store lies elsewhere; what the host starts is in the user's own."""
    from builders import make_job, make_site

    from bareboat.deployment.present import present

    image = put(shared)
    shared.new_run("x")  # makes the own store
    home = place / "home"
    home.mkdir()
    os.rename(place / "own", home / "own")
    store = Store(shared.root, own=home / "own")
    found = present(store, image, make_site(), make_job(workdir=str(home)))
    assert found.exposed == {str(home): "own"}


@pytest.mark.parametrize("name", ["7768512f4737", "aaaaaa", "decade", "a" * 64, "sha256:aaaaaa"])
def test_a_name_that_could_begin_a_digest_is_refused(name: str, shared: Store, place: Path) -> None:
    """Whoever types the digits means the image with that digest."""
    put(shared)
    members_home(place)
    code, said = as_member(place, "image", "tag", "app", name)
    assert (code, "could be the beginning of an image's digest" in said) == (2, True), said
    assert set(shared.names()) == {"app"}


@pytest.mark.parametrize("verb", [("show",), ("verify",), ("show", "--history"), ("rm",)])
@pytest.mark.parametrize("is_pulled", [True, False])
def test_a_planted_name_never_hides_an_image(
    verb: tuple[str, ...], is_pulled: bool, shared: Store, place: Path
) -> None:
    """Also before the image with those digits is in the store."""
    image = put(shared)
    digits = "aaaaaaaaaaaa" if is_pulled else "7768512f4737"
    planted = shared.root / "names" / digits
    planted.write_text("sha256:" + "b" * 64 if is_pulled else image.digest)
    planted.chmod(0o664)
    members_home(place)
    before = everything(shared.root)
    code, said = as_member(place, "image", *verb, digits)
    if verb == ("rm",) and not is_pulled:  # only a name, and what it names belongs to another
        assert code == 0, said
        return
    assert code in (2, 4), said
    assert f"rm {planted}" in said
    assert everything(shared.root) == before


def test_digits_of_two_images_are_not_looked_up_in_a_registry(shared: Store, place: Path) -> None:
    image = put(shared)
    twin = "sha256:" + "a" * 63 + "b"
    shared.write(shared.entry(twin), shared.entry(image.digest).read_bytes())
    members_home(place)
    code, said = as_member(place, "plan", "--image", "aaaaaa", "--", "true")
    assert (code, "2 images in the store" in said) == (4, True), said
