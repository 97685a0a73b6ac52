"""The words that a command line may go on with, for the scripts that `bareboat --completion` prints."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console

if TYPE_CHECKING:
    from bareboat_images.store import Store

#: Placeholders for what only the shell can complete.
FILES, DIRECTORIES = ":files", ":directories"


def answer(words: list[str]) -> int:
    """Print what the last of the words after `bareboat --complete` may become: on each line a word, or with a
    tab and what it means."""
    with contextlib.suppress(Exception):  # a mistake on the line is reported when it is run
        lines = [f"{word}\t{meaning}" if meaning else word for word, meaning in _candidates(words)]
        if lines:
            console.script("\n".join(lines))
    return 0


def _candidates(words: list[str]) -> Iterator[tuple[str, str]]:
    from bareboat.cli.main import _parser

    *before, current = words or [""]
    parser: argparse.ArgumentParser = _parser(before)
    while (commands := _commands(parser)) is not None:
        if not before:
            texts = {each.dest: each.help or "" for each in commands._get_subactions()}
            yield from _matching(texts, current)
            yield from _matching(_flags(parser), current) if current.startswith("-") else ()
            return
        if before[0] not in commands.choices:
            return
        parser, before = commands.choices[before[0]], before[1:]
    yield from _of_command(parser, before, current)


def _of_command(
    parser: argparse.ArgumentParser, before: list[str], current: str
) -> Iterator[tuple[str, str]]:
    places = [action for action in parser._actions if not action.option_strings]
    pending, at, store = None, 0, None
    takes_a_job = any("COMMAND" in str(action.metavar) for action in places)
    for word in before:
        if pending is not None:
            store = word if pending.dest == "store" else store
            pending = None
        elif word == "--" or (takes_a_job and not word.startswith("-") and word.endswith(".py")):
            yield FILES, ""
            return
        elif word.startswith("-"):
            action = parser._option_string_actions.get(word)
            pending = action if action is not None and action.nargs != 0 else None
        else:
            at += 1
    if pending is not None:
        yield from _values(pending, current, "", store)
    elif current.startswith("--") and "=" in current:
        flag, _, value = current.partition("=")
        if (action := parser._option_string_actions.get(flag)) is not None:
            yield from _values(action, value, f"{flag}=", store)
    elif current.startswith("-"):
        yield from _matching(_flags(parser), current)
    elif places and (at < len(places) or places[-1].nargs in ("*", "+")):
        yield from _values(places[min(at, len(places) - 1)], current, "", store)


def _values(
    action: argparse.Action, current: str, prefix: str, store: str | None
) -> Iterator[tuple[str, str]]:
    """What a flag's or a place's value may become, by its choices, its name and its placeholder."""
    metavar = str(action.metavar)
    found: dict[str, str] = {}
    if action.choices is not None:
        found = dict.fromkeys(action.choices, "")
    elif action.dest in ("engine", "launcher", "scheduler"):
        from bareboat import registry

        found = dict.fromkeys(registry.names(f"{action.dest}s"), "")
    elif metavar == "EXAMPLE":
        from bareboat.gallery import EXAMPLES

        found = {example.name: example.meaning for example in EXAMPLES}
    elif metavar == "RUN":
        found = dict.fromkeys(reversed(_store(store).runs()), "")
    elif metavar in ("IMAGE", "REF") or action.dest in ("image", "other_image"):
        found = dict(_store(store).names())
    elif metavar == "DIR":
        yield DIRECTORIES, ""
    elif any(kind in metavar for kind in ("FILE", "PATH", "SCRIPT")):
        yield FILES, ""
    for word, meaning in _matching(found, current):
        yield prefix + word, meaning


def _store(asked: str | None) -> Store:
    from bareboat import config
    from bareboat_images.store import Store

    return Store(config.resolve({"store": asked}, folder=Path.cwd(), environment=os.environ).store)


def _matching(texts: dict[str, str], current: str) -> Iterator[tuple[str, str]]:
    return ((word, " ".join(text.split())) for word, text in texts.items() if word.startswith(current))


def _flags(parser: argparse.ArgumentParser) -> dict[str, str]:
    return {flag: action.help or "" for action in parser._actions for flag in action.option_strings}


def _commands(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    """The verbs, or the actions of a verb; None where there are none."""
    return next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
