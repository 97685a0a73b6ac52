"""The packages that only Bareboat's measurement uses, which a capture leaves out: those of `bareboat[study]`.

One stays if it was installed by its name, or if another package requires it. All of them stay if the program
can import one. A program imports what it can name, so the files that its container shows are searched for the
names: those of the environment's other packages, and of the program's directories. Whatever computes names or
cannot be searched keeps all of them.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from bareboat import commands
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
#: Directories without code of the program.
_NOT_SEARCHED = frozenset({".git", ".hg", ".svn", "__pycache__"})
#: Flags of Python before a script, which neither name code nor make it interactive.
_PLAIN_FLAGS = frozenset({"-u", "-O", "-OO", "-B", "-s", "-E", "-I", "-q"})
_REQUIREMENT = expression(r"^Requires-Dist: *([A-Za-z0-9._-]+)[^;\n]*(;[^\n]*)?$", re.MULTILINE)
_OF_STUDY = expression(r"extra\s*==\s*['\"]study['\"]")
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


class _Distribution(Struct):
    """An installed distribution. `extra`: what its extra `study` requires; `tops`: the names by which its
    modules are imported -> their paths; `by_name`: the user installed it."""

    requires: set[str]
    extra: set[str]
    paths: list[str]
    tops: dict[str, str]
    by_name: bool


def starts_script(command: tuple[str, ...], workdir: str, folders: tuple[str, ...]) -> bool:
    """Whether a command runs a file, or a module, that the container shows, and nothing else."""
    program, words = command[:1], list(command[1:])
    is_python = bool(program) and commands.is_python(*program)
    if not is_python and "/" in "".join(program) and _is_shown(command[0], workdir, folders):
        return True
    while is_python and words and words[0] in _PLAIN_FLAGS:
        del words[0]
    if is_python and words[:1] == ["-m"]:
        module = "/".join(words[1:2]).replace(".", "/")
        return any(_is_shown(each, workdir, folders) for each in (f"{module}.py", f"{module}/__main__.py"))
    script = commands.file(command) if is_python or commands.is_shell("".join(program)) else None
    return script is not None and _is_shown(script, workdir, folders)


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


def is_installed(collection: Collection) -> bool:
    """Whether the environment may have packages of the measurement."""
    return any(path.endswith("/METADATA") and "/bareboat-" in path for path in collection.items)


def find(collection: Collection, program: Program | None) -> StudyPackages | None:
    """The study's packages that nobody else requires; None where there are none. Changes nothing. Without
    a program, any may be used."""
    if not is_installed(collection):
        return None  # without reading the other distributions
    installed = _distributions(collection)
    if (bareboat := installed.get("bareboat")) is None:
        return None
    base = _closure(["bareboat"], installed)
    study = _closure(bareboat.extra, installed) - base
    candidates = {name for name in study if installed[name].paths and not installed[name].by_name}
    candidates -= _closure(installed.keys() - candidates - {"bareboat"}, installed)
    if not candidates:
        return None
    packages = {name: installed[name] for name in candidates}
    owners, strange = _files(collection, packages)
    sizes: Counter[str] = Counter()
    for path, name in owners.items():
        sizes[name] += collection.items[path].size
    needed = ""
    try:
        if strange:
            raise _Doubt(strange)
        if program is None:
            raise _Doubt("no program is named")
        needles = _Needles(packages)
        _search_job(program, needles, collection)
        ours = (study | base | _INSTALLERS) & installed.keys()
        exempt = {path for name in ours for path in installed[name].paths}
        _search_packages(collection, exempt | owners.keys(), needles)
    except _Doubt as doubt:
        needed = str(doubt)
    names = tuple(sorted(candidates, key=lambda name: (-sizes[name], name)))
    return StudyPackages(names, frozenset(owners), sizes.total(), needed)


def leave_out(collection: Collection, study: StudyPackages) -> None:
    """Remove the packages' files, and the directories that have no others."""
    entries = Counter(map(os.path.dirname, collection.items))
    for path in study.paths:
        while path in collection.items and not entries[path]:
            del collection.items[path]
            path = os.path.dirname(path)
            entries[path] -= 1
    text = f"{study.amount}: {study.listed}" if study.needed else str(study)
    collection.left_out.append(f"{text} (study = true under [capture] keeps them)")


def _distributions(collection: Collection) -> dict[str, _Distribution]:
    """The installed distributions by their normalised names. One that is installed twice counts as installed
    by its name."""
    installed: dict[str, _Distribution] = {}
    for path in collection.items:
        about, _, file = path.rpartition("/")
        if file != "METADATA" or not about.endswith(".dist-info"):
            continue
        text = _text(path).partition("\n\n")[0]
        if (header := _NAME.search(text)) is None:
            continue
        requirements = [(normal(each[1]), each[2] or "") for each in _REQUIREMENT.finditer(text)]
        folder = os.path.dirname(about)
        rows = csv.reader(_text(f"{about}/RECORD").splitlines())
        paths = [os.path.normpath(f"{folder}/{row[0]}") for row in rows if row]
        distribution = _Distribution(
            requires={name for name, marker in requirements if "extra" not in marker},
            extra={name for name, marker in requirements if _OF_STUDY.search(marker)},
            paths=paths,
            tops=_tops(folder, paths),
            by_name=f"{about}/REQUESTED" in collection.items
            or _text(f"{about}/INSTALLER").strip() not in ("pip", "uv"),
        )
        if (other := installed.get(normal(header[1]))) is not None:
            distribution.requires |= other.requires
            distribution.by_name = True
        installed[normal(header[1])] = distribution
    return installed


def _tops(folder: str, paths: list[str]) -> dict[str, str]:
    tops = {path.removeprefix(f"{folder}/").partition("/")[0] for path in paths if lies_in(path, folder)}
    ours = (top for top in tops if not top.endswith((".dist-info", ".libs", "__pycache__")))
    return {top.partition(".")[0]: f"{folder}/{top}" for top in ours}


def _text(path: str) -> str:
    return _data(path).decode(errors="surrogateescape")


def _data(path: str, limit: int = _MOST_BYTES) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(max(limit, 1))
    except OSError:
        return b""


def _closure(names: Iterable[str], installed: Mapping[str, _Distribution]) -> set[str]:
    """The distributions and all that they require, as far as they are installed."""
    required: set[str] = set()
    pending = list(names)
    while pending:
        if (name := pending.pop()) in installed and name not in required:
            required.add(name)
            pending += installed[name].requires
    return required


def _files(collection: Collection, packages: Mapping[str, _Distribution]) -> tuple[dict[str, str], str]:
    """The collected files of packages -> the package, with byte code that was compiled after its
    installation; and a file in their directories that no package lists, as a reason to keep them."""
    listed = {path: name for name, each in packages.items() for path in each.paths}
    tops = tuple(f"{path}/" for each in packages.values() for path in each.tops.values())
    owners: dict[str, str] = {}
    strange = ""
    for path, item in collection.items.items():
        if item.kind == "folder":
            continue
        folder, file = os.path.split(path)
        name = listed.get(path)
        if name is None and folder.endswith("/__pycache__"):
            name = listed.get(f"{os.path.dirname(folder)}/{file.partition('.')[0]}.py")
        if name is not None:
            owners[path] = name
        elif path.startswith(tops) and not strange:
            top = next(os.path.basename(top[:-1]) for top in tops if path.startswith(top))
            strange = f"{top} has files that no package lists, such as {shown(file)}"
    return owners, strange


class _Needles:
    """The names by which a program uses packages: modules, distributions, programs, entry points."""

    def __init__(self, packages: Mapping[str, _Distribution]) -> None:
        names = {*packages, *(top for each in packages.values() for top in each.tops)}
        programs = set()
        for path in (path for each in packages.values() for path in each.paths):
            if path.endswith(".dist-info/entry_points.txt"):
                names.update(re.findall(r"^\[([^\]]+)\]", _text(path), re.MULTILINE))
            elif os.path.dirname(path).endswith("/bin"):
                programs.add(os.path.basename(path))
        names -= {"console_scripts", "gui_scripts"}
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
    left = _MOST_BYTES
    for path in _of_job(program, collection):
        where, data = shown(os.path.basename(path)), _data(path, left)
        left -= len(data)
        if left <= 0:
            raise _Doubt("the job's directories are too large to search")
        needles.check(data, where)
        if data.startswith(_COMPRESSED):
            raise _Doubt(f"{where} is compressed and cannot be searched")
        suffix = os.path.splitext(path)[1]
        if suffix in ("", ".py", ".pyw", ".pyx", ".ipynb", ".sh") and (word := _COMPUTES_NAMES.search(data)):
            raise _Doubt(f"{where} has {word[0].decode().rstrip('( ')}, by which it may import any")


def _of_job(program: Program, collection: Collection) -> Iterable[str]:
    """The files of the program's directories, without those of environments. Too many are not read, which
    takes long on a cluster's file system."""
    without = {os.path.realpath(each) for each in program.without}
    files: dict[str, None] = {}
    folders: set[str] = set()
    for top in map(os.path.realpath, program.folders):
        if os.path.isfile(top):
            files[top] = None
        for folder, inner, names in os.walk(top):
            known = folder in folders or folder in without or collection.has_walked(folder)
            if known or _is_environment([*inner, *names]):
                inner.clear()
                continue
            folders.add(folder)
            inner[:] = [name for name in inner if name not in _NOT_SEARCHED]
            names = [name for name in names if os.path.splitext(name)[1].lower() not in _DOCUMENTS]
            if len(files) + len(folders) + len(names) > _MOST_FILES:
                raise _Doubt("the job's directories have too many files to search")
            files |= dict.fromkeys(path for name in names if os.path.isfile(path := f"{folder}/{name}"))
    return files


def _search_packages(collection: Collection, exempt: set[str], needles: _Needles) -> None:
    """Search the other packages of the environment: their sources first, which are small."""

    def may_import(path: str) -> bool:
        name = os.path.basename(path)
        is_code = path.endswith((".py", ".pth")) or ".so" in name or "." not in name
        return is_code and path not in exempt and ".dist-info/" not in path

    wanted = [
        path
        for path, item in collection.files()
        if item.part == Part.PACKAGES and item.data is None and may_import(path)
    ]
    if len(wanted) > _MOST_FILES or sum(collection.items[path].size for path in wanted) > _MOST_BYTES:
        raise _Doubt("the environment has too many packages to search")
    for path in sorted(wanted, key=lambda path: (not path.endswith(".py"), path)):
        needles.check(_data(path), shown("/".join(path.split("/")[-2:])))
