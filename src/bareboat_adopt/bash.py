"""A script of bash as statements with their lines, in their order. Pure; linear in the text's length.

Grammar: POSIX.1-2017, "Shell Command Language", with bash's `[[`, `((`, arrays and here-strings. Loops,
conditions, functions and subshells are one statement each, which only lists the commands in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

#: What is no word.
_TOKEN = re.compile(
    r"(?P<blank>(?:[ \t]|\\\n|\\\Z)+|#[^\n]*)"
    r"|(?P<redirection>(?:\d+|\{\w+\})?(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>](?!\()|&>>?))"
    r"|(?P<operator>\n|;;&|;;|;&|&&|\|\||\|&|[;&|)]|\([ \t]*\)|\((?!\())"
)
#: What a word consists of: text and quotes without expansions; what ends with its bracket; a test.
_PART = re.compile(r"[^\s;&|<>()'\"`$\\]+|\\.|'[^']*'|\$'(?:[^'\\]|\\.)*'|\$(?![({'])", re.DOTALL)
_NESTED = re.compile(r"[\"`]|\$[({]|[<>]\(|(?<=[=@!?*+])\(")
_TEST = re.compile(r"\[\[\s(?:[^\n]|\\\n)*?\s\]\](?=[\s;&|)]|\Z)")
#: What begins a block -> what ends it.
_BLOCKS = {
    "if": "fi", "case": "esac", "{": "}", "(": ")",
    **dict.fromkeys(("for", "select", "while", "until"), "done"),
}  # fmt: skip
#: What else ends in its own way: a pattern of `case` before its bracket, and the body of a function.
_PATTERN, _BODY = "a pattern", "a body"
_BETWEEN = frozenset({"then", "elif", "else", "do", "!"})
_JOINS = frozenset({"&&", "||", "|", "|&"})


class Command(NamedTuple):
    """A simple command. `words`: as written; `redirections`: operator and target; `before`, `after`: the
    operators around it."""

    line: int
    words: tuple[str, ...]
    redirections: tuple[tuple[str, str], ...]
    before: str
    after: str


class Statement(Struct):
    """Commands that are joined by `&&`, `||` and pipes; or a block, with its `keyword`."""

    line: int
    last: int
    keyword: str = ""
    commands: list[Command] = field(default_factory=list)


class Unreadable(Exception):
    """The text is not bash that this reader knows. Its arguments: the line, and the reason."""


class _Token(NamedTuple):
    """`kind`: "word", "operator", or that of a redirection, whose target is `text`."""

    kind: str
    text: str
    line: int
    last: int


def parse(text: str) -> list[Statement]:
    """The statements of a script. Raises Unreadable."""
    found: list[Statement] = []
    statement: Statement | None = None
    opened: list[str] = []
    words: list[str] = []
    redirections: list[tuple[str, str]] = []
    line, before = 0, ""
    for token in _tokens(text.replace("\r\n", "\n")):
        if statement is None and token.text == "\n":
            if found and token.last > token.line:  # a here-document
                found[-1].last = token.last
            continue
        statement = statement or Statement(token.line, token.last)
        statement.last = max(statement.last, token.last)
        if token.kind != "operator":
            line = line or token.line
            if token.kind == "word":
                words.append(token.text)
            else:
                redirections.append((token.kind, token.text))
            continue
        words = _past_keywords(words, opened, statement, token.line)
        if token.text[0] == "(":
            words = _bracket(token, words, opened, statement)
            continue
        if token.text == "\n" and before and not (words or redirections):
            continue
        if words or redirections:
            statement.commands.append(Command(line, tuple(words), tuple(redirections), before, token.text))
        words, redirections, line = [], [], 0
        before = token.text if token.text in _JOINS else ""
        if token.text == ")" and (not opened or opened.pop() not in (")", _PATTERN)):
            raise Unreadable(token.line, ") closes nothing")
        if token.text.startswith((";;", ";&")) and opened[-1:] == ["esac"]:
            opened.append(_PATTERN)
        if not (opened or before):
            if not (statement.commands or statement.keyword):
                raise Unreadable(token.line, "a command is missing")
            found.append(statement)
            statement = None
    if statement is not None:
        raise Unreadable(statement.line, f"{statement.keyword} is not closed")
    return found


def _past_keywords(words: list[str], opened: list[str], statement: Statement, line: int) -> list[str]:
    """The words of a command after those of the grammar, which open and close blocks; none of a pattern."""
    while words:
        word = words[0]
        if opened[-1:] == [_PATTERN]:
            if word != "esac":
                return []
            opened.pop()
        if word in _BLOCKS:
            _open(word, opened, statement)
            if word in ("for", "select", "case"):
                return []
        elif word in _BLOCKS.values():
            if not opened or opened.pop() != word:
                raise Unreadable(line, f"{word} closes nothing")
        elif word == "function" and words[1:]:
            _open(word, opened, statement)
            words = words[1:]
        elif word not in _BETWEEN:
            return words
        words = words[1:]
    return words


def _bracket(token: _Token, words: list[str], opened: list[str], statement: Statement) -> list[str]:
    """The words before `(`, which opens a subshell, or `()`, which follows the name of a function."""
    if token.text == "(" and not words:
        if opened[-1:] != [_PATTERN]:
            _open("(", opened, statement)
    elif token.text != "(" and len(words) == 1:
        _open("function", opened, statement)
    elif token.text == "(" or words or opened[-1:] != [_BODY]:
        raise Unreadable(token.line, "an unexpected (")
    return []


def _open(keyword: str, opened: list[str], statement: Statement) -> None:
    if opened[-1:] == [_BODY]:
        opened.pop()
    opened.append(_BLOCKS.get(keyword, _BODY))
    if keyword == "case":
        opened.append(_PATTERN)
    statement.keyword = statement.keyword or keyword


def _tokens(text: str) -> Iterator[_Token]:
    at, first, line, redirection = 0, 1, 1, ""
    heredocs: list[str] = []
    while at < len(text):
        begin, found = at, _TOKEN.match(text, at)
        first = first if redirection else line
        kind = found.lastgroup if found else redirection or "word"
        at = found.end() if found else _end_of_word(text, at, line)
        if kind == "redirection":
            redirection = text[begin:at]
        elif kind == "operator" and redirection:
            raise Unreadable(line, "a word is missing")
        elif kind != "blank":
            if re.fullmatch(r"\d*<<-?", redirection):
                tabs = r"\t*" if redirection.endswith("-") else ""
                heredocs.append(tabs + re.escape(re.sub(r"[\\'\"]", "", text[begin:at])))
            redirection = ""
        while text[begin] == "\n" and heredocs:
            document = re.compile(rf"(?:.*\n)*?{heredocs.pop(0)}(?:\n|\Z)").match(text, at)
            at = document.end() if document else len(text)
        line += text.count("\n", begin, at)
        if kind == "operator" and text[begin] == "\n":
            yield _Token(kind, "\n", first, line - (text[at - 1] == "\n"))
        elif kind not in ("blank", "redirection"):
            yield _Token(str(kind), text[begin:at].replace("\\\n", ""), first, line)
    yield _Token("operator", "\n", line, line)


def _end_of_word(text: str, at: int, line: int) -> int:
    begin = at
    if test := _TEST.match(text, at):
        return test.end()
    while at < len(text):
        if part := _PART.match(text, at):
            at = part.end()
        elif _NESTED.match(text, at) or (at == begin and text[at] == "("):
            at = _end_of_nested(text, at, line)
        else:
            break
    if at == begin:
        raise Unreadable(line, "a quote or a bracket is not closed")
    return at


def _end_of_nested(text: str, at: int, line: int) -> int:
    """The place after the quotes, the bracket or the expansion that begins here."""
    begin, stack = at, [""]
    while at < len(text):
        letter, inside = text[at], stack[-1]
        if letter == inside:
            stack.pop()
        elif letter == "\\":
            at += 1
        elif text.startswith(("$(", "${", "<(", ">("), at) and (letter == "$" or inside != '"'):
            at += 1
            stack.append(")" if text[at] == "(" else "}")
        elif letter in '"`':
            stack.append(letter)
        elif letter == "'" and inside != '"':
            at = text.find("'", at + 1)
            if at < 0:
                break
        elif letter == "(" and inside in ("", ")"):
            stack.append(")")
        elif letter == "#" and inside == ")" and text[at - 1] in " \t\n":
            at = max(text.find("\n", at) - 1, at)
        at += 1
        if len(stack) == 1 and at > begin:
            return at
    raise Unreadable(line, "a quote or a bracket is not closed")
