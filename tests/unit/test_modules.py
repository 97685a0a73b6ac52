"""The shape of the source: no two modules import each other, by any way round; functions are short."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import bareboat

SOURCE = Path(bareboat.__file__).parents[1]


def modules() -> dict[str, Path]:
    names = {}
    for path in SOURCE.glob("bareboat*/**/*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports(node: ast.AST) -> Iterator[str]:
    """What a module imports when it runs, in functions too; not what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.Import():
                yield from (alias.name for alias in child.names)
            case ast.ImportFrom(module=str(module)):
                yield from (f"{module}.{alias.name}" for alias in child.names)
            case _:
                yield from imports(child)


def loaded(name: str, importer: str, known: dict[str, Path]) -> Iterator[str]:
    """The module that holds a name, and the packages around it that the importer is not in."""
    while name:
        if name in known and not f"{importer}.".startswith(f"{name}."):
            yield name
        name = name.rpartition(".")[0]


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = modules()
    graph = {
        importer: {
            module
            for name in imports(ast.parse(path.read_text()))
            for module in loaded(name, importer, known)
        }
        for importer, path in known.items()
    }
    assert sum(map(len, graph.values())) > len(graph)
    graphlib.TopologicalSorter(graph).prepare()  # its error names the circle


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}.{node.name}", node


def test_a_function_fits_on_a_screen_and_takes_few_values() -> None:
    long, wide = [], []
    for name, node in functions():
        given = node.args
        values = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        if (node.end_lineno or 0) - node.lineno + 1 > 60:
            long.append(name)
        if len(values) - (values[:1] in (["self"], ["cls"])) > 7:
            wide.append(name)
    assert (long, wide) == ([], [])
