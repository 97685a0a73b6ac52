"""Layers made to harm: nothing is written outside, and the message names the layer and the entry."""

import gzip
import os
import resource
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tars
import zstandard
from tars import archive, file, folder, hardlink, long_name, pax, symlink, unpack_bytes
from tools import completed

from bareboat_base.errors import ImageError
from bareboat_base.files.trees import remove_tree
from bareboat_images.formats.flatten import flatten
from bareboat_images.layers.tar_split import rebuild
from bareboat_images.layers.unpack import Unpacked
from bareboat_images.tar.limits import Limits

LAYER = "layer 3 (sha256:abc)"

#: Fewer than the 10^6 of the story, so that the test takes seconds; memory is what is looked at.
MANY = 30_000


class Site:
    """A folder to unpack into, beside things that must stay as they are."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.tree = top / "store" / "tree"
        self.tree.mkdir(parents=True)
        self.outside = top / "outside"
        self.outside.mkdir()
        (self.outside / "victim").write_text("untouched")
        (self.outside / "folder").mkdir()
        (self.outside / "folder" / "inside").write_text("untouched")
        self._before = self._look()

    def _look(self) -> dict[str, tuple[int, int, int]]:
        # The recipe may be there; the folder that holds the tree changes for it.
        return {
            path: what
            for path, what in tars.snapshot(self.top, but=[self.tree]).items()
            if not path.endswith(("/recipe", "/store"))
        }

    def unpack(self, data: bytes, limits: Limits | None = None) -> Unpacked:
        """Unpack with a recipe, and see that the tar comes out again, and that nothing else changed."""
        recipe = self.top / "store" / "recipe"
        try:
            found = unpack_bytes(data, self.tree, limits=limits, recipe=recipe, name=LAYER)
        finally:
            assert self._look() == self._before
            for link in self.outside.rglob("*"):
                assert link.lstat().st_nlink <= 2
            assert (self.outside / "victim").stat().st_nlink == 1
        if found.rebuildable:
            assert rebuild(self.tree, recipe, lambda _: None) == found.diff_id
        assert found.inodes == tars.inodes(self.tree)
        return found

    def refuse(self, data: bytes, entry: str, reason: str = "", limits: Limits | None = None) -> ImageError:
        with pytest.raises(ImageError) as caught:
            self.unpack(data, limits)
        message = caught.value.message
        assert LAYER in message
        assert entry in message
        assert reason in message
        assert caught.value.remedy
        assert message.isprintable()
        return caught.value


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    yield Site(tmp_path)
    remove_tree(tmp_path)  # pytest's own clean-up would recurse into the deep ones


#: What is in a layer -> the entry that the message names, and the reason.
REFUSED: dict[str, tuple[bytes, str, str]] = {
    "prefix that leads out": (archive(tars.header(b"out", prefix=b"..")), "../out", "leads out"),
    "sparse name that leads out": (
        archive(
            pax((b"GNU.sparse.name", b"../out"), (b"GNU.sparse.size", b"0"), (b"GNU.sparse.map", b"")),
            file(b"innocent"),
        ),
        "../out", "leads out",
    ),
    "hard link to what the layer lacks": (
        archive(hardlink(b"h", b"usr/bin/perl")), "h is a hard link to usr/bin/perl", "does not have"
    ),
    "hard link to a later entry": (
        archive(hardlink(b"h", b"later"), file(b"later")), "h is a hard link to later", ""
    ),
    "hard link to a folder": (
        archive(folder(b"d/"), hardlink(b"d/h", b"d")), "d/h is a hard link to the directory d", ""
    ),
    "hard link to nothing": (archive(hardlink(b"h", b"/")), "h is a hard link to /", ""),
    "hard link in place of the folder of its target": (
        archive(file(b"d/f"), hardlink(b"d", b"d/f")), "d is a hard link to d/f", ""
    ),
    "hard link to a whiteout": (
        archive(file(b".wh.gone"), hardlink(b"h", b"gone")), "h is a hard link to gone", ""
    ),
    "entries below a whiteout": (archive(file(b".wh.d/f")), ".wh.d/f", "lies below a whiteout"),
    "entry below a file": (archive(file(b"a"), file(b"a/b/c")), "a/b", "lies below a"),
    "link to nothing": (archive(symlink(b"l", b"")), "l is a symbolic link to nothing", ""),
    "link text too long": (
        archive(long_name(b"t" * 5000, b"K") + symlink(b"l", b"x")),
        "the entry l cannot be unpacked", "too long",
    ),
    "claimed size of a pax header": (
        pax((b"size", b"99999999999999999999")) + file(b"huge", b"x"), "huge", "ends in the middle of a file"
    ),
    "claimed size beyond any number": (
        archive(pax((b"size", b"9" * 5000)) + file(b"huge", b"x")), "huge", "no number"
    ),
    "damage after an entry": (
        archive(file(b"good", b"x"), b"\xff" * 512), "at or after the entry good", "checksum"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_layer_with_this_is_refused(site: Site, what: str) -> None:
    site.refuse(*REFUSED[what])


# Names that lead out.


@pytest.mark.parametrize(
    "name",
    [
        b"../out", b"../../outside/victim", b"a/../../out", b"./../out", b"/../out", b"//../out", b"..",
        b"../", b"a/./../../out", b"a/b/../../../out", b"...//../../out",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [b"0", b"5", b"2", b"1", b"6", b"3"])
def test_names_that_lead_out_are_refused(site: Site, name: bytes, kind: bytes) -> None:
    data = archive(file(b"first"), tars.header(name, kind=kind, link=b"first"))
    site.refuse(data, name.decode(), "leads out of the image")


@pytest.mark.parametrize("pack", [long_name, lambda name: pax((b"path", name))])
def test_long_names_that_lead_out_are_refused(site: Site, pack: Callable[[bytes], bytes]) -> None:
    name = b"x/" * 200 + b"../" * 201 + b"out"
    site.refuse(archive(pack(name) + file(b"innocent")), "x/x/", "leads out of the image")


def test_absolute_names_stay_inside(site: Site) -> None:
    victim = os.fsencode(site.outside / "victim")
    site.unpack(archive(file(victim, b"inside"), folder(b"/etc/"), file(b"/etc/passwd", b"ours")))
    assert (site.tree / "etc/passwd").read_bytes() == b"ours"
    assert (site.tree / os.fsdecode(victim.lstrip(b"/"))).read_bytes() == b"inside"


# Links that lead out, in every order.


@pytest.mark.parametrize("where", ["absolute", "relative", "chain", "folder over", "through two"])
@pytest.mark.parametrize("what", ["file", "folder", "link", "hard link", "pipe", "whiteout", "opaque"])
def test_nothing_is_made_through_a_link_that_leads_out(site: Site, where: str, what: str) -> None:
    outside = os.fsencode(site.outside)
    up = b"../" * 20 + outside.lstrip(b"/")
    entries = {
        "absolute": [symlink(b"l", outside)],
        "relative": [symlink(b"l", up)] if len(up) < 100 else [long_name(up, b"K") + symlink(b"l", b"")],
        "chain": [symlink(b"k", outside), symlink(b"l", b"k")],
        "folder over": [folder(b"l/"), symlink(b"l", outside)],
        "through two": [
            folder(b"d/"),
            symlink(b"d/m", b".."),
            symlink(b"k", outside),
            symlink(b"l", b"d/m/k"),
        ],
    }[where]
    entries.append(file(b"own", b"ours"))
    entries += {
        "file": [file(b"l/victim", b"harm"), file(b"l/new", b"harm")],
        "folder": [folder(b"l/folder/", 0o777), folder(b"l/new/", 0o777), file(b"l/folder/inside", b"harm")],
        "link": [symlink(b"l/victim", b"harm")],
        "hard link": [hardlink(b"l/victim", b"own")],
        "pipe": [tars.header(b"l/victim", kind=b"6")],
        "whiteout": [file(b"l/.wh.victim"), file(b"l/.wh.folder")],
        "opaque": [file(b"l/.wh..wh..opq"), file(b"l/folder/.wh..wh..opq")],
    }[what]
    site.unpack(archive(*entries))
    assert (site.outside / "victim").read_text() == "untouched"


@pytest.mark.parametrize("target", [b"/outside/victim", b"../../outside/victim", b"..", b"/..", b"l/victim"])
def test_hard_links_to_what_is_outside_are_refused(site: Site, target: bytes) -> None:
    data = archive(symlink(b"l", os.fsencode(site.outside)), hardlink(b"h", target), file(b"h", b"harm"))
    site.refuse(data, "h")


def test_hard_link_through_a_link_that_leads_out_is_refused(site: Site) -> None:
    outside = os.fsencode(site.outside)
    data = archive(symlink(b"l", outside), hardlink(b"h", b"l/victim"))
    site.refuse(data, "the entry h is a hard link to l/victim", "does not have")
    data = archive(symlink(b"s", outside + b"/victim"), hardlink(b"h2", b"s"), file(b"h2", b"harm"))
    site.tree = site.top / "store" / "tree2"
    site.tree.mkdir()
    (site.top / "store" / "recipe").unlink()
    assert_unchanged = (site.outside / "victim").read_text()
    unpack_bytes(data, site.tree)
    assert (site.outside / "victim").read_text() == assert_unchanged == "untouched"


@pytest.mark.parametrize(
    "target", [b"/nowhere/at/all", b"dangling", b"/", b".", b"..", b"l", b"/proc/self/root"]
)
def test_links_of_all_kinds_are_kept_as_text(site: Site, target: bytes) -> None:
    site.unpack(archive(symlink(b"l", target), file(b"after")))
    assert os.readlink(site.tree / "l") == target.decode()


def test_file_through_a_dangling_link_is_made_inside(site: Site) -> None:
    site.unpack(archive(symlink(b"l", b"/not/there"), file(b"l/f", b"x")))
    assert (site.tree / "not/there/f").read_bytes() == b"x"


def test_file_over_a_link_takes_its_place(site: Site) -> None:
    site.unpack(archive(symlink(b"l", os.fsencode(site.outside / "victim")), file(b"l", b"harm")))
    assert (site.tree / "l").read_bytes() == b"harm"
    assert not (site.tree / "l").is_symlink()


@pytest.mark.parametrize(
    "entries",
    [
        [symlink(b"a", b"b"), symlink(b"b", b"a"), file(b"a/f")],
        [symlink(b"a", b"a"), file(b"a/f")],
        [symlink(b"a", b"a/a"), file(b"a/f")],
        [*(symlink(b"l%d" % n, b"l%d/l%d" % (n + 1, n + 1)) for n in range(60)), file(b"l0/f")],
    ],
)
def test_loops_of_links_are_refused(site: Site, entries: list[bytes]) -> None:
    site.refuse(archive(*entries), "/f cannot be unpacked", "symbolic links")


def test_many_links_in_a_row_do_not_take_long(site: Site) -> None:
    entries = [folder(b"d/"), long_name(b"d/../" * 800 + b"d", b"K") + symlink(b"l0", b"x")]
    entries += [
        long_name(b"d/../" * 800 + b"l%d" % n, b"K") + symlink(b"l%d" % (n + 1), b"x") for n in range(30)
    ]
    entries += [file(b"l30/f%d" % number + b"/x") for number in range(300)]
    began = time.process_time()
    site.unpack(archive(*entries))
    assert time.process_time() - began < 30, "unpacking has followed each link anew"
    assert len(os.listdir(site.tree / "d")) == 300


def test_links_swapped_under_the_unpacker_change_nothing(site: Site) -> None:
    outside = os.fsencode(site.outside)
    entries = []
    for _ in range(20):
        entries += [
            folder(b"d/"),
            file(b"d/victim", b"x"),
            symlink(b"d", outside),
            file(b"d/victim", b"harm"),
        ]
        entries += [file(b"d/folder/inside", b"harm"), file(b"d"), folder(b"d/")]
    site.unpack(archive(*entries))
    assert (site.tree / "d").is_dir()


def test_entry_after_a_replaced_folder_goes_to_the_new_one(site: Site) -> None:
    site.unpack(
        archive(
            folder(b"d/"), file(b"d/f1"), file(b"d", b"x"), folder(b"d/"), file(b"d/f2"), symlink(b"e", b"d"),
            file(b"e/f3"), folder(b"e/"), file(b"e/f4"), symlink(b"e", b"d"), file(b"e/f5"),
        )
    )  # fmt: skip
    assert sorted(os.listdir(site.tree / "d")) == ["f2", "f3", "f5"]
    assert (site.tree / "e").is_symlink()


# Whiteouts.


@pytest.mark.parametrize("name", [b".wh.", b".wh..", b".wh...", b"d/.wh..", b"d/.wh...", b"d/.wh."])
def test_whiteouts_of_folders_above_are_refused(site: Site, name: bytes) -> None:
    site.refuse(archive(file(b"d/f"), file(name)), name.decode(), "whiteout of what is no entry")


@pytest.mark.parametrize("name", [b"../.wh.victim", b"../../outside/.wh.victim", b"/../.wh..wh..opq"])
def test_whiteouts_of_things_outside_are_refused(site: Site, name: bytes) -> None:
    site.refuse(archive(file(name)), name.decode(), "leads out")


def test_whiteout_does_not_reach_through_a_flat_tree(site: Site) -> None:
    """Marker files with bad names, as a tree made by other hands might have."""
    low, high = site.tree / "low", site.tree / "high"
    for layer in (low, high):
        layer.mkdir()
    (low / "a").write_text("a")
    for name in (".wh.", ".wh..", ".wh..."):
        (high / name).touch()
    before = site._look()
    flatten([low, high], site.tree / "flat")
    assert site._look() == before
    assert os.listdir(site.tree / "flat") == ["a"]


def test_flat_tree_is_not_made_through_links(site: Site) -> None:
    low, high = site.tree / "low", site.tree / "high"
    unpack_bytes(archive(symlink(b"d", os.fsencode(site.outside)), file(b"own")), low)
    unpack_bytes(archive(file(b"d/victim", b"harm"), file(b"d/.wh.folder"), file(b"e")), high)
    before = site._look()
    flatten([low, high, low, high], site.tree / "flat")
    assert site._look() == before
    assert (site.tree / "flat/d/victim").read_bytes() == b"harm"
    assert (site.outside / "victim").read_text() == "untouched"


@pytest.mark.parametrize("key", [b"opaque", b"redirect", b"metacopy", b"whiteout", b"origin"])
def test_layer_cannot_give_orders_to_overlayfs(site: Site, key: bytes) -> None:
    attribute = pax((b"SCHILY.xattr.user.overlay." + key, b"/etc"))
    found = site.unpack(archive(attribute + folder(b"d/"), attribute + file(b"f")))
    for name in ("d", "f"):
        assert os.listxattr(site.tree / name) == []
    assert "user.overlay." in found.notes[0]


# What entries are.


def test_device_nodes_are_left_out(site: Site) -> None:
    devices = [
        tars.header(b"dev/%s" % name, kind=kind) for name in (b"sda", b"null") for kind in (b"3", b"4")
    ]
    found = site.unpack(archive(*devices, file(b"dev/.wh..wh.x"), file(b"f")))
    assert [path for path in tars.tree(site.tree) if path != b"f"] == []
    assert "device nodes" in found.notes[0]


def test_pipe_is_not_waited_for(site: Site) -> None:
    site.unpack(
        archive(tars.header(b"p", kind=b"6"), hardlink(b"q", b"p"), file(b"p", b"x"), file(b"q/..", b"")[:0])
    )
    assert (site.tree / "p").read_bytes() == b"x"
    assert stat.S_ISFIFO((site.tree / "q").lstat().st_mode)


def test_rights_of_the_user_are_not_given_away(site: Site) -> None:
    site.unpack(
        archive(
            file(b"su", b"x", mode=0o6777), folder(b"d/", 0o7777), tars.header(b"p", kind=b"6", mode=0o7777)
        )
    )
    for name in ("su", "d", "p"):
        assert not (site.tree / name).lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)


def test_tree_can_be_read_and_removed_by_its_owner(site: Site) -> None:
    site.unpack(archive(folder(b"./", 0), folder(b"d/", 0), folder(b"d/e/", 0o111), file(b"d/e/f", mode=0)))
    for path in (site.tree / "d", site.tree / "d/e"):
        assert path.stat().st_mode & 0o700 == 0o500
    assert (site.tree / "d/e/f").read_bytes() == b""
    site.tree.rename(site.tree.with_name("aside"))  # into another directory only if its owner may write to it
    remove_tree(site.tree.with_name("aside"))
    assert not site.tree.with_name("aside").exists()


@pytest.mark.parametrize("name", [b"", b".", b"/", b"./", b"//"])
@pytest.mark.parametrize("kind", [b"0", b"2", b"1", b"6"])
def test_root_cannot_be_replaced(site: Site, name: bytes, kind: bytes) -> None:
    site.refuse(archive(file(b"f"), tars.header(name, kind=kind, link=b"f")), "has no name")


# Names.


@pytest.mark.parametrize(
    "name",
    [
        b"a\nb", b"\xff\xfe\x80", b" ", b"-rf", b"$(touch owned)", b"\x1b[31mred", b"x" * 255, b"\\", b"*",
        b"\r", "e\u0301".encode(), "\u202etxt.exe".encode(), b"con", b"\x7f", b"~", b"%s%n",
    ],
)  # fmt: skip
def test_odd_names_are_kept(site: Site, name: bytes) -> None:
    site.unpack(archive(long_name(name) + file(b"x", b"data"), long_name(b"d/" + name) + symlink(b"x", b"t")))
    assert (site.tree / os.fsdecode(name)).read_bytes() == b"data"


def test_twins_in_case_and_form_are_two(site: Site) -> None:
    twins = [b"README", b"readme", "\u00e9".encode(), "e\u0301".encode()]
    site.unpack(archive(*(file(name, name) for name in twins)))
    assert {path.read_bytes() for path in site.tree.iterdir()} == set(twins)


@pytest.mark.parametrize("name", [b"y" * 256, b"d/" * 2100 + b"f", b"z" * 100_000, b"l/" + b"y" * 256])
@pytest.mark.parametrize("kind", [b"0", b"5", b"2", b"6"])
def test_names_too_long_for_the_file_system_are_refused(site: Site, name: bytes, kind: bytes) -> None:
    data = archive(long_name(name) + tars.header(b"x", kind=kind, link=b"t"))
    site.refuse(data, name[:20].decode(), "too long")


def test_message_does_not_carry_a_name_to_the_terminal(site: Site) -> None:
    error = site.refuse(archive(file(b"../\x1b]0;owned\x07\n\xff")), "\\x1b]0;owned\\x07\\n\\xff")
    assert "\x1b" not in f"{error}{error.context}{error.remedy}"


def test_message_is_short_for_a_long_name(site: Site) -> None:
    assert len(site.refuse(archive(long_name(b"../" + b"x" * 200_000) + file(b"f")), "xxx").message) < 400


# Sizes.


@pytest.mark.parametrize("claimed", [1 << 40, 1 << 62, (1 << 63) - 1])
def test_claimed_size_is_not_believed(site: Site, claimed: int) -> None:
    head = tars.header(b"huge", size_field=b"\x80" + claimed.to_bytes(11, "big"))
    site.refuse(file(b"first") + head + b"x" * 5000, "huge", "ends in the middle of a file")
    assert (site.tree / "huge").stat().st_blocks * 512 <= 1 << 16


@pytest.mark.parametrize("size", [b"9000000000000000000", b"4500000000000"])
def test_sparse_file_of_impossible_size_is_refused(site: Site, size: bytes) -> None:
    data = pax((b"GNU.sparse.size", size), (b"GNU.sparse.map", b"0,1")) + file(b"huge", b"x")
    error = site.refuse(archive(data), "huge", "bytes allowed")
    assert "--max-unpacked" in error.remedy


def test_sparse_file_of_a_terabyte_takes_no_room(site: Site) -> None:
    data = pax((b"GNU.sparse.size", b"%d" % (1 << 40)), (b"GNU.sparse.map", b"0,1")) + file(b"log", b"x")
    found = tars.attempt(archive(data), site.tree)
    if isinstance(found, ImageError):  # a file system whose files cannot be so large says so, by the entry
        assert "log" in found.message
        return
    assert found.unpacked_bytes == 1 << 40
    assert (site.tree / "log").stat().st_blocks * 512 <= 1 << 20


def test_many_sparse_files_count_together(site: Site) -> None:
    sparse = [
        pax((b"GNU.sparse.size", b"%d" % (1 << 36)), (b"GNU.sparse.map", b"")) + file(b"log%d" % n)
        for n in range(10)
    ]
    site.refuse(archive(*sparse), "log", "bytes allowed", Limits(max_unpacked_bytes=1 << 38))


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, zstandard.compress, lambda data: gzip.compress(data[: len(data) // 2]) * 2],
    ids=["gzip", "zstd", "members"],
)
def test_decompression_bombs_are_stopped(site: Site, pack: Callable[[bytes], bytes]) -> None:
    bomb = pack(archive(file(b"zeros", bytes(300_000_000))))
    error = site.refuse(bomb, "decompression bomb", limits=Limits(max_ratio=900))
    assert "--max-ratio 9000" in error.remedy
    assert sum(path.stat().st_size for path in site.tree.iterdir()) <= 150_000_000


def test_bomb_behind_the_end_is_stopped(site: Site) -> None:
    bomb = zstandard.compress(archive(file(b"f")) + bytes(300_000_000))
    site.refuse(bomb, "decompression bomb")


def test_layer_larger_than_allowed_is_stopped(site: Site) -> None:
    data = archive(*(file(b"f%d" % number, os.urandom(100_000)) for number in range(30)))
    error = site.refuse(data, "1,000,000 bytes allowed", limits=Limits(max_unpacked_bytes=1_000_000))
    assert "--max-unpacked" in error.remedy


def test_too_many_entries_are_stopped(site: Site) -> None:
    data = archive(*(file(b"f%d" % number) for number in range(3000)))
    error = site.refuse(data, "2,000 entries", limits=Limits(max_entries=2000))
    assert "--max-entries" in error.remedy
    assert len(os.listdir(site.tree)) <= 2000


@pytest.mark.thorough
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "what", ["files", "folders", "links", "headers", "replaced", "members", "long", "deep"]
)
def test_memory_stays_small_whatever_there_is_many_of(tmp_path: Path, what: str) -> None:
    """In a process of its own, whose whole memory is bounded."""
    script = textwrap.dedent(f"""
        import gzip, itertools, resource, sys
        sys.path.insert(0, {str(Path(tars.__file__).parent)!r})
        from pathlib import Path
        import tars
        from bareboat_images.tar.limits import Limits
        from bareboat_images.layers.unpack import unpack
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        many = {MANY}
        entries = {{
            "files": lambda n: tars.file(b"%d/f%d" % (n % 100, n), b"x"),
            "folders": lambda n: tars.folder(b"%d/folder/of/a/long/name/%d" % (n % 50, n)),
            "links": lambda n: tars.hardlink(b"h%d" % n, b"first"),
            "headers": lambda n: tars.pax((b"comment", b"x" * 5000)) + tars.symlink(b"s", b"t"),
            "replaced": lambda n: tars.file(b"same", b"%d" % n),
            "members": lambda n: tars.file(b"f%d" % n, b"y"),
            "long": lambda n: tars.long_name(b"l" * 200 + b"/" + b"%d" % n + b"m" * 200) + tars.folder(b"x"),
            "deep": lambda n: tars.long_name(b"/".join([b"%d" % (n % 7)] * 1000)) + tars.folder(b"x"),
        }}[{what!r}]
        pack = gzip.compress if {what!r} == "members" else bytes
        if {what!r} in ("headers", "deep", "replaced", "long"):
            many //= 10
        def chunks():
            yield pack(tars.file(b"first"))
            for start in range(0, many, 50 if {what!r} == "members" else 500):
                for n in range(start, start + (50 if {what!r} == "members" else 500)):
                    if {what!r} == "members":
                        yield pack(entries(n))
                if {what!r} != "members":
                    yield b"".join(map(entries, range(start, start + 500)))
            yield pack(bytes(1024))
        Path({str(tmp_path / "tree")!r}).mkdir()
        found = unpack(chunks(), Path({str(tmp_path / "tree")!r}), name="x", limits=Limits(),
                       recipe=Path({str(tmp_path / "recipe")!r}))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, found.inodes)
    """)
    done = completed([sys.executable, "-c", script], timeout=300)
    subprocess.run(["rm", "-rf", str(tmp_path / "tree")], check=True)
    assert done.returncode == 0, done.stderr
    grown_kib, inodes = map(int, done.stdout.split())
    assert grown_kib < 80 * 1024, f"{grown_kib // 1024} MiB"
    assert inodes > 1


def test_million_empty_files_are_only_many(tmp_path: Path) -> None:
    """As many as there is time for; the limit counts entries, not bytes."""
    data = archive(*(file(b"%d/%d" % (number % 300, number)) for number in range(20_000)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = unpack_bytes(gzip.compress(data, 1), tmp_path / "tree", recipe=tmp_path / "recipe")
    assert found.inodes == 20_301
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 100 * 1024


# Damage.


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["tar", "gzip", "zstd"])
def test_layer_cut_at_any_point_is_never_whole(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    data = pack(archive(file(b"a", os.urandom(2000)), folder(b"d/"), file(b"d/b", os.urandom(3000))))
    whole = unpack_bytes(data, tmp_path / "whole").diff_id
    for number, cut in enumerate(range(0, len(data), 391)):
        found = tars.attempt(data[:cut], tmp_path / str(number))
        if isinstance(found, ImageError):
            assert LAYER in found.message
        else:  # an archive may lack its end: the digest tells
            assert found.diff_id != whole


def test_every_byte_of_a_layer_is_checked_or_in_its_digest(tmp_path: Path) -> None:
    data = archive(file(b"a", b"data"), folder(b"d/"))
    packed = gzip.compress(data)
    whole = unpack_bytes(packed, tmp_path / "whole").diff_id
    for at in range(10, len(packed)):
        bad = packed[:at] + bytes([packed[at] ^ 0x10]) + packed[at + 1 :]
        found = tars.attempt(bad, tmp_path / str(at))
        if isinstance(found, ImageError):
            assert "damaged" in found.message
        else:  # deflate leaves bits unused at its end
            assert found.diff_id == whole


@pytest.mark.parametrize(
    "data", [b"<html>not found</html>" * 100, b"{}", b"\0" * 100 + b"x" * 1000, b"PK\x03\x04" * 300]
)
def test_what_is_no_tar_is_told(site: Site, data: bytes) -> None:
    site.refuse(data, "damaged")


def test_source_that_stalls_does_not_hold_a_failed_unpacking(site: Site) -> None:
    stalled = threading.Event()

    def chunks() -> object:
        yield archive(file(b"../out"), file(b"f", bytes(200_000)))[:150_000]
        stalled.wait(60)
        yield b""

    from bareboat_images.layers.unpack import unpack

    began = time.monotonic()
    with pytest.raises(ImageError, match="leads out"):
        unpack(chunks(), site.tree, name=LAYER, limits=Limits(), recipe=None)  # type: ignore[arg-type]
    assert time.monotonic() - began < 30
    stalled.set()


@pytest.mark.parametrize(
    "field", [b"\xff" * 12, b"\x80" + b"\xff" * 11, b"77777777777\0", b"\xff" + bytes(11)]
)
def test_clocks_that_jump_do_no_harm(site: Site, field: bytes) -> None:
    stamped = [tars.header(b"f", mtime_field=field), tars.header(b"d/", kind=b"5", mtime_field=field)]
    site.unpack(archive(*stamped, tars.header(b"l", kind=b"2", link=b"x", mtime_field=field)))
    assert sorted(os.listdir(site.tree)) == ["d", "f", "l"]


@pytest.mark.parametrize("what", [b"path", b"linkpath", b"size", b"GNU.sparse.map", b"SCHILY.xattr.user.x"])
def test_header_for_all_entries_cannot_redirect_them(site: Site, what: bytes) -> None:
    site.refuse(archive(pax((what, b"1"), kind=b"g") + file(b"f")), "sets")


def test_attributes_that_cannot_be_set_are_only_said(site: Site) -> None:
    attributes = [
        pax((b"SCHILY.xattr.user." + b"n" * 300, b"v")) + file(b"long name"),
        pax((b"SCHILY.xattr.user.v", b"v" * 100_000)) + file(b"long value"),
        pax((b"SCHILY.xattr.user.a\0b", b"v")) + file(b"zero"),
        pax((b"SCHILY.xattr.", b"v")) + file(b"none"),
    ]
    assert site.unpack(archive(*attributes)).notes


def test_content_of_what_has_none_is_not_an_entry(site: Site) -> None:
    """A folder that claims content: a reader that skips it would miss what is read here, and the reverse."""
    hidden = file(b"seen", b"x")
    site.unpack(archive(tars.header(b"d/", kind=b"5", size=len(hidden)), hidden))
    assert (site.tree / "seen").exists()


def test_everything_after_the_end_is_not_read(site: Site) -> None:
    site.unpack(archive(file(b"a")) + archive(file(b"../out"), b"\xff" * 512))
    assert os.listdir(site.tree) == ["a"]
