"""What a node permits an ordinary user, found by trials, and how to fix what it forbids.

`permits_trial` runs the trials once, in a process of its own. This module turns the results into `Check`s
with reason and remedy, and into the reason why engines cannot use user namespaces.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from bareboat.engines import LEAST_SHM_BYTES, NO_SECCOMP, PROGRAMS_IN_STORE, USER_NAMESPACES
from bareboat.model import Check, FileSystem, Outcome, Refusal
from bareboat_base.errors import ToolError

#: Settings that can forbid user namespaces: file, forbidding values, command of the remedy.
#: https://docs.kernel.org/admin-guide/sysctl/user.html, and Debian's and Ubuntu's own additions.
SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"),
    ("/proc/sys/user/max_mnt_namespaces", "0", "sudo sysctl -w user.max_mnt_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)


class Host(Protocol):
    """The required part of `bareboat.probe.host`."""

    def run(self, argv: Sequence[str]) -> Outcome: ...

    def scratch(self) -> str: ...


class Answer(Struct, frozen=True):
    """The result of a trial: `number` is 0, an errno, or -N for termination by signal N, at `step`."""

    step: str = ""
    number: int = 0

    @property
    def ok(self) -> bool:
        return self.number == 0

    @property
    def is_known(self) -> bool:
        return self.number != errno.ETIMEDOUT

    @property
    def reason(self) -> str:
        if self.number < 0:
            return f"{self.step or 'it'} was killed by signal {-self.number}, possibly by a seccomp filter"
        said = os.strerror(self.number)
        return f"{self.step}: {said}" if self.step and self.is_known else self.step or said


def read_text(path: str) -> str:
    """The text of a small file of the kernel; empty when it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


#: A trial without a result, which neither rules out an engine nor blames a setting.
UNKNOWN = Answer("the trial did not finish", errno.ETIMEDOUT)


class Trials:
    """The trials' results, obtained at first use; engines that are probed in parallel share them."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._lock = threading.Lock()
        self._answers: dict[str, Answer] | None = None
        #: The directory of the trial on the store's file system.
        self.store = ""

    def answers(self) -> Mapping[str, Answer]:
        with self._lock:
            if self._answers is None:
                import inspect

                from bareboat.probe import permits_trial

                self.store = self.host.scratch()
                source = inspect.getsource(permits_trial)
                words = [sys.executable, "-I", "-S", "-c", source, self.store]
                try:
                    done = self.host.run(words)
                except ToolError:
                    self._answers = {}
                else:
                    self._answers = parse(done.stdout)
            return self._answers

    @property
    def asked(self) -> bool:
        return self._answers is not None

    def obstacle(self) -> Refusal | None:
        """What forbids user namespaces here; None when they work, or it is unknown."""
        return obstacle(self.answers().get("user namespace", UNKNOWN), read_text)


def parse(said: str) -> dict[str, Answer]:
    """Parse the trial's output; unparsable lines are ignored."""
    found = {}
    for line in said.splitlines():
        name, step, number = (*line.split("\t"), "", "", "")[:3]
        if re.fullmatch(r"-?[0-9]{0,4}", number):
            found[name] = Answer(step, int(number) if number.strip("-") else errno.EIO)
    return found


def obstacle(answer: Answer, read: Callable[[str], str]) -> Refusal | None:
    """Why a user namespace cannot be created and used, and the command to allow it; None when it can, or
    where that is unknown."""
    if answer.ok or not answer.is_known:
        return None
    if (found := switched_off(read)) is not None:
        return found
    if answer.number in (errno.ENOSPC, errno.EUSERS):
        return Refusal(
            f"too many user namespaces, or nested too deeply: {answer.reason}",
            "leave the outer container, or:  sudo sysctl -w user.max_user_namespaces=15000",
        )
    if re.search(r"^Seccomp:\s*2", read("/proc/self/status"), re.MULTILINE):
        return Refusal(
            "a seccomp filter, as in a container, forbids user namespaces or "
            f"mounts in them: {answer.reason}",
            "start the outer container with --security-opt seccomp=unconfined",
        )
    if not re.search(r"^(\S+ ){4}/ ", read("/proc/self/mountinfo"), re.MULTILINE):
        return Refusal(
            f"this process is in a chroot, where the kernel does not allow user namespaces: {answer.reason}",
            "leave the chroot",
        )
    return Refusal(
        f"user namespaces are denied, possibly by a security module: {answer.reason}",
        "ask the administrator to check: journalctl -k | grep -iE 'apparmor|avc|userns'",
    )


def switched_off(read: Callable[[str], str]) -> Refusal | None:
    """The setting that forbids user namespaces."""
    for path, forbids, remedy in SWITCHES:
        if read(path).strip() == forbids:
            setting = path.removeprefix("/proc/sys/").replace("/", ".")
            return Refusal(f"user namespaces are switched off: {setting}={forbids}", remedy)
    return None


def checks(
    trials: Trials, file_systems: Sequence[FileSystem], *, engine_in_namespace: bool, thorough: bool = True
) -> tuple[Check, ...]:
    """All checks. `engine_in_namespace`: an engine was seen to run in a user namespace, which some security
    modules allow only to known programs.

    Without `thorough`, the trials, which take some tens of milliseconds, run only when a failed engine needed
    them, or when mount flags require them.
    """
    systems = {system.purpose: system for system in file_systems}
    home = systems["home"].path if "home" in systems else ""
    known = (_seccomp(), shared_memory(systems.get("shm"), _size_bytes("/dev/shm")))
    noexec = "store" in systems and "noexec" in systems["store"].options
    if not (thorough or noexec or trials.asked):
        return known
    answers = trials.answers()
    return (
        user_namespaces(answers, trials.obstacle(), engine_in_namespace=engine_in_namespace),
        overlay(answers, systems.get("store")),
        programs_in_store(answers, trials.store, systems.get("store"), home),
        *known,
    )


def user_namespaces(
    answers: Mapping[str, Answer], blocked: Refusal | None, *, engine_in_namespace: bool
) -> Check:
    if blocked is None and not answers.get("user namespace", UNKNOWN).is_known:
        return Check(name=USER_NAMESPACES, works=None, detail=UNKNOWN.reason)
    if blocked is None:
        return Check(name=USER_NAMESPACES, works=True, detail="created one and mounted a tmpfs in it")
    if engine_in_namespace:
        return Check(
            name=USER_NAMESPACES,
            works=True,
            detail=f"allowed only for an engine's program: {blocked.reason}",
        )
    return Check(name=USER_NAMESPACES, works=False, detail=blocked.reason, remedy=blocked.remedy)


def overlay(answers: Mapping[str, Answer], store: FileSystem | None) -> Check:
    name, here = "overlay in a user namespace", answers.get("overlay", UNKNOWN)
    if here.ok:
        return Check(name=name, works=True, detail="stacked layers on the store's file system")
    if not here.is_known:
        return Check(name=name, works=None, detail=here.reason)
    if not answers.get("user namespace", UNKNOWN).ok:
        return Check(name=name, works=False, detail="requires user namespaces")
    detail, remedy = f"denied: {here.reason}", "none needed: the image is unpacked instead"
    if here.number == errno.ENODEV:
        detail, remedy = "the kernel has no overlayfs", "sudo modprobe overlay"
    elif answers.get("overlay on tmpfs", here).ok:
        kind = f" ({store.kind})" if store is not None else ""
        detail = f"the store's file system{kind} cannot be a layer, a tmpfs can: {here.reason}"
    return Check(name=name, works=False, detail=detail, remedy=remedy)


def _seccomp() -> Check:
    status = re.search(r"^Seccomp:\s*(\d)", read_text("/proc/self/status"), re.MULTILINE)
    if status is None:
        return Check(name="seccomp", works=False, detail=NO_SECCOMP)
    filtered = status[1] == "2"
    return Check(
        name="seccomp",
        works=not filtered,
        detail="a filter is active: probably this is already a container" if filtered else "no filter",
    )


def programs_in_store(
    answers: Mapping[str, Answer], folder: str, system: FileSystem | None, home: str
) -> Check:
    """Whether a program in the store, tried in this directory of it, can be started."""
    name, said = PROGRAMS_IN_STORE, answers.get("start", UNKNOWN)
    if said.ok:
        return Check(name=name, works=True, detail="started one there")
    place = system.path if system is not None else folder
    if said.step == "write" or said.number not in (errno.EACCES, errno.EPERM):
        return Check(name=name, works=None, detail=f"could not be tested in {place}: {said.reason}")
    noexec = system is not None and "noexec" in system.options
    why = "it is mounted noexec" if noexec else said.reason
    detail = f"programs in {place} cannot be started: {why}"
    lies_there = f"{home}/".startswith(f"{place}/") or f"{place}/".startswith(f"{home}/")
    if not home or lies_there or _is_noexec(home) or not os.access(home, os.W_OK):
        home = "/a/folder/not/mounted/noexec"
    return Check(
        name=name,
        works=False,
        detail=detail,
        remedy=f"export BAREBOAT_STORE={shlex.quote(home + '/bareboat-store')}",
    )


def _is_noexec(folder: str) -> bool:
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def shared_memory(system: FileSystem | None, size_bytes: int) -> Check:
    name = "/dev/shm"
    if system is None or not size_bytes:
        return Check(
            name=name, works=False, detail="it does not exist; data loaders and MPI require it",
            remedy="sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        )  # fmt: skip
    detail = f"{size_bytes / 2**20:,.0f} MiB, {system.free_bytes / 2**20:,.0f} MiB free"
    if size_bytes >= LEAST_SHM_BYTES:
        return Check(name=name, works=True, detail=detail)
    return Check(
        name=name,
        works=False,
        detail=f"{detail}: a data loader with workers gets a bus error when it is full",
        remedy="sudo mount -o remount,size=50% /dev/shm; a container of the site: --shm-size or --ipc=host",
    )


def _size_bytes(path: str) -> int:
    try:
        state = os.statvfs(path)
    except OSError:
        return 0
    return state.f_blocks * state.f_frsize
