"""`fairlead VERB`: reads the command line, runs the verb, and alone turns errors into messages."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from pathlib import Path

from fairlead import __version__, config, execute
from fairlead.cli import common, console
from fairlead.errors import FairleadError, UsageError
from fairlead.store import Store

#: In the order in which a newcomer meets them. Each module has `add(verbs)` and `run(context) -> int`.
VERBS = ("doctor", "capture", "plan", "run", "prove", "report", "config")


def main(argv: list[str]) -> int:
    """Run one verb; return the exit code."""
    argv, command = _split(argv)
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    try:
        options = _parser().parse_args(argv)
        options.command = command
        if options.verbose:
            logging.getLogger("fairlead").setLevel(logging.DEBUG)
        if command and options.verb not in ("prove", "run", "plan"):
            raise UsageError(
                f"{options.verb} takes no command after --", remedy=f"fairlead {options.verb} --help"
            )
        settings = config.resolve(vars(options), folder=Path.cwd(), environment=os.environ)
        context = common.Context(
            options, settings, Store(settings.store), console.Progress(quiet=options.quiet)
        )
        with execute.termination_raised():
            code: int = importlib.import_module(f"fairlead.cli.{options.verb}").run(context)
        return code
    except FairleadError as error:
        console.show_error(error)
        return error.code
    except execute.Terminated as error:
        console.note("\nfairlead: told to end; everything it had started has ended")
        return error.code
    except KeyboardInterrupt:
        console.note("\nfairlead: stopped; everything it had started has ended")
        return 130
    except BrokenPipeError:
        # The reader of our output has gone: nobody is left to tell. https://docs.python.org/3/library/signal.html
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        logging.getLogger("fairlead").debug("", exc_info=True)
        console.show_error(
            FairleadError(
                f"unexpected {type(error).__name__}: {error}",
                remedy="repeat with --verbose, and report what it prints: this is a bug in Fairlead",
            )
        )
        return 70


def entry() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first `--`, and the command after it."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


class _Parser(argparse.ArgumentParser):
    """Errors of the command line are Fairlead's errors."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(message, remedy=f"{self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fairlead",
        description="Run any environment on any cluster, rootless, and prove what the container costs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fairlead {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        importlib.import_module(f"fairlead.cli.{verb}").add(verbs)
    return parser
