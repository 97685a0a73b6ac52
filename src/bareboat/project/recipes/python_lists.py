"""Python's package lists.

Formats: https://docs.astral.sh/uv/concepts/projects/layout/#the-lockfile ,
https://packaging.python.org/en/latest/specifications/pylock-toml/ ,
https://pip.pypa.io/en/stable/reference/requirements-file-format/ and those that Poetry, PDM and Pipenv write.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from bareboat.project.recipes import foreign
from bareboat.project.recipes.foreign import Table
from bareboat.project.recipes.listed import Listed, normal, outside, unique
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.printable import one_line


def uv(content: str, companion: str) -> Listed:
    data = foreign.toml(content)
    form = data.scalar("version") or "1"
    if form != "1":
        raise ValueError(f"version {one_line(form)} of the format is not supported, only version 1")
    project = _pyproject(companion)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    git = False
    for each in data.tables("package"):
        source = each.table("source")
        name = normal(each.word("name"))
        if "virtual" in source or source.text("editable") == ".":
            continue
        for kind in ("editable", "directory", "path"):
            left_out += outside(name, source.text(kind))
        git = git or "git" in source
        packages[name] = each.text("version")
    return Listed(
        kind="uv",
        packages=packages,
        python=data.text("requires-python") or project.text("requires-python"),
        hashed=True,
        builds=_builds(companion),
        needs_git=git,
        left_out=unique(left_out),
    )


def pylock(content: str, _companion: str) -> Listed:
    data = foreign.toml(content)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    git = False
    for each in data.tables("packages"):
        name = normal(each.word("name"))
        packages[name] = each.text("version")
        git = git or "vcs" in each
        left_out += outside(name, each.table("directory").text("path"))
    return Listed(
        kind="pylock", packages=packages, python=data.text("requires-python"),
        hashed=True, needs_git=git, left_out=unique(left_out),
    )  # fmt: skip


def poetry(content: str, companion: str) -> Listed:
    data = foreign.toml(content)
    return replace(
        _of_packages("poetry", data, companion),
        python=_pep440(data.table("metadata").text("python-versions")),
    )


def _pep440(ranges: str) -> str:
    """Poetry's ranges of Python versions in PEP 440's form: ^3.10 is >=3.10,<4, ~3.10 is >=3.10,<3.11."""
    found = []
    for each in filter(None, re.split(r"[\s,]+", ranges)):
        if match := re.fullmatch(r"([\^~])(\d+)(?:\.(\d+))?(?:\.\d+)*", each):
            major, minor = int(match[2]), match[3]
            upper = f"{major}.{int(minor) + 1}" if match[1] == "~" and minor else f"{major + 1}"
            found += [f">={each[1:]}", f"<{upper}"]
        else:
            found.append(each)
    return ",".join(found)


def pdm(content: str, companion: str) -> Listed:
    return _of_packages("pdm", foreign.toml(content), companion)


def _of_packages(kind: str, data: Table, companion: str) -> Listed:
    packages: dict[str, str] = {}
    left_out: list[str] = []
    git = False
    for each in data.tables("package"):
        name = normal(each.word("name"))
        packages[name] = each.text("version")
        source = each.table("source")
        git = git or source.text("type") == "git" or "git" in each
        is_local = source.text("type") in ("directory", "file")
        left_out += outside(name, source.text("url") if is_local else each.text("path"))
    return Listed(
        kind=kind, packages=packages, python=_pyproject(companion).text("requires-python"),
        hashed=True, builds=_builds(companion), needs_git=git, left_out=unique(left_out),
    )  # fmt: skip


def pipenv(content: str, _companion: str) -> Listed:
    data = foreign.from_json(content)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    git = False
    default = data.table("default")
    for name in default:
        each = default.table(name)
        packages[normal(name)] = each.text("version").removeprefix("==")
        git = git or "git" in each
        left_out += outside(name, each.text("path") or each.text("file"))
    asked = data.table("_meta").table("requires").text("python_version")
    return Listed(
        kind="pipenv", packages=packages, python=f"=={asked}.*" if asked else "",
        hashed=True, needs_git=git, left_out=unique(left_out),
    )  # fmt: skip


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
        if asked.marker is not None and not _for_linux(asked.marker):
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
        needs_git=git, left_out=unique(left_out), text=text, builds=builds,
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


def _for_linux(marker: Any) -> bool:
    environment = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}
    return bool(marker.evaluate(environment))


def names_packages(content: str) -> bool:
    """Whether a pyproject.toml is more than the settings of tools. One that is damaged is for `project`."""
    try:
        data = foreign.toml(content)
    except ValueError:
        return True
    return "project" in data or "build-system" in data or (
        data.is_table("tool") and "poetry" in data.table("tool")
    )  # fmt: skip


def project(content: str, _companion: str = "") -> Listed:
    """A pyproject.toml without a lock file."""
    project = _pyproject(content)
    python = project.text("requires-python")
    dynamic = project.texts("dynamic")
    builds = _builds(content) or "dependencies" in dynamic
    tool = foreign.toml(content).table("tool")
    dependencies = project.texts("dependencies")
    if "poetry" in tool and not dependencies:
        poetry = tool.table("poetry")
        if not builds or poetry.flag("package-mode") is False:
            raise UsageError(
                "pip does not read Poetry's dependencies in pyproject.toml, and poetry.lock does not exist",
                remedy="poetry lock",
            )
        python = python or _pep440(poetry.table("dependencies").text("python"))
    return replace(_of_requirements(dependencies), kind="project", python=python, builds=builds)


def inline(content: str) -> Listed | None:
    """The packages in a script's own metadata (PEP 723); None for a script without."""
    found = re.search(r"^# /// script[ \t]*\n((?:#(?: .*)?\n)+?)# ///[ \t]*$", content, re.MULTILINE)
    if found is None:
        return None
    data = foreign.toml("".join(f"{line[2:]}\n" for line in found[1].splitlines()))
    lines = data.texts("dependencies")
    return replace(
        _of_requirements(lines), kind="inline", python=data.text("requires-python"),
        text="".join(f"{line}\n" for line in lines),
    )  # fmt: skip


def _of_requirements(lines: Iterable[str]) -> Listed:
    from packaging.requirements import InvalidRequirement, Requirement

    packages: dict[str, str] = {}
    left_out: list[str] = []
    git = False
    for line in lines:
        try:
            asked = Requirement(line)
        except InvalidRequirement:
            left_out.append(f"{one_line(line)}: not a valid requirement")
            continue
        pins = [each.version for each in asked.specifier if each.operator in ("==", "===")]
        packages[normal(asked.name)] = pins[0] if pins else ""
        git = git or (asked.url or "").startswith("git+")
        if (asked.url or "").startswith("file:"):
            left_out.append(f"{normal(asked.name)}: {one_line(asked.url or '')} is a path of this machine")
    return Listed(kind="", packages=packages, needs_git=git, left_out=unique(left_out))


def frozen(versions: Mapping[str, str], left_out: Iterable[str], source: str, python: str) -> Listed:
    """The packages of an environment or an image, by their installed versions. `source`: named in the recipe;
    `python`: its version."""
    text = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    minor = ".".join(python.split(".")[:2])
    return Listed(kind="frozen", file=source, packages=versions, left_out=unique(left_out), text=text,
                  python=f"=={minor}.*" if minor else "")  # fmt: skip


def _pyproject(content: str) -> Table:
    """The project of a pyproject.toml, empty without one."""
    return foreign.toml(content).table("project")


def _builds(content: str) -> bool:
    """Whether the project of a pyproject.toml is a package."""
    data = foreign.toml(content)
    return "build-system" in data or data.table("tool").table("uv").flag("package") is True
