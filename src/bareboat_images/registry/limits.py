"""Reports how many pulls a registry still allows, from its responses, before it refuses more.

Source: https://docs.docker.com/docker-hub/usage/pulls/ (ratelimit-remaining: 20;w=21600), and the draft that
it follows, https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
"""

from __future__ import annotations

from email.message import Message

from bareboat_base.expressions import expression
from bareboat_images.registry.location import log_in_name

_NUMBER = expression(r"\s*(\d{1,12})\s*(?:[,;]|$)")
_WINDOW = expression(r";\s*w\s*=\s*(\d{1,9})\b")
#: Reported if at most this many, or this share of all, remain.
_FEW = 5
_SHARE = 0.1
#: Shorter windows pass during the delay of a 429.
_SHORT_S = 300


def notice(headers: Message, authority: str) -> str:
    """A notice for the user, or "" while many pulls remain."""
    limit, remaining = headers.get("RateLimit-Limit") or "", headers.get("RateLimit-Remaining") or ""
    left, most = _NUMBER.match(remaining), _NUMBER.match(limit)
    if left is None:
        return ""
    total = 0 if most is None else int(most[1])
    if int(left[1]) > max(_FEW, total * _SHARE):
        return ""
    window = _WINDOW.search(remaining) or _WINDOW.search(limit)
    if window is not None and int(window[1]) < _SHORT_S:
        return ""
    name = log_in_name(authority)
    of = f" (of {total})" if total else ""
    within = f" within {_time(int(window[1]))}" if window is not None else ""
    return (
        f"{name} allows {int(left[1])} more pulls{of}{within}; log in, which usually raises the limit "
        f"(podman login {name}), or use a mirror (--mirrors {name}=HOST)"
    )


def _time(seconds: int) -> str:
    return f"{seconds / 3600:.3g} h" if seconds >= 3600 else f"{seconds / 60:.3g} min"
