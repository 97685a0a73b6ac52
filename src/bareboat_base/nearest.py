"""Pure: the likeliest match for an unknown name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most similar to the word; None where none is similar."""
    import difflib  # here, because every start imports this module

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)
