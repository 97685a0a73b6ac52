"""Locates the signature policy, and checks whether it requires anything. Fast: it runs at every start."""

from __future__ import annotations

import os
from collections.abc import Mapping

from bareboat_base.files import ownership

_ANY = b'[{"type":"insecureAcceptAnything"}]'
#: The policies installed by Debian and the container tools, without white space.
_REQUIRE_NOTHING = (
    b'{"default":' + _ANY + b"}",
    b'{"default":' + _ANY + b',"transports":{"docker-daemon":{"":' + _ANY + b"}}}",
)
_LONGEST = 1 << 10


def locate(asked: str | None, environment: Mapping[str, str]) -> str | None:
    """The applicable policy file: the requested one, the user's, or the machine's; None without one."""
    if asked:
        return asked
    # Podman and skopeo use $HOME only; a policy in $XDG_CONFIG_HOME would apply here and not to them.
    home = environment.get("HOME")
    own = [os.path.join(home, ".config/containers/policy.json")] if home else []
    return next((path for path in (*own, "/etc/containers/policy.json") if os.path.lexists(path)), None)


def requires_nothing(asked: str | None, environment: Mapping[str, str]) -> bool:
    """Whether there is no policy, or a known one that accepts every image. False is not conclusive."""
    path = locate(asked, environment)
    if path is None:
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        text = os.read(descriptor, _LONGEST + 1)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    if b"".join(text.split()) not in _REQUIRE_NOTHING:
        return False
    return ownership.doubt(path) is None  # `policy.load` refuses it otherwise
