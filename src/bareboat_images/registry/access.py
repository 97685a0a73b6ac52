"""How registries are reached: the settings of a site, and the options for one registry."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from bareboat_images.registry.options import Options


class Access(Struct, frozen=True, kw_only=True):
    """How this site's registries are reached. `plain_http`: those without TLS; `is_plain`: all but Docker
    Hub have none; `mirrors`: registry -> mirrors tried before it; `policy`: a signature policy instead of the
    user's or the machine's; `say` reports delays."""

    plain_http: frozenset[str] = frozenset()
    is_plain: bool = False
    ca_file: str | None = None
    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: str | None = None
    say: Callable[[str], None] = lambda _text: None

    @classmethod
    def read(
        cls,
        *,
        plain_http: str,
        mirrors: str,
        ca_file: str,
        policy: str | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> Access:
        """Parse the settings as users write them: names, and REGISTRY=HOST, separated by commas.

        Raises UsageError.
        """
        places: dict[str, tuple[str, ...]] = {}
        for entry in _listed(mirrors):
            name, equals, place = entry.partition("=")
            if not equals or not name or not place:
                raise UsageError(
                    f"mirrors has {quoted(entry)}, which is not REGISTRY=HOST[:PORT]",
                    remedy="write each mirror as docker.io=mirror.example.org:5000",
                    key="mirrors",
                )
            places[name] = (*places.get(name, ()), place)
        if ca_file:
            try:
                os.close(untrusted.open_regular(ca_file, follow=True))
            except OSError as error:
                raise untrusted.unreadable(ca_file, error, key="ca_file") from None
        return cls(
            plain_http=frozenset(_listed(plain_http)),
            ca_file=ca_file or None,
            mirrors=places,
            policy=policy or None,
            say=say,
        )


def _listed(text: str) -> list[str]:
    return [part for part in (part.strip() for part in text.split(",")) if part]


def remote_options(registry: str, access: Access) -> Options:
    """The options for one registry, with this process's proxies and credentials."""
    from bareboat_images.registry.location import DOCKER_HUB
    from bareboat_images.registry.options import Options

    return Options(
        environment=os.environ,
        plain_http=registry in access.plain_http or (access.is_plain and registry != DOCKER_HUB),
        ca_file=access.ca_file,
        mirrors=access.mirrors.get(registry, ()),
        say=access.say,
    )
