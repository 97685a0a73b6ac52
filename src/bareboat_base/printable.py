"""Pure: make foreign text safe for a terminal: what a registry, an image, a job or a tool wrote.

A terminal executes escape sequences: they change titles, hide text, and on some terminals insert input. So
all text from outside this program passes through here before it is shown.
"""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, bidirectional controls, and what cannot be encoded.
_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def printable(text: str) -> str:
    """The text with every control character except tab and newline written as `\\xNN` or `\\uNNNN`."""
    return text if _is_plain(text) else re.sub(_CONTROL, _escaped, text)


def one_line(text: str, *, limit: int = 200) -> str:
    """The text on one line, at most `limit` characters long."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(text: str, *, limit: int = 60) -> str:
    """The text in quotes, with escapes as in Python, and with "…" for what is beyond `limit` characters."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def plain(text: str) -> str:
    """The text with a space in place of every character that is not printable."""
    return "".join(c if c.isprintable() else " " for c in text)


def plain_line(text: str) -> str:
    """The same, with one space between words."""
    return " ".join(plain(text).split())


def counted(number: int, what: str) -> str:
    """A number of things: "1 node", "2 nodes"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def file_name(name: bytes) -> str:
    """A file's name, UTF-8 or not, for messages: on one line, without control characters, not too long."""
    text = "".join(map(_character, name[:1024].decode(errors="surrogateescape")))
    return text if len(text) <= 200 else text[:120] + "…" + text[-60:]


def _character(character: str) -> str:
    if character.isprintable() and character != "\\":
        return character
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


#: Sequences for cursor and colours (ECMA-48), titles and links.
_ESCAPES = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
_MOST_LINES, _FIRST_LINES = 20, 5
_LONGEST_TEXT = 1 << 20


def excerpt(text: str, *, limit: int = 200) -> list[str]:
    """The lines of a tool's output for a message: without escape codes, at most 20 lines of `limit`
    characters. The first and last of more lines are kept, and both ends of a longer line."""
    if len(text) > _LONGEST_TEXT:
        text = text[: _LONGEST_TEXT // 2] + "\n" + text[-_LONGEST_TEXT // 2 :]
    lines = re.sub(_ESCAPES, "", text).splitlines()
    if (left_out := len(lines) - _MOST_LINES) > 0:
        last = _MOST_LINES - _FIRST_LINES - 1
        lines = [*lines[:_FIRST_LINES], f"({left_out + 1:,} lines omitted)", *lines[-last:]]
    half = limit // 2
    return [line if len(line) <= limit else f"{line[:half]}…{line[half + 1 - limit :]}" for line in lines]


def in_json(text: str) -> str:
    """JSON with each such character as JSON's own `\\uNNNN`, which keeps the value."""
    return text if _is_plain(text) else re.sub(_CONTROL, lambda found: f"\\u{ord(found[0]):04x}", text)


def _is_plain(text: str) -> bool:
    """Whether the text is plain, as most is, so that no expression is compiled."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
