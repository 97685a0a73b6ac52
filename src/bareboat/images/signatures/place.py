"""Where the signature policy is, and whether it requires anything at all. Light: every start asks it."""

from __future__ import annotations

import os
from collections.abc import Mapping

_ANY = b'[{"type":"insecureAcceptAnything"}]'
#: The policies that Debian and the container tools install, without their blanks.
_REQUIRE_NOTHING = (
    b'{"default":' + _ANY + b"}",
    b'{"default":' + _ANY + b',"transports":{"docker-daemon":{"":' + _ANY + b"}}}",
)
_LONGEST = 1 << 10


def locate(asked: str | None, environment: Mapping[str, str]) -> str | None:
    """The policy file that holds here: the one asked for, the user's, the machine's; None for none."""
    if asked:
        return asked
    # Podman and skopeo know $HOME alone; a policy in $XDG_CONFIG_HOME would hold for us and not for them.
    home = environment.get("HOME")
    own = [os.path.join(home, ".config/containers/policy.json")] if home else []
    return next((path for path in (*own, "/etc/containers/policy.json") if os.path.lexists(path)), None)


def requires_nothing(asked: str | None, environment: Mapping[str, str]) -> bool:
    """Whether there is no policy, or one of those that accept every image. False says nothing."""
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
    return b"".join(text.split()) in _REQUIRE_NOTHING
