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
    "TItkJBBBD7YEJEn/xDxrD4S5AAAAPHd0KITAD4QhAQAAMf88YkAPlce4DgAAAEiNNQMCAAAx0kG6CAAAAA8F68S4OQAAAA8FSIXAfriJw0iD"
    "7BC4PQAAAInfSInmMdJFMdIPBUiD+Px06bh/AAAASI18JAi+CAAAAA8F90QkCAFAAAB0L7gOAAAAMf9IjTWtAQAAMdJBuggAAAAPBbiAAAAA"
    "SI09lwEAADH2SI0VlgEAAA8FizwkifjB7wiD4H90Bo24gAAAALg8AAAADwW4+gAAAL8BAAAASI01rQAAAA8FSIXAeD2Jw7j6AAAAvwUAAACJ"
    "3roAABs/DwW4+gAAAInevwgAAABIx8L8////DwW4+gAAAL8BAAAAMfYPBeni/v//SIP42g+E2P7//0iD+P8PhM7+//9Ig/jzdSvpw/7//0iL"
    "BCRIjXQkGEiNVMQQSIs+uDsAAAAPBUiNNTUAAAC6PAAAAOsMSI01YwAAALpiAAAAuAEAAAC/AgAAAA8FuDwAAAC/fgAAAA8FX2JhcmVib2F0"
    "AGJhcmVib2F0OiB0aGUgcHJvZ3JhbSB0aGF0IHN0YXJ0cyB0aGUgam9iIGNhbm5vdCBiZSBzdGFydGVkCmJhcmVib2F0OiBubyBzZXNzaW9u"
    "IGtleXJpbmcgZm9yIHRoZSBjb250YWluZXI6IHRoZSBsaW1pdCBvbiBrZXlzIGlzIHJlYWNoZWQ7IHNlZSAvcHJvYy9rZXktdXNlcnMKDx9A"
    "AAdKAAAAAAAAAABAAAAAAAABAAAAAAAAAAAAAAAAAAAA",
    "aarch64":
    "7AtA+YkVQDg/rQFxIAcAVD/dAXFAAQBUSQoAND+JAXHgB5+a6BCA0kERABACAIDSAwGA0gEAANTz//8XiBuA0iACgNIBAIDSAgCA0gMAgNIE"
    "AIDSAQAA1B8AAPFN/f9U6QMAqv9DANGIIIDS4AMJquEDAJECAIDSAwCA0gEAANQfEACxIP//VAgRgNLgIwCRAQGA0gEAANTgB0D5IQCI0h8A"
    "AeqAAQBU6BCA0gAAgNJBDQAQAgCA0gMBgNIBAADUKBGA0qAMABABAIDSogwAEAEAANThA0C5IHwIUyEYAHJAAABUIAACEagLgNIBAADUaBuA"
    "0iAAgNKBBQAQAQAA1CAC+LfpAwCq4QMAqmgbgNKgAIDSYuOn0gEAANThAwmqaBuA0gABgNJiAICSAQAA1GgbgNIgAIDSAQCA0gEAANSx//8X"
    "H5gAseD1/1QfBACxoPX/VB80ALFg9f9UCwAAFOkDQPnhYwCR4kMAkUIMCYsgAED5qBuA0gEAANShAQBQggeA0gMAABQhAwBQQgyA0ggIgNJA"
    "AIDSAQAA1KgLgNLAD4DSAQAA1F9iYXJlYm9hdABiYXJlYm9hdDogdGhlIHByb2dyYW0gdGhhdCBzdGFydHMgdGhlIGpvYiBjYW5ub3QgYmUg"
    "c3RhcnRlZApiYXJlYm9hdDogbm8gc2Vzc2lvbiBrZXlyaW5nIGZvciB0aGUgY29udGFpbmVyOiB0aGUgbGltaXQgb24ga2V5cyBpcyByZWFj"
    "aGVkOyBzZWUgL3Byb2Mva2V5LXVzZXJzCgdKAAAAAAAAAABAAAAAAAABAAAAAAAAAAAAAAAAAAAA",
}  # fmt: skip


def elf(machine: str) -> bytes:
    """The program for this machine."""
    return static(machine, base64.b64decode(CODE[machine]))
