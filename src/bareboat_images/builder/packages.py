"""Sources for package managers during RUN: an index and mirrors of the site, and its certificates.

Like proxies, they are not part of cache keys: a mirror has the same packages. Bareboat writes them in no
image; what a RUN downloads, or copies from its lists, can have a mirror's URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

from bareboat_base.expressions import expression
from bareboat_images.builder.sandbox import Bind
from bareboat_images.layers.view import View

CERTIFICATES = "/dev/.bareboat-ca.pem"
#: Read by OpenSSL, requests, curl, pip, git, Node.js and cargo; uv, conda, R and Julia read one of them.
_CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO",
)  # fmt: skip
#: The archives of Debian and Ubuntu; group 1 is their usual name on mirrors.
_ARCHIVES = expression(
    r"https?://(?:[\w.-]+\.)?(?:debian\.org|ubuntu\.com)/(debian-security|debian|ubuntu-ports|ubuntu)(?=[/\s]|$)"
)
_FOLDER = "/etc/apt/sources.list.d"
_LARGEST_BYTES = 1 << 20


class Packages(Struct, frozen=True, kw_only=True):
    """`index`: the URL of a Python index. `mirrors`: URL of an archive -> URL of its mirror; an empty key
    means all archives of Debian and Ubuntu, by their usual names below the mirror. `certificates`: a
    bundle of certificate authorities, PEM."""

    index: str = ""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    certificates: bytes = b""

    def variables(self) -> dict[str, str]:
        """Environment variables for pip, uv and programs that use TLS. The recipe's variables override
        them."""
        found = dict.fromkeys(_CERTIFICATE_VARIABLES, CERTIFICATES) if self.certificates else {}
        if self.index:
            found |= {"PIP_INDEX_URL": self.index, "UV_DEFAULT_INDEX": self.index}
        return found

    def apt(self) -> bytes:
        """Settings for apt, which ignores these environment variables."""
        return f'Acquire::https::CAInfo "{CERTIFICATES}";\n'.encode() if self.certificates else b""

    def lists(self, view: View) -> list[Bind]:
        """The source lists of apt in an image, with mirrors: what a RUN sees in their place."""
        found = []
        names = view.names(_FOLDER) if self.mirrors else {}
        for path in ["/etc/apt/sources.list", *(f"{_FOLDER}/{name}" for name in sorted(names))]:
            data = view.read(path, most=_LARGEST_BYTES) if self.mirrors else None
            if not data or len(data) == _LARGEST_BYTES:
                continue
            text = data.decode(errors="surrogateescape")
            if (mirrored := self.mirrored(text)) != text:
                written = mirrored.encode(errors="surrogateescape")
                found.append(Bind(source="", target=path, data=written, mode=0o644))
        return found

    def mirrored(self, text: str) -> str:
        """A source list of apt with mirrors in place of archives."""
        for archive, mirror in self.mirrors.items():
            top = mirror.rstrip("/").replace("\\", r"\\")  # escaped for re.sub
            if archive:
                text = re.sub(rf"{re.escape(archive.rstrip('/'))}(?=[/\s]|$)", top, text)
            else:
                text = _ARCHIVES.sub(rf"{top}/\1", text)
        return text
