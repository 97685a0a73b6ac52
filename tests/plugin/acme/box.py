"""acme-box: util-linux's unshare and chroot. As little as an engine can be."""

from __future__ import annotations

import functools

from bareboat.engines import (
    PASSED_ASSIGNMENT,
    RUN_VARIABLES,
    Container,
    Enclosure,
    Engine,
    Host,
    command_environment,
    forwarded,
    run_directories,
    usable,
)
from bareboat.model import (
    Command,
    EngineFacts,
    IfSet,
    Image,
    Joined,
    Mount,
    NodePath,
    Refusal,
    Site,
    Variable,
    Word,
)

#: $1: the image, $2: the working directory; then pairs of what is mounted and where, up to "--". The image is
#: mounted at /mnt first, so that its own files are still seen where it lies.
_ENTER = """\
root=/mnt workdir=$2
mount --rbind "$1" "$root" || exit
shift 2
while [ "$1" != -- ]; do
  mkdir -p "$root$2" 2>/dev/null
  if [ "$1" = tmpfs ]; then mount -t tmpfs tmpfs "$root$2"; else mount --rbind "$1" "$root$2"; fi || exit
  shift 2
done
shift
exec chroot "$root" /usr/bin/env -i --chdir="$workdir" "$@"
"""


class Box(Engine):
    NAME = "acme-box"

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        path = host.which("unshare")
        if path is None:
            return ()
        outcome = host.run([path, "--user", "--map-root-user", "--mount", "true"])
        return (
            EngineFacts(
                name=self.NAME,
                path=path,
                version="1.0",
                origin="on PATH",
                works=outcome.ok,
                detail=outcome.stderr,
            ),
        )

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        facts = usable(self.NAME, site, image, program="unshare", remedy="install util-linux")
        if isinstance(facts, Refusal):
            return facts
        return Enclosure(
            f"{facts.path} ran here when probed",
            functools.partial(_wrap, facts, site),
            overlay=False,
            mount_points=True,
            run_folder=run_directories.run_folder,
        )


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    words: list[Word] = [facts.path, "--user", "--map-root-user", "--mount"]
    words += ["sh", "-c", _ENTER, "sh", container.tree or "", command.workdir]
    shown = [Mount(source=path, target=path) for path in ("/dev", "/proc", "/sys")]
    for path in container.scratch:
        words += ["tmpfs", path]
    for mount in (*shown, *container.mounts):
        words += [mount.source, mount.target]
    words.append(
        IfSet(
            "BAREBOAT_RUN_DIR",
            (NodePath("BAREBOAT_RUN_DIR"), run_directories.inside_name("BAREBOAT_RUN_DIR")),
        )
    )
    words.append("--")
    for name, value in command_environment.entries(command, container, site).items():
        words.append(command_environment.assignment(name, value))
    for name in RUN_VARIABLES:
        words.append(IfSet(name, (Joined((f"{name}=", Variable(name))),)))
    words += forwarded(container, PASSED_ASSIGNMENT)
    return Command(argv=(*words, *run_directories.inside(command.argv)))
