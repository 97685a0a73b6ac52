"""Rules about what an image requires at run time but rootless engines do not provide: root, setuid, daemons,
other users; and about mount points."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

from bareboat_base.expressions import expression
from bareboat_base.printable import one_line, quoted
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.rule import Hit, Rule, Severity

#: Programs of the distributions, present in every image, that jobs do not start.
_USUAL = frozenset(
    """
    su mount umount passwd chsh chfn gpasswd newgrp expiry chage unix_chkpwd ssh-keysign ssh-agent wall write
    bsd-write dotlockfile pam_extrausers_chk pam_timestamp_check usernetctl dbus-daemon-launch-helper pkexec
    polkit-agent-helper-1 crontab mount.nfs newuidmap newgidmap fusermount fusermount3 bbsuid ping ping6
    arping clockdiff locate mlocate plocate screen utempter gst-ptp-helper at ntfs-3g staprun write.ul
    ssh-askpass suexec lockdev userhelper cockpit-session grub2-set-bootflag snap-confine
    """.split()  # noqa: SIM905
)
_ROOT = expression(
    r"(?:^|[\s;&|(`])(sudo|gosu|su-exec|setpriv|chown|chroot|useradd|usermod|groupadd|adduser|mount|iptables|sysctl"
    r"|modprobe|runuser|su)\s"
)
_DAEMONS = frozenset(
    """
    systemctl systemd init supervisord dockerd containerd sshd crond cron service s6-svscan runit runsvdir
    openrc monit rsyslogd dbus-daemon slurmd munged
    """.split()  # noqa: SIM905
)
_AS_ROOT = frozenset({"sudo", "gosu", "su-exec", "setpriv", "su", "runuser", "chroot"})
_NEEDED = ("/proc", "/sys", "/dev", "/tmp", "/etc")
_FILES = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf")


def _gains(subject: ImageSubject) -> Iterator[Hit]:
    found = [
        (path, layer)
        for path, layer in subject.census.marked.get("gains", ())
        if posixpath.basename(path) not in _USUAL and subject.census.exists(path)
    ]
    for path, layer in found[:20]:
        yield Hit(message=f"{path} is setuid or has file capabilities", layer=layer, paths=(path,))


def _gains_recipe(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.runs():
        for command in step.commands:
            sets = command.program == "setcap" or (
                command.program == "chmod"
                and any(
                    re.fullmatch(r"[ug]*\+[rwx]*s[rwx]*|[2-7][0-7]{3}", each) for each in command.plain[:1]
                )
                and not command.plain[0].startswith("1")
            )
            if sets:
                words = one_line(" ".join(word.value for word in command.words), limit=80)
                yield Hit(message=f"{words} has no effect at run time", line=step.line, last=step.last)


def _process(subject: RecipeSubject) -> Iterator[Hit]:
    started = [step for step in subject.steps if step.ships and step.name in ("CMD", "ENTRYPOINT")]
    last = {step.name: step for step in started}
    for step in last.values():
        for command in step.commands:
            what = _needs(command.program)
            if what:
                yield Hit(
                    message=f"{step.name} starts {command.program}, which {what}",
                    line=step.line,
                    last=step.last,
                    severity=Severity.ERROR,
                )
                break
    for step in subject.runs():
        for command in step.commands:
            if command.program == "systemctl" or (command.program == "service" and len(command.plain) > 1):
                yield Hit(message=f"{command.program} {' '.join(command.plain[:2])}: no service manager "
                "runs in a "
                          "container", line=step.line, last=step.last)  # fmt: skip
                break


def _process_image(subject: ImageSubject) -> Iterator[Hit]:
    for word in subject.process[:3]:
        what = _needs(posixpath.basename(word))
        if what:
            yield Hit(message=f"the image starts {word}, which {what}", severity=Severity.ERROR)
            return
    script = subject.process[0] if subject.process else ""
    if not script.startswith("/"):
        return
    text = (subject.view.read(script, most=1 << 16) or b"").decode("utf-8", "replace")
    if not text.startswith("#!") or "sh" not in text.partition("\n")[0]:
        return
    plain = "\n".join(
        line.partition(" #")[0] for line in text.splitlines() if not line.strip().startswith("#")
    )
    found = sorted({match[1] for match in _ROOT.finditer(plain)})
    if found:
        yield Hit(
            message=f"the start script {script} uses {', '.join(found)}, which need root",
            paths=(script,),
            remedy="check that the script also works for an ordinary user: id -u is not 0 there",
        )


def _needs(program: str) -> str:
    if program in _AS_ROOT:
        return "needs root or setuid: engines start you as yourself, without new privileges"
    return "is a daemon or service manager: it needs root, and a job ends with its command" if (
        program in _DAEMONS
    ) else ""  # fmt: skip


def _ports(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.steps:
        if step.name != "EXPOSE" or not step.ships:
            continue
        for each in step.instruction.args:
            number = re.match(r"\d{1,5}", step.expanded(each))
            if number is not None and 0 < int(number[0]) < 1024:
                yield Hit(message=f"port {number[0]} is only for root", line=step.line, last=step.last)


def _ports_image(subject: ImageSubject) -> Iterator[Hit]:
    for each in sorted(subject.execution.exposed_ports or ()):
        number = re.match(r"\d{1,5}", each)
        if number is not None and 0 < int(number[0]) < 1024:
            yield Hit(message=f"the image exposes port {number[0]}, which only root can use")


def _user(subject: RecipeSubject) -> Iterator[Hit]:
    steps = [step for step in subject.steps if step.ships and step.name == "USER"]
    if steps and steps[-1].instruction.args[0].partition(":")[0] not in ("root", "0"):
        step = steps[-1]
        yield Hit(
            message=f"USER {one_line(step.instruction.args[0], limit=40)} is ignored: you run as yourself",
            line=step.line,
            last=step.last,
        )


def _user_image(subject: ImageSubject) -> Iterator[Hit]:
    user = subject.image.process.user
    if user and user.partition(":")[0] not in ("root", "0"):
        yield Hit(message=f"the image's user {quoted(user)} is ignored: you run as yourself")


def _closed(subject: ImageSubject) -> Iterator[Hit]:
    """Files that only their owner can read: in most engines' image files the owner is root."""
    count = size_bytes = 0
    paths: list[str] = []
    layer = 0
    for folder, names in subject.census.final.items():
        if re.match(r"/(?:root|home|etc|var|proc|run|tmp|dev|sys)(?:/|$)", folder):
            continue
        for name, (size, at, kind, mode) in names.items():
            if (kind == "file" and not mode & 0o004) or (
                kind == "folder" and folder and mode & 0o005 != 0o005
            ):
                if folder == "" and name in ("root", "lost+found"):
                    continue
                count += 1
                size_bytes += size
                layer = at
                if len(paths) < 3:
                    paths.append(f"{folder}/{name}")
    if count:
        yield Hit(
            message=f"{count:,} files or directories are for their owner only, such as {paths[0]}",
            layer=layer,
            paths=tuple(paths),
            files=count,
        )


def _closed_recipe(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.steps:
        mode = step.instruction.flag("chmod") if step.name in ("COPY", "ADD") else None
        modes = [mode] if mode else []
        modes += [
            c.plain[0] for c in step.commands if c.program == "chmod" and c.plain and step.name == "RUN"
        ]
        for each in modes:
            if step.ships and re.fullmatch(r"0?[0-7]{2}0|go?-rwx|o-rwx|go=", each):
                yield Hit(message=f"mode {each} closes files to everyone but their owner", line=step.line,
                          last=step.last)  # fmt: skip


def _places(subject: ImageSubject) -> Iterator[Hit]:
    census = subject.census
    missing = [path for path in _NEEDED if census.kind(path) not in ("folder", "link")]
    files = [path for path in _FILES if not census.exists(path)]
    if missing:
        yield Hit(
            message=f"the image lacks {', '.join(missing)}, at which engines mount",
            remedy=f"RUN mkdir -p {shlex.join(missing)}   # or COPY empty directories",
        )
    if files and "/etc" not in missing:
        yield Hit(
            message=f"the image lacks {', '.join(files)}, over which some engines mount the host's files",
            severity=Severity.INFO,
            remedy=f"RUN touch {shlex.join(files)}",
        )
    if subject.site is None:
        return
    tops = {
        f"/{system.path.split('/')[1]}" for system in subject.site.file_systems if system.path.count("/") > 1
    }
    gone = sorted(top for top in tops if not census.exists(top) and top not in _NEEDED)
    if gone:
        yield Hit(
            message=f"the image lacks {', '.join(gone)}, where {subject.site.hostname} has its file systems",
            severity=Severity.INFO,
            remedy=f"Bareboat makes them; for other engines: RUN mkdir -p {shlex.join(gone)}",
        )


def _places_recipe(subject: RecipeSubject) -> Iterator[Hit]:
    last = subject.recipe.stages[-1]
    made = [step for step in subject.steps if step.stage is last and step.name in ("COPY", "ADD", "RUN")]
    if last.base == "scratch" and not any(
        step.name == "RUN"
        or step.instruction.args[-1].rstrip("/") in ("", ".")
        or step.instruction.args[-1].rstrip("/") in _NEEDED
        for step in made
    ):
        yield Hit(
            message=f"the image has no {', '.join(_NEEDED)}, at which engines mount",
            line=last.start.line,
            last=last.start.last,
            remedy="copy a tree that has them, as empty directories, to /",
        )
    for step in subject.runs():
        for command in step.commands:
            if command.program != "rm" or not command.has("-r", "-R", "--recursive"):
                continue
            gone = [
                each
                for each in command.plain
                if each.rstrip("/") in ("/tmp", "/var/tmp", "/proc", "/dev", "/sys")
            ]
            if gone:
                yield Hit(
                    message=f"rm removes {gone[0]} itself, at which engines mount",
                    line=step.line,
                    last=step.last,
                    remedy=f"rm -rf {shlex.quote(gone[0].rstrip('/'))}/*",
                )


RULES = (
    Rule(
        code="BB1201",
        title="A program is setuid, setgid, or has file capabilities.",
        why="Rootless engines start programs without new privileges: these bits have no effect, and the "
        "program fails or refuses to start.",
        remedy="use a program that needs no privileges, or ask the site to run it on the host",
        recipe=_gains_recipe,
        image=_gains,
        bad="FROM debian:12.7\nRUN setcap cap_net_raw+ep /usr/bin/tool\n",
        good="FROM debian:12.7\nRUN install -m 755 tool /usr/bin/tool\n",
    ),
    Rule(
        code="BB1202",
        title="The image's process, or a step, needs root or a daemon at run time.",
        why="On a cluster a container is your own process: there is no root, no init system and no service.",
        remedy="start the program itself: ENTRYPOINT and CMD without sudo, gosu, service or an init system",
        recipe=_process,
        image=_process_image,
        bad='FROM debian:12.7\nCMD ["sudo", "-u", "app", "/opt/app/run"]\n',
        good='FROM debian:12.7\nCMD ["/opt/app/run"]\n',
    ),
    Rule(
        code="BB1203",
        title="The image uses a port below 1024.",
        why="Only root can open it, and containers of a job use the host's network.",
        remedy="let the program take a port from 1024 as an argument",
        severity=Severity.INFO,
        recipe=_ports,
        image=_ports_image,
        bad="FROM debian:12.7\nEXPOSE 80\n",
        good="FROM debian:12.7\nEXPOSE 8080\n",
    ),
    Rule(
        code="BB1204",
        title="The image sets a user.",
        why="HPC engines run every container as the user who started it. What only that user may read or "
        "write does not work.",
        remedy="make the files readable for everyone: chmod -R a+rX DIR, and write to a mounted directory",
        severity=Severity.INFO,
        recipe=_user,
        image=_user_image,
        bad="FROM debian:12.7\nUSER app\n",
        good="FROM debian:12.7\nUSER root\n",
    ),
    Rule(
        code="BB1205",
        title="Files are closed to everyone but their owner.",
        why="In a SIF or squashfs file they belong to root, and you cannot read them.",
        remedy="chmod -R a+rX DIR in the RUN that makes them",
        recipe=_closed_recipe,
        image=_closed,
        bad="FROM debian:12.7\nCOPY --chmod=700 app /opt/app\n",
        good="FROM debian:12.7\nCOPY --chmod=755 app /opt/app\n",
    ),
    Rule(
        code="BB1206",
        title="A mount point is missing that engines need.",
        why="Engines mount /proc, /sys, /dev, /tmp and files of /etc; some cannot make missing "
        "directories in a read-only image.",
        remedy="make the empty directory or file in the image",
        recipe=_places_recipe,
        image=_places,
        bad="FROM debian:12.7\nRUN rm -rf /tmp\n",
        good="FROM debian:12.7\nRUN rm -rf /tmp/*\n",
        site=True,
    ),
)
