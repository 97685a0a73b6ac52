"""Flags shared by several commands."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin

from bareboat.cli import console
from bareboat.cli.argument_parser import add_command, amount, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="show all reasons of a plan, and each command that runs (plan, doctor: -vv)",
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


def add_key(parser: argparse._ActionsContainer, name: str) -> None:
    """Add the flag of a key of the job."""
    from bareboat.model.job import KEYS  # here, because `bareboat --help` imports this module

    key = KEYS[name]
    flag = key.flags[-1]
    more: dict[str, Any] = {"metavar": key.value}
    if key.values:
        more = {"choices": key.values}
    elif key.range is not None:
        more["type"] = (amount if key.range.unit else number)(flag, name)
    elif key.path:
        more["type"] = lambda text: os.path.abspath(text) if "/" in text else text
    elif key.type is bool:
        more = {"action": "store_true"}
    elif get_origin(key.type) is tuple:
        more["action"] = "append"
    parser.add_argument(*key.flags, dest=key.dest, help=key.help, **more)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the engine and the launcher."""
    group = parser.add_argument_group("engine and launcher")
    add_key(group, "engine")
    add_key(group, "launcher")


#: The keys of the flags of `add_scheduling`.
_SCHEDULING = (
    "scheduler", "scheduling.partition", "scheduling.account", "scheduling.qos", "scheduling.reservation",
    "scheduling.constraint", "delivery", "node_scratch",
)  # fmt: skip
SCHEDULING = tuple(name.rpartition(".")[2] for name in _SCHEDULING)


def add_queue(parser: argparse.ArgumentParser) -> None:
    """Add the scheduler flags that most jobs need."""
    add_scheduling(parser, _SCHEDULING[1:3])


def add_scheduling(parser: argparse.ArgumentParser, names: Sequence[str] = _SCHEDULING) -> None:
    """Add the scheduler flags; each overrides the job file."""
    group = parser.add_argument_group("scheduler")
    for name in names:
        add_key(group, name)


def add_at_once(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at-once",
        metavar="N",
        type=number("--at-once"),
        help="run at most N sweep points at a time",
    )


def add_trust(parser: argparse._ActionsContainer) -> None:
    """Add the flags that decide which images are accepted."""
    parser.add_argument(
        "--require-digest",
        action="store_true",
        default=None,
        help="reject image references without a digest",
    )
    add_policy(parser)


def add_policy(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--policy", metavar="FILE", help="signature policy, in the format of containers-policy.json(5)"
    )


class _Set(argparse.Action):
    """--set KEY=VALUE: the setting, where the key is one, so that it goes over the environment's; else kept
    for the reader of the job."""

    def __call__(
        self, _parser: argparse.ArgumentParser, options: argparse.Namespace, values: Any, _flag: Any = None
    ) -> None:
        from bareboat import jobfile, registry
        from bareboat.config import KNOWN
        from bareboat.model.job import KEYS
        from bareboat_base import ranges

        keys, value = jobfile.assigned(values)
        key = KEYS.get(".".join(keys))
        is_here = keys != ("scheduler",) or hasattr(options, "scheduler")
        if key is not None and key.is_setting and is_here and not isinstance(value, list):
            called = f"--set {values.partition('=')[0].strip()}"
            if isinstance(value, str) and key.range is not None:
                value = ranges.parse(".".join(keys), value, name=called)
            KNOWN[keys[-1]].check(keys[-1], value, called=called)
            if keys[-1] in ("engine", "launcher", "scheduler"):
                registry.check(keys[-1], value, called=called)
            setattr(options, keys[-1], value)
        else:
            options.assignments = [*options.assignments, values]


def add_environment(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the environment or image that a job runs in."""
    group = parser.add_argument_group("environment and image")
    for name in ("capture.python", "writable", "form"):
        add_key(group, name)
    add_trust(group)


#: Keys and tables whose flags have a place of their own.
_PLACED = ("image", "environment_from", "writable", "form", "topology", "capture", "prove")


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the job, and the flags that go over it."""
    from bareboat.model.job import KEYS

    parser.add_argument(
        "file",
        metavar="FILE | SCRIPT.py … | -- COMMAND",
        nargs="?",
        help="job file (TOML), a Python script with its arguments, or a command after --",
    )
    group = parser.add_argument_group("job")
    add_key(group, "image")
    add_key(group, "environment_from")
    ranks, gpus = group.add_mutually_exclusive_group(), group.add_mutually_exclusive_group()
    add_key(group, "topology.nodes")
    add_key(ranks, "topology.ranks_per_node")
    _add_total(ranks, ("-n", "--ntasks"), "processes in all, the same number on each node")
    add_key(group, "topology.cpus_per_rank")
    add_key(gpus, "topology.gpus_per_rank")
    _add_total(gpus, ("--gpus",), "GPUs in all, the same number for each process")
    for name, key in KEYS.items():
        if key.flags and not key.is_setting and name.partition(".")[0] not in _PLACED:
            add_key(group, name)
    group.add_argument(
        "--set",
        dest="assignments",
        metavar="KEY=VALUE",
        action=_Set,
        default=[],
        help="set any key of a job file, such as topology.nodes=2; repeatable",
    )


def _add_total(group: argparse._ActionsContainer, flags: tuple[str, ...], meaning: str) -> None:
    group.add_argument(*flags, metavar="N", type=number(flags[-1]), help=meaning)
