"""Pure: the likeliest match for an unknown name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known name most similar to the word; None where none is similar. `likeness`: 1 for equal words."""
    return next(iter(most_similar(word, known, count=1, likeness=likeness)), None)


def most_similar(word: str, known: Iterable[str], *, count: int, likeness: float = 0.0) -> list[str]:
    """The known names most similar to the word, the likeliest first."""
    import difflib  # here, because every start imports this module

    return difflib.get_close_matches(word, list(known), n=count, cutoff=likeness)
