"""Small ELF files for tests: a header, a dynamic section, symbols in a GNU hash table, constants."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

X86_64, AARCH64, RISCV64 = 62, 183, 243


def make_elf(
    *,
    machine: int = X86_64,
    interpreter: str | None = None,
    needed: Sequence[str] = (),
    exports: Mapping[str, str] | None = None,
    constants: bytes = b"",
    order: str = "<",
) -> bytes:
    """`exports`: variables that hold a string. `constants`: what else is in .rodata, between two zeros."""
    exports = dict(exports or {})
    names = dict.fromkeys((*needed, *exports), 0)
    strings = b"\0"
    for name in names:
        names[name] = len(strings)
        strings += name.encode() + b"\0"
    headers = 2 + (interpreter is not None)
    interpreter_at = 64 + 56 * headers
    interpreted = (interpreter or "").encode() + b"\0"
    strings_at = interpreter_at + len(interpreted)
    constants_at = strings_at + len(strings)
    values, held = {}, b"\0" + constants + b"\0"
    for name, text in exports.items():
        values[name] = constants_at + len(held)
        held += text.encode() + b"\0"
    symbols_at = constants_at + len(held)
    symbols = bytes(24)
    for name, value in values.items():
        symbols += struct.pack(order + "IBBHQQ", names[name], 0x11, 0, 1, value, len(exports[name]) + 1)
    hash_at = symbols_at + len(symbols)
    hashed = struct.pack(order + "IIIIQI", 1, 1, 1, 0, 2**64 - 1, 1 if exports else 0)
    for number, name in enumerate(exports, 1):
        hashed += struct.pack(order + "I", _hash(name) & ~1 | (number == len(exports)))
    tags = [(1, names[name]) for name in needed]
    tags += [(5, strings_at), (6, symbols_at), (10, len(strings)), (0x6FFFFEF5, hash_at), (0, 0)]
    dynamic = b"".join(struct.pack(order + "QQ", *tag) for tag in tags)
    dynamic_at = hash_at + len(hashed)
    section_names = b"\0.rodata\0.shstrtab\0"
    section_names_at = dynamic_at + len(dynamic)
    sections_at = section_names_at + len(section_names)
    sections = [
        (0, 0, 0, 0),
        (1, 1, constants_at, len(held)),
        (9, 3, section_names_at, len(section_names)),
    ]
    table = b"".join(
        struct.pack(order + "IIQQQQIIQQ", name, kind, 0, at, at, size, 0, 0, 1, 0)
        for name, kind, at, size in sections
    )
    whole = sections_at + len(table)
    segments = [(1, 0, whole), (2, dynamic_at, len(dynamic))]
    if interpreter is not None:
        segments.append((3, interpreter_at, len(interpreted)))
    head = b"\x7fELF" + bytes([2, 1 if order == "<" else 2, 1]) + bytes(9)
    head += struct.pack(
        order + "HHIQQQIHHHHHH", 3, machine, 1, 0, 64, sections_at, 0, 64, 56, headers, 64, len(sections), 2
    )
    programs = b"".join(
        struct.pack(order + "IIQQQQQQ", kind, 5, at, at, at, size, size, 1) for kind, at, size in segments
    )
    return head + programs + interpreted + strings + held + symbols + hashed + dynamic + section_names + table


def _hash(name: str) -> int:
    hashed = 5381
    for byte in name.encode():
        hashed = (hashed * 33 + byte) & 0xFFFFFFFF
    return hashed


def fill(tree: Path, files: Mapping[str, str | bytes | None]) -> Path:
    """Programs (bytes), texts that are not executable, directories (None) and links ("-> TARGET")."""
    for path, content in files.items():
        place = tree / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            place.mkdir(exist_ok=True)
        elif isinstance(content, bytes):
            place.write_bytes(content)
            place.chmod(0o755)
        elif content.startswith("-> "):
            place.symlink_to(content[3:])
        else:
            place.write_text(content)
    return tree
