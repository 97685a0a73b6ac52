"""Scripts of bash as commands with their lines, and the values of their words; compared with bash itself."""

from __future__ import annotations

import subprocess

import pytest

from bareboat_adopt import bash
from bareboat_adopt.bash import Command, Compound
from bareboat_adopt.values import Scope, Unknown


def shown(text: str) -> list[str]:
    """Each statement as LINE:KEYWORD or LINE:its words as written."""
    return [
        f"{each.line}:{each.keyword if isinstance(each, Compound) else ' '.join(w.raw for w in each.words)}"
        for each in bash.parse(text)
    ]


def test_commands_have_their_lines() -> None:
    text = "#!/bin/bash\n\na=1 b 'c d' \\\n  e; f # g\nh && i | j\n"
    assert shown(text) == ["3:b 'c d' e", "4:f", "5:h", "5:i", "5:j"]
    assert [each.after for each in bash.parse("a; b & c && d || e | f\n")] == [
        ";",
        "&",
        "&&",
        "||",
        "|",
        "\n",
    ]


@pytest.mark.parametrize("begin", ["", "declare -a ", "export ", "local -r -a ", "typeset ", "readonly "])
def test_lists_are_values_and_no_words(begin: str) -> None:
    first, second = bash.parse(f'{begin}a=(1 "2 3"\n  4) # four\nb ${{a[1]}}\n')
    assert isinstance(first, Command)
    assert [name for name, _, _ in first.assigned] == ["a"]
    assert isinstance(second, Command)
    assert second.words[0].raw == "b"


@pytest.mark.parametrize(
    ("text", "keyword", "inner"),
    [
        ("for i in 1 2; do run $i; done", "for", "run"),
        ("for ((i = 0; i < 3; i++)); do run; done", "for", "run"),
        ("while read x; do run; done < file", "while", "run"),
        ("if [ -f x ]; then a; elif b; then c; else run; fi", "if", "run"),
        ("case $1 in a|b) run ;; (c) d;; *) e\nesac", "case", "run"),
        ("(cd x && run)", "(", "run"),
        ("{ a; run; } > log", "{", "run"),
        ("f() {\n  run\n}", "function", "run"),
        ("function f { run; }", "function", "run"),
    ],
)
def test_compound_commands_hold_their_commands(text: str, keyword: str, inner: str) -> None:
    (found,) = bash.parse(text)
    assert isinstance(found, Compound)
    assert found.keyword == keyword
    names = [each.words[0].raw for each in bash.commands(found.body) if each.words]
    assert inner in names


def test_here_documents_are_no_commands() -> None:
    text = "cat <<EOF > x\nmpirun a\nEOF\nb <<-'E N D'\n\tmpirun c\n\tE N D\nd\n"
    assert shown(text) == ["1:cat", "4:b", "7:d"]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nif b; then c\n", 3), ("a 'b\n", 1), ("a\n$(b\n", 2), ("a\n)\n", 2), ("if b; then )\nfi", 1),
     ("case x in a) b )", 1), ("a <\n", 1)],
)  # fmt: skip
def test_what_is_not_bash_is_an_error_with_its_line(text: str, line: int) -> None:
    with pytest.raises(bash.Unreadable) as error:
        bash.parse(text)
    assert error.value.line == line


WORDS = [
    "plain", "'single $A'", '"double $A"', "$A", '"$A"', "$B", '"$B"', "${A}x", "x$B", "${C:-other}",
    "${A:-other}", "${C-}", '"${C:-}"', "a\\ b", "$((2 * (N + 1)))", "$((N % 3))",
    "a'b'\"c\"d", "~/x", "x~",
    "--a=~/x", '"\\$A"', "{}", "a{b", "$(dirname $P)", "$(basename /a/b)", "'{a,b}'",
    "-n$N", "$B$B", "$A$C$A",
]  # fmt: skip


def test_words_are_expanded_as_bash_expands_them() -> None:
    values = {"HOME": "/home/ada", "A": "one", "B": "two  words", "N": "7", "P": "/p/q/r", "C": ""}
    script = "".join(f'set -- {word}; printf \'%s\\0\' "$#" "$@"\n' for word in WORDS)
    done = subprocess.run(["bash", "-c", script], env=values, capture_output=True, text=True, check=True)
    printed = done.stdout.split("\0")
    for word in WORDS:
        expected = [printed.pop(0) for _ in range(int(printed.pop(0)))] or ([""] if word == "''" else [])
        (command,) = bash.parse(f"x {word}")
        assert isinstance(command, Command)
        scope = Scope(values, "/work")
        assert [text for each in command.words[1:] for text in scope.words(each)] == expected, word


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("*.inp", "pattern"), ("a[12]", "pattern"), ("{1..3}", "list of words"), ("$X", "X is not set here"),
        ("$1", "arguments"), ('"$@"', "arguments"), ("$(hostname)", "known only in the job"),
        ("${A%%.*}", "not evaluated"), ("$((RANDOM % 9))", "RANDOM"), ("`date`", "known only in the job"),
        ("$STAR", "becomes a pattern"), ("$((1 / 0))", "not evaluated"),
        ("$((" + "*".join(["999999999"] * 800) + "))", "not evaluated"),
        ("$((" + "(" * 5000 + "1" + ")" * 5000 + "))", "not evaluated"),
    ],
)  # fmt: skip
def test_what_only_the_shell_knows_is_unknown(word: str, reason: str) -> None:
    (command,) = bash.parse(f"x {word}")
    assert isinstance(command, Command)
    with pytest.raises(Unknown, match=reason):
        Scope({"A": "a.b", "STAR": "a*"}, "/work").words(command.words[1])


def test_a_script_of_many_commands_is_parsed_in_time_proportional_to_it() -> None:
    assert len(bash.parse("a b 'c' \"$d\"\n" * 2000)) == 2000
