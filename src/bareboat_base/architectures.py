"""Machine architectures: their names, and how files encode them."""

from __future__ import annotations

from typing import NamedTuple


class Architecture(NamedTuple):
    """`name`: as `uname -m` prints it, and as wheels are tagged. `elf`: e_machine and EI_DATA of elf(5).
    `ldcache`: its libraries in /etc/ld.so.cache (glibc's dl-cache.h); 0 where that was not looked up.
    `sif`: in SIF files, None where they have no code."""

    name: str
    oci: str
    triplet: str
    elf: tuple[int, int]
    ldcache: int = 0
    sif: bytes | None = None


ALL = (
    Architecture("x86_64", "amd64", "x86_64-linux-gnu", (62, 1), 0x0303, b"02"),
    Architecture("aarch64", "arm64", "aarch64-linux-gnu", (183, 1), 0x0A03, b"04"),
    Architecture("ppc64le", "ppc64le", "powerpc64le-linux-gnu", (21, 1), 0x0503, b"06"),
    Architecture("s390x", "s390x", "s390x-linux-gnu", (22, 2), 0x0403, b"11"),
    Architecture("riscv64", "riscv64", "riscv64-linux-gnu", (243, 1), 0x1003, b"12"),
    Architecture("loongarch64", "loong64", "loongarch64-linux-gnu", (258, 1)),
    Architecture("ppc64", "ppc64", "powerpc64-linux-gnu", (21, 2), sif=b"05"),
    Architecture("armv7l", "arm", "arm-linux-gnueabihf", (40, 1), sif=b"03"),
    Architecture("i686", "386", "i386-linux-gnu", (3, 1), sif=b"01"),
)
_BY_NAME = {each.name: each for each in ALL}
_BY_OCI = {each.oci: each for each in ALL}
_BY_ELF = {each.elf: each for each in ALL}

#: The part of an ELF header with the machine: e_ident to e_machine.
ELF_BYTES = 20


def find(name: str) -> Architecture | None:
    """Find by the name from `uname -m` or OCI."""
    return _BY_NAME.get(name) or _BY_OCI.get(name)


def oci(machine: str) -> str:
    """OCI's name; an unknown machine's name is unchanged."""
    found = find(machine)
    return found.oci if found is not None else machine


def machine(name: str) -> str:
    """The name from `uname -m`; an unknown one's is unchanged."""
    found = find(name)
    return found.name if found is not None else name


def of_elf(header: bytes) -> Architecture | None:
    """The architecture of an ELF file by its first bytes; None for other files and unknown machines."""
    if header[:4] != b"\x7fELF" or len(header) < ELF_BYTES:
        return None
    number = int.from_bytes(header[18:20], "little" if header[5] == 1 else "big")
    return _BY_ELF.get((number, header[5]))


def library_folders(machine: str) -> tuple[str, ...]:
    """The loader's default directories, as on Debian and Red Hat: ld.so(8)."""
    found = find(machine)
    own = (f"/lib/{found.triplet}", f"/usr/lib/{found.triplet}") if found is not None else ()
    return (*own, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
