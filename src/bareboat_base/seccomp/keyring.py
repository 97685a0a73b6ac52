"""A program in front of container engines: leaves the session keyring of its caller, then runs the engine.

Kernel keys, such as Kerberos tickets of `KEYRING:session`, have no namespaces: a container possesses what its
caller does. So each one gets a new session keyring, as from Podman. The code is keyring-MACHINE.s, assembled;
a test assembles it again. https://man7.org/linux/man-pages/man7/session-keyring.7.html
"""

from __future__ import annotations

import base64

from bareboat_base.seccomp.loader import static

#: The code of keyring-MACHINE.s; its length is a multiple of 8.
CODE = {
    "x86_64":
    "uPoAAAC/AQAAAEiNNZ0AAAAPBUiFwHg6icO4+gAAAL8FAAAAid66AAAbPw8FuPoAAACJ3r8IAAAASMfC/P///w8FuPoAAAC/AQAAADH2"
    "DwXrEkiD+Np0DEiD+P90BkiD+PN1JkiLBCRIjXQkEEiNVMQQSIs+uDsAAAAPBUiNNTUAAAC6MQAAAOsMSI01WAAAALpiAAAAuAEAAAC/"
    "AgAAAA8FuDwAAAC/fgAAAA8FX2JhcmVib2F0AGJhcmVib2F0OiB0aGUgY29udGFpbmVyIGVuZ2luZSBjYW5ub3QgYmUgc3RhcnRlZApi"
    "YXJlYm9hdDogbm8gc2Vzc2lvbiBrZXlyaW5nIGZvciB0aGUgY29udGFpbmVyOiB0aGUgbGltaXQgb24ga2V5cyBpcyByZWFjaGVkOyBz"
    "ZWUgL3Byb2Mva2V5LXVzZXJzCg8fRAAA",
    "aarch64":
    "aBuA0iAAgNJBBQAQAQAA1CAC+LfpAwCq4QMAqmgbgNKgAIDSYuOn0gEAANThAwmqaBuA0gABgNJiAICSAQAA1GgbgNIgAIDSAQCA0gEA"
    "ANQHAAAUH5gAsaAAAFQfBACxYAAAVB80ALFBAQBU6QNA+eFDAJEiDAmLIABA+agbgNIBAADUoQEAUCIGgNIDAAAUwQIAcEIMgNIICIDS"
    "QACA0gEAANSoC4DSwA+A0gEAANRfYmFyZWJvYXQAYmFyZWJvYXQ6IHRoZSBjb250YWluZXIgZW5naW5lIGNhbm5vdCBiZSBzdGFydGVk"
    "CmJhcmVib2F0OiBubyBzZXNzaW9uIGtleXJpbmcgZm9yIHRoZSBjb250YWluZXI6IHRoZSBsaW1pdCBvbiBrZXlzIGlzIHJlYWNoZWQ7"
    "IHNlZSAvcHJvYy9rZXktdXNlcnMKAAAA",
}  # fmt: skip


def elf(machine: str) -> bytes:
    """The program for this machine."""
    return static(machine, base64.b64decode(CODE[machine]))
