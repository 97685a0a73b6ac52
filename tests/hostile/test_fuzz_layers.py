"""Layers made by chance: whatever comes, it unpacks or is refused with its name, and nothing else changes.

`corpus/layers` holds one layer of each kind; the fuzzer starts from them. What it ever finds goes there, too.
"""

import gzip
import os
import threading
from pathlib import Path

import pytest
import tars
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tars import unpack_bytes

from bareboat_base.errors import ImageError
from bareboat_base.files.trees import remove_tree
from bareboat_images.layers.tar_split import rebuild
from bareboat_images.tar.limits import Limits

CORPUS = sorted((Path(__file__).parent / "corpus" / "layers").iterdir())
LAYERS = [path.read_bytes() for path in CORPUS]
#: Small, so that an example takes little, and the limits are met, too.
LIMITS = Limits(max_unpacked_bytes=20_000_000, max_entries=2000)


def attempt(data: bytes, top: Path, size: int = 5000) -> str:
    """Unpack, and look at everything that must hold. What became of it."""
    remove_tree(top)
    (top / "outside").mkdir(parents=True)
    (top / "outside" / "victim").write_text("untouched")
    before = tars.snapshot(top / "outside")
    tree, recipe = top / "store" / "tree", top / "store" / "recipe"
    tree.mkdir(parents=True)
    refused = None
    try:
        found = unpack_bytes(data, tree, limits=LIMITS, recipe=recipe, size=size)
    except ImageError as error:
        refused = error
    if refused is not None:
        assert "layer 3 (sha256:abc)" in refused.message
        assert refused.message.isprintable()
        assert refused.remedy
    else:
        assert found.inodes == tars.inodes(tree)
        if found.rebuildable:
            assert rebuild(tree, recipe, lambda _: None) == found.diff_id
    assert tars.snapshot(top / "outside") == before
    assert sorted(os.listdir(top)) == ["outside", "store"]
    assert set(os.listdir(top / "store")) <= {"tree", "recipe"}
    for here, folders, files in os.walk(tree):
        for name in (*folders, *files):
            state = os.lstat(os.path.join(here, name))
            assert not state.st_mode & 0o6000
    return "unpacked" if refused is None else refused.message


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_corpus_is_as_good_as_its_names_say(path: Path, tmp_path: Path) -> None:
    """`good-…` unpacks, `bad-…` is refused."""
    outcome = attempt(path.read_bytes(), tmp_path)
    assert (outcome == "unpacked") == path.name.startswith("good-"), outcome
    assert threading.active_count() < 10


PACKS = st.sampled_from([bytes, gzip.compress, zstandard.compress])


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(LAYERS),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(1, 6000),
)
def test_changed_bytes(tmp_path: Path, layer: bytes, changes: list[tuple[int, int]], size: int) -> None:
    bad = bytearray(layer)
    for at, value in changes:
        bad[at % len(bad)] = value
    attempt(bytes(bad), tmp_path, size)


def mend(block: bytes) -> bytes:
    """The same header with the right checksum, so that what is wrong in it is looked at."""
    blank = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(blank) + block[156:]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([layer for layer in LAYERS if layer[257:262] == b"ustar"]),
    st.lists(
        st.tuples(
            st.integers(0, 100),
            st.integers(0, 511),
            st.one_of(
                st.binary(min_size=1, max_size=12),
                st.sampled_from(
                    [b"../", b"/", b".wh.", b"\0", b"\x80", b"777777777", b"x", b"g", b"S", b"L", b"1"]
                ),
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    PACKS,
)
def test_changed_headers_with_right_checksums(
    tmp_path: Path, layer: bytes, changes: list[tuple[int, int, bytes]], pack: object
) -> None:
    blocks = [layer[at : at + 512] for at in range(0, len(layer), 512)]
    headers = [number for number, block in enumerate(blocks) if block[257:262] == b"ustar"]
    for which, at, new in changes:
        number = headers[which % len(headers)]
        block = (blocks[number][:at] + new + blocks[number][at + len(new) :])[:512]
        blocks[number] = mend(block)
    attempt(pack(b"".join(blocks)), tmp_path)  # type: ignore[operator]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(LAYERS), st.integers(0, 40), st.integers(0, 40)), max_size=5), PACKS
)
def test_blocks_in_any_order(tmp_path: Path, parts: list[tuple[bytes, int, int]], pack: object) -> None:
    data = b"".join(layer[512 * start : 512 * (start + count)] for layer, start, count in parts)
    attempt(pack(data), tmp_path)  # type: ignore[operator]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(LAYERS), st.integers(0, 1 << 16), st.binary(max_size=600))
def test_cut_and_continued_with_noise(tmp_path: Path, layer: bytes, cut: int, noise: bytes) -> None:
    attempt(layer[: cut % (len(layer) + 1)] + noise, tmp_path)


PAX_KEYS = st.sampled_from(
    [
        b"path", b"linkpath", b"size", b"mtime", b"comment", b"GNU.sparse.size", b"GNU.sparse.map",
        b"GNU.sparse.major", b"GNU.sparse.realsize", b"GNU.sparse.name", b"GNU.sparse.offset",
        b"GNU.sparse.numbytes", b"SCHILY.xattr.user.x", b"SCHILY.xattr.user.overlay.opaque",
    ]
)  # fmt: skip
PAX_VALUES = st.one_of(
    st.binary(max_size=20),
    st.integers(0, 10**7).map(lambda number: b"%d" % number),
    st.sampled_from([b"1", b"0", b"0,1", b"0,5,10,5", b"../x", b"a/b", b"9" * 30, b"-1", b"1.5", b"l/x"]),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(PAX_KEYS, PAX_VALUES), max_size=5),
            st.sampled_from([b"x", b"g"]),
            st.sampled_from([b"0", b"1", b"2", b"5", b"6", b"7", b"\0"]),
            st.sampled_from([b"a", b"a/b", b"l", b"l/x", b".wh.a", b"d/"]),
            st.binary(max_size=1200),
        ),
        max_size=6,
    )
)
def test_extended_headers(
    tmp_path: Path, entries: list[tuple[list[tuple[bytes, bytes]], bytes, bytes, bytes, bytes]]
) -> None:
    data = b""
    for records, scope, kind, name, content in entries:
        data += tars.pax(*records, kind=scope) if records else b""
        data += tars.header(name, kind=kind, link=b"a/b", size=len(content) if kind in b"07\0" else 0)
        data += tars.padded(content) if kind in b"07\0" else b""
    attempt(tars.archive(data), tmp_path)
