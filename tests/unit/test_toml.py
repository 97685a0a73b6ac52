"""TOML files: every key's line, and complaints that name the key, the line and the likeliest meaning."""

from pathlib import Path

import pytest

from bareboat_base.errors import UsageError
from bareboat_base.toml import TomlFile


def toml(folder: Path, text: str) -> TomlFile:
    path = folder / "some.toml"
    path.write_bytes(text.encode())
    return TomlFile(path)


# line


@pytest.mark.parametrize(
    ("text", "keys", "line"),
    [
        ("a = 1\nb = 2\n", ["a"], 1),
        ("a = 1\nb = 2\n", ["b"], 2),
        ("a = 1\nb = 2", ["b"], 2),
        ("# first\n\n  # second\nb = 2\n", ["b"], 4),
        ("a = 1 # b = 1\n\n\n# b = 2\n   b = 2\n", ["b"], 5),
        ("a.b.c = 1\na.b.d = 2\n", ["a"], 1),
        ("a.b.c = 1\na.b.d = 2\n", ["a", "b", "d"], 2),
        ("x = 1\na = { b = 1, c = { d = 2 } }\n", ["a", "c", "d"], 2),
        ("x = 1\n[a]\n# why\nb = 1\n[c]\nb = 2\n", ["a"], 2),
        ("x = 1\n[a]\n# why\nb = 1\n[c]\nb = 2\n", ["a", "b"], 4),
        ("x = 1\n[a]\n# why\nb = 1\n[c]\nb = 2\n", ["c", "b"], 6),
        ("[a.b]\nc = 1\n\n[a]\nd = 1\n", ["a"], 1),
        ("[a.b]\nc = 1\n\n[a]\nd = 1\n", ["a", "d"], 5),
        ("[[a]]\nb = 1\n[[a]]\nb = 2\n[c]\n", ["a"], 1),
        ("a = [\n  1,\n  2, # b = 3\n]\nb = 4\n", ["a"], 1),
        ("a = [\n  1,\n  2, # b = 3\n]\nb = 4\n", ["b"], 5),
        ("a = [\n  { b = 1 },\n\n]\nb = 4\n", ["b"], 5),
        ('a = """\nb = 1\n[c]\n"""\nb = 2\n[c]\n', ["a"], 1),
        ('a = """\nb = 1\n[c]\n"""\nb = 2\n[c]\n', ["b"], 5),
        ('a = """\nb = 1\n[c]\n"""\nb = 2\n[c]\n', ["c"], 6),
        ("a = '''x\n'' b = 1'''\n\nb = 2\n", ["b"], 4),
        ('"a.b" = 1\na.b = 2\n', ["a", "b"], 2),
        ('"a.b" = 1\na.b = 2\n', ["a.b"], 1),
        ("a = false\nb = 0\n", ["b"], 2),
        ("a = 1\r\n# c\r\nb = 2\r\n", ["b"], 3),
        ("# elsewhere these end a line: \u2028 \x85\na = '\u2029'\nb = 1\n", ["b"], 3),
    ],
)
def test_a_key_stands_on_the_line_of_its_statement(
    tmp_path: Path, text: str, keys: list[str], line: int
) -> None:
    file = toml(tmp_path, text)
    assert file.line(*keys) == line
    assert file.at(*keys) == f"{file.path}, line {line}"


def test_no_line_is_named_for_what_is_not_in_the_file(tmp_path: Path) -> None:
    file = toml(tmp_path, "# comment\na = 1\n")
    assert file.at("b") == str(file.path)
    assert file.at("a", "b") == str(file.path)
    assert file.at() == str(file.path)


# invalid TOML


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a = ["x" "y"]\n', 1),
        ('a = [\n  "x"\n  "y",\n]\n', 3),
        ("b = 1\na = [1, 2\n", 2),
        ("a = 1\na = 2\n", 2),
    ],
)
def test_the_line_of_what_is_not_toml(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(UsageError) as caught:
        toml(tmp_path, text)
    assert caught.value.problem.place.startswith(f"{tmp_path}/some.toml, line {line}: ")
