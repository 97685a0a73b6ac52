"""Parses the package lists of dpkg, apk and R: fields in paragraphs.

Sources: deb-control(5), dpkg(1), https://wiki.alpinelinux.org/wiki/Apk_spec, and
https://cran.r-project.org/doc/manuals/R-exts.html#The-DESCRIPTION-file
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bareboat_images.sbom.package import Package, plain

_MOST_FIELDS = 200
#: The distribution where an image does not name its own.
_FAMILIES = {"deb": "debian", "apk": "alpine"}


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """The paragraphs of a control file: field -> value, with its lines joined by blanks."""
    found: dict[str, str] = {}
    last = ""
    for line in text.split("\n"):
        if not line.strip():
            if found:
                yield found
            found, last = {}, ""
        elif line[0] in " \t":
            if last and len(found[last]) < 4096:
                found[last] += " " + line.strip()
        else:
            name, colon, value = line.partition(":")
            if colon and len(found) < _MOST_FIELDS:
                last = name.strip()
                found[last] = value.strip()
    if found:
        yield found


def dpkg(text: str, path: str, *, distribution: str, version: str) -> Iterator[Package]:
    """The installed packages of a dpkg status file. Those of a distroless image have no status field."""
    for each in stanzas(text):
        status = each.get("Status", "install ok installed").split()
        if plain(each.get("Package")) and status and status[-1] == "installed":
            fields = ("Package", "Version", "Architecture")
            yield _package("deb", distribution, version, path, map(each.get, fields))


def apk(text: str, path: str, *, distribution: str, version: str) -> Iterator[Package]:
    """The packages of apk's database of installed packages."""
    for each in stanzas(text):
        if plain(each.get("P")):
            yield _package("apk", distribution, version, path, map(each.get, "PVA"))


def _package(kind: str, distribution: str, version: str, path: str, fields: Iterable[str | None]) -> Package:
    name, release, machine = map(plain, fields)
    distro = f"{distribution}-{version}" if version else distribution
    return Package(
        kind=kind, namespace=distribution or _FAMILIES[kind], name=name, version=release, path=path,
        qualifiers=(("arch", machine), ("distro", distro)),
    )  # fmt: skip


def description(text: str, path: str) -> Package | None:
    """Parse an installed R package's DESCRIPTION; None for another tool's."""
    first = next(stanzas(text), {})
    if not first.get("Package") or not first.get("Built"):
        return None
    return Package(
        kind="cran",
        name=plain(first["Package"]),
        version=plain(first.get("Version")),
        path=path,
    )
