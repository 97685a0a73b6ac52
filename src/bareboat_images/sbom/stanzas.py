"""Parses the package lists of dpkg, apk and R: fields in paragraphs.

Sources: deb-control(5), dpkg(1), https://wiki.alpinelinux.org/wiki/Apk_spec, and
https://cran.r-project.org/doc/manuals/R-exts.html#The-DESCRIPTION-file
"""

from __future__ import annotations

from collections.abc import Iterator

from bareboat_images.sbom.package import Package, plain

_MOST_FIELDS = 200


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
    distro = f"{distribution}-{version}" if version else distribution
    for each in stanzas(text):
        name = plain(each.get("Package"))
        status = each.get("Status", "install ok installed").split()
        if not name or not status or status[-1] != "installed":
            continue
        yield Package(
            kind="deb",
            namespace=distribution or "debian",
            name=name,
            version=plain(each.get("Version")),
            path=path,
            qualifiers=(("arch", plain(each.get("Architecture"))), ("distro", distro)),
        )


def apk(text: str, path: str, *, distribution: str, version: str) -> Iterator[Package]:
    """The packages of apk's database of installed packages."""
    distro = f"{distribution}-{version}" if version else distribution
    for each in stanzas(text):
        if name := plain(each.get("P")):
            yield Package(
                kind="apk",
                namespace=distribution or "alpine",
                name=name,
                version=plain(each.get("V")),
                path=path,
                qualifiers=(("arch", plain(each.get("A"))), ("distro", distro)),
            )


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
