"""Starts a command inside by the image's own shell and env, for tools without options for the working
directory and for an empty environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bareboat.engines import PASSED_ASSIGNMENT, Container, command_environment, forwarded
from bareboat.model import IfSet, Joined, Variable, Word

#: cd is built into the shell. $2 gives the exported values their names. An env(1) without -S (busybox's) gets
#: the values themselves, which are in its argv until it has executed the command.
_ENTER = """\
cd "$1" || exit 126
names=$2; shift 2
if /usr/bin/env -S true 2>/dev/null; then exec /usr/bin/env -i -S "$names" "$@"; fi
eval "exec /usr/bin/env -i $names \\"\\$@\\""
"""


def words(
    workdir: str,
    environment: Mapping[str, command_environment.Value],
    run: Mapping[str, str | Variable],
    argv: Sequence[Word],
    container: Container,
) -> tuple[Word, ...]:
    """Words that start `argv`. `environment` is exported; `run`: those of Bareboat's own variables that are
    passed on when set, with their values inside."""
    found: list[Word] = ["/bin/sh", "-c", _ENTER, "sh", workdir, command_environment.split(environment)]
    found += [IfSet(name, (Joined((f"{name}=", value)),)) for name, value in run.items()]
    found += forwarded(container, PASSED_ASSIGNMENT)
    if "=" in str(argv[0]):  # env would read it as a variable
        found += ["/bin/sh", "-c", 'exec "$0" "$@"']
    return (*found, *argv)
