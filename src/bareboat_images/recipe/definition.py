"""Converts Apptainer's definition files to the same stages and instructions as a Dockerfile's. Pure.

Source: https://apptainer.org/docs/user/latest/definition_files.html. Sections that run on the host (`%setup`,
`%pre`), and features of Apptainer only (apps, other bootstrap agents), are refused with their line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from bareboat_base.expressions import expression
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted
from bareboat_images.recipe import environment
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.lines import Heredoc
from bareboat_images.recipe.stages import EPOCH, PROXIES, SCRATCH, Recipe, Stage

_HEADER = expression(r"\s*([A-Za-z]+)\s*:(.*)")
_SECTION = expression(r"%(\w+)(.*)")
_COMMENT = expression(r"(?:^|\s)#")
_TEMPLATE = expression(r"\{\{\s*(\w+)\s*\}\}")
_NAME = expression(r"[A-Za-z_]\w*")
_STAGE_NAME = expression(r"[a-z][a-z0-9-_.]*")
#: Characters that are not supported in paths of %files.
_NO_PATH = expression(r"[$\"'`\\,\0]")
_GLOB = expression(r"[*?\[\]]")

_SECTIONS = (
    "arguments", "files", "post", "environment", "labels", "help", "runscript", "startscript", "test",
)  # fmt: skip
_REFUSED = {
    "setup": "it runs on the host; write the commands in %post",
    "pre": "it runs on the host; run the commands before the build",
    **dict.fromkeys(
        ("appinstall", "appfiles", "appenv", "applabels", "apprun", "apphelp", "apptest", "appstart"),
        "build an image for each app, or install it in %post",
    ),
}
_KEYS = ("bootstrap", "from", "stage", "registry", "namespace", "fingerprints", "includecmd")
#: Bootstrap agent -> prefix of From in an image reference.
_AGENTS = {
    "docker": "", "oci": "oci:", "oci-archive": "oci-archive:", "docker-archive": "docker-archive:",
}  # fmt: skip
#: Prefixes of an image that `localimage` reads.
_LOCAL = ("sif", "rootfs", "squashfs")
_FOLDER = "/.singularity.d"
#: The script with the base image's variables, which Apptainer writes and definition files of HPCCM source.
_OF_BASE = f"{_FOLDER}/env/10-docker"
#: Where the sources of %files are mounted during the copy.
_MOUNTED = "/run/bareboat-files"


class _Part(Struct):
    """A section: the words after its name, and its lines with their numbers."""

    name: str
    argument: str
    number: int
    rows: list[tuple[int, str]] = field(default_factory=list)

    @property
    def script(self) -> str:
        return "\n".join(row for _, row in self.rows).strip("\n") + "\n"

    def entries(self) -> Iterator[tuple[int, str]]:
        """Yield lines that are neither empty nor comments."""
        for number, row in self.rows:
            if row.strip() and not row.lstrip().startswith("#"):
                yield number, row.strip()


class _Draft(Struct):
    """One stage, as written."""

    number: int
    header: dict[str, tuple[int, str]] = field(default_factory=dict)
    parts: list[_Part] = field(default_factory=list)

    def of(self, name: str) -> list[_Part]:
        return [part for part in self.parts if part.name == name]


def is_definition(text: str) -> bool:
    """Whether a recipe is a definition file: its first line names a bootstrap agent."""
    rows = (row.strip() for row in text.removeprefix("\ufeff").split("\n"))
    first = next((row for row in rows if row and not row.startswith("#")), "")
    return re.match(r"bootstrap\s*:", first, re.IGNORECASE) is not None


def read(text: str, *, given: Mapping[str, str], name: str = "Apptainer.def") -> Recipe:
    """Parse a definition file. `given`: build arguments, for its templates. Raises RecipeError with the
    file's `name` and the line."""
    try:
        return _read(text, given)
    except RecipeError as error:
        raise error.named(name) from None


def _read(text: str, given: Mapping[str, str]) -> Recipe:
    rows = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if "\0" in text:
        number = text[: text.index("\0")].count("\n") + 1
        raise RecipeError("the file has a NUL byte", line=number, remedy="write it as plain text")
    used: set[str] = set()
    stages = []
    for number, draft in enumerate(_drafts(rows)):
        _fill(draft, given, used)
        stages.append(_stage(number, draft))
    unused = tuple(sorted(set(given) - used - PROXIES - {EPOCH}))
    return Recipe(stages=tuple(stages), arguments={}, escape="\\", unused=unused)


def _drafts(rows: list[str]) -> list[_Draft]:
    drafts: list[_Draft] = []
    part: _Part | None = None
    for number, row in enumerate(rows, 1):
        key = _HEADER.fullmatch(row)
        if key is not None and key[1].lower() == "bootstrap":
            drafts.append(_Draft(number))
            part = None
        if (found := _SECTION.fullmatch(row)) is not None and drafts:
            comment = _COMMENT.search(found[2])
            argument = found[2][: comment.start() if comment else None].strip()
            part = _section(found[1].lower(), argument, number, row)
            drafts[-1].parts.append(part)
        elif part is not None:
            part.rows.append((number, row))
        elif row.strip() and not row.lstrip().startswith("#"):
            word = key[1].lower() if key is not None else ""
            if not drafts or key is None or word not in _KEYS:
                likely = nearest(word, _KEYS)
                raise RecipeError(
                    f"{quoted(row.strip())} is not a key of the header",
                    line=number, text=row,
                    remedy=f"write {likely.capitalize()}:" if likely else "Bootstrap: docker, From: IMAGE",
                )  # fmt: skip
            if word in drafts[-1].header:
                raise RecipeError(f"{key[1]} is given twice", line=number, text=row, remedy="remove one")
            drafts[-1].header[word] = (number, key[2].strip())
    if not drafts:
        raise RecipeError("the file has no Bootstrap", line=1, remedy="begin with Bootstrap: docker")
    return drafts


def _section(name: str, argument: str, number: int, row: str) -> _Part:
    if (why := _REFUSED.get(name)) is not None:
        raise RecipeError(f"%{name} is not supported", line=number, text=row, remedy=why)
    if name not in _SECTIONS:
        likely = nearest(name, _SECTIONS)
        raise RecipeError(
            f"unknown section %{name}", line=number, text=row,
            remedy=f"write %{likely}" if likely else "use one of " + ", ".join(f"%{s}" for s in _SECTIONS),
        )  # fmt: skip
    return _Part(name, argument, number)


def _fill(draft: _Draft, given: Mapping[str, str], used: set[str]) -> None:
    """Replace `{{ NAME }}` with the values of %arguments and build arguments."""
    values: dict[str, str] = {}
    for part in draft.of("arguments"):
        for number, row in part.entries():
            name, equals, value = row.partition("=")
            if not equals or not _NAME.fullmatch(name.strip()):
                raise RecipeError(
                    f"{quoted(row)} is not NAME=VALUE", line=number, text=row, remedy="VERSION=1.0"
                )
            values[name.strip()] = value.strip()
    used.update(set(values) & set(given))
    values |= {name: value for name, value in given.items() if name in values}

    def filled(number: int, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1] in values:
                return values[found[1]]
            if found[1] in given:
                used.add(found[1])
                return given[found[1]]
            raise RecipeError(
                f"{{{{ {found[1]} }}}} has no value", line=number, text=text,
                remedy=f"%arguments with {found[1]}=VALUE, or --build-arg {found[1]}=VALUE",
            )  # fmt: skip

        return _TEMPLATE.sub(value, text)

    draft.header = {key: (number, filled(number, text)) for key, (number, text) in draft.header.items()}
    for part in draft.parts:
        part.argument = filled(part.number, part.argument)
        part.rows = [(number, filled(number, row)) for number, row in part.rows]


def _stage(number: int, draft: _Draft) -> Stage:
    line = draft.number
    start = Instruction(name="FROM", line=line, last=line, text=f"Bootstrap: {draft.header['bootstrap'][1]}")
    name = draft.header.get("stage", (line, ""))[1].lower()
    if name and (not _STAGE_NAME.fullmatch(name) or name == SCRATCH):
        raise start.fault(f"{quoted(name)} is not a name for a stage", remedy="Stage: build")
    steps: list[Instruction] = []
    for part in draft.of("files"):
        steps += _files(part)
    posts = draft.of("post")
    if any(_OF_BASE in row for part in posts for _, row in part.rows):
        script = "#!/bin/sh\n# Variables of the base image are set.\n"
        steps.append(_file(posts[0], f"{_OF_BASE}2singularity.sh", script))
    for part in posts:
        steps.append(_post(part))
    files: list[Instruction] = []
    for part in draft.of("environment"):
        steps += _environment(part)
        files.append(_file(part, f"{_FOLDER}/env/90-environment.sh", f"#!/bin/sh\n{part.script}"))
    for part in draft.of("labels"):
        steps += _labels(part)
    for part in draft.of("help"):
        files.append(_file(part, f"{_FOLDER}/runscript.help", part.script))
    for section in ("runscript", "startscript", "test"):
        for part in draft.of(section):
            shell = _shell(part, "/bin/sh")
            files.append(_file(part, f"{_FOLDER}/{section}", f"#!{shell}\n{part.script}"))
            if section == "runscript":
                made = _made(part, "ENTRYPOINT", (f"{_FOLDER}/runscript",))
                files.append(replace(made, is_json=True))
            elif section == "test":
                files.append(_script(part, f"#!{shell} -e\n{part.script}"))
    return Stage(
        number=number, name=name, base=_base(draft, start), platform="", start=start,
        steps=(*steps, *files),
    )  # fmt: skip


def _base(draft: _Draft, start: Instruction) -> str:
    agent = draft.header["bootstrap"][1].lower()
    if agent == SCRATCH:
        return SCRATCH
    number, origin = draft.header.get("from", (draft.number, ""))
    at = Instruction(name="FROM", line=number, last=number, text=f"From: {origin}")
    if not origin:
        raise start.fault("the header has no From", remedy="From: debian:12")
    if agent == "localimage":
        if origin.partition(":")[0] in _LOCAL:  # the value of a build argument
            return origin
        return f"sif:{origin}" if origin.endswith((".sif", ".simg")) else f"rootfs:{origin}"
    if agent not in _AGENTS:
        raise start.fault(
            f"the bootstrap agent {quoted(agent)} is not supported",
            remedy=f"use one of {', '.join((*_AGENTS, 'localimage', SCRATCH))}",
        )
    parts = [draft.header[key][1] for key in ("registry", "namespace") if key in draft.header]
    if parts and agent != "docker":
        raise at.fault("Registry and Namespace require Bootstrap: docker", remedy="remove them")
    return _AGENTS[agent] + "/".join([*parts, origin.removeprefix("//")])


def _made(
    part: _Part,
    name: str,
    args: tuple[str, ...] = (),
    *,
    line: int = 0,
    text: str = "",
    flags: tuple[tuple[str, str | None], ...] = (),
    heredocs: tuple[Heredoc, ...] = (),
) -> Instruction:
    return Instruction(
        name=name, line=line or part.number, last=line or part.number,
        text=f"{name} {text or '%' + part.name}", args=args, flags=flags, heredocs=heredocs,
    )  # fmt: skip


def _heredoc(content: str) -> tuple[Heredoc, ...]:
    return (Heredoc(name="bareboat", content=content, expands=False, chomps=False),)


def _file(part: _Part, path: str, content: str) -> Instruction:
    """An executable file in Apptainer's own directory."""
    flags: tuple[tuple[str, str | None], ...] = (("chmod", "755"),)
    return _made(part, "COPY", ("<<'bareboat'", path), flags=flags, heredocs=_heredoc(content))


def _script(part: _Part, content: str) -> Instruction:
    text = f"%{part.name}\n{content}"
    return _made(part, "RUN", ("<<'bareboat'",), text=text, heredocs=_heredoc(content))


def _shell(part: _Part, default: str) -> str:
    """The interpreter of a script: that of `%post -c /bin/bash`, or the default."""
    if not part.argument:
        return default
    found = part.argument.split()
    if len(found) != 2 or found[0] != "-c" or not found[1].startswith("/"):
        raise _made(part, "RUN").fault(
            f"%{part.name} {part.argument} is not supported", remedy=f"%{part.name} -c /bin/bash"
        )
    return found[1]


def _post(part: _Part) -> Instruction:
    for number, row in part.rows:
        if re.search(r"\b(APPTAINER|SINGULARITY)_(ENVIRONMENT|ROOTFS)\b", row):
            raise RecipeError(
                "variables that %post computes for run time are not supported", line=number, text=row,
                remedy="set them in %environment: export NAME=VALUE",
            )  # fmt: skip
    shell = _shell(part, "/bin/sh")
    return _script(part, f"#!{shell} -e\n{part.script}")


def _environment(part: _Part) -> Iterator[Instruction]:
    """ENV for each `export NAME=VALUE`: engines other than Apptainer do not run a script at start. An
    assignment without `export` has the flag `unexported`."""
    assigned: set[str] = set()
    for number, row in part.entries():
        try:
            exports, found = environment.assignments(row, assigned)
        except environment.CommandError:
            raise RecipeError(
                f"%environment: {quoted(row)} is not NAME=VALUE", line=number, text=row,
                remedy="write export NAME=VALUE, without commands",
            ) from None  # fmt: skip
        except environment.RunTimeError as unknown:
            raise RecipeError(
                f"%environment: {unknown} in {quoted(row)} is known only when the container runs",
                line=number, text=row, remedy="write its value, or set the variable in the job",
            ) from None  # fmt: skip
        assigned.update(each.name for each in found)
        if found:
            text = row.removeprefix("export ")
            pairs = tuple(
                (each.name, f"${each.name}" if each.value is None else each.value) for each in found
            )
            flags: tuple[tuple[str, str | None], ...] = () if exports else (("unexported", None),)
            yield replace(_made(part, "ENV", line=number, text=text, flags=flags), pairs=pairs)


def _labels(part: _Part) -> Iterator[Instruction]:
    for number, row in part.entries():
        name, _, value = row.partition(" ")
        quoted = '"' + re.sub(r'([\\"$])', r"\\\1", value.strip()) + '"'
        yield replace(_made(part, "LABEL", line=number, text=row), pairs=((name, quoted),))


def _files(part: _Part) -> Iterator[Instruction]:
    """Copy each line like Apptainer, with `cp -fLr SOURCE TARGET`, including patterns."""
    stage = ""
    if part.argument:
        found = part.argument.split()
        if len(found) != 2 or found[0] != "from":
            raise _made(part, "COPY").fault(f"%files {quoted(part.argument)}", remedy="%files from STAGE")
        stage = found[1]
    for number, row in part.entries():
        at = _made(part, "COPY", line=number, text=row)
        try:
            given = shlex.split(row)
        except ValueError:
            given = []
        if not 1 <= len(given) <= 2 or any(_NO_PATH.search(each) for each in given):
            raise at.fault("it is not SOURCE or SOURCE TARGET", remedy="write one file in a line, without $")
        source, target = given[0], given[-1]
        if source.startswith("/") != bool(stage):
            raise at.fault(
                f"the source {quoted(source)} is not in the context"
                if not stage
                else f"the source {quoted(source)} in a stage is not absolute",
                remedy=f"write {('/' + source) if stage else 'a path below the context'}",
            )
        yield _copy(part, number, row, stage, source, target if target.startswith("/") else f"/{target}")


def _copy(part: _Part, number: int, row: str, stage: str, source: str, target: str) -> Instruction:
    fixed: list[str] = []
    pieces = [piece for piece in source.split("/") if piece not in ("", ".")]
    while pieces and not _GLOB.search(pieces[0]):
        fixed.append(pieces.pop(0))
    pattern = "/".join(map(_quoted, pieces))
    place = f"{_MOUNTED}/{fixed[-1] if fixed else 'context'}"
    path = "/".join(fixed) or ("/" if stage else ".")
    mount = f"type=bind,target={place},source={'/' if stage and fixed else ''}{path}"
    mount += f",from={stage}" if stage else ""
    copied = f"{shlex.quote(place)}/{pattern}" if pattern else shlex.quote(place)
    if not fixed and not pattern:  # the whole context, which has no name
        copied += "/."
    folder = target if target.endswith("/") or pattern else target.rpartition("/")[0]
    script = f"mkdir -p {shlex.quote(folder or '/')}\ncp -fLr {copied} {shlex.quote(target)}\n"
    return _made(
        part, "RUN", ("<<'bareboat'",), line=number, text=f"%files {row}", flags=(("mount", mount),),
        heredocs=_heredoc(f"#!/bin/sh -e\n{script}"),
    )  # fmt: skip


def _quoted(piece: str) -> str:
    """One component of a path, quoted for a shell except for its pattern characters."""
    parts = re.split(r"([*?\[\]])", piece)
    return "".join(part if _GLOB.fullmatch(part) else shlex.quote(part) for part in parts if part)
