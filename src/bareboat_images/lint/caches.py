"""Rules about caches that stay in layers."""

from __future__ import annotations

from collections.abc import Iterator

from bareboat_images.lint import managers
from bareboat_images.lint.census import Group
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject, Step
from bareboat_images.lint.rule import Edit, Hit, Rule, Severity, files, size

_LEAST_BYTES = 64_000
#: A finding of fewer bytes has severity INFO.
SMALL_BYTES = 1_000_000
#: Verbs of apt that do not read the package lists.
_WITHOUT_LISTS = frozenset({"clean", "autoclean", "distclean", "remove", "purge", "autoremove", "autopurge"})


def _recipe(subject: RecipeSubject, *, system: bool) -> Iterator[Hit]:
    for step in subject.runs():
        seen: set[str] = set()
        for install in managers.all_of(step):
            manager = install.manager
            if manager.system is not system or not managers.leaves(step, install):
                continue
            if manager.name in seen and not manager.flag:
                continue
            first = manager.name not in seen
            seen.add(manager.name)
            edits = _edits(subject, step, install)
            yield Hit(
                message=f"{install.command.program} {install.verb}".rstrip()
                + f" leaves {manager.cache[0].replace('~', step.home, 1)} in the layer",
                line=step.line,
                last=step.last,
                remedy=_remedy(install) if first else "",
                edits=edits,
            )


def _edits(subject: RecipeSubject, step: Step, install: managers.Install) -> tuple[Edit, ...]:
    if install.manager.flag:
        return managers.flag(install)
    if not install.manager.cleanup or _is_needed(subject, step, install):
        return ()
    by_sudo = any(command.program == "sudo" for command in step.commands)
    if install.manager.system and (by_sudo or not step.is_root):
        return ()
    command = _cleanup(install)
    cleans = any(
        each.program in install.manager.programs and "clean" in each.plain[:1] for each in step.commands
    )
    if cleans or not step.keeps("/var/cache/apt/archives"):
        command = command.removeprefix("apt-get clean && ")
    return subject.appended(step, command)


def _is_needed(subject: RecipeSubject, step: Step, install: managers.Install) -> bool:
    """Whether a later RUN reads the package lists that this one fetched, or may do so."""
    if install.manager.name != "apt":
        return False
    for later in subject.steps[step.number + 1 :]:
        if later.ships is not step.ships or later.name == "ONBUILD":
            continue
        for command in later.commands:
            if command.program in install.manager.programs:
                if "update" in command.plain[:1]:
                    return False
                if not set(command.plain[:1]) <= _WITHOUT_LISTS:
                    return True
            elif command.program in ("apt-cache", "apt-file", "add-apt-repository"):
                return True
            elif command.words[0].value.startswith("./") or any(
                word.value.endswith(".sh") for word in command.words[:2]
            ):
                return True  # a script that may install
    return False


def _cleanup(install: managers.Install) -> str:
    return install.manager.cleanup.format(program=install.command.words[0].raw)


def _remedy(install: managers.Install) -> str:
    if install.manager.flag:
        return f"{install.command.program} {install.verb} {install.manager.flag} …".replace("  ", " ")
    if not install.manager.cleanup:
        return "build in another stage and copy the result, or use --mount=type=cache"
    return f"end the RUN with: && {_cleanup(install)}; or use --mount=type=cache"


def grouped(groups: list[Group], what: str, *, least: int = _LEAST_BYTES) -> Iterator[Hit]:
    """A hit for each group of files of at least `least` bytes."""
    for group in groups:
        if group.size_bytes < least:
            continue
        yield Hit(
            message=f"{what} in {group.place}: {size(group.size_bytes)} in {files(group.files)}",
            layer=group.layer,
            paths=group.paths,
            size_bytes=group.size_bytes,
            files=group.files,
            severity=None if group.size_bytes >= SMALL_BYTES else Severity.INFO,
        )


def _system_image(subject: ImageSubject) -> Iterator[Hit]:
    return grouped(subject.census.labelled("package cache"), "package manager's cache")


def _language_image(subject: ImageSubject) -> Iterator[Hit]:
    return grouped(subject.census.labelled("language cache"), "cache")


RULES = (
    Rule(
        code="BB1001",
        title="A distribution's package manager leaves its cache or lists in a layer.",
        why="Lists of packages and downloaded packages are of no use at run time, and grow every copy of "
        "the image.",
        remedy="remove the cache in the RUN that makes it, or keep it in a mount: --mount=type=cache",
        recipe=lambda subject: _recipe(subject, system=True),
        image=_system_image,
        bad="FROM debian:12.7\nRUN apt-get update && apt-get install -y gcc=4:12.2.0-3\n",
        good="FROM debian:12.7\nRUN apt-get update && apt-get install -y gcc=4:12.2.0-3 \\\n"
        "    && apt-get clean && rm -rf /var/lib/apt/lists/*\n",
        fixes=True,
    ),
    Rule(
        code="BB1002",
        title="A language's package manager or compiler leaves its cache in a layer.",
        why="pip, conda, npm and others keep what they downloaded; conda's cache doubles an environment.",
        remedy="switch the cache off or empty it in the same RUN, or keep it in a mount: --mount=type=cache",
        recipe=lambda subject: _recipe(subject, system=False),
        image=_language_image,
        bad="FROM python:3.12.4-slim\nRUN pip install numpy==2.1.0\n",
        good="FROM python:3.12.4-slim\nRUN pip install --no-cache-dir numpy==2.1.0\n",
        fixes=True,
    ),
)
