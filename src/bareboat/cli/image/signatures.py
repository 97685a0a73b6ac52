"""A verdict on signatures as one line."""

from __future__ import annotations

from bareboat.model import Signer, Trust
from bareboat_base.printable import one_line


def line(trust: Trust | None) -> str:
    """Describe who signed an image and which policy required it."""
    if trust is None:
        return "signatures not checked"
    by = f"; policy {trust.policy}, {trust.scope}" if trust.policy else ""
    match trust.state:
        case "signed":
            return one_line("; ".join(_signer(each) for each in trust.signers) + by, limit=500)
        case "unsigned":
            return one_line("unsigned" + by)
        case _:
            required = "the policy requires none" if trust.policy else "no policy"
            return one_line(f"signatures not checked: {required}{by}")


def _signer(signer: Signer) -> str:
    name = f" ({signer.name})" if signer.name else ""
    signed = f" as {signer.signed_as}" if signer.signed_as else ""
    if signer.verified:
        return f"signed by {signer.key}{name}{signed}"
    return f"claims to be signed by {signer.key or 'a key'}{name}, which is not verified"
