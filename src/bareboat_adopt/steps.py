"""What each command of a script is: a part of the environment, one that only prints, or the job's program."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from bareboat_adopt import bash, layers, topology
from bareboat_adopt.bash import Command, Compound, Statement
from bareboat_adopt.layers import Launch, Refusal
from bareboat_adopt.programs import OF_MODULES, OF_RANKS, PREPARES, PRINTS, SEARCHED
from bareboat_adopt.reading import Reading, Value
from bareboat_adopt.values import Scope, Unknown, gap
from bareboat_base.printable import one_line

#: Commands of container tools that a job does itself.
_PULLS = {
    *((tool, "pull") for tool in ("docker", "podman", "udocker")),
    ("udocker", "setup"),
    ("udocker", "rm"),
}
_TESTS = ("[", "[[", "test", "((", "command", "which", "type", "grep", "hash", "let", "expr")
_LOGS_IN = ("huggingface-cli", "wandb", "hf")
_SHARED = "set for each rank, by its launcher"


class Script:
    """Reads the statements of one script, in their order."""

    def __init__(self, scope: Scope, reading: Reading, base: str) -> None:
        self.scope = scope
        self.reading = reading
        self._base = base
        self._names: dict[str, str] = {}
        self._functions: dict[str, int] = {}
        self._programs: list[tuple[int, Command, Launch | None]] = []
        self._changed_after = 0
        self._is_conditional = False
        self._in_background = False
        self._exports: dict[str, str] = {}
        #: The program, once one was found, with its line.
        self.launch: Launch | None = None
        self.line = 0
        self._conda = ""
        self._lines: dict[str, int] = {}

    def read(self, statements: Sequence[Statement]) -> None:
        """Read all statements; the reading then holds what they are."""
        skipped = 0
        for each in statements:
            if skipped:
                self.reading.differ(skipped, "exit: what follows it is not read")
                break
            if isinstance(each, Compound):
                self._compound(each)
            elif each.words and each.words[0].plain == "exit" and each.before not in ("&&", "||"):
                skipped = each.line
            else:
                self._command(each)
        self._finish()

    def _finish(self) -> None:
        reading = self.reading
        if not self._programs and "the command" not in reading.refusals:
            reading.refuse("the command", 0, "no program was found")
        if self._programs:
            self.line = self._programs[0][0]
            self.launch = self._programs[0][2] if len(self._programs) == 1 else self._in_turn()
        if self._in_background:
            reading.refuse("the command", self.line, "it runs in the background, and nothing waits for it")
        if self.launch is not None:
            topology.resolve(self.launch, self.line, reading)
        for name, text in self._exports.items():
            if name not in reading.environment and not name.startswith(("APPTAINER", "SINGULARITY")):
                self._exported(name, text)

    def _in_turn(self) -> Launch | None:
        """Several programs of one process each, one after the other, as one command of a shell."""
        lines = ", ".join(str(line) for line, _, _ in self._programs)
        launches = [launch for _, _, launch in self._programs if launch is not None]
        if len(launches) < len(self._programs) or any(
            launch.starter or launch.inner_starter or launch.container is not None for launch in launches
        ):
            self.reading.refuse("the command", self.line, f"several programs: lines {lines}")
            return None
        if any(
            command.redirections or command.assigned or command.after not in ("\n", ";", "&&", "")
            or command.line < self._changed_after for _, command, _ in self._programs
        ):  # fmt: skip
            self.reading.refuse(
                "the command", self.line, f"several programs, with others between: lines {lines}"
            )
            return None
        text = ""
        for (_, command, _), launch in zip(self._programs, launches, strict=True):
            text += shlex.join(launch.program) + (" && " if command.after == "&&" else "\n")
        self.reading.differ(self.line, f"lines {lines} are one command of a shell")
        return Launch(program=["bash", "-c", text.strip()])

    def _exported(self, name: str, text: str) -> None:
        line = self._lines.get(name, 0)
        reading = self.reading
        cpus = reading.values.get("topology.cpus_per_rank", Value(1, 0)).value
        if name.startswith(("SLURM_", "SRUN_")):
            reading.differ(line, f"{name}: the planner chooses how ranks start and where they run")
        elif name in OF_RANKS and (name != "OMP_NUM_THREADS" or text == str(cpus)):
            reading.differ(line, f"{name}: {_SHARED}")
        else:
            reading.environment[name] = Value(text, line)

    def _compound(self, each: Compound) -> None:
        if each.keyword == "function":
            self._functions[each.name] = each.line
            return
        inner = list(bash.commands(each.body))
        names = [(_name(command), command) for command in inner]
        for command in inner:
            self._forget(command, f"set in a {each.keyword} (line {command.line})")
        steps = [command for name, command in names if self._is_program(name)]
        if steps:
            self.reading.refuse(
                "the command", each.line, f"{_called(each.keyword)} starts {_name(steps[0]) or 'a program'}"
            )
        elif any(name == "cd" for name, _ in names):
            self.reading.refuse("the working directory", each.line, f"cd in {_called(each.keyword)}")
        elif all(name in PRINTS or name in ("exit", "") for name, _ in names) and not any(
            command.assigned or _writes(command) for command in inner
        ):
            self.reading.left.append(each.line)
        elif all(name in PRINTS or name in ("exit", "") for name, _ in names) and not any(
            map(_writes, inner)
        ):
            self.reading.left.append(each.line)  # its variables are unknown from here on
        else:
            lines = f"lines {each.line} to {each.last}" if each.last > each.line else f"line {each.line}"
            self.reading.skip(each.line, f"{_called(each.keyword)}, {lines}: {', '.join(_several(names))}")

    def _is_program(self, name: str) -> bool:
        return (
            bool(name)
            and name not in PRINTS
            and name not in PREPARES
            and name not in _HANDLED
            and (
                name
                not in ("exit", "source", ".", "[", "[[", "export", "declare", "typeset", "readonly", "unset")
            )
        )

    def _forget(self, command: Command, reason: str) -> None:
        for name, _, _ in command.assigned:
            self.scope.forget(name, reason)
        if _name(command) in ("export", "declare", "read", "local", "typeset", "readonly"):
            for word in command.words[1:]:
                if found := re.match(r"([A-Za-z_]\w*)", word.raw):
                    self.scope.forget(found[1], reason)

    def _command(self, each: Command) -> None:
        reading, line = self.reading, each.line
        name = _name(each)
        if each.before == "||" or (each.before == "&&" and self._is_conditional):
            self._otherwise(each, name)
            return
        self._is_conditional = name in _TESTS
        if (not each.words or name in _HANDLED) and any(
            r.operator.startswith("<") for r in each.redirections
        ):
            self._forget(each, f"line {line}: < and > are redirections")
            reading.skip(line, f"{_shown(each) or _assigned(each)} …: a placeholder, or redirected input")
            return
        if not each.words:
            for variable, appended, value in each.assigned:
                if self._programs and variable in self._exports:
                    self._changed_after = line
                self._assign(variable, appended, value, line)
            if any(redirection.operator in (">", ">>", ">|") for redirection in each.redirections):
                reading.skip(line, "a file is emptied")
            return
        if each.before in ("|", "|&"):
            if name not in PRINTS and name != "tee":
                reading.refuse("the command", line, f"{name or 'a program'} reads what another one prints")
            return
        if self._programs and (name in _HANDLED or name in PREPARES):
            self._changed_after = line
        if self._programs and name in _HANDLED and name not in ("conda", "unset"):
            reading.left.append(line)
        elif name in _HANDLED:
            _HANDLED[name](self, each)
        elif name in self._functions:
            reading.refuse(
                "the command", line, f"{name} is a function of the script (line {self._functions[name]})"
            )
        elif name in PRINTS:
            self._prints(each, name)
        elif name in PREPARES:
            reading.skip(line, f"{_shown(each)}: do it before the job, or in its program")
        elif self._prints_on_nodes(each):
            reading.left.append(line)
        elif re.fullmatch(r"(-V|--?version|-v(?= ))", " ".join(word.raw for word in each.words[1:])) or (
            name == "command" and each.words[1:2] and each.words[1].plain == "-v"
        ):
            self._prints(each, name)
        elif name in _LOGS_IN and [word.plain for word in each.words[1:2]] == ["login"]:
            reading.skip(line, f"{name} login: log in before the job, or name the token in environment_from")
        elif not self._container_of(each):
            self._program(each)

    def _otherwise(self, each: Command, name: str) -> None:
        """What follows `||`, or `&&` after a test."""
        if name in PRINTS or name == "exit":
            return
        self._forget(each, f"set by condition (line {each.line})")
        if self._is_program(name):
            self.reading.refuse("the command", each.line, f"{name} depends on what another command returns")
        elif name == "cd":
            self.reading.refuse("the working directory", each.line, f"{_shown(each)}: only on a condition")
        else:
            self.reading.skip(each.line, _shown(each))

    def _prints(self, each: Command, name: str) -> None:
        if _writes(each):
            self.reading.skip(each.line, f"{_shown(each)}: it writes a file")
        elif name == "wait" and self._in_background:
            self._in_background = False
        else:
            self.reading.left.append(each.line)
        if name in ("set", "shift", "let", "getopts") and name != "set":
            self.reading.skip(each.line, _shown(each))

    def _prints_on_nodes(self, each: Command) -> bool:
        """Whether it is `srun hostname` or the like."""
        plain = [word.plain or "" for word in each.words]
        if posixpath.basename(plain[0]) not in ("srun", "mpirun", "mpiexec"):
            return False
        rest = [word for word in plain[1:] if not word.startswith("-")]
        names = [posixpath.basename(word) for word in rest]
        return bool(names) and names[-1] in PRINTS and not _writes(each)

    def _container_of(self, each: Command) -> bool:
        """Commands of container tools that start nothing: pull, create, setup, build."""
        plain = [word.plain or "" for word in each.words]
        tool = posixpath.basename(plain[0])
        if (
            tool not in ("udocker", "docker", "podman", "apptainer", "singularity", "enroot")
            or len(plain) < 2
        ):
            return False
        verb = next((word for word in plain[1:] if not word.startswith("-")), "")
        if verb in ("exec", "run") or (tool, verb) in (("singularity", "shell"), ("enroot", "start")):
            return False
        words = self._words(each)
        if words is None:
            self.reading.skip(each.line, _shown(each))
        elif tool == "udocker" and verb == "create":
            name = next((word.partition("=")[2] for word in words if word.startswith("--name=")), None)
            if name is None:
                self.reading.skip(each.line, _shown(each))
            else:
                self._names[name] = words[-1]
        elif (tool, verb) in _PULLS:
            self.reading.differ(each.line, f"{tool} {verb}: the image is pulled when the job is submitted")
        elif verb in ("version", "images", "ps", "info", "inspect", "--version"):
            self.reading.left.append(each.line)
        else:
            self.reading.skip(each.line, f"{_shown(each)}: bareboat image pull and build make images")
        return True

    def _words(self, each: Command, start: int = 0) -> list[str] | None:
        """The command's words with their values; None where one is unknown."""
        try:
            return [text for word in each.words[start:] for text in self.scope.words(word)]
        except Unknown:
            return None

    def _program(self, each: Command) -> None:
        reading, line = self.reading, each.line
        if not self._programs:
            self._exports = dict(self.scope.exported)
        if each.after == "&":
            self._in_background = True
        for redirection in each.redirections:
            if redirection.operator.startswith("<"):
                reading.refuse("the command", line, "its input is redirected")
            elif redirection.operator not in ("2>&", ">&", "&>", "&>>", ">", ">>", ">|"):
                reading.refuse("the command", line, f"the redirection {redirection.operator}")
            elif redirection.target is not None and not re.fullmatch(r"\d|/dev/null", redirection.target.raw):
                reading.differ(
                    line,
                    f"output to {redirection.target.raw}: it is kept with the run, bareboat logs prints it",
                )
        if each.after in ("|", "|&"):
            reading.differ(line, "the output goes to the run's log, and to no other program")
        launch = None
        try:
            words = [text for word in each.words for text in self.scope.words_or_gaps(word)]
            for variable, appended, value in each.assigned:
                if appended:
                    raise Unknown(f"{variable} is appended to")
                reading.environment[variable] = Value(self.scope.text(value), line)
            launch = layers.read(words, line, self.scope, reading, self._names)
            if (
                reason := gap((launch.program, launch.container, reading.options, reading.environment))
            ) is not None:
                raise Unknown(reason)
        except Unknown as unknown:
            reading.refuse("the command", line, unknown.reason)
        except Refusal as refusal:
            reading.refuse(refusal.subject, line, gap(refusal.reason) or refusal.reason)
        self._programs.append((line, each, launch))

    def _assign(self, name: str, appended: bool, value: bash.Word, line: int) -> None:
        self._lines[name] = line
        try:
            text = self.scope.text(value)
            self.scope.set(name, self.scope.value(name) + text if appended else text)
        except Unknown as unknown:
            self.scope.forget(name, f"{name} (line {line}): {unknown.reason}")

    # Commands with a meaning of their own.

    def _export(self, each: Command) -> None:
        for word in each.words[1:]:
            found = re.match(r"([A-Za-z_]\w*)(\+?)(=)?", word.raw)
            if found is None:
                if not word.raw.startswith("-"):
                    self.reading.skip(each.line, _shown(each))
                continue
            name = found[1]
            if found[3]:
                self._assign(name, bool(found[2]), _after_equals(word), each.line)
            self._lines.setdefault(name, each.line)
            if name in SEARCHED:
                self.reading.skip(each.line, f"export {name}: the container has paths of its own")
                self.scope.forget(name, f"{name} (line {each.line}) is changed in the script")
                continue
            self.scope.export(name)
            if name not in self.scope.exported:
                self._unknown_export(name, each.line)

    def _unknown_export(self, name: str, line: int) -> None:
        try:
            value = self.scope.value(name)
        except Unknown as unknown:
            if name in OF_RANKS:
                self.reading.differ(line, f"{name}: {_SHARED}")
            else:
                self.reading.skip(line, f"export {name}: {unknown.reason}")
        else:
            self.scope.set(name, value)
            self.scope.export(name)

    def _cd(self, each: Command) -> None:
        words = self._words(each)
        if words is None or len(words) > 2 or words[1:] == ["-"]:
            self.reading.refuse("the working directory", each.line, f"{_shown(each)}: {self._why(each)}")
        else:
            to = words[1] if len(words) > 1 else self.scope.value("HOME")
            self.scope.folder = posixpath.normpath(posixpath.join(self.scope.folder, to))
            self.reading.request.lines["workdir"] = each.line

    def _why(self, each: Command) -> str:
        try:
            for word in each.words:
                self.scope.words(word)
        except Unknown as unknown:
            return unknown.reason
        return "not one directory"

    def _module(self, each: Command) -> None:
        words = self._words(each, 1)
        verb = words[0] if words else ""
        name = _name(each)
        if words is None:
            self.reading.skip(each.line, f"{_shown(each)}: {self._why(each)}")
        elif verb in ("load", "add", "try-load") or (
            name == "ml" and verb not in OF_MODULES and not verb.startswith("-")
        ):
            names = words[1:] if verb in ("load", "add", "try-load") else words
            self.reading.modules += [
                Value(module, each.line) for module in names if not module.startswith("-")
            ]
        elif verb in ("purge", "reset", "restore") and len(words) == 1:
            self.reading.modules.clear()
            self.reading.differ(each.line, f"module {verb}: a job has no modules but those of its file")
        elif verb in ("list", "avail", "spider", "show", "whatis", "") or verb.startswith("-"):
            self.reading.left.append(each.line)
        elif verb in ("unload", "rm", "del", "swap", "switch"):
            self._unload(each, verb, words)
        else:
            self.reading.skip(each.line, f'{_shown(each)}: modules = ["NAME"] loads modules only')

    def _unload(self, each: Command, verb: str, words: list[str]) -> None:
        reading = self.reading
        loaded = {module.value for module in reading.modules}
        gone = words[1:2] if verb in ("swap", "switch") else words[1:]
        if not all(name in loaded for name in gone):
            reading.skip(each.line, f'{_shown(each)}: modules = ["NAME"] loads modules only')
            return
        reading.modules = [module for module in reading.modules if module.value not in gone]
        if verb in ("swap", "switch"):
            reading.modules += [Value(name, each.line) for name in words[2:]]

    def _source(self, each: Command) -> None:
        words = self._words(each, 1)
        reading, line = self.reading, each.line
        path = words[0] if words else ""
        if words is None or not path:
            reading.skip(line, f"{_shown(each)}: {self._why(each)}")
        elif re.search(
            r"(^|/)\.?(bashrc|bash_profile|profile|zshrc)$|^/etc/|profile\.d/|/lmod/|conda\.sh$|modules\.sh$",
            path,
        ):
            reading.left.append(line)
        elif path == "activate" or re.search(
            r"conda\d?/bin/activate$|/(miniforge|mambaforge|anaconda)\w*/bin/activate$", path
        ):
            self._activated(words[1] if len(words) > 1 else "", line, path)
        elif path == "deactivate":
            reading.left.append(line)
        elif path.endswith("bin/activate"):
            self._python(posixpath.join(posixpath.dirname(path), "python"), line)
        else:
            reading.skip(line, f"{_shown(each)}: what {path} sets is unknown")

    def _python(self, path: str, line: int) -> None:
        full = posixpath.normpath(posixpath.join(self.scope.folder, path))
        self.reading.set("capture.python", full, line)

    def _conda_command(self, each: Command) -> None:
        words = self._words(each)
        if words is None:
            self.reading.skip(each.line, f"{_shown(each)}: {self._why(each)}")
        elif words[1:2] == ["activate"]:
            self._activated(words[-1] if len(words) > 2 else "", each.line, "")
        elif words[1:2] in (["deactivate"], ["info"], ["list"], ["init"]) and not _writes(each):
            self.reading.left.append(each.line)
        elif words[1:2] == ["run"]:
            self._program(each)
        else:
            self.reading.skip(each.line, f"{_shown(each)}: do it before the job")

    def _activated(self, name: str, line: int, path: str) -> None:
        """An environment of conda, by its name or directory."""
        if path.endswith("/bin/activate"):
            self._conda = path.removesuffix("/bin/activate")
        if "/" in name:
            self._python(f"{name.rstrip('/')}/bin/python", line)
        elif name and name != "base" and self._conda.startswith("/"):
            self._python(f"{self._conda}/envs/{name}/bin/python", line)
        elif name:
            self.reading.values.pop("capture.python", None)
            self.reading.differ(
                line,
                f"conda activate {name}: activate it before bareboat submit, which captures it",
            )

    def _deactivate(self, each: Command) -> None:
        self.reading.left.append(each.line)

    def _eval(self, each: Command) -> None:
        text = " ".join(word.raw for word in each.words)
        if re.search(r"(conda|mamba)\S* .*hook|module", text):
            self.reading.left.append(each.line)
        else:
            self.reading.refuse(
                "the command", each.line, f"{_shown(each)}: eval runs what only the job knows"
            )

    def _unset(self, each: Command) -> None:
        for word in each.words[1:]:
            if word.plain and not word.plain.startswith("-"):
                self.scope.set(word.plain, "")
                self.scope.exported.pop(word.plain, None)
        self.reading.left.append(each.line)


_HANDLED: Mapping[str, Callable[[Script, Command], None]] = {
    **dict.fromkeys(("export", "declare", "typeset", "readonly"), Script._export),
    **dict.fromkeys(("module", "ml"), Script._module), **dict.fromkeys(("source", "."), Script._source),
    "cd": Script._cd,
    "conda": Script._conda_command, "mamba": Script._conda_command, "micromamba": Script._conda_command,
    "deactivate": Script._deactivate, "eval": Script._eval, "unset": Script._unset,
}  # fmt: skip


def _name(command: Command) -> str:
    """The program's name; "" for none, or one that a variable holds."""
    if not command.words:
        return ""
    plain = command.words[0].plain
    return posixpath.basename(plain) if plain is not None else command.words[0].raw


def _assigned(command: Command) -> str:
    return " ".join(f"{name}={value.raw}" for name, _, value in command.assigned)


def _after_equals(word: bash.Word) -> bash.Word:
    """The value in a word NAME=VALUE."""
    first, *rest = word.parts
    text = first.text.partition("=")[2]
    return bash.Word((first._replace(text=text), *rest), word.raw.partition("=")[2])


def _writes(command: Command) -> bool:
    return any(
        each.operator in (">", ">>", ">|", "&>", "&>>")
        and each.target is not None
        and not each.target.raw.startswith("/dev/")
        for each in command.redirections
    )


def _called(keyword: str) -> str:
    return {"(": "a subshell", "{": "a group", "((": "arithmetic", "if": "an if", "until": "an until"}.get(
        keyword, f"a {keyword}"
    )


def _shown(command: Command) -> str:
    return one_line(" ".join(word.raw for word in command.words), limit=120)


def _several(names: list[tuple[str, Command]]) -> list[str]:
    return list(dict.fromkeys(name for name, _ in names if name and name not in PRINTS))[:6]
