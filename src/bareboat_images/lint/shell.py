"""The commands in a RUN, with their positions in the Dockerfile. Pure.

Parses as much of the shell's grammar as is needed to find programs and their arguments (POSIX, "Shell Command
Language"): words, quotes, operators, redirections, comments, substitutions. Text that it cannot parse yields
no command, so a rule may miss something, but never reports text that is not a command.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from bareboat_base.expressions import expression

#: More than a script has, so that the lists of nested ones have other numbers.
_MOST_LISTS = 1 << 30
_DEEPEST = 5
_LONGEST = 1 << 20
#: More than any real RUN has; further commands are not checked.
_MOST_COMMANDS = 500
_OPERATOR = expression(r"&&|\|\||;;|\|&|[;&|()]")
_REDIRECTION = expression(r"\d*(?:<<<|<<-?|>>|>\||<>|[<>]&?)|&>>?")
_ASSIGNMENT = expression(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
#: Keywords that may precede a command.
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time"})
#: Keywords that end a compound command.
_CLOSERS = frozenset({"fi", "done", "}", "esac"})
#: Wrapper -> its flags with a value: it starts the program that follows its flags.
_WRAPPERS = {"sudo": "ugpCh", "env": "uC", "exec": "a", "command": "", "nice": "n", "nohup": "", "builtin": ""
"",
             "stdbuf": "ioe", "ionice": "cn", "setarch": ""}  # fmt: skip
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_PIP = expression(r"pip(?:\d(?:\.\d+)?)?")
_PYTHON = expression(r"python(?:\d(?:\.\d+)?)?")


class Word(Struct, frozen=True):
    """One word. `raw`: as written; `value`: without quotes; `start`, `end`: position in the Dockerfile, -1 if
    it cannot be edited there."""

    raw: str
    value: str
    start: int
    end: int


class Command(Struct, frozen=True, kw_only=True):
    """One simple command. `after`: the operator after it; `outputs`: files to which it redirects output.
    `branches`: the `if` and `case` around it, outermost first, each with the number of its branch; and the
    list of commands joined by `&&` and `||` to which it belongs, with its place there."""

    words: tuple[Word, ...]
    assignments: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    after: str = ""
    branches: tuple[tuple[int, int], ...] = ()

    def excludes(self, other: Command) -> bool:
        """Whether two commands of a script are alternatives: in different branches, or on different sides of
        `||`."""
        own, its = dict(self.branches), dict(other.branches)
        return any(own[each] != its[each] for each in own.keys() & its.keys())

    @property
    def program(self) -> str:
        """The program's name, without its directory; `pip` for `python3 -m pip` and `pip3.11`."""
        name = posixpath.basename(self.words[0].value)
        if _PYTHON.fullmatch(name) and [w.value for w in self.words[1:2]] == ["-m"] and len(self.words) > 2:
            name = self.words[2].value
        return "pip" if _PIP.fullmatch(name) else name

    @property
    def arguments(self) -> tuple[Word, ...]:
        name = posixpath.basename(self.words[0].value)
        module = _PYTHON.fullmatch(name) and [w.value for w in self.words[1:2]] == ["-m"]
        return self.words[3 if module and len(self.words) > 2 else 1 :]

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(word.value for word in self.arguments)

    @property
    def plain(self) -> tuple[str, ...]:
        """The arguments that are not flags."""
        return tuple(value for value in self.values if not value.startswith("-"))

    def has(self, *flags: str) -> bool:
        """Whether one of the flags is present, also with `=value`, or joined (`-rf`) if short."""
        for value in self.values:
            if value in flags or value.partition("=")[0] in flags:
                return True
            if re.fullmatch(r"-[A-Za-z]{2,}", value) and any(
                len(flag) == 2 and flag[1] in value[1:] for flag in flags
            ):
                return True
        return False

    def option(self, *flags: str) -> str | None:
        """The value of a flag, after `=` or as the next word."""
        values = self.values
        for at, value in enumerate(values):
            name, equals, rest = value.partition("=")
            if name in flags:
                return rest if equals else (values[at + 1] if at + 1 < len(values) else None)
            short = next((f for f in flags if len(f) == 2 and value.startswith(f) and value != f), None)
            if short is not None and not value.startswith("--"):
                return value[2:]
        return None


class Script(Struct, frozen=True):
    """All commands of a RUN. `end`: the position after the last one, where a command can be added; -1:
    nowhere."""

    commands: tuple[Command, ...]
    end: int = -1
    is_lines: bool = False


def parse(text: str, start: int, *, escape: str = "\\", is_lines: bool = False) -> Script:
    """Parse the commands of a text that begins at `start` of the Dockerfile; -1: not part of it. `is_lines`:
    a newline ends a command, as in a heredoc; otherwise newlines only follow continuations."""
    if len(text) > _LONGEST:
        return Script(())
    lexer = _Lexer(text, start, escape, is_lines)
    commands = tuple(itertools.islice(lexer.run(0), _MOST_COMMANDS))
    whole = lexer.closed and len(commands) < _MOST_COMMANDS
    return Script(commands, start + lexer.last if start >= 0 and whole else -1, is_lines)


class _Lexer:
    def __init__(self, text: str, start: int, escape: str, is_lines: bool) -> None:
        self._text = text
        self._start = start
        self._escape = escape
        self._is_lines = is_lines
        self._at = 0
        #: The end of the last word or closing operator, and whether text can be added there.
        self.last = 0
        self.closed = True
        self._inner: list[tuple[str, int]] = []
        #: The open `if` and `case`, each with the number of its branch; negative in a condition.
        self._branches: list[tuple[int, int]] = []
        self._opened = 0
        #: The list of commands joined by `&&` and `||`: its number, and the part after how many `||`.
        self._list: tuple[int, int]

    def run(self, depth: int) -> Iterator[Command]:
        text = self._text
        words: list[Word] = []
        outputs: list[str] = []
        self._list = (-1 - depth * _MOST_LISTS, 0)
        while self._at <= len(text):
            self._skip_space()
            operator = self._operator()
            if operator is None and self._at < len(text):
                target = self._redirected()
                if target is None:
                    word = self._word()
                    if word is None:
                        break
                    words.append(word)
                    self.last = self._at
                    self.closed = True
                else:
                    outputs += [target] if target else []
                    self.last = self._at
                continue
            if words:
                branches = self._around([word.value for word in words])
                made = Command(
                    words=tuple(words), outputs=tuple(outputs), after=operator or "", branches=branches
                )
                yield from _commands(made, depth, self._escape)
                words, outputs = [], []
                self._join(operator)
            if operator == ";;":
                self._enter_branch()
            inner, self._inner = self._inner, []
            if depth < _DEEPEST:
                for piece, _ in inner:
                    nested = _Lexer(piece, -1, self._escape, True)
                    for each in nested.run(depth + 1):
                        yield _unplaced(each)
            if operator is None:
                break
            if operator == ")":
                self.last = self._at
            self.closed = operator in (")", ";", "\n") if operator else True

    def _around(self, values: list[str]) -> tuple[tuple[int, int], ...]:
        """The branches around a command, after the keywords that it begins with."""
        for value in values:
            if value in ("if", "case"):
                self._opened += 1
                self._branches.append((self._opened, -1 if value == "if" else 1))
            elif value in ("then", "else"):
                self._enter_branch()
            elif value == "elif" and self._branches:
                of, number = self._branches[-1]
                self._branches[-1] = of, -number
            elif value in ("fi", "esac"):
                del self._branches[-1:]
            if value not in _KEYWORDS:
                break
        return (*((of, number) for of, number in self._branches if number > 0), self._list)

    def _join(self, operator: str | None) -> None:
        """Go on after a command in the same list, or in another one: of `a || b && c`, c follows both."""
        of, part = self._list
        if operator == "||":
            self._list = of, part + 1
        elif operator != "&&" or part:
            self._list = of - 1, 0

    def _enter_branch(self) -> None:
        if self._branches:
            of, number = self._branches[-1]
            self._branches[-1] = of, abs(number) + 1

    def _skip_space(self) -> None:
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char == self._escape and re.match(r"[ \t]*(?:\n|$)", text[self._at + 1 : self._at + 201]):
                rest = text.find("\n", self._at)
                self._at = len(text) if rest < 0 else rest + 1
            elif char == "\n" and self._is_lines:
                return
            elif char.isspace():
                self._at += 1
            elif char == "#":
                rest = text.find("\n", self._at)
                own_row = not text[text.rfind("\n", 0, self._at) + 1 : self._at].strip()
                if not own_row and not self._is_lines:
                    self.closed = False  # the rest of the joined line is a comment
                    self._at = len(text)
                    return
                self._at = len(text) if rest < 0 else rest + (not self._is_lines)
            else:
                return

    def _operator(self) -> str | None:
        text = self._text
        if self._at >= len(text):
            return None
        if text[self._at] == "\n" and self._is_lines:
            self._at += 1
            return "\n"
        if _REDIRECTION.match(text, self._at):
            return None
        match = _OPERATOR.match(text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[0]

    def _redirected(self) -> str | None:
        """The file of a redirection; empty for one that writes no file; None without a redirection."""
        match = _REDIRECTION.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        self._skip_space()
        if self._at >= len(self._text) or self._text[self._at] == "\n":
            return ""
        word = self._word()
        writes = ">" in match[0] and not match[0].endswith("&")
        return word.value if word is not None and writes else ""

    def _word(self) -> Word | None:
        text = self._text
        begin = self._at
        value: list[str] = []
        while self._at < len(text):
            char = text[self._at]
            if char.isspace() or char in ";&|()<>":
                break
            if char == "\\" and self._at + 1 < len(text) and self._escape != "`":
                if re.match(r"[ \t]*\n", text[self._at + 1 : self._at + 201]):
                    break
                value.append(text[self._at + 1])
                self._at += 2
            elif char == "'":
                end = text.find("'", self._at + 1)
                if end < 0:
                    return self._lost()
                value.append(text[self._at + 1 : end])
                self._at = end + 1
            elif char == '"':
                piece = self._double()
                if piece is None:
                    return self._lost()
                value.append(piece)
            elif char == "`" and self._escape != "`":
                end = text.find("`", self._at + 1)
                if end < 0:
                    return self._lost()
                self._inner.append((text[self._at + 1 : end], self._at))
                value.append(text[self._at : end + 1])
                self._at = end + 1
            elif char == "$" and text[self._at + 1 : self._at + 2] in ("(", "{"):
                piece = self._bracketed()
                if piece is None:
                    return self._lost()
                value.append(piece)
            else:
                value.append(char)
                self._at += 1
        if self._at == begin:
            return self._lost()
        start = self._start + begin if self._start >= 0 else -1
        end = self._start + self._at if self._start >= 0 else -1
        return Word(text[begin : self._at], "".join(value), start, end)

    def _lost(self) -> Word | None:
        """Stop: the rest of the text cannot be parsed."""
        self.closed = False
        self._at = len(self._text) + 1
        return None

    def _double(self) -> str | None:
        text = self._text
        self._at += 1
        found: list[str] = []
        while self._at < len(text):
            char = text[self._at]
            if char == '"':
                self._at += 1
                return "".join(found)
            if char == "\\" and self._at + 1 < len(text):
                follows = text[self._at + 1]
                if follows != "\n":
                    found.append(follows if follows in '"$`\\' else char + follows)
                self._at += 2
            elif char == "$" and text[self._at + 1 : self._at + 2] in ("(", "{"):
                piece = self._bracketed()
                if piece is None:
                    return None
                found.append(piece)
            else:
                found.append(char)
                self._at += 1
        return None

    def _bracketed(self) -> str | None:
        """`$(…)` or `${…}`, as written."""
        text = self._text
        begin = self._at
        opening = text[begin + 1]
        closing = {"(": ")", "{": "}"}[opening]
        depth, quote = 0, ""
        at = begin + 1
        while at < len(text):
            char = text[at]
            if char == "\\":
                at += 2
                continue
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if not depth:
                    break
            at += 1
        else:
            return None
        self._at = at + 1
        inside = text[begin + 2 : at]
        if opening == "(" and not inside.startswith("("):
            self._inner.append((inside, begin))
        return text[begin : at + 1]


def _unplaced(command: Command) -> Command:
    return replace(command, words=tuple(Word(w.raw, w.value, -1, -1) for w in command.words))


def _commands(made: Command, depth: int, escape: str) -> Iterator[Command]:
    """Yield commands without keywords, assignments and wrappers; and those in a shell's `-c` argument."""
    words = list(made.words)
    while words and (words[0].value in _KEYWORDS or words[0].value in _CLOSERS):
        words.pop(0)
    assignments: list[str] = []
    while words:
        name = posixpath.basename(words[0].value)
        if _ASSIGNMENT.match(words[0].value):
            assignments.append(words.pop(0).value)
        elif name in _WRAPPERS and len(words) > 1:
            if name == "sudo" and depth < _DEEPEST:
                yield replace(made, words=tuple(words[:1]), assignments=tuple(assignments))
            words.pop(0)
            while words and words[0].value.startswith("-"):
                flag = words.pop(0).value
                if len(flag) == 2 and flag[1] in _WRAPPERS[name] and words:
                    words.pop(0)
        else:
            break
    if not words or words[0].value in ("for", "case", "select", "function"):
        return
    found = replace(made, words=tuple(words), assignments=tuple(assignments))
    yield found
    if found.program in _SHELLS and depth < _DEEPEST:
        values = found.values
        at = next((n for n, v in enumerate(values) if re.fullmatch(r"-[a-z]*c", v)), None)
        if at is not None and at + 1 < len(values):
            inner = _Lexer(values[at + 1], -1, escape, True)
            for each in inner.run(depth + 1):
                yield _unplaced(each)
