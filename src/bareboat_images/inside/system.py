"""The distribution, architecture and C library of an image."""

from __future__ import annotations

import re

from bareboat_base.elf import binary
from bareboat_images.inside.search import Search


def distribution(search: Search) -> str | None:
    """The name of the distribution. Source: os-release(5)."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = search.text(path)
        if text is None:
            continue
        fields = dict(re.findall(r"^([A-Z_]+)=[\"']?([^\n\"']{1,200})", text, re.MULTILINE))
        name = fields.get("PRETTY_NAME") or " ".join(
            fields[key] for key in ("NAME", "VERSION_ID") if key in fields
        )
        name = "".join(letter for letter in name if letter.isprintable()).strip()
        if name:
            return name
    return None


def architecture(search: Search) -> str | None:
    loaders = [f"/lib/{name}" for name in search.view.names("/lib") if name.startswith("ld-")]
    loaders += [f"/lib64/{name}" for name in search.view.names("/lib64") if name.startswith("ld-")]
    pythons = [f"{prefix}/bin/python3" for prefix in search.prefixes]
    for path in ("/bin/sh", *sorted(loaders), "/usr/bin/env", *pythons):
        with search.view.open(path) as descriptor, binary.read(descriptor) as found:
            if found is not None and found.machine is not None:
                return found.machine
    return None


def libc(search: Search) -> str | None:
    """The C library of the image's shell; without a shell, the installed one."""
    with search.view.open("/bin/sh") as descriptor, binary.read(descriptor) as shell:
        wants_musl = shell is not None and "ld-musl" in (shell.interpreter or "")
    if wants_musl:
        return _musl(search) or _glibc(search)
    return _glibc(search) or _musl(search)


def _glibc(search: Search) -> str | None:
    folders = [f"/lib/{triplet}" for triplet in search.triplets]
    for folder in (*folders, "/lib64", "/lib"):
        path = f"{folder}/libc.so.6"
        with search.view.open(path) as descriptor, binary.read(descriptor) as found:
            if found is not None:
                version = found.search(rb"GNU C Library [^\0\n]{0,100}? release version (\d{1,3}\.\d{1,3})")
                if version is not None:
                    return f"glibc {version}"
    return None


def _musl(search: Search) -> str | None:
    for name in sorted(search.view.names("/lib")):
        if name.startswith("ld-musl-"):
            path = f"/lib/{name}"
            with search.view.open(path) as descriptor, binary.read(descriptor) as found:
                version = found.search(rb"\0(1\.[12]\.\d{1,3})\0") if found is not None else None
            return f"musl {version}" if version else "musl"
    return None
