"""What each command of a script is: a part of the environment, one that only prints, the job's program, or a
line that the job file does not have. Every line is one of these."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from bareboat_adopt import containers, layers, topology
from bareboat_adopt.bash import Command, Statement
from bareboat_adopt.layers import Launch
from bareboat_adopt.programs import OF_RANKS, OTHERS, PRINTS, SEARCHED
from bareboat_adopt.reading import Reading, Value
from bareboat_adopt.values import Scope, Unclear, gap
from bareboat_base.printable import one_line

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+|\[[^]]*\])?=(.*)", re.DOTALL)
#: A variable with the value of one of the shell that submits the job.
_OF_SHELL = re.compile(r'\w+="?\$\{?([A-Za-z_]\w*)\}?"?')
#: A line about the option that ends a script at the first command that fails.
_STOPS = re.compile(r"(?:#!|.*\bset\s).*?(?<=\s)[-+](?:[a-z]*e|[a-z]*o\s+errexit)")
#: Files that prepare an interactive shell.
_PROFILE = re.compile(
    r"(^|/)\.?(bashrc|bash_profile|profile|zshrc)$|^/etc/|profile\.d/|/lmod/|conda\.sh$|modules\.sh$"
)
_LISTS_MODULES = ("list", "av", "avail", "spider", "show", "whatis", "")
_OF_MODULES = ("restore", "swap", "switch", "unload", "unuse", "use", "save", "rm", "del", "purge", "reset")
_SHARED = "set for each rank, by its launcher"


class Script:
    """Reads the commands of one script, in their order. `rows`: its lines; `pyxis`: flags of the container in
    which the whole script runs."""

    def __init__(
        self, scope: Scope, reading: Reading, rows: Sequence[str], pyxis: Sequence[tuple[str, str]]
    ) -> None:
        self.scope = scope
        self.reading = reading
        self._rows = rows
        self._pyxis = pyxis
        self._names: dict[str, str] = {}
        self._functions: dict[str, int] = {}
        self._programs: list[tuple[Statement, Launch | None]] = []
        #: The program, once one was found, with its line.
        self.launch: Launch | None = None
        self.line = 0

    def read(self, found: Sequence[Statement]) -> None:
        """Read all statements; the reading then holds what they are."""
        for each in found:
            if each.keyword:
                self._block(each)
            else:
                self._list(each)
        reading = self.reading
        if not self._programs and not any(note.text.startswith("the command") for note in reading.refused):
            reading.refuse("the command", 0, "no program was found")
        if len(self._programs) > 1:
            self.launch = self._in_turn()
        if self.launch is not None:
            try:
                topology.resolve(self.launch, self.line, reading)
            except Unclear as unclear:
                reading.refuse(unclear.subject, self.line, unclear.reason)

    def _in_turn(self) -> Launch | None:
        """Several programs of one process each, one directly after the other, as one command of a shell."""
        stops = [row for row in self._rows[: self._programs[0][0].line - 1] if _STOPS.match(row)]
        lines = ", ".join(str(each.line) for each, _ in self._programs)
        text, last = "set -e\n" if stops else "", 0
        is_plain = all(re.match(r"#!|set -[^&|+]*\Z", row) for row in stops)
        for each, launch in self._programs:
            command = each.commands[0]
            is_plain = is_plain and command.after == "\n" and not command.redirections
            is_plain = is_plain and not _ASSIGNED.match(command.words[0])
            is_plain = is_plain and not any(0 < last < note.line < each.line for note in self.reading.unread)
            if launch is None or launch.starter or launch.inner_starter or launch.container or not is_plain:
                self.reading.refuse("the command", self.line, f"several programs: lines {lines}")
                return None
            text, last = f"{text}{shlex.join(launch.program)}\n", each.last
        self.reading.differ(self.line, f"lines {lines} are one command of a shell")
        return Launch(program=["bash", "-c", text.strip()])

    def _block(self, each: Statement) -> None:
        if each.keyword.startswith("function "):
            self._functions[each.keyword.partition(" ")[2]] = each.line
        started = [command for command in each.commands if _kind(command) == "program"]
        if started:
            what = f"{each.keyword}: {_shown(started[:1])}"
            self.reading.refuse("the command", each.line, f"a program in a block, {what}")
        self._keep(each, each.commands, f"{self._rows[each.line - 1].strip()} …")

    def _keep(self, each: Statement, commands: Sequence[Command], text: str = "") -> None:
        """Commands that are not in the job file; what they may change is not known any more."""
        line = each.line if [*commands] == each.commands else commands[0].line
        names = {_name(command) for command in commands}
        if "cd" in names and not self._programs:
            self.reading.refuse("the working directory", line, f"cd in {text or _shown(commands)}")
        self.reading.skip(line, one_line(text or _shown(commands), limit=200), each.last)
        rows = "\n".join(self._rows[line - 1 : each.last])
        self.scope.forget_all(rows, line, is_script=bool(names & {"source", ".", "eval"}))

    def _list(self, each: Statement) -> None:
        """Commands that are joined by `&&`, `||` and pipes."""
        commands, lines = each.commands, range(each.line, each.last + 1)
        kinds = [_kind(command) for command in commands]
        if kinds == ["prints"] and _only_prints(commands[0]):
            self.reading.left.update(lines)
            return
        starts = [number for number, kind in enumerate(kinds) if kind == "program"]
        if len(starts) > 1:
            self.reading.refuse("the command", each.line, "several programs")
        if starts:
            self._programs.append((each, None))
        elif [*map(_name, commands)] == ["exit"] and not self._programs:
            self.reading.refuse("the command", each.line, "exit before any program")
        head = commands[: starts[0] if starts else len(commands)]
        rest = commands
        joins = [command.after for command in commands[: len(head) - (not starts)]]
        if {*kinds[: len(head)]} <= {"handled"} and {*joins} <= {"&&"}:
            rest = [command for command in head if not self._is_understood(command)]
            if starts:
                self._program(each, commands[starts[0]])
                rest += commands[starts[0] + 1 :]
        elif starts:
            reason = f"{_shown(commands[starts[0] :][:1])} depends on {_shown(commands[:1])}"
            self.reading.refuse("the command", each.line, reason)
        if rest:
            self._keep(each, rest)
        if len(rest) < len(commands):
            self.reading.used.update(lines)

    def _is_understood(self, each: Command) -> bool:
        """Whether all that a command does is in the job file."""
        is_plain = each.after in ("\n", ";", "&&") and all(map(_is_to_terminal, each.redirections))
        if self.launch is not None or not is_plain:
            return False
        if _name(each) in _HANDLED:
            return _HANDLED[_name(each)](self, each)
        return not [word for word in each.words if not self._assign(word, each.line)]

    def _words(self, each: Command) -> list[str] | None:
        """The command's arguments with their values; None where one is unknown."""
        try:
            return [text for word in each.words[1:] for text in self.scope.words(word)]
        except Unclear:
            return None

    def _assign(self, word: str, line: int) -> bool:
        """Whether the value is known, and one of the script alone."""
        found = _ASSIGNED.match(word)
        if found is None or found[1] in SEARCHED or found[1] in ("HOME", "PWD", "IFS", "BASH_ENV"):
            return False
        name, operator, raw = found[1], found[2], found[3]
        try:
            if raw.startswith("(") or operator not in (None, "+"):
                raise Unclear("a list")
            before = self.scope.value(name) if operator else ""
            self.scope.set(name, before + self.scope.text(raw))
        except Unclear as unclear:
            self.scope.forget(name, f"{name} (line {line}): {unclear.reason}")
            return False
        return True

    def _program(self, statement: Statement, each: Command) -> None:
        reading, line = self.reading, each.line
        self.line = self.line or line
        if each.after == "&":
            reading.refuse("the command", line, "it runs in the background")
        for operator, target in each.redirections:
            if operator.lstrip("0123456789").startswith("<"):
                reading.refuse("the command", line, "its input is redirected")
            elif not re.fullmatch(r"\d|/dev/null|-", target):
                reading.differ(line, f"output to {target}: it is kept with the run, bareboat logs prints it")
        count = next(n for n, word in enumerate(each.words) if not _ASSIGNED.match(word))
        launch = None
        try:
            words = [text for word in each.words[count:] for text in self.scope.words_or_gaps(word)]
            for word in each.words[:count]:
                if not self._export_one(word, line):
                    reading.skip(line, one_line(word, limit=80))
            if words and words[0] in self._functions:
                raise Unclear(f"{words[0]} is a function of the script (line {self._functions[words[0]]})")
            launch = layers.read(words, line, self.scope, reading, self._names, self._pyxis)
            values = (launch.program, launch.container, reading.options, reading.environment)
            if (reason := gap(values)) is not None:
                raise Unclear(reason)
            for name, at in self.scope.exported.items():
                try:
                    self._exported(name, self.scope.value(name), launch)
                except Unclear as unclear:
                    reading.skip(at, f"{name}: {unclear.reason}")
        except Unclear as unclear:
            reading.refuse(unclear.subject, line, unclear.reason)
        self.launch = launch
        self._programs[-1] = (statement, launch)

    def _exported(self, name: str, text: str, launch: Launch) -> None:
        """A variable that the program gets."""
        line, reading = self.scope.exported[name], self.reading
        prefix = next((each for each in containers.VALUES if name.startswith(each)), "")
        if prefix and launch.container is not None:
            reading.environment[name.removeprefix(prefix)] = Value(text, line)
        elif name in SEARCHED or name.startswith(("APPTAINER_", "SINGULARITY_", "UDOCKER_")):
            if name not in containers.FLAGS or launch.container is None:
                reading.skip(line, f"{name}={one_line(text, limit=80)}")
        elif name.startswith(("SLURM_", "SRUN_")):
            reading.differ(line, f"{name}: the planner chooses how ranks start and where they run")
        elif name in OF_RANKS and name != "OMP_NUM_THREADS":
            reading.differ(line, f"{name}: {_SHARED}")
        else:
            reading.environment.setdefault(name, Value(text, line))

    # Commands with a meaning of their own; each returns whether the whole command is understood.

    def _export(self, each: Command) -> bool:
        return not [word for word in each.words[1:] if not self._export_one(word, each.line)]

    def _export_one(self, word: str, line: int) -> bool:
        scope, name = self.scope, re.split(r"[+=]", word)[0]
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in SEARCHED:
            scope.forget(name, f"line {line} may change {name}")
            return False
        own = _OF_SHELL.fullmatch(word)
        of_shell = own[1] if own and not scope.is_set(own[1]) else ""
        if word != name and not self._assign(word, line):
            if name in OF_RANKS:
                self.reading.differ(line, f"{name}: {_SHARED}")
                return True
            if of_shell:
                self.reading.environment_from[of_shell] = line
            return of_shell == name
        if scope.is_known(name):
            scope.exported[name] = line
        elif not scope.is_set(name):
            self.reading.environment_from[name] = line
        return scope.is_known(name) or not scope.is_set(name)

    def _cd(self, each: Command) -> bool:
        words = self._words(each)
        if self._pyxis or words is None or len(words) > 1 or words[:1] == ["-"]:
            return False
        to = words[0] if words else self.scope.value("HOME")
        self.scope.directory = posixpath.normpath(posixpath.join(self.scope.directory, to))
        self.reading.request.lines["workdir"] = each.line
        return True

    def _module(self, each: Command) -> bool:
        words, reading = self._words(each), self.reading
        if words is None or self._pyxis or any(word.startswith("-") for word in words):
            return False
        verb = words[0] if words else ""
        if verb in ("purge", "reset") and len(words) == 1:
            reading.modules.clear()
            reading.differ(each.line, f"module {verb}: a job has no modules but those of its file")
        elif verb in ("load", "add", "try-load"):
            reading.modules += [Value(name, each.line) for name in words[1:]]
        elif _name(each) == "ml" and verb not in (*_LISTS_MODULES, *_OF_MODULES):
            reading.modules += [Value(name, each.line) for name in words]
        else:
            return verb in _LISTS_MODULES
        return True

    def _activate(self, each: Command) -> bool:
        """`source …/activate` and `conda activate`."""
        words, line = self._words(each), each.line
        is_source = _name(each) in ("source", ".")
        if is_source and len(each.words) == 2 and _PROFILE.search(each.words[1].strip("\"'")):
            return True
        if not words or len(words) > 2 or self._pyxis:
            return False
        tool, environment = words[0], words[1] if len(words) == 2 else ""
        if is_source and tool.endswith("bin/activate") and not environment:
            environment = f"{posixpath.dirname(tool)}/.."
        elif not is_source and tool in ("info", "list"):
            return True
        elif posixpath.basename(tool) != "activate" or (is_source and not environment):
            return False
        if "/" in environment:
            path = posixpath.join(self.scope.directory, environment, "bin", "python")
            self.reading.set("capture.python", posixpath.normpath(path), line)
        else:
            self.reading.values.pop("capture.python", None)
            text = "activate it before bareboat submit, which captures it"
            self.reading.differ(line, f"conda activate {environment or 'base'}: {text}")
        return True

    def _container_tool(self, each: Command) -> bool:
        """Commands of udocker that start nothing: pull, create, setup."""
        words = self._words(each)
        if not words or _name(each) != "udocker":
            return False
        verb = next((word for word in words if not word.startswith("-")), "")
        if verb == "create":
            name = next((word.partition("=")[2] for word in words if word.startswith("--name=")), "")
            self._names[name] = words[-1]
            return bool(name)
        if verb == "pull":
            self.reading.differ(each.line, "udocker pull: the image is pulled when the job is submitted")
        return verb in ("pull", "setup", "ps", "images", "version")


_HANDLED: Mapping[str, Callable[[Script, Command], bool]] = {
    "export": Script._export, "cd": Script._cd,
    **dict.fromkeys(("module", "ml"), Script._module),
    **dict.fromkeys(("source", ".", "conda", "mamba", "micromamba"), Script._activate),
    **dict.fromkeys(containers.TOOLS, Script._container_tool),
}  # fmt: skip


def _kind(each: Command) -> str:
    """ "program", "prints", "handled", or "other"."""
    name, words = _name(each), [word for word in each.words if not _ASSIGNED.match(word)]
    if not words:
        return "handled"
    if name in containers.TOOLS and {"exec", "run", "shell"} & set(words[1:8]):
        return "program"
    if name in _HANDLED and posixpath.basename(words[0]) == name:
        return "handled"
    if name in PRINTS or words[1:] in (["--version"], ["-V"], ["-version"]):
        return "prints"
    is_other = name in OTHERS or (name == "command" and words[1] == "-v")
    return "other" if is_other or _prints_on_nodes(name, words) else "program"


def _name(command: Command) -> str:
    """The program's name, past assignments and programs that only start another one."""
    words = [word.strip("\"'\\") for word in command.words]
    words = words[next((n for n, word in enumerate(words) if not _ASSIGNED.match(word)), len(words)) :]
    try:
        words = layers.past_wrappers(words)[1] or words
    except Unclear:
        words = [word for word in words[1:] if not word.startswith("-")]
    if layers.module(words) in OTHERS:  # python -m pip
        return layers.module(words)
    if not words or words[0].startswith(("((", "[[")):
        return words[0][:2] if words else ""
    return posixpath.basename(words[0])


def _prints_on_nodes(name: str, words: Sequence[str]) -> bool:
    """Whether it is `srun hostname` or the like."""
    rest = [word for word in words[1:] if not word.startswith("-")]
    is_text = words[-3:-1] == ["bash", "-c"] and words[-1].strip("'\"") in PRINTS
    return name in ("srun", "mpirun", "mpiexec") and (is_text or (len(rest) == 1 and rest[0] in PRINTS))


def _only_prints(each: Command) -> bool:
    """Whether it writes no file, runs no other command and stays in the foreground. `env` and `command`
    start what follows them."""
    is_alone = len(each.words) == 1 or _name(each) not in ("env", ":", "which")
    return (
        is_alone
        and each.after in ("\n", ";")
        and all(map(_is_to_terminal, each.redirections))
        and not re.search(r"\$\(|`|[<>]\(|\$\{\w+:?=|\s-\w*[ol]\b", " ".join(each.words))
    )


def _is_to_terminal(redirection: tuple[str, str]) -> bool:
    operator, target = redirection
    is_output = re.fullmatch(r"\d*>&\d?|&?>>?|\d*>>?", operator) is not None
    return is_output and re.fullmatch(r"\d|/dev/null", target) is not None


def _shown(commands: Sequence[Command]) -> str:
    parts = []
    for command in commands:
        parts += [command.before, *command.words, *(" ".join(each) for each in command.redirections)]
    return one_line(" ".join(part for part in parts if part), limit=120)
