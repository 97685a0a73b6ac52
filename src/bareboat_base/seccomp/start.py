"""A program in front of container engines and of launchers, for what bash cannot do.

Kernel keys, such as Kerberos tickets of `KEYRING:session`, have no namespaces: a container possesses what its
caller does. So each one gets a new session keyring, as from Podman (KEYS). An engine or a launcher that stays
beside the command would die of a signal for the run, and take the command along: signals wait there, and
the program that a container starts first (`loader`), or RELEASE, lets them through again. A shell loses the
exit code of a child that ends as the shell itself gets a signal, so the program stays between them and exits
a little later (both STAY). The code is start-MACHINE.s, assembled; a test assembles it again.
https://man7.org/linux/man-pages/man7/session-keyring.7.html
"""

from __future__ import annotations

import base64

from bareboat_base.seccomp.loader import static

#: The code of start-MACHINE.s; its length is a multiple of 8.
CODE = {
    "x86_64":
    "TItkJBBBD7YEJEn/xDxrD4T1AAAAPHd0VDxzdDWEwA+EZAEAAEiNNUQCAABIjRVFAgAAPG5ID0TyMf88YkAPlce4DgAAADHSQboIAAAADwXr"
    "s7hwAAAAQYnFDwW4nQAAAL8kAAAAvgEAAADr4bg5AAAADwVIhcB+jInDSIPsELg9AAAAid9IieYx0kUx0g8FSIP4/HTpRYXtdAcx20iFwH/d"
    "uH8AAABIjXwkCL4IAAAADwX3RCQIAUAAAHQzRYXtdBG4PQAAAEjHx/////9IieYPBbiAAAAASI09oQEAADH2SI0VoAEAAEG6CAAAAA8Fizwk"
    "ifjB7wiD4H90Bo24gAAAALg8AAAADwW4+gAAAL8BAAAASI01qAAAAA8FSIXAeDuJw7j6AAAAvwUAAACJ3roAABs/DwW4+gAAAInevwgAAABI"
    "x8L8////DwW4+gAAAL8BAAAAMfbp8f7//0iD+NoPhJ7+//9Ig/j/D4SU/v//SIP48w+Eiv7//0iNNYcAAAC6YgAAAOskSIsEJEiNdCQYSI1U"
    "xBBIiz64OwAAAA8FSI01JQAAALo8AAAAuAEAAAC/AgAAAA8Fv34AAADpQP///19iYXJlYm9hdABiYXJlYm9hdDogdGhlIHByb2dyYW0gdGhh"
    "dCBzdGFydHMgdGhlIGpvYiBjYW5ub3QgYmUgc3RhcnRlZApiYXJlYm9hdDogbm8gc2Vzc2lvbiBrZXlyaW5nIGZvciB0aGUgY29udGFpbmVy"
    "OiB0aGUgbGltaXQgb24ga2V5cyBpcyByZWFjaGVkOyBzZWUgL3Byb2Mva2V5LXVzZXJzCg8fRAAAB0pAAAAAAAAACkAAAAAAAAAAQAAAAAAA"
    "AQAAAAAAAAAAAAAAAAAAAA==",
    "aarch64":
    "7AtA+YkVQDg/rQFxIAkAVD/dAXHAAgBUP80BcaABAFQpDAA0IRMAEEITABA/uQFxQQCBmj+JAXHgB5+a6BCA0gIAgNIDAYDSAQAA1O7//xeo"
    "E4DS7QMIqgEAANToFIDSgASA0iEAgNL4//8XiBuA0iACgNIBAIDSAgCA0gMAgNIEAIDSAQAA1B8AAPHN+/9U6QMAqv9DANGIIIDS4AMJquED"
    "AJECAIDSAwCA0gEAANQfEACxIP//VI0AALQJAIDSHwAA8az+/1QIEYDS4CMAkQEBgNIBAADU4AdA+SEAiNIfAAHqgAEAVK0AALSIIIDSAACA"
    "kuEDAJEBAADUKBGA0sAMABABAIDSwgwAEAMBgNIBAADU4QNAuSB8CFMhGAByQAAAVCAAAhGoC4DSAQAA1GgbgNIgAIDSIQUAEAEAANQAAvi3"
    "6QMAquEDAKpoG4DSoACA0mLjp9IBAADU4QMJqmgbgNIAAYDSYgCAkgEAANRoG4DSIACA0gEAgNKz//8XH5gAsQD0/1QfBACxwPP/VB80ALGA"
    "8/9UQQQAUEIMgNIKAAAU6QNA+eFjAJHiQwCRQgwJiyAAQPmoG4DSAQAA1CEBAFCCB4DSCAiA0kAAgNIBAADUwA+A0tT//xdfYmFyZWJvYXQA"
    "YmFyZWJvYXQ6IHRoZSBwcm9ncmFtIHRoYXQgc3RhcnRzIHRoZSBqb2IgY2Fubm90IGJlIHN0YXJ0ZWQKYmFyZWJvYXQ6IG5vIHNlc3Npb24g"
    "a2V5cmluZyBmb3IgdGhlIGNvbnRhaW5lcjogdGhlIGxpbWl0IG9uIGtleXMgaXMgcmVhY2hlZDsgc2VlIC9wcm9jL2tleS11c2VycwofIAPV"
    "B0pAAAAAAAAACkAAAAAAAAAAQAAAAAAAAQAAAAAAAAAAAAAAAAAAAA==",
}  # fmt: skip


def elf(machine: str) -> bytes:
    """The program for this machine."""
    return static(machine, base64.b64decode(CODE[machine]))
