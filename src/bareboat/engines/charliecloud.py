"""Charliecloud: `ch-run` on the image's flat tree, or that tree as a squashfs, in a user and a mount
namespace only.

ch-run executes the command, so there is no process in between. It shows the image read-only and has one
tmpfs, at /tmp (`--private-tmp`). It makes missing mount points only there, and mounts everything writable.
Therefore:

- The tmpfs provides all writable directories. ch-run resolves a bind's source after the image's mounts are
  made, so a bind can use a directory of the tmpfs as `IMAGE/tmp/FOLDER`.
- Mount points in the image are made in advance (`Enclosure.mount_points`); run directories, known only when
  the job runs, are mounted at fixed paths.
- Read-only mounts are made in an outer namespace (`unshare` and `mount` of util-linux), where ch-run finds
  them. Directories of the image are read-only like the image.

ch-run itself mounts a squashfs by FUSE, in a directory beside the file. It then stays as the parent of the
command and serves its files. It cannot report that a signal killed the command: a shell in between does.

Manual: https://charliecloud.io/latest/ch-run.html; the order of the mounts: enter_udss() in
https://gitlab.com/charliecloud/charliecloud/-/blob/main/bin/ch_core.c
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import structs

from bareboat.engines import (
    ENV,
    PASSED_NAME,
    PASSED_VALUE,
    Apart,
    Container,
    Enclosure,
    Engine,
    Guard,
    Host,
    NodeMount,
    Seccomp,
    broken,
    command_environment,
    forwarded,
    host_programs,
    run_directories,
    when_set,
)
from bareboat.engines.places import Place, join, planned, under
from bareboat.engines.run_directories import PLACE, inside, inside_name, run_variables
from bareboat.model import (
    Command,
    EngineFacts,
    IfSet,
    Image,
    Joined,
    Mount,
    NodePath,
    Opened,
    Refusal,
    Site,
    Word,
)
from bareboat_base.errors import PlanError
from bareboat_base.paths import lies_in

#: Older versions mount the home by default and have no --home.
OLDEST = (0, 31)
#: Directories of the tmpfs that ch-run mounts at /tmp: another view of it with no mounts, then the one that
#: becomes /tmp, the other scratch directories, and sources put aside to be mounted later.
_VIEW, _TMP, _SCRATCH, _ASIDE = "/tmp/view", "/tmp/tmp", "/tmp/scratch", "/tmp/aside"
#: PATH of the outer namespace's programs; ch-run complains without a PATH.
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
#: Between ch-run and the command: waits despite signals, and exits with the command's code as a shell has it.
_TELL = 'trap : TERM INT HUP; "$@"; exit $?'
#: Mounts $2 sources read-only under $1, then executes the rest. A second mount(8) covers what one cannot do:
#: mounts below the source, and flags locked by an outer namespace, which must be repeated
#: (mount_namespaces(7)). Every program started here adds a millisecond to each start: so mount(8) makes the
#: directories, and the list of mounts is read only once ($1 ends in /run).
_READ_ONLY = r"""
stage=$1 count=$2; shift 2
mount -t tmpfs -o mode=755 bareboat "$stage" || exit
for ((i = 0; i < count; i++)); do
  make=
  if [ -d "$1" ]; then make=,X-mount.mkdir; else : > "$stage/$i" || exit; fi
  mount --rbind -o "ro$make" "$1" "$stage/$i" 2>/dev/null || {
    [ -z "$make" ] || mkdir -p "$stage/$i"
    mount --rbind "$1" "$stage/$i" || exit
  }
  shift
done
mapfile -t mounts < /proc/self/mountinfo
set -f
for line in "${mounts[@]}"; do
  fields=($line) point=${fields[4]} options=${fields[5]}
  [[ $options == rw* && $point == */run/* ]] || continue
  printf -v point %b "${point//\\/\\0}"
  [[ $point != "$stage"/* ]] || mount -o "remount,bind,ro,${options#rw,}" "$point" || exit
done
exec "$@"
"""


class Charliecloud(Engine):
    NAME = "charliecloud"
    PROGRAM = "ch-run"
    APART = Apart.USER
    FILES = ("squashfs",)
    NEEDS_NAMESPACES = True
    STARTS_BY = (ENV,)
    SECCOMP = Seccomp.FULL

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        path = host.which("ch-run")
        return () if path is None else (_try(host, path),)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        return run_directories.judge(self.NAME, site, image, _wrap, program=self.PROGRAM)


def _try(host: Host, path: str) -> EngineFacts:
    outcome = host.run(["env", "USER=probe", path, "--version"])
    said = (outcome.stdout + outcome.stderr).strip()
    version = re.search(r"(\d{1,5})\.(\d{1,5})\S{0,40}", said)
    if not outcome.ok or version is None:
        return broken(Charliecloud.NAME, path, f"`ch-run --version` said: {said}")
    if (int(version[1]), int(version[2])) < OLDEST:
        return broken(Charliecloud.NAME, path, f"older than {OLDEST[0]}.{OLDEST[1]}", version=version[0])
    tools = {name: found for name in ("unshare", "bash") if (found := host.which(name)) is not None}
    image = Path(host.scratch()) / "image"
    mounts: list[str] = []
    for folder in ("dev", "proc", "sys", "tmp", "run"):
        (image / folder).mkdir(parents=True)
    for name in ("bin", "lib", "lib32", "lib64", "libx32", "usr", "nix", "etc"):
        if Path("/", name).is_dir():
            (image / name).mkdir()
            mounts.append(f"--bind=/{name}:/{name}")
    scratch = [f"--bind={image}/tmp:{_VIEW}", f"--bind={image}/run:{_SCRATCH}/0",
               f"--bind={image}{_VIEW}/scratch/0:/run"]  # fmt: skip
    outcome = host.run(
        ["env", "USER=probe", path, "--private-tmp", "--no-passwd", *mounts, *scratch, str(image), "--",
         "sh", "-c", "echo written > /run/x && cat /run/x && ! echo written 2>/dev/null > /x"]
    )  # fmt: skip
    if outcome.ok and outcome.stdout == "written\n":
        return EngineFacts(
            name=Charliecloud.NAME, path=path, version=version[0], origin="on PATH", works=True,
            detail="it ran on a read-only directory", settings=tools,
            files={"squashfs": _fault_of_squashfs(host, path, image, mounts)},
        )  # fmt: skip
    obstacle = host.user_namespace_obstacle() or Refusal(
        f"it failed with: {outcome.stderr.strip() or outcome.stdout!r}",
        "bareboat doctor",
    )
    return broken(Charliecloud.NAME, path, obstacle.reason, version=version[0], remedy=obstacle.remedy)


def _fault_of_squashfs(host: Host, path: str, tree: Path, mounts: list[str]) -> str:
    """Probe a squashfs, only where FUSE is available: otherwise ch-run retries for seconds. Empty when it
    works."""
    if not host.run(["sh", "-c", "[ -r /dev/fuse ] && [ -w /dev/fuse ]"]).ok:
        return "this user cannot open /dev/fuse, by which ch-run mounts a squashfs"

    def run(packed: str) -> str | None:
        place = tree.with_name("mounted")
        place.mkdir()
        outcome = host.run(
            ["env", "USER=probe", path, f"--mount={place}", "--private-tmp", "--no-passwd", *mounts, packed,
             "--", "sh", "-c", "! echo written 2>/dev/null > /x && echo read"]
        )  # fmt: skip
        if outcome.ok and outcome.stdout == "read\n":
            return None
        return f"it failed with: {outcome.stderr.strip() or outcome.stdout!r}"

    return host_programs.image_trial(host, tree, "squashfs", run)


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    found = command_environment.entries(command, container, site, PWD=command.workdir)
    carried = command_environment.carried(found)
    # ch-run itself gets nothing that could change it (LD_LIBRARY_PATH, TMPDIR). It has the run's mark from
    # its start, because it becomes the command; but not where it stays to serve the command's files. It
    # passes on its own environment.
    words: list[Word] = [
        "env",
        "-i",
        "-S",
        command_environment.split(carried),
        f"PATH={_PATH}",
        f"USER={site.user}",
    ]
    if container.packed is None:
        words.append(when_set("BAREBOAT_RUN"))
    loader = _loader(container)
    if loader is not None and container.packed is not None:
        # ch-run serves the file's content in the same namespace: the command can open whatever it has open.
        container = structs.replace(
            container,
            mounts=(*container.mounts, Mount(source=loader, target=f"{PLACE}/filter", writable=False)),
        )
    assert container.root is not None  # STACKS is False
    mounts = _Mounts(container)
    if mounts.read_only:
        words += _read_only(facts, mounts.stage, mounts.read_only)
        words += [facts.path, f"--uid={site.uid}", f"--gid={site.gid}"]
        words += ["--unset-env=SHLVL", "--unset-env=_"]  # set by bash
    else:
        words.append(facts.path)
    words += [f"--mount={planned(mounts.top)}"] if container.packed is not None else []
    words += ["--private-tmp", "--no-passwd", *mounts.words(), "--env-no-expand"]
    # ch-run strips one pair of quotes from a value.
    for name, word in command_environment.in_argv(found).items():
        words.append(command_environment.assignment(name, word, before="--set-env=", quote="'"))
    for name, value in run_variables().items():
        words.append(IfSet(name, (Joined((f"--set-env={name}='", value, "'")),)))
    words += forwarded(container, Joined(("--set-env=", PASSED_NAME, "='", PASSED_VALUE, "'")))
    # ch-run's own variable comes after all that it sets or unsets.
    words += [f"--cd={command.workdir}", container.root, "--"]
    if container.packed is not None and loader is not None:
        words.append(f"{PLACE}/filter")
    elif loader is not None:
        words += [f"/proc/self/fd/{Guard.NUMBER}", Opened(Guard.NUMBER, loader)]
    words += ["/bin/sh", "-c", _TELL, "tell"] if container.packed is not None else []
    words += ["/usr/bin/env", "-u", "CH_RUNNING", "--"]
    if "=" in str(command.argv[0]):  # env would read it as a variable
        words += ["/bin/sh", "-c", 'exec "$0" "$@"']
    return Command(argv=(*words, *inside(command.argv)), sealed=command_environment.exported(carried))


def _loader(container: Container) -> str | None:
    """The loader of the filter, started as ch-run's first program inside: ch-run has no option for a filter
    and needs calls that one forbids. The loader closes the file by which it was started."""
    return None if container.guard is None else container.guard.loader()


def _read_only(facts: EngineFacts, stage: Place, sources: Iterable[Place]) -> list[Word]:
    for name in ("unshare", "bash"):
        if name not in facts.settings:
            raise PlanError(
                f"ch-run mounts everything writable, and there is no {name} that would mount it read-only",
                remedy="install util-linux and bash, or use another engine",
            )
    sources = list(sources)
    return [
        *(facts.settings["unshare"], "--user", "--map-root-user", "--mount", "--propagation", "private"),
        *(facts.settings["bash"], "-c", _READ_ONLY, "read-only", stage, str(len(sources))),
        *sources,
    ]  # fmt: skip


class _Mounts:
    """The binds that show the container, in the order in which ch-run must make them."""

    def __init__(self, container: Container) -> None:
        assert container.root is not None
        mounts: list[Mount | NodeMount] = list(container.mounts)
        if container.packed is None:
            #: Where the image is, and where read-only mounts are put for ch-run to find them.
            self.top: Place = container.root
            self.stage = under(container.root, "/run")
        else:
            folder = container.packed.rpartition("/")[0]
            self.top, self.stage = f"{folder}/mounted", f"{folder}/stage"
            for i, mount in enumerate(mounts):
                if planned(mount.source).startswith(f"{container.packed}/"):
                    inner = planned(mount.source).removeprefix(container.packed)
                    if lies_in(inner, "/tmp"):
                        raise PlanError(
                            f"with ch-run {inner} of a packed image cannot be seen: its own tmpfs hides it",
                            remedy='form = "tree", or another engine',
                        )
                    mounts[i] = Mount(source=f"{folder}/mounted{inner}", target=mount.target)
        mounts = [*container.identity_mounts, *mounts]
        targets = [mount.target for mount in mounts]
        # A directory that the job mounts over a scratch directory replaces it.
        self._scratch = [
            path for path in container.scratch if not any(lies_in(path, target) for target in targets)
        ]
        self._mounts = mounts
        self._run_folders = container.run_folders
        #: Sources to mount read-only for ch-run: all but those in the image. Those in the image's /tmp are
        #: hidden by the tmpfs when ch-run resolves them.
        self.read_only = tuple(
            dict.fromkeys(m.source for m in mounts if not m.writable and not self._is_in_image(m.source))
        )
        if "/run" not in self._scratch:
            raise PlanError(
                "with ch-run nothing can be mounted over /run, where the run's directories are",
                remedy="mount it elsewhere, or use another engine",
            )

    def words(self) -> list[Word]:
        flat = self.top
        found: list[Word] = [_bind(under(flat, "/tmp"), _VIEW)]
        # Directories in the tmpfs: ch-run makes missing directories on the way to a mount point. Mounts that
        # hide them there are not in the other view. Inner ones first: below a bind it makes nothing.
        for name in self._run_folders:
            cover = _bind(under(flat, "/run"), self._folder("/run") + inside_name(name).removeprefix("/run"))
            found.append(IfSet(name, (cover,)))
        inner = {m.target for m in self._mounts} | set(self._scratch)
        places = [place for path in inner if (place := self._in_scratch(path)) is not None]
        places += [self._folder(path) for path in self._scratch if path != "/tmp"]
        if not self._is_assembled():
            places.append(_TMP)
        for place in sorted(places, key=lambda place: (-place.count("/"), place)):
            found.append(_bind(under(flat, "/run"), place))
        # Sources in the image, put aside before something is mounted over them.
        aside: dict[Place, str] = {}
        if self.read_only:
            found.append(_bind(self.stage, f"{_ASIDE}/read-only"))
            aside = {source: f"{_ASIDE}/read-only/{i}" for i, source in enumerate(self.read_only)}
        for i, source in enumerate(m.source for m in self._mounts):
            if source not in aside and self._is_in_image(source):
                aside[source] = f"{_ASIDE}/{i}"
                found.append(_bind(source, aside[source]))
        wanted = [
            (path, under(flat, _VIEW + self._folder(path).removeprefix("/tmp"))) for path in self._scratch
        ]
        for mount in self._mounts:
            put = aside.get(mount.source) if not mount.writable else None
            wanted.append((mount.target, under(flat, put) if put is not None else mount.source))
        # Outer before inner: a mount never hides one below it. /tmp, last, hides the tmpfs.
        for target, source in sorted(wanted, key=lambda each: each[0].split("/")):
            if target != "/tmp" or "/tmp" not in self._scratch:
                found.append(_bind(source, self._place(target)))
        for name in self._run_folders:
            bind = Joined(("--bind=", NodePath(name), f":{inside_name(name)}"))
            found.append(IfSet(name, (bind,)))
        whole = _TMP if self._is_assembled() else _VIEW + _TMP.removeprefix("/tmp")
        return [*found, _bind(under(flat, whole), "/tmp")]

    def _is_in_image(self, source: Place) -> bool:
        path, top = planned(source), planned(self.top)
        return lies_in(path, top) and not lies_in(path, f"{top}/tmp")

    def _is_assembled(self) -> bool:
        """Whether something is mounted in /tmp, or over it."""
        targets = [*(mount.target for mount in self._mounts), *self._scratch]
        return any(lies_in(path, "/tmp") for path in targets if path != "/tmp" or "/tmp" not in self._scratch)

    def _folder(self, scratch: str) -> str:
        """The directory of the tmpfs that becomes this one."""
        return _TMP if scratch == "/tmp" else f"{_SCRATCH}/{self._scratch.index(scratch)}"

    def _in_scratch(self, path: str) -> str | None:
        """The place in the tmpfs of a mount point below a scratch directory other than /tmp."""
        outer = [each for each in self._scratch if each != path and lies_in(path, each)]
        if not outer or (deepest := max(outer, key=len)) == "/tmp":
            return None
        return self._folder(deepest) + path[len(deepest.rstrip("/")) :]

    def _place(self, target: str) -> str:
        """Where to mount: the content of /tmp is assembled in advance."""
        return _TMP + target.removeprefix("/tmp") if lies_in(target, "/tmp") else target


def _bind(source: Place, target: str) -> str | Joined:
    for path in (planned(source), target):
        if ":" in path:
            raise PlanError(
                f"ch-run cannot mount {path}: a colon parts what is mounted from where",
                remedy="rename the directory, or use another engine",
            )
    return join("--bind=", source, f":{target}")
