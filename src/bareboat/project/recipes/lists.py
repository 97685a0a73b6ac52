"""The package lists that recipes install from: which packages, which Python, and what no recipe can install.

Formats: https://docs.astral.sh/uv/concepts/projects/layout/#the-lockfile ,
https://pip.pypa.io/en/stable/reference/requirements-file-format/ ,
https://packaging.python.org/en/latest/specifications/pyproject-toml/ and
https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html . Pure.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from bareboat_base import codec
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.printable import one_line

#: Lists that recipes install from: file -> how. The first that a project has is used.
KINDS: Mapping[str, str] = {
    "uv.lock": "uv",
    "requirements.txt": "requirements",
    "environment.yml": "conda",
    "environment.yaml": "conda",
    "pyproject.toml": "project",
}
#: Those that need a second file beside them.
COMPANIONS = {"uv": "pyproject.toml"}


class Listed(Struct, frozen=True, kw_only=True):
    """A package list. `packages`: name -> version, "" where it is not fixed; `python`: the range of versions,
    as PEP 440 writes it; `hashed`: each package has a digest. `builds`: the project itself is a package.
    `needs_git`: packages come from git repositories. `left_out`: what a recipe cannot install, and why."""

    kind: str
    file: str = ""
    packages: Mapping[str, str]
    python: str = ""
    hashed: bool = False
    builds: bool = False
    needs_git: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def locked(self) -> bool:
        return self.kind == "uv" or (self.kind == "requirements" and self.hashed)

    @property
    def loose(self) -> tuple[str, ...]:
        """Packages whose version is not fixed."""
        return tuple(name for name, version in self.packages.items() if not version)


class _Project(Struct, rename="kebab"):
    requires_python: str = ""
    dependencies: list[str] = field(default_factory=list)
    dynamic: list[str] = field(default_factory=list)


class _Uv(Struct):
    package: bool = False


class _Tool(Struct):
    uv: _Uv = field(default_factory=_Uv)
    poetry: Any = None


class _Pyproject(Struct, rename="kebab"):
    project: _Project | None = None
    build_system: Any = None
    tool: _Tool = field(default_factory=_Tool)

    @property
    def builds(self) -> bool:
        """Whether the project is a package."""
        return self.build_system is not None or self.tool.uv.package


class _Source(Struct):
    virtual: str = ""
    editable: str = ""
    directory: str = ""
    path: str = ""
    git: str = ""


class _Package(Struct):
    name: str
    version: str = ""
    source: _Source = field(default_factory=_Source)


class _UvLock(Struct, rename="kebab"):
    version: int = 1
    requires_python: str = ""
    package: list[_Package] = field(default_factory=list)


class _Environment(Struct):
    """An environment.yml; a table in it has what pip installs."""

    dependencies: list[str | dict[str, list[str] | None]] | None = None
    prefix: str | None = None


def read(file: str, text: str, companion: str = "") -> Listed:
    """Read a package list. `companion`: the content of the file that belongs to it. Raises UsageError for a
    list that is damaged."""
    kind = KINDS.get(file.rpartition("/")[2], "requirements")
    readers: Mapping[str, Callable[[str, str], Listed]] = {
        "uv": uv,
        "project": lambda each, _other: project(each),
        "requirements": lambda each, _other: requirements(each),
        "conda": lambda each, _other: conda(each),
    }
    try:
        found = readers[kind](text, companion)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UsageError(
            f"{one_line(file)} cannot be read: it is not a valid list of its kind",
            context=one_line(str(error) or type(error).__name__),
            remedy=f"write {one_line(file)} again with its own tool, or name another list: --from FILE",
        ) from None
    return replace(found, file=file)


def uv(content: str, companion: str) -> Listed:
    data = codec.convert(tomllib.loads(content), _UvLock)
    if data.version != 1:
        raise ValueError(f"version {data.version} of the format is not supported, only version 1")
    own = _pyproject(companion)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    for each in data.package:
        name, source = normal(each.name), each.source
        if not name.isprintable():
            raise ValueError("the name of a package is not printable")
        if source.virtual or source.editable == ".":
            continue
        for place in (source.editable, source.directory, source.path):
            left_out += outside(name, place)
        packages[name] = each.version
    return Listed(
        kind="uv",
        packages=packages,
        python=data.requires_python or (own.project or _Project()).requires_python,
        hashed=True,
        builds=own.builds,
        needs_git=any(each.source.git for each in data.package),
        left_out=unique(left_out),
    )


def conda(content: str) -> Listed:
    """An environment.yml."""
    import yaml

    try:
        values = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    data = codec.convert(values, _Environment)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    for each in data.dependencies or ():
        if isinstance(each, dict):
            for line in each.get("pip") or ():
                found = requirements(line)
                packages |= found.packages
                left_out += found.left_out
            continue
        name, version = _of_spec(each)
        packages[normal(name)] = version
    if data.prefix:
        left_out.append(f"prefix: {one_line(data.prefix)}: a directory of this machine; ignored")
    return Listed(kind="conda", packages=packages, left_out=unique(left_out))


def _of_spec(spec: str) -> tuple[str, str]:
    """A package of environment.yml: its name, and its version where that is fixed."""
    found = re.match(r"(?:[\w/.-]+::)?([\w.-]+)\s*(?:={1,2}\s*([\w.+!]+)(?:=\S+)?)?\s*$", spec)
    if found is None:
        return re.split(r"[\s<>=!~\[]", spec.rpartition("::")[2], maxsplit=1)[0], ""
    return found[1], found[2] or ""


_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}
_OPTION = expression(r"(-\w|--[\w-]+)(?:[= ]\s*(.*))?$")


def requirements(text: str) -> Listed:
    """A requirements file of pip."""
    from packaging.requirements import InvalidRequirement, Requirement

    packages: dict[str, str] = {}
    left_out: list[str] = []
    hashed, git = False, False
    unhashed: list[str] = []
    builds = False
    for line in _logical_lines(text):
        option = _OPTION.match(line)
        editable = option is not None and option[1] in ("-e", "--editable")
        if _is_in_project((option[2] or "") if option and editable else line):
            builds = True
            unhashed.append(line)
            continue
        if option:
            left_out += _of_option(option[1], (option[2] or "").strip())
            git = git or (editable and "git+" in line)
            continue
        head = re.split(r"\s--(?:hash|config-settings|global-option)", line, maxsplit=1)[0].strip()
        has_hash = "--hash" in line
        hashed = hashed or has_hash
        unhashed += [] if has_hash else [head]
        try:
            asked = Requirement(head)
        except InvalidRequirement:
            if place := re.match(r"(git\+)?(?:https?|ssh)://\S+/([\w.-]+?)(?:\.git)?(?=[@#?]|$)", head):
                git = git or bool(place[1])
                name = normal(place[2]) if place[1] else normal(place[2].partition("-")[0])
                packages[name] = head if re.search(r"@[0-9a-f]{40}\b|#sha256=", head) else ""
            else:
                left_out.append(_unread(head))
            continue
        if asked.marker is not None and not asked.marker.evaluate(_LINUX):
            continue
        pins = [each.version for each in asked.specifier if each.operator in ("==", "===")]
        name = normal(asked.name)
        packages[name] = pins[0] if pins and "*" not in pins[0] else packages.get(name, "")
        if asked.url:
            git = git or asked.url.startswith("git+")
            if asked.url.startswith("file:"):
                left_out.append(f"{name}: {one_line(asked.url)} is a path of this machine")
            elif re.search(r"@[0-9a-f]{40}\b", asked.url) or "#sha256=" in asked.url:
                packages[name] = asked.url
    if hashed and unhashed:
        raise UsageError(
            f"pip refuses the list: some packages have a hash, and {one_line(unhashed[0])} has none",
            remedy="uv pip compile --generate-hashes, or remove the hashes",
        )
    return Listed(
        kind="requirements", packages=packages, hashed=hashed,
        needs_git=git, left_out=unique(left_out), builds=builds,
    )  # fmt: skip


def _is_in_project(line: str) -> bool:
    """Whether a line installs from a path of the project: `.`, `.[test]`, `./part`."""
    place = re.match(r"(\.(?:/[\w./+-]*)?)(\[[\w, .-]*\])?(?=$|\s)", line.strip())
    return place is not None and ".." not in place[1].split("/")


def _unread(head: str) -> str:
    if re.match(r"(\.{0,2}/|[\w.-]+/|\.)", head) or head.endswith((".whl", ".tar.gz", ".zip")):
        return f"{one_line(head)}: a path"
    return f"{one_line(head)}: not a valid requirement"


def _of_option(option: str, value: str) -> Iterator[str]:
    """What an option of a requirements file refers to that an image does not have."""
    if option in ("-e", "--editable") and "git+" not in value:
        yield f"{option} {one_line(value)}: an editable install of a path"
    elif option in ("-r", "--requirement", "-c", "--constraint"):
        yield f"{option} {one_line(value)}: another file; add it to COPY"
    elif option in ("-f", "--find-links") and not value.startswith(("http://", "https://")):
        yield f"{option} {one_line(value)}: a directory of this machine"


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, those that end in a backslash joined."""
    joined = re.sub(r"\\\r?\n", " ", text.lstrip("\ufeff"))
    for line in joined.splitlines():
        line = re.sub(r"(^|\s)#.*$", "", line).strip()
        if line:
            yield line


def names_packages(content: str) -> bool:
    """Whether a pyproject.toml is more than the settings of tools. One that is damaged is for `project`."""
    try:
        data = _pyproject(content)
    except (ValueError, msgspec.ValidationError):
        return True
    return data.project is not None or data.build_system is not None or data.tool.poetry is not None


def project(content: str) -> Listed:
    """A pyproject.toml without a lock file."""
    data = _pyproject(content)
    own = data.project or _Project()
    if data.tool.poetry is not None and not own.dependencies:
        raise UsageError(
            "pip does not read Poetry's dependencies in pyproject.toml",
            remedy="poetry export -o requirements.txt",
        )
    builds = data.builds or "dependencies" in own.dynamic
    found = requirements("\n".join(own.dependencies))
    return replace(found, kind="project", python=own.requires_python, builds=builds)


def _pyproject(content: str) -> _Pyproject:
    return codec.convert(tomllib.loads(content), _Pyproject)


def normal(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def outside(name: str, place: str) -> Iterator[str]:
    """What is left out where a package's source is not in the project."""
    if place.startswith(("..", "/", "file:", "~")):
        yield f"{one_line(name)}: its source {one_line(place)} is outside the project"


def unique(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))
