"""A program that applies a filter to itself and then runs a command, for engines that do not accept filters.

It is a static ELF of some hundred bytes of code followed by the filter, made here: it requires nothing of the
image in which it starts, and no compiler. The code is loader-MACHINE.s, assembled; a test assembles it again.
https://man7.org/linux/man-pages/man5/elf.5.html
"""

from __future__ import annotations

import base64
import struct

from bareboat_base import architectures

#: The code of loader-MACHINE.s; its length is a multiple of 8.
CODE = {
    "x86_64":
    "uAMAAAC/xQAAAA8FuJ0AAAC/JgAAAL4BAAAAMdJFMdJFMcAPBUiFwHVDuJ0AAAC/FgAAAL4CAAAASI0VwAAAAA8FSIXAdSZI"
    "iwQkSI10JBBIjVTEEEiLPrg7AAAADwVIjTUrAAAAujkAAADrDEiNNVYAAAC6NQAAALgBAAAAvwIAAAAPBbg8AAAAv34AAAAP"
    "BWJhcmVib2F0OiB0aGUgY29tbWFuZCBjYW5ub3QgYmUgc3RhcnRlZCBpbiB0aGUgY29udGFpbmVyCmJhcmVib2F0OiB0aGlz"
    "IGtlcm5lbCBkb2VzIG5vdCB0YWtlIGEgc2VjY29tcCBmaWx0ZXIKkA==",
    "aarch64":
    "KAeA0qAYgNIBAADU6BSA0sAEgNIhAIDSAgCA0gMAgNIEAIDSAQAA1AACALXoFIDSwAKA0kEAgNICBgAQAQAA1EABALXpA0D5"
    "4UMAkSIMCYsgAED5qBuA0gEAANRhAQAQIgeA0gMAABTBAgAwogaA0ggIgNJAAIDSAQAA1KgLgNLAD4DSAQAA1GJhcmVib2F0"
    "OiB0aGUgY29tbWFuZCBjYW5ub3QgYmUgc3RhcnRlZCBpbiB0aGUgY29udGFpbmVyCmJhcmVib2F0OiB0aGlzIGtlcm5lbCBk"
    "b2VzIG5vdCB0YWtlIGEgc2VjY29tcCBmaWx0ZXIKAAA=",
}  # fmt: skip

_BASE = 0x400000
_HEADERS = 64 + 56
#: One segment at a multiple of all page sizes of these machines.
_ALIGNMENT = 0x10000


def elf(machine: str, program: bytes) -> bytes:
    """The loader of this filter, for this machine."""
    code = base64.b64decode(CODE[machine])
    after = _BASE + _HEADERS + len(code)
    # struct sock_fprog: how many instructions, and where they are.
    return static(machine, code + struct.pack("<HxxxxxxQ", len(program) // 8, after + 16) + program)


def static(machine: str, body: bytes) -> bytes:
    """A static program whose code begins with its body, which it only reads."""
    own = architectures.find(machine)
    assert own is not None  # CODE has it
    size = _HEADERS + len(body)
    identity = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        identity, 2, own.elf[0], 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0,
    )  # fmt: skip
    readable_and_executable = 5
    segment = struct.pack("<IIQQQQQQ", 1, readable_and_executable, 0, _BASE, _BASE, size, size, _ALIGNMENT)
    return header + segment + body
