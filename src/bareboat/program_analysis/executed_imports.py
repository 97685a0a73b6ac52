"""The imports that a Python program executes for certain, in their order, through its own modules. Nothing is
executed.

Reading stops at the first statement that may change where modules are found, or end the program: what follows
is uncertain. Imports whose failure may be handled, and those of conditions and functions, do not count.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import tokenize
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from bareboat.program_analysis.command import Sight
from bareboat.program_analysis.python_path import STANDARD, PythonPath, text_of
from bareboat.project.code import is_main
from bareboat_base.expressions import expression

_MOST_FILES, _MOST_BYTES = 200, 1 << 20
_OF_SYS = {"path", "modules", "meta_path", "path_hooks", "*"}
#: What may add or install modules, replace the program, or end it with exit code 0.
_CHANGES = expression(
    r"\bsys\s*\.\s*(?:path|modules|meta_path|path_hooks)\b|\bpath\.(?:append|insert|extend)\b|\bsite\s*\."
    r"|\bimportlib\b(?!\.(?:metadata|resources))"
    r"|\b(?:addsitedir|subprocess|check_call|Popen|popen|system|exec|execfile|exec[lv]\w*|import_module|__import__"
    r"|pkgutil|zipimport|runpy|ensurepip|pip|conda|chdir|builtins|setup_root|PYTHONPATH|__path__)\b"
    r"|\b(?:exit|quit|_exit)\s*\((?!\s*(?:[1-9\"'f]|-\d))"
)
#: Packages whose import, or use, makes other modules importable.
_MAKES_OTHERS = expression(
    r"(?i).*(?:root|path|findspark|colab|notebook|ipynb|jpype|jnius|java).*|clr\w*|pythonnet|pyximport|hy|cppyy"
    r"|bpy|pkg_resources|maya|sage|paraview|pymol|xonsh|qgis|arcpy|abaqus\w*|future"
)


class Import(NamedTuple):
    """The import of a top-level name. `line`: 0 for the command's own module."""

    name: str
    path: str
    line: int


class _Uncertain(Exception):
    """What follows may not be executed, or find modules elsewhere."""


class _Module(NamedTuple):
    """A file that is executed. `is_main`: as the program."""

    path: str
    lines: list[str]
    is_main: bool


def find(option: str, word: str, folder: str, sight: Sight, search: PythonPath) -> list[Import]:
    """The imports of `python SCRIPT`, with the option -c or -m. `folder`: the first directory of modules."""
    walk = _Walk(folder, sight, search, has_package=option == "-m")
    with contextlib.suppress(_Uncertain, RecursionError, MemoryError):
        if option == "-c":
            walk.execute(word.encode(errors="surrogateescape"), "", as_main=True)
        elif option == "-m":
            walk.module(word.split("."))
        else:
            walk.file(word, as_main=True)
    return walk.imports


class _Walk:
    def __init__(self, folder: str, sight: Sight, search: PythonPath, *, has_package: bool) -> None:
        self.imports: list[Import] = []
        self._has_package = has_package
        self._first = (folder, *search.given)
        self._sight = sight
        self._search = search
        self._executed: set[str] = set()
        self._bytes = 0
        #: Functions and classes whose use makes what follows uncertain.
        self._changers: set[str] = set()

    def module(self, parts: list[str]) -> None:
        """Execute a module as the program."""
        root = self._root(parts[0])
        if root is None:
            self.imports.append(Import(parts[0], "", 0))
            return
        self._enter(root, parts[:-1])
        place = os.path.join(root, *parts)
        if (file := self._file(place)) is not None and not file.endswith("/__init__.py"):
            self.file(file, as_main=True)
            return
        self._enter(root, parts)
        self.file(f"{place}/__main__.py", as_main=True)

    def file(self, path: str, *, as_main: bool = False) -> None:
        if path in self._executed:
            return
        self._executed.add(path)
        source = text_of(self._sight, path)
        self._bytes += len(source or b"")
        if source is None or self._bytes > _MOST_BYTES or len(self._executed) > _MOST_FILES:
            raise _Uncertain
        self.execute(source, path, as_main=as_main)

    def execute(self, source: bytes, path: str, *, as_main: bool) -> None:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
            text = source.decode(encoding)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # those of the compiler
                tree = ast.parse(text)
        except (SyntaxError, ValueError):
            raise _Uncertain from None
        self._body(tree.body, _Module(path, text.split("\n"), as_main))

    def _body(self, body: Sequence[ast.stmt], module: _Module) -> None:
        for node in body:
            match node:
                case ast.Import():
                    for alias in node.names:
                        self._import(alias.name.split("."), (), node.lineno, module)
                case ast.ImportFrom(module=str() as name, level=0):
                    self._import(name.split("."), node.names, node.lineno, module)
                case ast.ImportFrom():
                    self._relative(node, module)
                case ast.Try(handlers=[]):
                    self._body([*node.body, *node.finalbody], module)
                case ast.If() if is_main(node.test):
                    self._body(node.body if module.is_main else node.orelse, module)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    if self._changes(node, module):
                        self._changers.add(node.name)
                case ast.Expr(value=ast.Constant()):
                    pass
                case _ if self._changes(node, module):
                    raise _Uncertain

    def _changes(self, node: ast.stmt, module: _Module) -> bool:
        """Whether a statement may change where modules are found, or end the program."""
        text = "\n".join(module.lines[node.lineno - 1 : node.end_lineno])
        if _CHANGES.search(text) or not self._changers.isdisjoint(re.findall(r"\w+", text)):
            return True
        for inner in ast.walk(node):
            match inner:
                case ast.Import():
                    named = [alias.name for alias in inner.names]
                case ast.ImportFrom(module=str() as name, level=0):
                    named = [name]
                case ast.ImportFrom():
                    return True
                case _:
                    continue
            tops = [name.partition(".")[0] for name in named]
            if any(_is_doubtful(top) or self._root(top) is not None for top in tops):
                return True
        return False

    def _import(self, parts: list[str], aliases: Sequence[ast.alias], line: int, module: _Module) -> None:
        root = self._root(parts[0])
        if root is not None:
            self._enter(root, parts, aliases)
            return
        self.imports.append(Import(parts[0], module.path, line))
        changes_path = parts == ["sys"] and not _OF_SYS.isdisjoint(alias.name for alias in aliases)
        if changes_path or _is_doubtful(parts[0]):
            raise _Uncertain

    def _relative(self, node: ast.ImportFrom, module: _Module) -> None:
        folder = module.path
        if module.is_main and not self._has_package:  # an error
            raise _Uncertain
        for _ in range(node.level):
            folder = os.path.dirname(folder)
        self._enter(folder, (node.module or "").split(".") if node.module else [], node.names)

    def _enter(self, folder: str, parts: Sequence[str], aliases: Sequence[ast.alias] = ()) -> None:
        """Execute the modules of a dotted name, as far as the directory has them, and those that are imported
        from the last."""
        for part in parts:
            folder = f"{folder}/{part}"
            if (file := self._file(folder)) is not None:
                self.file(file)
        package = text_of(self._sight, f"{folder}/__init__.py") or b""
        for alias in aliases:
            if alias.asname and alias.name in self._changers:
                self._changers.add(alias.asname)
            bound = re.search(rb"\b%b\b" % re.escape(alias.name.encode()), package)
            if not bound and (file := self._file(f"{folder}/{alias.name}")) is not None:
                self.file(file)

    def _root(self, name: str) -> str | None:
        """The directory with the program's own module of this name."""
        is_installed = name in self._search.installed
        for folder in (*self._first, *(() if is_installed else self._search.added)):
            place = f"{folder}/{name}"
            if self._file(place) is not None:
                return folder
            node = None if is_installed else self._sight.find(place)
            if node is not None and node.kind == "folder":
                return folder
        return None

    def _file(self, place: str) -> str | None:
        """The source of a module or of a package."""
        for path in (f"{place}/__init__.py", f"{place}.py"):
            node = self._sight.find(path)
            if node is not None and node.kind == "file":
                return path
        return None


def _is_doubtful(name: str) -> bool:
    return name not in STANDARD and _MAKES_OTHERS.fullmatch(name) is not None
