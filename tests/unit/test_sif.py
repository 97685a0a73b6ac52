"""The header and the descriptors of a SIF, made by hand; real ones are in tests/contract/test_layouts.py."""

from pathlib import Path

import pytest
from archives import DATA_JSON, sif_of, sif_part

from bareboat_base.errors import ImageError
from bareboat_images.formats.sif import Sif, read_sif

DEFINITION = sif_part(0x4001, offset=32768, size=3, number=1)
SYSTEM = sif_part(offset=32768, size=10, number=2)


def read(folder: Path, data: bytes) -> Sif:
    path = folder / "x.sif"
    path.write_bytes(data)
    return read_sif(path, name="sif:x.sif")


def test_the_root_file_system_is_found_among_other_parts(tmp_path: Path) -> None:
    unused = sif_part(offset=-1, size=-1, used=0)
    data_only = sif_part(offset=32768, size=1, number=3, role=3)
    found = read(tmp_path, sif_of(DEFINITION, unused, data_only, SYSTEM, data=b"0123456789")).system()
    assert (found.number, found.offset, found.size, found.architecture) == (2, 32768, 10, "amd64")


@pytest.mark.parametrize(
    ("code", "name"),
    [(b"02", "amd64"), (b"04", "arm64"), (b"06", "ppc64le"), (b"00", "unknown"), (b"\0\0", "unknown")],
)
def test_the_architecture_has_the_name_that_oci_gives_it(tmp_path: Path, code: bytes, name: str) -> None:
    part = sif_part(offset=0, size=0, architecture=code)
    assert read(tmp_path, sif_of(part)).system().architecture == name


def test_the_configuration_of_the_oci_image_is_found(tmp_path: Path) -> None:
    other = sif_part(DATA_JSON, offset=32768, size=2, name=b"inspect-metadata.json")
    config = sif_part(DATA_JSON, offset=32770, size=5, name=b"oci-config.json")
    assert read(tmp_path, sif_of(other, config, data=b"{}[1,2]")).oci_config == b"[1,2]"
    assert read(tmp_path, sif_of(other, data=b"{}")).oci_config is None


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((DEFINITION,), "has no root file systems"),
        ((SYSTEM, SYSTEM), "has 2 root file systems"),
        ((sif_part(offset=32768, size=1, file_system=2),), "is an ext3 file system"),
        ((sif_part(offset=32768, size=1, file_system=5),), "is an encrypted squashfs"),
        ((sif_part(offset=32768, size=1, file_system=99),), "is of an unknown kind"),
        ((SYSTEM, sif_part(offset=32768, size=1, number=7, role=4)), "has an overlay"),
        ((SYSTEM, sif_part(0x4009, offset=32768, size=1)), "is an OCI-SIF"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, parts: tuple[bytes, ...], said: str) -> None:
    with pytest.raises(ImageError, match=said) as caught:
        read(tmp_path, sif_of(*parts, data=b"0123456789")).system()
    assert caught.value.remedy or caught.value.context
