"""The entry point of every shim: `python -c … TOOL SHIM [--forced] ARGUMENTS`."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from bareboat_base.errors import BareboatError
from bareboat_base.files import failures
from bareboat_base.printable import one_line
from bareboat_shim import shims, tools
from bareboat_shim.table import Malformed, Mistake, Table, parse


def entry() -> NoReturn:
    """`sys.argv`: the tool, the shim's path, whether it replaces an installed tool, and the arguments."""
    gc.disable()  # it ends soon
    tool, shim, forced, *argv = sys.argv[1:]
    is_wrapper = tool in tools.WRAPPERS
    if (
        not is_wrapper
        and forced != shims.FORCED
        and (installed := shims.installed(tool, shim, os.environ)) is not None
    ):
        os.execv(installed, [tool, *argv])
    environment = dict(os.environ)
    # Scripts may unload all of PATH; what starts the container requires the system's programs.
    os.environ["PATH"] = ":".join(filter(None, (os.environ.get("PATH"), os.defpath)))
    finish(main(tool, shim, argv, environment, forced=forced == shims.FORCED))


def finish(code: int) -> NoReturn:
    """End this process as the command did; -N is signal N."""
    from bareboat_base import foreground

    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: it was closed
        try:
            stream.flush()
        except OSError:
            code = code or 1
    foreground.end_like(code)


class Form(NamedTuple):
    """How a tool's errors look, and its exit codes: for mistakes on the command line, and for all others.
    `is_quiet`: another process shows the same error."""

    prefix: str
    malformed: int
    fatal: int
    is_quiet: bool = False


def main(
    tool: str, shim: str, argv: Sequence[str], environment: Mapping[str, str], *, forced: bool = False
) -> int:
    """Run a tool's command line; return the exit code, -N for signal N. Errors have the tool's form.
    `forced`: the shim replaces an installed tool."""
    table = tools.table(tool)

    def run() -> int:
        words = list(argv)
        if tool in tools.WRAPPERS:
            return tools.wrap(tool, shim, words, environment, forced=forced)
        if _wants_help(words):
            print(help_text(table, tool))
            return 0
        if words in (["--version"], ["-V"], ["-v"]) and table.flag(words[0]) == "version":
            words = ["version", "--version"]
        _load_msgspec()
        return tools.run(tool, parse(table, words, environment), environment)

    prefix = f"{tool}: error: " if tool in tools.WRAPPERS else table.error
    return reported(run, Form(prefix, table.code, table.fatal))


def reported(run: Callable[[], int], form: Form) -> int:
    """Run a tool; return its exit code, or that of its error."""
    try:
        return run()
    except Mistake as error:
        code = form.malformed if isinstance(error, Malformed) else error.code or form.fatal
        return _failed(error.message, error.remedy, form, code)
    except BareboatError as error:
        shown = ": ".join(filter(None, (error.message, error.context)))
        return _failed(shown, error.remedy, form, form.fatal)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 141
        explained = failures.explain(error)
        return _failed(str(error) if explained is None else explained.message, "", form, form.fatal)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        bug = f"unexpected {type(error).__name__}: {error}"
        return _failed(bug, "report it: this is a bug in Bareboat", form, form.fatal)


def _load_msgspec() -> None:
    """Load msgspec without typing_extensions, which it uses where it is installed, but needs only before
    Python 3.11: that takes a tenth of a shim's time."""
    hidden = "typing_extensions" not in sys.modules
    if hidden:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("msgspec")
    finally:
        if hidden:
            del sys.modules["typing_extensions"]


def _wants_help(words: Sequence[str]) -> bool:
    if not words:
        return True
    return words[0] in ("help", "--help", "-h") or (len(words) == 2 and words[1] in ("--help", "-h"))


def help_text(table: Table, tool: str) -> str:
    """What the shim supports."""
    rows = [f"Usage: {tool} [FLAGS] COMMAND …   (a shim: Bareboat's containers)", "", "Commands:"]
    rows += [f"  {verb.name:<8} {verb.meaning}" for verb in table.verbs if not verb.refused]
    for verb in table.verbs:
        flags = [flag for flag in verb.flags if not flag.refused]
        if flags and verb.name not in ("run", "shell"):
            rows += ["", f"Flags of {verb.name}:"]
            for flag in flags:
                rows += [f"  {flag.written}", f"      {flag.meaning}"]
    return "\n".join(rows)


def _failed(message: str, remedy: str, form: Form, code: int) -> int:
    text = f"{form.prefix}{one_line(message)}"
    if remedy:
        text += f"\n  try: {remedy}"
    if not form.is_quiet:
        print(text, file=sys.stderr)
    return code
