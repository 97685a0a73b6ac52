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
    "TItkJBBBD7YEJEn/xDxrD4ToAAAAPHd0UTxzdDWEwA+EVwEAAEiNNTQCAABIjRU1AgAAPG5ID0TyMf88YkAPlce4DgAAADHSQboIAAAADwXr"
    "s7hwAAAADwW4nQAAAL8kAAAAvgEAAADr5Lg5AAAADwVIhcB+j4nDSIPsELg9AAAAid9IieYx0kUx0g8FSIP4/HTpMdtIhcB/4rh/AAAASI18"
    "JAi+CAAAAA8F90QkCAFAAAB0Lrg9AAAASMfH/////0iJ5g8FuIAAAABIjT2eAQAAMfZIjRWdAQAAQboIAAAADwWLPCSJ+MHvCIPgf3QGjbiA"
    "AAAAuDwAAAAPBbj6AAAAvwEAAABIjTWoAAAADwVIhcB4O4nDuPoAAAC/BQAAAIneugAAGz8PBbj6AAAAid6/CAAAAEjHwvz///8PBbj6AAAA"
    "vwEAAAAx9un+/v//SIP42g+Eq/7//0iD+P8PhKH+//9Ig/jzD4SX/v//SI01hwAAALpiAAAA6yRIiwQkSI10JBhIjVTEEEiLPrg7AAAADwVI"
    "jTUlAAAAujwAAAC4AQAAAL8CAAAADwW/fgAAAOlA////X2JhcmVib2F0AGJhcmVib2F0OiB0aGUgcHJvZ3JhbSB0aGF0IHN0YXJ0cyB0aGUg"
    "am9iIGNhbm5vdCBiZSBzdGFydGVkCmJhcmVib2F0OiBubyBzZXNzaW9uIGtleXJpbmcgZm9yIHRoZSBjb250YWluZXI6IHRoZSBsaW1pdCBv"
    "biBrZXlzIGlzIHJlYWNoZWQ7IHNlZSAvcHJvYy9rZXktdXNlcnMKZpAHSkAAAAAAAAAKQAAAAAAAAABAAAAAAAABAAAAAAAAAAAAAAAAAAAA",
    "aarch64":
    "7AtA+YkVQDg/rQFxwAgAVD/dAXGgAgBUP80BcaABAFTJCwA0oRIAEMISABA/uQFxQQCBmj+JAXHgB5+a6BCA0gIAgNIDAYDSAQAA1O7//xeo"
    "E4DSAQAA1OgUgNKABIDSIQCA0vn//xeIG4DSIAKA0gEAgNICAIDSAwCA0gQAgNIBAADUHwAA8e37/1TpAwCq/0MA0YgggNLgAwmq4QMAkQIA"
    "gNIDAIDSAQAA1B8QALEg//9UCQCA0h8AAPHM/v9UCBGA0uAjAJEBAYDSAQAA1OAHQPkhAIjSHwAB6mABAFSIIIDSAACAkuEDAJEBAADUKBGA"
    "0qAMABABAIDSogwAEAMBgNIBAADU4QNAuSB8CFMhGAByQAAAVCAAAhGoC4DSAQAA1GgbgNIgAIDSIQUAEAEAANQAAvi36QMAquEDAKpoG4DS"
    "oACA0mLjp9IBAADU4QMJqmgbgNIAAYDSYgCAkgEAANRoG4DSIACA0gEAgNK2//8XH5gAsWD0/1QfBACxIPT/VB80ALHg8/9UQQQAUEIMgNIK"
    "AAAU6QNA+eFjAJHiQwCRQgwJiyAAQPmoG4DSAQAA1CEBAFCCB4DSCAiA0kAAgNIBAADUwA+A0tT//xdfYmFyZWJvYXQAYmFyZWJvYXQ6IHRo"
    "ZSBwcm9ncmFtIHRoYXQgc3RhcnRzIHRoZSBqb2IgY2Fubm90IGJlIHN0YXJ0ZWQKYmFyZWJvYXQ6IG5vIHNlc3Npb24ga2V5cmluZyBmb3Ig"
    "dGhlIGNvbnRhaW5lcjogdGhlIGxpbWl0IG9uIGtleXMgaXMgcmVhY2hlZDsgc2VlIC9wcm9jL2tleS11c2VycwoHSkAAAAAAAAAKQAAAAAAA"
    "AABAAAAAAAABAAAAAAAAAAAAAAAAAAAA",
}  # fmt: skip


def elf(machine: str) -> bytes:
    """The program for this machine."""
    return static(machine, base64.b64decode(CODE[machine]))
