"""TOML files: every key's line, and complaints that name the key, the line and the likeliest meaning."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat_base.errors import UsageError
from bareboat_base.toml import TomlFile


def toml(folder: Path, text: str) -> TomlFile:
    path = folder / "some.toml"
    path.write_bytes(text.encode())
    return TomlFile(path)


# --------------------------------------------------------------------------------------------------
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


# What TOML allows in a comment or on a line of a string: no control character but the tab.
TEXTS = st.text(
    st.one_of(
        st.sampled_from("abk0123 =[]{}.,#'\t\u2028\u2029\x85"), st.characters(exclude_categories=("Cs", "Cc"))
    ),
    max_size=12,
)
NOISE = st.lists(
    st.one_of(st.sampled_from(["", "  ", "\t"]), TEXTS.map(lambda text: f" # {text}")), max_size=3
)


@st.composite
def values(draw: st.DrawFn) -> list[str]:
    """The lines of one value."""
    text = draw(TEXTS)
    kind = draw(st.sampled_from(["int", "bool", "literal", "basic", "multi", "array", "date"]))
    match kind:
        case "int":
            return ["17"]
        case "bool":
            return ["false"]
        case "date":
            return ["2025-03-03T09:00:00Z"]
        case "literal":
            return ["'" + text.replace("'", "") + "'"]
        case "basic":
            return ['"' + text.replace("\\", "").replace('"', "") + '\\"\\u2028"']
        case "multi":
            inner = draw(st.lists(TEXTS.map(lambda t: t.replace("'", "")), max_size=3))
            return ["'''", *inner, "k0 = 1", "[k1]", "'''"]
        case _:
            items = draw(st.lists(values().filter(lambda v: len(v) == 1), max_size=3))
            return ["[", *(f"  {item[0]}, # {text}" for item in items), *draw(NOISE), "]"]


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[tuple[str, ...], int]]:
    """A TOML document, and the line of each key in it."""
    lines: list[str] = []
    where: dict[tuple[str, ...], int] = {}
    serial = 0

    def name() -> str:
        nonlocal serial
        serial += 1
        return draw(st.sampled_from(["k{}", "k-{}_", "k {}", "k.{}", "k#{}=", "{}"])).format(serial)

    def quoted(key: str) -> str:
        bare = all(c.isalnum() or c in "-_" for c in key)
        return key if bare and draw(st.booleans()) else f'"{key}"'

    def statements(table: tuple[str, ...]) -> None:
        for _ in range(draw(st.integers(0, 3))):
            lines.extend(draw(NOISE))
            line = len(lines) + 1
            path = [name() for _ in range(draw(st.integers(1, 3)))]
            for depth in range(1, len(path) + 1):
                where[(*table, *path[:depth])] = line
            if draw(st.integers(0, 3)) == 0:
                inner = name()
                where[(*table, *path, inner)] = line
                value = [f"{{ {quoted(inner)} = 1 }}"]
            else:
                value = draw(values())
            gap = draw(st.sampled_from(["", " ", "\t"]))
            value[0] = f"{gap}{(gap + '.').join(map(quoted, path))}{gap}={gap}{value[0]}"
            lines.extend(value)

    statements(())
    for _ in range(draw(st.integers(0, 3))):
        lines.extend(draw(NOISE))
        table = tuple(name() for _ in range(draw(st.integers(1, 2))))
        lines.append(f"[{'.'.join(map(quoted, table))}]" + draw(st.sampled_from(["", " # table"])))
        for depth in range(1, len(table) + 1):
            where[table[:depth]] = len(lines)
        statements(table)
    return draw(st.sampled_from(["\n", "\r\n"])).join([*lines, ""]), where


@settings(max_examples=80, deadline=None)
@given(documents())
def test_in_any_document_every_key_stands_where_it_was_written(
    document: tuple[str, dict[tuple[str, ...], int]],
) -> None:
    text, where = document
    with tempfile.TemporaryDirectory() as folder:
        file = toml(Path(folder), text)
        assert {keys: file.line(*keys) for keys in where} == where


# --------------------------------------------------------------------------------------------------
# check_keys


# --------------------------------------------------------------------------------------------------
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


# --------------------------------------------------------------------------------------------------
# convert


# --------------------------------------------------------------------------------------------------
# reading
