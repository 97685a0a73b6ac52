"""Reading layers: compression told by magic bytes, every dialect of tar, every kind of damage."""

import gzip
import io
import tarfile

import pytest
import tars
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat_base.errors import ImageError
from bareboat_images.tar import inflation
from bareboat_images.tar.inflation import inflate
from bareboat_images.tar.reader import Entry, Tar


def inflated(data: bytes, size: int = 1000) -> bytes:
    return b"".join(inflate(tars.pieces(data, size), name="layer 1"))


def entries(data: bytes, size: int = 1000) -> tuple[list[tuple[Entry, bytes]], bytes]:
    """All entries with their contents, and the rest of the bytes, in order, with the contents put in."""
    blocks = tars.pieces(data, size)
    whole: list[bytes] = []
    tar = Tar(lambda: next(blocks, None), whole.append, name="layer 1")
    found = []
    while (entry := tar.next()) is not None:
        whole.append(bytes(tar.literal()))
        content = b""
        while len(content) < entry.size:
            content += tar.take(entry.size - len(content))
        whole.append(content)
        found.append((entry, content))
    whole.append(bytes(tar.literal()))
    return found, b"".join(whole)


def one(data: bytes) -> Entry:
    found, whole = entries(data)
    assert whole == data
    assert len(found) == 1
    return found[0][0]


TEXT = b"".join(b"line %d\n" % number for number in range(20_000))


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize(
    "packed",
    [
        TEXT,
        gzip.compress(TEXT),
        gzip.compress(TEXT[:7]) + gzip.compress(b"") + gzip.compress(TEXT[7:]),
        gzip.compress(TEXT) + bytes(700),
        b"".join(gzip.compress(TEXT[at : at + 1000]) for at in range(0, len(TEXT), 1000)),
        zstandard.compress(TEXT),
        zstandard.compress(TEXT[:7]) + zstandard.compress(TEXT[7:]),
        b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstandard.compress(TEXT) + b"\x51\x2a\x4d\x18\x01\0\0\0x",
        zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT),
    ],
    ids=["plain", "gzip", "members", "padded", "many", "zstd", "frames", "skippable", "checksum"],
)
def test_layer_is_inflated_by_its_first_bytes(packed: bytes, size: int) -> None:
    assert inflated(packed, size) == TEXT


def test_nothing_is_inflated_to_nothing() -> None:
    assert inflated(b"") == b""
    assert inflated(gzip.compress(b"")) == b""
    assert inflated(zstandard.compress(b"")) == b""


CHECKED = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)


@pytest.mark.parametrize(
    ("packed", "told"),
    [
        (gzip.compress(TEXT) + b"garbage", "layer 1 is damaged"),
        (zstandard.compress(TEXT) + b"garbage", "layer 1 is damaged"),
        (CHECKED[:-1] + bytes([CHECKED[-1] ^ 1]), "layer 1 is damaged: its zstd data"),
        # https://www.rfc-editor.org/rfc/rfc8878#name-window-descriptor: exponent 21 is 2 GiB
        (b"\x28\xb5\x2f\xfd" + bytes([0, 21 << 3]) + b"\x01\0\0", "zstd"),
        (b"\xfd7zXZ\0...", "compressed by xz"),
        (b"BZh91AY...", "compressed by bzip2"),
    ],
    ids=["gzip", "zstd", "checksum", "window", "xz", "bzip2"],
)
def test_what_cannot_be_inflated_is_told(packed: bytes, told: str) -> None:
    with pytest.raises(ImageError, match=told):
        inflated(packed)


def test_inflated_blocks_are_bounded() -> None:
    for packed in (gzip.compress(bytes(20 << 20)), zstandard.compress(bytes(20 << 20)), bytes(5 << 20)):
        sizes = [len(block) for block in inflate(iter([packed]), name="x")]
        assert max(sizes) <= inflation.STEP_BYTES


# Entries.


def test_gnu_header_has_no_prefix() -> None:
    entry = one(tars.archive(tars.header(b"name", magic=b"ustar  \0", tail=b"14000000000\0")))
    assert entry.name == b"name"


def test_star_header_has_times_behind_a_shorter_prefix() -> None:
    tail = b"way".ljust(131, b"\0") + b"14000000000 " * 2 + bytes(8) + b"tar\0"
    assert one(tars.archive(tars.header(b"name", tail=tail))).name == b"way/name"


def test_base_256_numbers() -> None:
    size = b"\x80" + (5).to_bytes(11, "big")
    before_epoch = b"\xff" * 11 + b"\xfe"
    data = tars.archive(tars.header(b"a", size_field=size, mtime_field=before_epoch) + tars.padded(b"hello"))
    entry = one(data)
    assert (entry.size, entry.mtime_ns) == (5, -2 * 10**9)


def test_numbers_written_in_other_ways() -> None:
    for field in (b"          5\0", b"5\0\0\0\0\0\0\0\0\0\0\0", b"00000000005 ", b"000000000005"):
        data = tars.archive(tars.header(b"a", size_field=field) + tars.padded(b"hello"))
        assert one(data).size == 5, field


def test_a_time_beyond_64_bits_is_the_epoch() -> None:
    assert one(tars.archive(tars.header(b"a", mtime_field=b"\x80" + b"\xff" * 11))).mtime_ns == 0
    assert one(tars.archive(tars.pax((b"mtime", b"9" * 19)), tars.header(b"a"))).mtime_ns == 0


def test_pax_fields() -> None:
    name = b"very/" * 60 + b"long"
    data = tars.archive(
        tars.pax(
            (b"path", name),
            (b"mtime", b"1234567890.123456789"),
            (b"size", b"5"),
            (b"SCHILY.xattr.user.colour", b"blue=\n\0"),
            (b"SCHILY.xattr.security.capability", b"\x01\0"),
            (b"comment", b"nothing"),
        ),
        tars.header(b"short", size=0) + tars.padded(b"hello"),
    )
    entry = one(data)
    assert entry.name == name
    assert entry.mtime_ns == 1234567890_123456789
    assert entry.size == 5
    assert entry.xattrs == ((b"user.colour", b"blue=\n\0"), (b"security.capability", b"\x01\0"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"1", 10**9), (b"1.5", 1_500_000_000), (b"-1.5", -1_500_000_000), (b"0.1234567891", 123456789)],
)
def test_pax_times(text: bytes, expected: int) -> None:
    assert one(tars.archive(tars.pax((b"mtime", text)), tars.header(b"a"))).mtime_ns == expected


def test_global_header_sets_the_time_of_all_that_follow() -> None:
    data = tars.archive(
        tars.pax((b"mtime", b"7"), (b"comment", b"f00"), kind=b"g"),
        tars.header(b"a"),
        tars.pax((b"mtime", b"8")),
        tars.header(b"b"),
    )
    found, whole = entries(data)
    assert whole == data
    assert [entry.mtime_ns for entry, _ in found] == [7 * 10**9, 8 * 10**9]


def test_header_only_types_have_no_content() -> None:
    for kind in (b"1", b"2", b"3", b"4", b"5", b"6"):
        data = tars.archive(tars.header(b"a", kind=kind, size=700, link=b"b"), tars.file(b"c", b"x"))
        found, _ = entries(data)
        assert [entry.name for entry, _ in found] == [b"a", b"c"]


def test_signed_checksum_of_historical_tars() -> None:
    head = bytearray(tars.header(b"\xff\xfe"))
    values = head[:148] + b" " * 8 + head[156:]
    head[148:156] = b"%06o\0 " % sum(value - 256 if value > 127 else value for value in values)
    assert one(tars.archive(bytes(head))).name == b"\xff\xfe"


def test_old_sparse_map_goes_on_in_further_blocks() -> None:
    numbers = [(at * 1000, 1) for at in range(50)]
    spans = [b"%011o\0%011o\0" % pair for pair in numbers]
    tail = bytes(41) + b"".join(spans[:4]) + b"\x01" + b"%011o\0" % 100_000
    more = b"".join(spans[4:25]) + b"\x01" + bytes(7) + b"".join(spans[25:46]) + b"\x01" + bytes(7)
    more += b"".join(spans[46:]).ljust(504, b"\0") + bytes(8)
    head = tars.header(b"s", kind=b"S", size=50, magic=b"ustar  \0", tail=tail)
    entry = one(tars.archive(head + more + tars.padded(b"y" * 50)))
    assert entry.sparse is not None
    assert list(entry.sparse.spans) == [number for pair in numbers for number in pair]


@pytest.mark.parametrize(
    ("map_text", "size", "stored"),
    [
        (b"0,10,5,10", b"100", 20),  # overlapping
        (b"0,10", b"5", 10),  # beyond the end
        (b"0,10", b"100", 9),  # another length than is stored
        (b"0", b"100", 10),  # odd
        (b"0,-1", b"100", 10),
        (b"0,1_0", b"100", 10),
        (b"9223372036854775807,10", b"100", 10),
        (b"99999999999999999999,10", b"100", 10),
        (b"0,10", b"9223372036854775808", 10),
    ],
)
def test_impossible_sparse_maps_are_told(map_text: bytes, size: bytes, stored: int) -> None:
    data = tars.pax((b"GNU.sparse.size", size), (b"GNU.sparse.map", map_text))
    with pytest.raises(ImageError, match="damaged at or after the entry s: "):
        entries(tars.archive(data + tars.file(b"s", b"x" * stored)))


@pytest.mark.parametrize(
    "map_text", [b"", b"2\n1", b"x\n", b"1000001\n", b"9" * 600, b"-1\n", b"3\n0\n1\n", b"1" * 512 + b"\n"]
)
def test_impossible_maps_before_the_content_are_told(map_text: bytes) -> None:
    data = tars.pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.realsize", b"10000"))
    with pytest.raises(ImageError, match="damaged at or after the entry s: "):
        entries(tars.archive(data + tars.file(b"s", tars.padded(map_text))))


@pytest.mark.parametrize(
    "text",
    [
        b"x",
        b"5 a=",
        b"0 a=b\n",
        b"99 a=b\n",
        b"6 a=bc",
        b"4 ab\n",
        b"5 =b\n",
        b"-6 a=b\n",
        b"999999999 a=b\n",
    ],
)
def test_damaged_extended_headers_are_told(text: bytes) -> None:
    data = tars.header(b"x", kind=b"x", size=len(text)) + tars.padded(text) + tars.file(b"a")
    with pytest.raises(ImageError, match="extended header"):
        entries(tars.archive(data))


@pytest.mark.parametrize(
    "data",
    [
        tars.pax((b"size", b"x")) + tars.file(b"a"),
        tars.pax((b"size", b"-1")) + tars.file(b"a"),
        tars.pax((b"mtime", b"noon")) + tars.file(b"a"),
        tars.pax((b"path", b"a\0b")) + tars.file(b"a"),
        tars.pax((b"linkpath", b"a\0b")) + tars.symlink(b"a", b"x"),
        tars.pax((b"path", b"all"), kind=b"g") + tars.file(b"a"),
        tars.header(b"x", kind=b"x", size=2 << 20) + bytes(2 << 20),
        tars.header(b"x", kind=b"L", size=2 << 20) + bytes(2 << 20),
        tars.header(b"a", kind=b"Q"),
        tars.header(b"a", size_field=b"\xff" * 12),
        tars.header(b"a", size_field=b"0000000008x\0"),
        tars.header(b"a", size_field=b"+0000000005\0"),
        tars.header(b"a", size_field=b"0_000000005\0"),
        tars.header(b"a", mtime_field=b"yesterday...")[:512],
    ],
)
def test_what_no_tar_holds_is_told(data: bytes) -> None:
    with pytest.raises(ImageError, match="layer 1 is damaged"):
        entries(tars.archive(data))


def test_archive_may_end_without_blocks_of_zeros() -> None:
    data = tars.file(b"a", b"x")
    assert len(entries(data)[0]) == 1
    assert entries(data + bytes(512))[1] == data + bytes(512)
    assert entries(data + bytes(100))[1] == data + bytes(100)
    assert entries(b"") == ([], b"")


def test_archive_that_ends_after_an_extended_header_is_told() -> None:
    for data in (tars.pax((b"path", b"a")), tars.long_name(b"a")):
        with pytest.raises(ImageError, match="ends after an extended header"):
            entries(data)
        with pytest.raises(ImageError, match="ends after an extended header"):
            entries(tars.archive(data))


def test_single_block_of_zeros_is_no_end() -> None:
    with pytest.raises(ImageError, match="single block of zeros"):
        entries(tars.file(b"a") + bytes(512) + tars.file(b"b") + bytes(1024))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=150).filter(lambda name: b"\0" not in name),
            st.binary(max_size=2000),
            st.integers(0, 0o7777),
            st.integers(0, 2**33),
        ),
        max_size=8,
    ),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.integers(1, 3000),
)
def test_what_python_packs_is_read_as_it_was(
    wanted: list[tuple[bytes, bytes, int, int]], dialect: int, size: int
) -> None:
    made = io.BytesIO()
    expected = []
    with tarfile.open(fileobj=made, mode="w", format=dialect, errors="surrogateescape") as tar:
        for name, data, mode, mtime in wanted:
            info = tarfile.TarInfo(name.decode(errors="surrogateescape"))
            info.size, info.mode, info.mtime = len(data), mode, mtime
            try:
                tar.addfile(info, io.BytesIO(data))
            except ValueError:  # a name that ustar cannot hold
                continue
            expected.append((name, data, mode, mtime * 10**9))
    found, whole = entries(made.getvalue(), size)
    assert whole == made.getvalue()
    assert [(entry.name, data, entry.mode, entry.mtime_ns) for entry, data in found] == expected
