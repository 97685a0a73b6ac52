"""Paths for containers: those of the host, and those known only on the node."""

from __future__ import annotations

from bareboat.model import Joined, NodePath, Variable

Place = str | NodePath


def planned(place: Place) -> str:
    """The path as far as the planner knows it."""
    return place.planned if isinstance(place, NodePath) else place


def under(place: Place, inner: str) -> Place:
    """A path below it; `inner` begins with a slash."""
    if isinstance(place, str):
        return place + inner
    return NodePath(place.variable, place.below + inner, place.planned + inner)


def parent(place: Place) -> Place:
    """The directory that contains it."""
    if isinstance(place, str):
        return place.rpartition("/")[0]
    return NodePath(place.variable, place.below.rpartition("/")[0], place.planned.rpartition("/")[0])


def join(*parts: Place) -> str | Joined:
    """One word of text and paths."""
    found: list[str | Variable | NodePath] = [""]
    for part in parts:
        if isinstance(part, NodePath):
            found += [Variable(part.variable), part.below]
        else:
            found[-1] = f"{found[-1]}{part}"
    return str(found[0]) if len(found) == 1 else Joined(tuple(part for part in found if part != ""))
