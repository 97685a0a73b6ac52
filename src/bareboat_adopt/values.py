"""The words of a command with the values of variables that are known without running anything. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from bareboat_adopt.bash import Part, Word
from bareboat_base.printable import one_line

_BRACES = re.compile(r"(\w+)(?:(:?[-=])(.*))?", re.DOTALL)
_TOKEN = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)\}?|(\*\*|[-+*/%()]))")
_LISTED = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
#: Around the reason why a value is not known, in the place of the value.
_GAP = "\x01"
_GAPS = re.compile(f"{_GAP}([^{_GAP}]*){_GAP}")
#: The placeholder of an array element's number in a value, until the job file is written.
ELEMENT = "\x00element\x00"


class Unknown(Exception):
    """A value that only the job, or the shell that submits it, knows. `variable`: its name, if it has one."""

    def __init__(self, reason: str, variable: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.variable = variable


def gap(text: object) -> str | None:
    """Why a value in the text is not known; None where all are."""
    found = _GAPS.search(str(text).replace("\\x01", _GAP))
    return None if found is None else found[1]


class Scope:
    """The variables of a script. `outside`: those of the shell that submits it; `folder`: its directory."""

    def __init__(self, outside: Mapping[str, str], folder: str) -> None:
        self._outside = outside
        self._known: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        self.folder = folder
        #: Variables that commands get, in the order in which they are set.
        self.exported: dict[str, str] = {}
        #: Those of `outside` that were used.
        self.used: dict[str, str] = {}

    def set(self, name: str, value: str) -> None:
        self._known[name] = value
        self._unknown.pop(name, None)
        if name in self.exported:
            self.exported[name] = value

    def forget(self, name: str, reason: str) -> None:
        self._known.pop(name, None)
        self.exported.pop(name, None)
        self._unknown[name] = reason

    def export(self, name: str) -> None:
        if name in self._known:
            self.exported[name] = self._known[name]

    def value(self, name: str) -> str:
        """Raises Unknown."""
        if name in self._unknown:
            raise Unknown(self._unknown[name], name)
        if name in self._known:
            return self._known[name]
        if name == "PWD":
            return self.folder
        if name == "PYTHONPATH" and name not in self._outside:
            return ""
        if name in self._outside:
            self.used[name] = self._outside[name]
            return self._outside[name]
        if name.isdigit() or name in "@*#":
            raise Unknown("the script's arguments are unknown", name)
        raise Unknown(f"{name} is not set here", name)

    def text(self, word: Word) -> str:
        """The value of a word that is not split, as in an assignment. Raises Unknown."""
        return "".join(self._part(part) for part in word.parts)

    def words(self, word: Word) -> list[str]:
        """The arguments that a word becomes. Raises Unknown."""
        if _LISTED.search("".join(part.text for part in word.parts if not part.quoted)) and any(
            part == Part("pattern", "{") for part in word.parts
        ):
            raise Unknown(f"{word.raw} is a list of words, which only the shell expands")
        if any(part.kind == "pattern" and part.text in "*?" for part in word.parts) or (
            word.raw != "[" and re.search(r"\[[^]]+\]", _unquoted(word))
        ):
            raise Unknown(f"{word.raw} is a pattern, which only the shell compares with file names")
        found = [""]
        given = False
        for part in word.parts:
            value = self._part(part)
            if part.quoted or part.kind in ("text", "pattern"):
                given = given or part.quoted or bool(value)
                found[-1] += value
                continue
            if re.search(r"[*?]|\[[^]]+\]", value):
                raise Unknown(f"{word.raw} becomes a pattern, which only the shell compares with file names")
            pieces = value.split()
            if value[:1].isspace() and found[-1]:
                found.append("")
            for number, piece in enumerate(pieces):
                if number:
                    found.append("")
                found[-1] += piece
                given = True
            if value[-1:].isspace() and pieces:
                found.append("")
        if len(found) > 1 and not found[-1]:
            found.pop()
        return found if given else []

    def words_or_gaps(self, word: Word) -> list[str]:
        """The same, where an unknown value becomes one word that `gap` recognizes."""
        try:
            return self.words(word)
        except Unknown as unknown:
            before = word.parts[0].text if word.parts and word.parts[0].kind == "text" else ""
            return [f"{before}{_GAP}{unknown.reason}{_GAP}"]

    def _part(self, part: Part) -> str:
        if part.kind in ("text", "pattern"):
            return part.text
        if part.kind == "variable":
            return self.value(part.text)
        if part.kind == "braces":
            return self._braces(part.text)
        if part.kind == "arithmetic":
            return str(self._arithmetic(part.text))
        return self._output(part.text.strip())

    def _braces(self, inside: str) -> str:
        found = _BRACES.fullmatch(inside)
        if found is None:
            raise Unknown(f"${{{inside}}} is not evaluated")
        name, operator, other = found.groups()
        if operator is None:
            return self.value(name)
        try:
            value = self.value(name)
        except Unknown as unknown:
            is_unset = "not set here" in unknown.reason or name.isdigit()
            if not is_unset or re.search(r"[$`\"'\\]", other):
                raise
            return other
        return other if not value and operator.startswith(":") else value

    def _output(self, command: str) -> str:
        """What a command prints, for those whose output follows from the values."""
        words = command.split()
        if words == ["pwd"]:
            return self.folder
        if words == ["whoami"] or words == ["id", "-un"]:
            return self.value("USER")
        if len(words) == 2 and words[0] == "which" and re.fullmatch(r"[\w.+-]+", words[1]):
            return words[1]
        if len(words) == 2 and words[0] in ("dirname", "basename", "echo"):
            name = re.fullmatch(r'"?\$\{?(\w+)\}?"?', words[1])
            if name is not None or not re.search(r"[$`\"'\\*?\[]", words[1]):
                value = self.value(name[1]) if name is not None else words[1]
                if words[0] == "dirname":
                    return posixpath.dirname(value) or "."
                return posixpath.basename(value) if words[0] == "basename" else value
        raise Unknown(f"the output of `{one_line(command, limit=60)}` is known only in the job")

    def _arithmetic(self, text: str) -> int:
        tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise Unknown(f"$(({text.strip()})) is not evaluated")
            value = self.value(found[2]) if found[2] else found[1] or found[3]
            if not re.fullmatch(r"\d{1,9}|[-+*/%()]", value):
                raise Unknown(f"$(({text.strip()})) is not evaluated")
            tokens.append(value)
            at = found.end()
        try:
            value = _sum(tokens)
            if value.bit_length() > 63:  # bash has 64 bits
                raise ValueError
            return value
        except (IndexError, ZeroDivisionError, ValueError, RecursionError):
            raise Unknown(f"$(({text.strip()})) is not evaluated") from None


def _unquoted(word: Word) -> str:
    return "".join(part.text for part in word.parts if not part.quoted and part.kind in ("text", "pattern"))


def _sum(tokens: list[str]) -> int:
    """Evaluate + and - of products; the tokens are consumed. Raises ValueError for a token that remains."""
    value = _terms(tokens)
    if tokens:
        raise ValueError
    return value


def _terms(tokens: list[str]) -> int:
    value = _product(tokens)
    while tokens and tokens[0] in "+-":
        value = value + _product(tokens) if tokens.pop(0) == "+" else value - _product(tokens)
    return value


def _product(tokens: list[str]) -> int:
    value = _atom(tokens)
    while tokens and tokens[0] in "*/%":
        operator, other = tokens.pop(0), _atom(tokens)
        value = value * other if operator == "*" else value // other if operator == "/" else value % other
    return value


def _atom(tokens: list[str]) -> int:
    token = tokens.pop(0)
    if token != "(":
        return int(token)
    value = _terms(tokens)
    if tokens.pop(0) != ")":
        raise ValueError
    return value
