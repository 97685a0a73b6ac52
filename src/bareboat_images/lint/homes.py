"""Rules about files below home directories and other directories that engines hide or replace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from bareboat_base.expressions import expression
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.leftovers import SMALL_BYTES
from bareboat_images.lint.recipe import RecipeSubject, Step, location
from bareboat_images.lint.rule import Hit, Rule, Severity, files, size

_HOME = expression(r"/root(?:/|$)|/home/[^/]+(?:/|$)")
_HIDDEN = expression(r"(?:/root|/home|/tmp|/var/tmp|/run|/dev|/proc|/sys)(?:/|$)")
_LEAST_BYTES = 64_000


def _recipe(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.steps:
        if not step.ships:
            continue
        found = None
        if step.name in ("COPY", "ADD"):
            path = location(step.instruction.args[-1], step)
            found = f"copies files to {path}" if _HOME.match(path) else None
        elif step.name == "WORKDIR":
            path = location(step.instruction.args[0], step)
            found = f"works in {path}" if _HOME.match(path) else None
        if found is not None:
            yield Hit(
                message=f"{found}, which engines hide behind your own home", line=step.line, last=step.last
            )


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
        remedy="install to /opt or /usr/local, pip without --user",
        recipe=_recipe,
        image=_image,
        bad="FROM debian:12.7\nCOPY tool /root/bin/tool\n",
        good="FROM debian:12.7\nCOPY tool /opt/bin/tool\n",
    ),
    Rule(
        code="BB1103",
        title="A Python package is installed as editable.",
        why="It is imported from its source directory; where that is hidden or mounted over, the import "
        "fails or takes other code.",
        remedy="pip install . without -e",
        image=_editable_image,
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
