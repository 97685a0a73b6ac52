"""A project's Python scripts, and the local modules that they import. Files are read, and never run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from bareboat import commands
from bareboat.project import code
from bareboat.project.code import Code
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted

#: Larger files are data, and not scripts that somebody wrote.
LARGEST = 2 << 20
_MOST_FILES = 300
_MOST_BYTES = 16 << 20
#: Directories in which no script of the project lies.
_LEFT_OUT = expression(
    r"\..*|__pycache__|node_modules|site-packages|(.*[-_])?v?env|build|dist|docs?|tests?|testing|"
    r"wandb|mlruns|lightning_logs|.*\.egg-info"
)
_NO_SCRIPT = expression(
    r"(test_.*|.*_test|conftest|setup|noxfile|tasks|fabfile|__init__|__main__|versioneer)\.py"
)
#: Where projects keep scripts, beside their top.
_PLACES = ("", "src", "scripts", "bin", "examples")


def of_command(command: Sequence[str]) -> str | None:
    """The Python script that the command starts; None for a module, and for other programs."""
    if not command:
        return None
    if command[0].endswith(".py"):
        return command[0]
    script = commands.file(command) if commands.is_python(command[0]) else None
    return script if script is not None and script.endswith(".py") else None


def results(command: Sequence[str], folder: str) -> frozenset[str | None]:
    """The names of the results that the command's script reports, as in `Code`; none where it is not known.
    `folder`: the working directory."""
    script = of_command(command)
    if script is None:
        return frozenset()
    path = Path(folder, script)
    try:
        return read(path.parent, path.name).code.results
    except UsageError:  # the job itself will show the reason
        return frozenset()


class Script(Struct, frozen=True, kw_only=True):
    """A script with what it and its local modules reveal. `name`: relative to the project. `local`: the
    packages of these modules; `roots`: the directories, relative, where they were found; `unread`: what was
    not read, and why."""

    name: str
    code: Code
    local: frozenset[str]
    roots: frozenset[str]
    unread: tuple[str, ...] = ()


def find(top: Path) -> str:
    """The only script of the project with a main part, relative to `top`. Raises UsageError for none and for
    several."""
    found: list[str] = []
    for place in _PLACES:
        found = [f"{place}/{name}" if place else name for name in _with_main(top / place)]
        if found:
            break
    if len(found) == 1:
        return found[0]
    where = f"in {top}"
    if not found:
        raise UsageError(
            f"no Python script with a main part was found {where}",
            context="searched: *.py there and in src/, scripts/, bin/, examples/",
            remedy="name one:  bareboat init SCRIPT.py; or a command:  bareboat init -- COMMAND",
        )
    likely = min(found, key=lambda name: (_rank(name), name))
    shown = ", ".join(found[:12]) + (f" and {len(found) - 12} more" if len(found) > 12 else "")
    raise UsageError(
        f"{len(found)} scripts with a main part were found {where}",
        context=f"scripts: {shown}",
        remedy=f"bareboat init {shlex.quote(likely)}",
    )


def read(top: Path, name: str) -> Script:
    """The script and the local modules that it imports, by files below `top` and beside the script. Raises
    UsageError when the script cannot be read."""
    path = top / name
    try:
        source = untrusted.read_bytes(path, limit=LARGEST, follow=True)
    except untrusted.UntrustedFileError as error:
        if "larger than" in (error.strerror or ""):
            fault = f"larger than {LARGEST // 2**20} MiB"
            return Script(name=name, code=Code(fault=fault), local=frozenset(), roots=frozenset())
        raise untrusted.unreadable(path, error) from None
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    first = code.read(source)
    modules = _Modules(top, path.parent)
    parts = [first, *modules.of(first, path)]
    return Script(
        name=name,
        code=code.merged(parts),
        local=frozenset(modules.packages),
        roots=frozenset(modules.used),
        unread=tuple(modules.unread),
    )


def _with_main(folder: Path) -> list[str]:
    """The scripts of a directory that have a main part; without one, the only script that does something."""
    try:
        names = sorted(
            entry.name
            for entry in os.scandir(folder)
            if entry.name.endswith(".py") and not _NO_SCRIPT.fullmatch(entry.name)
        )
    except OSError:
        return []
    seen: dict[str, Code] = {}
    for name in names[:_MOST_FILES]:
        try:
            seen[name] = code.read(untrusted.read_bytes(folder / name, limit=LARGEST, follow=True))
        except OSError:
            continue
    mains = [name for name, each in seen.items() if each.has_main]
    imported = {module.partition(".")[0] for each in seen.values() for module in each.modules}
    doing = [name for name, each in seen.items() if (each.runs or each.fault) and name[:-3] not in imported]
    return mains or doing


def _rank(name: str) -> int:
    """Lower for names that training scripts usually have."""
    stem = os.path.basename(name)[:-3]
    usual = ("train", "main", "run", "pretrain", "finetune", "app")
    return next(
        (at for at, word in enumerate(usual) if word == stem), len(usual) + (not stem.startswith(usual))
    )


class _Modules:
    """Local modules, followed from import to import."""

    def __init__(self, top: Path, beside: Path) -> None:
        self._top = top
        self._roots = list(dict.fromkeys([beside, top, top / "src"]))
        self._seen: set[Path] = set()
        self._bytes = 0
        self.packages: set[str] = set()
        self.used: set[str] = set()
        self.unread: list[str] = []

    def of(self, first: Code, path: Path) -> Iterator[Code]:
        pending = [(first, path)]
        while pending:
            source, place = pending.pop()
            for found in self._found(source, place):
                if found in self._seen or len(self._seen) >= _MOST_FILES:
                    continue
                self._seen.add(found)
                read = self._read(found)
                if read is not None:
                    yield read
                    pending.append((read, found))

    def _read(self, path: Path) -> Code | None:
        if self._bytes > _MOST_BYTES:
            return None
        try:
            source = untrusted.read_bytes(path, limit=LARGEST)
        except OSError:
            return None
        self._bytes += len(source)
        found = code.read(source)
        if found.fault:
            self.unread.append(f"{os.path.relpath(path, self._top)}: {found.fault}")
        return found

    def _found(self, source: Code, place: Path) -> Iterator[Path]:
        for module in sorted(source.modules):
            for root in self._roots:
                files = list(_files_of(root, module))
                if files:
                    self.packages.add(module.partition(".")[0])
                    self.used.add(os.path.relpath(root, self._top))
                    yield from files
                    break
        for level, module in sorted(source.relative):
            root = place.parent
            for _ in range(level - 1):
                root = root.parent
            if root == self._top or self._top in root.parents:
                yield from _files_of(root, module)


def _files_of(root: Path, module: str) -> Iterator[Path]:
    """The files that an import of the module reads, below `root`."""
    parts = [part for part in module.split(".") if part]
    if not parts or not all(part.isidentifier() for part in parts):
        return
    for count in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:count])
        for path in (place / "__init__.py", place.with_name(place.name + ".py")):
            if path.is_file():
                yield path
                break
        else:
            if not place.is_dir():
                return
