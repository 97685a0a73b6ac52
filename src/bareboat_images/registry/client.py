"""An image in a registry, or in a mirror of it, as a `Source`.

Source: OCI Distribution Specification 1.1, https://github.com/opencontainers/distribution-spec
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from bareboat_base import digests
from bareboat_base.errors import ImageError, UsageError
from bareboat_base.expressions import expression
from bareboat_images.oci import documents, manifest
from bareboat_images.oci.manifest import check_digest
from bareboat_images.oci.source import LARGEST_DOCUMENT, Blob, Descriptor, Document
from bareboat_images.registry.endpoint import Endpoint, Missing
from bareboat_images.registry.exchange import Patience
from bareboat_images.registry.failure import Broken
from bareboat_images.registry.http import Transport
from bareboat_images.registry.location import mirror_url, registry_url
from bareboat_images.registry.options import Options

__all__ = ["Options", "RegistrySource", "open_registry"]

T = TypeVar("T")

_TAG = expression(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = {"Accept": ", ".join(_MANIFESTS)}
_SHOWN_TAGS = 8


def open_registry(registry: str, repository: str, reference: str, *, options: Options) -> RegistrySource:
    """The image `reference`, a tag or a digest, of a repository. Sends no request yet.

    Raises UsageError for an invalid registry, mirror or reference.
    """
    if not digests.is_digest(reference) and not _TAG.fullmatch(reference):
        raise UsageError(
            f"{reference!r} is neither a tag nor a digest", remedy="write NAME:TAG or NAME@sha256:…"
        )
    name = f"{registry}/{repository}{'@' if ':' in reference else ':'}{reference}"
    transport = Transport(options)
    own = Endpoint(
        registry=registry,
        repository=repository,
        url=registry_url(registry, plain_http=options.plain_http),
        name=name,
        transport=transport,
    )
    mirrors = [
        Endpoint(registry=url.authority, repository=repository, url=url, name=name, transport=transport)
        for url in map(mirror_url, options.mirrors)
    ]
    return RegistrySource(name, reference, (*mirrors, own), transport)


class RegistrySource:
    """One image in a registry. Thread-safe; `close` ends all reads."""

    local = False
    notes: tuple[str, ...] = ()
    called: tuple[str, ...] = ()

    def __init__(self, name: str, reference: str, places: tuple[Endpoint, ...], transport: Transport) -> None:
        self.name = name
        self._reference = reference
        self._places = places
        self._transport = transport
        self._useless: set[Endpoint] = set()
        self._answered = False
        self._manifests: set[str] = set()
        self._configs: set[str] = set()

    def document(self, digest: str | None = None) -> Document:
        """The root document, index or manifest; or the document with a digest. Verified.

        Raises ImageError if it does not exist, is too large, or does not match its digest.
        """
        asked = digest or self._reference
        # A config is a blob; only the manifest that names it shows that. Without that knowledge, request a
        # blob first: docker-registry answers 500 when a blob is requested as a manifest.
        if digest not in (None, self._reference, *self._manifests):
            try:
                return self._first(lambda place: self._fetch(place, f"/blobs/{asked}", asked))
            except Missing:
                if asked in self._configs:
                    raise
        try:
            return self._first(lambda place: self._fetch(place, f"/manifests/{asked}", asked))
        except Missing as missing:
            raise (self._not_there(missing) if asked == self._reference else missing) from None

    def beside(self, tag: str) -> Document | None:
        """The manifest of another tag in the same repository; None if the tag does not exist.

        Raises ImageError when the request fails.
        """
        try:
            return self._first(lambda place: self._fetch(place, f"/manifests/{tag}", tag))
        except Missing:
            return None

    def head_digest(self) -> str | None:
        """The current digest of the reference, by one small request that does not count as a pull; None if
        the registry does not report it. Raises ImageError when the request fails."""
        if digests.is_digest(self._reference):
            return self._reference

        def ask(place: Endpoint) -> str | None:
            with place.ask(
                "HEAD",
                f"/manifests/{self._reference}",
                subject=self.name,
                headers=_ACCEPT,
                accepted=(200, 400, 403, 404, 405),
            ) as response:
                found = response.headers.get("Docker-Content-Digest") or ""
                return found if response.status == 200 and digests.is_digest(found) else None

        return self._first(ask)

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor, offset: int = 0) -> Iterator[Blob]:
        """Open a blob at an offset. Its bytes are not verified. Raises ImageError."""
        from bareboat_images.registry.blob import RemoteBlob

        check_digest(descriptor.digest, self.name)
        opened = RemoteBlob(descriptor, offset, places=self._useful(), failed=self._give_up)
        try:
            opened.open()
            yield opened
        finally:
            opened.close()

    def held(self, descriptor: Descriptor, diff_id: str) -> Descriptor:  # noqa: ARG002
        """The manifest's blob: registries have nothing else."""
        return descriptor

    def close(self) -> None:
        """Close all connections; a read that blocks in another thread raises ImageError at once."""
        self._transport.close()

    def __enter__(self) -> RegistrySource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- mirrors -----------------------------------------------------------------------------------

    def _useful(self) -> tuple[Endpoint, ...]:
        return tuple(place for place in self._places if place not in self._useless)

    def _give_up(self, place: Endpoint, error: ImageError) -> None:
        """Stop using a mirror, unless it only lacks one item."""
        if not isinstance(error, Missing):
            self._useless.add(place)
        self._transport.options.say(f"the mirror {place.url.authority} does not serve: {error.message}")

    def _first(self, ask: Callable[[Endpoint], T]) -> T:
        """The first result: of the mirrors in order, then of the registry itself."""
        *mirrors, own = self._useful()
        if not self._answered:  # unresponsive mirrors delay a pull no longer than one server would
            self._transport.share(len(mirrors) + 1)
        try:
            for mirror in mirrors:
                try:
                    return ask(mirror)
                except ImageError as error:
                    self._give_up(mirror, error)
            return ask(own)
        finally:
            self._answered = True
            self._transport.share(1)

    # -- documents ---------------------------------------------------------------------------------

    def _fetch(self, place: Endpoint, path: str, asked: str) -> Document:
        by_digest = digests.is_digest(asked)
        subject = self.name if asked == self._reference else f"{asked} of {self.name}"
        if ":" in asked:
            check_digest(asked, self.name)
        headers = _ACCEPT if path.startswith("/manifests/") else {}
        patience = Patience(self._transport, subject)
        while True:
            with place.ask("GET", path, subject=subject, headers=headers) as response:
                try:
                    data = response.read(LARGEST_DOCUMENT)
                    break
                except Broken as broken:
                    patience.after(broken)
                except ValueError:
                    raise ImageError(
                        f"{subject} is larger than {LARGEST_DOCUMENT / 2**20:.0f} MiB: "
                        "that is not a manifest",
                        remedy="check the reference; if it is right, the registry is out of order",
                    ) from None
        told = asked if by_digest else response.headers.get("Docker-Content-Digest") or ""
        if told:
            check_digest(told, f"{response.url.authority}, asked for {subject},")
        found = digests.of(data)
        if told and found != told:
            raise ImageError(
                f"{subject} does not match its digest: it was changed in transit or at the registry",
                context=f"expected {told}; {response.url.authority} sent {len(data):,} bytes with {found}",
                remedy="pull again; if it stays so, the registry's or a proxy's copy is damaged",
            )
        media_type = (response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        document = Document(data=data, media_type=media_type, digest=found)
        if headers:
            read = manifest.decoded(document, subject)
            if read.media_type and not media_type.startswith("application/vnd."):  # of a plain file server
                document = replace(document, media_type=read.media_type)
            self._remember(read, subject)
        return document

    def _remember(self, read: documents.Manifest, subject: str) -> None:
        """Record which digests are manifests, and which are configs. Raises ImageError for a negative size,
        which only Bareboat's own manifests may use for "unknown"."""
        self._manifests.update(each.digest for each in read.manifests or ())
        config = [read.config] if read.config is not None else []
        self._configs.update(each.digest for each in config)
        if any((each.size or 0) < 0 for each in (*(read.manifests or ()), *(read.layers or ()), *config)):
            raise ImageError(
                f"{subject} gives a negative size", remedy="ask the image's publisher to push it again"
            )

    def _not_there(self, missing: Missing) -> ImageError:
        """The error for a missing reference, with existing tags: the tag is the most likely mistake."""
        image, _, tag = self.name.rpartition(":")
        place = self._places[-1]
        tags: list[str] = []
        with contextlib.suppress(ImageError, Broken, ValueError, LookupError, TypeError, RecursionError):
            with place.ask("GET", "/tags/list?n=1000", subject=self.name) as response:
                listed = json.loads(response.read(1 << 20))["tags"]
            tags = [text for text in listed or () if isinstance(text, str) and _TAG.fullmatch(text)]
        if not tags or "@" in self.name:
            return ImageError(
                f"{self.name} not found: {place.url.authority} has no such repository, tag or digest",
                context=missing.context,
                remedy="check the name and the tag of the image",
            )
        from difflib import get_close_matches

        near = get_close_matches(tag, tags, n=_SHOWN_TAGS, cutoff=0.5)
        shown = list(dict.fromkeys([*near, *tags]))[:_SHOWN_TAGS]
        more = f" and {len(tags) - len(shown):,} more" if len(tags) > len(shown) else ""
        return ImageError(
            f"{image} has no tag {tag!r}",
            context=f"it has {', '.join(shown)}{more}",
            remedy=f"choose one of them, such as {image}:{shown[0]}",
        )
