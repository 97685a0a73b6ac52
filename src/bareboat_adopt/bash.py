"""A script of bash as commands with their lines. Pure. A text that cannot be parsed is an error.

Grammar: POSIX.1-2017, "Shell Command Language", with bash's `[[`, `((`, `function`, arrays and here-strings.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_OPERATOR = re.compile(r"\n|;;&|;;|;&|&&|\|\||\|&|[;&|()]")
_REDIRECTION = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>](?!\())|&>>?")
#: Letters without a special meaning, outside of quotes and in double ones.
_PLAIN = re.compile(r"[\w./:,@%+-]+")
_QUOTED = re.compile(r'[^"\\$`]+')
_HEREDOC = re.compile(r"\d*<<-?")
_ENDS = {"if": "fi", "for": "done", "select": "done", "while": "done", "until": "done", "case": "esac"}
_PUNCTUATION = frozenset(" \t\n;&|()<>")
_DECLARES = frozenset({"declare", "typeset", "local", "export", "readonly"})
_DEEPEST = 60


class Part(NamedTuple):
    """A piece of a word. `kind`: "text", "variable" (`text` is its name), "braces" (the inside of `${…}`),
    "output" (of a command), "arithmetic", or "pattern" (what the shell compares with file names, or
    multiplies)."""

    kind: str
    text: str
    quoted: bool = False


class Word(NamedTuple):
    parts: tuple[Part, ...]
    raw: str

    @property
    def plain(self) -> str | None:
        """The text of a word without expansions."""
        if any(part.kind not in ("text", "pattern") for part in self.parts):
            return None
        return "".join(part.text for part in self.parts)


class Redirection(NamedTuple):
    operator: str
    target: Word | None


class Command(NamedTuple):
    """A simple command. `assigned`: name, whether it is appended (`+=`), value. `after`: the operator after
    it; `before`: the one before it, where it joins two commands."""

    line: int
    words: tuple[Word, ...]
    assigned: tuple[tuple[str, bool, Word], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    after: str = ""
    before: str = ""
    last: int = 0


class Compound(NamedTuple):
    """A loop, condition, group or function. `name`: of the function."""

    line: int
    keyword: str
    body: tuple[Command | Compound, ...]
    after: str = ""
    before: str = ""
    name: str = ""
    last: int = 0


Statement = Command | Compound


class Unreadable(Exception):
    """The text is not bash that this parser knows."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def parse(text: str, *, first: int = 1) -> tuple[Statement, ...]:
    """The commands of a script whose first line has the number `first`. Raises Unreadable."""
    text = text.replace("\r\n", "\n")
    if re.search(r"(?<!\\)(\\\\)*\\\Z", text):  # nothing is continued
        text = text[:-1]
    parser = _Parser(text, first)
    found = parser.statements(frozenset(), 0)
    if not parser.at_end:
        raise Unreadable(parser.line, "a word or a bracket that begins nothing")
    return found


def commands(statements: tuple[Statement, ...]) -> Iterator[Command]:
    """All simple commands, also those in compound ones."""
    for each in statements:
        if isinstance(each, Compound):
            yield from commands(each.body)
        else:
            yield each


class _Parser:
    def __init__(self, text: str, first: int) -> None:
        self._text = text
        self._at = 0
        self._first = first
        self._newlines = [place for place, letter in enumerate(text) if letter == "\n"]
        self._heredocs: list[tuple[str, bool]] = []

    @property
    def line(self) -> int:
        return self._first + bisect.bisect_left(self._newlines, self._at)

    @property
    def at_end(self) -> bool:
        self._blanks(newlines=True)
        return self._at >= len(self._text)

    def statements(self, ends: frozenset[str], depth: int) -> tuple[Statement, ...]:
        """Statements up to a word of `ends`, or to a closing bracket, which are not consumed."""
        if depth > _DEEPEST:
            raise Unreadable(self.line, "too many levels")
        found: list[Statement] = []
        before = ""
        while True:
            self._blanks(newlines=True)
            while self._next_is(";") and not self._next_is(";;"):  # empty commands
                self._at += 1
                self._blanks(newlines=True)
            if self._at >= len(self._text):
                if ends:
                    raise Unreadable(self.line, f"{' or '.join(sorted(ends))} is missing")
                return tuple(found)
            if self._next_is(")") or self._next_is(";;") or self._next_is(";&") or self._keyword() in ends:
                return tuple(found)
            each = self._statement(depth)
            after = self._after()
            found.append(each._replace(after=after, before=before, last=self.line - (after == "\n")))
            before = after if after in ("&&", "||", "|", "|&") else ""

    def _statement(self, depth: int) -> Statement:
        line = self.line
        word = self._keyword()
        if word == "!":
            self._at += 1
            self._blanks()
            return self._statement(depth)
        if word in _ENDS:
            self._at += len(word)
            return self._redirected(Compound(line, word, self._compound(word, depth + 1)))
        if word == "{":
            self._at += 1
            body = self.statements(frozenset("}"), depth + 1)
            self._step("}")
            return self._redirected(Compound(line, word, body))
        if word == "function" or re.compile(r"[\w:.-]+[ \t]*\([ \t]*\)").match(self._text, self._at):
            return self._function(line, depth)
        if self._next_is("(("):
            self._balanced("(")
            return Compound(line, "((", ())
        if self._next_is("("):
            self._at += 1
            body = self.statements(frozenset(), depth + 1)
            self._expect(")")
            return self._redirected(Compound(line, "(", body))
        if word == "[[":
            end = re.compile(r"\s\]\](?=[\s;&|)]|$)").search(self._text, self._at)
            if end is None:
                raise Unreadable(line, "]] is missing")
            self._at = end.end()
            return Command(line, (Word((Part("text", "[["),), "[["),))
        return self._simple(line)

    def _function(self, line: int, depth: int) -> Compound:
        found = re.compile(r"(?:function[ \t]+)?([\w:.-]+)[ \t]*(?:\([ \t]*\))?").match(self._text, self._at)
        if found is None:
            raise Unreadable(line, "a function without a name")
        self._at = found.end()
        self._blanks(newlines=True)
        return Compound(line, "function", (self._statement(depth + 1),), name=found[1])

    def _compound(self, word: str, depth: int) -> tuple[Statement, ...]:
        body: list[Statement] = []
        if word == "case":
            return self._case(depth)
        if word in ("for", "select"):
            self._blanks()
            if self._next_is("(("):
                self._balanced("(")
            while self._keyword() != "do":
                self._blanks(newlines=True)
                if self._next_is(";"):
                    self._at += 1
                elif self._keyword() != "do":
                    self._word()
        elif word in ("while", "until"):
            body += self.statements(frozenset({"do"}), depth)
        elif word == "if":
            body += self.statements(frozenset({"then"}), depth)
            self._step("then")
            while True:
                body += self.statements(frozenset({"elif", "else", "fi"}), depth)
                found = self._keyword()
                if found not in ("elif", "else", "fi"):
                    raise Unreadable(self.line, "fi is missing")
                self._at += len(found)
                if found == "fi":
                    return tuple(body)
                if found == "elif":
                    body += self.statements(frozenset({"then"}), depth)
                    self._step("then")
        self._step("do")
        body += self.statements(frozenset({"done"}), depth)
        self._step("done")
        return tuple(body)

    def _step(self, word: str) -> None:
        if self._keyword() != word:
            raise Unreadable(self.line, f"{word} is missing")
        self._at += len(word)

    def _case(self, depth: int) -> tuple[Statement, ...]:
        self._blanks()
        self._word()
        self._blanks(newlines=True)
        if self._keyword() != "in":
            raise Unreadable(self.line, "case without in")
        self._at += 2
        body: list[Statement] = []
        while True:
            self._blanks(newlines=True)
            if self._keyword() == "esac":
                self._at += 4
                return tuple(body)
            if self._next_is("("):
                self._at += 1
            while not self._next_is(")"):  # the patterns
                self._blanks()
                if self._next_is("|"):
                    self._at += 1
                elif not self._next_is(")"):
                    self._word()
            self._at += 1
            body += self.statements(frozenset({"esac"}), depth)
            if found := re.compile(r";;&|;;|;&").match(self._text, self._at):
                self._at = found.end()

    def _redirected(self, made: Compound) -> Compound:
        while True:
            self._blanks()
            if not _REDIRECTION.match(self._text, self._at):
                return made
            self._redirection()

    def _simple(self, line: int) -> Command:
        words: list[Word] = []
        assigned: list[tuple[str, bool, Word]] = []
        redirections: list[Redirection] = []
        while True:
            self._blanks()
            if self._at >= len(self._text) or (
                _OPERATOR.match(self._text, self._at) and not self._next_is("&>")
            ):
                break
            if _REDIRECTION.match(self._text, self._at):
                redirections.append(self._redirection())
                continue
            found = _ASSIGNMENT.match(self._text, self._at)
            if found and words:  # of these, a list only: its brackets are no word
                is_list = words[0].raw in _DECLARES and self._text.startswith("(", found.end())
                found = found if is_list else None
            if found is not None:
                self._at = found.end()
                assigned.append((found[1], bool(found[2]), self._value()))
                continue
            words.append(self._word(after_word=bool(words)))
        if not (words or assigned or redirections):
            raise Unreadable(line, f"an unexpected {self._text[self._at : self._at + 1]!r}")
        return Command(line, tuple(words), tuple(assigned), tuple(redirections))

    def _value(self) -> Word:
        """The value of an assignment; a list in brackets is not read."""
        if self._next_is("("):
            begin = self._at
            self._balanced("(")
            return Word((Part("output", "a list"),), self._text[begin : self._at])
        if self._at >= len(self._text) or self._text[self._at] in _PUNCTUATION:
            return Word((), "")
        return self._word()

    def _redirection(self) -> Redirection:
        found = _REDIRECTION.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        self._blanks()
        if _HEREDOC.fullmatch(found[0]):
            word = self._word()
            self._heredocs.append((re.sub(r"[\\'\"]", "", word.raw), found[0].endswith("-")))
            return Redirection("<<", None)
        return Redirection(found[0].lstrip("0123456789"), self._word())

    def _after(self) -> str:
        self._blanks()
        found = _OPERATOR.match(self._text, self._at)
        if found is None:
            if self._at < len(self._text):
                raise Unreadable(self.line, f"an unexpected {self._text[self._at]!r}")
            return ""
        if found[0] in (")", ";;", ";&", ";;&"):
            return ""
        if found[0] == "\n":
            self._newline()
        else:
            self._at = found.end()
        if found[0] in ("&&", "||", "|", "|&"):
            self._blanks(newlines=True)
        return found[0]

    def _newline(self) -> None:
        """Go past a newline and the here-documents that begin there."""
        self._at += 1
        for end, tabs in self._heredocs:
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                row = self._text[self._at : stop]
                self._at = min(stop + 1, len(self._text))
                if (row.lstrip("\t") if tabs else row) == end:
                    break
        self._heredocs = []

    def _blanks(self, *, newlines: bool = False) -> None:
        """Go past blanks, comments and continued lines."""
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter in " \t":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif letter == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif letter == "\n" and newlines:
                self._newline()
            else:
                return

    def _next_is(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _keyword(self) -> str:
        """The plain word that begins here, without consuming it."""
        found = re.compile(r"[^\s;&|()<>\"'`$\\]+").match(self._text, self._at)
        return found[0] if found else ""

    def _expect(self, letter: str) -> None:
        self._blanks(newlines=True)
        if not self._next_is(letter):
            raise Unreadable(self.line, f"{letter} is missing")
        self._at += 1

    def _balanced(self, opening: str) -> None:
        """Go past a bracket with all in it, quotes apart."""
        closing = {"(": ")", "{": "}"}[opening]
        depth, line = 0, self.line
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter == "\\":
                self._at += 1
            elif letter in "'\"`":
                self._quoted(letter)
                continue
            elif letter == opening:
                depth += 1
            elif letter == closing:
                depth -= 1
                if not depth:
                    self._at += 1
                    return
            elif letter == "#" and opening == "(" and self._text[self._at - 1] in " \t\n":
                self._blanks()
                continue
            self._at += 1
        raise Unreadable(line, f"{closing} is missing")

    def _quoted(self, quote: str) -> None:
        """Go past a quoted text."""
        line = self.line
        self._at += 1
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter == "\\" and quote != "'":
                self._at += 1
            elif letter == "$" and quote == '"' and self._text[self._at + 1 : self._at + 2] in ("(", "{"):
                self._at += 1
                self._balanced(self._text[self._at])
                continue
            elif letter == quote:
                self._at += 1
                return
            self._at += 1
        raise Unreadable(line, f"the quote {quote} is not closed")

    def _word(self, *, after_word: bool = False) -> Word:
        begin = self._at
        parts: list[Part] = []
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter in _PUNCTUATION and not (letter in "<>" and self._next_is(letter + "(")):
                break
            if letter in "<>":  # a process in place of a file
                self._at += 1
                inner = self._at
                self._balanced("(")
                parts.append(Part("output", self._text[inner + 1 : self._at - 1]))
            elif letter == "\\":
                if not self._next_is("\\\n"):
                    parts.append(Part("text", self._text[self._at + 1 : self._at + 2], quoted=True))
                self._at += 2
            elif letter == "'":
                inner = self._at + 1
                self._quoted(letter)
                parts.append(Part("text", self._text[inner : self._at - 1], quoted=True))
            elif letter == '"':
                parts += self._double()
            elif letter == "`":
                inner = self._at + 1
                self._quoted(letter)
                parts.append(Part("output", self._text[inner : self._at - 1]))
            elif letter == "$":
                parts.append(self._dollar(quoted=False))
            elif (
                letter == "~"
                and self._at == begin
                and re.match(r"~(/|$|[\s;:])", self._text[begin : begin + 2])
            ):
                parts.append(Part("variable", "HOME", quoted=True))
                self._at += 1
            elif letter == "=" and after_word and self._next_is("=~/"):
                parts += [Part("text", "=~", quoted=True)]
                self._at += 2
            else:
                found = _PLAIN.match(self._text, self._at)
                text = found[0] if found else letter
                parts.append(Part("pattern" if letter in "*?[{" else "text", text))
                self._at += len(text)
        if self._at == begin:
            raise Unreadable(self.line, f"an unexpected {self._text[begin : begin + 1]!r}")
        return Word(tuple(_joined(parts)), self._text[begin : self._at])

    def _double(self) -> list[Part]:
        line = self.line
        self._at += 1
        parts = [Part("text", "", quoted=True)]
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter == '"':
                self._at += 1
                return parts
            if letter == "\\":
                follows = self._text[self._at + 1 : self._at + 2]
                if follows != "\n":
                    parts.append(
                        Part("text", follows if follows in '"$`\\' else letter + follows, quoted=True)
                    )
                self._at += 2
            elif letter == "$":
                parts.append(self._dollar(quoted=True))
            elif letter == "`":
                inner = self._at + 1
                self._quoted(letter)
                parts.append(Part("output", self._text[inner : self._at - 1], quoted=True))
            else:
                found = _QUOTED.match(self._text, self._at)
                assert found is not None
                parts.append(Part("text", found[0], quoted=True))
                self._at = found.end()
        raise Unreadable(line, 'the quote " is not closed')

    def _dollar(self, *, quoted: bool) -> Part:
        begin = self._at
        self._at += 1
        if self._next_is("(("):
            self._balanced("(")
            return Part("arithmetic", self._text[begin + 3 : self._at - 2], quoted)
        if self._next_is("(") or self._next_is("{"):
            kind = "output" if self._next_is("(") else "braces"
            self._balanced(self._text[self._at])
            return Part(kind, self._text[begin + 2 : self._at - 1], quoted)
        if found := re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]").match(self._text, self._at):
            self._at = found.end()
            return Part("variable", found[0], quoted)
        if self._next_is("'") and not quoted:
            self._quoted("'")
            return Part("output", self._text[begin : self._at])
        return Part("text", "$", quoted)


def _joined(parts: list[Part]) -> Iterator[Part]:
    """The parts, with those of one kind that follow each other as one. `{}` and `{1}` stay text."""
    kept: list[Part] = []
    for part in parts:
        if kept and part.kind == "text" == kept[-1].kind and part.quoted == kept[-1].quoted:
            kept[-1] = Part("text", kept[-1].text + part.text, part.quoted)
        else:
            kept.append(part)
    yield from kept
