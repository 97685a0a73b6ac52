"""bareboat site: this cluster's settings, once for all jobs, in one file to share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bareboat import config
from bareboat.cli import console, site_layer
from bareboat.cli.common import Context, add_common, add_dry_run, add_engine, add_scheduling
from bareboat.errors import UsageError
from bareboat.toml import TomlFile

EXAMPLE = "bareboat site add --partition gpu --account research --modules openmpi/4.1.4"
_FLAGS = (
    "scheduler",
    "partition",
    "account",
    "qos",
    "reservation",
    "constraint",
    "launcher",
    "engine",
    "modules",
    "delivery",
    "node_scratch",
)


#: Action -> what it does, and an example.
ACTIONS = {
    "add": ("write settings that all jobs here get", EXAMPLE),
    "show": ("the settings that were written", "bareboat site show --json"),
    "layer": ("add to an image what this cluster needs", site_layer.EXAMPLE),
}


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="what", metavar="ACTION", required=True)
    for name, (meaning, example) in ACTIONS.items():
        action = actions.add_parser(
            name,
            help=meaning,
            description=meaning[:1].upper() + meaning[1:] + ".",
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_common(action)
        if name == "show":
            continue
        add_scheduling(action)
        add_engine(action)
        add_dry_run(action)
        if name == "layer":
            site_layer.add(action)
        else:
            action.add_argument(
                "file", metavar="FILE", nargs="?", help="take them over from a colleague's file"
            )
            action.add_argument("--modules", metavar="NAMES", help="environment modules, with commas between")


def run(context: Context) -> int:
    if context.options.what == "layer":
        return site_layer.run(context)
    path = config.user_site_file(os.environ)
    if context.options.what == "show":
        if not path.exists():
            raise UsageError("there are no settings for this cluster yet", remedy=EXAMPLE)
        values = TomlFile(path).values
        if context.options.json:
            console.result_json(values)
        else:
            console.result(path.read_text().rstrip("\n"))
        return 0
    values = TomlFile(path).values if path.exists() else {}
    values |= _given(context)
    text = "# Settings for this cluster; `bareboat site add FILE` takes them over.\n" + "".join(
        f"{name} = {_toml(value)}\n" for name, value in sorted(values.items())
    )
    if context.options.dry_run:
        console.result_json(values) if context.options.json else console.result(text.rstrip("\n"))
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)
    console.note(f"written to {path}; every job gets them unless its file or a flag says otherwise")
    if context.options.json:
        console.result_json(values)
    return 0


def _given(context: Context) -> dict[str, object]:
    """The settings of the file and of the flags; the flags go over the file."""
    from bareboat import registry

    options = context.options
    values: dict[str, object] = {}
    if options.file:
        file = TomlFile(Path(options.file))
        file.check_keys(file.values, config.KNOWN)
        # All of it is looked at now: a file that no verb can read would be in the way of mending it.
        values |= {name: config.value_of(file, name) for name in file.values}
    flags = {name: getattr(options, name) for name in _FLAGS if getattr(options, name, None) is not None}
    if options.store:
        flags["store"] = os.path.abspath(options.store)
    for name, value in flags.items():
        config.KNOWN[name].check(name, value)
        if name in ("scheduler", "launcher"):
            getattr(registry, name)(value)
        elif name == "engine":
            registry.engine(value)
    values |= flags
    if not values:
        raise UsageError("there is nothing to write", remedy=EXAMPLE)
    return values


def _toml(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
