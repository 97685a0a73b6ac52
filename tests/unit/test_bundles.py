"""The list of names in a bundle, also in files that are damaged or hostile."""

import io
import tarfile
from pathlib import Path

import pytest

from bareboat_base import codec
from bareboat_base.errors import ImageError
from bareboat_images.transfer import bundles


def archive_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for entry, data in members:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def test_archives_without_pins(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    for data in (b"", b"garbage" * 1000, bytes(10240), b"\x1f\x8b" + bytes(100)):
        path.write_bytes(data)
        assert bundles.pins(path) == ()
    assert bundles.pins(tmp_path / "none") == ()
    assert bundles.pins(tmp_path) == ()
    assert bundles.pins(archive_of(path, (tarfile.TarInfo("other"), b"x"))) == ()


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"[[", b'[{"reference":"a"}]', b"\xff", b"[" * 100_000])
def test_damaged_pins(tmp_path: Path, data: bytes) -> None:
    path = archive_of(tmp_path / "x.tar", (tarfile.TarInfo("bareboat/pins.json"), data))
    with pytest.raises(ImageError) as caught:
        bundles.pins(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_pins_that_are_no_file(tmp_path: Path, kind: bytes) -> None:
    """A link would stand for another member, of any size."""
    link = tarfile.TarInfo("bareboat/pins.json")
    link.type, link.linkname = kind, "huge"
    path = archive_of(tmp_path / "x.tar", (tarfile.TarInfo("huge"), codec.to_json(())), (link, b""))
    assert bundles.pins(path) == ()
