"""Why a run failed, and what to do: the same lines wherever a run's end is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bareboat.cli import console

if TYPE_CHECKING:
    from bareboat.model.submission import End


def lines(end: End | None, *, otherwise: str = "", indentation: str = "  ") -> list[str]:
    """The cause, and the command or key that addresses it. `otherwise`: the text of a run without an end."""
    if end is None:
        return [indentation + otherwise] if otherwise else []
    remedy = [f"{indentation}try: {end.remedy}"] if end.remedy else []
    return [f"{indentation}{end.cause.value}: {end.text}", *remedy]


def note(end: End | None, *, otherwise: str = "") -> None:
    """Print the lines to stderr."""
    for line in lines(end, otherwise=otherwise):
        console.note(line)
