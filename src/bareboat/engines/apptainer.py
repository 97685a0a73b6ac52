"""Apptainer: installed on most clusters. A sandbox directory, in a user namespace or by a setuid starter.

The image is its one flat tree, or that tree as a SIF, read-only. Apptainer makes missing mount points in an
underlay of its own (with the setuid starter: depending on the site's configuration). Writable directories lie
on the session's tmpfs. It makes no PID, IPC, network or UTS namespace.

Singularity has the same command line under another name (`bareboat.engines.singularity`). All options used
exist in SingularityCE 3.9 and Apptainer 1.0; the probe shows how older versions fail.

Manual: https://apptainer.org/docs/user/main/ and, for its environment, the script that it interprets:
https://github.com/apptainer/apptainer/blob/main/internal/pkg/util/fs/files/action_script.sh
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bareboat.engines import (
    PASSED_ASSIGNMENT,
    PROGRAMS_IN_STORE,
    RUN_VARIABLES,
    Apart,
    Container,
    Enclosure,
    Engine,
    Host,
    Seccomp,
    broken,
    command_environment,
    forwarded,
    host_programs,
    refusal,
    usable,
    when_set,
)
from bareboat.engines.places import Place, join, planned
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
from bareboat_base.errors import PlanError
from bareboat_base.paths import lies_in

#: Modes, best first -> the option, and its effect. Only an installation without setuid accepts the user's own
#: configuration; the site's limits how much a job writes outside its mounts.
_CONFIGURED, _USERNS, _PRIVILEGED = "configured", "userns", "privileged"
_SITES_SIZE = (
    "/tmp, /run and the home share what `sessiondir max size` allows in the site's configuration, "
    "64 MB by default"
)
_MODES = {
    _CONFIGURED: "in a user namespace",
    _USERNS: f"in a user namespace; {_SITES_SIZE}",
    _PRIVILEGED: f"by the setuid starter; {_SITES_SIZE}",
}
#: Everything that Apptainer mounts by default, except /dev, /proc, /sys and /etc/resolv.conf.
_UNASKED = "home,cwd,tmp,hostfs,bind-paths"
#: Apptainer would run its scripts in the image, which could print or change anything: an empty directory
#: hides them.
_SCRIPTS = "/.singularity.d/env"
_PROGRAMS = "/.singularity.d/bareboat"
#: Where Apptainer would keep the user's data (~/.apptainer). Nothing can be created in /proc, so it silently
#: continues without. It would change the mode of an existing directory.
_NOWHERE = "/proc/self/bareboat"
#: For mount points that the image lacks, an overlay makes every stat in the image 1.7 times as slow; an
#: underlay (an empty directory with the image's entries mounted into it) costs almost nothing.
_CONFIGURATION = "sessiondir max size = {size_mb}\nenable overlay = no\n"
#: $0: the text of a configuration, $1: the program. A configuration file would have to be made and removed.
_WITH_CONFIGURATION = (
    'exec {file}<<<"$0"; program=$1; shift; exec "$program" --silent --nocolor --config "/dev/fd/$file" "$@"'
)


class Apptainer(Engine):
    NAME = "apptainer"
    APART = Apart.USER
    FILES = ("sif",)
    SECCOMP = Seccomp.TERMINAL

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        return _probe(self.NAME, host)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        return _judge(self.NAME, site, image)


def _probe(name: str, host: Host) -> tuple[EngineFacts, ...]:
    """Probe the program of this name in each mode until one works."""
    path = host.which(name)
    if path is None:
        return ()
    said = host.run([path, "--version"])
    version = re.search(r"^(\S{1,60}) version (\d{1,5}\.\d{1,5}(?:\.\d{1,5})?)", said.stdout)
    if not said.ok or version is None:
        detail = f"`{name} --version` said: {said.stdout or said.stderr}".strip()
        return (broken(name, path, detail),)
    origin = "on PATH" if version[1] == name else f"on PATH; it is {version[1]}"
    programs = host_programs.find(host)
    faults: dict[str, str] = {}
    obstacle = None
    modes = list(_MODES)
    while modes:
        mode = modes.pop(0)
        root = Path(host.scratch()) / "root"
        root.mkdir()
        fault = _fault(host, path, mode, programs, Container(flat=str(root), scratch=("/tmp",), home="/tmp"))
        if fault is None and os.listdir(root):
            fault = f"it wrote into the image: {os.listdir(root)}"
        if fault is None:
            files = {"sif": _fault_of_sif(host, path, mode, programs)}
            return (
                EngineFacts(
                    name=name, path=path, version=version[2], origin=origin, works=True, detail=_MODES[mode],
                    settings=programs, modes=(mode,), files=files,
                ),
            )  # fmt: skip
        if not faults and (obstacle := host.user_namespace_obstacle()) is not None:
            # A security module may allow namespaces to Apptainer and forbid them to other programs.
            modes.reverse()
        faults[mode] = fault
    failure = obstacle or Refusal(f"it failed with: {faults[_CONFIGURED]}", "bareboat doctor")
    reason, remedy = failure.reason, failure.remedy
    if obstacle is not None:
        reason += f"; without them it failed with: {faults[_PRIVILEGED]}"
    return (
        EngineFacts(
            name=name, path=path, version=version[2], origin=origin, works=False, detail=reason, remedy=remedy
        ),
    )


def _fault_of_sif(host: Host, path: str, mode: str, programs: Mapping[str, str]) -> str:
    """Probe with the image as one file, and with a directory of it mounted elsewhere. Empty when it works."""
    root = Path(host.scratch()) / "root"
    (root / "seen" / "here").mkdir(parents=True)

    def run(packed: str) -> str | None:
        seen = Mount(source=f"{packed}/seen", target="/tmp/seen")
        container = Container(packed=packed, scratch=("/tmp",), mounts=(seen,), home="/tmp")
        return _fault(host, path, mode, programs, container)

    return host_programs.image_trial(host, root, "sif", run)


def _fault(host: Host, path: str, mode: str, programs: Mapping[str, str], container: Container) -> str | None:
    """Probe with the machine's env in an empty image: mounts, mount points, variables. None when it works."""
    if not {"env", "bash"} <= programs.keys():
        return "this machine has no env, bash or ldd on PATH, with which commands are started inside"
    env = host_programs.call(programs, _PROGRAMS, "env")
    start = host_programs.Start(programs, _PROGRAMS, ("TRIED=yes",), env)
    words = (*_words(path, mode, container, "/", start, size_mb=64), *start.words)
    outcome = host.run([word for word in map(_known, words) if word is not None])
    if not outcome.ok or outcome.stdout != "TRIED=yes\n":
        # Such as "FATAL:   …", always in colour.
        lines = (
            re.sub(r"\x1b\[[0-9;]*m|^[A-Z]+ *: *", "", outcome.stderr, flags=re.MULTILINE)
            .strip()
            .splitlines()
        )
        return lines[-1] if lines else f"exit code {outcome.exit_code}, and it printed {outcome.stdout!r}"
    return None


def _known(word: Word) -> str | None:
    """A word's value now: of the job script's variables only PATH is known."""
    match word:
        case str():
            return word
        case Joined():
            return f"PATH={os.environ.get('PATH', os.defpath)}"
        case _:
            return None


def _judge(name: str, site: Site, image: Image | None) -> Enclosure | Refusal:
    facts = usable(name, site, image, program=name, remedy=f"module load {name}")
    if isinstance(facts, Refusal):
        return facts
    if not facts.modes:
        return Refusal(facts.detail, remedy=facts.remedy)
    if (refused := refusal(site, PROGRAMS_IN_STORE)) is not None:
        return refused
    return Enclosure(
        f"{facts.path} {facts.version}, {facts.origin}; it ran here when probed, {facts.detail}",
        functools.partial(_wrap, facts, site),
        overlay=False,
    )


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    found = command_environment.entries(command, container, site)
    assignments: list[Word] = [*map(when_set, RUN_VARIABLES)]
    assignments += forwarded(container, PASSED_ASSIGNMENT)
    start = host_programs.Start(facts.settings, _PROGRAMS, tuple(assignments), command.argv, tuple(found))
    inner = start.words
    if container.guard is not None:
        # Apptainer has no filter for users; with the setuid starter a filter from outside would come too
        # early.
        start.files[f"{_PROGRAMS}/filter"] = container.guard.loader(full=False)
        inner = (f"{_PROGRAMS}/filter", *inner)
    # Half of the memory, the kernel's default for a tmpfs.
    size_mb = max(site.mem_bytes // 2 >> 20, 64)
    words = _words(facts.path, facts.modes[0], container, command.workdir, start, size_mb=size_mb)
    for word in words:
        for part in word.parts if isinstance(word, Joined) else (word,):
            if isinstance(part, str):
                _check_utf8(facts.name, part)
    return Command(argv=(*words, *inner), sealed=command_environment.by_descriptor(found))


def _words(
    path: str, mode: str, container: Container, workdir: str, start: host_programs.Start, *, size_mb: int
) -> Sequence[Word]:
    """The tool with its options and the image; the command inside follows.

    The tool gets none of the caller's variables, because APPTAINER_BIND and a hundred others are options. Nor
    does it get the run's mark: it stays as the command's parent, and ends when the command does.
    """
    words: list[Word] = ["env", "-i", Joined(("PATH=", Variable("PATH")))]
    words += [f"{prefix}_CONFIGDIR={_NOWHERE}" for prefix in ("APPTAINER", "SINGULARITY")]
    if mode == _CONFIGURED:
        words += ["bash", "-c", _WITH_CONFIGURATION, _CONFIGURATION.format(size_mb=size_mb), path]
    else:
        words += [path, "--silent", "--nocolor"]
    words += ["exec", *([] if mode == _PRIVILEGED else ["--userns"]), "--cleanenv", "--no-home"]
    words.append(f"--no-mount={_UNASKED}")
    words += _driver(container)
    folders = {_SCRIPTS, *container.scratch, *_places_in_scratch(container, workdir)}
    # Outer before inner: it makes a directory's parents, and then refuses to make one of these itself.
    for folder in sorted(folders, key=lambda path: path.split("/")):
        if "," in folder:
            raise PlanError(
                f"Apptainer cannot make an empty directory at {folder!r}: a comma parts one from the next",
                remedy="take another engine, or another HOME",
            )
        words.append(f"--scratch={folder}")
    binds: list[tuple[Place, str, bool]] = [(source, target, False) for target, source in start.files.items()]
    # Apptainer copies the host's /etc/resolv.conf by itself.
    binds.append(("/etc/hosts", "/etc/hosts", False))
    mounts = (*container.identity_mounts, *container.mounts)
    binds += [(mount.source, mount.target, mount.writable) for mount in mounts]
    for source, target, writable in binds:
        inner = ""
        if container.packed is not None and planned(source).startswith(f"{container.packed}/"):
            source, inner = container.packed, planned(source).removeprefix(container.packed)
        fields = [_field(f"destination={target}")]
        fields += [_field(f"image-src={inner}")] if inner else []
        fields += [] if writable else ["ro"]
        of = (_field(f"source={source}"),) if isinstance(source, str) else ("source=", source)
        words.append(join("--mount=type=bind,", *of, "," + ",".join(fields)))
    for name in container.run_folders:
        place = NodePath(name)
        bind = Joined(('--mount=type=bind,"source=', place, '","destination=', place, '"'))
        words.append(IfSet(name, (bind,)))
    # A plan for an environment that is not captured yet has no image.
    return (*words, f"--pwd={workdir}", container.root or "")


def _driver(container: Container) -> list[str]:
    """Apptainer's option for GPUs, as the site has configured it: it shows the devices where the site gives
    containers a /dev of their own. As in all engines, the libraries come from the mounts: they are first in
    LD_LIBRARY_PATH."""
    if container.driver is None:
        return []
    return ["--nv"] if container.driver.vendor == "nvidia" else ["--rocm"]


def _places_in_scratch(container: Container, workdir: str) -> list[str]:
    """The mount points that would be missing in a writable directory: Apptainer makes none where the image
    has one, although the scratch directory hides it. A scratch directory in a scratch directory is also a
    directory there.

    Only these mounts are known to be directories and may be in the image: its environments, the working
    directory, and the directories around them.
    """
    images = planned(container.root or "/not-captured")
    known = [m.target for m in container.mounts if m.target == workdir or lies_in(planned(m.source), images)]
    if container.driver is not None:  # all of its mounts in scratch are directories
        known += [m.target for m in container.mounts if m.target.startswith(("/run/", "/tmp/"))]
    return [
        mount.target
        for mount in container.mounts
        if any(lies_in(target, mount.target) for target in known)
        and any(lies_in(mount.target, folder) and mount.target != folder for folder in container.scratch)
        and "," not in mount.target  # a comma separates scratch directories
    ]


def _field(text: str) -> str:
    """A field of comma-separated values, quoted as in RFC 4180."""
    return '"' + text.replace('"', '""') + '"' if re.search(r'[,"\r\n]', text) else text


def _check_utf8(name: str, word: str) -> None:
    try:
        word.encode()
    except UnicodeEncodeError:
        raise PlanError(
            f"{name} does not accept {word!r}, which is not UTF-8",
            remedy="rename the directory, or use another engine",
        ) from None
