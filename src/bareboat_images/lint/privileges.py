"""Rules about what an image requires at run time but rootless engines do not provide: root, setuid, daemons,
other users."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from bareboat_base.expressions import expression
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


def _gains(subject: ImageSubject) -> Iterator[Hit]:
    found = [
        (path, layer)
        for path, layer in subject.census.marked.get("gains", ())
        if posixpath.basename(path) not in _USUAL and subject.census.exists(path)
    ]
    for path, layer in found[:20]:
        yield Hit(message=f"{path} is setuid or has file capabilities", layer=layer, paths=(path,))


def _process(subject: RecipeSubject) -> Iterator[Hit]:
    started = [
        step
        for step in subject.steps
        if step.ships and step.name in ("CMD", "ENTRYPOINT") and step.instruction.args
    ]
    last = {step.name: step for step in started}
    for step in last.values():
        words = step.instruction.args if step.instruction.is_json else step.instruction.args[0].split()
        program = posixpath.basename(words[0]) if words else ""
        if what := _needs(program):
            yield Hit(
                message=f"{step.name} starts {program}, which {what}",
                line=step.line,
                last=step.last,
                severity=Severity.ERROR,
            )


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
        if mode and step.ships and re.fullmatch(r"0?[0-7]{2}0|go?-rwx|o-rwx|go=", mode):
            yield Hit(
                message=f"mode {mode} closes files to everyone but their owner",
                line=step.line,
                last=step.last,
            )


RULES = (
    Rule(
        code="BB1201",
        title="A program is setuid, setgid, or has file capabilities.",
        why="Rootless engines start programs without new privileges: these bits have no effect, and the "
        "program fails or refuses to start.",
        remedy="use a program that needs no privileges, or ask the site to run it on the host",
        image=_gains,
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
        code="BB1205",
        title="Files are closed to everyone but their owner.",
        why="In a SIF or squashfs file they belong to root, and you cannot read them.",
        remedy="chmod -R a+rX DIR in the RUN that makes them",
        recipe=_closed_recipe,
        image=_closed,
        bad="FROM debian:12.7\nCOPY --chmod=700 app /opt/app\n",
        good="FROM debian:12.7\nCOPY --chmod=755 app /opt/app\n",
    ),
)
