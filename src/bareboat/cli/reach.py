"""The flags of a command line that the commands of its remedies need, too: `image ls` of another store shows
nothing that helps."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Collection

from bareboat_base.errors import BareboatError

#: The flags, by the attributes of their values.
_FLAGS = {"store": "--store", "policy": "--policy", "plain_http": "--plain-http"}
#: A verb and a word -> whether the word is an action of the verb, and the flags of the verb or the action.
FlagsOf = Callable[[str, str], tuple[bool, Collection[str]]]
#: A command in a remedy: its verb, what may be the verb's action, and the rest.
_COMMAND = re.compile(r"(?<![\w/.-])bareboat ([a-z]+)(?: ([a-z]+)(?!\S))?([^;\n#]*)")


def with_flags(error: BareboatError, options: argparse.Namespace, flags_of: FlagsOf) -> BareboatError:
    """The error, with the flags in its remedy."""
    given = {
        flag: flag if value is True else f"{flag} {shlex.quote(value)}"
        for name, flag in _FLAGS.items()
        if (value := getattr(options, name, None))
    }

    def reached(found: re.Match[str]) -> str:
        verb, word, rest = found.groups(default="")
        is_action, known = flags_of(verb, word)
        named = {each.partition("=")[0] for each in rest.split()}
        missing = [text for flag, text in given.items() if flag in known and flag not in named]
        if verb == "config" or "--help" in named:
            return found[0]
        at = found.end(2 if is_action else 1) - found.start()
        return " ".join((found[0][:at], *missing)) + found[0][at:]

    return error.but(remedy=_COMMAND.sub(reached, error.remedy)) if given else error
