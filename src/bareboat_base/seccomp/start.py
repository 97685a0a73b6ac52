"""A program in front of container engines and of launchers, for what bash cannot do.

Kernel keys, such as Kerberos tickets of `KEYRING:session`, have no namespaces: a container possesses what its
caller does. So each one gets a new session keyring, as from Podman (KEYS). An engine or a launcher that stays
beside the command would die of a signal for the run, and take the command along: signals wait there (HOLD),
and the program that a container starts first (`loader`), or RELEASE, lets them through again. The code is
start-MACHINE.s, assembled; a test assembles it again.
https://man7.org/linux/man-pages/man7/session-keyring.7.html
"""

from __future__ import annotations

import base64

from bareboat_base.seccomp.loader import static

#: The code of start-MACHINE.s; its length is a multiple of 8.
CODE = {
    "x86_64":
    "TItkJBBBD7YEJEn/xDxrdCiEwA+ElAAAADH/PGJAD5XHuA4AAABIjTVzAQAAMdJBuggAAAAPBevMuPoAAAC/AQAAAEiNNa0AAAAPBUiFwHg9"
    "icO4+gAAAL8FAAAAid66AAAbPw8FuPoAAACJ3r8IAAAASMfC/P///w8FuPoAAAC/AQAAADH2DwXpd////0iD+NoPhG3///9Ig/j/D4Rj////"
    "SIP483Ur6Vj///9IiwQkSI10JBhIjVTEEEiLPrg7AAAADwVIjTU1AAAAujwAAADrDEiNNWMAAAC6YgAAALgBAAAAvwIAAAAPBbg8AAAAv34A"
    "AAAPBV9iYXJlYm9hdABiYXJlYm9hdDogdGhlIHByb2dyYW0gdGhhdCBzdGFydHMgdGhlIGpvYiBjYW5ub3QgYmUgc3RhcnRlZApiYXJlYm9h"
    "dDogbm8gc2Vzc2lvbiBrZXlyaW5nIGZvciB0aGUgY29udGFpbmVyOiB0aGUgbGltaXQgb24ga2V5cyBpcyByZWFjaGVkOyBzZWUgL3Byb2Mv"
    "a2V5LXVzZXJzCpAHSgAAAAAAAA==",
    "aarch64":
    "7AtA+YkVQDg/rQFxQAEAVKkEADQ/iQFx4AefmugQgNLBCwAQAgCA0gMBgNIBAADU9f//F2gbgNIgAIDSgQUAEAEAANQgAvi36QMAquEDAKpo"
    "G4DSoACA0mLjp9IBAADU4QMJqmgbgNIAAYDSYgCAkgEAANRoG4DSIACA0gEAgNIBAADU4P//Fx+YALHA+/9UHwQAsYD7/1QfNACxQPv/VAsA"
    "ABTpA0D54WMAkeJDAJFCDAmLIABA+agbgNIBAADUoQEAUIIHgNIDAAAUIQMAUEIMgNIICIDSQACA0gEAANSoC4DSwA+A0gEAANRfYmFyZWJv"
    "YXQAYmFyZWJvYXQ6IHRoZSBwcm9ncmFtIHRoYXQgc3RhcnRzIHRoZSBqb2IgY2Fubm90IGJlIHN0YXJ0ZWQKYmFyZWJvYXQ6IG5vIHNlc3Np"
    "b24ga2V5cmluZyBmb3IgdGhlIGNvbnRhaW5lcjogdGhlIGxpbWl0IG9uIGtleXMgaXMgcmVhY2hlZDsgc2VlIC9wcm9jL2tleS11c2Vycwof"
    "IAPVB0oAAAAAAAA=",
}  # fmt: skip


def elf(machine: str) -> bytes:
    """The program for this machine."""
    return static(machine, base64.b64decode(CODE[machine]))
