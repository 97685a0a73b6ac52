"""The images of a store, their layers, names and pins."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat_base import codec, digests
from bareboat_base.errors import StoreError, UsageError
from bareboat_base.files import ownership, untrusted
from bareboat_base.nearest import nearest
from bareboat_base.printable import one_line, quoted
from bareboat_images import pinning
from bareboat_images.model import Image, Layer, Pin, StoredCapture, StoredLayer
from bareboat_images.store.files import AGAIN, Files, claims, writable
from bareboat_images.store.paths import check_name, is_image_name

if TYPE_CHECKING:
    from bareboat_images.layers.view import View
    from bareboat_images.oci import documents
    from bareboat_images.oci.manifest import Manifest

_LARGEST_DOCUMENT = 4 << 20


class ImageNotFound(StoreError):
    """The store has no such name or digest."""


class Images(Files):
    """The images of a store, their layers, names and pins."""

    check_name = staticmethod(check_name)

    def put_image(self, image: Image, *, manifest: bytes, config: bytes) -> None:
        """Store an image whose layers are already in place."""
        self.write(self.blob(digests.of(config)), config)
        self.write(self.blob(image.digest), manifest)
        self.write(self.entry(image.digest), codec.to_json(image))

    def image(self, reference: str) -> Image:
        """The image with this digest, prefix of a digest, or name."""
        with self.guarded():
            digest = self._resolve(reference)
            try:
                data = self.read_bytes(self.entry(digest))
            except FileNotFoundError:
                if digest == reference:
                    raise self.no_image(reference) from None
                raise StoreError(
                    f"{reference} stands for {digests.short(digest)}, which is not in the store {self.root}",
                    remedy=f"bareboat image pull REFERENCE --name {reference}   # names another image so",
                ) from None
        what = f"the store's entry of image {reference}"
        image = codec.from_json(data, Image, what=what, remedy=AGAIN["images"])
        missing = [layer.diff_id for layer in image.layers if not self.layer(layer.diff_id).is_dir()]
        if image.digest != digest:
            raise StoreError(
                f"the store's entry of image {reference} belongs to another image",
                context=f"expected {digest}, found {one_line(image.digest)}",
                remedy=self.how_to_get(image),
            )
        if missing:
            raise StoreError(
                f"layer {missing[0]} of image {reference} is missing from the store {self.root}",
                remedy=self.how_to_get(image),
            )
        return image

    def view(self, image: Image) -> View:
        """The files of an image."""
        from bareboat_images.layers.view import View

        return View(self.trees(image))

    def manifest_data(self, image: Image) -> bytes:
        """The manifest that an image's digest refers to. Raises StoreError if it is not in the store any
        more."""
        return self._document_of(image, image.digest)

    def manifest(self, image: Image) -> Manifest:
        """The manifest of an image: the blobs of its config and layers. Raises StoreError."""
        from bareboat_images.oci import manifest
        from bareboat_images.oci.source import Document

        document = Document(data=self.manifest_data(image), media_type="", digest=image.digest)
        return manifest.manifest(document, name=image.reference or image.digest)

    def config(self, image: Image) -> bytes:
        """The config of an image, as written by its builder. Raises StoreError."""
        return self._document_of(image, self.manifest(image).config.digest)

    def read_config(self, image: Image) -> documents.Config:
        """The config of an image, parsed. Raises StoreError, ImageError."""
        from bareboat_images.oci import documents

        return documents.config(self.config(image), name=image.digest)

    def _document_of(self, image: Image, digest: str) -> bytes:
        data = self.document(digest)
        if data is None or not digests.is_of(digest, data):
            raise StoreError(
                f"image {image.digest} lacks a document in the store, or it was changed there",
                context=digest,
                remedy=self.how_to_get(image),
            )
        return data

    @staticmethod
    def how_to_get(image: Image) -> str:
        """The command that stores an image again, completely."""
        if image.site_layer is not None:
            added = " ".join(f"--with {each}" for each in image.site_layer.contents)
            return f"bareboat image layer {digests.short(image.site_layer.base)} --fresh {added}"
        if image.built:
            return image.built
        if image.reference:
            return f"bareboat image pull --fresh {shlex.quote(image.reference)}"
        return "bareboat image capture --fresh"

    def knows(self, reference: str) -> bool:
        """Whether a digest, the beginning of one, or a name is there: readable or not, of an image or not."""
        try:
            digest = self._resolve(reference)
            if digest != reference:
                return True
            with self.guarded():
                self.entry(digest).lstat()
        except (ImageNotFound, FileNotFoundError):
            return False
        except StoreError:
            return True
        return True

    def has_image(self, digest: str) -> bool:
        try:
            self.image(digest)
        except (StoreError, UsageError):
            return False
        return True

    def name_image(self, name: str, digest: str) -> None:
        check_name(name)
        self.write(self.root / "names" / name, digest.encode())

    def name_owner(self, name: str) -> int | None:
        """The user ID of another user who set a name; None for one's own, and for a name that nobody has."""
        with self.guarded():
            try:
                uid = (self.root / "names" / name).lstat().st_uid
            except FileNotFoundError:
                return None
        return None if uid == os.geteuid() else uid

    def captured(self, fingerprint: str) -> StoredCapture | None:
        """The capture of an environment with this fingerprint; None where there is none, or a damaged one."""
        return self.read_capture(self.root / "captures" / digests.hexed(fingerprint))

    def read_capture(self, path: Path) -> StoredCapture | None:
        """One file of the directory captures; None for a damaged one."""
        with self.guarded():
            try:
                data = untrusted.read_bytes(path)
            except (FileNotFoundError, untrusted.UntrustedFileError):
                return None
        try:
            return codec.from_json(data, StoredCapture, what=str(path))
        except StoreError:
            return None

    def remember_capture(self, fingerprint: str, digest: str, outside: dict[str, str]) -> None:
        capture = StoredCapture(digest=digest, outside=outside)
        self.write(self.root / "captures" / digests.hexed(fingerprint), codec.to_json(capture))

    def has_layer(self, diff_id: str) -> bool:
        return self.layer(diff_id).is_dir()

    def add_layer(self, made: Path, layer: Layer) -> None:
        """Make a new layer visible; `made`, in a scratch directory, holds its tree/. Until an image has it, a
        claim protects it from garbage collection."""
        with open(claims(made.parent), "a") as stream:
            stream.write(layer.diff_id + "\n")
        facts = StoredLayer(
            diff_id=layer.diff_id,
            size_bytes=layer.size_bytes,
            unpacked_bytes=layer.unpacked_bytes,
            inodes=layer.inodes,
        )
        self.publish_layer(made, facts)

    def publish_layer(self, made: Path, facts: StoredLayer) -> None:
        """Make a layer visible: `made` holds its tree/, and its recipe if any."""
        if self.own != self.root and not (made / "recipe").exists() and next(writable(made), None):
            self._record(made)
        (made / "layer.json").write_bytes(codec.to_json(facts))
        self.publish(made, self.layer_folder(facts.diff_id))

    def _record(self, made: Path) -> None:
        """Write the recipe of a canonical layer, whose tree will lose modes in a group's store."""
        from bareboat_images.layers import layer
        from bareboat_images.layers.unpack import unpack
        from bareboat_images.tar.limits import Limits

        with self.scratch() as scratch:
            (scratch / "again").mkdir()
            with open(scratch / "layer.tar", "w+b") as stream:
                layer.write_tar(str(made / "tree"), stream.write)
                stream.seek(0)
                chunks = iter(lambda: stream.read(1 << 20), b"")
                unpack(chunks, scratch / "again", name="the layer", limits=Limits(), recipe=made / "recipe")

    def discard_layer(self, diff_id: str) -> None:
        """Hide a layer from all readers at once, then remove it."""
        self.discard(self.layer_folder(diff_id))

    def stored_layer(self, diff_id: str) -> StoredLayer:
        """The facts about a stored layer."""
        return self.read(self.layer_folder(diff_id) / "layer.json", StoredLayer)

    def pin(self, pin: Pin) -> None:
        """Store what a reference refers to. Raises StoreError for another image's digest."""
        if not self.covers(pin):
            raise StoreError(
                f"the reference {one_line(pin.reference)} does not match the image {pin.digest}",
                context="the digest in a reference must be that of the image, or of an index that lists it",
                remedy=f"bareboat image pull {shlex.quote(one_line(pin.reference))}",
            )
        self.write(self.pin_file(pin.reference), codec.to_json(pin))

    def pinned(self, reference: str) -> Pin | None:
        """What the reference referred to when it was last pulled. None for a pin of another reference, or of
        an image that does not match its digest."""
        try:
            data = self.read_bytes(self.pin_file(reference))
        except FileNotFoundError:
            return None
        again = f"bareboat image pull {shlex.quote(one_line(reference))}   # writes it again"
        pin = codec.from_json(data, Pin, what=f"the pin of {one_line(reference)}", remedy=again)
        if pin.reference == reference and self.covers(pin):
            return pin
        import logging

        logging.getLogger("bareboat").warning(
            "ignored the pin of %s: the store does not prove that this digest covers the image %s",
            one_line(reference),
            one_line(pin.digest),
        )
        return None

    def covers(self, pin: Pin) -> bool:
        """Whether the pin's reference matches its image: it has no digest, or one that covers the image."""
        asked = pinning.digest_in(pin.reference)
        return asked is None or pinning.chain(asked, pin.digest, self.document) is not None

    def document(self, digest: str) -> bytes | None:
        """A stored index, manifest or configuration, not verified; None when missing."""
        try:
            return self.read_bytes(self.blob(digest), limit=_LARGEST_DOCUMENT)
        except FileNotFoundError:
            return None

    def keep_document(self, digest: str, data: bytes) -> None:
        """Store an index with the manifests, unless it exists."""
        if self.document(digest) != data:
            self.write(self.blob(digest), data)

    def pins(self, unreadable: list[str] | None = None) -> list[Pin]:
        """Every pin, by reference. `unreadable`: as of `names`."""
        found = []
        for path in self._listed("pins"):
            try:
                found.append(self.read(path, Pin))
            except StoreError as error:
                _report(f"a damaged pin: {error.message}; try: {error.remedy}", unreadable)
        return sorted(found, key=lambda pin: pin.reference)

    def names(self, unreadable: list[str] | None = None) -> dict[str, str]:
        """Every name and its digest. `unreadable`: gets why others cannot be read, which else is logged."""
        found = {}
        for path in self._listed("names"):
            try:
                text = untrusted.read_text(path)
                why = "" if digests.is_digest(text) else "holds no digest"
            except OSError as error:
                text, why = "", f"cannot be read: {error.strerror or error}"
            if why:
                _report(f"the name names/{one_line(path.name)}, which {why}", unreadable)
            else:
                found[path.name] = text
        return found

    def _listed(self, room: str) -> list[Path]:
        """The entries of a directory of the store. Raises StoreError for one that cannot be read."""
        with self.guarded():
            try:
                return sorted((self.root / room).iterdir())
            except FileNotFoundError:
                return []

    def images(self, unreadable: list[tuple[Path, str]] | None = None) -> list[Image]:
        """Every image, by digest. `unreadable`: gets the entries that cannot be read, with the reason; where
        it is None, one raises StoreError."""
        found = []
        for path in filter(Path.exists, self.entries()):  # others were removed meanwhile
            try:
                found.append(self.read(path, Image))
            except StoreError as error:
                if unreadable is None:
                    raise
                if path.exists():
                    unreadable.append((path, error.message))
        return found

    def entries(self) -> list[Path]:
        """The files of the store's images, sorted by digest."""
        return [path for path in self._listed(f"images/{digests.ALGORITHM}") if path.suffix == ".json"]

    def pin_file(self, reference: str) -> Path:
        """The file of a reference's pin."""
        import hashlib

        hashed = hashlib.sha256(reference.encode("utf-8", "surrogateescape")).hexdigest()
        return self.root / "pins" / f"{hashed}.json"

    def _resolve(self, reference: str) -> str:
        if digests.is_digest(reference):
            return reference
        if digests.may_begin(reference):
            self._check_not_named(reference)
        elif is_image_name(reference):
            with contextlib.suppress(FileNotFoundError):
                path = self.root / "names" / reference
                named = self.read_bytes(path).decode(errors="replace")
                if digests.is_digest(named):
                    return named
                raise StoreError(f"{path} holds no digest", remedy=self._how_to_replace(path))
        known = (digests.of_digits(path.stem) for path in self.entries())
        found = digests.beginning_with(reference, filter(None, known)) or []
        if len(found) == 1:
            return found[0]
        if found:
            raise StoreError(
                f"{len(found)} images in the store {self.root} begin with {reference!r}",
                remedy="give more digits of the digest",
            )
        raise self.no_image(reference)

    def _check_not_named(self, beginning: str) -> None:
        """Raise for a name that could be the beginning of a digest: it may hide an image from its user."""
        path = self.root / "names" / beginning
        try:
            uid = path.lstat().st_uid
        except OSError:
            return
        raise StoreError(
            f"{beginning!r} could be the beginning of a digest, and is also a name in the store {self.root}",
            context=f"{ownership.name_of(uid)} gave this name; Bareboat refuses such names",
            remedy=f"remove the name: rm {shlex.quote(str(path))}",
        )

    def no_image(self, text: str) -> ImageNotFound:
        """The error for an image that is not in the store, with the most similar name."""
        from bareboat_images.oci import reference as names  # here, because every start imports this module

        message = f"image {quoted(text, limit=200)} not found in the store {self.root}"
        remedy = "bareboat image ls   # lists the images"
        try:
            names.parse(text, folder="")
        except UsageError:
            message += f"; no image can have this name{names.why_none(text)}"
        else:
            message += self.guess(names.familiar(text))
            if not digests.may_begin(text):
                remedy = f"bareboat image pull {shlex.quote(text)}   # or: bareboat image ls"
        return ImageNotFound(message, remedy=remedy)

    def guess(self, name: str) -> str:
        """The most similar name of an image, as the end of a message; "" where none is similar."""
        near = nearest(name, self.names())
        return f"; did you mean {near}, which is in the store?" if near not in (None, name) else ""


def _report(text: str, unreadable: list[str] | None) -> None:
    """Add an entry that is left out to a list, or log it."""
    if unreadable is not None:
        unreadable.append(text)
        return
    import logging

    logging.getLogger("bareboat").warning("ignored %s", text)
