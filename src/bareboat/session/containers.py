"""What a container in the foreground needs: a tree of the image, and the facts about this machine."""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat.model import Image, Process, Site
from bareboat_base import __version__, codec
from bareboat_base.errors import BareboatError, PlanError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bareboat.session import Session
    from bareboat_images.oci.reference import Reference

#: What is older is found out again.
_OLDEST_S = 3600.0
_BOOT = "/proc/sys/kernel/random/boot_id"
_FACTS = "containers"


class _Facts(Struct, frozen=True, kw_only=True):
    """`key`: what decides the site's facts; `at_s`: when they were found out, in seconds since
    1970."""

    key: str
    at_s: float
    site: Site


def tree(session: Session, text: str) -> tuple[Image, str]:
    """The image and its one tree. A directory is used in place; a file or a reference is pulled once, and a
    file again when it has changed. Raises UsageError, ImageError, StoreError."""
    path = os.path.join(session.folder, text)
    if os.path.isdir(path):
        return in_place(path)
    image = stored(session, text)
    flat = session.store.flat(image.digest)
    if flat.is_dir():
        return image, str(flat)
    from bareboat_images.formats.flatten import make_flat

    return image, str(make_flat(session.store, image))


def in_place(path: str) -> tuple[Image, str]:
    """A directory of this machine as an image."""
    from bareboat_images.formats.rootfs import read_facts

    path = os.path.realpath(path)
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"you cannot read the directory {path}", remedy=f"ls -ld {shlex.quote(path)}")
    facts = read_facts(path, made_from=path, architecture=os.uname().machine)
    process = Process(entrypoint=facts.entrypoint, command=facts.command, workdir=facts.workdir)
    return Image(digest="", layers=(), environment=facts.environment, process=process, reference=path), path


def stored(session: Session, text: str) -> Image:
    """The image of a reference or file, pulled if the store lacks it, or if the file has changed."""
    store = session.store
    if store.knows(text):
        return store.image(text)
    from bareboat.session import images
    from bareboat_images.transfer import locate
    from bareboat_images.transfer.options import PullOptions

    for found in _references(text, session.folder):
        pin = store.pinned(str(found))
        # A newer image of a tag requires a pull.
        if pin is None or (found.path and locate.state_of_file(found) != pin.root):
            continue
        if store.knows(pin.digest):
            image = store.image(pin.digest)
            if images.to_check(session, str(found), image) is None:
                return image
    options = PullOptions(access=images.access(session), machine=os.uname().machine)
    return images.pull(session, found, options).image


def _references(text: str, folder: str) -> Iterator[Reference]:
    """What the text may refer to, the likeliest first; the last one is certain. The kind of a file is read
    from its content only where no pull has read it."""
    from bareboat_images.oci.reference import Transport, at_path
    from bareboat_images.transfer import locate

    path = os.path.join(folder, text)
    if os.path.isfile(path):
        yield from (at_path(kind, path, folder=folder) for kind in (Transport.SIF, Transport.SQUASHFS))
    yield locate.read(text, folder=folder)


def site(session: Session) -> Site:
    """This machine, with the engines that run commands in the foreground. Raises PlanError where none
    works."""
    store, key = session.store, _key()
    path = store.kept_facts(_FACTS)
    try:
        kept = store.read(path, _Facts) if path.is_file() else None
    except BareboatError:  # it is written again
        kept = None
    if kept is not None and kept.key == key and 0 <= time.time() - kept.at_s < _OLDEST_S:
        return kept.site
    found = _probed(session)
    store.write(path, codec.to_json(_Facts(key=key, at_s=time.time(), site=found)))
    return found


def _probed(session: Session) -> Site:
    from bareboat import registry
    from bareboat.probe import Needs
    from bareboat.session import sites

    engines = tuple(name for name in registry.names("engines") if registry.engine(name).FOREGROUND)
    needs = Needs(engines=engines, schedulers=(), mpis=False, network=False)
    found = sites.with_filters(session, sites.probe(session, needs=needs))
    facts = [each for name in engines if (each := found.engine(name)) is not None]
    if not any(each.works and each.overlay for each in facts):
        raise PlanError(
            "a container in the foreground requires bubblewrap, with overlays in a user namespace",
            context="; ".join(each.detail for each in facts) or "bubblewrap is not installed",
            remedy=next((each.remedy for each in facts if each.remedy), "bareboat doctor"),
        )
    return found


def forget(session: Session) -> None:
    """Find the facts out again at the next start."""
    session.store.kept_facts(_FACTS).unlink(missing_ok=True)


def _key() -> str:
    with open(_BOOT, encoding="ascii") as stream:
        boot = stream.read().strip()
    named = [os.environ.get(name, "") for name in ("PATH", "HOME", "USER", "TZ")]
    groups = [str(number) for number in os.getgroups()]
    parts = [__version__, __file__, boot, str(os.getuid()), str(os.getgid()), *groups, *named]
    return "\0".join(parts)


def check_image(text: str) -> str:
    """Raise UsageError for a path of a file that does not exist, which a pull would take for a name."""
    if "/" in text and text.startswith(("/", "./", "../")) and not os.path.exists(text):
        raise UsageError(
            f"{text} does not exist", remedy="name a SIF file, a directory, or docker://NAME:TAG"
        )
    return text
