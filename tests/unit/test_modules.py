"""The shape of the source: no two modules import each other, by any way round; functions are short; a package
uses few names of another."""

import ast
import functools
import graphlib
from collections import defaultdict
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


@functools.cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in modules().items()}


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
        importer: {module for name in imports(tree) for module in loaded(name, importer, known)}
        for importer, tree in trees().items()
    }
    assert sum(map(len, graph.values())) > len(graph)
    graphlib.TopologicalSorter(graph).prepare()  # its error names the circle


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name, tree in trees().items():
        for node in ast.walk(tree):
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


#: (package, its user) -> how many of its names the user may have. Only lower these numbers: the goal is 40.
MOST_NAMES = {
    ("bareboat_base", "bareboat_images"): 99,
    ("bareboat_base", "bareboat"): 140,
    ("bareboat_base", "bareboat_study"): 68,
    ("bareboat_images", "bareboat"): 94,
    ("bareboat_images", "bareboat_study"): 7,
    ("bareboat", "bareboat_study"): 165,
    ("bareboat_study", "bareboat"): 11,  # what its verbs on runs ask about studies
    ("bareboat_base", "bareboat_shim"): 17,
    ("bareboat", "bareboat_shim"): 24,
    ("bareboat_shim", "bareboat"): 4,
    ("bareboat_base", "bareboat_adopt"): 7,
    ("bareboat", "bareboat_adopt"): 2,
    ("bareboat_shim", "bareboat_adopt"): 10,
    ("bareboat_adopt", "bareboat"): 4,
}


def names_of_others(importer: str, tree: ast.AST, known: dict[str, Path]) -> set[str]:
    """The functions, types and constants of other packages that a module uses, for type checkers too."""
    files: dict[str, str] = {}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in known:
                    files[alias.asname or alias.name] = name
                else:
                    names.add(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in files:
            names.add(f"{files[node.value.id]}.{node.attr}")
    package = importer.partition(".")[0]
    return {name for name in names if name.startswith("bareboat") and name.partition(".")[0] != package}


def test_a_package_uses_few_names_of_another() -> None:
    known = modules()
    used: dict[tuple[str, str], set[str]] = defaultdict(set)
    for importer, tree in trees().items():
        for name in names_of_others(importer, tree, known):
            used[name.partition(".")[0], importer.partition(".")[0]].add(name)
    counts = {pair: len(names) for pair, names in used.items()}
    assert {pair: count for pair, count in counts.items() if count > MOST_NAMES.get(pair, 0)} == {}
    assert sum(counts.values()) > sum(MOST_NAMES.values()) // 2
