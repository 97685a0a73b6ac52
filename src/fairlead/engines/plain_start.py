"""Starts a command inside by the image's own shell and env, for tools that have no options for its working
folder and for an environment of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.engines import PASSED_ASSIGNMENT, RUN_VARIABLES, Container, passed_on
from fairlead.model import Joined, Variable, WhenSet, Word

#: cd(1) is the shell's; a name with "=" would be a variable to env(1).
_ENTER = 'cd "$1" || exit 126; shift; exec /usr/bin/env -i "$@"'


def words(
    workdir: str,
    environment: Mapping[str, str],
    run: Mapping[str, str | Variable],
    argv: Sequence[Word],
    container: Container,
) -> tuple[Word, ...]:
    """`run`: of Fairlead's own variables those that are passed on when set, with their values there."""
    found: list[Word] = ["/bin/sh", "-c", _ENTER, "sh", workdir]
    found += [f"{name}={value}" for name, value in sorted(environment.items())]
    found += [WhenSet(name, (Joined((f"{name}=", value)),)) for name, value in run.items()]
    found += passed_on(container, PASSED_ASSIGNMENT)
    if "=" in str(argv[0]):
        found += ["/bin/sh", "-c", 'exec "$0" "$@"']
    return (*found, *argv)


def run_variables() -> dict[str, str | Variable]:
    """All of them, as they are outside."""
    return {name: Variable(name) for name in RUN_VARIABLES}
