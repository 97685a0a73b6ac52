"""Results on a narrow terminal: long lines are folded between words, below their own indentation."""

from __future__ import annotations

import re

from bareboat_base.expressions import expression

#: What a terminal does not show.
_ESCAPES = expression(r"\x1b\[[0-9;]*m")
_NARROWEST = 40
_REMEDY = "try: "


def folded(text: str, width: int | None) -> str:
    """The text for a terminal; for a pipe or a file (None), and for commands to copy, it stays as it is."""
    if width is None or width < _NARROWEST:
        return text
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int) -> list[str]:
    if _length(line) <= width or line.lstrip().startswith(_REMEDY):
        return [line]  # remedies are copied
    indentation = " " * (len(line) - len(line.lstrip(" ")) + 2)
    if len(indentation) > width // 2:
        return [line]
    parts = [""]
    # The space between two columns belongs to the word before it.
    for word in re.findall(r"\s*\S+", line.rstrip()):
        if parts[-1].strip() and _length(parts[-1] + word) > width:
            parts.append(indentation + word.lstrip())
        else:
            parts[-1] += word
    return parts


def _length(text: str) -> int:
    return len(_ESCAPES.sub("", text))
