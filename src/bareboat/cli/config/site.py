"""bareboat config site: show the site settings shared by all jobs, or write some."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bareboat import config
from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run, add_engine, add_scheduling
from bareboat_base.errors import UsageError
from bareboat_base.files import outputs, untrusted
from bareboat_base.toml import TomlFile

EXAMPLE = "bareboat config site --partition gpu --account research --modules openmpi/4.1.4"
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


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_scheduling(parser)
    add_engine(parser)
    add_dry_run(parser)
    parser.add_argument("file", metavar="FILE", nargs="?", help="import settings from a file")
    parser.add_argument("--modules", metavar="NAMES", help="environment modules, separated by commas")


def run(context: Context) -> int:
    """Show the settings, or write those of the file and the flags."""
    changes = _changes(context)
    if not changes:
        _show(context)
        return 0
    path = config.user_site_file(os.environ)
    values = TomlFile(path).values if path.exists() else {}
    values |= changes
    text = "# Settings for this cluster; `bareboat config site FILE` imports them.\n" + "".join(
        f"{name} = {_toml(value)}\n" for name, value in sorted(values.items())
    )
    if context.options.dry_run:
        console.result_json(values) if context.options.json else console.result(text.rstrip("\n"))
        return 0
    outputs.write_settings(path, text.encode("utf-8", "surrogateescape"))
    console.note(f"wrote {path}; job files and flags override these settings")
    if context.options.json:
        console.result_json(values)
    return 0


def _show(context: Context) -> None:
    """Print the user's settings and the machine's; as JSON, the values in force."""
    found = config.site_files(os.environ)
    if not found:
        raise UsageError(
            "no settings for this cluster yet", remedy="bareboat config site --partition PARTITION"
        )
    if context.options.json:
        values: dict[str, object] = {}
        for file in reversed(found):
            values |= file.values
        if any(file.values.get("require_digest") is True for file in found):
            values["require_digest"] = True  # as config.resolve takes it
        console.result_json(values)
        return
    texts = (untrusted.read_bytes(file.path, follow=True).decode().strip("\n") for file in found)
    console.result("\n\n".join(f"# {file.path}\n{text}" for file, text in zip(found, texts, strict=True)))


def _changes(context: Context) -> dict[str, object]:
    """The settings of the file and of the flags; flags override the file."""
    from bareboat import registry, store_access

    options = context.options
    values: dict[str, object] = {}
    if options.file:
        file = TomlFile(Path(options.file))
        file.check_keys(file.values, config.KNOWN)
        # Check all of it now: an unreadable file would block every command, also those that fix it.
        values |= {name: config.value_of(file, name) for name in file.values}
    flags = {name: getattr(options, name) for name in _FLAGS if getattr(options, name, None) is not None}
    if options.store:
        flags["store"] = os.path.abspath(options.store)
        store_access.check_place(Path(flags["store"]))
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        config.KNOWN[name].check(name, value, called=flag)
        if name in ("engine", "launcher", "scheduler"):
            registry.check(name, value, called=flag)
    return values | flags


def _toml(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
