"""The packages that only Bareboat's measurement uses, which a capture leaves out: those of `bareboat[study]`.

One stays if it was installed by its name, or if another package requires it. All of them stay if the program
can import one. A program imports what it can name, so the files that its container shows are searched for the
names: those of the environment's other packages, and of the program's directories. Whatever computes names or
cannot be searched keeps all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from bareboat.captures.collect import Collection, Part, shown
from bareboat.model import Image
from bareboat_base.expressions import expression
from bareboat_base.paths import lies_in
from bareboat_images.inside.starts import normal

#: Limits of a search. A program or an environment with more files than that keeps the packages.
_MOST_FILES, _MOST_BYTES = 1000, 64 * 2**20
#: They come with environments, and use no package of their own accord.
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "uv"})
#: Files that no program executes or loads.
_DOCUMENTS = frozenset(
    ".html .htm .md .rst .tex .bib .svg .css .js .png .jpg .jpeg .pdf .csv .tsv .log".split()  # noqa: SIM905
)
_COMPRESSED = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
#: Names that are computed, code that is data, and Bareboat itself.
_COMPUTES_NAMES = expression(
    rb"\b(?:importlib|__import__|pkgutil|runpy|zipimport|entry_points|bareboat|bareboat_study)\b"
    rb"|(?<![.\w])(?:exec|eval)\s*\("
)
_EXTRA = "of bareboat[study]"
_SHELLS = frozenset({"bash", "sh", "dash"})
#: Flags of Python before a script, which neither name code nor make it interactive.
_PLAIN_FLAGS = frozenset({"-u", "-O", "-OO", "-B", "-s", "-E", "-I", "-q"})
_REQUIREMENT = expression(r"^Requires-Dist: *([A-Za-z0-9._-]+)([^;\n]*)(;[^\n]*)?$", re.MULTILINE)
_IN_STUDY = expression(r"extra\s*==\s*['\"]study['\"]")
_NAME = expression(r"^Name: *([A-Za-z0-9._-]+)", re.MULTILINE)


class Program(Struct, frozen=True):
    """The program of a job. `words`: all of the job that it can read; `folders`: the directories that its
    container shows; `without`: directories in them that are Bareboat's."""

    words: bytes
    folders: tuple[str, ...]
    without: tuple[str, ...] = ()


class StudyPackages(Struct, frozen=True):
    """The packages that only the measurement uses. `needed`: why they may be used in this capture, or
    nothing. `is_left_out`: they are not in it."""

    names: tuple[str, ...]
    paths: frozenset[str]
    size_bytes: int
    needed: str
    is_left_out: bool = False

    @property
    def amount(self) -> str:
        return f"{self.size_bytes / 1e6:,.0f} MB {_EXTRA}"

    @property
    def listed(self) -> str:
        return ", ".join(self.names[:3]) + (f" and {len(self.names) - 3} more" if self.names[3:] else "")

    def __str__(self) -> str:
        if self.needed:
            return f"{self.amount} ({self.listed}) may be used: {self.needed}"
        return f"{self.amount}, which the program does not import: {self.listed}"


class _Doubt(Exception):
    """Why the packages stay."""


class _Distribution(NamedTuple):
    """An installed distribution, by its files in `folder`. `of_study`: what its extra `study` requires."""

    name: str
    folder: str
    requires: frozenset[str]
    of_study: frozenset[str]
    paths: tuple[str, ...]
    by_name: bool


def starts_script(command: tuple[str, ...], workdir: str, folders: tuple[str, ...]) -> bool:
    """Whether a command runs a file, or a module, that the container shows, and nothing else."""
    program, words = os.path.basename(command[0]) if command else "", list(command[1:])
    is_python = re.fullmatch(r"(python|pypy)[0-9.]*", program) is not None
    if not is_python and "/" in "".join(command[:1]) and _is_shown(command[0], workdir, folders):
        return True
    while is_python and words and words[0] in _PLAIN_FLAGS:
        del words[0]
    if is_python and words[:1] == ["-m"]:
        module = "/".join(words[1:2]).replace(".", "/")
        return any(_is_shown(each, workdir, folders) for each in (f"{module}.py", f"{module}/__main__.py"))
    return bool(words) and (is_python or program in _SHELLS) and _is_shown(words[0], workdir, folders)


def _is_shown(path: str, workdir: str, folders: tuple[str, ...]) -> bool:
    """Whether a path is a file of the directories, and not a program of an environment in them."""
    real = os.path.realpath(os.path.join(workdir, path))
    prefix = os.path.dirname(os.path.dirname(real))
    return (
        os.path.isfile(real)
        and any(lies_in(real, os.path.realpath(each)) for each in folders)
        and not _is_environment(os.listdir(prefix))
    )


def _is_environment(names: Iterable[str]) -> bool:
    return any(name in ("pyvenv.cfg", "conda-meta") for name in names)


def notes(image: Image) -> list[str]:
    """The notes of a captured image about the packages that were left out."""
    return [note for note in image.notes if _EXTRA in note]


def find(collection: Collection, program: Program | None) -> StudyPackages | None:
    """The study's packages that nobody else requires; None where there are none. Changes nothing. Without
    a program, any may be used."""
    if not any(path.endswith("/METADATA") and "/bareboat-" in path for path in collection.items):
        return None  # without reading the other distributions
    everything = _distributions(collection)
    if "bareboat" not in everything:
        return None
    base = _closure(["bareboat"], everything)
    study = _closure(everything["bareboat"].of_study, everything) - base
    # What a dependency brought, and of which all files are known.
    candidates = {name for name in study if not everything[name].by_name and everything[name].paths}
    staying = [name for name in everything if name not in candidates and name != "bareboat"]
    candidates -= _closure(staying, everything)
    if not candidates:
        return None
    paths = frozenset(_with_byte_code(collection, [everything[name] for name in candidates]))
    size_bytes = sum(collection.items[path].size for path in paths)
    names = sorted(candidates, key=lambda name: -_size(everything[name], collection))
    needed = ""
    try:
        _check_alone(collection, candidates, everything, paths)
        if program is None:
            raise _Doubt("no program is named")
        needles = _Needles(candidates, everything)
        exempt = frozenset(
            path for name in (*study, *base, *_INSTALLERS) if name in everything
            for path in everything[name].paths
        )  # fmt: skip
        _search_job(program, needles, collection)
        _search_packages(collection, exempt | paths, needles)
    except _Doubt as doubt:
        needed = str(doubt)
    return StudyPackages(tuple(names), paths, size_bytes, needed)


def leave_out(collection: Collection, found: StudyPackages) -> None:
    """Remove the packages' files, and the directories that have no others."""
    for path in found.paths:
        del collection.items[path]
    emptied = {os.path.dirname(path) for path in found.paths}
    occupied = {os.path.dirname(path) for path in collection.items}
    while emptied := {folder for folder in emptied if folder not in occupied and folder in collection.items}:
        for folder in emptied:
            del collection.items[folder]
        emptied = {os.path.dirname(folder) for folder in emptied}
        occupied = {os.path.dirname(path) for path in collection.items}
    text = f"{found.amount}: {found.listed}" if found.needed else str(found)
    collection.left_out.append(f"{text} (study = true under [capture] keeps them)")


def _distributions(collection: Collection) -> dict[str, _Distribution]:
    """The installed distributions by their normalised names. One that is installed twice counts as installed
    by its name."""
    found: dict[str, _Distribution] = {}
    for path in collection.items:
        if not path.endswith(".dist-info/METADATA"):
            continue
        about = os.path.dirname(path)
        folder = os.path.dirname(about)
        text = _text(path).partition("\n\n")[0]
        named = _NAME.search(text)
        if named is None:
            continue
        name = normal(named[1])
        required = [(normal(each[1]), each[3] or "") for each in _REQUIREMENT.finditer(text)]
        requires = frozenset(each for each, marker in required if "extra" not in marker)
        of_study = frozenset(each for each, marker in required if _IN_STUDY.search(marker))
        record = [
            line.rpartition(",")[0].rpartition(",")[0] for line in _text(f"{about}/RECORD").splitlines()
        ]
        paths = tuple(os.path.normpath(f"{folder}/{each.strip(chr(34))}") for each in record if each)
        by_name = f"{about}/REQUESTED" in collection.items or _text(f"{about}/INSTALLER").strip() not in (
            "pip",
            "uv",
        )
        if name in found:
            requires, by_name = requires | found[name].requires, True
            of_study |= found[name].of_study
        found[name] = _Distribution(name, folder, requires, of_study, paths, by_name)
    return found


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except OSError:
        return ""


def _closure(names: Iterable[str], everything: dict[str, _Distribution]) -> set[str]:
    """The distributions and all that they require, as far as they are installed."""
    found: set[str] = set()
    pending = [name for name in names if name in everything]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [each for each in everything[name].requires if each in everything]
    return found


def _with_byte_code(collection: Collection, distributions: list[_Distribution]) -> Iterator[str]:
    """The collected files of distributions, with byte code that was compiled after their installation."""
    recorded = {path for each in distributions for path in each.paths}
    for path, item in collection.items.items():
        if item.kind == "folder":
            continue
        folder, name = os.path.split(path)
        source = f"{os.path.dirname(folder)}/{name.partition('.')[0]}.py"
        if path in recorded or (folder.endswith("/__pycache__") and source in recorded):
            yield path


def _size(distribution: _Distribution, collection: Collection) -> int:
    return sum(collection.items[path].size for path in distribution.paths if path in collection.items)


def _top_names(distribution: _Distribution) -> set[str]:
    """The names by which its modules are imported."""
    tops = {
        path.removeprefix(f"{distribution.folder}/").partition("/")[0]
        for path in distribution.paths
        if path.startswith(f"{distribution.folder}/")
    }
    return {top.partition(".")[0] for top in tops if not top.endswith((".dist-info", ".libs", "__pycache__"))}


def _check_alone(
    collection: Collection,
    candidates: set[str],
    everything: dict[str, _Distribution],
    paths: frozenset[str],
) -> None:
    """Raise _Doubt if a directory of the packages has files of others."""
    tops = {
        f"{everything[name].folder}/{top}/": top
        for name in candidates
        for top in _top_names(everything[name])
    }
    starts = tuple(tops)
    for path, item in collection.items.items():
        if item.kind != "folder" and path.startswith(starts) and path not in paths:
            top = next(top for start, top in tops.items() if path.startswith(start))
            raise _Doubt(f"{top} has files that no package lists, such as {shown(os.path.basename(path))}")


class _Needles:
    """The names by which a program uses packages: modules, distributions, programs, entry points."""

    def __init__(self, candidates: set[str], everything: dict[str, _Distribution]) -> None:
        names: set[str] = set(candidates)
        programs: set[str] = set()
        for each in (everything[name] for name in candidates):
            names |= _top_names(each)
            programs |= {
                os.path.basename(path) for path in each.paths if os.path.dirname(path).endswith("/bin")
            }
            groups = [path for path in each.paths if path.endswith(".dist-info/entry_points.txt")]
            names |= {
                group
                for path in groups
                for group in re.findall(r"^\[([^\]]+)\]", _text(path), re.MULTILINE)
                if group not in ("console_scripts", "gui_scripts")
            }
        self._long = tuple(sorted(name.encode() for name in names if len(name) > 4))
        short = "|".join(sorted(re.escape(name) for name in names if len(name) <= 4)) or "(?!)"
        started = "|".join(sorted(map(re.escape, programs - names))) or "(?!)"
        # A short name may be an English word, so it counts where it is imported or quoted.
        self._short = re.compile(
            rf"(?:import|from)\s[^\n]*\b({short})\b|[\"']({short})[\"'.]|({short})\.[A-Za-z_]"
            rf"|(?<![\w.-])({started})(?![\w-])".encode()
        )

    def check(self, data: bytes, where: str) -> None:
        """Raise _Doubt if the data names one."""
        for name in self._long:
            if name in data:
                raise _Doubt(f"{where} names {name.decode()}")
        matched = self._short.search(data)
        if matched is not None:
            raise _Doubt(f"{where} names {next(filter(None, matched.groups())).decode()}")


def _search_job(program: Program, needles: _Needles, collection: Collection) -> None:
    needles.check(program.words, "the job")
    for path, data in _files(program, collection):
        where = shown(os.path.basename(path))
        needles.check(data, where)
        if data.startswith(_COMPRESSED):
            raise _Doubt(f"{where} is compressed and cannot be searched")
        suffix = os.path.splitext(path)[1]
        if suffix in ("", ".py", ".pyw", ".pyx", ".ipynb", ".sh") and (word := _COMPUTES_NAMES.search(data)):
            raise _Doubt(f"{where} has {word[0].decode().rstrip('( ')}, by which it may import any")


def _files(program: Program, collection: Collection) -> Iterator[tuple[str, bytes]]:
    """The files of the program's directories, without those of environments. None is read if they are too
    many, which takes long on a cluster's file system."""
    found: list[str] = []
    pending = list(dict.fromkeys(os.path.realpath(each) for each in program.folders))
    without = {os.path.realpath(each) for each in program.without}
    seen: set[str] = set()
    while pending:
        folder = pending.pop()
        if folder in seen or folder in without or collection.has_walked(folder):
            continue
        seen.add(folder)
        for path, is_folder in _entries(folder):
            (pending if is_folder else found).append(path)
            if len(found) + len(seen) > _MOST_FILES:
                raise _Doubt("the job's directories have too many files to search")
    left = _MOST_BYTES
    for path in found:
        data = _data(path, left)
        left -= len(data)
        if left <= 0:
            raise _Doubt("the job's directories are too large to search")
        yield path, data


def _entries(folder: str) -> Iterator[tuple[str, bool]]:
    """The files and directories of a directory, or the file that it is."""
    if not os.path.isdir(folder):
        if os.path.isfile(folder):
            yield folder, False
        return
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError:
        return
    if _is_environment(each.name for each in found):
        return
    for each in found:
        if each.is_dir(follow_symlinks=False):
            if each.name not in (".git", ".hg", ".svn", "__pycache__"):
                yield each.path, True
        elif os.path.splitext(each.name)[1].lower() not in _DOCUMENTS and each.is_file():
            yield each.path, False


def _data(path: str, limit: int) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(max(limit, 1))
    except OSError:
        return b""


def _search_packages(collection: Collection, exempt: frozenset[str], needles: _Needles) -> None:
    """Search the other packages of the environment: their sources first, which are small."""
    wanted = [
        path
        for path, item in collection.files()
        if item.part == Part.PACKAGES
        and item.data is None
        and path not in exempt
        and (
            path.endswith((".py", ".pth"))
            or ".so" in os.path.basename(path)
            or "." not in os.path.basename(path)
        )
        and ".dist-info/" not in path
    ]
    wanted.sort(key=lambda path: (not path.endswith(".py"), path))
    if len(wanted) > _MOST_FILES or sum(collection.items[path].size for path in wanted) > _MOST_BYTES:
        raise _Doubt("the environment has too many packages to search")
    for path in wanted:
        where = "/".join(path.split("/")[-2:])
        needles.check(_data(path, _MOST_BYTES), shown(where))
