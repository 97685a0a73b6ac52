"""Text of strangers for a terminal: what a registry, an image, a job or a tool wrote, made harmless.

A terminal obeys escape sequences: they retitle windows, hide text, and on some terminals type. So every text
that did not come from this program is passed through here before it is shown. Pure.
"""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, and what changes the direction of text or cannot be encoded.
_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def printable(text: str) -> str:
    """The text with every control character, tab and newline excepted, written as `\\xNN` or `\\uNNNN`."""
    return text if _is_plain(text) else re.sub(_CONTROL, _escaped, text)


def one_line(text: str, *, limit: int = 200) -> str:
    """The text on one line, at most `limit` characters long."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


#: What moves a terminal's cursor or sets its colours (ECMA-48), and what sets its title or makes links.
_ESCAPES = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
_MOST_LINES, _FIRST_LINES = 20, 5
_LONGEST_TEXT = 1 << 20


def excerpt(text: str, *, limit: int = 200) -> list[str]:
    """The lines of what a tool wrote, for a message: without escape codes, at most 20 of at most `limit`
    characters. Of more lines the first and the last ones are kept, of a longer line its two ends."""
    if len(text) > _LONGEST_TEXT:
        text = text[: _LONGEST_TEXT // 2] + "\n" + text[-_LONGEST_TEXT // 2 :]
    lines = re.sub(_ESCAPES, "", text).splitlines()
    if (left_out := len(lines) - _MOST_LINES) > 0:
        last = _MOST_LINES - _FIRST_LINES - 1
        lines = [*lines[:_FIRST_LINES], f"({left_out + 1:,} lines left out)", *lines[-last:]]
    half = limit // 2
    return [line if len(line) <= limit else f"{line[:half]}…{line[half + 1 - limit :]}" for line in lines]


def in_json(text: str) -> str:
    """JSON in which each such character stands as JSON's own `\\uNNNN`: it is read back as it was."""
    return text if _is_plain(text) else re.sub(_CONTROL, lambda found: f"\\u{ord(found[0]):04x}", text)


def _is_plain(text: str) -> bool:
    """Whether the text needs no closer look: most does not, and no expression is compiled for it."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
