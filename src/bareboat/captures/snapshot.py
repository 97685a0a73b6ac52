"""Whether an environment is what it was at an earlier capture, without collecting its files again.

A snapshot lists the directories and files of a collection. Names change only with the times of their
directory. The size, time and mode of every file are read again, so a change in place is seen, too.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import itertools
import os
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from bareboat.captures.collect import Collection
from bareboat.captures.interpreter import Interpreter
from bareboat.captures.sources import DATA, TOOL_PATH, identity
from bareboat.model import CaptureRequest
from bareboat_base import codec, execute
from bareboat_base.errors import BareboatError
from bareboat_images.store import Store

#: What changed later than this before the walk may have changed during it: some file systems count seconds.
_RECENT_NS = 2 * 10**9


class Directory(Struct, frozen=True, array_like=True):
    """A collected directory with the names of its collected files. `state`: its inode and its times."""

    path: str
    state: tuple[int, int, int]
    names: tuple[str, ...]


class Snapshot(Struct, frozen=True, kw_only=True):
    """`key`: what a collection depends on besides files; `interpreter`: its answer, which depends on the same
    files; `files`: digests of all files' states, in two parts; `paths`: the
    states of paths outside of the directories; `fingerprint`: that of the capture."""

    key: str
    interpreter: Interpreter
    fingerprint: str
    files: tuple[str, str]
    directories: tuple[Directory, ...]
    paths: dict[str, str]


def read(store: Store, python: str, request: CaptureRequest) -> Snapshot | None:
    """The snapshot of the environment of this Python, if nothing changed since it was kept."""
    with reading(store, python, request) as unchanged:
        return unchanged()


@contextlib.contextmanager
def reading(store: Store, python: str, request: CaptureRequest) -> Iterator[Callable[[], Snapshot | None]]:
    """Inside, the files are compared in the background; the function waits for the same as `read`."""
    kept = _kept(store, python, request)
    halves = () if kept is None else zip(_halves(kept.directories), kept.files, strict=True)
    with contextlib.ExitStack() as stack:
        compared = [stack.enter_context(execute.in_background(partial(_compare, *half))) for half in halves]
        yield lambda: kept if all(same() for same in compared) else None


def changed(store: Store, python: str) -> str:
    """The file, or new directory, that changed last since the newest capture; "" where none is known."""
    path, found = store.kept_facts(_name(python)), list[tuple[bool, int, str]]()
    with contextlib.suppress(BareboatError, OSError):
        kept = store.read(path, Snapshot)
        since_ns = max(each.stat().st_mtime_ns for each in [path, *(store.root / "captures").glob("*")])
        known = {each.path for each in kept.directories}
        for each in kept.directories:
            with os.scandir(each.path) as entries:
                times = {entry.name: entry.stat(follow_symlinks=False).st_ctime_ns for entry in entries}
            times |= dict.fromkeys(set(each.names) - set(times), os.stat(each.path).st_ctime_ns)
            for name, time_ns in times.items():
                if time_ns > since_ns and (place := f"{each.path}/{name}") not in known:
                    found.append(("__pycache__" not in place, time_ns, place))
    return max(found)[2] if found else ""


def _kept(store: Store, python: str, request: CaptureRequest) -> Snapshot | None:
    """The snapshot, if nothing but files may have changed since it was kept."""
    path = store.kept_facts(_name(python))
    if not path.is_file():
        return None
    try:
        kept = store.read(path, Snapshot)
    except BareboatError:  # it is written again
        return None
    if kept.key != _key(request) or any(_state(path) != state for path, state in kept.paths.items()):
        return None
    return kept


def _compare(directories: Sequence[Directory], files: str) -> bytes:
    """Something, if this is the digest of the files now."""
    try:
        return b"same" if _files(directories) == files else b""
    except OSError:
        return b""


def _halves(directories: Sequence[Directory]) -> tuple[Sequence[Directory], Sequence[Directory]]:
    """The directories in two parts with about as many files."""
    counts = [*itertools.accumulate(len(each.names) for each in directories)]
    middle = bisect.bisect(counts, sum(counts[-1:]) // 2)
    return directories[:middle], directories[middle:]


def keep(
    store: Store,
    interpreter: Interpreter,
    request: CaptureRequest,
    collection: Collection,
    fingerprint: str,
    *,
    began_ns: int,
) -> None:
    """Keep a snapshot of a collection that was begun at `began_ns`, unless something changed since then. The
    request names the Python that was started."""
    if request.compiler is True or request.programs is not None or request.python != interpreter.executable:
        return  # the host's programs, and what starts a Python of its choice, depend on other files, too
    directories = tuple(_directories(collection))
    walked = {each.path for each in directories}
    outside = [
        path
        for path, item in collection.items.items()
        if item.data is None and os.path.dirname(path) not in walked
    ]
    watched = (
        *outside,
        *collection.passed_over,
        *DATA,
        *TOOL_PATH.split(":"),
        *interpreter.path,
        *interpreter.sites,
    )
    paths = {path: _state(path) for path in (*watched, *_settings(interpreter)) if path not in walked}
    try:
        before_ns = began_ns - _RECENT_NS
        first, second = (_files(each, before_ns=before_ns) for each in _halves(directories))
        kept = Snapshot(
            key=_key(request), interpreter=interpreter, fingerprint=fingerprint, files=(first, second),
            directories=directories, paths=paths,
        )  # fmt: skip
        store.write(store.kept_facts(_name(interpreter.executable)), codec.to_json(kept))
    except (BareboatError, OSError):  # such as a full disk: the next command collects the files again
        return


def _name(python: str) -> str:
    return "environment-" + hashlib.sha256(os.fsencode(python)).hexdigest()[:16]


def _key(request: CaptureRequest) -> str:
    request = msgspec.structs.replace(request, python=None)
    variables = [os.environ.get(name, "") for name in ("HOME", "LD_LIBRARY_PATH")]
    inputs = [__file__, os.geteuid(), request, [*map(os.path.abspath, request.include)]]
    texts = {path: data.decode(errors="surrogateescape") for path, data in identity().items()}
    return hashlib.sha256(codec.to_json([*inputs, variables, texts])).hexdigest()


def _settings(interpreter: Interpreter) -> tuple[str, ...]:
    """Paths that decide what is collected, and may not be collected themselves."""
    prefix = interpreter.prefix
    return ("/etc/ld.so.cache", "/etc/ld.so.conf", prefix, f"{prefix}/conda-meta", f"{prefix}/pyvenv.cfg")


def _directories(collection: Collection) -> Iterator[Directory]:
    names: dict[str, list[str]] = {path: [] for path in collection.walked}
    for path, item in collection.items.items():
        folder, _, name = path.rpartition("/")
        if item.kind == "file" and item.data is None and folder in names:
            names[folder].append(name)
    for path, listed in names.items():
        yield Directory(path, _times(os.stat(path)), tuple(listed))


def _times(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def _files(directories: Iterable[Directory], *, before_ns: int | None = None) -> str:
    """A digest of the files' states. Raises OSError for a path that is gone, for a directory that changed,
    and for what changed after `before_ns`."""
    digest = hashlib.sha256()
    read = os.stat  # a local name, because there may be a hundred thousand files
    for each in directories:
        descriptor = os.open(each.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _times(os.fstat(descriptor)) != each.state:
                raise FileNotFoundError(each.path)
            found = [read(name, dir_fd=descriptor, follow_symlinks=False) for name in each.names]
        finally:
            os.close(descriptor)
        times = [state.st_mtime_ns for state in found]
        if before_ns is not None and max(*each.state[1:], *times) > before_ns:
            raise FileNotFoundError(each.path)
        digest.update(array("q", times))
        digest.update(array("q", [state.st_size for state in found]))
        digest.update(array("Q", [state.st_mode << 32 | state.st_uid for state in found]))
    return digest.hexdigest()


def _state(path: str) -> str:
    """The state of a path that is not in a collected directory. Many write to the directories above it."""
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            return f"link {os.readlink(path)}"
    except OSError:
        return "nothing"
    if stat.S_ISDIR(state.st_mode) and path not in TOOL_PATH.split(":"):
        return f"directory {state.st_ino}"
    return f"{state.st_mode:o} {state.st_uid} {state.st_size} {state.st_mtime_ns}"
