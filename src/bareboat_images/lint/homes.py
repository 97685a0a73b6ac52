"""Rules about files below home directories and other directories that engines hide or replace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from bareboat_base.expressions import expression
from bareboat_base.printable import one_line
from bareboat_images.lint.caches import SMALL_BYTES
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject, Step, cloned, location, walk
from bareboat_images.lint.rule import Edit, Hit, Rule, Severity, files, size
from bareboat_images.lint.shell import Command, Word

_HOME = expression(r"/root(?:/|$)|/home/[^/]+(?:/|$)")
_HIDDEN = expression(r"(?:/root|/home|/tmp|/var/tmp|/run|/dev|/proc|/sys)(?:/|$)")
_LEAST_BYTES = 64_000
#: Installers that write to the home directory by default: pattern that identifies one, environment variables
#: that move its target, and name.
_INSTALLERS = (
    (expression(r"sh\.rustup\.rs|rustup-init"), ("RUSTUP_HOME", "CARGO_HOME"), "rustup"),
    (expression(r"nvm-sh/nvm"), ("NVM_DIR",), "nvm"),
    (expression(r"pyenv\.run|pyenv-installer|pyenv/pyenv"), ("PYENV_ROOT",), "pyenv"),
    (expression(r"astral\.sh/uv"), ("UV_INSTALL_DIR", "XDG_BIN_HOME"), "uv"),
    (expression(r"install\.python-poetry\.org"), ("POETRY_HOME",), "Poetry"),
    (expression(r"pixi\.sh/install"), ("PIXI_HOME",), "pixi"),
    (expression(r"get\.sdkman\.io"), ("SDKMAN_DIR",), "SDKMAN"),
    (expression(r"install\.julialang\.org"), ("JULIAUP_DEPOT_PATH",), "juliaup"),
    (expression(r"bun\.sh/install|deno\.land/install"), ("BUN_INSTALL", "DENO_INSTALL"), "its runtime"),
)
_PREFIX_FLAGS = ("-p", "--prefix", "--root", "--install-dir", "--target", "-t")


def _recipe(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.steps:
        if not step.ships:
            continue
        found = next(_installed(step), None) if step.name == "RUN" else None
        if found is None and step.name in ("COPY", "ADD"):
            path = location(step.instruction.args[-1], step)
            found = f"copies files to {path}" if _HOME.match(path) else None
        if found is None and step.name == "WORKDIR":
            path = location(step.instruction.args[0], step)
            found = f"works in {path}" if _HOME.match(path) else None
        if found is not None:
            yield Hit(
                message=f"{found}, which engines hide behind your own home", line=step.line, last=step.last
            )


def _installed(step: Step) -> Iterator[str]:
    for command, folder in walk(step):
        text = " ".join(word.value for word in command.words)
        exported = " ".join(w.value for c in step.commands if c.program == "export" for w in c.arguments)
        for pattern, variables, name in _INSTALLERS:
            moved = any(
                each in text
                or each in exported
                or any(a.startswith(each) for c in step.commands for a in c.assignments)
                or (step.environment.get(each) and not _HOME.match(step.environment[each]))
                for each in variables
            )
            if pattern.search(text) and not moved:
                yield f"installs {name} to {step.home}"
        if (clone := cloned(command)) is not None:
            path = location(clone[1], step, folder)
            if _HOME.match(path):
                yield f"clones to {path}"
        elif command.program in (
            "pip",
            "conda",
            "mamba",
            "micromamba",
            "cmake",
            "make",
            "bash",
            "sh",
            "npm",
        ) or ("configure" in command.program or command.program.endswith(".sh")):
            for flag in _PREFIX_FLAGS:
                path = location(command.option(flag) or "", step, folder) if command.option(flag) else ""
                if path and _HOME.match(path) and (flag != "-t" or command.program == "pip"):
                    yield f"installs to {path}"
        elif command.program in ("python", "python3", "virtualenv", "uv") and "venv" in command.values:
            path = location(command.plain[-1], step, folder)
            if _HOME.match(path):
                yield f"makes an environment in {path}"


def _image(subject: ImageSubject) -> Iterator[Hit]:
    for group in subject.census.labelled("home"):
        if group.size_bytes < _LEAST_BYTES and group.runs < 3:
            continue
        kept = _is_kept(subject, group.place)
        yield Hit(
            message=f"{group.place} has {size(group.size_bytes)} in {files(group.files)}, "
            f"{group.runs:,} of them programs or libraries, which "
            + ("only Bareboat keeps visible" if kept else "engines hide behind your own home"),
            layer=group.layer,
            paths=group.paths,
            size_bytes=group.size_bytes,
            files=group.files,
            severity=Severity.INFO
            if kept
            else (Severity.ERROR if group.runs and group.size_bytes >= SMALL_BYTES else None),
            remedy="for other engines, create the environment below /opt and capture it again"
            if kept
            else "",
        )


def _is_kept(subject: ImageSubject, path: str) -> bool:
    """Whether the path contains, or is in, a directory of a captured environment: Bareboat keeps it
    visible."""
    return any(
        f"{prefix.path}/".startswith(f"{path}/") or f"{path}/".startswith(f"{prefix.path}/")
        for prefix in subject.image.prefixes
    )


def _local(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.runs():
        for command in step.commands:
            if command.program != "pip" or "install" not in command.plain[:1]:
                continue
            on = step.environment.get("PIP_USER", "").lower() in ("1", "true", "yes", "on")
            if not command.has("--user") and not on:
                continue
            word = next((each for each in command.arguments if each.value == "--user"), None)
            yield Hit(
                message=f"pip installs to {step.home}/.local",
                line=step.line,
                last=step.last,
                edits=_without(subject, word) if step.is_root and not _uses_local(subject) else (),
            )


def _uses_local(subject: RecipeSubject) -> bool:
    """Whether an instruction names ~/.local other than in a search path, or moves it."""
    return any(
        (".local" in each.instruction.text and each.name != "ENV")
        or "PYTHONUSERBASE" in each.instruction.text
        for each in subject.steps
    )


def _without(subject: RecipeSubject, word: Word | None) -> tuple[Edit, ...]:
    """Remove a word and the blanks before it."""
    if word is None or word.start < 0:
        return ()
    start = word.start
    while start > 0 and subject.text[start - 1] in " \t":
        start -= 1
    end = word.end
    if subject.text[start - 1 : start] == "\n":
        start = word.start
        while subject.text[end : end + 1] in (" ", "\t"):
            end += 1
    return (Edit(start, end, ""),)


def _local_image(subject: ImageSubject) -> Iterator[Hit]:
    for group in subject.census.labelled("local"):
        if group.size_bytes < _LEAST_BYTES and not group.runs:
            continue
        yield Hit(
            message=f"{group.place} has {size(group.size_bytes)} in {files(group.files)}: engines hide "
            "it, and show "
            "your own ~/.local instead",
            layer=group.layer,
            paths=group.paths,
            size_bytes=group.size_bytes,
            files=group.files,
        )


def _editable(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.runs():
        for command in step.commands:
            word = _editable_flag(command)
            if word is None:
                continue
            words = one_line(" ".join(each.value for each in command.words), limit=80)
            yield Hit(
                message=f"{words}: the package stays where its source is",
                line=step.line,
                last=step.last,
                edits=_without(subject, word)
                if word.value in ("-e", "--editable") and not _adds_files(subject, step)
                else (),
            )


def _adds_files(subject: RecipeSubject, step: Step) -> bool:
    """Whether a later instruction of the stage copies files, which may be the package's own."""
    later = subject.steps[step.number + 1 :]
    return any(each.stage is step.stage and each.name in ("COPY", "ADD") for each in later)


def _editable_flag(command: Command) -> Word | None:
    if command.program == "pip" or (command.program == "uv" and command.plain[:1] == ("pip",)):
        for word in command.arguments:
            if word.value in ("-e", "--editable") or word.value.startswith("--editable="):
                return word
    if "develop" in command.values and any(each.endswith("setup.py") for each in command.values):
        return command.words[0]
    return None


def _editable_image(subject: ImageSubject) -> Iterator[Hit]:
    found: dict[str, int] = {}
    for path, layer in subject.census.marked.get("editable", ()):
        if not subject.census.exists(path):
            continue
        if path.endswith("easy-install.pth"):
            listed = subject.head(path, layer).decode("utf-8", "replace")
            if not any(line.startswith("/") for line in listed.splitlines()):
                continue
        found[path] = layer
    for path, layer in subject.census.marked.get("direct url", ()):
        if subject.census.exists(path) and _is_editable(subject.head(path, layer)):
            found[path] = layer
    for path, layer in found.items():
        yield Hit(message=f"an editable install: {path}", layer=layer, paths=(path,))


def _is_editable(data: bytes) -> bool:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    info = found.get("dir_info") if isinstance(found, dict) else None
    return isinstance(info, dict) and info.get("editable") is True


def _variables(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.steps:
        if step.name != "ENV" or not step.ships:
            continue
        for name, value in step.instruction.pairs:
            path = _hidden(name, step.expanded((value or "").strip("'\"")), step)
            if path:
                yield Hit(message=f"{name} has {path}, which engines hide", line=step.line, last=step.last)


def _variables_image(subject: ImageSubject) -> Iterator[Hit]:
    for name, value in subject.image.environment.items():
        path = _hidden(name, value, None)
        if path and not _is_kept(subject, path):
            yield Hit(message=f"the image's {name} has {path}, which engines hide")


def _hidden(name: str, value: str, step: Step | None) -> str:
    """The first directory of a search path, or of an installation variable, that engines hide; "" without
    one."""
    if not re.fullmatch(r"\w*PATH|\w+_HOME|\w+_ROOT|\w+_DIR|VIRTUAL_ENV|CONDA_PREFIX|\w+_PREFIX", name):
        return ""
    if "CACHE" in name or "TMP" in name or name in ("XDG_RUNTIME_DIR",):
        return ""
    for each in value.split(":"):
        path = each.replace("${HOME}", "$HOME").replace("$HOME", step.home if step is not None else "/root")
        if _HIDDEN.match(path) and path not in ("/root", "/home", "/tmp"):
            return path
    return ""


RULES = (
    Rule(
        code="BB1101",
        title="Software is installed in a home directory.",
        why="Most engines mount your own home, or none, and start you as another user than root: what "
        "lies below /root or /home is not found or not readable.",
        remedy="install to /opt or /usr/local",
        recipe=_recipe,
        image=_image,
        bad="FROM debian:12.7\nRUN bash miniforge.sh -b -p /root/conda\n",
        good="FROM debian:12.7\nRUN bash miniforge.sh -b -p /opt/conda\n",
    ),
    Rule(
        code="BB1102",
        title="Python packages are installed to ~/.local.",
        why="Your own ~/.local is visible in the container instead: programs import other packages than "
        "the image has.",
        remedy="install without --user, in a virtual environment below /opt if need be",
        recipe=_local,
        image=_local_image,
        bad="FROM python:3.12.4-slim\nRUN pip install --no-cache-dir --user numpy==2.1.0\n",
        good="FROM python:3.12.4-slim\nRUN pip install --no-cache-dir numpy==2.1.0\n",
        fixes=True,
    ),
    Rule(
        code="BB1103",
        title="A Python package is installed as editable.",
        why="It is imported from its source directory; where that is hidden or mounted over, the import "
        "fails or takes other code.",
        remedy="pip install . without -e",
        recipe=_editable,
        image=_editable_image,
        bad="FROM python:3.12.4-slim\nCOPY src /opt/src\nRUN pip install --no-cache-dir -e /opt/src\n",
        good="FROM python:3.12.4-slim\nCOPY src /opt/src\nRUN pip install --no-cache-dir /opt/src\n",
        fixes=True,
    ),
    Rule(
        code="BB1104",
        title="A search path of the image leads to a place that engines hide.",
        why="/root, /home, /tmp and /run are other directories in the container than in the image.",
        remedy="install below /opt and set the variable to that",
        recipe=_variables,
        image=_variables_image,
        bad="FROM debian:12.7\nENV PATH=/root/bin:$PATH\n",
        good="FROM debian:12.7\nENV PATH=/opt/tool/bin:$PATH\n",
    ),
)
