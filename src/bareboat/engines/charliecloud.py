"""Charliecloud: `ch-run` on the image's flat tree, or that as a squashfs, in a user and a mount namespace and
no others.

ch-run turns itself into the command, so there is no process between. It shows the image read-only and has
one tmpfs, at /tmp (`--private-tmp`); it makes missing mount points there and nowhere else, and it mounts
everything writable. What that takes:

- The tmpfs becomes all the folders to write to. ch-run finds a bind's source with the image's mounts
  already made, so a bind can take a folder out of the tmpfs by naming it `IMAGE/tmp/FOLDER`.
- Places in the image are made beforehand (`Enclosure.mount_points`); run folders, known only when the job
  runs, are mounted at fixed places.
- What is to be read-only is mounted so in an outer namespace (`unshare` and `mount` of util-linux), where
  ch-run finds it. What comes out of the image is read-only as the image is.

A squashfs is mounted by ch-run itself, by FUSE, in a folder beside the file. ch-run then stays as the parent
of the command and serves its files; it does not know how a signal ended it: a shell in between tells.

Manual: https://charliecloud.io/latest/ch-run.html; the order of the mounts: enter_udss() in
https://gitlab.com/charliecloud/charliecloud/-/blob/main/bin/ch_core.c
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

from bareboat.engines import (
    ALONE_IN_NAMESPACE,
    ENV,
    PASSED_NAME,
    PASSED_VALUE,
    RUN_FOLDERS,
    Apart,
    Container,
    Enclosure,
    Guard,
    Host,
    NodeMount,
    Seccomp,
    broken,
    forwarded,
    run_directories,
    variables,
    when_set,
)
from bareboat.engines.costs import Cost
from bareboat.engines.image_files import trial
from bareboat.engines.places import Place, join, planned, under
from bareboat.engines.run_directories import PLACE, inside, inside_name, run_variables
from bareboat.errors import PlanError
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
from bareboat.paths import lies_in

NAME = "charliecloud"
CONTAINS = True
APART = Apart.USER
STACKS = False
FILES: tuple[str, ...] = ("squashfs",)
NEEDS_NAMESPACES = True
COSTS = {
    ("", ""): Cost(start_ms=6, file_call=1.0, imports=1.0),
    ("", "file"): Cost(start_ms=24, file_call=1.3, imports=1.8),
}
STARTS_BY = (ENV,)
SECCOMP = Seccomp.FULL
LIMITS: dict[str, str] = {
    "test_ranks_of_two_containers_read_each_other_s_memory": ALONE_IN_NAMESPACE,
}

#: Before, ch-run mounted the home unless told not to, and had no --home.
OLDEST = (0, 31)

#: Folders of the tmpfs that ch-run mounts at /tmp: another view of it, on which nothing is mounted, then
#: what becomes /tmp, the other scratch folders, and what is put aside to be mounted later.
_VIEW, _TMP, _SCRATCH, _ASIDE = "/tmp/view", "/tmp/tmp", "/tmp/scratch", "/tmp/aside"

#: Where the outer namespace's programs are; ch-run complains when there is none.
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

#: Between ch-run and the command: waits for it through signals, and ends as a shell tells how it ended.
_TELL = 'trap : TERM INT HUP; "$@"; exit $?'

#: Mounts sources read-only under $1, so many as $2 says, and turns itself into the rest. What one mount(8)
#: could not do is done by a second: mounts below the source, and flags that an outer namespace has locked and
#: that must be named again (mount_namespaces(7)). Every program started here is a millisecond of each start:
#: so mount(8) makes the folders, and the list of mounts is read at once ($1 ends in /run).
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


def probe(host: Host) -> tuple[EngineFacts, ...]:
    path = host.which("ch-run")
    return () if path is None else (_try(host, path),)


def _try(host: Host, path: str) -> EngineFacts:
    outcome = host.run(["env", "USER=probe", path, "--version"])
    said = (outcome.stdout + outcome.stderr).strip()
    version = re.search(r"(\d{1,5})\.(\d{1,5})\S{0,40}", said)
    if not outcome.ok or version is None:
        return broken(NAME, path, f"`ch-run --version` said: {said}")
    if (int(version[1]), int(version[2])) < OLDEST:
        return broken(NAME, path, f"older than {OLDEST[0]}.{OLDEST[1]}", version=version[0])
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
            name=NAME, path=path, version=version[0], origin="on PATH", works=True,
            detail="it ran on a read-only directory", settings=tools,
            files={"squashfs": _fault_of_squashfs(host, path, image, mounts)},
        )  # fmt: skip
    obstacle = host.user_namespace_obstacle() or Refusal(
        f"it failed with: {outcome.stderr.strip() or outcome.stdout!r}",
        "bareboat doctor",
    )
    return broken(NAME, path, obstacle.reason, version=version[0], remedy=obstacle.remedy)


def _fault_of_squashfs(host: Host, path: str, tree: Path, mounts: list[str]) -> str:
    """Tried only where FUSE can be had: ch-run asks again and again, for seconds."""
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

    return trial(host, tree, "squashfs", run)


def judge(site: Site, image: Image | None) -> Enclosure | Refusal:
    return run_directories.judge(NAME, site, image, _wrap, program="ch-run")


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    found = variables.entries(command, container, site, PWD=command.workdir)
    carried = variables.carried(found)
    # ch-run itself gets nothing that could change it (LD_LIBRARY_PATH, TMPDIR). It has the run's mark from
    # its start, being the command soon after; but not where it serves the command's files to the end. It
    # passes on its own environment.
    words: list[Word] = ["env", "-i", "-S", variables.split(carried), f"PATH={_PATH}", f"USER={site.user}"]
    if container.packed is None:
        words.append(when_set("BAREBOAT_RUN"))
    loader = _loader(container)
    if loader is not None and container.packed is not None:
        # ch-run serves the file's content in the same namespace: what it has open, the command can open, too.
        container = dataclasses.replace(
            container,
            mounts=(*container.mounts, Mount(source=loader, target=f"{PLACE}/filter", writable=False)),
        )
    assert container.root is not None  # STACKS is False
    mounts = _Mounts(container)
    if mounts.read_only:
        words += _read_only(facts, mounts.stage, mounts.read_only)
        words += [facts.path, f"--uid={site.uid}", f"--gid={site.gid}"]
        words += ["--unset-env=SHLVL", "--unset-env=_"]  # bash's
    else:
        words.append(facts.path)
    words += [f"--mount={planned(mounts.top)}"] if container.packed is not None else []
    words += ["--private-tmp", "--no-passwd", *mounts.words(), "--env-no-expand"]
    # ch-run takes one pair of quotes off a value.
    for name, word in variables.in_argv(found).items():
        words.append(variables.assignment(name, word, before="--set-env=", quote="'"))
    for name, value in run_variables().items():
        words.append(IfSet(name, (Joined((f"--set-env={name}='", value, "'")),)))
    words += forwarded(container, Joined(("--set-env=", PASSED_NAME, "='", PASSED_VALUE, "'")))
    # ch-run's own variable comes after all that it is told to set or unset.
    words += [f"--cd={command.workdir}", container.root, "--"]
    if container.packed is not None and loader is not None:
        words.append(f"{PLACE}/filter")
    elif loader is not None:
        words += [f"/proc/self/fd/{Guard.NUMBER}", Opened(Guard.NUMBER, loader)]
    words += ["/bin/sh", "-c", _TELL, "tell"] if container.packed is not None else []
    words += ["/usr/bin/env", "-u", "CH_RUNNING", "--"]
    if "=" in str(command.argv[0]):  # env would take it for one more variable
        words += ["/bin/sh", "-c", 'exec "$0" "$@"']
    return Command(argv=(*words, *inside(command.argv)), sealed=variables.exported(carried))


def _loader(container: Container) -> str | None:
    """ch-run takes no filter, and needs calls that one forbids: so it is put on inside, by the first program
    that ch-run starts. The loader closes the file by which it was started."""
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
        # Whoever mounts a folder over one of them wants that.
        self._scratch = [
            path for path in container.scratch if not any(lies_in(path, target) for target in targets)
        ]
        self._mounts = mounts
        #: What must be mounted read-only for ch-run to find it: all but what the image has. What that has in
        #: /tmp is behind the tmpfs when ch-run looks for it.
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
        # Folders in the tmpfs: ch-run makes what is missing on the way to a mount point. Whatever hides
        # them there is not in the other view. Inner ones first: below a bind it makes nothing.
        for name in RUN_FOLDERS:
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
        for name in RUN_FOLDERS:
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
        """The folder of the tmpfs that becomes this one."""
        return _TMP if scratch == "/tmp" else f"{_SCRATCH}/{self._scratch.index(scratch)}"

    def _in_scratch(self, path: str) -> str | None:
        """The place in the tmpfs of a mount point below a scratch folder other than /tmp."""
        outer = [each for each in self._scratch if each != path and lies_in(path, each)]
        if not outer or (deepest := max(outer, key=len)) == "/tmp":
            return None
        return self._folder(deepest) + path[len(deepest.rstrip("/")) :]

    def _place(self, target: str) -> str:
        """Where to mount: what is in /tmp is put together beforehand."""
        return _TMP + target.removeprefix("/tmp") if lies_in(target, "/tmp") else target


def _bind(source: Place, target: str) -> str | Joined:
    for path in (planned(source), target):
        if ":" in path:
            raise PlanError(
                f"ch-run cannot mount {path}: a colon parts what is mounted from where",
                remedy="rename the directory, or use another engine",
            )
    return join("--bind=", source, f":{target}")
