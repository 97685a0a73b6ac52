"""What Python source reveals without being run: imports, calls, arguments, environment variables. Pure."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from msgspec import Struct

from bareboat_base.expressions import expression
from bareboat_base.printable import one_line

#: More arguments than this are not listed.
_MOST_ARGUMENTS = 40
_ABSL = expression(r"absl\.flags\.DEFINE_(string|integer|float|boolean|bool|enum|list|multi_\w+)")
_ENVIRONMENT = ("os.environ.get", "os.getenv", "os.environ.setdefault", "os.environ.pop")


class Argument(Struct, frozen=True, kw_only=True):
    """An argument of a script's command line. `default`: as it is written; None for none."""

    name: str
    default: str | None = None
    help: str = ""
    required: bool = False

    @property
    def text(self) -> str | None:
        """The default when it is text."""
        try:
            value = ast.literal_eval(self.default or "None")
        except (ValueError, SyntaxError):
            return None
        return value if isinstance(value, str) else None


class Code(Struct, frozen=True, kw_only=True):
    """What one or more files reveal. `modules`: imported modules, with dots; `needed`: packages that must be
    installed; `names`: what the code uses of them; `paths`: constants that look like absolute paths;
    `results`: the names in `meter.result(NAME=…)`, None for names that are computed; `fault`: why the source
    could not be read."""

    modules: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    relative: frozenset[tuple[int, str]] = frozenset()
    names: frozenset[str] = frozenset()
    arguments: tuple[Argument, ...] = ()
    environment: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    exit_codes: frozenset[int] = frozenset()
    results: frozenset[str | None] = frozenset()
    downloads: bool = False
    has_main: bool = False
    runs: bool = False
    fault: str = ""
    texts: frozenset[str] = frozenset()

    @property
    def packages(self) -> frozenset[str]:
        """The first names of all imported modules."""
        return frozenset(module.partition(".")[0] for module in self.modules)

    def uses(self, *patterns: str) -> str | None:
        """The first name of the code, in order of the patterns, that one of them matches."""
        for pattern in patterns:
            found = next((name for name in sorted(self.names) if re.fullmatch(pattern, name)), None)
            if found is not None:
                return found
        return None


def read(source: bytes) -> Code:
    """The facts of one file. A file that is not Python of this version has only a `fault`."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        tree = ast.parse(source.decode(encoding))
        return _Reader(tree).code()
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        fault = f"line {line}: not in {error.encoding}, and no other encoding is declared"
        return Code(fault=fault, has_main=_starts_itself(source))
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return Code(fault=one_line(f"{where}{error.msg}"), has_main=_starts_itself(source))
    except (ValueError, RecursionError, MemoryError) as error:
        fault = one_line(str(error)) or type(error).__name__
        return Code(fault=fault, has_main=_starts_itself(source))


def merged(parts: Iterable[Code]) -> Code:
    """The facts of a script and of the local modules that it imports; the first is the script."""
    each = list(parts)
    arguments = {a.name: a for code in reversed(each) for a in code.arguments}
    return Code(
        modules=frozenset().union(*(code.modules for code in each)),
        needed=frozenset().union(*(code.needed for code in each)),
        names=frozenset().union(*(code.names for code in each)),
        arguments=tuple(arguments.values())[:_MOST_ARGUMENTS],
        environment=frozenset().union(*(code.environment for code in each)),
        paths=frozenset().union(*(code.paths for code in each)),
        exit_codes=frozenset().union(*(code.exit_codes for code in each)),
        results=frozenset().union(*(code.results for code in each)),
        texts=frozenset().union(*(code.texts for code in each)),
        downloads=any(code.downloads for code in each),
        has_main=each[0].has_main,
        runs=each[0].runs,
        fault=each[0].fault,
    )


def _starts_itself(source: bytes) -> bool:
    return re.search(rb"^if\s+__name__\s*==\s*['\"]__main__['\"]", source, re.MULTILINE) is not None


class _Reader(ast.NodeVisitor):
    """Collects facts; `_names` leads from a local name to what was imported under it."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._names: dict[str, str] = {}
        self._modules: set[str] = set()
        self._relative: set[tuple[int, str]] = set()
        self._used: set[str] = set()
        self._arguments: dict[str, Argument] = {}
        self._environment: set[str] = set()
        self._texts: set[str] = set()
        self._codes: set[int] = set()
        self._results: set[str | None] = set()
        self._downloads = False
        self._constants: dict[str, int] = {}

    def code(self) -> Code:
        for node in ast.walk(self._tree):  # first, because a function may precede an import
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
        for node in self._tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                value = node.value.value
                if isinstance(value, int):
                    self._constants |= {t.id: value for t in node.targets if isinstance(t, ast.Name)}
        for node in ast.walk(self._tree):
            self._see(node)
        body = self._tree.body
        return Code(
            modules=frozenset(self._modules),
            needed=frozenset(_needed(self._tree.body)),
            relative=frozenset(self._relative),
            names=frozenset(self._used),
            arguments=tuple(self._arguments.values()),
            environment=frozenset(self._environment),
            texts=frozenset(self._texts),
            paths=frozenset(
                text for text in self._texts if re.fullmatch(r"(/|~/)[^\s/:][^\n:]{0,300}", text)
            ),
            exit_codes=frozenset(self._codes),
            results=frozenset(self._results),
            downloads=self._downloads,
            has_main=any(isinstance(node, ast.If) and is_main(node.test) for node in body),
            runs=any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) for node in body),
        )

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._modules.add(alias.name)
                local = alias.asname or alias.name.partition(".")[0]
                self._names[local] = alias.name if alias.asname else local
            return
        module = node.module or ""
        if node.level:
            self._relative |= {(node.level, f"{module}.{a.name}".strip(".")) for a in node.names}
            self._relative.add((node.level, module))
            return
        self._modules.add(module)
        for alias in node.names:
            self._names[alias.asname or alias.name] = f"{module}.{alias.name}"
            self._used.add(f"{module}.{alias.name}")
            self._modules.add(f"{module}.{alias.name}")  # which may be a module, too

    def _see(self, node: ast.AST) -> None:
        match node:
            case ast.Attribute() | ast.Name():
                if name := self._dotted(node):
                    self._used.add(name)
            case ast.Constant(value=str() as text) if len(text) <= 400:
                self._texts.add(text)
            case ast.Subscript(slice=ast.Constant(value=str() as variable)):
                if self._dotted(node.value) == "os.environ":
                    self._environment.add(variable)
            case ast.Compare(left=ast.Constant(value=str() as variable), comparators=[other]):
                if self._dotted(other) == "os.environ":
                    self._environment.add(variable)
            case ast.Call():
                self._call(node)

    def _call(self, node: ast.Call) -> None:
        name = self._dotted(node.func) or ""
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name.rpartition(".")[2]
        first = node.args[0] if node.args else None
        text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
        if name in _ENVIRONMENT and text is not None:
            self._environment.add(text)
        elif last == "add_argument" and text is not None:
            self._argument(node)
        elif name in ("click.option", "click.argument") and text is not None:
            self._argument(node, positional=name == "click.argument")
        elif _ABSL.fullmatch(name) and text is not None:
            values = [ast.unparse(value) for value in node.args[1:3]]
            default, meaning = [*values, "None", "''"][:2] if values else ("None", "''")
            self._add(Argument(name=f"--{text}", default=default, help=meaning.strip("'\"")))
        elif last == "result":
            self._results |= {word.arg for word in node.keywords}
        elif name in ("sys.exit", "exit", "quit", "os._exit") or last == "SystemExit":
            self._exit(first)
        if any(word.arg == "download" and _is_true(word.value) for word in node.keywords):
            self._downloads = True

    def _argument(self, node: ast.Call, *, positional: bool = False) -> None:
        """`add_argument` of argparse, or an option of click, which has the same words."""
        names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        words = {word.arg: word.value for word in node.keywords if word.arg}
        flags = [name for name in names if name.startswith("-")]
        name = max(flags, key=len) if flags else names[0]
        default = ast.unparse(words["default"]) if "default" in words else None
        needs = positional or not flags
        optional = default is not None or _const(words.get("nargs")) in ("?", "*", -1)
        meaning = _const(words.get("help"))
        is_required = (needs and not optional) or _is_true(words.get("required"))
        self._add(
            Argument(
                name=one_line(name, limit=60),
                default=None if default is None else one_line(default, limit=400),
                help=one_line(meaning, limit=100) if isinstance(meaning, str) else "",
                required=is_required,
            )
        )

    def _add(self, argument: Argument) -> None:
        if len(self._arguments) < _MOST_ARGUMENTS:
            self._arguments.setdefault(argument.name, argument)

    def _exit(self, value: ast.expr | None) -> None:
        code = self._constants.get(value.id) if isinstance(value, ast.Name) else _const(value)
        if isinstance(code, int) and not isinstance(code, bool):
            self._codes.add(code)

    def _dotted(self, node: ast.AST) -> str | None:
        """The full name of `a.b.c`; None where `a` was not imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        if node.id in ("exit", "quit") and not parts:
            return node.id
        start = self._names.get(node.id)
        return None if start is None else ".".join([start, *reversed(parts)])


def _const(node: ast.AST | None) -> object:
    try:
        return ast.literal_eval(node) if isinstance(node, ast.expr) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _is_true(node: ast.AST | None) -> bool:
    return _const(node) is True


def is_main(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and any(_const(other) == "__main__" for other in test.comparators)
    )


def _needed(body: list[ast.stmt]) -> Iterator[str]:
    """The packages that are imported whenever the module is: not those of functions, and not those whose
    failure is handled."""
    for node in body:
        match node:
            case ast.Import():
                yield from (alias.name.partition(".")[0] for alias in node.names)
            case ast.ImportFrom(module=str() as module, level=0):
                yield module.partition(".")[0]
            case ast.Try():
                handled = {name for handler in node.handlers for name in _caught(handler)}
                if not handled & {"ImportError", "ModuleNotFoundError", "Exception", ""}:
                    yield from _needed(node.body)
                yield from _needed([*node.orelse, *node.finalbody])
            case ast.If() if "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from _needed([*node.body, *node.orelse])
            case ast.With():
                yield from _needed(node.body)


def _caught(handler: ast.ExceptHandler) -> Iterator[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for kind in kinds:
        yield kind.id if isinstance(kind, ast.Name) else ""
