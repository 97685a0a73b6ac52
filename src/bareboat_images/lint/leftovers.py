"""Rules about files that no layer should contain: temporary, deleted later, stored twice, or version control
data."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

from bareboat_base.expressions import expression
from bareboat_images.lint.caches import SMALL_BYTES, grouped
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import (
    RecipeSubject,
    Step,
    cloned,
    location,
    matches,
    removal,
    removed,
    removes,
    walk,
)
from bareboat_images.lint.rule import Edit, Hit, Rule, Severity, files, size
from bareboat_images.lint.shell import Command, Word

_ARCHIVE = expression(
    r".+\.(?:tar|tar\.[a-z0-9]{1,4}|tgz|tbz2?|txz|zip|deb|rpm|run|whl|sh|bz2|xz|gz|zst|7z|bin)", re.IGNORECASE
)
_LEAST_BYTES = 64_000
#: Programs that install or unpack the files that they are given.
_INSTALLERS = frozenset(
    {"unzip", "7z", "dpkg", "rpm", "apt-get", "apt", "dnf", "yum", "zypper", "apk", "pip", "sh", "bash"}
)
#: Directories that every base image has.
_USUAL = frozenset(
    {"/", "/etc", "/home", "/mnt", "/opt", "/root", "/srv", "/usr/local", "/usr/share", "/var"}
)


def downloads(step: Step) -> Iterator[tuple[Command, Word, str, str]]:
    """The files that wget and curl write: the command, the word, the absolute path, and the working
    directory."""
    for command, folder in walk(step):
        if command.program not in ("wget", "curl", "aria2c"):
            continue
        word = _written(command)
        if word is None:
            continue
        name = word.value
        is_url = "://" in name
        if is_url:
            name = posixpath.basename(name.partition("?")[0])
        if command.program == "wget" and is_url:  # with -O, wget ignores the directory
            name = posixpath.join(command.option("-P", "--directory-prefix") or "", name)
        elif command.program == "curl":
            name = posixpath.join(command.option("--output-dir") or "", name)
        path = location(name, step, folder)
        if name and path:
            yield command, word, path, folder


def _written(command: Command) -> Word | None:
    """The word that names the written file: a flag's value, or the URL that ends in its name."""
    words = command.arguments
    letter, names = (
        ("O", ("--output-document",)) if command.program == "wget" else ("o", ("--output", "--out"))
    )
    for at, word in enumerate(words):
        short = re.fullmatch(rf"-[a-zA-Z]*?{letter}(.*)", word.value)
        long = next((each for each in names if word.value.partition("=")[0] == each), None)
        if short is None and long is None:
            continue
        joined = short[1] if short is not None else word.value.partition("=")[2]
        if joined:
            name = Word(joined, joined, -1, -1)
        elif at + 1 < len(words):
            name = words[at + 1]
        else:
            return None
        return name if name.value not in ("-", "/dev/null", "/dev/stdout") else None
    url = next((word for word in reversed(words) if "://" in word.value), None)
    keeps = command.program in ("wget", "aria2c") or command.has("-O", "--remote-name")
    return url if keeps and not command.outputs else None


def _temporary(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.runs():
        for command, word, path, folder in downloads(step):
            if not (_ARCHIVE.fullmatch(path) or path.startswith(("/tmp/", "/var/tmp/"))):
                continue
            if not step.keeps(path) or removes(step, path, after=command) or _installed(step, path, command):
                continue
            name = (
                Word(posixpath.basename(word.raw.partition("?")[0]).strip("'\""), "", -1, -1)
                if "://" in word.value
                else word
            )
            extra = removal(name, folder)
            shown = _shown(path)
            yield Hit(
                message=f"{command.program} leaves {path} in the layer",
                line=step.line,
                last=step.last,
                remedy=f"remove it in the same RUN: && {extra or f'rm -f {shown}'}",
                edits=subject.appended(step, extra)
                if extra
                and (path.startswith(("/tmp/", "/var/tmp/")) or _is_used_up(step, path, command))
                and not subject.named_later(step, posixpath.basename(path))
                else (),
            )


def _sources(subject: RecipeSubject) -> Iterator[Hit]:
    """Repositories that are cloned below /tmp and not removed."""
    for step in subject.runs():
        for command, folder in walk(step):
            clone = cloned(command)
            if clone is None:
                continue
            path = location(clone[1], step, folder)
            if (
                path.startswith(("/tmp/", "/var/tmp/"))
                and step.keeps(path)
                and not (removes(step, path, after=command))
            ):
                shown = _shown(path)
                yield Hit(
                    message=f"git clone leaves {path} in the layer",
                    line=step.line,
                    last=step.last,
                    remedy=f"remove it in the same RUN: && rm -rf {shown}",
                    edits=subject.appended(step, f"rm -rf {shown}")
                    if "$" not in path and not subject.named_later(step, posixpath.basename(path))
                    else (),
                )


def _shown(path: str) -> str:
    """A path as a word of the recipe; one with variables as it is written there."""
    return path if "$" in path else shlex.quote(path)


def _installed(step: Step, path: str, after: Command) -> bool:
    """Whether the file is kept on purpose: its directory is one for installed files, or a later command moves
    it or sets its mode."""
    if path.startswith(("/usr/local/bin/", "/usr/bin/", "/etc/", "/usr/share/keyrings/")):
        return True
    return any(
        each.program in ("mv", "chmod") and any(location(w, step) == path or w == path for w in each.plain)
        for each in step.commands[step.commands.index(after) :]
    )


def _is_used_up(step: Step, path: str, after: Command) -> bool:
    """Whether a later command of the RUN unpacks or installs the file."""
    name = posixpath.basename(path)
    for each in step.commands[step.commands.index(after) + 1 :]:
        if not any(posixpath.basename(word) == name for word in each.values):
            continue
        if each.program in _INSTALLERS or (each.program in ("tar", "bsdtar") and _extracts(each)):
            return True
    return False


def _extracts(tar: Command) -> bool:
    if tar.has("-x", "--extract", "--get"):
        return True
    bundle = tar.values[0] if tar.values else ""  # tar xzf
    return re.fullmatch(r"[A-Za-z]+", bundle) is not None and "x" in bundle


def _temporary_image(subject: ImageSubject) -> Iterator[Hit]:
    yield from grouped(subject.census.labelled("temporary"), "temporary files", least=1)
    yield from grouped(subject.census.labelled("archive"), "archive or core dump")


def _written_by(step: Step) -> Iterator[str]:
    """The paths that a step certainly writes."""
    if step.name in ("COPY", "ADD"):
        yield from _destinations(step)
        return
    for command, folder in walk(step):
        found = ""
        if command.program in ("apt-get", "apt") and "update" in command.plain[:1]:
            found = "/var/lib/apt/lists"
        elif (clone := cloned(command)) is not None:
            found = location(clone[1], step, folder)
        elif command.program == "mkdir":
            yield from filter(None, (location(each, step, folder) for each in command.plain))
        for name in command.outputs:
            yield location(name, step, folder)
        if found:
            yield found
    yield from (path for _, _, path, _ in downloads(step))


def _destination(step: Step) -> str:
    target = step.instruction.args[-1]
    path = location(target, step)
    sources = step.instruction.args[:-1]
    if path and target.endswith("/") and len(sources) == 1 and "*" not in sources[0] and step.name == "COPY":
        name = posixpath.basename(sources[0].rstrip("/"))
        return posixpath.join(path, name) if "." in name[1:] else path
    return path


def _destinations(step: Step) -> Iterator[str]:
    """What a COPY or ADD writes: files by their names, where they are copied into a directory."""
    *sources, target = step.instruction.args
    path = location(target, step)
    into = target.endswith("/") or len(sources) > 1 or path in (step.workdir, "/tmp", "/var/tmp", *_USUAL)
    names = [posixpath.basename(each.rstrip("/")) for each in sources]
    if step.name == "COPY" and path and into and not any("*" in each for each in sources):
        yield from (posixpath.join(path, name) if "." in name[1:] else path for name in names)
    else:
        yield path


def _gone(step: Step, path: str, removals: Sequence[str]) -> str:
    """What a RUN removes of a path of an earlier layer; empty when that is not certain: what is below the
    path may be new in the RUN."""
    is_pure = all(command.program in ("rm", "cd", "find") for command in step.commands)
    for each in removals:
        if matches(each, path):
            return path
        if each.startswith(f"{path}/") and (is_pure or posixpath.basename(each) in ("*", ".git")):
            return each
    return ""


def _deleted(subject: RecipeSubject) -> Iterator[Hit]:
    written = [tuple(filter(None, _written_by(step))) for step in subject.steps]
    for step in subject.runs():
        gone = removed(step)
        if not gone:
            continue
        for before in subject.before(step):
            paths = {
                path: what
                for path in written[before.number]
                if path not in written[step.number]
                and (what := _gone(step, path, gone))
                and before.keeps(path)
            }
            if paths and not (before.name == "RUN" and all(removes(before, path) for path in paths)):
                what = next(iter(paths.values()))
                yield Hit(
                    message=f"removes {what}, which the layer of line {before.line} still has: it saves "
                    "nothing",
                    line=step.line,
                    last=step.last,
                    remedy=f"remove it in the RUN of line {before.line}"
                    if before.name == "RUN"
                    else "use --mount=type=bind, or copy it in a stage of its own",
                )
                break


def _hidden(subject: ImageSubject, *kinds: str) -> Iterator[Hit]:
    said = {"deleted": "deletes", "replaced": "replaces", "copied": "holds again, with the same size,"}
    for each in subject.census.hidden.values():
        group = each.group
        # Upgraded packages, and a package manager's database, are replaced for good reasons.
        least = SMALL_BYTES * (10 if each.kind == "replaced" else 1)
        if each.kind not in kinds or group.size_bytes < _LEAST_BYTES:
            continue
        yield Hit(
            message=f"{said[each.kind]} {size(group.size_bytes)} in {files(group.files)} that layer "
            f"{each.below} still has",
            layer=each.layer,
            paths=group.paths,
            size_bytes=group.size_bytes,
            files=group.files,
            severity=None if group.size_bytes >= least else Severity.INFO,
        )


def _copied(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.runs():
        for command in step.commands:
            if command.program not in ("chown", "chmod", "chgrp") or len(command.plain) < 2:
                continue
            paths = [location(each, step) for each in command.plain[1:]]
            before = next(
                (
                    each
                    for each in subject.before(step)
                    if each.name in ("COPY", "ADD")
                    and any(p and (_destination(each) + "/").startswith(p.rstrip("/") + "/") for p in paths)
                ),
                None,
            )
            if before is None:
                continue
            flag = "--chmod" if command.program == "chmod" else "--chown"
            owner = command.plain[0]
            yield Hit(
                message=f"{command.program} {owner} stores the files of line {before.line} a second time",
                line=step.line,
                last=step.last,
                remedy=f"{before.name} {flag}={owner} …  in line {before.line}, instead of this RUN",
                edits=_moved(subject, before, step, command, f"{flag}={owner}"),
            )


def _moved(subject: RecipeSubject, before: Step, step: Step, command: Command, flag: str) -> tuple[Edit, ...]:
    """Edits that add the owner to COPY and delete the RUN, if equivalent: `chown -R USER:GROUP` of a
    directory that has nothing else, and whose parent exists, since COPY gives the owner to parents that it
    makes."""
    path = location(command.plain[1], step)
    same = (
        re.fullmatch(r"--chown=[\w-]+:[\w-]+", flag) is not None
        and command.program == "chown"
        and [each for each in command.values if each.startswith("-")] in (["-R"], ["--recursive"])
        and posixpath.dirname(path) in (_USUAL | {before.workdir})
        and len(step.commands) == 1
        and len(command.plain) == 2
        and before.name == "COPY"
        and before.instruction.flag("chown") is None
        and path == location(before.instruction.args[-1], before)
        and next(subject.before(step), None) is before
    )
    if not same or any(_shares(each, path) for each in subject.before(before)) or before.workdir == path:
        return ()
    copy_start, _ = subject.source(before)
    match = re.compile(r"\s*COPY", re.IGNORECASE).match(subject.text, copy_start)
    start, end = subject.source(step)
    if match is None:
        return ()
    end = min(end + 1, len(subject.text))
    return Edit(match.end(), match.end(), f" {flag}"), Edit(start, end, "")


def _shares(step: Step, path: str) -> bool:
    """Whether a step may have written into a directory."""
    if step.name == "WORKDIR":
        return location(step.instruction.args[0], step) == path
    return any(f"{each}/".startswith(f"{path}/") for each in _written_by(step))


def _context(subject: RecipeSubject) -> Iterator[Hit]:
    if subject.ignore is not None:
        return
    for step in subject.steps:
        if step.name not in ("COPY", "ADD") or step.instruction.flag("from") is not None or not step.ships:
            continue
        if any(source.rstrip("/") in (".", "./", "") for source in step.instruction.args[:-1]):
            yield Hit(
                message="copies the whole context, and there is no .dockerignore: .git, caches and "
                "credentials come along",
                line=step.line,
                last=step.last,
                severity=Severity.INFO,
                remedy="write a .dockerignore: printf '.git\\n**/__pycache__\\n.env\\n' > .dockerignore",
            )


def _history(subject: ImageSubject) -> Iterator[Hit]:
    return grouped(subject.census.labelled("history"), "version control data", least=1)


RULES = (
    Rule(
        code="BB1003",
        title="A temporary file, a downloaded archive or a core dump stays in a layer.",
        why="Engines mount a scratch directory over /tmp, so nobody sees these files; every copy carries "
        "them.",
        remedy="remove it in the RUN that writes it, or unpack without storing: curl … | tar -xz",
        recipe=lambda subject: (*_temporary(subject), *_sources(subject)),
        image=_temporary_image,
        bad="FROM debian:12.7\nRUN curl -fsSLo /tmp/x.tar.gz https://example.org/x-1.0.tar.gz \\\n"
        "    && tar -xzf /tmp/x.tar.gz -C /opt\n",
        good="FROM debian:12.7\nRUN curl -fsSLo /tmp/x.tar.gz https://example.org/x-1.0.tar.gz \\\n"
        "    && tar -xzf /tmp/x.tar.gz -C /opt && rm -f /tmp/x.tar.gz\n",
        fixes=True,
    ),
    Rule(
        code="BB1004",
        title="A layer deletes or replaces files that a layer below still has.",
        why="A layer only hides what is below it: the bytes are stored, pulled and unpacked all the same.",
        remedy="delete files in the RUN that makes them, or build in another stage and copy the result",
        recipe=_deleted,
        image=lambda subject: _hidden(subject, "deleted", "replaced"),
        bad="FROM debian:12.7\nCOPY source.tar /src.tar\nRUN tar -xf /src.tar -C /opt\nRUN rm /src.tar\n",
        good="FROM debian:12.7\nRUN --mount=type=bind,source=source.tar,target=/src.tar tar -xf /src.tar "
        "-C /opt\n",
    ),
    Rule(
        code="BB1005",
        title="A change of owner or mode stores files a second time.",
        why="chown and chmod in a RUN of their own copy every file into a new layer. Engines ignore "
        "owners anyway.",
        remedy="use COPY --chown or --chmod, or run chown in the RUN that makes the files",
        recipe=_copied,
        image=lambda subject: _hidden(subject, "copied"),
        bad="FROM debian:12.7\nCOPY app /opt/app\nRUN chown -R 1000:1000 /opt/app\n",
        good="FROM debian:12.7\nCOPY --chown=1000:1000 app /opt/app\n",
        fixes=True,
    ),
    Rule(
        code="BB1006",
        title="Version control data or the whole build context is copied into the image.",
        why="A .git directory is often larger than the program, and has everything that was ever in it.",
        remedy="list it in .dockerignore, or remove it in the RUN that clones: rm -rf .git",
        recipe=_context,
        image=_history,
        bad="FROM debian:12.7\nCOPY . /opt/app\n",
        good="FROM debian:12.7\nCOPY src /opt/app\n",
    ),
)
