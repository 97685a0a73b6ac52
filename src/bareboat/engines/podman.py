"""Podman: `podman run --rootfs` on the image's flat tree, read-only, with the host's network, processes, IPC
and devices.

Rootless it needs newuidmap and a range in /etc/subuid. Mount points that it makes in the image would belong
to one of those IDs, and the user could not remove them: so they are made in advance
(`Enclosure.mount_points`), and run directories, known only when the job runs, are mounted at fixed paths.

podman-hpc calls Podman with options of its own (`bareboat.engines.podman_hpc`); so Podman's own options
follow `run`, where both accept them.

Manual: https://docs.podman.io/en/stable/markdown/podman-run.1.html
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bareboat import bash
from bareboat.engines import (
    ENV,
    HOST_FILES,
    PASSED_NAME,
    PASSED_VALUE,
    RUN_VARIABLES,
    Container,
    Enclosure,
    Engine,
    Host,
    NodeMount,
    Seccomp,
    broken,
    command_environment,
    forwarded,
    programs,
    run_directories,
    when_set,
)
from bareboat.engines.host_programs import system_mounts
from bareboat.engines.places import join, planned
from bareboat.engines.run_directories import inside, inside_name, run_variables
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
from bareboat_base import seccomp
from bareboat_base.errors import PlanError, ToolError
from bareboat_base.marks import HELPER_VARIABLE

#: --passwd exists since 4.2, --unsetenv-all since 4.0.
OLDEST = (4, 2)
#: Podman's own tools: runtimes, conmon, newuidmap.
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
#: Podman's own options that one of `_WAYS` may set.
_OWN_OPTIONS = ("cgroup-manager", "runtime", "storage-driver")
_RUN = RUN_VARIABLES[0]
_RUNTIME_DIR = "XDG_RUNTIME_DIR"
#: With a longer runtime directory Podman 4.3.1 does not detect the end of a container (measured: with 40
#: characters it waits forever). Without one it uses a directory of its own in /tmp.
_LONGEST_RUNTIME_DIR = 39
#: Defines `forget_pause`.
_PAUSE = bash.piece(__package__, "podman_pause")
#: Variables that Podman and podman-hpc set in every container.
_UNASKED = ("HOSTNAME", "PODMANHPC_MODULES_DIR")
#: The caller's variables that Podman gets when they are set: where it keeps its state.
_CALLERS = (
    _RUNTIME_DIR,
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    # Where podman-hpc keeps squashed images.
    "SCRATCH",
    "SQUASH_DIR",
)
#: As root Podman raises limits even with the option to keep the host's; root without CAP_SYS_RESOURCE, as in
#: a container, may not do this.
_ULIMIT_OF_ROOT = "nofile=1024:1024 nproc=32768:32768"
#: Adds settings that Podman would not inherit after its $0 own options: the umask, and the limit of open
#: files, which it raises to the hard limit.
_AS_CALLED = (
    _PAUSE
    + r"""forget_pause
own=("--umask=$(umask)")
[[ $* == *--ulimit=* ]] || own+=("--ulimit=nofile=$(ulimit -Sn):$(ulimit -Hn)")
exec "${@:1:$0}" "${own[@]//unlimited/-1}" "${@:$0+1}"
"""
)
#: The runtime decides which groups the command is in; only crun can keep the caller's.
_GROUPS_LOST = "without the user's supplementary groups, which runc drops and crun would keep"
#: Podman's error when another Podman, as it exits, removes its directory in /tmp at the same moment.
_REMOVED, _TRIES = "is not owned by the current user", 6
_TRIAL = """\
echo written > /run/x && /bin/cat /run/x && ! echo written 2>/dev/null > /x || exit
while read -r name groups; do [ "$name" != Groups: ] || echo "$groups"; done </proc/self/status
"""


class Podman(Engine):
    NAME = "podman"
    JOINS = True
    STARTS_BY = (ENV,)
    ENDS_FIRST = True
    SECCOMP = Seccomp.OWN
    #: Probed one after another, the site's own configuration first. crun refuses hybrid cgroups, which runc
    #: accepts; without a systemd session only cgroupfs works.
    _WAYS: ClassVar[tuple[dict[str, str], ...]] = (
        {},
        {"runtime": "runc"},
        {"cgroup-manager": "cgroupfs"},
        {"cgroup-manager": "cgroupfs", "runtime": "runc"},
        {"cgroup-manager": "cgroupfs", "runtime": "crun"},
    )

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        """Probe the program of this name in each way until one works."""
        path, podman = host.which(self.NAME), host.which("podman")
        if path is None or podman is None:
            return ()
        return (_try(self.NAME, host, path, podman, self._WAYS),)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        def note(facts: EngineFacts) -> str:
            return f", {_GROUPS_LOST}" if "groups" in facts.settings else ""

        return run_directories.judge(self.NAME, site, image, _wrap, program=self.NAME, note=note)


def _try(name: str, host: Host, path: str, podman: str, ways: tuple[dict[str, str], ...]) -> EngineFacts:
    fault = functools.partial(broken, name, path)
    passed = [each for each in _CALLERS if each != _RUNTIME_DIR or _is_short(os.environ.get(each, ""))]
    clean = ["env", "-i", f"PATH={_path(path)}", f"HOME={os.path.expanduser('~')}", f"USER={_user()}",
             *(f"{each}={os.environ[each]}" for each in passed if os.environ.get(each))]  # fmt: skip
    outcome = host.run([*clean, podman, "--version"])
    version = re.search(r"(\d{1,5})\.(\d{1,5})\S{0,40}", outcome.stdout)
    if not outcome.ok or version is None:
        return fault(f"`podman --version` said: {outcome.stdout or outcome.stderr}".strip())
    if (int(version[1]), int(version[2])) < OLDEST:
        return fault(f"older than {OLDEST[0]}.{OLDEST[1]}", version=version[0])
    image, mounts = _trial_image(host)
    if os.getuid() == 0:
        ways += tuple({**way, "ulimit": _ULIMIT_OF_ROOT} for way in ways)
    said, run_id = [], uuid.uuid4()
    for number, way in enumerate(ways):
        called = f"bareboat-probe-{run_id}-{number}"
        trial = [*clean, "bash", "-c", _PAUSE + 'forget_pause && exec "$@"', "bash",
                 path, *_options(way, os.getuid()), f"--name={called}", _tmpfs("/run"), *mounts,
                 str(image), "/bin/sh", "-c", _TRIAL]  # fmt: skip
        try:
            for _ in range(_TRIES):
                outcome = host.run(trial)
                if _REMOVED not in outcome.stderr:
                    break
                time.sleep(0.1)
        except BaseException:  # interrupted or timed out: conmon and the container would continue
            with contextlib.suppress(ToolError):
                host.for_one_subject().run(  # the time limit of the probe may have passed
                    [*clean, podman, "rm", *_own_options(way), "--force", "--ignore", "--time=0", called]
                )
            raise
        seen, _, groups = outcome.stdout.partition("\n")
        if outcome.ok and seen == "written":
            settings = _settings(way, passed, has_groups=len(groups.split()) >= len(os.getgroups()))
            named = " ".join(f"--{option} {value}" for option, value in way.items())
            return EngineFacts(
                name=name, path=path, version=version[0], origin="on PATH", works=True,
                detail="it ran on a read-only directory"
                + (f", with {named}" if named else "")
                + (f", {_GROUPS_LOST}" if "groups" in settings else ""),
                settings=settings,
            )  # fmt: skip
        said.append(outcome.stderr.strip() or repr(outcome.stdout))
        if not re.search(r"cgroup|systemd|runtime|dbus|crun|runc|rlimit|driver", said[-1], re.IGNORECASE):
            break
    obstacle = host.user_namespace_obstacle()
    if obstacle is not None and os.getuid() != 0:
        return fault(obstacle.reason, version=version[0], remedy=obstacle.remedy)
    unique = "\n".join(dict.fromkeys(said))
    remedy = "podman system migrate" if "cannot re-exec" in unique else "podman info"
    if "subuid" in unique or "newuidmap" in unique:
        remedy = "ask the administrator for newuidmap and a range in /etc/subuid and /etc/subgid"
    return fault(f"it failed with: {unique}", version=version[0], remedy=remedy)


def _is_short(runtime_dir: str) -> bool:
    return len(os.fsencode(runtime_dir)) <= _LONGEST_RUNTIME_DIR


def _trial_image(host: Host) -> tuple[Path, list[str]]:
    """A root file system with nothing in it but mount points, and the mounts."""
    image = Path(host.scratch()) / "image"
    mounts = []
    for folder in ("dev", "proc", "sys", "run", "etc"):
        (image / folder).mkdir(parents=True)
    for mount in system_mounts():
        Path(f"{image}{mount.target}").mkdir()
        mounts.append(str(_mount(mount)))
    return image, mounts


def _settings(way: Mapping[str, str], passed: Sequence[str], *, has_groups: bool) -> dict[str, str]:
    """The settings of Podman in a way that works. `passed`: the caller's variables that it gets."""
    settings = {**way, **{path: "host" for path in HOST_FILES if os.path.exists(path)}}
    if not has_groups:
        settings["groups"] = "lost"
    if _RUNTIME_DIR not in passed:
        settings["runtime directory"] = "Podman's own"
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        settings["cgroups"] = "v2"
    return settings


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    assert container.flat is not None  # STACKS is False
    found = command_environment.entries(command, container, site)
    carried = command_environment.carried(found)
    # Podman stays as the command's parent without the run's mark, so it gets no SIGTERM of the run: the
    # command gets it directly, and Podman waits for its end.
    words: list[Word] = ["env", "-i", "-S", command_environment.split(carried)]
    words += [f"PATH={_path(facts.path)}", f"HOME={site.home}", f"USER={site.user}"]
    callers = [each for each in _CALLERS if each != _RUNTIME_DIR or "runtime directory" not in facts.settings]
    words += map(when_set, callers)
    words.append(IfSet(_RUN, (Joined((f"{HELPER_VARIABLE}=", Variable(_RUN))),)))
    # Where the probe needed no limits, name the caller's.
    start = [facts.path, *_options({"ulimit": "", **facts.settings}, site.uid)]
    if folder := programs(site):
        start.append(f"--conmon={folder}/{seccomp.CONMON}")
    if not container.seccomp:
        start.append("--security-opt=seccomp=unconfined")
    words += ["bash", "-c", _AS_CALLED, str(len(start)), *start]
    mounts: list[Mount | NodeMount] = [
        Mount(source=path, target=path) for path in HOST_FILES if path in facts.settings
    ]
    mounts += (*container.identity_mounts, *container.mounts)
    targets = {mount.target for mount in mounts}
    words += [_tmpfs(path) for path in _scratch(container, targets)]
    words += [_mount(mount) for mount in mounts]
    for folder in container.run_folders:
        bind = ('--mount=type=bind,"source=', NodePath(folder), f'","destination={inside_name(folder)}"')
        words.append(IfSet(folder, (Joined(bind),)))
    # Without a value it is the one in Podman's own environment.
    words += [f"--env={name}" for name in carried]
    words += [
        command_environment.assignment(*each, before="--env=")
        for each in command_environment.in_argv(found).items()
    ]
    for key, value in run_variables().items():
        words.append(IfSet(key, (Joined((f"--env={key}=", value)),)))
    words += forwarded(container, Joined(("--env=", PASSED_NAME, "=", PASSED_VALUE)))
    words += _devices(container, site.uid)
    # Without a user namespace runc resolves the mounts' sources after some paths are mounted over, which
    # would hide sources in the image's /tmp or home; an overlay is at another path.
    words += [f"--workdir={command.workdir}", join(container.tree or "", ":O" if site.uid == 0 else "")]
    # Podman gives every command the host's name, and reads words that begin with a dash as options.
    unasked = [word for key in _UNASKED if key not in found for word in ("-u", key)]
    return Command(
        argv=(*words, "/usr/bin/env", *unasked, "--", *_printed(inside(command.argv))),
        sealed=command_environment.exported(carried),
    )


def _devices(container: Container, uid: int) -> list[str]:
    """Options that allow opening the GPUs' devices, which are in the host's /dev. AMD's belong to the groups
    render and video, which `_options` keeps."""
    if container.driver is None or uid != 0:  # only root's cgroup forbids unlisted devices
        return []
    return [f"--device-cgroup-rule=c {major}:* rwm" for major in container.driver.majors]


def _path(program: str) -> str:
    """PATH for Podman's helpers; podman-hpc's are in its own directory."""
    folder = os.path.dirname(program)
    return _PATH if folder in _PATH.split(":") else f"{folder}:{_PATH}"


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", str(os.getuid()))


def _options(settings: Mapping[str, str], uid: int) -> list[str]:
    """Podman's own options, then those of `run` that are the same for every command."""
    return [
        "run", *_own_options(settings),
        "--rm", "--interactive", "--detach-keys=", "--log-driver=none", "--rootfs",
        "--read-only", "--read-only-tmpfs=false",
        *(["--userns=keep-id", "--group-add=keep-groups"] if uid != 0 else []),
        "--network=host", "--pid=host", "--ipc=host", "--uts=host", "--volume=/dev:/dev:rslave",
        "--volume=/sys:/sys:ro,rslave", "--no-hosts", "--passwd=false", "--systemd=false", "--init=false",
        "--unsetenv-all", "--env-host=false", "--http-proxy=false",
        *(f"--ulimit={limit}" for limit in settings.get("ulimit", "host").split()),
        # Where cgroups can limit, Podman's default is 2048 processes and threads.
        *(["--pids-limit=-1"] if settings.get("cgroups") == "v2" else []),
    ]  # fmt: skip


def _own_options(settings: Mapping[str, str]) -> list[str]:
    own = [f"--{name}={value}" for name, value in settings.items() if name in _OWN_OPTIONS]
    return ["--log-level=error", "--events-backend=none", *own]


def _scratch(container: Container, targets: Collection[str]) -> list[str]:
    """The scratch directories, and the directories in them on the way to a mount: made by the runtime, these
    would belong to its root and not be writable."""
    found = {path for path in container.scratch if path not in targets}
    for target in targets:
        above = target.rpartition("/")[0]
        while above and above not in targets and above not in container.scratch:
            if any(above.startswith(path.rstrip("/") + "/") for path in found & set(container.scratch)):
                found.add(above)
            above = above.rpartition("/")[0]
    return [path for path in sorted(found) if not any(path.startswith(f"{target}/") for target in targets)]


def _tmpfs(path: str) -> str:
    if ":" in path:
        raise PlanError(
            f"podman cannot show a directory with a colon in its name: {path}", remedy="use another engine"
        )
    mode = "1777" if path in ("/tmp", "/var/tmp") else "0755"
    return f"--tmpfs={path}:rw,exec,mode={mode},U,notmpcopyup"


def _mount(mount: Mount | NodeMount) -> str | Joined:
    """One option in CSV, each field quoted: a name may contain commas and quotes."""
    for field in (f"source={planned(mount.source)}", f"destination={mount.target}"):
        if not _is_text(field):
            raise PlanError(
                f"podman cannot mount {field!r}: the name is not UTF-8", remedy="use another engine"
            )
    source = mount.source.replace('"', '""') if isinstance(mount.source, str) else mount.source
    target = mount.target.replace('"', '""')
    ending = "" if mount.writable else ",ro=true"
    return join('--mount=type=bind,"source=', source, f'","destination={target}"{ending}')


def _printed(argv: tuple[Word, ...]) -> list[Word]:
    """The command, through a shell where necessary: Podman stores it as JSON, which holds text only, and
    env(1) would read a name with "=" as a variable."""
    odd = [word for word in argv if isinstance(word, str) and not _is_text(word)]
    if not odd:
        through_shell = "=" in str(argv[0])
        return [*(["/bin/sh", "-c", 'exec "$0" "$@"'] if through_shell else []), *argv]
    lines = []
    for word in argv:
        if isinstance(word, str) and not _is_text(word):
            escaped = "".join(f"\\{byte:03o}" for byte in os.fsencode(word))
            # $(…) drops trailing newlines, so another character ends it.
            lines.append(f'w=$(printf \'{escaped}.\'); set -- "$@" "${{w%.}}"; ')
        else:
            lines.append('set -- "$@" "$1"; ')
        lines.append("shift; ")
    return ["/bin/sh", "-c", "".join(lines) + 'exec "$@"', "sh", *(w if w not in odd else "" for w in argv)]


def _is_text(word: str) -> bool:
    return word.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in word)
