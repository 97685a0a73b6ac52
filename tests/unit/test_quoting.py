"""Commands in messages and in edits of recipes: a path in them is one word of the shell."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bareboat

SOURCE = Path(bareboat.__file__).parents[1]
COMMAND = re.compile(
    r"(?<!bareboat )(?<!udocker )\b(ls( -ld?)?|rm( -r?f)?|mv|mkdir( -p)?|touch|chmod \S+|find|cat|cd) $"
)
#: Their paths are constants, or words of a recipe as they are written there.
FIXED = {
    "bareboat/probe/compute.py",
    "bareboat/project/recipes/definition.py",
}


def unquoted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and expression of each value after a command that no shlex.quote has seen, where it is used or
    where its name is assigned."""
    quoted = {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        and re.search(r"shlex\.|_shown\(", ast.unparse(node.value))
        for name in ast.walk(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        if isinstance(name, ast.Name)
    }  # fmt: skip
    for text in ast.walk(tree):
        if isinstance(text, ast.JoinedStr):
            for before, value in zip(text.values, text.values[1:], strict=False):
                if isinstance(before, ast.Constant) and COMMAND.search(before.value):
                    assert isinstance(value, ast.FormattedValue)
                    written = ast.unparse(value.value)
                    if not re.search(r"quoted?\(|shlex\.join\(", written) and written not in quoted:
                        yield value.lineno, written


@pytest.mark.thorough
def test_paths_in_commands_are_quoted() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {written}"
        for path in sorted(SOURCE.glob("bareboat*/**/*.py"))
        if str(path.relative_to(SOURCE)) not in FIXED
        for line, written in unquoted(ast.parse(path.read_text()))
    ]
    assert found == []
