"""The one reader of Python source: what it imports, and what it uses of that. Nothing is run."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line

#: Larger files are data, and not code that somebody wrote.
LARGEST = 1 << 20
#: Variables in quotes or of a shell, unless they are set.
_VARIABLES = expression(r"""(?:["']|\$\{?)([A-Z]\w+)\b(?!["']\]\s*=[^=]|["']\s*:)""")
#: Those that number ranks.
_OF_RANKS = expression(
    r"SLURM_(?:PROCID|LOCALID|NODEID|NTASKS|NPROCS|NNODES)|OMPI_COMM_WORLD_\w+|TF_CONFIG"
    r"|(?:FLUX_TASK|PMIX?|MV2_COMM_WORLD|MPI_LOCAL)_?\w*(?:RANK|SIZE|ID)|(?:LOCAL_)?RANK|WORLD_SIZE"
)
#: What may add or install modules, replace the program, or end it.
_CHANGES = expression(
    r"\bsys\s*\.\s*(?:path|modules|meta_path|path_hooks)\b|\bpath\.(?:append|insert|extend)\b|\bsite\s*\."
    r"|\bimportlib\b(?!\.(?:metadata|resources))"
    r"|\b(?:addsitedir|subprocess|Popen|system|exec|exec[lv]\w*|import_module|__import__|pkgutil|zipimport|runpy"
    r"|ensurepip|pip|conda|chdir|builtins|PYTHONPATH|__path__)\b|\b(?:exit|quit|_exit)\s*\("
)
_OF_SYS = {"path", "modules", "meta_path", "path_hooks", "*"}


class Import(NamedTuple):
    """`module`: with dots, "" for `from . import`; `names`: what is imported from it, () for all of it;
    `level`: of a relative import. `is_outer`: the file's own statement, and not that of a condition or
    function; `is_certain`: it is executed, and nothing before it changes where modules are found."""

    module: str
    names: tuple[str, ...]
    level: int
    line: int
    is_outer: bool
    is_certain: bool

    @property
    def package(self) -> str:
        """The first name of the module; "" for a relative import."""
        return "" if self.level else self.module.partition(".")[0]


class Source(Struct, frozen=True, kw_only=True):
    """`fault`: why the source could not be read. Only where it was asked for: `names`: what the code uses of
    its imports, with dots; `variables`: those of ranks that it reads."""

    imports: tuple[Import, ...] = ()
    names: frozenset[str] = frozenset()
    variables: tuple[str, ...] = ()
    fault: str = ""

    @property
    def packages(self) -> frozenset[str]:
        """The first names of all imported modules."""
        return frozenset(each.package for each in self.imports) - {""}

    def uses(self, *patterns: str) -> str | None:
        """The first name of the code, in order of the patterns, that one of them matches."""
        names = sorted(self.names)
        return next((name for each in patterns for name in names if re.fullmatch(each, name)), None)


def variables(text: str) -> list[str]:
    """The variables that code of Python or a shell reads, and words in quotes that look like one."""
    return list(dict.fromkeys(_VARIABLES.findall(re.sub("#.*", "", text))))


def not_of_pytorch(variables: Collection[str]) -> tuple[str, ...]:
    """Those that number ranks, and of which PyTorch's variable for the same number is not read, too."""

    def same(name: str) -> str:  # SLURM_NTASKS, OMPI_COMM_WORLD_SIZE
        return "LOCAL_RANK" if "LOCAL" in name else "WORLD_SIZE" if name.endswith(("S", "SIZE")) else "RANK"

    return tuple(name for name in filter(_OF_RANKS.fullmatch, variables) if same(name) not in variables)


def read(path: Path, *, uses: bool = False) -> Source:
    """What a file reveals; read once as long as the file does not change. `uses`: also the names that the
    code uses, which takes most of the time. Raises OSError."""
    state = path.stat()
    return _read(path, uses, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=512)
def _read(path: Path, uses: bool, _mtime_ns: int, size_bytes: int) -> Source:
    if size_bytes > LARGEST:
        return Source(fault=f"larger than {LARGEST // 2**20} MiB")
    return parse(untrusted.read_bytes(path, limit=LARGEST, follow=True), uses=uses)


def parse(source: bytes, *, uses: bool = False) -> Source:
    """What source reveals. What is not Python of this version has only a `fault`."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = source.decode(encoding)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the compiler
            tree = ast.parse(text)
        return _Reader(tree, text).source(uses=uses)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        fault = f"{where}{error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        fault = str(error) or type(error).__name__
    return Source(fault=one_line(fault))


class _Reader:
    """Collects facts; `_names` leads from a local name to what was imported under it."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self._tree = tree
        self._lines = text.split("\n")
        self._names: dict[str, str] = {}
        self._used: set[str] = set()

    def source(self, *, uses: bool) -> Source:
        outer = dict.fromkeys((id(node) for node in self._tree.body), False)
        outer |= dict.fromkeys(map(id, self._certain(self._tree.body)), True)
        imports = [
            self._import(node, outer)
            for node in _statements(self._tree.body)  # first, because a function may precede an import
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        for node in ast.walk(self._tree) if uses else ():
            if isinstance(node, ast.Attribute | ast.Name) and (name := self._dotted(node)):
                self._used.add(name)
        return Source(
            imports=tuple(sorted((each for many in imports for each in many), key=lambda each: each.line)),
            names=frozenset(self._used),
            variables=tuple(filter(_OF_RANKS.fullmatch, variables("\n".join(self._lines)))) if uses else (),
        )

    def _certain(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """The statements that are executed one after the other, up to the first that may change where modules
        are found."""
        for node in body:
            match node:
                case ast.If() if _is_main(node.test):
                    yield from self._certain(node.body)
                case ast.ImportFrom(module="sys", names=names) if _OF_SYS & {each.name for each in names}:
                    yield node
                    return
                case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                    yield node
                case _ if _CHANGES.search("\n".join(self._lines[node.lineno - 1 : node.end_lineno])):
                    return
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    pass
                case _ if any(isinstance(each, ast.Import | ast.ImportFrom) for each in _statements([node])):
                    return

    def _import(self, node: ast.Import | ast.ImportFrom, outer: dict[int, bool]) -> list[Import]:
        where = (node.lineno, id(node) in outer, outer.get(id(node), False))
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                self._names[local] = alias.name if alias.asname else local
            return [Import(alias.name, (), 0, *where) for alias in node.names]
        module = node.module or ""
        if not node.level:
            for alias in node.names:
                self._names[alias.asname or alias.name] = f"{module}.{alias.name}"
                self._used.add(f"{module}.{alias.name}")
        return [Import(module, tuple(alias.name for alias in node.names), node.level, *where)]

    def _dotted(self, node: ast.AST) -> str | None:
        """The full name of `a.b.c`; None where `a` was not imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        start = self._names.get(node.id) if isinstance(node, ast.Name) else None
        return None if start is None else ".".join([start, *reversed(parts)])


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements and all inside of them."""
    pending = list(body)
    while pending:
        node = pending.pop()
        yield node
        for name in ("body", "orelse", "finalbody"):
            pending += getattr(node, name, ())
        for each in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            pending += each.body


def _is_main(test: ast.expr) -> bool:
    return ast.unparse(test) == "__name__ == '__main__'"
