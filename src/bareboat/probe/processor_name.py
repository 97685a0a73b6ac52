"""The processor's name, from /proc/cpuinfo. On Arm the kernel prints numbers there and no name."""

from __future__ import annotations

import re

#: CPU implementer and part -> name, of what clusters have: arch/arm64/include/asm/cputype.h of Linux.
_ARM = {
    (0x41, 0xD0C): "Arm Neoverse N1", (0x41, 0xD40): "Arm Neoverse V1", (0x41, 0xD49): "Arm Neoverse N2",
    (0x41, 0xD4F): "Arm Neoverse V2", (0x41, 0xD84): "Arm Neoverse V3", (0x41, 0xD8E): "Arm Neoverse N3",
    (0x43, 0x0AF): "Cavium ThunderX2", (0x46, 0x001): "Fujitsu A64FX", (0x48, 0xD01): "HiSilicon TSV110",
    (0xC0, 0xAC3): "Ampere-1", (0xC0, 0xAC4): "Ampere-1A",
}  # fmt: skip


def name(cpuinfo: str, machine: str) -> str:
    """`machine`, as uname(1) prints it, where the text names no processor."""
    fields: dict[str, str] = {}
    for line in re.finditer(r"^(\w[\w ]*?)[ \t]*: *(.*)$", cpuinfo, re.MULTILINE):
        fields.setdefault(line[1], line[2])
    if named := fields.get("model name") or fields.get("cpu"):  # cpu: POWER
        return named
    try:
        numbers = int(fields["CPU implementer"], 16), int(fields["CPU part"], 16)
    except (KeyError, ValueError):
        return machine
    return _ARM.get(numbers, f"{machine}, implementer {numbers[0]:#x}, part {numbers[1]:#x}")
