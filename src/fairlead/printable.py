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


def in_json(text: str) -> str:
    """JSON in which each such character stands as JSON's own `\\uNNNN`: it is read back as it was."""
    return text if _is_plain(text) else re.sub(_CONTROL, lambda found: f"\\u{ord(found[0]):04x}", text)


def _is_plain(text: str) -> bool:
    """Whether the text needs no closer look: most does not, and no expression is compiled for it."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
