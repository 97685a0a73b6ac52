"""`bareboat VERB`: reads the command line, runs the verb, and alone turns errors into messages."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import sys
from typing import Any

from bareboat import __version__
from bareboat.cli import command_line, common, console
from bareboat.errors import BareboatError, Terminated, UsageError
from bareboat.files import failures

#: In the order in which a newcomer meets them. Only the verb asked for is imported: it has `EXAMPLE`,
#: `add(parser)` for its flags, and `run(context) -> int`.
VERBS = {
    "doctor": "what this machine can do, what blocks what, and the command that mends it",
    "capture": "take the environment as it stands into an OCI image, without Docker",
    "image": "pull, look at, push, carry and remove images",
    "plan": "the decisions for a job, with their reasons and the alternatives",
    "run": "run a job here, and keep a record of it",
    "submit": "hand a job to the cluster's queue",
    "status": "how the runs stand that were handed to a queue",
    "logs": "what a run printed, or prints",
    "wait": "wait for a run's end, and end with its exit code",
    "cancel": "end runs that wait or run",
    "attach": "open a shell in the container of a running job",
    "site": "this cluster's settings, once for all jobs, in one file to share",
    "prove": "measure what the container costs a job, against bare metal",
    "report": "what studies found, as text and as one HTML page; without a name, the list of runs",
    "config": "every setting, its value, and where it came from",
    "store": "where images and runs are kept, and who may use it",
    "trust": "believe a project's settings, or a place that others may write to",
}


def main(argv: list[str]) -> int:
    """Run one verb; return the exit code."""
    argv, command = _split(argv)
    console.log_to_stderr()
    store = None
    try:
        command_line.check_empty(argv)
        _check_order(argv)
        options = _parser(argv).parse_args(argv)
        options.command = command
        if options.verbose:
            logging.getLogger("bareboat").setLevel(logging.DEBUG)
        if command and options.verb not in ("prove", "run", "plan", "submit"):
            raise UsageError(
                f"{options.verb} takes no command after --", remedy=f"bareboat {options.verb} --help"
            )
        if options.verb == "trust":  # it is there for those whose settings are not believed
            return int(_module("trust").run(options))
        from bareboat import access, config, execute
        from bareboat.store import Store

        ask = console.agrees if console.is_interactive() and not options.json else None
        damage = 0
        here = failures.working_directory()
        try:
            settings = config.resolve(vars(options), folder=here, environment=os.environ, ask=ask)
        except BareboatError as error:
            if options.verb != "doctor":  # which shows what is wrong here: this is a part of it
                raise
            # A flag's mistake is not one of a file, and is raised here.
            settings = config.resolve(vars(options), folder=None, environment=os.environ, with_site=False)
            console.show_error(error)
            damage = error.code
        execute.set_patience(settings["tool_timeout_s"])
        chosen = settings.settings["store"].source
        own = settings.store
        store = Store(settings.store)
        if options.verb not in ("config", "store"):
            own = access.admit(settings.store, os.environ, lambda: config.default_store(os.environ))
        store = Store(settings.store, chosen_because=chosen, own=own)
        context = common.Context(options, settings, store, console.Progress(quiet=options.quiet))
        with execute.termination_raised():
            code: int = _module(options.verb).run(context)
        return code or damage
    except BareboatError as error:
        console.show_error(error)
        return error.code
    except Terminated as error:
        _tell_stop("told to end", error)
        return error.code
    except KeyboardInterrupt as error:
        _tell_stop("stopped", error)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone: nobody is left to tell. https://docs.python.org/3/library/signal.html
        console.discard(sys.stdout)
        return 141
    except Exception as error:
        logging.getLogger("bareboat").debug("", exc_info=True)
        explained = (store and isinstance(error, OSError) and store.explain(error)) or failures.explain(error)
        if explained is not None:
            console.show_error(explained)
            return explained.code
        console.show_error(
            BareboatError(
                f"unexpected {type(error).__name__}: {error}",
                remedy="repeat with --verbose, and report what it prints: this is a bug in Bareboat",
            )
        )
        return 70


def entry() -> None:
    """The console script."""
    console.open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An argument or a path that is not UTF-8 is printed as the bytes that it is. What another encoding
        # (of LC_ALL=C, with Python's UTF-8 mode off) cannot take is escaped as JSON escapes it.
        utf8 = sys.stdout.encoding.lower() == "utf-8"
        sys.stdout.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")
    sys.exit(console.exit_code(main(sys.argv[1:])))


def _tell_stop(how: str, error: BaseException) -> None:
    """A scheduler's runs, whose names are the notes of the exception, do not end with Bareboat."""
    left = getattr(error, "__notes__", None) or ["everything it had started has ended"]
    console.note(f"\nbareboat: {how}; {'; '.join(left)}")


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first `--`, and the command after it."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _check_order(argv: list[str]) -> None:
    """A flag of a verb's before it would be told of as an unknown flag, or its value as an unknown verb."""
    verb = next((word for word in argv if word in VERBS), None)
    if verb and argv[0].startswith("-") and argv[0] not in ("-h", "--help", "--version"):
        raise UsageError(f"{argv[0]} stands before the verb", remedy=f"bareboat {verb} {argv[0]} …")


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    parser = command_line.Parser(
        prog="bareboat",
        description="Run any environment on any cluster, rootless, and prove what the container costs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bareboat {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    asked = next((word for word in argv if not word.startswith("-")), None)
    for name, meaning in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=meaning,
            description=meaning[:1].upper() + meaning[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name == asked:
            module = _module(name)
            verb.epilog = f"example:\n  {module.EXAMPLE}"
            module.add(verb)
    return parser


def _module(verb: str) -> Any:
    return importlib.import_module(f"bareboat.cli.{verb}")
