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
    "SIsEJEyNZCQQTI1sxBBIjaQkAOD//7gDAAAAv8UAAAAPBbgOAAAAvwEAAABIjTVVAgAAMdJBuggAAAAPBbidAAAAvyYAAAC+AQAA"
    "ADHSRTHSRTHADwVIhcAPhVgBAAC4nQAAAL8WAAAAvgIAAABIjRUbAgAADwVIhcAPhTcBAABBv38AAABJixwkTI01RwEAAEiJ34oH"
    "SP/HPC90NITAdfM4Aw+EvAAAAEyNNSkBAABMie9IizdIg8cISIX2dBKBPlBBVEh17IB+BD115kyNdgVIiedIjawkABAAAEGKBoTA"
    "dA88OnQLSf/GSDnvc+2q6+pIOed0A7AvqkiJ3kg573NVrKqEwHX1SInnTInmTInquDsAAAAPBUiD+Ph1IUiNPcIAAABJjXQk+EiJ"
    "PkiJZghMieq4OwAAAA8FSYkcJEiD+P50EkiD+Ox0DEG/fgAAAEiD+PN1DkGKBkn/xoTAD4Vs////SI01gwAAALoKAAAA6FUAAABI"
    "id4x0oA8FgB0BP/C6/boQQAAAEiNNZoAAAC6JQAAAEGD/390DEiNNVYAAAC6MgAAAOgeAAAAuDwAAABEif8PBUiNNZIAAAC6NQAA"
    "AEG/fgAAAOvduAEAAAC/AgAAAA8FwwAvYmluOi91c3IvYmluAC9iaW4vc2gAYmFyZWJvYXQ6IDogdGhlIGNvbW1hbmQgY2Fubm90"
    "IGJlIGV4ZWN1dGVkIGluIHRoZSBjb250YWluZXIKOiBjb21tYW5kIG5vdCBmb3VuZCBpbiB0aGUgY29udGFpbmVyCmJhcmVib2F0"
    "OiB0aGlzIGtlcm5lbCBkb2VzIG5vdCB0YWtlIGEgc2VjY29tcCBmaWx0ZXIKDx8AB0pAAAAAAAA=",
    "aarch64":
    "6QNA+fNDAJF0DgmL/wtA0SgHgNKgGIDSAQAA1OgQgNIgAIDS4RMAEAIAgNIDAYDSAQAA1OgUgNLABIDSIQCA0gIAgNIDAIDSBACA"
    "0gEAANTgCwC16BSA0sACgNJBAIDSQhIAEAEAANQgCwC19w+AUnUCQPn2CwAQ6QMVqioVQDhfvQBxAAIAVKr//zWqAkA5agcANPYK"
    "ADCsCgAY6QMUqiqFQPgKAQC0SwFAuX8BDGuB//9USxFAOX/1AHEh//9UVhUAkekDAJEtBUCR7gMJqsoCQDkKAQA0X+kAccAAAFTW"
    "BgCRPwEN60L//1QqFQA4+P//Fz8BDutgAABU6gWAUioVADjrAxWqPwEN60IDAFRqFUA4KhUAOIr//zXgAwCR4QMTquIDFKqoG4DS"
    "AQAA1B8gALEhAQBUIAYAcGEiANHpAwCRICQAqeIDFKqoG4DSAQAA1HUCAPkfCACxwAAAVB9QALGAAABU1w+AUh80ALFhAABUyhZA"
    "OGr6/zVBBABwQgGA0hYAAJThAxWqAgCA0ipoYjhqAAA0QgQAkf3//xcPAACU4QQAcKIEgNL//gFxYAAAVOECADBCBoDSCAAAlKgL"
    "gNLgAxcqAQAA1OEEABCiBoDS1w+AUvn//xcICIDSQACA0gEAANTAA1/WUEFUSAAvYmluOi91c3IvYmluAC9iaW4vc2gAYmFyZWJv"
    "YXQ6IDogdGhlIGNvbW1hbmQgY2Fubm90IGJlIGV4ZWN1dGVkIGluIHRoZSBjb250YWluZXIKOiBjb21tYW5kIG5vdCBmb3VuZCBp"
    "biB0aGUgY29udGFpbmVyCmJhcmVib2F0OiB0aGlzIGtlcm5lbCBkb2VzIG5vdCB0YWtlIGEgc2VjY29tcCBmaWx0ZXIKAAAAB0pA"
    "AAAAAAA=",
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
