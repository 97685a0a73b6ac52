"""COPY and ADD: copy the files of a source into the tree of a new layer.

As in BuildKit: a directory's contents are copied. A file is copied into the target directory if that exists
or its path ends in a slash. Symbolic links are copied as links; only a source itself is followed.
https://docs.docker.com/reference/dockerfile/#copy
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from bareboat_base.errors import ImageError
from bareboat_base.expressions import expression
from bareboat_base.printable import quoted
from bareboat_images.builder.files import Files, Item, changed, open_regular, read_link
from bareboat_images.builder.places import Owner, locate
from bareboat_images.builder.tree import Tree
from bareboat_images.layers.copies import NEW_FILE
from bareboat_images.layers.view import View
from bareboat_images.recipe.ignore import Ignored

_CHUNK = 1 << 20
#: A signal waits for so much.
_COPIED_AT_ONCE = 64 << 20
_CLAUSE = expression(r"([ugoa]*)([-+=])([rwxXst]*)")


class Source(Struct, frozen=True, kw_only=True):
    """Entries of one source, as returned by `select`."""

    files: Files
    items: tuple[Item, ...]


class Request(Struct, frozen=True, kw_only=True):
    """One COPY or ADD. `target`: absolute; `is_folder`: it ends in a slash or has several sources; `opens`:
    directories are made accessible to their owner, for files that are used on this machine."""

    sources: tuple[Source, ...]
    target: str
    is_folder: bool
    chmod: str = ""
    opens: bool = False
    excluded: Ignored = field(default_factory=lambda: Ignored(()))
    owner: Owner = (0, 0)


#: An entry to copy: its source, its top entry, the entry itself, and its path below the top entry.
Entry = tuple[Source, Item, Item, str]


def entries(request: Request) -> Iterator[Entry]:
    """All entries to copy."""
    for source in request.sources:
        for top in source.items:
            if _is_excluded(request, top.given, posixpath.basename(top.given)) and top.path:
                continue
            yield source, top, top, ""
            if not top.is_folder:
                continue
            for item in source.files.walk(top.path):
                inner = item.path[len(top.path) :].lstrip("/")
                if stat.S_ISSOCK(item.state.st_mode):  # BuildKit leaves them out, too
                    continue
                if not _is_excluded(request, posixpath.join(top.given, inner), inner):
                    yield source, top, item, inner


def _is_excluded(request: Request, path: str, inner: str) -> bool:
    return bool(request.excluded) and (request.excluded.ignores(path) or request.excluded.ignores(inner))


class Copier:
    """Writes one layer's tree. `view`: the layers below it; `owners`: path -> owner of a new entry; `check`
    raises when the build was stopped."""

    def __init__(
        self, view: View, tree: Tree, request: Request, *, check: Callable[[], None] = lambda: None
    ) -> None:
        self._check = check
        self._view = view
        self._tree = tree
        self._request = request
        self._change = mode_change(request.chmod) if request.chmod else None
        #: A file with several names -> the path of its copy; and back.
        self._links: dict[tuple[int, int], str] = {}
        self._linked: dict[str, tuple[int, int]] = {}
        #: Directory -> the mode and the time that it gets at the end, parents first. The last source applies.
        self._made: dict[str, tuple[int, int]] = {}
        #: Known directories of the tree; no entry replaces a directory.
        self._folders: set[str] = set()
        self.owners: dict[bytes, Owner] = {}

    def run(self, listed: Sequence[Entry]) -> None:
        """Copy the entries that the step's key describes. Raises PlaceError, and ImageError for an entry that
        was changed since."""
        request = self._request
        target = locate(self._view, request.target)
        is_folder = request.is_folder or (target.node is not None and target.node.kind == "folder")
        if target.node is not None and target.node.kind != "folder" and request.is_folder:
            raise ImageError(
                f"{request.target} is a file in the image, not a directory", remedy="copy to another path"
            )
        for source, top, item, inner in listed:
            self._one(_goal(target.path, is_folder, top, inner), item, source, is_top=item is top)
        self._stamp()

    def make_folder(self, path: str) -> None:
        """Make an empty directory and its parents."""
        self._folder(path, 0o755, time.time_ns(), keeps=False)
        self._stamp()

    def _stamp(self) -> None:
        for path, (mode, mtime_ns) in reversed(self._made.items()):
            self._tree.change_folder(path, mode=mode, mtime_ns=mtime_ns)

    def _one(self, goal: str, item: Item, source: Source, *, is_top: bool) -> None:
        name = source.files.name
        if item.is_folder:
            # BuildKit makes the target of a directory's content, and copies only what is in the directory.
            mode = 0o755 if is_top else self._mode(item.mode, is_folder=True)
            self._folder(goal, mode, item.state.st_mtime_ns, keeps=is_top)
            return
        self._parents(goal)
        folder, last = self._free(goal)
        state = item.state
        if stat.S_ISLNK(state.st_mode):
            os.symlink(read_link(item, source.files), last, dir_fd=folder)
            times = (state.st_mtime_ns, state.st_mtime_ns)
            os.utime(last, ns=times, dir_fd=folder, follow_symlinks=False)
        elif stat.S_ISREG(state.st_mode):
            self._file(goal, item, source.files)
        elif stat.S_ISFIFO(state.st_mode):
            os.mkfifo(last, 0o600, dir_fd=folder)
            os.chmod(last, self._mode(item.mode, is_folder=False), dir_fd=folder)
        else:
            raise ImageError(
                f"{item.path} in {name} is neither a file, a directory nor a link",
                remedy="leave it out by .dockerignore",
            )
        self._own(goal)

    def _file(self, goal: str, item: Item, files: Files) -> None:
        state = item.state
        identity = (state.st_dev, state.st_ino)
        if state.st_nlink > 1:
            first = self._links.get(identity)
            if first is not None:
                self._tree.link(first, goal)
                return
            self._links[identity], self._linked[goal] = goal, identity
        with open_regular(item, files) as given:
            folder, last = self._tree.at(goal)
            made = os.open(last, NEW_FILE, 0o600, dir_fd=folder)
            try:
                if _copy(given.fileno(), made, self._check) != state.st_size:
                    raise changed(item.path, files.name)
                for key in os.listxattr(given.fileno()):
                    if key.startswith("user.") and not key.startswith("user.overlay."):
                        os.setxattr(made, key, os.getxattr(given.fileno(), key))
                os.fchmod(made, self._mode(item.mode, is_folder=False))
                os.utime(made, ns=(state.st_mtime_ns, state.st_mtime_ns))
            finally:
                os.close(made)

    def _mode(self, mode: int, *, is_folder: bool) -> int:
        return mode if self._change is None else self._change(mode, is_folder)

    def _folder(self, goal: str, mode: int, mtime_ns: int, *, keeps: bool) -> None:
        """Make a directory. `keeps`: an existing one keeps its mode and time."""
        self._parents(goal)
        is_made, found = self._make(goal)
        if is_made and keeps:
            return
        if found is not None and keeps:
            mode, mtime_ns = stat.S_IMODE(found.st_mode), found.st_mtime_ns
        else:
            self._own(goal)
        self._made[goal] = (mode | 0o700 if self._request.opens else mode, mtime_ns)

    def _parents(self, goal: str) -> None:
        """Make the parent directories of a path. Raises ImageError if one exists and is not a directory: a
        symbolic link would lead elsewhere."""
        parts = goal.strip("/").split("/")[:-1]
        for count in range(1, len(parts) + 1):
            path = "/" + "/".join(parts[:count])
            if path in self._folders:
                continue
            is_made, found = self._make(path)
            self._folders.add(path)
            if is_made:
                continue
            if found is None:
                self._own(path)
                self._made[path] = (0o755, time.time_ns())
            else:
                self._made[path] = (stat.S_IMODE(found.st_mode), found.st_mtime_ns)

    def _make(self, path: str) -> tuple[bool, os.stat_result | None]:
        """Make a directory in an existing one; whether it was there already, or else the one in the layers
        below. Raises ImageError if one of them is not a directory."""
        made = self._tree.state(path)
        found = self._existing(path) if made is None else None
        for each in (made, found):
            if each is not None and not stat.S_ISDIR(each.st_mode):
                raise _in_the_way(path, "a directory", each)
        if made is None:
            self._tree.make_folder(path)
        return made is not None, found

    def _free(self, goal: str) -> tuple[int, str]:
        """Descriptor of the directory for a new file, and its name. Removes an earlier file of this step."""
        made = self._tree.state(goal)
        found = self._existing(goal)
        if any(each is not None and stat.S_ISDIR(each.st_mode) for each in (found, made)):
            raise _in_the_way(goal, "a file")
        folder, last = self._tree.at(goal)
        if made is not None:
            os.unlink(last, dir_fd=folder)
            self._links.pop(self._linked.pop(goal, (0, 0)), None)
        return folder, last

    def _existing(self, path: str) -> os.stat_result | None:
        """The entry of the layers below at a path whose parents are not symbolic links."""
        node = locate(self._view, path, last_link=False).node
        return None if node is None else os.lstat(node.places[0])

    def _own(self, goal: str) -> None:
        if self._request.owner != (0, 0):
            self.owners[os.fsencode(goal.lstrip("/"))] = self._request.owner


def _goal(target: str, is_folder: bool, top: Item, inner: str) -> str:
    if top.is_folder:
        return posixpath.join(target, inner).rstrip("/") or "/"
    return posixpath.join(target, posixpath.basename(top.given)) if is_folder else target


def _copy(given: int, made: int, check: Callable[[], None]) -> int:
    done = 0
    try:
        while count := os.copy_file_range(given, made, _COPIED_AT_ONCE):
            check()
            done += count
    except OSError:
        if done:
            raise
        while data := os.read(given, _CHUNK):
            check()
            view = memoryview(data)
            while view:
                view = view[os.write(made, view) :]
            done += len(data)
    return done


def _in_the_way(path: str, what: str, state: os.stat_result | None = None) -> ImageError:
    """`state`: of what is there. A link of the system, such as /bin, must stay: programs need it."""
    if state is not None and stat.S_ISLNK(state.st_mode):
        return ImageError(
            f"{path} cannot become {what}: the image has a link there",
            remedy=f"copy into the directory that it leads to: COPY SOURCE{path}/ {path}/",
        )
    return ImageError(
        f"{path} cannot become {what}: the image has something else there",
        remedy="copy to another path, or remove it first: RUN rm …",
    )


def mode_change(text: str) -> Callable[[int, bool], int]:
    """The change that --chmod makes: (mode, whether it is a directory's) -> mode. Raises ValueError."""
    if re.fullmatch(r"[0-7]{1,5}", text):
        number = int(text, 8)
        if number > 0o7777:
            raise ValueError(f"{text!r} is not a mode")
        return lambda _mode, _is_folder: number
    clauses = [_CLAUSE.fullmatch(each) for each in text.split(",")]
    if not text or any(each is None for each in clauses):
        raise ValueError(f"{quoted(text)} is not a mode")

    def change(mode: int, is_folder: bool) -> int:
        for clause in clauses:
            assert clause is not None
            mode = _changed(mode, is_folder, clause[1] or "a", clause[2], clause[3])
        return mode

    return change


def _changed(mode: int, is_folder: bool, who: str, operator: str, what: str) -> int:
    who = "ugo" if "a" in who else who
    bits = 0
    for letter in what:
        if letter == "X":
            letter = "x" if is_folder or mode & 0o111 else ""
        for each in who:
            shift = {"u": 6, "g": 3, "o": 0}[each]
            bits |= {"r": 4, "w": 2, "x": 1}.get(letter, 0) << shift
            bits |= {("s", "u"): 0o4000, ("s", "g"): 0o2000}.get((letter, each), 0)
        if letter == "t":
            bits |= 0o1000
    covered = sum(0o7 << {"u": 6, "g": 3, "o": 0}[each] for each in set(who))
    if operator == "=":
        return mode & ~covered | bits
    return mode | bits if operator == "+" else mode & ~bits
