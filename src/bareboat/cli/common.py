"""Flags shared by several commands."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from bareboat.cli import console
from bareboat.cli.command_line import add_command, amount, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # `bareboat --help` builds every parser and must stay fast on login nodes.
    from bareboat.config import Settings
    from bareboat.session import Session
    from bareboat_images.store import Store


class Context(NamedTuple):
    """The arguments of every command."""

    options: argparse.Namespace
    settings: Settings
    store: Store
    progress: console.Progress

    @property
    def _looks(self) -> bool:
        """Whether the verb only shows what it would do."""
        if self.options.verb == "plan":
            return not self.options.prepare
        return bool(getattr(self.options, "dry_run", False))

    @property
    def session(self) -> Session:
        from bareboat.session import Session

        return Session(
            store=self.store,
            settings=self.settings,
            reporter=self.progress,
            environment=os.environ,
            looks=self._looks,
        )


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--store", metavar="DIR", help="directory of images, runs and records")
    parser.add_argument("-q", "--quiet", action="store_true", help="show neither progress nor notes")
    parser.add_argument("--no-progress", action="store_true", help="do not show progress")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show each command that runs, and all reasons of a plan"
    )


def add_actions(
    parser: argparse.ArgumentParser,
    meanings: Mapping[str, str],
    module: Callable[[str], Any],
    requested: str | None,
    *,
    required: bool = True,
) -> None:
    """Add a verb's actions. `requested`: the only one whose flags are needed; None: those of all. If the
    verb works without an action, the flags of every command are accepted before the action, too."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=required)
    for name, meaning in meanings.items():
        action = add_command(actions, name, meaning)
        if requested in (None, name):
            action.epilog = f"example:\n  {module(name).EXAMPLE}"
            module(name).add(action)
        for flag in () if required else action._actions:
            if flag.dest in _COMMON:  # else its default would replace the value before the action
                flag.default = argparse.SUPPRESS


_COMMON = ("json", "store", "quiet", "no_progress", "verbose")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the engine and the launcher."""
    parser.add_argument(
        "--engine",
        metavar="NAME[:MODE]",
        help="engine to use, optionally in a given mode; native: no container",
    )
    parser.add_argument("--launcher", metavar="NAME", help="launcher that starts the ranks")


def add_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--writable", action="store_true", help="let the command write anywhere; changes are discarded"
    )
    parser.add_argument(
        "--form",
        choices=("tree", "file"),
        help="image as a directory, or as one file (SIF, squashfs) where the engine supports it",
    )


#: The flags of `add_scheduling`.
SCHEDULING = (
    "scheduler", "partition", "account", "qos", "reservation", "constraint", "delivery", "node_scratch",
)  # fmt: skip


def add_queue(parser: argparse.ArgumentParser) -> None:
    """Add the scheduler flags that most jobs need."""
    parser.add_argument("-p", "--partition", metavar="NAME", help="partition or queue")
    parser.add_argument("-A", "--account", metavar="NAME", help="account or project to charge")


def add_scheduling(parser: argparse.ArgumentParser) -> None:
    """Add the scheduler flags; each overrides the job file."""
    parser.add_argument("--scheduler", metavar="NAME", help="submit to this scheduler")
    add_queue(parser)
    for name, meaning in (
        ("qos", "quality of service"),
        ("reservation", "reservation to run in"),
        ("constraint", "required node features"),
    ):
        parser.add_argument(f"--{name}", metavar="NAME", help=meaning)
    parser.add_argument(
        "--delivery",
        choices=("auto", "shared", "node"),
        help="read the image from the shared store, or copy it to node-local storage",
    )
    parser.add_argument(
        "--node-scratch", metavar="DIR", help="node-local directory for image copies (default: /tmp)"
    )


def add_at_once(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at-once",
        metavar="N",
        type=number("--at-once"),
        help="run at most N sweep points at a time",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the flags that decide which images are accepted."""
    parser.add_argument(
        "--require-digest",
        action="store_true",
        default=None,
        help="reject image references without a digest",
    )
    add_policy(parser)


def add_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy", metavar="FILE", help="signature policy, in the format of containers-policy.json(5)"
    )


def add_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="Python interpreter of the environment to capture (default: the active one)",
    )


def add_environment(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the environment or image that a job runs in."""
    add_python(parser)
    add_root(parser)
    add_trust(parser)


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the job, and the flags that go over it."""
    parser.add_argument(
        "file",
        metavar="FILE | SCRIPT.py … | -- COMMAND",
        nargs="?",
        help="job file (TOML), a Python script with its arguments, or a command after --",
    )
    parser.add_argument(
        "--image",
        metavar="REF",
        help="image to run in; without FILE or a command, run the image's own command",
    )
    parser.add_argument(
        "--env-from",
        metavar="NAME",
        action="append",
        help="pass this environment variable to the job; its value is never stored",
    )
    ranks, gpus = parser.add_mutually_exclusive_group(), parser.add_mutually_exclusive_group()
    for place, flags, meaning in (
        (parser, ("-N", "--nodes"), "number of nodes"),
        (ranks, ("--nproc-per-node", "--ranks-per-node"), "processes on each node"),
        (ranks, ("-n", "--ntasks"), "processes in all, the same number on each node"),
        (parser, ("--cpus-per-rank",), "processor cores of each process"),
        (gpus, ("--gpus-per-rank",), "GPUs of each process"),
        (gpus, ("--gpus",), "GPUs in all, the same number for each process"),
    ):
        name = flags[-1][2:].replace("-", "_")
        key = f"topology.{name}" if flags[-1] not in ("--ntasks", "--gpus") else ""
        parse = number(flags[-1], key)
        place.add_argument(*flags, dest=name, metavar="N", type=parse, help=meaning)
    parser.add_argument(
        "-t",
        "--time",
        metavar="TIME",
        type=amount("--time", "walltime_s"),
        help="time limit, such as 2h30m or 1-12:00:00",
    )
    parser.add_argument(
        "--notify",
        metavar="HOW",
        help="when the run ended: mail (from the scheduler), a mail address, or a command",
    )
    parser.add_argument(
        "--mem",
        metavar="SIZE",
        type=amount("--mem", "scheduling.mem_per_node_bytes"),
        help="memory on each node, such as 16GiB",
    )
