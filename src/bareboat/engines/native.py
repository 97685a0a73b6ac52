"""native: no container. The bare-metal arm of every study, and the last resort where no engine works."""

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
    when_set,
)
from bareboat.model import Command, EngineFacts, Image, Refusal, Site, Word


class Native(Engine):
    NAME = "native"
    CONTAINS = False

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        outcome = host.run(["env", "-i", "-S", "true"])
        return (
            EngineFacts(
                name=self.NAME,
                path=host.which("env") or "env",
                version="",
                origin="the machine itself",
                works=outcome.ok,
                detail="" if outcome.ok else outcome.stderr.strip(),
            ),
        )

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        if image is not None and (image.python is None or image.reference or image.built):
            return Refusal("the image was not captured on this machine: its files are not on bare metal")
        return Enclosure("runs the environment in place, without a container", functools.partial(_wrap, site))


def _wrap(site: Site, command: Command, container: Container) -> Command:
    """`env -i`: the command gets the same environment as in a container, and nothing of the caller's, unless
    it `inherits`."""
    found = command_environment.entries(command, container, site)
    cleared = (
        [f"--unset={name}" for name in command_environment.exports(len(found))]
        if container.inherits
        else ["-i"]
    )
    words: list[Word] = [
        "env",
        *cleared,
        f"--chdir={command.workdir}",
        "-S",
        command_environment.split(found),
    ]
    words += map(when_set, RUN_VARIABLES)
    words += forwarded(container, PASSED_ASSIGNMENT)
    if "=" in str(command.argv[0]):  # env would read it as a variable
        words += ["/bin/sh", "-c", 'exec "$0" "$@"']
    return Command(argv=(*words, *command.argv), sealed=command_environment.exported(found))
