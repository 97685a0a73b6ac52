"""Each engine's tool as one would use it by hand after reading its manual, for bench/engines.py.

They run over the same flat tree as Bareboat's scripts, with the same folders mounted, and with what this
machine makes them need (podman's runtime, say), which is taken from Bareboat's probe. None of them keeps all
that Bareboat promises (docs/engines.md): what is compared is the cost.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bareboat.model import EngineFacts, Rootfs, Site

#: A command -> all words to type. The second argument: a folder to show read-only at its own place, or None.
Words = Callable[[Sequence[str], str | None], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """A tool used by hand. `beside`: which of Bareboat's ways (engine and variant) does the same thing."""

    name: str
    beside: str
    words: Words
    environment: dict[str, str] = field(default_factory=dict)


class MissingToolError(Exception):
    """Why a tool cannot take part."""


def other_names(site: Site) -> frozenset[str]:
    """Programs that are another engine's program under a second name, as Apptainer has one: measured once."""
    seen: dict[str, str] = {}
    again = set()
    for facts in site.engines:
        if seen.setdefault(os.path.realpath(facts.path), facts.path) != facts.path:
            again.add(facts.path)
    return frozenset(again)


def native() -> Hand:
    return Hand(name="no container", beside="native", words=lambda command, _: list(command))


def found(site: Site, rootfs: Rootfs, work: str) -> Iterator[Hand]:
    """The tools that are on this machine and that the probe could run; udocker itself is apart."""
    for facts in site.engines:
        if not facts.works or facts.path in other_names(site):
            continue
        match facts.name:
            case "bubblewrap":
                layers = [word for layer in rootfs.layers.values() for word in ("--overlay-src", layer)]
                yield _bwrap(facts, ["--ro-bind", rootfs.flat, "/"], work)
                yield _bwrap(facts, [*layers, "--tmp-overlay", "/"], work, variant=", layers")
            case "charliecloud":
                yield _ch_run(facts, rootfs.flat, work)
            case "apptainer" | "singularity":
                yield _apptainer(facts, rootfs.flat, work)
            case "podman":
                yield _podman(facts, rootfs.flat, work)
            case "udocker":
                for mode in ("P1", "P2"):
                    if mode in facts.modes:
                        yield _proot(facts, mode, rootfs.flat, work)


def _bwrap(facts: EngineFacts, root: Sequence[str], work: str, *, variant: str = "") -> Hand:
    def words(command: Sequence[str], shown: str | None) -> list[str]:
        return [
            facts.path, *root, "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc",
            "--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp", "--bind", work, work,
            *(["--ro-bind", shown, shown] if shown else []), "--chdir", work, *command,
        ]  # fmt: skip

    return Hand(name=f"bwrap{variant}", beside=f"bubblewrap{variant}", words=words)


def _ch_run(facts: EngineFacts, flat: str, work: str) -> Hand:
    def words(command: Sequence[str], shown: str | None) -> list[str]:
        # It mounts nothing read-only: what is asked for is mounted writable.
        binds = [f"--bind={path}:{path}" for path in (work, shown) if path]
        return [facts.path, *binds, f"--cd={work}", flat, "--", *command]

    return Hand(name="ch-run", beside="charliecloud", words=words)


def _apptainer(facts: EngineFacts, flat: str, work: str) -> Hand:
    def words(command: Sequence[str], shown: str | None) -> list[str]:
        binds = ["--bind", work, *(["--bind", f"{shown}:{shown}:ro"] if shown else [])]
        return [facts.path, "exec", *binds, "--pwd", work, flat, *command]

    return Hand(name=f"{facts.name} exec", beside=facts.name, words=words)


def _podman(facts: EngineFacts, flat: str, work: str) -> Hand:
    own = [
        f"--{name}={facts.settings[name]}" for name in ("runtime", "cgroup-manager") if name in facts.settings
    ]

    def words(command: Sequence[str], shown: str | None) -> list[str]:
        volumes = [f"--volume={work}:{work}", *([f"--volume={shown}:{shown}:ro"] if shown else [])]
        return [
            facts.path, *own, "run", "--rm", "--network=host", *volumes, f"--workdir={work}",
            "--rootfs", flat, *command,
        ]  # fmt: skip

    return Hand(name="podman run --rootfs", beside="podman", words=words)


def _proot(facts: EngineFacts, mode: str, flat: str, work: str) -> Hand:
    def words(command: Sequence[str], shown: str | None) -> list[str]:
        binds = [word for path in ("/dev", "/proc", "/sys", work, shown) if path for word in ("-b", path)]
        return [facts.path, "-r", flat, *binds, "-w", work, *command]

    return Hand(
        name="proot" + (" without seccomp" if mode == "P2" else ""),
        beside=f"udocker {mode}",
        words=words,
        environment={"PROOT_NO_SECCOMP": "1"} if mode == "P2" else {},
    )


def udocker(folder: Path, rootfs: Rootfs, work: str, modes: Sequence[str]) -> list[Hand]:
    """udocker's own command with a container of its own for each mode: a copy of the image below `folder`.

    Raises MissingToolError with what udocker said.
    """
    program = shutil.which("udocker")
    if program is None:
        raise MissingToolError("it is not on PATH")
    environment = {"UDOCKER_DIR": str(folder / "udocker")}

    def call(*words: str) -> None:
        done = subprocess.run([program, *words], env={**os.environ, **environment}, capture_output=True)
        if done.returncode:
            raise MissingToolError(
                f"`udocker {words[0]}` ended with {done.returncode}: {last_line(done.stderr)}"
            )

    call("install")
    tar = folder / "image.tar"
    subprocess.run(["tar", "-C", rootfs.flat, "-cf", str(tar), "."], check=True)
    call("import", str(tar), "bareboat/bench:1")
    tar.unlink()
    for mode in modes:
        call("create", f"--name={mode}", "bareboat/bench:1")
        call("setup", f"--execmode={mode}", mode)
    return [_udocker_run(program, mode, work, environment) for mode in modes]


def _udocker_run(program: str, mode: str, work: str, environment: dict[str, str]) -> Hand:
    def words(command: Sequence[str], shown: str | None) -> list[str]:
        volumes = [f"--volume={path}" for path in (work, shown) if path]
        return [program, "--quiet", "run", "--nobanner", *volumes, f"--workdir={work}", mode, *command]

    return Hand(name=f"udocker run, {mode}", beside=f"udocker {mode}", words=words, environment=environment)


def last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "nothing"
