"""Sarus: CSCS's setuid OCI runtime. It runs images of its own repository, never a tree.

The user loads the image once, with `sarus load`. Bareboat finds it by the digest in its name and starts it:
mounts, working directory, entry point and environment are the job's. Changes in the container lie in Sarus's
overlay and vanish. Sarus would pass on the host's environment, which is dropped outside and inside.

Written from https://sarus.readthedocs.io/en/stable/user/user_guide.html; see UNTESTED.
"""

from __future__ import annotations

import functools
import re

from bareboat.engines import (
    STARTERS,
    Container,
    Enclosure,
    Engine,
    Host,
    command_environment,
    run_directories,
    usable,
)
from bareboat.engines.places import Place, join, planned
from bareboat.engines.run_directories import inside, inside_name, run_variables
from bareboat.model import Command, EngineFacts, IfSet, Image, Joined, NodePath, Refusal, Site, Word
from bareboat_base.errors import PlanError
from bareboat_untested import plain_start, site_images

#: Sarus loads archives of `docker save`.
_HOW = (
    "bareboat image save DIGEST oci-archive:image.tar"
    " && skopeo copy oci-archive:image.tar docker-archive:bareboat.tar:NAME && sarus load bareboat.tar NAME"
)


class Sarus(Engine):
    NAME = "sarus"
    STARTS_BY = STARTERS
    UNTESTED = "untested: written from Sarus's documentation, never run on the real Sarus"

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        path = host.which("sarus")
        if path is None:
            return ()
        said = host.run([path, "--version"])
        version = re.search(r"\d{1,5}\.\d{1,5}\S{0,40}", said.stdout)
        if not said.ok or version is None:
            return (_facts(path, "", False, f"`sarus --version` said: {said.stdout or said.stderr}".strip()),)
        said = host.run([path, "images"])
        if not said.ok or not said.stdout.startswith("REPOSITORY"):
            detail = f"`sarus images` said: {(said.stderr or said.stdout).strip()}; {self.UNTESTED}"
            return (_facts(path, version[0], False, detail),)
        images = site_images.listed(said.stdout)
        detail = f"its repository holds {len(images)} images of Bareboat's; {self.UNTESTED}"
        return (_facts(path, version[0], True, detail, images),)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        facts = usable(self.NAME, site, image, program="sarus", remedy="module load sarus")
        if isinstance(facts, Refusal):
            return facts
        assert image is not None  # checked by usable()
        missing = site_images.missing(image, facts, tool="Sarus", how=_HOW)
        if missing is not None:
            return missing
        return Enclosure(
            f"{facts.path} {facts.version} has the image; {self.UNTESTED}",
            functools.partial(_wrap, facts, site),
            overlay=False,
            run_folder=run_directories.run_folder,
            reads_tree=False,
        )


def _facts(
    path: str, version: str, works: bool, detail: str, images: dict[str, str] | None = None
) -> EngineFacts:
    return EngineFacts(
        name=Sarus.NAME, path=path, version=version, origin="on PATH", works=works, detail=detail,
        remedy="" if works else "sarus images", settings=images or {},
    )  # fmt: skip


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    found = command_environment.entries(command, container, site)
    words: list[Word] = ["env", "-i", "-S", command_environment.carriers(len(found))]
    words.append(f"PATH=/usr/bin:/bin:{facts.path.rpartition('/')[0]}")
    words += [f"HOME={site.home}", f"USER={site.user}"]
    # Sarus stays as the command's parent without the run's mark: a SIGTERM is for the command. An empty value
    # must be a separate word, according to the user guide.
    words += [facts.path, "run", "--entrypoint", ""]
    for mount in container.mounts:
        words.append(_mount(mount.source, mount.target, readonly=not mount.writable))
    for name in container.run_folders:
        bind = ("--mount=type=bind,source=", NodePath(name), f",destination={inside_name(name)}")
        words.append(IfSet(name, (Joined(bind),)))
    words += [f"--workdir={command.workdir}", _image(command, facts)]
    run = run_variables()
    start = plain_start.words(command.workdir, found, run, inside(command.argv), container)
    return Command(argv=(*words, *start), sealed=command_environment.exported(found))


def _image(command: Command, facts: EngineFacts) -> str:
    digest = command.environment.get("BAREBOAT_IMAGE", "")
    return facts.settings.get(site_images.key(digest), site_images.name(digest))


def _mount(source: Place, target: str, *, readonly: bool) -> str | Joined:
    for path in (planned(source), target):
        if "," in path or "=" in path:
            raise PlanError(
                f"sarus cannot mount {path}: its mounts are key=value pairs parted by commas",
                remedy="rename the directory, or use another engine",
            )
    ending = ",readonly" if readonly else ""
    return join("--mount=type=bind,source=", source, f",destination={target}{ending}")
