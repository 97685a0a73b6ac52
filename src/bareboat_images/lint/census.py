"""One pass over the metadata of an image's layers: which layer has which files, what later layers hide, and
the final tree. Pure, except for reading the iterators of entries.

A file is counted under one label, by its directory or its name: the first of `_PLACES` that matches.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bareboat_base.expressions import expression
from bareboat_images.lint.entries import Item

#: Label -> its directories, with all files below them. Group 1 captures the directory to report.
_PLACES: tuple[tuple[str, str], ...] = (
    ("package cache", r"(/var/lib/apt/lists|/var/cache/(?:apt|dnf|yum|libdnf5|zypp|apk|microdnf)"
     r"|/etc/apk/cache|/var/cache/pacman/pkg|/var/lib/pacman/sync)(?:/.*)?"),
    ("language cache", r"((?:/root|/home/[^/]+|/)?/\.cache/(?:pip|uv|pypoetry|pdm|yarn|go-build|bazel"
     r"|Cypress|node|conda|mamba|ccache|R|composer|electron|typescript|bazelisk|sccache)|.*/\.npm/_(?:cacache|logs|npx)"
     r"|.*/\.yarn/cache|.*/\.cargo/registry|.*/cargo/registry|.*/pkg/mod/cache|.*/\.ccache|.*/\.gradle/caches"
     r"|.*/\.m2/repository|.*/\.ivy2/cache|.*/\.gem/specs|.*/\.bundle/cache|.*/\.julia/compiled"
     r"|.*/\.spack/cache|.*/spack/var/spack/cache|.*/\.nv/ComputeCache|.*/\.conda/pkgs)(?:/.*)?"),
    ("temporary", r"(/tmp|/var/tmp)(?:/.*)?"),
    ("history", r"(.*/\.(?:git|hg|svn))(?:/.*)?"),
    ("home", r"(/root(?:/[^/]+)?|/home/[^/]+(?:/[^/]+)?)(?:/.*)?"),
)  # fmt: skip
_PLACE = expression("|".join(f"(?P<p{n}>{pattern})" for n, (_, pattern) in enumerate(_PLACES)))
#: File names that count in any directory.
_ARCHIVE = expression(
    r".+\.(?:tar|tar\.[a-z0-9]{1,4}|tgz|tbz2?|txz|zip|deb|rpm|run|whl|7z)|(?:Mini|Micro|Ana)\w+.*\.sh|core\.\d{1,7}"
)
#: Directories where an archive is part of installed software.
_INSTALLED = expression(
    r"/(?:site-packages|dist-packages|node_modules|ensurepip|share|testdata|tests?|rubygems|R)(?:/|$)|^/var/(?!tmp)"
)
#: Names of files that may contain a secret. The content decides.
SECRET_NAMES = expression(
    r"^(?:id_(?:rsa|dsa|ecdsa|ed25519)\w*|ssh_host_\w+_key|.+\.(?:pem|key|p12|pfx|jks|kdbx|ppk)|credentials(?:\.json|\.db)?"
    r"|\.netrc|_netrc|\.pgpass|\.my\.cnf|\.git-credentials|\.npmrc|\.yarnrc\.yml|\.pypirc|\.dockercfg|config\.json|auth\.json"
    r"|kubeconfig|config|\.condarc|pip\.conf|\.env(?:\.\w+)?|\.Renviron|token|hosts\.yml|application_default_credentials\.json"
    r"|service[-_]account.*\.json|\.s3cfg|\.boto|\.htpasswd|\.vault-token|kaggle\.json|cookies\.txt|\.bash_history"
    r"|rclone\.conf|netrc)$"
)
_LEAST_ARCHIVE_BYTES = 1_000_000
_SETUID = 0o6000
_TARGET = expression(r"linux-[a-z0-9.]+-([a-z0-9_]+)")
_EDITABLE = expression(r"__editable__.*|.+\.egg-link|easy-install\.pth")
_MOST_EXAMPLES = 3
_MOST_KEPT = 2000


@dataclass(slots=True)
class Group:
    """Files of one label, in one directory, from one layer. `runs`: number of executables and libraries;
    `largest`: size and path of some."""

    label: str
    place: str
    layer: int
    size_bytes: int = 0
    files: int = 0
    runs: int = 0
    largest: list[tuple[int, str]] = field(default_factory=list)

    def add(self, path: str, size: int, *, runs: bool = False) -> None:
        self.size_bytes += size
        self.files += 1
        self.runs += runs
        if len(self.largest) < _MOST_EXAMPLES:
            heapq.heappush(self.largest, (size, path))
        elif size > self.largest[0][0]:
            heapq.heapreplace(self.largest, (size, path))

    @property
    def paths(self) -> tuple[str, ...]:
        """The largest files, the largest first."""
        return tuple(path for _, path in sorted(self.largest, reverse=True))


@dataclass(slots=True)
class Hidden:
    """Files of a lower layer that a layer deletes (`kind` deleted), replaces (replaced), or contains again
    with the same size (copied)."""

    kind: str
    layer: int
    below: int
    group: Group


@dataclass(slots=True)
class Census:
    """The result. Layers count from 1. `entries`: number of entries of all layers, without whiteouts;
    `final`: directory -> name -> size, layer, kind and mode in the final tree; `marked`: label -> paths with
    a layer, of files that a rule reads or names, such as possible secrets by their name."""

    layers: int = 0
    total_bytes: int = 0
    entries: int = 0
    groups: dict[tuple[str, str, int], Group] = field(default_factory=dict)
    hidden: dict[tuple[str, int, int], Hidden] = field(default_factory=dict)
    marked: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    final: dict[str, dict[str, tuple[int, int, str, int]]] = field(default_factory=dict)

    def exists(self, path: str) -> bool:
        """Whether the path is in the final tree; links are not followed."""
        folder, _, name = path.rstrip("/").rpartition("/")
        return name in self.final.get(folder, {})

    def labelled(self, *labels: str) -> list[Group]:
        return [group for group in self.groups.values() if group.label in labels]

    def mark(self, label: str, path: str, layer: int) -> None:
        kept = self.marked.setdefault(label, [])
        if len(kept) < _MOST_KEPT:
            kept.append((path, layer))


def take(layers: Sequence[Iterable[Item]]) -> Census:
    """Read the entries of all layers, the lowest first."""
    census = Census()
    final = census.final
    final[""] = {}
    for number, items in enumerate(layers, 1):
        census.layers = number
        for item in items:
            _enter(census, final, item, number)
    _count(census)
    return census


def _enter(
    census: Census,
    final: dict[str, dict[str, tuple[int, int, str, int]]],
    item: Item,
    number: int,
) -> None:
    path, kind, size, mode, gains = item
    if path == "/":
        if kind == "opaque":
            _clear(census, "", number)
        return
    if kind == "opaque":
        _clear(census, path, number)
        return
    folder, _, name = path.rpartition("/")
    siblings = final.setdefault(folder, {})
    if kind == "whiteout":
        below = siblings.get(name)
        if below is not None and below[1] < number:
            _remove(census, path, below, number, "deleted")
            del siblings[name]
        return
    census.entries += 1
    census.total_bytes += size
    below = siblings.get(name)
    if below is not None and below[1] < number and (kind != "folder" or below[2] != "folder"):
        same = below[2] == "file" and kind == "file" and below[0] == size and size > 0
        _remove(census, path, below, number, "copied" if same else "replaced")
    siblings[name] = (size, number, kind, mode)
    if kind == "folder":
        final.setdefault(path, {})
        if "linux-" in name and (found := _TARGET.fullmatch(name)):
            census.mark("target", found[1], number)
    elif kind in ("file", "hard link"):
        if (mode & _SETUID and mode & 0o111) or gains:
            census.mark("gains", path, number)
        if SECRET_NAMES.search(name):
            census.mark("secret", path, number)
        if name.startswith(("__editable__", "easy-install")) or name.endswith(".egg-link"):
            if _EDITABLE.fullmatch(name):
                census.mark("editable", path, number)
        elif name == "direct_url.json":
            census.mark("direct url", path, number)


def _clear(census: Census, top: str, number: int) -> None:
    """Remove a directory's entries from the layers below."""
    pending = [top]
    while pending:
        folder = pending.pop()
        children = census.final.get(folder, {})
        for name, below in list(children.items()):
            if below[1] < number:
                _remove(census, f"{folder}/{name}", below, number, "deleted")
                del children[name]
            elif below[2] == "folder":
                pending.append(f"{folder}/{name}")


def _remove(census: Census, path: str, below: tuple[int, int, str, int], number: int, kind: str) -> None:
    pending = [(path, below)]
    while pending:
        path, (size, layer, what, _) = pending.pop()
        if what == "folder":
            inside = census.final.get(path, {})
            for name, each in list(inside.items()):
                if each[1] < number:
                    pending.append((f"{path}/{name}", each))
                    del inside[name]
        elif size and layer < number:
            found = census.hidden.get((kind, layer, number))
            if found is None:
                found = Hidden(kind, number, layer, Group(kind, "", layer))
                census.hidden[kind, layer, number] = found
            found.group.add(path, size)


def _count(census: Census) -> None:
    """Group the files of the final tree by label."""
    places: dict[str, tuple[str, str] | None] = {}
    for folder, names in census.final.items():
        if not names:
            continue
        known = places[folder] = _place(census, folder)
        for name, (size, layer, kind, mode) in names.items():
            if kind == "folder":
                continue
            if known is not None:
                label, place = known
            elif size >= _LEAST_ARCHIVE_BYTES and _ARCHIVE.fullmatch(name) and not _INSTALLED.search(folder):
                label, place = "archive", f"{folder}/{name}"
            else:
                continue
            if kind != "file" or not size:
                continue
            group = census.groups.get((label, place, layer))
            if group is None:
                group = census.groups[label, place, layer] = Group(label, place, layer)
            runs = bool(mode & 0o111) or name.endswith((".so", ".py")) or ".so." in name
            group.add(f"{folder}/{name}", size, runs=runs)


def _place(census: Census, folder: str) -> tuple[str, str] | None:
    """The label of a directory, and the directory to report."""
    found = _PLACE.fullmatch(folder)
    if found is not None and found.lastgroup is not None:
        for number, (label, _) in enumerate(_PLACES):
            if found[f"p{number}"] is not None:
                at = found.re.groupindex[f"p{number}"]
                return label, found[at + 1]
    at = folder.find("/pkgs")
    if at > 0 and (len(folder) == at + 5 or folder[at + 5] == "/"):
        prefix = folder[:at]
        if "conda-meta" in census.final.get(prefix, {}) or "mamba" in prefix or "conda" in prefix:
            return "language cache", folder[: at + 5]
    return None
