"""A program that becomes another user of its user namespace and then runs a command, for RUN after USER.

It requires nothing of the image in which it starts. The code is starter-MACHINE.s, assembled; a test
assembles it again.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence

from bareboat_base.seccomp.loader import static

#: The code of starter-MACHINE.s; its length is a multiple of 8.
CODE = {
    "x86_64":
    "uHQAAACLPf0AAABIjTX6AAAADwVIhcB1Uos95QAAAIn+ifq4dwAAAA8FSIXAdTyLPcsAAACJ/on6uHUAAAAPBUiFwHUmSIsEJEiN"
    "dCQQSI1UxBBIiz64OwAAAA8FSI01KwAAALo1AAAA6wxIjTVSAAAAujwAAAC4AQAAAL8CAAAADwW4PAAAAL9+AAAADwViYXJlYm9h"
    "dDogdGhlIGNvbW1hbmQgY2Fubm90IGJlIHN0YXJ0ZWQgaW4gdGhlIGltYWdlCmJhcmVib2F0OiB0aGUgdXNlciBvZiBVU0VSIGlz"
    "IG5vdCBhbW9uZyB0aGUgc3Vib3JkaW5hdGUgSURzCg==",
    "aarch64":
    "SQgAEOgTgNIgCUC5ITEAkQEAANQAAwC1iQcAECAFQLnhAwAq4gMAKqgSgNIBAADUIAIAtakGABAgAUC54QMAKuIDACpoEoDSAQAA"
    "1EABALXpA0D54UMAkSIMCYsgAED5qBuA0gEAANRhAQAQogaA0gMAABShAgAwggeA0kAAgNIICIDSAQAA1MAPgNKoC4DSAQAA1GJh"
    "cmVib2F0OiB0aGUgY29tbWFuZCBjYW5ub3QgYmUgc3RhcnRlZCBpbiB0aGUgaW1hZ2UKYmFyZWJvYXQ6IHRoZSB1c2VyIG9mIFVT"
    "RVIgaXMgbm90IGFtb25nIHRoZSBzdWJvcmRpbmF0ZSBJRHMKAAAA",
}  # fmt: skip


def elf(machine: str, uid: int, gid: int, groups: Sequence[int] = ()) -> bytes:
    """The program for this user, for this machine. `groups`: those that it has besides."""
    user = struct.pack(f"<{3 + len(groups)}I", uid, gid, len(groups), *groups)
    return static(machine, base64.b64decode(CODE[machine]) + user)
