"""Checks whether an image meets the signature policy, before any of it is visible in the store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from bareboat_base.clock import utc_now
from bareboat_base.digests import short
from bareboat_base.errors import ImageError, UsageError
from bareboat_base.printable import one_line
from bareboat_images.model import Pin, Signer, Trust
from bareboat_images.oci.reference import Reference, Transport
from bareboat_images.registry.access import Access, remote_options
from bareboat_images.signatures import place, policy, scopes
from bareboat_images.signatures.identity import Identity, Name
from bareboat_images.signatures.policy import (
    AcceptAnything,
    Reject,
    Requirement,
    Rules,
    SignedBy,
    SigstoreSigned,
)

if TYPE_CHECKING:
    from bareboat_images.signatures.sigstore import Attached

_MOST_REASONS = 5


def _nothing_changed() -> None:
    """A registry's content is identified by its digest: it cannot change."""


class Checked(Struct, frozen=True, kw_only=True):
    """The verdict. `confirm` raises ImageError if the file has changed since the check."""

    trust: Trust
    confirm: Callable[[], None] = _nothing_changed


def rules_for(found: Reference, access: Access) -> Rules | None:
    """The requirements of the applicable policy for an image; None without a policy. Raises UsageError."""
    path = place.locate(access.policy, os.environ)
    if path is None:
        return None
    transport, wanted = scopes.of(found)
    return policy.load(path).rules(transport, wanted)


def stamp(rules: Rules) -> str:
    """A digest of the requirements and their keys, on which a verdict is based."""
    digest = hashlib.sha256(rules.text.encode())
    for each in rules.requirements:
        if isinstance(each, SignedBy | SigstoreSigned):
            for _, data in each.keys.read():
                digest.update(hashlib.sha256(data).digest())
    return "sha256:" + digest.hexdigest()


def holds(found: Reference, pin: Pin | None, access: Access) -> bool:
    """Whether an image in the store still meets the policy: no signature is required, or the verdict is based
    on the same requirements and keys. Raises UsageError for an unreadable policy."""
    rules = rules_for(found, access)
    if rules is None:
        return True
    if any(isinstance(each, Reject) for each in rules.requirements):
        return False
    if not rules.needs_signatures:
        return True
    return pin is not None and pin.trust is not None and pin.trust.rules == stamp(rules)


def check(found: Reference, digests: tuple[str, ...], access: Access) -> Checked:
    """Check an image. `digests`: of its manifest, and of the index that led to it. A signature of either is
    sufficient: the index contains the manifest's digest.

    Raises ImageError when a requirement is not met, UsageError for an unusable policy or key.
    """
    rules = rules_for(found, access)
    # The signatures in a SIF are checked even if no policy requires them.
    sif = None
    if found.transport is Transport.SIF:
        from bareboat_images.signatures import sif as sif_signatures

        sif = sif_signatures.look(found.path, name=str(found))
    work = _Work(found=found, digests=digests, access=access, environment=os.environ)
    signers = (
        [
            each
            for each in (_required(work, one, rules, sif is not None) for one in rules.requirements)
            if each
        ]
        if rules
        else []
    )
    if sif is not None and not signers:
        signers = list(sif.signers)
    trust = Trust(
        state=_state(signers, is_sif=sif is not None),
        policy=rules.path if rules else "",
        scope=rules.scope if rules else "",
        rules=stamp(rules) if rules else "",
        signers=tuple(dict.fromkeys(signers)),
        checked_at=utc_now(),
    )
    return Checked(trust=trust, confirm=sif.confirm if sif is not None else _nothing_changed)


def _state(signers: list[Signer], *, is_sif: bool) -> str:
    if signers:
        return "signed" if any(each.verified for each in signers) else "claimed"
    return "unsigned" if is_sif else "unchecked"


def _required(work: _Work, requirement: Requirement, rules: Rules, is_sif: bool) -> Signer | None:
    """The signer according to one requirement; None if it requires no signature."""
    match requirement:
        case AcceptAnything():
            return None
        case Reject():
            raise _refused(work.found, rules, "the policy rejects it")
        case SignedBy():
            return _sif_signed(work, requirement, rules) if is_sif else _signed_by(work, requirement, rules)
        case SigstoreSigned():
            return _sigstore_signed(work, requirement, rules)
        case other:
            assert_never(other)


def _sif_signed(work: _Work, requirement: SignedBy, rules: Rules) -> Signer:
    """The signer of a SIF. Its signatures contain no image name, so only the key is checked."""
    from bareboat_images.signatures import sif

    if requirement.identity.kind in ("exactReference", "exactRepository"):
        raise _refused(work.found, rules, "the signatures of a SIF name no image")
    signer = sif.signer(work.found.path, requirement.keys.read(), name=str(work.found))
    if signer is None:
        raise _refused(work.found, rules, "no signature in the SIF is by a key that the policy names")
    return signer


@dataclass(slots=True, kw_only=True)
class _Work:
    """One image during the check; signatures are fetched once, and only if a requirement needs them."""

    found: Reference
    digests: tuple[str, ...]
    access: Access
    environment: Mapping[str, str]
    attached: list[Attached] | None = None

    @property
    def asked(self) -> Name | None:
        """The name with which signatures are compared."""
        if self.found.transport is not Transport.REGISTRY:
            return None
        name = f"{self.found.registry}/{self.found.repository}"
        if self.found.digest:
            return Name(name, None, self.found.digest)
        return Name(name, self.found.tag or "latest")


def _sigstore_signed(work: _Work, requirement: SigstoreSigned, rules: Rules) -> Signer:
    """The cosign signer according to the requirement."""
    from bareboat_images.signatures import sigstore
    from bareboat_images.signatures.payload import COSIGN, read_payload

    if requirement.keyless:
        raise UsageError(
            f"the signature policy {rules.path} requires {requirement.keyless[0]} in {rules.scope}, "
            "which is not supported",
            context="signatures are checked against public keys alone, not against Fulcio or Rekor",
            remedy="name the signer's public key (keyPath), or verify the image with cosign or Podman",
        )
    if work.found.transport is not Transport.REGISTRY:
        raise _refused(work.found, rules, "sigstore signatures lie in registries alone")
    keys = sigstore.PublicKeys(requirement.keys.read())
    reasons: list[str] = []
    for each in _attached(work):
        signer = keys.signer(each.payload, each.signature)
        if signer is None:
            reasons.append("a signature is by none of the policy's keys")
            continue
        try:
            claim = read_payload(each.payload, kind=COSIGN)
        except (ValueError, UnicodeDecodeError) as error:
            reasons.append(f"a signature by {signer[1]} signs something else: {one_line(str(error))}")
            continue
        reason = _mismatch(claim.digest, claim.name, (each.subject,), requirement.identity, work.asked)
        if reason is None:
            return Signer(kind="sigstore", key=signer[0], name=signer[1], signed_as=one_line(claim.name))
        reasons.append(reason)
    raise _refused(work.found, rules, "no cosign signature meets the policy", reasons)


def _attached(work: _Work) -> list[Attached]:
    from bareboat_images.registry import client
    from bareboat_images.signatures import sigstore

    found = work.found
    options = remote_options(found.registry, work.access)
    if work.attached is None:
        with client.open_registry(found.registry, found.repository, found.wanted, options=options) as source:
            work.attached = [each for digest in work.digests for each in sigstore.attached(source, digest)]
    return work.attached


def _signed_by(work: _Work, requirement: SignedBy, rules: Rules) -> Signer:
    """The OpenPGP signer according to the requirement."""
    from bareboat_images.signatures import lookaside
    from bareboat_images.signatures.openpgp import Keyring
    from bareboat_images.signatures.payload import SIMPLE_SIGNING, read_payload

    if work.found.transport is not Transport.REGISTRY:
        raise _refused(work.found, rules, f"{work.found.transport.value}: images carry no simple signatures")
    ring = Keyring(requirement.keys.read())
    reasons: list[str] = []
    for digest in work.digests:
        for data in lookaside.signatures(work.found, digest, work.access, work.environment):
            try:
                signed = ring.verify(data)
                claim = read_payload(signed.content, kind=SIMPLE_SIGNING)
            except (ValueError, UnicodeDecodeError) as error:
                reasons.append(f"a signature does not hold: {one_line(str(error))}")
                continue
            reason = _mismatch(claim.digest, claim.name, (digest,), requirement.identity, work.asked)
            if reason is None:
                key, name = signed.by[0]
                return Signer(kind="openpgp", key=key, name=name, signed_as=one_line(claim.name))
            reasons.append(reason)
    raise _refused(work.found, rules, "no OpenPGP signature meets the policy", reasons)


def _mismatch(
    digest: str, name: str, digests: tuple[str, ...], identity: Identity, asked: Name | None
) -> str | None:
    """Why a verified signature is not of this image; None if it is."""
    if digest not in digests:
        return f"a signature is of another image, {short(digest)}…"
    if not identity.matches(asked, name):
        return f"a signature is of {one_line(name)}, which {identity.kind} does not accept"
    return None


def _refused(found: Reference, rules: Rules, why: str, reasons: list[str] | None = None) -> ImageError:
    shown = list(dict.fromkeys(reasons or ()))[:_MOST_REASONS]
    return ImageError(
        f"{found} is refused: {why}",
        context="; ".join([f"policy {rules.path}, {one_line(rules.scope)}", *shown]),
        remedy="take an image that is signed as the policy requires, or ask whoever wrote the policy",
    )
