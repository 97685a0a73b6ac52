"""What a node permits an ordinary user, found by trials, and how to fix what it forbids.

`permits_trial` runs the trials once, in a process of its own. This module turns the results into `Check`s
with reason and remedy, and into the reason why engines cannot use user namespaces.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from bareboat.engines import LEAST_SHM_BYTES, NO_SECCOMP, PROGRAMS_IN_STORE, PTRACE, USER_NAMESPACES
from bareboat.model import Check, FileSystem, Outcome, Refusal
from bareboat.probe.files import read_text
from bareboat_base.errors import ToolError
from bareboat_base.files.kinds import is_networked

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

#: Settings of Yama, https://docs.kernel.org/admin-guide/LSM/Yama.html
YAMA = "/proc/sys/kernel/yama/ptrace_scope"


class Host(Protocol):
    """The required part of `bareboat.probe.host`."""

    def run(self, argv: Sequence[str]) -> Outcome: ...

    def which(self, name: str) -> str | None: ...

    def scratch(self) -> str: ...


class Answer(Struct, frozen=True):
    """The result of a trial: `number` is 0, an errno, or -N for termination by signal N, at `step`."""

    step: str = ""
    number: int = 0
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.number == 0

    @property
    def reason(self) -> str:
        if self.number < 0:
            return f"{self.step or 'it'} was killed by signal {-self.number}, possibly by a seccomp filter"
        said = os.strerror(self.number)
        return f"{self.step}: {said}" + (f": {self.text}" if self.text else "") if self.step else said


#: A trial without a result, which neither rules out an engine nor blames a setting.
UNKNOWN = Answer("the trial did not finish", errno.ETIMEDOUT)


class Trials:
    """The trials' results, obtained at first use; engines that are probed in parallel share them."""

    def __init__(self, host: Host, folders: Sequence[str], user: str) -> None:
        """`directories`: where, beside the store, it is tried to start a program."""
        self.host, self.user, self._folders = host, user, tuple(folders)
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
                words = [self.store, *self._folders, "--", self.user]
                try:
                    done = self.host.run([sys.executable, "-I", "-S", "-c", source, *words])
                except ToolError:  # possibly a hanging file server; the other facts are still useful
                    self._answers = {}
                else:
                    self._answers = parse(done.stdout)
            return self._answers

    @property
    def asked(self) -> bool:
        return self._answers is not None

    def obstacle(self) -> Refusal | None:
        """What forbids user namespaces here; None when they work."""
        return obstacle(self.answers().get("user namespace", Answer()), read_text)


def parse(said: str) -> dict[str, Answer]:
    """Parse the trial's output; unparsable lines are ignored."""
    found = {}
    for line in said.splitlines():
        name, step, number, text = (*line.split("\t", 3), "", "", "", "")[:4]
        if re.fullmatch(r"-?[0-9]{0,4}", number):
            found[name] = Answer(step, int(number) if number.strip("-") else errno.EIO, text)
    return found


def obstacle(answer: Answer, read: Callable[[str], str]) -> Refusal | None:
    """Why a user namespace cannot be created and used, and the command to allow it; None when it can."""
    if answer.ok:
        return None
    for path, forbids, remedy in SWITCHES:
        if read(path).strip() == forbids:
            setting = path.removeprefix("/proc/sys/").replace("/", ".")
            return Refusal(f"user namespaces are switched off: {setting}={forbids}", remedy)
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
    known = (
        _seccomp(),
        _home(systems.get("home")),
        shared_memory(systems.get("shm"), _size_bytes("/dev/shm")),
        *shared_store(systems.get("store")),
    )
    noexec = "store" in systems and "noexec" in systems["store"].options
    if not (thorough or noexec or trials.asked):
        return known
    answers = trials.answers()
    return (
        user_namespaces(trials.obstacle(), engine_in_namespace=engine_in_namespace),
        overlay(answers, systems.get("store")),
        fuse(answers),
        setuid(answers, _setuid_starter(trials.host)),
        subordinate_ids(answers, trials.user),
        ptrace(answers, read_text),
        memory_of_others(answers, read_text),
        landlock(answers),
        programs_in(PROGRAMS_IN_STORE, answers, trials.store, systems.get("store"), home),
        programs_in("programs in /tmp", answers, "/tmp", systems.get("tmp"), home),
        *known,
    )


def user_namespaces(blocked: Refusal | None, *, engine_in_namespace: bool) -> Check:
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
    if not answers.get("user namespace", UNKNOWN).ok:
        return Check(name=name, works=False, detail="requires user namespaces")
    detail, remedy = f"denied: {here.reason}", "none needed: the image is unpacked instead"
    if here.number == errno.ENODEV:
        detail, remedy = "the kernel has no overlayfs", "sudo modprobe overlay"
    elif answers.get("overlay on tmpfs", here).ok:
        kind = f" ({store.kind})" if store is not None else ""
        detail = f"the store's file system{kind} cannot be a layer, a tmpfs can: {here.reason}"
    return Check(name=name, works=False, detail=detail, remedy=remedy)


def fuse(answers: Mapping[str, Answer]) -> Check:
    opened, mounted = answers.get("fuse", UNKNOWN), answers.get("fuse mount", Answer())
    means = "image files (SIF, squashfs) cannot be mounted; unpacked images need no FUSE"
    if opened.ok and mounted.ok:
        return Check(name="FUSE", works=True, detail="opened /dev/fuse and mounted it in a user namespace")
    if opened.ok:
        return Check(name="FUSE", works=True, detail=f"opened /dev/fuse; {mounted.reason}")
    remedy = {errno.EACCES: "sudo chmod 666 /dev/fuse", errno.EPERM: "sudo chmod 666 /dev/fuse"}
    return Check(
        name="FUSE",
        works=False,
        detail=f"/dev/fuse does not exist; {means}"
        if opened.number == errno.ENOENT
        else f"you cannot open /dev/fuse ({os.strerror(abs(opened.number))}); {means}",
        remedy=remedy.get(opened.number, "sudo modprobe fuse"),
    )


def setuid(answers: Mapping[str, Answer], starter: str | None) -> Check:
    if answers.get("no_new_privs", Answer()).text == "1":
        return Check(
            name="setuid starter",
            works=False,
            detail="no_new_privs is set: setuid programs get no privileges, "
            "including newuidmap and fusermount",
        )
    if starter is None:
        return Check(
            name="setuid starter",
            works=False,
            detail="none found for Apptainer or Singularity; only needed without user namespaces",
        )
    return Check(name="setuid starter", works=True, detail=starter)


def subordinate_ids(answers: Mapping[str, Answer], user: str) -> Check:
    name, said = "subordinate ids", answers.get("subordinate ids", UNKNOWN)
    if said.ok:
        return Check(name=name, works=True, detail=f"newuidmap and newgidmap mapped {said.text} ids")
    means = "Podman needs them, the other engines do not"
    if said.step.startswith("/etc/"):
        return Check(
            name=name,
            works=False,
            detail=f"no range for {user} in {said.step}; {means}",
            remedy=f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}",
        )
    if said.number == errno.ENOENT:
        return Check(
            name=name, works=False, detail=f"{said.step} is not installed; {means}",
            remedy="sudo apt-get install uidmap, or: sudo dnf install shadow-utils",
        )  # fmt: skip
    return Check(name=name, works=False, detail=f"{said.reason}; {means}")


def ptrace(answers: Mapping[str, Answer], read: Callable[[str], str]) -> Check:
    said = answers.get("ptrace", UNKNOWN)
    if said.ok:
        return Check(name=PTRACE, works=True, detail="traced a child process")
    scope = read(YAMA).strip()
    if scope in ("2", "3"):
        return Check(
            name=PTRACE,
            works=False,
            detail=f"processes may not be traced: kernel.yama.ptrace_scope={scope}",
            remedy="sudo sysctl -w kernel.yama.ptrace_scope=1"
            if scope == "2"
            else "restart the machine with kernel.yama.ptrace_scope=1: the value 3 cannot be lowered",
        )
    filtered = re.search(r"^Seccomp:\s*2", read("/proc/self/status"), re.MULTILINE)
    return Check(
        name=PTRACE,
        works=False,
        detail="processes may not be traced, "
        + ("because of a seccomp filter" if filtered else "possibly because of a security module")
        + f": {said.reason}",
        remedy="start the outer container with --cap-add SYS_PTRACE or --security-opt seccomp=unconfined"
        if filtered
        else "ask the administrator to check: getsebool deny_ptrace",
    )


def memory_of_others(answers: Mapping[str, Answer], read: Callable[[str], str]) -> Check:
    name, said = "memory of other ranks (CMA)", answers.get("memory of others", UNKNOWN)
    if said.ok:
        return Check(name=name, works=True, detail="one process read another's memory")
    means = "MPI copies through /dev/shm instead, which is slower"
    scope = read(YAMA).strip()
    if scope and scope != "0":
        return Check(
            name=name, works=False, detail=f"kernel.yama.ptrace_scope={scope}; {means}",
            remedy="sudo sysctl -w kernel.yama.ptrace_scope=0",
        )  # fmt: skip
    return Check(name=name, works=False, detail=f"{said.reason}; {means}")


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


def landlock(answers: Mapping[str, Answer]) -> Check:
    said = answers.get("landlock", Answer()).text
    version = int(said) if re.fullmatch(r"\d+", said) else 0
    if version >= 2:
        return Check(name="Landlock", works=True, detail=f"version {version}")
    return Check(
        name="Landlock",
        works=False,
        detail=(
            "version 1, which forbids moves between directories"
            if version
            else "not supported by this kernel"
        )
        + "; under PRoot each start copies the image instead",
    )


def programs_in(
    name: str, answers: Mapping[str, Answer], folder: str, system: FileSystem | None, home: str
) -> Check:
    """Whether a program in this directory can be started."""
    said = answers.get(f"start in {folder}", UNKNOWN)
    if said.ok:
        return Check(name=name, works=True, detail="started one there")
    place = system.path if system is not None else folder
    if said.step == "write" or said.number not in (errno.EACCES, errno.EPERM):
        return Check(name=name, works=True, detail=f"could not be tested in {place}: {said.reason}")
    noexec = system is not None and "noexec" in system.options
    why = "it is mounted noexec" if noexec else said.reason
    detail = f"programs in {place} cannot be started: {why}"
    if name != PROGRAMS_IN_STORE:
        return Check(name=name, works=False, detail=f"{detail}; engines use other directories")
    lies_there = f"{home}/".startswith(f"{place}/") or f"{place}/".startswith(f"{home}/")
    if not home or lies_there or _is_noexec(home) or not os.access(home, os.W_OK):
        home = "/a/folder/not/mounted/noexec"
    return Check(
        name=name,
        works=False,
        detail=detail,
        remedy=f"export BAREBOAT_STORE={shlex.quote(home + '/bareboat-store')}",
    )


def _home(system: FileSystem | None) -> Check:
    """Nothing is written to the home directory: access(2) and the mount's flags are enough."""
    place = system.path if system is not None else ""
    if not place or not os.path.isdir(place):
        return Check(
            name="home directory",
            works=False,
            detail=f"{place or 'it'} does not exist; in the container it is an empty directory",
        )
    said = ["writable" if os.access(place, os.W_OK) else "read-only, which jobs tolerate"]
    if _is_noexec(place):
        said.append("mounted noexec: programs there cannot be started")
    return Check(name="home directory", works=len(said) == 1, detail="; ".join(said))


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


def shared_store(system: FileSystem | None) -> tuple[Check, ...]:
    if system is None or not is_networked(system.kind):
        return ()
    return (
        Check(
            name="file system of the store",
            works=True,
            detail=f"{system.kind}, shared by many nodes: the first start on a node requests from its server "
            "every file that it opens",
        ),
    )


def _setuid_starter(host: Host) -> str | None:
    """The starter of an installed Apptainer or Singularity with root's setuid bit."""
    for name in ("apptainer", "singularity"):
        program = host.which(name)
        if program is None:
            continue
        import glob

        top = Path(os.path.realpath(program)).parent.parent
        for folder in ("libexec", "lib", "lib/*"):
            for starter in glob.glob(f"{glob.escape(str(top))}/{folder}/*/bin/starter-suid"):
                try:
                    state = os.stat(starter)
                    nosuid = os.statvfs(starter).f_flag & os.ST_NOSUID
                except OSError:
                    continue
                if state.st_mode & stat.S_ISUID and state.st_uid == 0 and not nosuid:
                    return starter
    return None
