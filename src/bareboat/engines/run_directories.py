"""Run folders at fixed places, for engines that cannot make a mount point anywhere in the image.

Where they are on the host is known only when the job runs. Inside they lie in /run, which can be written
to; the variables, and the words of the command that hold them, name those places.
"""

from __future__ import annotations

from bareboat.engines import RUN_FOLDERS, Container
from bareboat.model import ForwardEnv, IfSet, Joined, NodePath, Opened, Variable, Word

PLACE = "/run/bareboat"


def inside_name(variable: str) -> str:
    """Where the command finds the folder that this variable names."""
    return f"{PLACE}/{variable}"


def run_folder(_container: Container, variable: str) -> str:
    """For `Enclosure.run_folder`."""
    return inside_name(variable)


def inside(argv: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words with the run's folders named as the command finds them."""
    return tuple(map(_word, argv))


def _word(word: Word) -> Word:
    match word:
        case IfSet(variable=variable, words=words):
            return IfSet(variable, tuple(map(_part, words)))
        case ForwardEnv() | Opened():
            return word
        case _:
            return _part(word)


def _part(part: str | Variable | NodePath | Joined) -> str | Variable | NodePath | Joined:
    match part:
        case Joined(parts=parts):
            return Joined(tuple(map(_named, parts)))
        case _:
            return _named(part)


def _named(part: str | Variable | NodePath) -> str | Variable | NodePath:
    if isinstance(part, NodePath) and part.variable in RUN_FOLDERS:
        return inside_name(part.variable) + part.below
    return part
