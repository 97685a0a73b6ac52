"""Read from a library's section .nv_fatbin for which GPUs it has kernels. All offsets are checked.

The section is a sequence of containers: a header and entries of machine code or PTX. An entry is a header
with the architecture, and the code, which is skipped. NVIDIA does not document the format; it was derived
from CuPy's libraries, whose list of architectures is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bareboat_base.elf.binary import Binary

_MAGIC = 0xBA55ED50
_PTX, _ELF = 1, 2
#: Nearly all objects of a library are compiled for the same architectures, so more entries are not needed.
_MOST_ENTRIES = 4000


def read(library: Binary) -> tuple[str, ...]:
    """The architectures, such as sm_80 and, for PTX, compute_90; () for a library without GPU code."""
    start, length = library.section(b".nv_fatbin")
    found: set[str] = set()
    entries, at, end = 0, start, start + length
    while at + 16 <= end and entries < _MOST_ENTRIES:
        if library.number("I", at) != _MAGIC:
            at += 8  # containers are aligned
            entries += 1
            continue
        header, size = library.number("H", at + 6), library.number("Q", at + 8)
        if header < 16:
            break
        entry, at = at + header, at + header + size
        while entry + 32 <= min(at, end) and entries < _MOST_ENTRIES:
            entries += 1
            kind, architecture = library.number("H", entry), library.number("I", entry + 28)
            head, body = library.number("I", entry + 4), library.number("Q", entry + 8)
            if head < 32:
                break
            if kind in (_PTX, _ELF) and 20 <= architecture < 1000:
                found.add(f"{'compute' if kind == _PTX else 'sm'}_{architecture}")
            entry += head + body
    return in_order(found)


def in_order(code: Iterable[str]) -> tuple[str, ...]:
    """Each once: machine code, then PTX, by capability."""

    def key(each: str) -> tuple[bool, int, str]:
        digits = re.search(r"\d+", each)
        return each.startswith("compute"), int(digits[0]) if digits else 0, each

    return tuple(sorted(set(code), key=key))
