"""Commands: their words, how they start, and their outcome."""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType, field


class Variable(Struct, frozen=True):
    """A value known only when the job runs. The renderer writes it as a shell variable."""

    name: str


class NodePath(Struct, frozen=True):
    """A path that is known only on the node that runs the command: `below` the directory that the variable
    names. `planned`: where it would be without that, as far as the planner knows."""

    variable: str
    below: str = ""
    planned: str = ""

    def __format__(self, _form: str) -> str:
        raise TypeError(f"{self!r} is a word of its own, and no text")


class Joined(Struct, frozen=True):
    """Parts of one word."""

    parts: tuple[str | Variable | NodePath, ...]


class IfSet(Struct, frozen=True):
    """Words that exist only when the variable is set and not empty."""

    variable: str
    words: tuple[str | Variable | NodePath | Joined, ...]


class ForwardEnv(Struct, frozen=True, omit_defaults=True):
    """Variables of the job script for the command: those with these names or prefixes, if set when the
    command starts. `words` are repeated for each, with its name and value as the variables `name` and
    `value`. The values are visible in an argv."""

    names: tuple[str, ...]
    prefixes: tuple[str, ...]
    words: tuple[str | Variable | Joined, ...]


#: A value is exported under this name with a number.
CARRIER = "BAREBOAT_ENV_"


class Handing(StrEnum):
    """How the values of environment variables reach an engine. Every user of the machine can read an argv."""

    DESCRIPTOR = "by a file descriptor"
    EXPORTED = "by the environment of its process"


class Sealed(Struct, frozen=True, kw_only=True):
    """Environment variables of the command whose values are in no argv.

    DESCRIPTOR: `form`, words terminated by NUL bytes, repeated for each variable with its name and value as
    the variables `name` and `value`, is read from the descriptor in the variable `sealed`. EXPORTED: each
    value is exported under a name of its own (`bareboat.engines.command_environment`)."""

    by: Handing
    names: tuple[str, ...]
    values: tuple[str | Variable | Joined, ...]
    form: tuple[str | Variable, ...] = ()


class Opened(Struct, frozen=True):
    """Not a word: the command starts with this file open for reading as this descriptor."""

    number: int
    path: str


Word = str | Variable | NodePath | Joined | IfSet | ForwardEnv | Opened


class Start(StrEnum):
    """Who starts the ranks: the launcher, once on every node inside that node's one container; the job
    script, one by one; or a program on the first node (mpirun, srun) that reaches the other nodes itself. In
    the latter two, each rank has a container."""

    NODES = "once per node"
    RANKS = "rank by rank, by the job script"
    PROGRAM = "by a program on the first node"


class Command(Struct, frozen=True, kw_only=True):
    """An argv without quoting. `environment` is all that the workload sees; an engine turns it into
    `sealed`."""

    argv: tuple[Word, ...]
    environment: dict[str, str] = field(default_factory=dict)
    sealed: Sealed | UnsetType = UNSET
    workdir: str = "/"


class Missing(Struct, frozen=True, kw_only=True):
    """A shared library that the container lacks, and the file in it that needs the library."""

    library: str
    needed_by: str


class Executable(Struct, frozen=True, kw_only=True):
    """The program of a command's first word, resolved before the job starts. `code`: 127 or 126 where it
    cannot be executed, for the `reason`, which follows the word. `place`: the path of a host's file, existing
    or not. Not `known`: only the start will show. `lacks`: programs that engines need to start commands and
    the image lacks; for a static program, the dynamic loader. `missing`: libraries that the program needs."""

    word: str
    code: int = 0
    reason: str = ""
    context: str = ""
    remedy: str = ""
    place: str = ""
    known: bool = True
    lacks: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()


class AbsentModule(Struct, frozen=True):
    """A module that the job's code imports and its Python does not find. `file`: as the job names it, "" for
    the command itself; `package`: what installs it, "" where that is not known."""

    module: str
    file: str
    line: int
    package: str = ""


class CodeFacts(Struct, frozen=True, kw_only=True):
    """What the job's code and working directory show before the start. `compiles`: the code compiles C while
    it runs. `outside`: existing paths of this machine outside the working directory, each with what leads
    there. `submits`: a scheduler's command that the code starts, with the file that does. `starter`: a
    program that starts ranks, with the shell script that starts it, or the Python file that names it.
    `scratch`: a path that the code names in a directory that is discarded with the container, with the
    file. `rank_variables`: those by which the code numbers its ranks without PyTorch's, each with the file;
    `job_variables`: those of a scheduler's job that it reads.
    `imports`: the packages that its Python files import; unset where none was read. `absent`: modules that
    the job does not find. `program`: that of the command, if it was looked up."""

    compiles: bool = False
    outside: tuple[tuple[str, str], ...] = ()
    submits: tuple[str, str] | None = None
    starter: tuple[str, str] | UnsetType = UNSET
    scratch: tuple[str, str] | UnsetType = UNSET
    rank_variables: tuple[tuple[str, str], ...] = ()
    job_variables: tuple[tuple[str, str], ...] = ()
    imports: tuple[str, ...] | UnsetType = UNSET
    absent: tuple[AbsentModule, ...] = ()
    program: Executable | None = None

    def uses(self, *packages: str) -> bool:
        """Whether the code imports one of the packages; also where no code is known."""
        return self.imports is UNSET or not set(packages).isdisjoint(self.imports)
