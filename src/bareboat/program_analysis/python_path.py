"""Where a Python of a container finds modules, by the files that are visible there. Nothing is executed.

https://docs.python.org/3/library/site.html, https://docs.python.org/3/library/sys_path_init.html
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct

from bareboat.program_analysis.command import UNKNOWN, Sight
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted

#: Modules that only some versions of Python 3 have.
#: https://docs.python.org/3/whatsnew/3.12.html#removed, https://docs.python.org/3/whatsnew/3.13.html
_OF_SOME_VERSIONS = set(
    """aifc asynchat asyncore cgi cgitb chunk crypt distutils graphlib imghdr imp lib2to3 mailcap nntplib
    pipes smtpd sndhdr sunau telnetlib tkinter tomllib uu xdrlib zoneinfo""".split()  # noqa: SIM905
)
STANDARD = sys.stdlib_module_names - _OF_SOME_VERSIONS
_LIBRARY = expression(r"(python3\.\d+)t?")
_MOST_BYTES = 1 << 20
#: Lines of code in .pth files that add no module: of virtualenv, setuptools, and namespace packages.
_HARMLESS = expression(r"_virtualenv\.pth|distutils-precedence\.pth|.*-nspkg\.pth")
_EDITABLE = expression(r"import (__editable__\w+_finder);")
_MAPPINGS = expression(r"^(?:MAPPING|NAMESPACES)\b[^={]*=\s*(\{.*\})$", re.MULTILINE)
_CHANGES_PATH = expression(r"\b(?:sys|site|importlib|pkgutil)\b")


class PythonPath(Struct, frozen=True):
    """`installed`: the names of modules in the standard library and the directories of packages; `given`: the
    directories of PYTHONPATH; `added`: those of .pth files. Not `is_whole`: code that is not read here may
    add modules."""

    installed: frozenset[str]
    given: tuple[str, ...]
    added: tuple[str, ...]
    is_whole: bool


def find(python: str, sight: Sight, given: Sequence[str]) -> PythonPath | None:
    """The path of a Python that is started by this name, an absolute path; None where its standard library is
    not seen. `given`: the directories of PYTHONPATH."""
    node = sight.find(python)
    if node is None:
        return None
    venv, settings = _settings(python, sight)
    bases = [os.path.dirname(os.path.dirname(node.path))]
    if home := settings.get("home"):
        bases.append(os.path.dirname(home))
    version = _LIBRARY.fullmatch(os.path.basename(node.path))
    libraries = [each for base in bases for each in _libraries(base, sight, version and version[1])]
    if not any(sight.find(f"{each}/os.py") for each in libraries):
        return None
    prefixes = [venv] if venv else []
    if not venv or settings.get("include-system-site-packages", "").lower() == "true":
        prefixes += [*bases, *(["/usr/local"] if "/usr" in bases else ())]
    sites = [
        f"{each}/{kind}"
        for prefix in prefixes
        for each in (*_libraries(prefix, sight, version and version[1]), f"{prefix}/lib/python3")
        for kind in ("site-packages", "dist-packages")
    ]
    return _read(sight, [*libraries, *(f"{each}/lib-dynload" for each in libraries)], sites, given)


def names(sight: Sight, folder: str) -> set[str]:
    """The names of modules that a directory may have."""
    return {entry.partition(".")[0] for entry in sight.names(folder)}


def text_of(sight: Sight, path: str) -> bytes | None:
    """The content of a file; None where there is none that can be read."""
    node = sight.find(path)
    if node is None or node.kind != "file" or node.place is None:
        return None
    try:
        return untrusted.read_bytes(node.place, limit=_MOST_BYTES)
    except OSError:
        return None


def _lines(sight: Sight, path: str) -> list[str]:
    return (text_of(sight, path) or b"").decode(errors="replace").splitlines()


def _settings(python: str, sight: Sight) -> tuple[str, dict[str, str]]:
    """The virtual environment of a Python, and its settings; nothing for another Python."""
    folder = os.path.dirname(python)
    for place in (folder, os.path.dirname(folder)):
        if lines := _lines(sight, f"{place}/pyvenv.cfg"):
            fields = (line.partition("=") for line in lines)
            return os.path.dirname(folder), {name.strip().lower(): value.strip() for name, _, value in fields}
    return "", {}


def _libraries(prefix: str, sight: Sight, version: str | None) -> Iterator[str]:
    """The directories of modules of all versions, or of one."""
    for lib in ("lib", "lib64"):
        for name in sight.names(f"{prefix}/{lib}"):
            found = _LIBRARY.fullmatch(name)
            if found is not None and version in (None, found[1]):
                yield f"{prefix}/{lib}/{name}"


def _read(sight: Sight, standard: list[str], sites: list[str], given: Sequence[str]) -> PythonPath:
    installed = set(STANDARD).union(*(names(sight, folder) for folder in (*standard, *sites)))
    added: list[str] = []
    is_whole = True
    for folder in sites:
        for entry in sight.names(folder):
            if not entry.endswith(".pth") or entry.startswith("."):
                continue
            for line in _lines(sight, f"{folder}/{entry}"):
                if (editable := _EDITABLE.match(line)) is not None:
                    for name, place in _mapped("\n".join(_lines(sight, f"{folder}/{editable[1]}.py"))):
                        if os.path.basename(place) != name:
                            installed.add(name.partition(".")[0])
                        added.append(os.path.dirname(place))
                elif line.startswith(("import ", "import\t")):
                    is_whole = is_whole and _HARMLESS.fullmatch(entry) is not None
                elif line.strip() and not line.startswith("#"):
                    added.append(os.path.normpath(os.path.join(folder, line.strip())))
    if "_distutils_hack" in installed:
        installed.add("distutils")
    for each in (*given, *added):  # an archive, or what only the start shows
        node = sight.find(each)
        is_whole = is_whole and (node is None or node.kind == "folder")
    for name in ("sitecustomize", "usercustomize"):
        for folder in (*standard, *sites) if name in installed else ():
            is_whole = is_whole and not _CHANGES_PATH.search("\n".join(_lines(sight, f"{folder}/{name}.py")))
    is_whole = is_whole and not any(
        node is not None and node.kind == UNKNOWN for node in map(sight.find, (*standard, *sites))
    )
    own = tuple(each for each in dict.fromkeys(added) if each not in sites)
    return PythonPath(frozenset(installed), tuple(given), own, is_whole)


def _mapped(source: str) -> Iterator[tuple[str, str]]:
    """The modules of an editable installation, with their places, from its finder by setuptools."""
    import ast  # here, because few packages are installed like this

    for found in _MAPPINGS.findall(source):
        try:
            table = ast.literal_eval(found)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        for name, places in table.items():
            for place in [places] if isinstance(places, str) else places:
                yield name, place
