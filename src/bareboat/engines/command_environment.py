"""The environment of a command, passed to its engine apart from the argv, which every user of the machine
can read in /proc. The job script exports each value under a name of its own, or writes all to a descriptor.

env(1) gives an exported value its real name: it expands ${NAME} in the words after -S, before -i drops the
rest. https://www.gnu.org/software/coreutils/manual/html_node/env-invocation.html (coreutils 8.30)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bareboat.engines import PASSED_VALUE, Container, basic_environment
from bareboat.model import Command, Handing, Joined, Sealed, Site, Variable, is_carried
from bareboat.model.command import CARRIER

Value = str | Variable | Joined

#: The job script's variable with the number of the descriptor.
DESCRIPTOR = Variable("sealed")


def entries(command: Command, container: Container, site: Site, **more: str) -> Mapping[str, Value]:
    """All variables of the command by name, except those that the launcher passes on. The command's own
    override `more`."""
    basic = {} if container.foreground is not None else basic_environment(site, home=container.home)
    fixed = {**basic, **more, **command.environment}
    return dict(sorted({**fixed, **dict(container.given)}.items()))


def in_argv(found: Mapping[str, Value]) -> dict[str, Value]:
    """Variables that only an argv can carry: they would affect programs that run before the command."""
    return {name: value for name, value in found.items() if not is_carried(name)}


def carried(found: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in found.items() if is_carried(name)}


def assignment(name: str, value: Value, *, before: str = "", quote: str = "") -> str | Joined:
    """NAME=VALUE in one word."""
    if isinstance(value, str):
        return f"{before}{name}={quote}{value}{quote}"
    parts = value.parts if isinstance(value, Joined) else (value,)
    return Joined((f"{before}{name}={quote}", *parts, *([quote] if quote else [])))


def exported(found: Mapping[str, Value]) -> Sealed:
    return Sealed(by=Handing.EXPORTED, names=tuple(found), values=tuple(found.values()))


def by_descriptor(found: Mapping[str, Value], *form: str | Variable) -> Sealed:
    """`form`: the words for each variable; by default only its value."""
    return Sealed(
        by=Handing.DESCRIPTOR, names=tuple(found), values=tuple(found.values()), form=form or (PASSED_VALUE,)
    )


def split(names: Iterable[str]) -> str:
    """The words after env's -S: each exported value under its real name. A shell reads it the same way."""
    return " ".join(f'"{name}=${{{CARRIER}{number}}}"' for number, name in enumerate(names))


def exports(count: int) -> list[str]:
    """The names under which values are exported."""
    return [f"{CARRIER}{number}" for number in range(count)]


def carriers(count: int) -> str:
    """The same for exported values that keep the names under which they are exported."""
    return split(exports(count))
