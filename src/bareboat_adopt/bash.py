"""A script of bash as statements with their lines, in their order. Pure; linear in the text's length.

Grammar: POSIX.1-2017, "Shell Command Language", with bash's `[[`, `((`, arrays and here-strings. Loops,
conditions, functions and subshells are one statement each, which only lists the commands in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

_BLANK = re.compile(r"(?:[ \t]|\\\n|\\\Z)+|#[^\n]*")
_REDIRECTION = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>](?!\())|&>>?")
_OPERATOR = re.compile(r"\n|;;&|;;|;&|&&|\|\||\|&|[;&|)]|\((?!\()")
#: What a word consists of: text and quotes without expansions; what ends with its bracket; a test.
_PART = re.compile(r"[^\s;&|<>()'\"`$\\]+|\\.|'[^']*'|\$'(?:[^'\\]|\\.)*'|\$(?![({'])", re.DOTALL)
_NESTED = re.compile(r"[\"`]|\$[({]|[<>]\(|(?<=[=@!?*+])\(")
_TEST = re.compile(r"\[\[\s(?:[^\n]|\\\n)*?\s\]\](?=[\s;&|)]|\Z)")
_CLOSES = {"fi": ("if",), "done": ("for", "select", "while", "until"), "esac": ("case",), "}": ("{",)}
_OPENS = frozenset(word for words in _CLOSES.values() for word in words)
_BETWEEN = frozenset({"then", "elif", "else", "do", "!"})
_JOINS = frozenset({"&&", "||", "|", "|&"})
_DEEPEST = 60


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
    """The text is not bash that this reader knows."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


class _Token(NamedTuple):
    """`kind`: "word", "redirection" or "operator"."""

    kind: str
    text: str
    line: int
    last: int


def parse(text: str) -> list[Statement]:
    """The statements of a script. Raises Unreadable."""
    reader = _Reader(list(_tokens(text.replace("\r\n", "\n"))))
    reader.read()
    return reader.found


def _tokens(text: str) -> Iterator[_Token]:
    at, line, redirection = 0, 1, ""
    heredocs: list[str] = []
    while at < len(text):
        begin = at
        if blank := _BLANK.match(text, at):
            at, kind = blank.end(), ""
        elif found := _REDIRECTION.match(text, at):
            at, kind, redirection = found.end(), "redirection", found[0]
        elif found := _OPERATOR.match(text, at):
            at, kind = found.end(), "operator"
            while found[0] == "\n" and heredocs:
                document = re.compile(rf"(?:.*\n)*?{heredocs.pop(0)}(?:\n|\Z)").match(text, at)
                at = document.end() if document else len(text)
        else:
            at, kind = _end_of_word(text, at, line), "word"
            if re.fullmatch(r"\d*<<-?", redirection):
                tabs = r"\t*" if redirection.endswith("-") else ""
                heredocs.append(tabs + re.escape(re.sub(r"[\\'\"]", "", text[begin:at])))
            redirection = ""
        first, line = line, line + text.count("\n", begin, at)
        if kind == "operator" and text[begin] == "\n":
            yield _Token(kind, "\n", first, line - (text[at - 1] == "\n"))
        elif kind:
            yield _Token(kind, text[begin:at].replace("\\\n", ""), first, line)
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


class _Reader:
    """`_open`: the blocks around the next command; `_words`, `_redirections`: of the command that is read."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.found: list[Statement] = []
        self._tokens = tokens
        self._at = 0
        self._open: list[str] = []
        self._statement: Statement | None = None
        self._words: list[str] = []
        self._redirections: list[tuple[str, str]] = []
        self._line = 0
        self._before = ""
        self._function = ""
        self._is_pattern = False

    def read(self) -> None:
        while self._at < len(self._tokens):
            token = self._next()
            if self._statement is None and token.text != "\n":
                self._statement = Statement(token.line, token.last)
            elif self._statement is None and self.found and token.last > token.line:  # a here-document
                self.found[-1].last = token.last
            if self._statement is not None:
                self._statement.last = max(self._statement.last, token.last)
            if self._is_pattern and token.text != "esac":
                self._is_pattern = token.text != ")"
            elif token.kind == "operator":
                self._operator(token)
            else:
                self._line = self._line or token.line
                if token.kind == "redirection":
                    self._redirections.append((token.text, self._next("word").text))
                elif self._words or self._redirections or not self._keyword(token):
                    self._words.append(token.text)
        if self._statement is not None:
            raise Unreadable(self._statement.line, f"{self._statement.keyword} is not closed")

    def _next(self, kind: str = "") -> _Token:
        token = self._tokens[self._at]
        self._at += 1
        if kind and token.kind != kind:
            raise Unreadable(token.line, "a word is missing")
        return token

    def _operator(self, token: _Token) -> None:
        text = token.text
        if text == "(":
            if len(self._words) == 1 and self._tokens[self._at].text == ")":
                self._at += 1
                self._function, self._words = self._words[0], []
            elif self._words:
                raise Unreadable(token.line, "an unexpected (")
            else:
                self._enter("(", token.line)
            return
        if text == "\n" and not self._words and (self._function or self._before):
            return
        self._finish(text if text in _JOINS or text in ("\n", ";", "&") else "")
        if text == ")":
            self._leave(("(",), token.line)
        elif text.startswith(";;") or text == ";&":
            self._is_pattern = self._open[-1:] == ["case"]
        elif not self._open and text not in _JOINS and self._statement is not None:
            if not self._statement.commands and not self._statement.keyword:
                raise Unreadable(token.line, "a command is missing")
            self.found.append(self._statement)
            self._statement = None

    def _finish(self, after: str) -> None:
        """End the command that is read."""
        if self._statement is not None and (self._words or self._redirections):
            words, redirections = tuple(self._words), tuple(self._redirections)
            self._statement.commands.append(Command(self._line, words, redirections, self._before, after))
        self._words, self._redirections, self._line = [], [], 0
        self._before = after if after in _JOINS else ""

    def _keyword(self, token: _Token) -> bool:
        """Whether a word where a command may begin is one of the grammar."""
        word = token.text
        if word in _OPENS:
            self._enter(word, token.line)
            if word in ("for", "select", "case"):
                while self._tokens[self._at].kind == "word":
                    self._at += 1
            self._is_pattern = word == "case"
        elif word in _CLOSES:
            self._finish("")
            self._leave(_CLOSES[word], token.line)
            self._is_pattern = False
        elif word == "function":
            self._function = self._next("word").text
            self._at += 2 * (self._tokens[self._at].text == "(")
        elif word not in _BETWEEN:
            return False
        return True

    def _enter(self, keyword: str, line: int) -> None:
        if len(self._open) == _DEEPEST:
            raise Unreadable(line, "too many levels")
        self._open.append(keyword)
        self._before = ""
        if self._statement is not None and not self._statement.keyword:
            self._statement.keyword = f"function {self._function}" if self._function else keyword
        self._function = ""

    def _leave(self, keywords: tuple[str, ...], line: int) -> None:
        if not self._open or self._open.pop() not in keywords:
            raise Unreadable(line, "a word or a bracket that closes nothing")
