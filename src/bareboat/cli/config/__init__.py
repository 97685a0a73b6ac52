"""bareboat config: show settings and where each comes from; one module for each action on them."""

from __future__ import annotations

import argparse
import importlib
import textwrap
from typing import Any

from bareboat import config
from bareboat.cli import console
from bareboat.cli.common import Context, add_actions, add_common

EXAMPLE = "bareboat config --json\n  bareboat config store"

#: Without an action, the settings are shown. Each module has `EXAMPLE`, `add(parser)` and `run(context)`.
ACTIONS = {
    "store": "show or create a store, and set who may use it",
    "trust": "trust your store in a directory that others may write",
}


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_actions(parser, ACTIONS, module, None, required=False)


def module(action: str) -> Any:
    return importlib.import_module(f"bareboat.cli.config.{action}")


def run(context: Context) -> int:
    if context.options.action is not None:
        code: int = module(context.options.action).run(context)
        return code
    settings = context.settings.settings
    if context.options.json:
        console.result_json({name: {"value": s.value, "source": s.source} for name, s in settings.items()})
        return 0
    width = max(map(len, settings))
    for name, setting in settings.items():
        value = "not set" if setting.value is None else setting.value
        console.result(f"{name:<{width}} {value}")
        for text in (config.KNOWN[name].meaning, f"from: {setting.source}"):
            room = (console.width() or 80) - width - 1
            for line in textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False):
                console.result(f"{'':<{width}} {console.dim(line)}")
    return 0
