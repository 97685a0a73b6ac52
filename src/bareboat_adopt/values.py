"""The words of a command with the values that the script itself gives its variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Around the reason why a value is not known, in the place of the value.
_GAP = "\x01"
GAPS = re.compile(f"{_GAP}([^{_GAP}]*){_GAP}")
#: The placeholder of an array element's number in a value, until the job file is written.
ELEMENT = "\x00element\x00"
_DOLLAR = (
    r"|(?P<pwd>\$\(\s*pwd\s*\)|`\s*pwd\s*`)"
    r"|\$(?P<brace>\{)?(?P<variable>[A-Za-z_]\w*|[0-9@*#?$!-])(?(brace)\})"
)
_PIECE = re.compile(
    r"(?P<plain>[^'\"\\$`]+)|'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\"|\\(?P<escaped>.)" + _DOLLAR,
    re.DOTALL,
)
_QUOTED = re.compile(r"(?P<plain>(?:[^\\$`]|\\[^\"\\$`])+)|\\(?P<escaped>.)" + _DOLLAR, re.DOTALL)
#: What the shell expands in text without quotes: patterns, and lists in braces.
_EXPANDED = re.compile(r"[*?\[]|\{[^{}]*(?:,|\.\.)")
#: Blanks that do not separate words.
_KEPT_BLANKS = str.maketrans(" \t\n", "\x02\x03\x04")
_BLANKS = str.maketrans("\x02\x03\x04", " \t\n")
_MOST_LETTERS = 1 << 16


class Unclear(Exception):
    """What no job file can have, such as a value that only the job, or the shell that submits it, knows.
    `subject`: the command, the ranks, the GPUs, the image, …"""

    def __init__(self, reason: str, subject: str = "the command") -> None:
        super().__init__(reason)
        self.reason = reason
        self.subject = subject


def gap(text: object) -> str | None:
    """Why a value in the text is not known; None where all are."""
    found = GAPS.search(str(text).replace("\\x01", _GAP))
    return None if found is None else found[1]


def of_shell(name: str) -> str:
    """Why a variable that the script does not set has no value here."""
    return f"{name} is not set here; environment_from passes on a variable of your shell"


class Scope:
    """The variables of a script. `known`: those that the account and the request decide; `directory`: the
    one in which commands run. No other variable of the shell that submits it is read: its value may be a
    secret."""

    def __init__(self, known: Mapping[str, str], directory: str) -> None:
        self._values: dict[str, str | Unclear] = dict(known)
        self._given = frozenset(known)
        self.directory = directory
        #: Variables that commands get, with the lines that set them.
        self.exported: dict[str, int] = {}

    def set(self, name: str, value: str | Unclear) -> None:
        self._values[name] = value

    def forget_all(self, text: str, line: int, *, is_script: bool) -> None:
        """Forget the variables that a text which is not understood may change: it names them otherwise than
        by their value. `is_script`: another script may change all that this one sets."""
        names = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\}", " ", text)))
        for name in (*self._values, "PWD"):
            if name in names or (is_script and name not in {*self._given, "PWD"}):
                self._values[name] = Unclear(f"line {line} may change {name}")

    def is_set(self, name: str) -> bool:
        """Whether the script has set it, to whatever value."""
        return name in self._values

    def is_known(self, name: str) -> bool:
        return isinstance(self._values.get(name), str)

    def value(self, name: str) -> str:
        """Raises Unclear."""
        found = self._values.get(name, self.directory if name == "PWD" else Unclear(of_shell(name)))
        if isinstance(found, str):
            return found
        if not name[0].isalpha() and name[0] != "_":
            raise Unclear("the script's arguments and results are not known")
        raise Unclear(found.reason)

    def text(self, raw: str) -> str:
        """The value of a word that is not split, as in an assignment. Raises Unclear."""
        if ":~" in raw:
            raise Unclear(f"{raw} may name home directories")
        return "".join(value for value, _ in self._pieces(raw))

    def words(self, raw: str) -> list[str]:
        """The arguments that a word becomes. Raises Unclear."""
        pieces = self._pieces(raw)
        if raw != "[" and _EXPANDED.search("".join(value for value, kind in pieces if kind != "quoted")):
            raise Unclear(f"{raw} is a pattern or a list, which only the shell expands")
        text = "".join(value if kind == "split" else value.translate(_KEPT_BLANKS) for value, kind in pieces)
        found = [word.translate(_BLANKS) for word in re.split(r"[ \t\n]+", text) if word]
        return found or [""] * any(kind == "quoted" for _, kind in pieces)

    def words_or_gaps(self, raw: str) -> list[str]:
        """The same, where an unknown value becomes one word that `gap` recognizes."""
        try:
            return self.words(raw)
        except Unclear as unclear:
            before = re.match(r"[\w./=:-]*", raw)
            return [f"{before[0] if before else ''}{_GAP}{unclear.reason}{_GAP}"]

    def _pieces(self, raw: str, form: re.Pattern[str] = _PIECE) -> list[tuple[str, str]]:
        """The values in a word; whether each is "quoted", "plain", or "split" at its blanks."""
        found: list[tuple[str, str]] = []
        at, size = 0, 0
        while at < len(raw):
            piece = form.match(raw, at)
            if piece is None:
                raise Unclear(f"{raw} is known only in the job")
            text = piece[piece.lastgroup or 0]
            match piece.lastgroup:
                case "plain":
                    found.append((text if at or form is _QUOTED else self._home(text), "plain"))
                case "double":
                    found.append(("".join(value for value, _ in self._pieces(text, _QUOTED)), "quoted"))
                case "pwd" | "variable":
                    found.append((self.value("PWD" if piece.lastgroup == "pwd" else text), "split"))
                case _:
                    found.append((text, "quoted"))
            at, size = piece.end(), size + len(found[-1][0])
            if size > _MOST_LETTERS:
                raise Unclear(f"a value of more than {_MOST_LETTERS} letters")
        return found

    def _home(self, text: str) -> str:
        """Text at the beginning of a word, with the home directory in the place of `~`."""
        if re.match(r"~(/|\Z)", text):
            return self.value("HOME") + text[1:]
        if text.startswith("~"):
            raise Unclear(f"{text} is another account's directory")
        return text
