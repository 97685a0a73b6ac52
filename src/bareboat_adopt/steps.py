"""What each command of a script is: a part of the environment, one that only prints, the job's program, or a
line that the job file does not have. Every line is one of these."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from bareboat_adopt import job, layers
from bareboat_adopt.bash import Command, Statement
from bareboat_adopt.layers import Launch
from bareboat_adopt.reading import Reading, Value
from bareboat_adopt.values import Unclear, gap
from bareboat_base.printable import one_line

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+|\[[^]]*\])?=(.*)", re.DOTALL)
_LOADS = ("load", "add", "try-load")
_LISTS = ("list", "av", "avail", "spider", "show", "whatis")
_SHARED = "set for each rank, by its launcher"
_ON_NODES = re.compile(r"(?:srun|mpirun|mpiexec)(?: -\S+(?: \d+)?)* (?:bash -c )?['\"]?(\w+)['\"]?")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: They only print.
_PRINTS = _names("""
    : date df echo env free groups hostname ibv_devinfo id lscpu my-job-stats nproc nvidia-smi printenv printf
    pwd seff sinfo squeue true type uname uptime which whoami
""")
#: They prepare or tidy, or change the shell: no program of the job, and no key of a job file.
_OTHERS = _names("""
    (( [ [[ alias apt apt-get awk aws basename bc break cat chgrp chmod chown clear cmake cmp command
    complete continue cp crc-job-stats curl cut deactivate declare diff dirname du eval exec exit expr false
    find fusermount g++ gcc getopts gfortran git grep gunzip gzip hash head huggingface-cli jobs jq kill
    killall ldd let lfs ln local locale ls mail make mapfile md5sum mkdir mktemp mpicc mpicxx mpif90 mv
    nvcc pip pip2 pip3 pkill poetry popd pushd qstat qsub read readarray readlink readonly realpath rename
    return rm rmdir rsync sacct sacctmgr sbatch sbcast scancel scontrol scp sed seq set sha256sum shift
    shopt shuf sleep sort split squashfuse ssh sstat stat stty sync tail tar tee test time times top touch
    tput tr trap truncate typeset ulimit umask unalias uniq unset unzip uv wait wandb wc wget xargs yum
    zip
""")
#: Variables that launchers set for each rank.
_OF_RANKS = _names("""
    LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT NODE_RANK OMP_NUM_THREADS RANK WORLD_SIZE
""")
#: Variables whose directories differ in a container.
_SEARCHED = _names("""
    CPATH LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH MANPATH MODULEPATH PATH PKG_CONFIG_PATH
""")
_OF_MODULES = _names("restore swap switch unload unuse use save rm del purge reset")


class Script:
    """Reads the commands of one script, in their order. `rows`: its lines."""

    def __init__(self, reading: Reading, rows: Sequence[str]) -> None:
        self.reading = reading
        self._rows = rows
        #: The program, and its line once one was found.
        self.launch = Launch([])
        self.line = 0

    def read(self, found: Sequence[Statement]) -> None:
        """Read all statements; the reading holds what they are once the script is finished."""
        for each in found:
            if each.keyword:
                self._keep(each, each.commands, f"{self._rows[each.line - 1].strip()} …")
            else:
                self._list(each)
        if not self.line:
            self.reading.refuse("the command", 0, "no program was found")

    def _list(self, each: Statement) -> None:
        """Commands that are joined by `&&`, `||` and pipes: read up to the program, and kept after it."""
        left = list(each.commands)
        while left and not _is_program(left[0]) and self._is_understood(left[0]):
            left.pop(0)
        if left and _is_program(left[0]):
            self._program(left.pop(0))
        if left:
            self._keep(each, left)
        if len(left) < len(each.commands):
            self.reading.used.update(range(each.line, each.last + 1))

    def _keep(self, each: Statement, commands: Sequence[Command], text: str = "") -> None:
        """Commands that are not in the job file; what they may change is not known any more."""
        line = each.line if [*commands] == each.commands else commands[0].line
        names = {_name(command) for command in commands}
        text = text or _shown(commands)
        if started := [command for command in commands if _is_program(command)]:
            reason = f"{_shown(started[:1])} is only a part of {text}"
            self.reading.refuse("the command", started[0].line, reason)
        elif names == {"exit"} and not self.line:
            self.reading.refuse("the command", line, "exit before any program")
        if names & {"cd", "pushd", "popd"} and not self.line:
            self.reading.refuse("the working directory", line, f"cd in {text}")
        self.reading.skip(line, one_line(text, limit=200), each.last)
        rows = "\n".join(self._rows[line - 1 : each.last])
        self.reading.scope.forget_all(rows, line, is_script=bool(names & {"source", ".", "eval"}))
        for command in started:  # which the user completes
            self._program(command)

    def _is_understood(self, each: Command) -> bool:
        """Whether all that a command before the program does is in the job file."""
        if _only_prints(each):
            return True
        is_plain = each.after in ("\n", ";", "&&") and all(map(_is_to_terminal, each.redirections))
        if self.line or not is_plain:
            return False
        if all(map(_ASSIGNED.match, each.words)):
            return not [word for word in each.words if not self._assign(word, each.line)]
        known = _HANDLED.get(posixpath.basename(each.words[0]))
        return known is not None and known(self, each)

    def _words(self, each: Command) -> list[str]:
        """The command's arguments with their values; none where one is unknown, or in a container."""
        scope = self.reading.scope
        found = [text for word in each.words[1:] for text in scope.words_or_gaps(word)]
        return found if gap(found) is None and not self.reading.pyxis else []

    def _assign(self, word: str, line: int) -> bool:
        """Whether the value is known, and one of the script alone."""
        found = _ASSIGNED.match(word)
        if found is None or found[1] in _SEARCHED or found[1] in ("HOME", "PWD", "IFS", "BASH_ENV"):
            return False
        try:
            if found[2] or found[3].startswith("("):
                raise Unclear("a list")
            self.reading.scope.set(found[1], self.reading.scope.text(found[3]))
        except Unclear as unclear:
            self.reading.scope.set(found[1], Unclear(f"{found[1]} (line {line}): {unclear.reason}"))
            return False
        return True

    def _program(self, each: Command) -> None:
        reading, line = self.reading, each.line
        if self.line:
            reading.refuse("the command", line, f"another program, besides that of line {self.line}")
            self.launch.is_read, self.launch.request = False, None
            job.set_topology(self.launch, line, reading)
            return
        self.line = line
        if each.after == "&":
            reading.refuse("the command", line, "it runs in the background")
        for operator, target in each.redirections:
            if operator.lstrip("0123456789").startswith("<"):
                reading.refuse("the command", line, "its input is redirected")
            elif not re.fullmatch(r"\d|/dev/null|-", target):
                reading.differ(line, f"output to {target}: it is kept with the run, bareboat logs prints it")
        count = next(n for n, word in enumerate(each.words) if not _ASSIGNED.match(word))
        with reading.refusing(line):
            words = [text for word in each.words[count:] for text in self.reading.scope.words_or_gaps(word)]
            self.launch.program = words
            for word in each.words[:count]:
                if not self._export_one(word, line):
                    reading.skip(line, one_line(word, limit=80))
            named = re.escape("".join(words[:1]))
            form = rf"(?<![\w-]){named}\s*\(\s*\)|\bfunction\s+{named}\b"
            if words and re.search(form, "\n".join(self._rows)):
                raise Unclear(f"{words[0]} is a function of the script")
            layers.read(self.launch, line, reading)
            if (reason := gap((self.launch, reading.values, reading.environment))) is not None:
                raise Unclear(reason)
        self.finish()

    def finish(self) -> None:
        """Give the program, if one was found, the variables that are exported, and its nodes and ranks."""
        reading, scope = self.reading, self.reading.scope
        for name, line in scope.exported.items():
            inside = re.fullmatch(r"(?:SINGULARITY|APPTAINER)ENV_(\w+)", name)
            if not scope.is_set(name):
                reading.environment_from[name] = line
            elif not scope.is_known(name):
                reading.skip(line, f"{name}: another line may change it")
            elif self.launch.image and inside:
                reading.environment[inside[1]] = Value(scope.value(name), line)
            elif name.startswith(("APPTAINER_", "SINGULARITY_", "UDOCKER_")):
                reading.skip(line, f"{name}={one_line(scope.value(name), limit=80)}")
            elif name.startswith(("SLURM_", "SRUN_")) or (name in _OF_RANKS and name != "OMP_NUM_THREADS"):
                reading.differ(line, f"{name}: {_SHARED}")
            else:
                reading.environment.setdefault(name, Value(scope.value(name), line))
        job.set_topology(self.launch, self.line, reading)

    # Commands with a meaning of their own; each returns whether the whole command is understood.

    def _export(self, each: Command) -> bool:
        is_plain = not any(word.startswith("-") for word in each.words)
        return is_plain and not [word for word in each.words[1:] if not self._export_one(word, each.line)]

    def _export_one(self, word: str, line: int) -> bool:
        scope, (name, equals, value) = self.reading.scope, word.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in _SEARCHED:
            return False
        is_of_shell = re.fullmatch(rf'"?\$\{{?{name}\}}?"?', value) and not scope.is_set(name)
        if equals and not is_of_shell and not self._assign(word, line):
            if name in _OF_RANKS:
                self.reading.differ(line, f"{name}: {_SHARED}")
            return name in _OF_RANKS
        scope.exported[name] = line
        return scope.is_known(name) or not scope.is_set(name)

    def _cd(self, each: Command) -> bool:
        words, scope = self._words(each), self.reading.scope
        if len(words) != 1 or len(each.words) != 2 or words == ["-"]:
            return False
        scope.directory = posixpath.normpath(posixpath.join(scope.directory, words[0]))
        self.reading.request.lines["workdir"] = each.line
        return True

    def _module(self, each: Command) -> bool:
        words, values = self._words(each), self.reading.values
        if each.words[0] == "ml" and words and words[0] not in {*_LOADS, *_LISTS, *_OF_MODULES}:
            words.insert(0, "load")
        if not words or any(word.startswith("-") for word in words):
            return False
        if words in (["purge"], ["reset"]):
            values.pop("modules", None)
        elif words[0] in _LOADS:
            self.reading.add("modules", words[1:], each.line)
        return words in (["purge"], ["reset"]) or words[0] in (*_LOADS, *_LISTS)

    def _activate(self, each: Command) -> bool:
        """`source …/activate` and `conda activate`."""
        line, words = each.line, self._words(each)
        if each.words[0] in ("source", ".") and len(words) == 1 and words[0].endswith("bin/activate"):
            words.append(posixpath.join(posixpath.dirname(words[0]), ".."))
        if len(words) != 2 or posixpath.basename(words[0]) != "activate":
            return False
        if "/" in words[1]:
            path = posixpath.join(self.reading.scope.directory, words[1], "bin", "python")
            self.reading.set("capture.python", posixpath.normpath(path), line)
        else:
            self.reading.values.pop("capture.python", None)
            text = 'activate it before bareboat submit, if image = "capture"'
            self.reading.differ(line, f"conda activate {words[1]}: {text}")
        return True

    def _udocker(self, each: Command) -> bool:
        """Verbs of udocker that start nothing, where no flag of theirs changes the container."""
        verb, *words = self._words(each) or [""]
        if verb == "create" and (found := re.fullmatch(r"--name[= ](\S+) ([^-]\S*)", " ".join(words))):
            self.reading.containers[found[1]] = found[2]
            return True
        return verb == "setup" or (verb == "pull" and len(words) == 1)


_HANDLED: Mapping[str, Callable[[Script, Command], bool]] = {
    "export": Script._export, "cd": Script._cd, "udocker": Script._udocker,
    **dict.fromkeys(("module", "ml"), Script._module),
    **dict.fromkeys(("source", ".", "conda", "mamba", "micromamba"), Script._activate),
}  # fmt: skip


def _is_program(each: Command) -> bool:
    """Whether it may be the job's program, or starts one."""
    name, words = _name(each), [word for word in each.words if not _ASSIGNED.match(word)]
    if name in layers.TOOLS:
        return bool({"exec", "run", "shell"} & set(words[1:8]))
    if name == "env" and len(words) > 1:
        return True
    if (found := _ON_NODES.fullmatch(" ".join(words))) and found[1] in _PRINTS:
        return False
    if not name or name in _HANDLED or words[1:] in (["--version"], ["-V"], ["-version"]):
        return False
    return name not in _PRINTS and name not in _OTHERS


def _name(command: Command) -> str:
    """The program's name, past assignments and what the shell itself puts before a program."""
    words = [word.strip("\"'\\") for word in command.words]
    words = words[next((n for n, word in enumerate(words) if not _ASSIGNED.match(word)), len(words)) :]
    words = layers.past_builtins(words)
    if (of_python := layers.module(words)) in _OTHERS:  # python -m pip
        return of_python
    if not words or words[0].startswith(("((", "[[")):
        return words[0][:2] if words else ""
    return posixpath.basename(words[0])


def _only_prints(each: Command) -> bool:
    """Whether it writes no file, runs no other command and stays in the foreground."""
    is_alone = len(each.words) == 1 or _name(each) not in ("env", ":", "which")
    return (
        is_alone
        and _name(each) in _PRINTS
        and each.after in ("\n", ";", "&&")
        and all(map(_is_to_terminal, each.redirections))
        and not re.search(r"\$\(|`|[<>]\(|\$\{\w+:?=|\s-\w*[olv]\b", " ".join(each.words))
    )


def _is_to_terminal(redirection: tuple[str, str]) -> bool:
    written = " ".join(redirection)
    return re.fullmatch(r"(?:\d*>&\d?|&?>>?|\d*>>?) (?:\d|/dev/null)", written) is not None


def _shown(commands: Sequence[Command]) -> str:
    parts = ((each.before, *each.words, *map(" ".join, each.redirections)) for each in commands)
    return one_line(" ".join(part for group in parts for part in group if part), limit=120)
