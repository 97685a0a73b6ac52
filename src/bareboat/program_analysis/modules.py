"""The MPI that a script of R or Julia loads while it runs, which no file lists as needed. No program is
executed.

R: https://cran.r-project.org/package=Rmpi and https://cran.r-project.org/package=pbdMPI ; Julia:
https://juliaparallel.org/MPI.jl/stable/configuration/
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bareboat.model import Missing
from bareboat.program_analysis.command import Node, Sight
from bareboat.program_analysis.libraries import ContainerLoader, missing
from bareboat_base.elf.binary import SearchPath
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted

_R_PROGRAM, _JULIA_PROGRAM = expression(r"R(?:script)?[\d.]*"), expression(r"julia[\d.+-]*")
_R_USES = expression(
    r"^[^#\n]*?(?:\b(?:library|require|requireNamespace|loadNamespace)\s*\(\s*[\"']?(Rmpi|pbdMPI)\b"
    r"|\b(Rmpi|pbdMPI):::?\w)",
    re.MULTILINE,
)
_JULIA_USES = expression(r"^\s*(?:using|import)\s+(?:[\w.]+\s*,\s*)*MPI(?![\w.])", re.MULTILINE)
_JULIA = "MPI.jl"
_MOST_TEXT = 256 * 1024


class Module(NamedTuple):
    """A file that a script loads. `name`: of the package that loads it."""

    name: str
    path: str
    place: str


class Modules(NamedTuple):
    """What a script loads, in the loader of its interpreter, and what it cannot load."""

    files: tuple[Module, ...] = ()
    missing: tuple[Missing, ...] = ()
    loader: ContainerLoader | None = None


def find(
    words: Sequence[str],
    path: str,
    sight: Sight,
    *,
    environment: Mapping[str, str],
    workdir: str,
    machine: str,
) -> Modules:
    """The MPI modules of a command. `words`: the command; `path`: its interpreter in the container."""
    name = os.path.basename(words[0])
    is_r = _R_PROGRAM.fullmatch(name) is not None
    if not is_r and not _JULIA_PROGRAM.fullmatch(name):
        return Modules()
    search = _Search(words, path, sight, environment, workdir)
    files, lacking = search.of_r() if is_r else search.of_julia(machine)
    if not files:
        return Modules(missing=tuple(lacking))
    asked = ":".join((environment.get("LD_LIBRARY_PATH", ""), *search.folders("lib/R/lib", "lib64/R/lib")))
    loader = ContainerLoader(sight, {**environment, "LD_LIBRARY_PATH": asked}, workdir, machine)
    for file in files:
        lacking += missing(file.path, file.place, loader, file.name)
    return Modules(tuple(files), tuple(lacking), loader)


class _Search:
    def __init__(
        self, words: Sequence[str], path: str, sight: Sight, environment: Mapping[str, str], workdir: str
    ) -> None:
        self._sight = sight
        self._environment = environment
        self._workdir = workdir
        self._prefix = os.path.dirname(os.path.dirname(path))
        self._words = words[1:]
        self._script, self._text = self._code()

    def folders(self, *names: str) -> tuple[str, ...]:
        """Directories of the interpreter's installation."""
        return tuple(os.path.join(self._prefix, name) for name in names)

    def _code(self) -> tuple[str, str]:
        """The script's name and its text, or the code in the command."""
        for number, word in enumerate(self._words):
            if word in ("-e", "-E", "--eval"):
                return "the command", "".join(self._words[number + 1 : number + 2])
            if not word.startswith("-") and (text := self._read(os.path.join(self._workdir, word))):
                return word, text
        return "", ""

    def of_r(self) -> tuple[list[Module], list[Missing]]:
        used = dict.fromkeys(first or second for first, second in _R_USES.findall(self._text))
        files, lacking = [], []
        for name in used:
            places = [f"{folder}/{name}/libs/{name}.so" for folder in self._r_folders()]
            found = next(((each, node) for each in places if (node := self._file(each)) is not None), None)
            if found is not None and found[1].place is not None:
                files.append(Module(name, found[1].path, found[1].place))
            elif ".libPaths" not in self._text and not self._has("renv"):
                lacking.append(Missing(library="", needed_by=self._script, module=name))
        return files, lacking

    def _r_folders(self) -> Iterator[str]:
        for name in ("R_LIBS", "R_LIBS_USER", "R_LIBS_SITE"):
            yield from (each for each in self._environment.get(name, "").split(":") if each.startswith("/"))
        home = f"{self._environment.get('HOME', '/root')}/R"
        for system in self._sight.names(home):
            yield from (f"{home}/{system}/{version}" for version in self._sight.names(f"{home}/{system}"))
        yield from self.folders(
            "local/lib/R/site-library", "local/lib/R/library", "lib/R/site-library", "lib/R/library",
            "lib64/R/library", "share/R/library",
        )  # fmt: skip
        yield from ("/usr/local/lib/R/site-library", "/usr/lib/R/site-library", "/usr/lib/R/library")

    def of_julia(self, machine: str) -> tuple[list[Module], list[Missing]]:
        depots = self._depots()
        if not _JULIA_USES.search(self._text):
            return [], []
        package = next((each for each in depots if "MPI" in self._sight.names(f"{each}/packages")), None)
        if package is None:
            is_known = bool(self._environment.get("JULIA_DEPOT_PATH"))
            return [], [Missing(library="", needed_by=self._script, module=_JULIA)] if is_known else []
        settings, place = self._preferences(depots)
        names = settings.get("libmpi", "libmpi")
        names = names if isinstance(names, list) else [names]
        names = [each for each in names if isinstance(each, str)] or ["libmpi"]
        if settings.get("binary", "MPICH_jll") == "system":
            loader = ContainerLoader(self._sight, self._environment, self._workdir, machine)
            found = [self._opened(f"{name}{end}", loader) for name in names for end in ("", ".so")]
        else:
            artifacts = [f"{each}/artifacts" for each in depots]
            found = [
                self._file(f"{top}/{name}/lib/libmpi.so")
                for top in artifacts
                for name in self._sight.names(top)
            ]
            names, place = ["libmpi.so"], f"{package}/packages/MPI"
        files = [Module(_JULIA, node.path, node.place) for node in found if node and node.place is not None]
        lacking = [Missing(library=" or ".join(names), needed_by=place, module=_JULIA)]
        return files[:1], [] if files else lacking

    def _opened(self, name: str, loader: ContainerLoader) -> Node | None:
        """The file that dlopen(3) opens by a name or a path."""
        return self._file(name) if "/" in name else loader.find(name, "/", SearchPath((), ()))

    def _depots(self) -> list[str]:
        """https://docs.julialang.org/en/v1/base/constants/#Base.DEPOT_PATH"""
        given = self._environment.get("JULIA_DEPOT_PATH", "").split(":")
        own = f"{self._environment.get('HOME', '/root')}/.julia"
        system = self.folders("local/share/julia", "share/julia")
        return [*(each for each in given if each.startswith("/")), own, *system]

    def _preferences(self, depots: Sequence[str]) -> tuple[dict[str, Any], str]:
        """The settings of MPIPreferences, and their file."""
        import tomllib  # only jobs in Julia

        projects = [word.partition("=")[2] or "." for word in self._words if word.startswith("--project")]
        projects += [each for each in (self._environment.get("JULIA_PROJECT", ""),) if each]
        places = [os.path.join(self._workdir, each.replace("@.", ".")) for each in projects]
        environments = (f"{each}/environments" for each in depots)
        places += [f"{top}/{name}" for top in environments for name in self._sight.names(top)]
        for place in places:
            for name in ("JuliaLocalPreferences.toml", "LocalPreferences.toml", "Project.toml"):
                path = os.path.normpath(f"{place}/{name}")
                try:
                    read = tomllib.loads(self._read(path))
                except (tomllib.TOMLDecodeError, RecursionError):
                    continue
                found = read.get("preferences", {}) if name == "Project.toml" else read
                settings = found.get("MPIPreferences") if isinstance(found, dict) else None
                if isinstance(settings, dict):
                    return settings, path
        return {}, ""

    def _has(self, name: str) -> bool:
        return self._sight.find(os.path.join(self._workdir, name)) is not None

    def _file(self, path: str) -> Node | None:
        node = self._sight.find(path)
        return node if node is not None and node.kind == "file" else None

    def _read(self, path: str) -> str:
        node = self._file(path)
        if node is None or node.place is None:
            return ""
        try:
            with untrusted.stream(node.place) as stream:
                return stream.read(_MOST_TEXT).decode("utf-8", "replace")
        except OSError:
            return ""
