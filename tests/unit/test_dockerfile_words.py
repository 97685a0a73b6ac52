"""Variables and patterns in Dockerfiles."""

from __future__ import annotations

import contextlib
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat_base.errors import UsageError
from bareboat_images.recipe import expansion, ignore

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
        ("${P#*/}", "usr/local/lib/a.tar.gz"),
        ("${P##*/}", "a.tar.gz"),
        ("${P%.*}", "/usr/local/lib/a.tar"),
        ("${P%%.*}", "/usr/local/lib/a"),
        ("${P/l/L}", "/usr/Local/lib/a.tar.gz"),
        ("${P//l/L}", "/usr/LocaL/Lib/a.tar.gz"),
        ("${P//l}", "/usr/oca/ib/a.tar.gz"),
        ("${A/o*/-}", "f-"),
        ("${A#b}", "foo"),
        ("$", "$"),
        ("a$", "a$"),
        ("$%", "$%"),
        ("$1x", "x"),
    ],
)
def test_expansion(text: str, found: str) -> None:
    assert expansion.expand(text, VALUES) == found


@pytest.mark.parametrize(
    "text", ["${A", "${", "${}", "${A^}", "${A:=b}", "'a", '"a', "${B:?it is missing}", "${B?}"]
)
def test_damaged_expansions_are_refused(text: str) -> None:
    with pytest.raises(expansion.ExpansionError):
        expansion.expand(text, VALUES)


def test_in_a_heredoc_quotes_are_plain() -> None:
    assert expansion.expand("'$A' \"\\$A\" a\\b", VALUES, quotes=False) == "'foo' \"$A\" a\\b"


def test_words_split_at_spaces_of_variables_outside_quotes() -> None:
    assert expansion.words('a $S "$S" b\\ c', VALUES) == ["a", "x", "y", "x y", "b c"]


def test_expansions_do_not_grow_without_end() -> None:
    with pytest.raises(expansion.ExpansionError):
        expansion.expand("$A" * 100, {"A": "x" * 20_000})
    with pytest.raises(expansion.ExpansionError):
        expansion.expand("${A:-" * 200 + "}" * 200, {})


PATTERNS = st.text("ab*?/.", max_size=8)


@settings(deadline=None)
@given(PATTERNS, st.text("ab/.", max_size=12), st.sampled_from(["#", "##", "%", "%%"]))
def test_trimming_is_that_of_a_shell(pattern: str, value: str, kind: str) -> None:
    shell = shutil.which("bash")
    if shell is None or not pattern:
        return
    if pattern.startswith(("#", "%")):
        return
    said = subprocess.run(
        [shell, "-c", f'printf %s "${{V{kind}{pattern}}}"'], env={"V": value}, capture_output=True, check=True
    )
    assert expansion.expand(f"${{V{kind}{pattern}}}", {"V": value}) == said.stdout.decode()


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
        (["[+--]x"], ["+x", ",x", "-x"], ["ax"]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_ignored(patterns: list[str], ignored: list[str], kept: list[str]) -> None:
    rules = ignore.Ignored(patterns)
    assert [path for path in ignored if not rules.ignores(path)] == []
    assert [path for path in kept if rules.ignores(path)] == []


def test_a_dockerignore_has_comments_and_empty_lines() -> None:
    rules = ignore.read("# comment\n\n  a  \r\n!a/b\n")
    assert rules.ignores("a/c")
    assert not rules.ignores("a/b")
    assert rules.has_exceptions


@pytest.mark.parametrize("text", ["a\n!\n", "[a", "a\\", "*a" * 20])
def test_damaged_patterns_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"\.dockerignore:\d") as caught:
        ignore.read(text)
    assert caught.value.remedy


@given(st.text("ab*?[]!\\/^-", max_size=15), st.text("ab/", max_size=10))
def test_no_pattern_raises_anything_else(pattern: str, path: str) -> None:
    with contextlib.suppress(UsageError):
        ignore.read(pattern).ignores(path.strip("/") or "a")
