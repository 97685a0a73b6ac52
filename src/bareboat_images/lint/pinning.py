"""Rules about what makes the same Dockerfile produce different images."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bareboat_base.expressions import expression
from bareboat_base.printable import one_line
from bareboat_images.lint import managers
from bareboat_images.lint.caches import grouped
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.leftovers import downloads
from bareboat_images.lint.recipe import RecipeSubject, Step, cloned, expand
from bareboat_images.lint.rule import Hit, Rule, Severity
from bareboat_images.lint.shell import Command

_MOVING = expression(
    r"^latest|(?:^|[-_])(?:latest|stable|nightly|edge|main|master|devel|dev|rolling|current)$"
)
_CHECKS = frozenset(
    {"sha256sum", "sha512sum", "sha1sum", "md5sum", "shasum", "gpg", "gpgv", "b2sum", "cosign"}
)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "python", "python3", "perl"})
_PINNED = {
    "pip": expression(r".*(?:==|===|@|\.whl|\.tar\.gz|\.zip|^\.|^/|^\$|^git\+|://).*"),
    "uv": expression(r".*(?:==|===|@|\.whl|\.tar\.gz|^\.|^/|^\$|://).*"),
    "conda": expression(r".*(?:=|://|^/|^\$).*"),
    "npm": expression(r"(?:.+@.+|\.|/.*|\$.*|.*\.tgz)"),
    "yarn": expression(r"(?:.+@.+|\.|/.*|\$.*)"),
    "apt": expression(r".*(?:=|^/|^\./|\$|\.deb).*"),
    "apk": expression(r".*(?:[=<>~]|^/|\$|^\.).*"),
    "dnf": expression(r"(?:.*-\d[\w.+~]*.*|/.*|\$.*|https?://.*|@.*|.*\.rpm)"),
    "zypper": expression(r"(?:.*[=].*|.*-\d.*|/.*|\$.*|.*\.rpm)"),
}
_INSTALLS = {
    "apt": ("install",),
    "apk": ("add",),
    "dnf": ("install", "groupinstall"),
    "zypper": ("install", "in"),
}


def _bases(subject: RecipeSubject) -> Iterator[tuple[str, int, int]]:
    for stage in subject.recipe.stages:
        base = expand(stage.base, subject.recipe.arguments)
        if base not in ("scratch", "") and "$" not in base and subject.recipe.before(stage, base) is None:
            yield base, stage.start.line, stage.start.last


def _untagged(subject: RecipeSubject) -> Iterator[Hit]:
    for base, line, last in _bases(subject):
        tag = base.rpartition("/")[2].partition(":")[2]
        if "@" in base:
            continue
        if not tag:
            yield Hit(message=f"{base} has no tag, and is what was pushed last", line=line, last=last)
        elif _MOVING.search(tag):
            yield Hit(message=f"the tag of {base} moves", line=line, last=last)


def _undigested(subject: RecipeSubject) -> Iterator[Hit]:
    for base, line, last in _bases(subject):
        tag = base.rpartition("/")[2].partition(":")[2]
        if "@" not in base and tag and not _MOVING.search(tag):
            yield Hit(message=f"{base} has no digest", line=line, last=last)


def _packages(subject: RecipeSubject, *, system: bool) -> Iterator[Hit]:
    for step in subject.runs(ships=False):
        for command in step.commands:
            found = _unpinned(command, system=system)
            if found:
                more = f" and {len(found) - 3} more" if len(found) > 3 else ""
                yield Hit(
                    message=f"{command.program} installs {', '.join(found[:3])}{more} without a version",
                    line=step.line,
                    last=step.last,
                )


def _unpinned(command: Command, *, system: bool) -> tuple[str, ...]:
    manager = next((each for each in managers.MANAGERS if command.program in each.programs), None)
    if manager is None or manager.system is not system or manager.name not in _PINNED:
        return ()
    if manager.name == "uv" and command.plain[:1] == ("python",):
        return ()  # its argument is the version
    verbs = _INSTALLS.get(manager.name, manager.verbs)
    plain = command.plain[1:] if command.plain[:1] in (("pip",), ("env",)) else command.plain
    verb = next((each for each in plain[:2] if each in verbs), None)
    if verb is None or verb in ("ci", "sync", "download", "wheel", "update", "upgrade", ""):
        return ()
    if manager.name in ("pip", "uv") and command.has(
        "-r", "--requirement", "-c", "--constraint", "--require-hashes"
    ):
        return ()
    install = managers.Install(manager, command, verb)
    names = [each for each in managers.packages(install) if re.match(r"[A-Za-z0-9.$/@+-]", each)]
    return tuple(
        each for each in names if not _PINNED[manager.name].fullmatch(each) and each not in ("-", ".")
    )


def _clones(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.runs(ships=False):
        for command in step.commands:
            clone = cloned(command)
            if clone is None or any(each.startswith("$") and each not in clone for each in command.values):
                continue  # a variable may hold the tag
            if command.has("-b", "--branch", "--revision") and not _MOVING.search(
                command.option("-b", "--branch", "--revision") or ""
            ):
                continue
            fixed = any(
                (each.program == "git" and set(each.plain[:3]) & {"checkout", "reset", "switch"})
                or (each.program == "git" and "checkout" in each.values)
                for each in step.commands
            )  # fmt: skip
            if not fixed:
                yield Hit(
                    message=f"git clones {clone[0]} without a tag or commit", line=step.line, last=step.last
                )


def _unchecked(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.steps:
        if step.name == "ADD":
            for source in step.instruction.args[:-1]:
                if source.startswith(("http://", "https://")) and step.instruction.flag("checksum") is None:
                    yield Hit(message=f"ADD {one_line(source, limit=80)} has no --checksum",
                              line=step.line, last=step.last,
                              remedy="ADD --checksum=sha256:… URL PATH")  # fmt: skip
        if step.name != "RUN" or any(each.program in _CHECKS for each in step.commands):
            continue
        piped = _piped(step)
        if piped:
            yield Hit(message=piped, line=step.line, last=step.last)
            continue
        for command, _, path, _ in downloads(step):
            yield Hit(
                message=f"{command.program} writes {path}, which nothing checks",
                line=step.line,
                last=step.last,
            )
            break


def _piped(step: Step) -> str:
    """Describe a download that is piped into a shell; "" without one."""
    for before, command in zip(step.commands, step.commands[1:], strict=False):
        if before.program in ("curl", "wget") and before.after.startswith("|") and command.program in _SHELLS:
            return f"{before.program} | {command.program} runs what a server sends"
    return ""


def _upgrades(subject: RecipeSubject) -> Iterator[Hit]:
    verbs = {"apt": ("upgrade", "dist-upgrade", "full-upgrade"), "dnf": ("upgrade", "update"),
             "apk": ("upgrade",),
             "zypper": ("update", "up", "dist-upgrade", "dup"), "pacman": ("-Syu", "-Syyu")}  # fmt: skip
    for step in subject.runs(ships=False):
        for command in step.commands:
            manager = next((each for each in managers.MANAGERS if command.program in each.programs), None)
            words = command.values if manager is not None and manager.name == "pacman" else command.plain
            if (
                manager is not None
                and words[:1]
                and words[0] in verbs.get(manager.name, ())
                and len(words) == 1
            ):
                yield Hit(message=f"{command.program} {words[0]} installs what is newest on the day of "
                "the build",
                          line=step.line, last=step.last)  # fmt: skip


def _times(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.runs():
        for command in step.commands:
            if command.program == "date" and (command.outputs or not command.values):
                yield Hit(message="date writes the time of the build", line=step.line, last=step.last)
        found = re.search(r"\$\(date\b", step.instruction.text)
        if found is not None and "SOURCE_DATE_EPOCH" not in step.instruction.text:
            yield Hit(
                message="the time of the build is in the image: $(date …)", line=step.line, last=step.last
            )


def _logs(subject: ImageSubject) -> Iterator[Hit]:
    return grouped(subject.census.labelled("log"), "logs and generated caches", least=1)


RULES = (
    Rule(
        code="BB1601",
        title="A base image has no tag, or one that moves.",
        why="The next build has another base, and nobody knows which.",
        remedy="FROM NAME:VERSION@sha256:…",
        recipe=_untagged,
        bad="FROM debian:latest\n",
        good="FROM debian:12.7\n",
    ),
    Rule(
        code="BB1602",
        title="A base image has no digest.",
        why="Tags are pushed again, with security fixes and with other things.",
        remedy="FROM NAME:VERSION@sha256:…   # bareboat image show NAME:VERSION prints it",
        severity=Severity.INFO,
        recipe=_undigested,
        bad="FROM debian:12.7\n",
        good=f"FROM debian:12.7@sha256:{'0123456789abcdef' * 4}\n",
    ),
    Rule(
        code="BB1603",
        title="Packages of a language are installed without a version.",
        why="Each build installs what is newest; results change, and builds break.",
        remedy="NAME==VERSION, or a lock file with hashes: pip install --require-hashes -r requirements.txt",
        recipe=lambda subject: _packages(subject, system=False),
        bad="FROM python:3.12.4-slim\nRUN pip install --no-cache-dir numpy\n",
        good="FROM python:3.12.4-slim\nRUN pip install --no-cache-dir numpy==2.1.0\n",
    ),
    Rule(
        code="BB1604",
        title="Packages of a distribution are installed without a version.",
        why="Mirrors keep the newest version only, so a pinned version may vanish; a snapshot mirror or "
        "a kept image gives both.",
        remedy="NAME=VERSION with a snapshot mirror, or keep the built image by its digest",
        severity=Severity.INFO,
        recipe=lambda subject: _packages(subject, system=True),
        bad="FROM debian:12.7\nRUN apt-get update && apt-get install -y gcc && rm -rf /var/lib/apt/lists/*\n",
        good="FROM debian:12.7\nRUN apt-get update && apt-get install -y gcc=4:12.2.0-3 \\\n"
        "    && rm -rf /var/lib/apt/lists/*\n",
    ),
    Rule(
        code="BB1605",
        title="A repository is cloned without a tag or commit.",
        why="Each build has what was pushed last.",
        remedy="git clone --branch TAG --depth 1 URL, or git checkout COMMIT",
        recipe=_clones,
        bad="FROM debian:12.7\nRUN git clone https://example.org/tool.git /opt/tool\n",
        good="FROM debian:12.7\nRUN git clone --branch v1.2.0 --depth 1 https://example.org/tool.git "
        "/opt/tool\n",
    ),
    Rule(
        code="BB1606",
        title="A download is not checked.",
        why="The server may send another file tomorrow, or to somebody else.",
        remedy="echo 'SHA256  FILE' | sha256sum -c -, or ADD --checksum=sha256:… URL PATH",
        recipe=_unchecked,
        bad="FROM debian:12.7\nADD https://example.org/tool.bin /usr/local/bin/tool\n",
        good=f"FROM debian:12.7\nADD --checksum=sha256:{'0123456789abcdef' * 4} \\\n"
        "    https://example.org/tool.bin /usr/local/bin/tool\n",
    ),
    Rule(
        code="BB1607",
        title="All packages of the base image are upgraded.",
        why="The result depends on the day, and the replaced files stay in the layers below.",
        remedy="use a newer tag of the base image",
        recipe=_upgrades,
        bad="FROM debian:12.7\nRUN apt-get update && apt-get upgrade -y && rm -rf /var/lib/apt/lists/*\n",
        good="FROM debian:12.8\n",
    ),
    Rule(
        code="BB1608",
        title="A layer has the time of its build: logs, generated caches, or date.",
        why="It differs in each build, so the same Dockerfile gives another digest.",
        remedy="rm -rf /var/log/* /var/cache/ldconfig/aux-cache in the RUN that writes them; use "
        "SOURCE_DATE_EPOCH",
        severity=Severity.INFO,
        recipe=_times,
        image=_logs,
        bad="FROM debian:12.7\nRUN date > /etc/built\n",
        good="FROM debian:12.7\nARG SOURCE_DATE_EPOCH\nRUN echo $SOURCE_DATE_EPOCH > /etc/built\n",
    ),
)
