"""Run directories at fixed paths, for engines that cannot make a mount point anywhere in the image.

Their paths on the host are known only when the job runs. Inside they lie in /run, which is writable; the
variables, and the words of the command that contain them, name those paths.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from bareboat.engines import (
    PROGRAMS_IN_STORE,
    RUN_FOLDERS,
    RUN_VARIABLES,
    Container,
    Enclosure,
    refusal,
    usable,
)
from bareboat.model import (
    Command,
    EngineFacts,
    ForwardEnv,
    IfSet,
    Image,
    Joined,
    NodePath,
    Opened,
    Refusal,
    Site,
    Variable,
    Word,
)

PLACE = "/run/bareboat"


def inside_name(variable: str) -> str:
    """The path at which the command finds the directory that this variable names."""
    return f"{PLACE}/{variable}"


def run_folder(_container: Container, variable: str) -> str:
    """For `Enclosure.run_folder`."""
    return inside_name(variable)


def run_variables() -> dict[str, str | Variable]:
    """Bareboat's own variables, with the values that the command gets when they are set."""
    return {name: inside_name(name) if name in RUN_FOLDERS else Variable(name) for name in RUN_VARIABLES}


def inside(argv: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words with the run's directories named as the command finds them."""
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


def judge(
    name: str,
    site: Site,
    image: Image | None,
    wrap: Callable[[EngineFacts, Site, Command, Container], Command],
    *,
    program: str,
    note: Callable[[EngineFacts], str] = lambda _facts: "",
) -> Enclosure | Refusal:
    """How an engine that shows run directories at these paths runs the image. `note`: what else its reason
    contains."""
    facts = usable(name, site, image, program=program, remedy=f"module load {name}")
    if isinstance(facts, Refusal):
        return facts
    if (refused := refusal(site, PROGRAMS_IN_STORE)) is not None:
        return refused
    return Enclosure(
        f"{facts.path} {facts.version}; it ran here when probed{note(facts)}",
        functools.partial(wrap, facts, site),
        overlay=False,
        mount_points=True,
        run_folder=run_folder,
    )
