"""The files of an environment, without shared libraries from outside, and what a shell needs."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import urllib.parse
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from bareboat.captures import compiler
from bareboat.captures.collect import NOTHING, Collection, Part, read, shown
from bareboat.captures.interpreter import Interpreter
from bareboat.model import CaptureRequest
from bareboat_base import codec, execute, ranges
from bareboat_base.errors import UsageError
from bareboat_base.paths import lies_in

_TOOLS = """
sh bash env true false echo printf test cat cp mv rm ls mkdir rmdir ln chmod touch mktemp readlink realpath
dirname basename pwd head tail sort uniq wc tr cut tee grep sed awk find xargs tar gzip diff date sleep
timeout kill ps uname hostname id whoami nproc df du free stat seq which
""".split()  # noqa: SIM905
TOOL_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

DATA = (
    "/etc/os-release", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted",
    "/etc/services", "/etc/protocols", "/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8",
    "/usr/share/zoneinfo", "/lib/terminfo", "/usr/share/terminfo/x", "/usr/share/terminfo/l",
)  # fmt: skip

_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"
_WRITTEN = {
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
    # All addresses of a name in /etc/hosts, as everywhere; without it the resolver takes the first.
    "/etc/host.conf": b"multi on\n",
    "/etc/hosts": b"127.0.0.1 localhost\n::1 localhost\n",
    "/etc/resolv.conf": b"",
}
_FOLDERS = {
    "/tmp": 0o1777, "/var/tmp": 0o1777, "/run": 0o755, "/root": 0o755, "/home": 0o755,
    "/dev": 0o755, "/proc": 0o755, "/sys": 0o755, "/mnt": 0o755,
}  # fmt: skip


class Sources(Struct, frozen=True):
    """`collection`: the files; `roots`: the completely collected directories with their layers; `programs`:
    directories for the image's PATH; `variables`: environment variables of the image."""

    collection: Collection
    roots: tuple[tuple[str, Part], ...]
    programs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


class _SourceCollector:
    """The files of an image while they are collected."""

    def __init__(self) -> None:
        self.collection = Collection()
        self.roots: list[tuple[str, Part]] = []

    def add_root(self, path: str, part: Part, *, without: frozenset[str] = frozenset()) -> bool:
        """Add a path; return whether it is a part of the image."""
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"the path {shown(path)} is not UTF-8, and an image's description is",
                remedy="give it another name",
            ) from None
        real = self.collection.add(path, part, without=without)
        walked = self.collection.has_walked(real)
        if walked and not real.startswith(("/usr/", "/lib", "/etc/", "/bin/", "/opt/")):
            self.roots.append((real, self.collection.items[real].part))
        return walked or self.collection.items.get(real, NOTHING).kind == "file"

    def add_system(self) -> None:
        """Add directories, tools and data that each image has."""
        for path, mode in _FOLDERS.items():
            self.collection.folder(self.collection.link(path, Part.SYSTEM), mode)  # /home may be a link
        for path in ("/bin", "/sbin", "/lib", "/lib64"):  # links into /usr on most systems
            if os.path.islink(path):
                self.collection.link(path, Part.SYSTEM)
        tools = (execute.which(tool, path=TOOL_PATH) for tool in _TOOLS)
        for path in (*filter(None, tools), *filter(os.path.exists, DATA)):
            self.collection.add(path, Part.SYSTEM)

    def add_environment(self, interpreter: Interpreter) -> None:
        """Add Python with the environment's packages."""
        for path in (interpreter.executable, interpreter.base_executable):
            self.collection.add(path, Part.PYTHON)
        # Without the base's site-packages, which are no part of this environment, and Python's tests (60 MB).
        left_out = frozenset({"site-packages", "dist-packages", "test"})
        self.add_root(interpreter.stdlib, Part.PYTHON, without=left_out)
        if interpreter.owns_prefix:
            is_conda = os.path.isdir(f"{interpreter.prefix}/conda-meta")
            inner = frozenset({"pkgs", "envs"}) if is_conda else frozenset()
            if interpreter.prefix == interpreter.base_prefix and not inner:
                self.add_root(os.path.join(interpreter.prefix, "bin"), Part.PYTHON)
            else:
                self.add_root(interpreter.prefix, Part.PACKAGES, without=inner)
        for path in interpreter.path:
            packages = os.path.basename(path) in ("site-packages", "dist-packages")
            if os.path.exists(path) and (packages or not lies_in(path, interpreter.stdlib)):
                self.add_root(path, Part.PACKAGES)
        for path in _editable_sources(self.collection):
            self.add_root(path, Part.PACKAGES)

    def add_included(self, path: str, included: Sequence[str]) -> None:
        """Add one of the paths of `capture.include`. Raises UsageError where no image can have it."""
        others = ranges.setting("capture.include", [each for each in included if each != path])
        if not os.path.exists(path):
            raise UsageError(
                f"capture.include has {shown(path)}, to be added to the capture, which does not exist",
                key="capture.include",
                remedy=others,
            )
        if os.path.isdir(path) and os.access(path, os.R_OK) and not os.listdir(path):
            raise UsageError(
                f"capture.include has {shown(path)}, to be added to the capture, which is an empty directory",
                key="capture.include",
                remedy=others,
            )
        if not self.add_root(path, Part.PACKAGES):
            self.collection.check_readable()
            raise UsageError(
                f"capture.include has {shown(path)}, which cannot be captured",
                context=self.collection.left_out[-1],
                key="capture.include",
                remedy=others,
            )


def sources_of(interpreter: Interpreter, request: CaptureRequest) -> Sources:
    """Collect all files except shared libraries from outside of the environment."""
    collector = _SourceCollector()
    collection, roots = collector.collection, collector.roots
    collector.add_system()
    collector.add_environment(interpreter)
    programs: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    if request.compiler is True:
        programs, variables = (compiler.folder(),), compiler.variables()
        for path in compiler.paths(interpreter):
            collection.add(path, Part.SYSTEM)
    if request.programs is not None:
        paths, folders = find_programs(request.programs)
        programs = (*programs, *folders)
        for path in paths:
            collection.add(path, Part.SYSTEM)
    for path in request.include:
        collector.add_included(path, request.include)
    collection.follow_links()
    collection.check_readable()
    for path, data in {**_WRITTEN, **identity()}.items():
        collection.write(path, data)
    outermost = [r for r in roots if not any(r != other and lies_in(r[0], other[0]) for other in roots)]
    return Sources(collection, tuple(dict.fromkeys(outermost)), programs, variables)


def identity() -> dict[str, bytes]:
    """The names of this user and group, from any directory service."""
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


def _editable_sources(collection: Collection) -> list[str]:
    """Directories of packages installed with `pip install -e`; a .pth file need not list them (PEP 610)."""
    found = []
    for path, _ in list(collection.files()):
        if path.endswith(".dist-info/direct_url.json"):
            origin = codec.from_json(read(path), dict[str, object], what=path, remedy="reinstall the package")
            details = origin.get("dir_info")
            url = str(origin.get("url", ""))
            if isinstance(details, dict) and details.get("editable") and url.startswith("file:///"):
                folder = urllib.parse.unquote(url.removeprefix("file://"), errors="surrogateescape")
                found += [path for path in (f"{folder}/src", folder) if os.path.isdir(path)][:1]
    return found


_PLACES_OF_R = 'cat(sapply(c("home", "share", "include", "doc", "etc"), R.home), .libPaths(), sep = "\\n")'


def find_programs(names: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """The files and directories to add, and the directories for the image's PATH. `names`: names of programs
    on PATH, or their paths. Raises UsageError for a program that is not installed."""
    found: list[str] = []
    folders: list[str] = []
    for name in names:
        program = execute.which(name)
        if program is None:
            raise UsageError(
                f"capture.programs names {shown(name)}, which is not installed on this machine",
                key="capture.programs",
                remedy=ranges.setting("capture.programs", [each for each in names if each != name]),
            )
        program = os.path.abspath(program)
        folders.append(os.path.dirname(program))
        found += [program, *_interpreter(program), *_more(program)]
    return [path for path in dict.fromkeys(found) if os.path.exists(path)], tuple(dict.fromkeys(folders))


def _interpreter(program: str) -> list[str]:
    """The interpreter of a script."""
    try:
        with open(program, "rb") as file:
            line = os.fsdecode(file.readline(4096))
    except OSError:
        return []
    words = line.removeprefix("#!").split() if line.startswith("#!") else []
    if len(words) > 1 and os.path.basename(words[0]) == "env":
        words = [execute.which(words[1]) or ""]
    return words[:1] if words and words[0].startswith("/") else []


def _more(program: str) -> list[str]:
    """What a program starts or reads besides libraries: git's subcommands, R's home and packages."""
    name, folder = os.path.basename(program), os.path.dirname(program)
    if name == "git":
        asked = execute.run([program, "--exec-path"])
        found = [asked.stdout.strip(), os.path.normpath(f"{folder}/../share/git-core/templates")]
    elif name in ("R", "Rscript"):
        asked = execute.run([f"{folder}/R", "--no-echo", "--vanilla", "-e", _PLACES_OF_R])
        found = [f"{folder}/R", *asked.stdout.splitlines()]
    else:
        return []
    return [path for path in found if asked.ok and path.startswith("/")]
