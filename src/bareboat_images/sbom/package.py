"""One package of an image, and its package URL. Pure.

Source: https://github.com/package-url/purl-spec
"""

from __future__ import annotations

from urllib.parse import quote

from msgspec import Struct

from bareboat_base.printable import one_line

#: Type in a package URL -> its usual name, in the order of the output.
KINDS = {
    "deb": "Debian",
    "rpm": "RPM",
    "apk": "apk",
    "conda": "conda",
    "pypi": "Python",
    "cran": "R",
}
_LONGEST = 500


class Package(Struct, frozen=True, kw_only=True):
    """A package. `kind`: the type of its package URL. `path`: the file of the image that lists it. `hashes`:
    pairs of an algorithm, as in SPDX, and hexadecimal digits, of the package file."""

    kind: str
    name: str
    version: str
    path: str
    namespace: str = ""
    qualifiers: tuple[tuple[str, str], ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()

    @property
    def purl(self) -> str:
        """The package URL."""
        name = self.name.lower().replace("_", "-") if self.kind == "pypi" else self.name
        if self.kind in ("deb", "apk"):
            name = name.lower()
        namespace = f"{_quoted(self.namespace.lower())}/" if self.namespace else ""
        version = f"@{_quoted(self.version)}" if self.version else ""
        given = sorted((key, value) for key, value in self.qualifiers if value)
        tail = "&".join(f"{key}={_quoted(value)}" for key, value in given)
        return f"pkg:{self.kind}/{namespace}{_quoted(name)}{version}" + (f"?{tail}" if tail else "")


def _quoted(text: str) -> str:
    return quote(text, safe=":")


def plain(value: object) -> str:
    """An untrusted field as one short line without control characters."""
    return one_line(value, limit=_LONGEST) if isinstance(value, str) else ""
