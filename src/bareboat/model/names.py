"""Names from the user: one line of text that can be shown, compared and encoded."""

from __future__ import annotations

from bareboat_base.errors import UsageError
from bareboat_base.printable import printable, quoted

#: No scheduler accepts a longer option.
_LONGEST = 4000


def check_name(what: str, text: str, *, key: str = "", remedy: str = "") -> None:
    """Raise UsageError for text that is empty, very long, or has control characters or bytes that are not
    UTF-8. `remedy`: how to give it another value."""
    if not text.strip():
        fault = "blank" if text else "empty"
        raise UsageError(f"{what} is {fault}", key=key, remedy=f"{remedy or 'give it a value'}, or remove it")
    if len(text) > _LONGEST:
        raise UsageError(
            f"{what} has {len(text):,} characters; the limit is {_LONGEST:,}",
            key=key,
            remedy=f"{remedy}, or remove it" if remedy else "use a shorter value",
        )
    if "\n" in text or "\t" in text or printable(text) != text:
        raise UsageError(
            f"{what} is {quoted(text)}, with a control character or bytes that are not UTF-8",
            key=key,
            remedy=f"{remedy}, or remove it" if remedy else "use one line of letters, digits and punctuation",
        )
