"""What a container in the foreground needs: a tree of the image, and the facts about this machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bareboat import kept_facts
from bareboat.kept_facts import Kept
from bareboat.model import Image, Site
from bareboat_base.errors import PlanError, UsageError

if TYPE_CHECKING:
    from bareboat.session import Session
    from bareboat_images.oci.reference import Reference


def tree(session: Session, text: str) -> tuple[Image, str]:
    """The image and its one tree. A directory is used in place; a file or a reference is pulled once, and a
    file again when it has changed. Raises UsageError, ImageError, StoreError."""
    if "/" in text or text in (".", ".."):  # a word may be a directory that another user made here
        path = os.path.join(session.folder, os.path.expanduser(text))
        if os.path.isdir(path):
            return in_place(session, path)
    image = stored(session, text)
    flat = session.store.flat(image.digest)
    if flat.is_dir():
        return image, str(flat)
    from bareboat_images.formats.flatten import make_flat

    return image, str(make_flat(session.store, image))


def in_place(session: Session, path: str) -> tuple[Image, str]:
    """A directory of this machine as an image, if the signature policy accepts it."""
    from bareboat.session import images
    from bareboat_images.transfer import opening

    path = os.path.realpath(path)
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"you cannot read the directory {path}", remedy=f"ls -ld {shlex.quote(path)}")
    return opening.open_directory(path, images.access(session)), path


def check_kept(session: Session, image: Image) -> None:
    """Raise ImageError where the signature policy does not accept the image of a container that is kept."""
    from bareboat.session import images
    from bareboat_images.transfer import opening

    opening.check_kept(image, session.store, images.access(session))


def stored(session: Session, text: str) -> Image:
    """The image of a reference or file, pulled if the store lacks it, or if the file has changed."""
    from bareboat.session import images
    from bareboat_images.transfer import opening
    from bareboat_images.transfer.options import PullOptions

    options = PullOptions(access=images.access(session), machine=os.uname().machine)
    return opening.open_image(
        text, session.store, options,
        read=lambda name: _reference(session, name),
        pull=lambda found, how: images.pull(session, found, how).image,
    )  # fmt: skip


def _reference(session: Session, text: str) -> Reference:
    """What the text refers to. The kind of a file is read from its content only where no pull has read it."""
    from bareboat_images.transfer import locate

    path = os.path.join(session.folder, text)
    if os.path.isfile(path):
        for kind in ("sif", "squashfs"):
            found = locate.read(f"{kind}:{path}", folder=session.folder)
            if session.store.pinned(str(found)) is not None:
                return found
    return locate.read(text, folder=session.folder)


def site(session: Session) -> Site:
    """This machine, with the engines that run commands in the foreground. Raises PlanError where none
    works."""
    kept, state = _kept(session), _state()
    found = kept.read(state)
    if found is None:
        found = (_probed(session),)
        kept.write(found, state)
    return found[0]


def _kept(session: Session) -> Kept[Site]:
    def files(facts: tuple[Site, ...]) -> Iterator[str]:
        yield __file__
        yield from (engine.path for site in facts for engine in site.engines if engine.path)

    return Kept(session.store, "containers", Site, files)


def _state() -> str:
    """What decides these facts besides what decides those of engines."""
    named = (os.environ.get(name, "") for name in ("HOME", "USER", "TZ"))
    return "\n".join((kept_facts.state(), str(os.getgid()), *map(str, os.getgroups()), *named))


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
    _kept(session).write((), "")


def check_image(text: str) -> str:
    """Raise UsageError for a path of a file that does not exist, which a pull would take for a name."""
    if "/" in text and text.startswith(("/", "./", "../")) and not os.path.exists(text):
        raise UsageError(
            f"{text} does not exist", remedy="name a SIF file, a directory, or docker://NAME:TAG"
        )
    return text
