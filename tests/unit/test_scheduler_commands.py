"""Every command line and directive that a scheduler's module can make, parsed by the real tool's options.

`tests/data/schedulers/commands` has them: per tool the options without and with values, as its help, its
manual or its source lists them.
"""

import ast
import inspect
import os
import re
import shlex
import stat
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import make_job, make_site
from tools import completed_bytes

from bareboat import bash, registry
from bareboat.launchers import srun
from bareboat.model import Job, Outcome, Refusal, SchedulerFacts, Scheduling, Site, Topology
from bareboat.model.sweep import Sweep
from bareboat.schedulers import Scheduler
from bareboat.schedulers.requests import quoted

COMMANDS = Path(__file__).parents[1] / "data" / "schedulers" / "commands"
#: What follows their first argument is another command with options of its own.
STARTERS = frozenset({
    "sbatch", "srun", "qrsh", "pbs_tmrsh", "pbsdsh", "flux run", "flux batch", "flux alloc",
    "flux exec", "flux proxy",
})  # fmt: skip
#: Name of the data -> scheduler, and PBS's flavour.
FLAVOURS = {
    "slurm": ("slurm", ""),
    "gridengine": ("gridengine", ""),
    "pbs": ("pbs", "pro"),
    "torque": ("pbs", "torque"),
    "torque-on-slurm": ("pbs", "front"),
    "flux": ("flux", ""),
}
PREFIX = {"slurm": "#SBATCH ", "gridengine": "#$ ", "pbs": "#PBS ", "flux": "#flux: "}
SUBMITS = {"slurm": "sbatch", "gridengine": "qsub", "pbs": "qsub", "flux": "flux batch"}


class Tool:
    """A tool's options. `style`: "long", `--name=value` and `-n value`; "words", `-name value`; "letters",
    `-n value` and `-ab`."""

    def __init__(self, name: str, style: str, table: Mapping[str, str]) -> None:
        self.name, self.style = name, style
        self.kinds = {
            option: kind
            for kind in ("without", "value", "optional", "pair")
            for option in table.get(kind, "").split()
        }

    def parse(self, words: Sequence[str]) -> list[str]:
        """The arguments that are not options. Raises ValueError for an unknown option, and for a missing or
        needless value."""
        rest = list(words)
        arguments: list[str] = []
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or word == "-":
                arguments.append(word)
                if self.name in STARTERS:
                    return [*arguments, *rest]
                continue
            if word == "--":
                return [*arguments, *rest]
            self._option(word, rest)
        return arguments

    def _option(self, word: str, rest: list[str]) -> None:
        name, equals, _ = word.partition("=")
        kind = self.kinds.get(word if self.style == "words" else name)
        if kind is None and self.style != "words" and not word.startswith("--"):
            self._letters(word, rest)
            return
        if kind is None:
            raise ValueError(f"{self.name} has no option {word}")
        if kind == "without" and equals:
            raise ValueError(f"{self.name} {name} has no value: {word}")
        for _ in range({"value": 0 if equals else 1, "pair": 2}.get(kind, 0)):
            if not rest:
                raise ValueError(f"{self.name} {word} needs a value")
            rest.pop(0)
        if kind == "optional" and self.style == "words" and rest and not rest[0].startswith("-"):
            rest.pop(0)

    def _letters(self, word: str, rest: list[str]) -> None:
        for at, letter in enumerate(word[1:], 1):
            kind = self.kinds.get(f"-{letter}")
            if kind is None:
                raise ValueError(f"{self.name} has no option -{letter}: {word}")
            if kind == "value":
                if at == len(word) - 1:
                    rest.pop(0)
                return


class Grammar:
    def __init__(self, name: str) -> None:
        tables = tomllib.loads((COMMANDS / f"{name}.toml").read_text())
        style = tables.pop("style")
        self.tools = {tool: Tool(tool, style, table) for tool, table in tables.items()}

    def parse(self, words: Sequence[str]) -> tuple[str, list[str]]:
        """The tool and its arguments."""
        tool, *rest = words
        while tool == "flux" and rest[0].startswith("-"):
            self.tools[tool].parse([rest.pop(0)])
        while f"{tool} {rest[0] if rest else ''}" in {
            " ".join(name.split()[: tool.count(" ") + 2]) for name in self.tools
        }:
            tool += f" {rest.pop(0)}"
        if tool not in self.tools:
            raise ValueError(f"unknown command: {shlex.join(words)}")
        return tool, self.tools[tool].parse(rest)


def jobs() -> Iterator[Job]:
    """Jobs that use each key, several of them, and values that a shell would split."""
    keys: tuple[dict[str, Any], ...] = (
        {}, {"partition": "p"}, {"account": "a"}, {"qos": "q"}, {"reservation": "r"}, {"constraint": "c"},
        {"exclusive": True}, {"requeue": False}, {"mem_per_node_bytes": 2**30}, {"after": ("1", "2")},
        {"warning_s": 60}, {"partition": "p", "after": ("1",), "exclusive": True},
        {"partition": "a b"}, {"account": "my project"}, {"account": "ada's \\ # 1"}, {"qos": 'the "q"'},
        {"reservation": "r s"}, {"constraint": "c and not d"},
    )  # fmt: skip
    sweep = Sweep(names=("x",), points=(("1",), ("2",)))
    for topology in (Topology(), Topology(nodes=2, ranks_per_node=2, cpus_per_rank=2, gpus_per_rank=1)):
        for key in keys:
            yield make_job(topology=topology, walltime_s=90, scheduling=Scheduling(**key))
    yield make_job(environment_from=("TOKEN",))
    yield make_job(sweep=sweep)
    yield make_job(sweep=msgspec.structs.replace(sweep, at_once=1), scheduling=Scheduling(requeue=False))
    yield make_job(sweep=Sweep(names=("x",), points=(("1",),)))


def site_of(name: str) -> Site:
    scheduler, flavour = FLAVOURS[name]
    settings = {"flavour": flavour, "pe mpi": "1", "pe mpi4": "4", "gpu": "gpu"}
    return make_site(schedulers=(SchedulerFacts(name=scheduler, version="1", settings=settings),))


class Recorder:
    """A machine with every tool, whose output is empty or this text."""

    user = "ada"

    def __init__(self, stdout: Mapping[str, str], *, hidden: str) -> None:
        self.stdout, self.hidden = stdout, hidden
        self.commands: list[Sequence[str]] = []

    def which(self, name: str) -> str | None:
        return None if name == self.hidden else f"/usr/bin/{name}"

    def run(self, argv: Sequence[str]) -> Outcome:
        self.commands.append(argv)
        text = self.stdout.get(" ".join(argv[:2]), "")
        return Outcome(argv=tuple(argv), exit_code=0, stdout=text, stderr="", wall_s=0.0)

    def run_all(self, questions: Sequence[Sequence[str]]) -> Sequence[Outcome]:
        return [self.run(argv) for argv in questions]


VERSIONS = {"pbs": "pbs_version = 23.06.06\n", "torque": "Version: 6.1.3\n", "torque-on-slurm": "usage\n"}


def made(name: str, scheduler: Scheduler) -> Iterator[Sequence[str]]:
    """The commands that its methods return."""
    job_id, element = ("ƒ1", "ƒ2") if name == "flux" else ("17", scheduler.element("17", 0))
    if name in ("pbs", "torque"):
        job_id, element = "17.server", scheduler.element("17[].server", 0)
    yield scheduler.submit("job.sh", "output.log")
    yield scheduler.cancel(job_id)
    yield from (query.argv for ids in ([job_id], [job_id, element]) for query in scheduler.queries(ids))
    yield from (shlex.split(text) for text in (scheduler.PING, scheduler.LIST) if text)
    if scheduler.CLUSTERS is not None:
        yield scheduler.CLUSTERS.argv
    for words in (None, ("bash", "shell.sh")):
        attach = scheduler.attach(job_id, words)
        if attach is not None:
            yield attach
    outputs = {"qsub --version": VERSIONS.get(name, ""), "qconf -spl": "mpi\n", "qconf -sql": "all.q\n"}
    machine = Recorder(outputs, hidden="qconf" if scheduler.NAME == "pbs" else "")
    assert scheduler.probe(machine) is not None
    yield from machine.commands


def remedies(scheduler: Scheduler, grammar: Grammar) -> Iterator[Sequence[str]]:
    """The commands in its module's texts, up to a remark."""
    tools = {tool.split(" ", maxsplit=1)[0] for tool in grammar.tools}
    module = inspect.getmodule(type(scheduler))
    assert module is not None
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        text = node.value.partition("   #")[0].partition(";")[0]
        is_command = re.match(rf"({'|'.join(map(re.escape, tools))}) (-|list|show|queue|resource|jobs)", text)
        if is_command and text.count(" ") < 8:
            yield shlex.split(text)


def started(scheduler: Scheduler, tmp_path: Path, tools: Sequence[str], **variables: str) -> list[list[str]]:
    """The commands that its bash functions start."""
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir(exist_ok=True)
    for tool in tools:
        path = bin_dir / tool
        path.write_text(
            '#!/bin/bash\nprintf "%s\\0" "${0##*/}" "$@" END >> "$LOG"\n[ "${0##*/}" != qrerun ]\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    hosts = tmp_path / "hosts"
    hosts.write_text("c1\nc2\n")
    script = (
        "has() { false; }\nfeatures=' '\nrun_limited() { \"$@\"; }\n"
        + bash.piece("bareboat.render", "runtime/common")
        + scheduler.snippet()
        + '\nfeatures=" "\n! declare -F begin_scheduler > /dev/null || begin_scheduler\n'
        "mapfile -t hosts < <(hosts)\nhosts=(c1 c2)\n"
        'on_each_node "$script" --node RUN CONTROL\nagain RUN > /dev/null\non_host c2 true\n'
        "! declare -F find_lost > /dev/null || find_lost\n"
    )
    environment = {
        "PATH": f"{bin_dir}:/usr/bin:/bin", "LOG": str(log), "BAREBOAT_NODES": "2", "BAREBOAT_JOB": "17",
        "BAREBOAT_CONTROL": str(tmp_path / "run" / "control"), "script": str(tmp_path / "none.sh"),
        "BAREBOAT_CPUS_PER_TASK": "2", "PE_HOSTFILE": str(hosts), "PBS_NODEFILE": str(hosts),
        "LSB_DJOB_HOSTFILE": str(hosts), **variables,
    }  # fmt: skip
    (tmp_path / "run" / "control").mkdir(parents=True, exist_ok=True)
    completed_bytes(["bash", "-c", script], env=environment, timeout=20, stdin=subprocess.DEVNULL)
    found = os.fsdecode(log.read_bytes()).split("END\0") if log.exists() else []
    return [command.rstrip("\0").split("\0") for command in found if command]


@pytest.mark.parametrize("name", FLAVOURS)
def test_commands_have_only_options_of_the_tool(name: str) -> None:
    scheduler, grammar = registry.scheduler(FLAVOURS[name][0]), Grammar(name)
    commands = [*made(name, scheduler), *remedies(scheduler, grammar)]
    assert len(commands) > 8
    others = {"bash"}
    if name == "torque-on-slurm":  # the probe finds out which PBS it is, and its server is Slurm's
        others |= {"qmgr", "pbsnodes", "sinfo"}
        commands = [words for words in commands if words[1] not in ("--version", "-B")]
    for words in commands:
        if words[0] not in others:
            grammar.parse(words)


@pytest.mark.parametrize("name", FLAVOURS)
def test_directives_have_only_options_of_the_tool(name: str) -> None:
    scheduler, grammar, site = registry.scheduler(FLAVOURS[name][0]), Grammar(name), site_of(name)
    tool = grammar.tools[SUBMITS[scheduler.NAME]]
    slurm = Grammar("slurm").tools["sbatch"]
    seen = 0
    for job in jobs():
        if isinstance(scheduler.objection(job, site), Refusal):
            continue
        for line in scheduler.directives(job, site):
            if line.startswith("#SBATCH "):
                left = slurm.parse(shlex.split(line.removeprefix("#SBATCH ")))
            else:
                assert line.startswith(PREFIX[scheduler.NAME]), line
                left = tool.parse(shlex.split(line.removeprefix(PREFIX[scheduler.NAME])))
            assert left == [], line
            seen += 1
    assert seen > 60


@pytest.mark.parametrize(
    ("name", "tools", "variables"),
    [
        ("slurm", "srun scontrol", {"SLURM_JOB_NODELIST": "c[1-2]"}),
        ("gridengine", "qrsh qsub", {"JOB_ID": "17", "SGE_TASK_ID": "3"}),
        ("pbs", "pbs_tmrsh qsub qrerun", {"PBS_JOBID": "17.s", "PBS_ARRAY_INDEX": "3"}),
        ("pbs", "pbsdsh qsub qrerun", {"PBS_JOBID": "17.s"}),
        ("torque", "pbsdsh qsub qrerun", {"PBS_JOBID": "17.s", "PBS_ARRAYID": "3"}),
        ("slurm", "srun scontrol", {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "c[1-2]", "in": "pbs"}),
        ("flux", "flux", {}),
    ],
)
def test_the_script_starts_only_options_of_the_tool(
    name: str, tools: str, variables: dict[str, str], tmp_path: Path
) -> None:
    grammar = Grammar(name)
    scheduler = registry.scheduler(variables.pop("in", FLAVOURS[name][0]))
    commands = started(scheduler, tmp_path, tools.split(), **variables)
    assert {words[0] for words in commands} >= {tools.split()[0]}
    for words in commands:
        grammar.parse(words)


def test_srun_of_the_launcher() -> None:
    from bareboat.mpi.start_methods import NO_PLUGIN, Rung, Step

    step = Step(rung=Rung.DIRECT, reason="", plugin=NO_PLUGIN)
    for job in (make_job(), make_job(topology=Topology(nodes=2, ranks_per_node=2))):
        Grammar("slurm").parse([str(word) for word in (*srun.words(step, job), "true")])


@pytest.mark.parametrize(
    "text", ["plain", "two words", "it's", 'the "big" one', """it's the "big" one""", "a#b"]
)
def test_a_directive_s_value_is_one_word(text: str) -> None:
    assert shlex.split(f"--account={quoted(text)} rest") == [f"--account={text}", "rest"]
