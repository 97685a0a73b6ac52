"""The likeliest meaning of a name that does not exist. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that is most like the word; None where none is."""
    import difflib  # here, because every start imports this module

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)
