"""Sources for package managers during RUN: an index and mirrors of the site, and its certificates.

Like proxies, they are not part of images and cache keys: a mirror has the same packages.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_images.builder.copying import Copier, Request
from bareboat_images.builder.tree import Tree
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

    def mirrored(self, text: str) -> str:
        """A source list of apt with mirrors in place of archives."""
        for archive, mirror in self.mirrors.items():
            top = mirror.rstrip("/").replace("\\", r"\\")  # escaped for re.sub
            if archive:
                text = re.sub(rf"{re.escape(archive.rstrip('/'))}(?=[/\s]|$)", top, text)
            else:
                text = _ARCHIVES.sub(rf"{top}/\1", text)
        return text


class Sources:
    """The source lists of apt, which have mirrors during a RUN and are restored after it."""

    def __init__(self, packages: Packages, view: View) -> None:
        self._view = view
        #: Path -> its text, and the text with mirrors.
        self._changed: dict[str, tuple[str, str]] = {}
        names = view.names(_FOLDER) if packages.mirrors else {}
        for path in ["/etc/apt/sources.list", *(f"{_FOLDER}/{name}" for name in sorted(names))]:
            found = view.find(path) if packages.mirrors else None
            data = view.read(path, most=_LARGEST_BYTES) if found is not None else None
            if found is None or not data or len(data) == _LARGEST_BYTES:
                continue
            text = data.decode(errors="surrogateescape")
            if (mirrored := packages.mirrored(text)) != text:
                self._changed[found.path] = (text, mirrored)

    def place(self, top: Path) -> None:
        """Write the lists with mirrors into the tree of a RUN, or the upper directory of its overlay."""
        with Tree(top) as tree:
            # The deepest first: making a directory would change the time of its parent.
            for path in sorted(self._changed, key=lambda path: path.count("/"), reverse=True):
                if tree.state(os.path.dirname(path)) is None:
                    Copier(self._view, tree, Request(sources=(), target=path, is_folder=False)).make_parents(
                        path
                    )
                _write(tree, path, self._changed[path][1], self._below(path))

    def restore(self, upper: Path) -> None:
        """Remove the mirrors from the lists in the layer of a RUN. Lists that it did not change are removed
        from the layer."""
        if not self._changed:
            return
        every = _replaced(self._changed.values())
        with Tree(upper) as tree:
            for path in _lists(tree, self._changed):
                state = tree.state(path)
                if state is None or not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST_BYTES:
                    continue
                text = _read(tree, path)
                changed = self._changed.get(path)
                restored = _restored(text, every if changed is None else _replaced([changed]))
                if changed is not None and restored == changed[0] and self._is_below(tree, path, state):
                    _remove(tree, path)
                elif restored != text:
                    _write(tree, path, restored, state)

    def _below(self, path: str) -> os.stat_result:
        found = self._view.find(path)
        assert found is not None
        return os.lstat(found.node.places[0])

    def _is_below(self, tree: Tree, path: str, state: os.stat_result) -> bool:
        """Whether the layers below have the file with the same mode, visible without this one."""
        folder = os.path.dirname(path)
        here = tree.state(folder)
        # A directory that the RUN created again hides the layers below.
        untouched = here is not None and here.st_mtime_ns == self._below(folder).st_mtime_ns
        return untouched and state.st_mode == self._below(path).st_mode


def _lists(tree: Tree, changed: Iterable[str]) -> Iterator[str]:
    """The changed lists and all other files in their directories, which may be copies made by a RUN."""
    for folder in sorted({os.path.dirname(path) for path in changed}):
        with contextlib.suppress(OSError), os.scandir(tree.folder(folder)) as entries:
            yield from [f"{folder}/{entry.name}" for entry in entries]


def _replaced(changed: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """URL of a mirror -> the URLs that it replaced, in the order of the text: two archives may have one
    mirror."""
    found: dict[str, list[str]] = {}
    for text, mirrored in changed:
        for old, new in zip(text.split(), mirrored.split(), strict=True):
            if old != new:
                found.setdefault(new, []).append(old)
    return found


def _restored(text: str, replaced: Mapping[str, Sequence[str]]) -> str:
    seen: Counter[str] = Counter()

    def one(found: re.Match[str]) -> str:
        olds = replaced.get(found[0], (found[0],))
        seen[found[0]] += 1
        return olds[min(seen[found[0]], len(olds)) - 1]

    return re.sub(r"\S+", one, text)


def _read(tree: Tree, path: str) -> str:
    folder, name = tree.at(path)
    descriptor = untrusted.open_regular(name, dir_fd=folder)
    with os.fdopen(descriptor, errors="surrogateescape", newline="") as stream:
        return stream.read(_LARGEST_BYTES)


def _write(tree: Tree, path: str, text: str, state: os.stat_result) -> None:
    """Write a file with this mode and time; the time of its directory does not change."""
    _remove(tree, path)
    above = tree.state(os.path.dirname(path))
    folder, name = tree.at(path)
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(text.encode(errors="surrogateescape"))
        stream.flush()
        os.fchmod(descriptor, stat.S_IMODE(state.st_mode))
        os.utime(descriptor, ns=(state.st_mtime_ns, state.st_mtime_ns))
    assert above is not None
    tree.change_folder(os.path.dirname(path), mtime_ns=above.st_mtime_ns)


def _remove(tree: Tree, path: str) -> None:
    above = tree.state(os.path.dirname(path))
    folder, name = tree.at(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
        assert above is not None
        tree.change_folder(os.path.dirname(path), mtime_ns=above.st_mtime_ns)
