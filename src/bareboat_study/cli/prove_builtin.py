"""bareboat prove NAME: the built-in studies."""

from __future__ import annotations

import os
from pathlib import Path

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted


def show_list(context: Context) -> int:
    """Print the built-in studies."""
    from bareboat_study import builtin

    if context.options.json:
        rows = [
            {"name": name, "measures": text, "scales": builtin.scales(name)}
            for name, text in builtin.NAMES.items()
        ]
        console.result_json(rows)
        return 0
    for name, text in builtin.NAMES.items():
        console.result(f"{name:<12} {text}")
    console.result("\nbareboat prove NAME [--scale laptop|cluster|paper]")
    return 0


def resolve(context: Context) -> bool:
    """Whether FILE names a built-in study. Its files are then in the current directory, and FILE is its study
    file.

    With --dry-run nothing is written.
    """
    from bareboat_study import builtin

    options = context.options
    name = options.file
    if options.command and options.scale is None:
        return False  # reported with the command
    if name not in builtin.NAMES or os.path.isfile(name) or name in context.store.runs():
        if options.scale is not None:
            raise UsageError(
                "--scale is for built-in studies" + (f", and {name} is not one" if name else ""),
                remedy=f"bareboat prove {next(iter(builtin.NAMES))} --scale {options.scale}",
            )
        return False
    study = builtin.packaged(name, options.scale or builtin.SCALES[0])
    if study.scale not in (there := builtin.scales(name)):
        raise UsageError(
            f"the study {name} has no scale '{study.scale}'",
            remedy=f"bareboat prove {name} --scale {there[0]}   # or {', '.join(there[1:])}",
        )
    if not options.dry_run:
        study, written = builtin.copied(study, Path(name))
        if written and not options.quiet:
            console.note(f"copied the study to ./{name}: its README.md describes it")
    options.file = str(study.file)
    return True


def read_published(context: Context, *, builtin: bool) -> str | None:
    """The publication's figures, as published.csv beside a study file has them; None: there is none, and the
    study is not a built-in one.

    Raises UsageError for a table with other columns, before anything is measured.
    """
    from bareboat_base.toml import TomlFile
    from bareboat_study import published, studyfile

    options = context.options
    if not options.file or options.command or not os.path.isfile(options.file):
        return None
    if not studyfile.is_study(TomlFile(Path(options.file))):
        return None
    path = Path(context.options.file).parent / published.NAME
    try:
        text = untrusted.read_text(path)
    except FileNotFoundError:
        return published.EMPTY if builtin else None
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    published.read(text, str(path))
    return text
