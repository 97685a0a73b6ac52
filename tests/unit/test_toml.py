"""TOML files: every key's line, and complaints that name the key, the line and the likeliest meaning."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat.model import Topology
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


@dataclass(frozen=True)
class Statement:
    """Lines of a document, and the line, within them, of each key they set."""

    lines: tuple[str, ...]
    keys: tuple[tuple[tuple[str, ...], int], ...]


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


def test_known_keys_pass(tmp_path: Path) -> None:
    file = toml(tmp_path, "name = 'x'\n[topology]\nnodes = 1\n")
    file.check_keys(file.values, ["name", "topology"])
    file.check_keys(file.values["topology"], ["nodes"], "topology")


def test_an_unknown_key_is_named_with_its_line_and_the_likeliest_meaning(tmp_path: Path) -> None:
    file = toml(tmp_path, "# a job\nname = 'x'\ncomand = 'y'\n")
    with pytest.raises(UsageError, match=r"unknown key 'comand'; did you mean 'command'\?") as caught:
        file.check_keys(file.values, ["command", "name"])
    assert caught.value.context == f"{file.path}, line 3"
    assert caught.value.remedy == "rename it to command"


def test_an_unknown_key_of_a_table_is_sought_in_that_table(tmp_path: Path) -> None:
    file = toml(tmp_path, "node = 0\n[topology]\nranks = 2\nnode = 2\n")
    with pytest.raises(UsageError, match=r"unknown key 'node' under \[topology\]; did you mean") as caught:
        file.check_keys(file.values["topology"], ["nodes", "ranks"], "topology")
    assert caught.value.context == f"{file.path}, line 4"
    assert caught.value.remedy == "rename it to nodes"


def test_nothing_is_guessed_when_nothing_is_near(tmp_path: Path) -> None:
    file = toml(tmp_path, "zzzzzz = 1\n")
    with pytest.raises(UsageError) as caught:
        file.check_keys(file.values, ["command", "name"])
    assert caught.value.message == "unknown key 'zzzzzz'"


# --------------------------------------------------------------------------------------------------
# invalid TOML


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('a = ["x" "y"]\n', 'line 1:\na = ["x" "y"]\n         ^'),
        ('a = [\n  "x",\n  "y"\n  "z",\n]\n', 'line 4:\n  "z",\n  ^'),
        ("t = { a = 1 b = 2 }\n", "line 1:\nt = { a = 1 b = 2 }\n            ^"),
        ("a = [1, 2 true]\n", "line 1:\na = [1, 2 true]\n          ^"),
    ],
)
def test_the_place_of_a_missing_comma_is_shown(tmp_path: Path, text: str, shown: str) -> None:
    with pytest.raises(UsageError, match="a comma is missing between two values") as caught:
        toml(tmp_path, text)
    assert caught.value.context.partition(", ")[2] == shown


@pytest.mark.parametrize("after", ["b = 2\n", '"b" = 2\n', "\n[t]\n", "[[t]]\n", ""])
def test_an_open_bracket_is_no_missing_comma(tmp_path: Path, after: str) -> None:
    with pytest.raises(UsageError, match=r"a quote or bracket is not closed|it ends inside a value"):
        toml(tmp_path, f'a = ["x"\n{after}')


# --------------------------------------------------------------------------------------------------
# convert


def test_a_right_value_is_converted(tmp_path: Path) -> None:
    file = toml(tmp_path, "a = ['x', 'y']\nmargin = 1\n[topology]\nnodes = 3\n")
    assert file.convert(file.values["a"], tuple[str, ...], "a") == ("x", "y")  # type: ignore[arg-type]
    assert file.convert(file.values["topology"], Topology, "topology") == Topology(nodes=3)
    assert file.convert(file.values["margin"], float, "margin") == 1.0


@pytest.mark.parametrize(
    ("text", "kind", "key", "message", "line"),
    [
        ("# c\n\na = 1\n", str, "a", "a is 1; it must be text in quotes", 3),
        ("a = 'x'\n", int, "a", "a is 'x'; it must be a whole number", 1),
        ("a = true\n", int, "a", "a is true; it must be a whole number", 1),
        ("z = 0\na = [\n 'x',\n 1]\n", tuple[str, ...], "a", "a[1] is 1; it must be text in quotes", 2),
        ("a = 1\n", tuple[str, ...], "a", "a is 1; it must be a list", 1),
        (
            "z = 0\n[a]\nnodes = 1\n# c\nranks_per_node = '2'\n",
            Topology,
            "a",
            "a.ranks_per_node is '2'; it must be a whole number",
            5,
        ),
        ("z = 0\n[a]\nX = '1'\n# c\nY = 2\n", dict[str, str], "a", "a.Y is 2; it must be text in quotes", 5),
        ("a = { X = '1', Y = 2.5 }\n", dict[str, str], "a", "a.Y is 2.5; it must be text in quotes", 1),
    ],
)
def test_a_wrong_type_is_told_with_the_key_and_its_line(
    tmp_path: Path, text: str, kind: type, key: str, message: str, line: int
) -> None:
    file = toml(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        file.convert(file.values[key], kind, key)
    assert caught.value.message == message
    assert caught.value.context == f"{file.path}, line {line}"
    assert message.partition(" ")[0].partition("[")[0].rpartition(".")[2] in caught.value.remedy


def test_an_impossible_value_keeps_its_own_words_and_gets_the_place(tmp_path: Path) -> None:
    file = toml(tmp_path, "z = 0\n[topology]\nnodes = 0\n")
    with pytest.raises(UsageError, match=r"topology\.nodes is 0") as caught:
        file.convert(file.values["topology"], Topology, "topology")
    assert caught.value.context == f"{file.path}, line 3"
    assert caught.value.remedy == "set nodes = 1 under [topology]"


# --------------------------------------------------------------------------------------------------
# reading


def test_a_file_that_is_not_toml_is_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not valid TOML: a value is neither a number") as caught:
        toml(tmp_path, "a = 1\nb = \n")
    assert caught.value.context == f"{tmp_path}/some.toml, line 2: b ="


def test_a_key_set_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not valid TOML: a key or table is set twice"):
        toml(tmp_path, "a = 1\na = 2\n")


def test_a_file_without_content_has_no_values(tmp_path: Path) -> None:
    assert toml(tmp_path, "").values == {}
    assert toml(tmp_path, "# only this\n").values == {}
