"""Scripts of bash as commands with their lines, and the values of their words; compared with bash itself."""

import subprocess
import time

import pytest

from bareboat_adopt import bash
from bareboat_adopt.values import Scope, Unclear


def shown(text: str) -> list[str]:
    """Each statement as FIRST-LAST:KEYWORD:its commands."""
    found = [
        (each, " / ".join(" ".join(command.words) for command in each.commands)) for each in bash.parse(text)
    ]
    return [f"{each.line}-{each.last}:{each.keyword}:{words}" for each, words in found]


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("#!/bin/sh\n\na=1 b 'c d' \\\n  e; f # g\nh && i |\n j\n",
         ["3-4::a=1 b 'c d' e", "4-4::f", "5-6::h / i / j"]),
        ("a=(1 \"2 3\"\n  4) # four\nb ${a[1]}", ["1-2::a=(1 \"2 3\"\n  4)", "3-3::b ${a[1]}"]),
        ("for i in 1 2; do run $i; done", ["1-1:for:run $i"]),
        ("for ((i = 0; i < 3; i++)); do run; done", ["1-1:for:run"]),
        ("while read x; do run; done < file", ["1-1:while:read x / run / "]),
        ("if [ -f x ]; then a; elif b; then c; else run; fi", ["1-1:if:[ -f x ] / a / b / c / run"]),
        ("case $1 in a|b) run ;; (c) d;; *) e\nesac", ["1-2:case:run / d / e"]),
        ("case $1 in\na) (run) ;;\nesac | tee x\ny", ["1-3:case:run / tee x", "4-4::y"]),
        ("(cd x && run)", ["1-1:(:cd x / run"]),
        ("f() {\n  run\n}\nfunction g\n{ run; }", ["1-3:function:run", "4-5:function:run"]),
        ("((A++))\n[[ a < b && c ]]", ["1-1::((A++))", "2-2::[[ a < b && c ]]"]),
        ("if a; then\nb; fi | tee x |\n c > y\nd\n", ["1-3:if:a / b / tee x / c", "4-4::d"]),
        ("a | while b; do c; done\nd", ["1-1:while:a / b / c", "2-2::d"]),
        ("{ a\n} <<E &\nx\nE\nc\n", ["1-4:{:a / ", "5-5::c"]),
        ("cat <<EOF > x\nmpirun a\nEOF\nb <<-'E N D'\n\tmpirun c\n\tE N D\nd\n",
         ["1-3::cat", "4-6::b", "7-7::d"]),
        ("./a \\", ["1-1::./a"]),
    ],
)  # fmt: skip
def test_a_script_is_a_list_of_statements(text: str, statements: list[str]) -> None:
    assert shown(text) == statements


def test_commands_have_the_operators_around_them() -> None:
    found = [command for each in bash.parse("a; b & c && d || e | f\n") for command in each.commands]
    assert [each.after for each in found] == [";", "&", "&&", "||", "|", "\n"]
    assert [each.before for each in found] == ["", "", "", "&&", "||", "|"]
    assert bash.parse("a 2>&1 < b")[0].commands[0].redirections == (("2>&", "1"), ("<", "b"))


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nif b; then c\n", 2), ("a 'b\n", 1), ("a\n$(b\n", 2), ("a\n)\n", 2), ("if b; then )\nfi", 1),
     ("case x in a) b )", 1), ("a <\n", 1), ("a\n}", 2), ("$((" * 50_000, 1), ("{ " * 50_000, 1)],
)  # fmt: skip
def test_what_is_not_bash_is_an_error_with_its_line(text: str, line: int) -> None:
    with pytest.raises(bash.Unreadable) as error:
        bash.parse(text)
    assert error.value.args[0] == line


WORDS = [
    "plain", "'single $A'", '"double $A"', "$A", '"$A"', "$B", '"$B"', "${A}x", "x$B", '"it\'s $A"',
    "a\\ b", "a'b'\"c\"d", "~/x", "x~", "--a=~/x", '"\\$A"', '"\\x"', "{}", "a{b", "'{a,b}'", "-n$N", "$B$B",
    "$A$C$A", "'*'", '"a*"',
]  # fmt: skip


def test_words_are_expanded_as_bash_expands_them() -> None:
    values = {"HOME": "/home/ada", "A": "one", "B": "two  words", "N": "7", "P": "/p/q/r", "C": ""}
    script = "".join(f'set -- {word}; printf \'%s\\0\' "$#" "$@"\n' for word in WORDS)
    done = subprocess.run(["bash", "-c", script], env=values, capture_output=True, text=True, check=True)
    printed = done.stdout.split("\0")
    for word in WORDS:
        expected = [printed.pop(0) for _ in range(int(printed.pop(0)))]
        (command,) = bash.parse(f"x {word}")[0].commands
        scope = Scope(values, "/work")
        assert [text for each in command.words[1:] for text in scope.words(each)] == expected, word


@pytest.mark.parametrize(
    "word",
    ["*.inp", "a[12]", "{1..3}", "{$A,b}", "$X", "$1", '"$@"', "$(hostname)", "${A%%.*}", "$((RANDOM % 9))",
     "`date`", "$STAR", "$((1 / 0))", "${X:-a}", "~ada/x", "$LONG"],
)  # fmt: skip
def test_what_only_the_shell_knows_is_unknown(word: str) -> None:
    (command,) = bash.parse(f"x {word}")[0].commands
    with pytest.raises(Unclear):
        Scope({"A": "a.b", "STAR": "a*", "LONG": "a" * 100_000}, "/work").words(command.words[1])


def test_a_script_of_many_commands_is_parsed_in_time_proportional_to_it() -> None:
    assert len(bash.parse("a b 'c' \"$d\"\n" * 2000)) == 2000
    began = time.process_time()
    assert len(bash.parse("a" * 500_000 + "\n" + "x;" * 20_000)) == 20_001
    assert time.process_time() - began < 10
