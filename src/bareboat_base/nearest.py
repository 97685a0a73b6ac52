"""Pure: the likeliest match for an unknown name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known name most similar to the word; None where none is similar. `likeness`: 1 for equal words."""
    import difflib  # here, because every start imports this module

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)), None)
