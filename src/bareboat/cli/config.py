"""bareboat config: show settings and where each comes from."""

from __future__ import annotations

import argparse

from bareboat import config
from bareboat.cli import console
from bareboat.cli.common import Context, add_common

EXAMPLE = "bareboat config --json"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)


def run(context: Context) -> int:
    settings = context.settings.settings
    if context.options.json:
        console.result_json({name: {"value": s.value, "source": s.source} for name, s in settings.items()})
        return 0
    width = max(map(len, settings))
    for name, setting in settings.items():
        value = "not set" if setting.value is None else setting.value
        console.result(f"{name:<{width}} {value!s:<40} {console.dim(setting.source)}")
        console.result(f"{'':<{width}} {console.dim(config.KNOWN[name].meaning)}")
    return 0
