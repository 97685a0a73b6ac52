"""`bareboat COMMAND`: parse the command line and run the command. The only place that prints errors."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import importlib
import io
import logging
import os
import shlex
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from bareboat.cli import argument_parser, common, console
from bareboat_base import __version__
from bareboat_base.errors import BareboatError, Terminated, UsageError
from bareboat_base.files import failures

if TYPE_CHECKING:
    from bareboat.config import Settings
    from bareboat_images.store import Store

#: Verbs by group, in the order in which new users need them. Only the requested module is imported: it has
#: `EXAMPLE`, `add(parser)` for its flags, and `run(context) -> int`. Studies have theirs in their package.
GROUPS = {
    "start": {
        "doctor": "show what this machine supports, and how to fix what is missing",
        "init": "write a job file for a script, or copy an example",
    },
    "run": {
        "plan": "show the decisions for a job, their reasons and the alternatives",
        "run": "run a job on this machine and record it",
        "submit": "submit a job",
        "status": "show runs, submitted and on this machine",
        "logs": "show a run's output",
        "wait": "wait for a run and exit with its exit code",
        "attach": "open a shell in the container of a running job",
        "cancel": "cancel pending or running runs",
        "rm": "remove runs that ended",
    },
    "images": {
        "image": "pull, capture, build, inspect, push, save and remove images",
    },
    "measure and reproduce": {
        "prove": "measure a container's cost for a job, compared with bare metal",
        "report": "show results of studies and sweeps; without a name, list runs",
        "lock": "write everything that made a run or a study to one file",
        "replay": "run a lock again and compare the results",
        "diff": "show what differs between two runs or locks",
    },
    "set up": {
        "config": "show settings, and manage stores and trust",
        "shim": "write programs that run other tools' command lines here",
    },
}
#: Processes that were interrupted, too, have this long to end.
_ENDING_S = 3.0
VERBS = {verb: meaning for verbs in GROUPS.values() for verb, meaning in verbs.items()}
OF_STUDIES = GROUPS["measure and reproduce"]

#: Verbs, and actions on images, that need a store.
_READING = {"status", "logs", "wait", "attach", "cancel", "rm", "report", "ls", "du", "show", "verify"}
#: What `bareboat` alone prints. The exit code is that of a mistake: a script may have lost the arguments.
FIRST = f"""\
Bareboat {__version__}: run any environment on any cluster, rootless, and measure
the container's cost.

  bareboat doctor                   show what works here and how to fix the rest
  bareboat run train.py             run a script in a container
  bareboat prove train.py           measure what the container costs
  bareboat submit -N 2 train.py     submit it to the cluster's scheduler

  try: bareboat --help   # lists all verbs; bareboat VERB --help: its flags"""


def main(argv: list[str]) -> int:
    """Run one command; return the exit code."""
    if "_ARGCOMPLETE" in os.environ:
        _module("completion").answer()
    if not argv:
        console.warn(FIRST)
        return UsageError.code
    console.log_to_stderr()
    store = options = settings = None
    try:
        options = _parse(argv)
        _check_surroundings()
        console.set_quiet(options.quiet)
        if options.verbose:
            is_brief = options.verb in ("plan", "doctor") and options.verbose == 1
            logging.getLogger("bareboat").setLevel(logging.INFO if is_brief else logging.DEBUG)
        if options.verb == "config" and options.action == "trust":  # it must work without trust in settings
            return int(_module("config.trust").agree(options))
        from bareboat.session.opening import open_store
        from bareboat_base import execute
        from bareboat_images.store import Store

        settings, damage = _settings(options)
        execute.set_patience(settings["tool_timeout_s"])
        store = Store(settings.store)  # for errors of the system meanwhile
        store = open_store(settings, os.environ, admits=options.verb != "config")
        if options.store is not None and _READING & {options.verb, vars(options).get("action")}:
            store.check_version(must_exist=options.verb != "config")
        progress = console.Progress(quiet=options.quiet, steps=not options.no_progress)
        context = common.Context(options, settings, store, progress)
        with execute.termination_raised():
            code: int = _module(options.verb).run(context)
        return code or damage
    except BareboatError as error:
        if options is not None:
            error = _module("given").placed(error, options, settings)
        console.show_error(error)
        return error.code
    except Terminated as error:
        _note_stop("terminated", error)
        return error.code
    except KeyboardInterrupt as error:
        _note_stop("stopped", error)
        # An interrupt in a text that Python executes, as while a dataclass is defined, makes `python -m`
        # end by SIGINT although it is caught here, until another text is executed.
        exec("")
        return 130
    except BrokenPipeError:
        # The reader closed the pipe. https://docs.python.org/3/library/signal.html
        console.discard(sys.stdout)
        return 141
    except Exception as error:
        return _show_unexpected(error, store)


def _settings(options: argparse.Namespace) -> tuple[Settings, int]:
    """The settings, and the exit code of the fault in them that `doctor` shows and goes on."""
    from bareboat import config

    here = failures.working_directory()
    try:
        return config.resolve(vars(options), folder=here, environment=os.environ), 0
    except BareboatError as error:
        if options.verb != "doctor":
            raise
        # Mistakes in flags, unlike those in files, are raised here.
        settings = config.resolve(vars(options), folder=None, environment=os.environ, with_site=False)
        console.show_error(error)
        return settings, error.code


def _show_unexpected(error: Exception, store: Store | None) -> int:
    """Show an error of the system in words, or that this is a bug; return the exit code."""
    from bareboat.session.opening import explain

    logging.getLogger("bareboat").info("", exc_info=True)
    explained = (store and isinstance(error, OSError) and store.explain(error)) or explain(error)
    if explained is not None:
        console.show_error(explained)
        return explained.code
    console.show_error(
        BareboatError(
            f"unexpected {type(error).__name__}: {error}",
            remedy="this is a bug in Bareboat: repeat with --verbose and report the output",
        )
    )
    return 70


def _check_surroundings() -> None:
    """Raise UsageError for what would make every engine fail, and is no fault of an engine."""
    mask = os.umask(0o077)
    os.umask(mask)
    if mask & 0o700:
        raise UsageError(
            f"the umask {mask:04o} takes new files away from you, too", remedy="umask 0022   # or 0077"
        )
    if os.environ.get("PATH") == "":
        raise UsageError(
            "PATH is empty: no program of this machine can be found", remedy="export PATH=/usr/bin:/bin"
        )


def entry() -> NoReturn:
    """Entry point of the console script."""
    console.open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Arguments and paths that are not UTF-8 are printed as their bytes. What the encoding cannot hold
        # (LC_ALL=C with Python's UTF-8 mode off) is escaped as in JSON.
        utf8 = sys.stdout.encoding.lower() == "utf-8"
        sys.stdout.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")
    _end(console.exit_code(main(sys.argv[1:])))


def _end(code: int) -> NoReturn:
    """End the process without the interpreter's cleanup, which takes longer than planning a job."""
    if threading.active_count() > 1:
        sys.exit(code)  # which waits for the others
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # which handles them
    os._exit(code)


def _note_stop(how: str, error: BaseException) -> None:
    """Note what goes on: a scheduler's runs, the notes of the exception, do not end with Bareboat."""
    from bareboat_base import execute

    left = list(getattr(error, "__notes__", ()))
    if not left:
        deadline = time.monotonic() + _ENDING_S
        with contextlib.suppress(KeyboardInterrupt, Terminated):
            while execute.descendants(os.getpid()) and time.monotonic() < deadline:
                time.sleep(0.05)
        shown = ",".join(map(str, execute.descendants(os.getpid())[:10]))
        running = f"processes that it started go on; to see them: ps -fp {shown}"
        left = [running if shown else "all its processes have ended"]
    console.warn(f"\nbareboat: {how}; {'; '.join(left)}")


def _parse(argv: list[str]) -> argparse.Namespace:
    """The arguments, with the job's command as `command`: what follows `--`, or a Python script with all that
    follows it."""
    at = argv.index("--") if "--" in argv else len(argv)
    own, rest = argv[:at], argv[at:]
    options = _parser(own).parse_args(own)
    script = getattr(options, "python_script", None)
    options.command = [*script, *rest] if script else rest[1:]
    if rest == ["--"] and not script:
        raise UsageError("no command after --", remedy=f"bareboat {options.verb} -- COMMAND")
    if options.command and options.verb not in ("init", "prove", "run", "plan", "submit"):
        verb = f"{options.verb} {getattr(options, 'action', None) or ''}".rstrip()
        remedy = shlex.join(["bareboat", *own])
        raise UsageError(f"{verb} does not take a command after --", remedy=remedy)
    return options


def _parser(argv: list[str]) -> argument_parser.Parser:
    parser = argument_parser.Parser(
        prog="bareboat",
        description="Run any environment on any cluster, rootless, and measure the container's cost.",
        formatter_class=functools.partial(
            argument_parser.VerbList, groups=GROUPS, width=argument_parser.help_width()
        ),
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bareboat {__version__}")
    parser.add_argument(
        "--completion",
        metavar="SHELL",
        choices=argument_parser.SHELLS,
        action=argument_parser.PrintCompletion,
        help="print the completion script of bash, zsh or fish, and exit",
    )
    verbs = parser.add_subparsers(title=argparse.SUPPRESS, dest="verb", metavar="VERB", required=True)
    asked, *inner = [word for word in argv if not word.startswith("-")] or [""]
    # The others are needed only for what is shown of all, and for errors.
    for name, meaning in [(asked, VERBS[asked])] if argv[:1] == [asked] and asked in VERBS else VERBS.items():
        verb = argument_parser.add_command(verbs, name, meaning)
        if name == asked:
            module = _module(name)
            verb.epilog = f"example:\n  {module.EXAMPLE}"
            module.add(verb, *(inner[:1] if name == "image" else ()))
    return parser


def _module(verb: str) -> Any:
    package = "bareboat_study" if verb in OF_STUDIES else "bareboat"
    return importlib.import_module(f"{package}.cli.{verb}")
