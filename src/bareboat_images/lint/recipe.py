"""A Dockerfile as input of rules: each instruction with its stage, user, home and environment, and the
commands of each RUN. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from bareboat_base.expressions import expression
from bareboat_base.paths import lies_in
from bareboat_images.lint import shell
from bareboat_images.lint.machine import Machine
from bareboat_images.lint.rule import Edit
from bareboat_images.lint.shell import Command, Script, Word
from bareboat_images.recipe import definition, mounts, stages
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.stages import Recipe, Stage

_FLAG = expression(r"(?:[ \t]|\\[ \t]*\n|`[ \t]*\n|(?<=\n)[ \t]*#[^\n]*\n)*(--[a-z-]+(?:=\S+)?)(?=\s)")
#: How many earlier steps a rule searches for the one that wrote a file.
_MOST_BEFORE = 300
_IGNORE = expression(r"#\s*bareboat\s+ignore\s*=\s*([A-Za-z0-9,][A-Za-z0-9, ]*)")
#: The longest text in which variables are replaced, and the longest result, in characters.
_LONGEST = 4096
_WITH_DEFAULT = expression(r"\$\{([A-Za-z_]\w*):-([^{}]*)\}")
_VARIABLE = expression(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
_EXEC = expression(r"(?:^|[;&|({\s])exec\s")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
_SHELL_HEREDOC = expression(r"(?:\S*/)?(?:ba|da|a|z)?sh(?:\s+-\S+)*|")


class Step(Struct, frozen=True, kw_only=True):
    """One instruction. `number`: its index among all; `environment`: ENV and ARG before it; `home`: of its
    user; `script`: of a RUN; `mounted`: targets of its mounts, whose files are in no layer; `ships`: its
    layer is in the final image."""

    number: int
    stage: Stage
    instruction: Instruction
    environment: Mapping[str, str]
    user: str
    workdir: str
    script: Script
    mounted: tuple[str, ...] = ()
    ships: bool = True

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def line(self) -> int:
        return self.instruction.line

    @property
    def last(self) -> int:
        return self.instruction.last

    @property
    def commands(self) -> tuple[Command, ...]:
        return self.script.commands

    @property
    def home(self) -> str:
        if home := self.environment.get("HOME"):
            return home
        name = self.user.partition(":")[0]
        return "/root" if name in ("", "root", "0") else f"/home/{name}"

    @property
    def is_root(self) -> bool:
        """Whether its commands run as root, as far as the file shows."""
        return self.user.partition(":")[0] in ("", "root", "0")

    def keeps(self, path: str) -> bool:
        """Whether a file at this path is stored in the layer: no mount covers it."""
        return not any(lies_in(path, mount) for mount in self.mounted)

    def expanded(self, text: str) -> str:
        """The text with known variables replaced; others stay."""
        return expand(text, self.environment)


class RecipeSubject(Struct, frozen=True, kw_only=True):
    """A Dockerfile or a definition file, which no edit corrects. `ignore`: the text of its .dockerignore,
    None without one; `site`: where the image will run, None when unknown; `triggers`: base images -> their
    ONBUILD triggers, None when unknown."""

    name: str
    text: str
    recipe: Recipe
    steps: tuple[Step, ...]
    starts: Sequence[int]
    ignored: Mapping[int, frozenset[str]] = field(default_factory=dict)
    ignore: str | None = None
    site: Machine | None = None
    triggers: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    is_definition: bool = False

    def runs(self, *, ships: bool = True) -> Iterator[Step]:
        """The RUN steps; with `ships`, those whose layers are in the image."""
        return (step for step in self.steps if step.name == "RUN" and (step.ships or not ships))

    def before(self, step: Step) -> Iterator[Step]:
        """The earlier steps of the same image, the nearest first."""
        nearest = self.steps[max(step.number - _MOST_BEFORE, 0) : step.number]
        return (each for each in reversed(nearest) if each.ships == step.ships)

    def named_later(self, step: Step, name: str) -> bool:
        """Whether a later instruction contains this text, such as a file's name."""
        return any(name in each.instruction.text for each in self.steps[step.number + 1 :])

    def source(self, step: Step) -> tuple[int, int]:
        """The start and end of the instruction in the text, without its last newline."""
        starts = self.starts
        end = starts[step.last] - 1 if step.last < len(starts) else len(self.text)
        return starts[step.line - 1], end

    def appended(self, step: Step, command: str) -> tuple[Edit, ...]:
        """The edit that appends a command to a RUN; empty where that is not possible, where the command would
        not be reached, or where its success would hide the failure of another."""
        end = step.script.end
        if end < 0 or (step.commands and step.commands[-1].program in ("exit", "exec", "return")):
            return ()
        start, _ = self.source(step)
        if _EXEC.search(self.text, start, end):
            return ()
        if step.script.is_lines:
            return (Edit(end, end, f"\n{command}"),) if _stops_at_errors(step) else ()
        rows = self.text[start:end].split("\n")
        indent = re.match(r"[ \t]*", rows[1])[0] if len(rows) > 1 else "    "  # type: ignore[index]
        escape = self.recipe.escape
        return (Edit(end, end, f" {escape}\n{indent or '    '}&& {command}"),)


def read(
    text: str, *, name: str, machine: str, ignore: str | None = None, site: Machine | None = None
) -> RecipeSubject:
    """Parse a Dockerfile or a definition file for the rules. `text`: with LF line ends, without a byte order
    mark. Raises RecipeError."""
    is_definition = definition.is_definition(text)
    if is_definition:
        recipe = definition.read(text, given={}, name=name)
    else:
        recipe = stages.read(text, given={}, builtin=stages.builtin(machine), name=name, is_open=True)
    shipping = _shipping(recipe)
    steps: list[Step] = []
    state: dict[str, tuple[Mapping[str, str], str, str, bool]] = {}
    starts = _row_starts(text)
    for stage in recipe.stages:
        base = recipe.before(stage, stage.base)
        new: tuple[Mapping[str, str], str, str, bool] = {}, "", "/", True
        environment, user, workdir, is_shell = state.get(base.title, new) if base else new
        for instruction in stage.steps:
            script = Script(())
            if is_definition:
                script = _of_section(instruction)
            elif is_shell or instruction.is_json:
                script = _script(instruction, text, starts, recipe.escape)
            made = Step(
                number=len(steps),
                stage=stage,
                instruction=instruction,
                environment=environment,
                user=user,
                workdir=workdir,
                script=script,
                mounted=_mounted(instruction, environment),
                ships=stage.number in shipping,
            )
            steps.append(made)
            if instruction.name in ("ENV", "ARG"):
                known = {
                    each: expand(
                        recipe.arguments.get(each, "") if value is None else _unquoted(value), environment
                    )
                    for each, value in instruction.pairs
                }
                kept = {k: v for k, v in known.items() if instruction.name == "ENV" or k not in environment}
                environment = {**environment, **kept}
            elif instruction.name == "SHELL":
                is_shell = posixpath.basename(instruction.args[0]) in _SHELLS
            elif instruction.name == "USER":
                user = expand(instruction.args[0], environment)
            elif instruction.name == "WORKDIR":
                workdir = posixpath.join(workdir, expand(_unquoted(instruction.args[0]), environment))
        state[stage.title] = environment, user, workdir, is_shell
    return RecipeSubject(
        name=name, text=text, recipe=recipe, steps=tuple(steps), starts=starts, ignored=_ignored(text, steps),
        ignore=ignore, site=site, is_definition=is_definition,
    )  # fmt: skip


def expand(text: str, values: Mapping[str, str]) -> str:
    """The text with known variables replaced, and `${NAME:-default}` always; others stay. A text that becomes
    long stays as it is: variables of variables multiply."""
    if "$" not in text or len(text) > _LONGEST:
        return text

    def value(name: str) -> str:
        found = values.get(name, "")
        return found if len(found) <= _LONGEST else ""

    found = _WITH_DEFAULT.sub(lambda m: value(m[1]) or m[2], text)
    if len(found) <= _LONGEST:
        found = _VARIABLE.sub(lambda m: value(m[1] or m[2]) or m[0], found)
    return found if len(found) <= _LONGEST else text


def location(word: str, step: Step, folder: str = "") -> str:
    """The absolute path that a word of a command names; empty when unknown. `folder`: where the command runs,
    if not in the working directory."""
    path = step.expanded(word)
    if path.startswith("~"):
        path = step.home + path[1:] if path[1:2] in ("", "/") else ""
    path = re.sub(r"^\$\{?HOME\}?", step.home, path)
    path = posixpath.join(folder or step.workdir, path) if path else ""
    return posixpath.normpath(path) if path.startswith("/") and "$" not in path.split("/")[1] else ""


def walk(step: Step) -> Iterator[tuple[Command, str]]:
    """The commands of a RUN, each with its working directory; empty when unknown."""
    folder = step.workdir
    pushed: list[str] = []
    for command in step.commands:
        yield command, folder
        if command.program == "popd":
            folder = pushed.pop() if pushed else ""
        elif command.program in ("cd", "pushd") and command.plain:
            if command.program == "pushd":
                pushed.append(folder)
            folder = location(command.plain[0], step, folder)


#: Flags of `git clone` whose value is the next word.
_CLONE_VALUES = frozenset(
    {
        "-b", "--branch", "--revision", "--depth", "-o", "--origin", "-c", "--config", "-j", "--jobs",
        "--reference", "--template", "--filter", "--shallow-since", "--shallow-exclude", "--separate-git-dir",
        "-u", "--upload-pack", "--server-option", "--bundle-uri", "--ref-format",
    }
)  # fmt: skip


def cloned(command: Command) -> tuple[str, str] | None:
    """The repository and the directory of a `git clone`; None for other commands."""
    if command.program != "git" or "clone" not in command.plain:
        return None
    values = command.values
    found = []
    at = values.index("clone") + 1
    while at < len(values):
        if values[at] in _CLONE_VALUES:
            at += 1
        elif not values[at].startswith("-"):
            found.append(values[at])
        at += 1
    if len(found) > 1 and found[0].startswith("$") and (len(found) > 2 or "://" in found[1]):
        del found[0]  # a variable with flags
    if not found:
        return None
    return found[0], found[1] if len(found) > 1 else posixpath.basename(found[0].rstrip("/")).removesuffix(
        ".git"
    )


def matches(pattern: str, path: str) -> bool:
    """Whether a path, or a parent directory of it, matches an argument of `rm`."""
    import fnmatch

    parts = path.split("/")
    return any(fnmatch.fnmatchcase("/".join(parts[: n + 1]) or "/", pattern) for n in range(len(parts)))


def removed(step: Step, *, after: Command | None = None) -> tuple[str, ...]:
    """The paths and patterns that a RUN removes with `rm` or `find`, after a command if given."""
    found: list[str] = []
    seen = after is None
    for command, folder in walk(step):
        if command is after:
            seen = True
        elif seen and command.program in ("rm", "unlink", "rmdir"):
            found += filter(None, (location(each, step, folder) for each in command.plain))
            if step.home:
                found += [
                    each.replace("$HOME", step.home).replace("${HOME}", step.home)
                    for each in command.plain
                    if "HOME" in each
                ]
        elif seen and command.program == "find" and command.has("-delete", "-exec"):
            found += filter(None, (location(each, step, folder) for each in command.plain[:1]))
    return tuple(found)


def removes(step: Step, path: str, *, after: Command | None = None) -> bool:
    """Whether a RUN removes this path, or its whole content."""
    return any(
        matches(each, path) or each in (f"{path}/*", f"{path}/**") or matches(each.removesuffix("/*"), path)
        for each in removed(step, after=after)
    )


def removal(word: Word, folder: str) -> str:
    """The `rm` for a file that a command wrote, variables not expanded; "" when unknown."""
    raw = word.raw
    if raw.startswith(("/", '"/')) or not folder:
        return f"rm -f {raw}" if raw.startswith(("/", '"/')) else ""
    return f"rm -f {posixpath.join(folder, raw)}" if not raw.startswith(("'", '"', "$", "~")) else ""


def _shipping(recipe: Recipe) -> set[int]:
    """The stages whose layers are in the image: the last one and those it is based on."""
    found: set[int] = set()
    stage: Stage | None = recipe.stages[-1]
    while stage is not None and stage.number not in found:
        found.add(stage.number)
        stage = recipe.before(stage, stage.base)
    return found


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _mounted(instruction: Instruction, environment: Mapping[str, str]) -> tuple[str, ...]:
    if instruction.name != "RUN":
        return ()
    try:
        found = mounts.read(instruction, lambda text: expand(text, environment))
    except RecipeError:  # a size or mode with a variable
        return ()
    return tuple(posixpath.normpath(each.target) for each in found if each.target)


def _row_starts(text: str) -> list[int]:
    found = [0]
    found.extend(match.end() for match in re.finditer("\n", text))
    return found


def _of_section(instruction: Instruction) -> Script:
    """The commands of a section of a definition file, which cannot be edited."""
    if instruction.name == "RUN" and instruction.heredocs:
        content = instruction.heredocs[0].content
        return shell.parse(content, -1, is_lines=True) if _is_shell(content) else Script(())
    return _listed(instruction) if instruction.name == "RUN" and instruction.is_json else Script(())


def _script(instruction: Instruction, text: str, starts: list[int], escape: str) -> Script:
    if instruction.name in ("CMD", "ENTRYPOINT") and instruction.args:
        return _listed(instruction) if instruction.is_json else shell.parse(instruction.args[0], -1)
    if instruction.name != "RUN":
        return Script(())
    if instruction.is_json:
        return _listed(instruction)
    begin = starts[instruction.line - 1]
    end = starts[instruction.last] if instruction.last < len(starts) else len(text)
    head = re.compile(r"\s*\S+").match(text, begin)
    at = head.end() if head else begin
    while (flag := _FLAG.match(text, at)) is not None:
        at = flag.end()
    if not instruction.heredocs:
        return shell.parse(text[at:end], at, escape=escape)
    row = text.find("\n", at)
    first = text[at : row if row >= 0 else end]
    program = re.sub(r"<<-?\s*\S+", "", first).strip()
    document = instruction.heredocs[0]
    if len(instruction.heredocs) == 1 and _SHELL_HEREDOC.fullmatch(program) and _is_shell(document.content):
        body = row + 1
        return shell.parse(text[body : body + len(document.content.rstrip("\n"))], body, is_lines=True)
    found = shell.parse(first, -1)
    return Script(found.commands)


def _stops_at_errors(step: Step) -> bool:
    """Whether the script of a heredoc begins with `set -e`: else its exit code is its last command's."""
    first = step.commands[0] if step.commands else None
    return first is not None and first.program == "set" and (first.has("-e") or "errexit" in first.values)


def _is_shell(script: str) -> bool:
    first = script.partition("\n")[0]
    return not first.startswith("#!") or re.search(r"sh\b", first) is not None


def _listed(instruction: Instruction) -> Script:
    words = tuple(Word(each, each, -1, -1) for each in instruction.args)
    if (
        len(words) > 2
        and words[0].value.rpartition("/")[2] in ("sh", "bash", "dash")
        and "c" in words[1].value
    ):
        return Script(shell.parse(words[2].value, -1, is_lines=True).commands)
    return Script((Command(words=words),) if words else ())


def _ignored(text: str, steps: list[Step]) -> dict[int, frozenset[str]]:
    """Line of an instruction -> the codes ignored by comments directly above or in it; 0: for the whole file,
    by comments that an empty line follows."""
    rows = text.split("\n")
    found: dict[int, frozenset[str]] = {}
    for number, row in enumerate(rows, 1):
        match = _IGNORE.fullmatch(row.strip())
        if match is None:
            continue
        codes = frozenset(each.strip().upper() for each in match[1].replace(",", " ").split())
        below = number
        while below < len(rows) and rows[below].strip().startswith("#"):
            below += 1
        line = below + 1 if below < len(rows) and rows[below].strip() else 0
        inside = next((s.line for s in steps if s.line <= number <= s.last), None)
        line = inside if inside is not None else line
        found[line] = found.get(line, frozenset()) | codes
    return found
