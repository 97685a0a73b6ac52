"""Shifter: NERSC's setuid runtime. Its images come from a registry through the site's image gateway, never
from a tree.

The user pushes the image and has the gateway pull it; Bareboat finds it by the digest in its name and starts
it. Shifter makes no mount points: a directory is visible at a path only if the site shows it there (siteFs:
usually the home and the scratch) or the image has such a directory. So mounts with the same path outside and
inside are left to the site, and mounts that Shifter is known to forbid are refused in advance.

Written from https://shifter.readthedocs.io/en/latest/command/shifter.html and the output of `shifter --help`;
see UNTESTED.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from bareboat.engines import (
    RUN_FOLDERS,
    RUN_VARIABLES,
    STARTERS,
    Container,
    Enclosure,
    Engine,
    Host,
    command_environment,
    usable,
    when_set,
)
from bareboat.engines.places import Place, join, planned
from bareboat.model import Command, EngineFacts, IfSet, Image, Joined, NodePath, Refusal, Site, Variable, Word
from bareboat_base.errors import PlanError
from bareboat_untested import plain_start, site_images

_HOW = (
    "bareboat image push DIGEST REGISTRY/YOU/NAME && shifterimg pull docker:REGISTRY/YOU/NAME"
    " (in a registry that the site's gateway can reach)"
)
#: Nothing can be mounted under these.
_FORBIDDEN = ("/dev", "/etc", "/opt/udiImage", "/proc", "/var")


class Shifter(Engine):
    NAME = "shifter"
    STARTS_BY = STARTERS
    UNTESTED = "untested: written from Shifter's documentation, never run on the real Shifter"

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        path, gateway = host.which("shifter"), host.which("shifterimg")
        if path is None:
            return ()
        said = host.run([path, "--help"])
        if not said.ok or "--volume" not in said.stdout:
            return (_facts(path, False, f"`shifter --help` said: {(said.stdout or said.stderr).strip()}"),)
        if gateway is None:
            detail = f"shifterimg, which lists images, is not installed; {self.UNTESTED}"
            return (_facts(path, False, detail),)
        said = host.run([gateway, "images"])
        if not said.ok:
            detail = f"`shifterimg images` said: {(said.stderr or said.stdout).strip()}; {self.UNTESTED}"
            return (_facts(path, False, detail),)
        ready = "\n".join(line for line in said.stdout.splitlines() if " READY " in line)
        images = site_images.listed(ready)
        detail = f"the site's gateway has {len(images)} images of Bareboat's; {self.UNTESTED}"
        return (_facts(path, True, detail, images),)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        facts = usable(self.NAME, site, image, program="shifter", remedy="module load shifter")
        if isinstance(facts, Refusal):
            return facts
        assert image is not None  # checked by usable()
        missing = site_images.missing(image, facts, tool="Shifter", how=_HOW)
        if missing is not None:
            return missing
        return Enclosure(
            f"{facts.path}: the site's gateway has the image; {self.UNTESTED}",
            functools.partial(_wrap, facts, site),
            overlay=False,
            run_folder=lambda _container, _variable: None,
            reads_tree=False,
        )


def _facts(path: str, works: bool, detail: str, images: dict[str, str] | None = None) -> EngineFacts:
    return EngineFacts(
        name=Shifter.NAME, path=path, version="", origin="on PATH", works=works, detail=detail,
        remedy="" if works else "shifterimg images", settings=images or {},
    )  # fmt: skip


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    if any(name in RUN_FOLDERS for word in command.argv for name in _variables(word)):
        raise PlanError(
            "the launcher needs its directory of the run in the container, and Shifter makes no mount points",
            remedy="take another engine, or one process: ranks_per_node = 1",
        )
    found = command_environment.entries(command, container, site)
    digest = command.environment.get("BAREBOAT_IMAGE", "")
    image = facts.settings.get(site_images.key(digest), site_images.name(digest))
    # Shifter executes the command, so it has the run's mark; its other settings (SHIFTER_VOLUME) are the
    # caller's and are not passed.
    words: list[Word] = ["env", "-i", "-S", command_environment.carriers(len(found))]
    words += ["PATH=/usr/bin:/bin", f"HOME={site.home}", f"USER={site.user}"]
    words.append(when_set("BAREBOAT_RUN"))
    words += [facts.path, f"--image=docker:{image}", f"--workdir={command.workdir}"]
    for mount in container.mounts:
        if mount.source != mount.target:
            words.append(_volume(mount.source, mount.target, readonly=not mount.writable))
    run = {name: Variable(name) for name in RUN_VARIABLES}
    start = plain_start.words(command.workdir, found, run, command.argv, container)
    return Command(argv=(*words, "--", *start), sealed=command_environment.exported(found))


def _volume(source: Place, target: str, *, readonly: bool) -> str | Joined:
    for path in (planned(source), target):
        if any(mark in path for mark in ":;"):
            raise PlanError(
                f"shifter cannot mount {path}: colons and semicolons part its mounts",
                remedy="rename the directory, or use another engine",
            )
    if any(target == folder or target.startswith(f"{folder}/") for folder in _FORBIDDEN):
        raise PlanError(
            f"shifter mounts nothing at {target}: {', '.join(_FORBIDDEN)} are its own",
            remedy="mount it elsewhere, or use another engine",
        )
    return join("--volume=", source, f":{target}" + (":ro" if readonly else ""))


def _variables(word: Word) -> Iterator[str]:
    match word:
        case NodePath(variable=name):
            yield name
        case Joined(parts=parts):
            yield from (part.variable for part in parts if isinstance(part, NodePath))
        case IfSet(words=words):
            for each in words:
                yield from _variables(each)
        case _:
            pass
