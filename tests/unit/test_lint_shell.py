"""The commands that lint finds in a RUN, and that no text breaks it or its corrections."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat_images.lint import check, fix, recipe, shell
from bareboat_images.lint.rule import Finding
from bareboat_images.recipe.faults import RecipeError


def commands(text: str, *, is_lines: bool = False) -> list[list[str]]:
    script = shell.parse(text, 0, is_lines=is_lines)
    for command in script.commands:
        for word in command.words:
            assert word.start < 0 or text[word.start : word.end] == word.raw
    return [[command.program, *command.values] for command in script.commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b && c d", [["a", "b"], ["c", "d"]]),
        ("a 'b && c' \"d ; e\"", [["a", "b && c", "d ; e"]]),
        ("a \\\n b \\\n && c", [["a", "b"], ["c"]]),
        ("a \\\n # comment\n b", [["a", "b"]]),
        ("a # comment && b", [["a"]]),
        ("a#b c", [["a#b", "c"]]),
        ("(a; b) | c & d", [["a"], ["b"], ["c"], ["d"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"]]),
        ("for x in 1 2; do a $x; done", [["a", "$x"]]),
        ("while ! a; do { b; }; done", [["a"], ["b"]]),
        ("X=1 Y='2 3' a b", [["a", "b"]]),
        ("X=1", []),
        ("sudo -u me a b", [["sudo"], ["a", "b"]]),
        ("env -i X=1 nice -n 5 a b", [["a", "b"]]),
        ("a > f 2>&1 < g >> h b", [["a", "b"]]),
        ("a $(b c) `d` ${x:-e f}", [["a", "$(b c)", "`d`", "${x:-e f}"], ["b", "c"], ["d"]]),
        ('a "$(b \'c"\')"', [["a", "$(b 'c\"')"], ["b", 'c"']]),
        ("bash -ec 'a; b'", [["bash", "-ec", "a; b"], ["a"], ["b"]]),
        ("/usr/bin/python3 -m pip install x", [["pip", "install", "x"]]),
        ("a 'b", []),
        ("", []),
        ("&& a", [["a"]]),
    ],
)
def test_commands(text: str, expected: list[list[str]]) -> None:
    assert commands(text) == expected


def test_lines_of_a_heredoc() -> None:
    assert commands("a\n# b\nc \\\n d\n\ne # f\n", is_lines=True) == [["a"], ["c", "d"], ["e"]]


def test_outputs_and_operators() -> None:
    one, two = shell.parse("a > f 2> /dev/null | b >> g", 0).commands
    assert (one.outputs, one.after, two.outputs) == (("f", "/dev/null"), "|", ("g",))


@pytest.mark.parametrize(
    ("text", "end"),
    [("a b", 3), ("a b  ", 3), ("a; ", 1), ("(a)", 3), ("if a; then b; fi", 16), ("a # b", -1),
     ("a 'b", -1), ("a &&", -1)],
)  # fmt: skip
def test_where_a_command_can_be_added(text: str, end: int) -> None:
    assert shell.parse(text, 0).end == end


def test_options() -> None:
    (command,) = shell.parse("tool -rf --name=x -o out -Pdir --flag y", 0).commands
    assert command.has("-r")
    assert command.has("--name")
    assert not command.has("-q")
    assert (command.option("--name"), command.option("-o"), command.option("-P")) == ("x", "out", "dir")
    assert command.option("--none") is None


_PIECES = st.sampled_from(
    [
        *(
            "RUN ",
            "FROM a\n",
            "FROM a:1 AS b\n",
            "COPY x /y\n",
            "COPY --chown=a x /y\n",
            "ENV A=b\n",
            "USER a\n",
        ),
        *(
            "apt-get update",
            "pip install -e .",
            "rm -rf /var/lib/apt/lists/*",
            "chown -R a /y",
            "conda install c",
        ),
        *("wget http://a/b.tar", " | sh", "--mount=type=cache,target=/x ", "-march=native", "cd /tmp"),
        *(
            " && ",
            "; ",
            " \\\n",
            "\n",
            "'",
            '"',
            "$(",
            ")",
            "`",
            "${A:-b}",
            "# c\n",
            "<<E\n",
            "E\n",
            "\t",
            "é",
        ),
        *("{", "}", "if ", "; then ", "fi", ">", "<", "&", '["a", "b"]\n'),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_PIECES, max_size=25).map("".join))
def test_no_dockerfile_breaks_a_rule_or_is_broken_by_a_correction(text: str) -> None:
    def find(text: str) -> list[Finding]:
        return check.recipe(recipe.read(text, name="x", machine="x86_64"))

    with contextlib.suppress(RecipeError):
        before = recipe.read(text, name="x", machine="x86_64")
        after, done = fix.fixed(text, find)
        read = recipe.read(after, name="x", machine="x86_64")  # a correction raises nothing
        names = [step.name for step in read.steps]
        assert set(names) <= {step.name for step in before.steps}
        assert len(names) <= len(before.steps)
        assert bool(done) == (after != text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.booleans())
def test_any_text_can_be_split(text: str, is_lines: bool) -> None:
    commands(text, is_lines=is_lines)
