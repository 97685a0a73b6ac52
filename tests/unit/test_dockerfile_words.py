"""Variables and patterns in Dockerfiles."""

import contextlib
import posixpath
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat.cli import folding
from bareboat_base.errors import UsageError
from bareboat_images.recipe import definition, expansion, ignore, lines
from bareboat_images.recipe.faults import RecipeError

VALUES = {"A": "foo", "EMPTY": "", "P": "/usr/local/lib/a.tar.gz", "S": "x y"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$A", "foo"),
        ("${A}bar", "foobar"),
        ("$A_x", ""),
        ("\\$A", "$A"),
        ("'$A'", "$A"),
        ('"$A b"', "foo b"),
        ('"\\"$A\\" \\x"', '"foo" \\x'),
        ("a\\ b", "a b"),
        ("${B:-w}", "w"),
        ("${EMPTY:-w}", "w"),
        ("${EMPTY-w}", ""),
        ("${A:-w}", "foo"),
        ("${A:+w}", "w"),
        ("${EMPTY:+w}", ""),
        ("${EMPTY+w}", "w"),
        ("${B:-${A}x}", "foox"),
        ("${B:-'a b'}", "a b"),
        ("${A:?no}", "foo"),
        ("$", "$"),
        ("a$", "a$"),
        ("$%", "$%"),
        ("$1x", "x"),
    ],
)
def test_expansion(text: str, found: str) -> None:
    assert expansion.expand(text, VALUES) == found


def test_words_split_at_spaces_of_variables_outside_quotes() -> None:
    assert expansion.words('a $S "$S" b\\ c', VALUES) == ["a", "x", "y", "x y", "b c"]


def test_expansions_do_not_grow_without_end() -> None:
    with pytest.raises(expansion.ExpansionError):
        expansion.expand("$A" * 100, {"A": "x" * 20_000})
    with pytest.raises(expansion.ExpansionError):
        expansion.expand("${A:-" * 200 + "}" * 200, {})


@pytest.mark.parametrize(
    ("patterns", "ignored", "kept"),
    [
        (["*/temp*"], ["a/temporary.txt", "a/temp"], ["temp", "a/b/temp"]),
        (["*/*/temp*"], ["a/b/temporary"], ["a/temp"]),
        (["temp?"], ["tempa", "tempa/x"], ["temp", "tempab"]),
        (["**/*.go"], ["a.go", "a/b/c.go"], ["a.goo"]),
        (["*.md", "!README.md"], ["a.md"], ["README.md"]),
        (["*.md", "!README*.md", "README-secret.md"], ["README-secret.md", "b.md"], ["README.md"]),
        (["*.md", "README-secret.md", "!README*.md"], ["b.md"], ["README-secret.md"]),
        (["/a", "b/", "./c"], ["a", "a/x", "b", "b/y", "c"], ["d/a"]),
        (["a/**"], ["a/b", "a/b/c"], ["a"]),
        (["**"], ["a", "a/b"], []),
        (["*", "!a/b"], ["a", "c", "a/d"], ["a/b", "a/b/c"]),
        (["[ab].txt"], ["a.txt"], ["c.txt"]),
        (["[^ab].txt"], ["c.txt"], ["a.txt"]),
        (["a\\*b"], ["a*b"], ["axb"]),
        (["."], [], ["a"]),
        (["[+-.]x"], ["+x", ",x", "-x", ".x"], ["ax"]),
        (["[!x]"], ["!", "x"], ["a"]),
        (["[^!x]"], ["a"], ["!", "x"]),
        (["[a\\-c]"], ["a", "-", "c"], ["b"]),
        (["*a*a*a*a*a*a*a*a*a*a*a*a*a*b"], ["aaaaaaaaaaaaab"], ["aaaaaaaaaaaaac"]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_ignored(patterns: list[str], ignored: list[str], kept: list[str]) -> None:
    rules = ignore.Ignored(patterns)
    assert [path for path in ignored if not rules.ignores(path)] == []
    assert [path for path in kept if rules.ignores(path)] == []


def test_a_deep_path_is_compared_with_each_pattern() -> None:
    deep = "a/" * 2_000 + "b"
    assert ignore.Ignored(["a/a/c", "**/b"]).ignores(deep)
    assert not ignore.Ignored(["c"]).ignores(deep)


def test_paths_of_a_dockerignore_take_no_longer_for_their_number() -> None:
    """Paths without patterns are looked up, and there are few patterns."""
    globs = [f"*/*x{number}" for number in range(400)]
    rules = ignore.Ignored([*globs, *(f"data/{number}" for number in range(20_000))])
    with pytest.raises(UsageError, match="more than"):
        ignore.read("\n".join([*globs, *globs]))
    began = time.process_time()
    assert sum(rules.ignores(f"data/{number}/x") for number in range(0, 40_000, 20)) == 1_000
    assert sum(rules.ignores(f"more/{number}x{number}") for number in range(0, 40_000, 20)) == 20
    assert time.process_time() - began < 10


def test_lines_of_blanks_take_time_in_proportion_to_their_length() -> None:
    """Of a directive, a header, a section and a message: 20 s to minutes for lines as long as these."""
    blanks = " " * 100_000
    began = time.process_time()
    assert lines.read(f"# syntax=a{blanks}b\n# escape = `\nFROM a\n").escape == "`"
    text = f"Bootstrap: docker\nFrom: a{blanks}b\n%post a{blanks}b # c\n    true\n"
    with contextlib.suppress(RecipeError):
        definition.read(text, given={})
    assert folding.folded("word " * 30 + blanks, 80)
    assert time.process_time() - began < 5


def test_a_dockerignore_has_comments_and_empty_lines() -> None:
    rules = ignore.read("# comment\n\n  a  \r\n!a/b\n")
    assert rules.ignores("a/c")
    assert not rules.ignores("a/b")
    assert rules.has_exceptions
    rules = ignore.read("c\fd\ne\u2028f\n")  # lines end as in Go
    assert [rules.ignores(name) for name in ("c\fd", "e\u2028f", "c", "d", "f")] == [True, True] + [False] * 3


@pytest.mark.parametrize("text", ["a\n!\n", "[a", "a\\", "[]a]", "[+--]x", "[z-a]", "[^]", "[-a]"])
def test_damaged_patterns_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"\.dockerignore:\d") as caught:
        ignore.read(text)
    assert caught.value.remedy


def plain_expression(pattern: str) -> str:
    """A pattern as one regular expression, which may take exponential time."""
    plain = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*{2,}/?|\[[^]]*\]|.", pattern)
    return "".join(
        each if each.startswith("[") else plain.get(re.sub(r"\*{3,}", "**", each), re.escape(each))
        for each in tokens
    )


_PARTS = st.sampled_from(["a", "b", "[ab]", "[^a]", "*", "?", "/", "**/", "**"])


@given(st.lists(_PARTS, max_size=7).map("".join), st.text("ab/", max_size=9))
def test_a_pattern_matches_what_its_plain_expression_matches(pattern: str, path: str) -> None:
    with contextlib.suppress(ValueError):  # too many stars
        found = ignore.compiled(pattern).match(path)
        assert bool(found) == bool(re.fullmatch(plain_expression(pattern), path))


@given(
    st.lists(st.tuples(st.sampled_from(["", "!"]), st.lists(_PARTS, min_size=1, max_size=5).map("".join))),
    st.lists(st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map("/".join)),
)
def test_many_rules_decide_as_one_after_the_other(rules: list[tuple[str, str]], paths: list[str]) -> None:
    try:
        found = ignore.Ignored("".join(rule) for rule in rules)
    except ValueError:  # too many stars
        return
    for path in paths:
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        left_out = False
        for sign, text in rules:
            pattern = posixpath.normpath(text).lstrip("/")
            if pattern != "." and any(re.fullmatch(plain_expression(pattern), each) for each in above):
                left_out = sign == ""
        assert found.ignores(path) == left_out, path


@pytest.mark.parametrize(
    "work",
    [
        lambda: ignore.compiled("*a" * 200 + "b").match("a" * 255),
        lambda: ignore.compiled("**a" * 200 + "**b").match("a" * 255),
        lambda: ignore.compiled("**/" + "*a" * 200 + "b").match("a/" * 2000),
    ],
)
def test_patterns_take_time_in_proportion_to_the_text(work: Callable[[], object]) -> None:
    began = time.process_time()
    work()
    assert time.process_time() - began < 10
