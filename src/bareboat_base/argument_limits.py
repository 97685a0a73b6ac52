"""Pure: Linux's limits for starting a program: the size of one argument or environment variable, and of all
together.

Source: execve(2), "Limits on size of arguments and environment".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: 32 pages of 4 KiB, the NUL at its end included (MAX_ARG_STRLEN).
LONGEST_BYTES = (1 << 17) - 1
#: A quarter of the usual stack of 8 MiB is for both. An engine needs half of that for itself, since some get
#: the environment as arguments, too.
MOST_BYTES = 1 << 20
#: Each has a pointer.
_POINTER_BYTES = 8


def fault(words: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> str | None:
    """Why no program can be started with these, as the end of a sentence that begins with the source; None if
    it can."""
    total = 0
    for word in words:
        size = _size(word)
        if size > LONGEST_BYTES:
            return f"starts a program with an argument of {size:,} bytes; the limit is {LONGEST_BYTES:,}"
        total += size + 1 + _POINTER_BYTES
    for name, value in (environment or {}).items():
        size = _size(name) + 1 + _size(value)
        if size > LONGEST_BYTES:
            shown = name if len(name) <= 60 else name[:60] + "…"
            return f"sets the environment variable {shown} to {size:,} bytes; the limit is {LONGEST_BYTES:,}"
        total += size + 1 + _POINTER_BYTES
    if total > MOST_BYTES:
        return (
            f"gives a program {total:,} bytes of arguments and environment variables; "
            f"the limit is {MOST_BYTES:,}"
        )
    return None


def _size(text: str) -> int:
    # ASCII text, the usual case, need not be encoded.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
