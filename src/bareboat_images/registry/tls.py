"""Trusted certificate authorities for a registry.

Private authorities are also read from the directories of podman and Docker, so that registries that work with
them work here.
Source: https://github.com/containers/image/blob/main/docs/containers-certs.d.5.md
"""

from __future__ import annotations

import glob
import os
import ssl
from collections.abc import Iterator

from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_images.registry.location import Url
from bareboat_images.registry.options import Options

_LARGEST_FILE = 16 * 2**20


def context(url: Url, options: Options) -> ssl.SSLContext:
    """The TLS context for one host. Raises UsageError for unreadable certificates."""
    # SSL_CERT_FILE replaces the system's authorities, as for every program that uses OpenSSL.
    chosen = options.environment.get("SSL_CERT_FILE")
    try:
        if chosen:
            _check_regular(chosen)
        made = ssl.create_default_context(cafile=chosen or None)
    except OSError as error:
        raise _unreadable("SSL_CERT_FILE", str(chosen), error) from None
    # Python 3.13 refuses authorities without extensions of RFC 5280, which many sites' own lack; podman,
    # Docker and curl accept them: https://docs.python.org/3/library/ssl.html#ssl.create_default_context
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.set_alpn_protocols(["http/1.1"])
    if options.ca_file is not None:
        try:
            _check_regular(options.ca_file)
            made.load_verify_locations(options.ca_file)
        except OSError as error:
            raise _unreadable("--ca-file", options.ca_file, error) from None
    for file in _kept_for(url, options):
        try:
            _check_regular(file)
            made.load_verify_locations(file)
        except OSError as error:
            raise _unreadable("the directory of certificates", file, error) from None
    return made


def _kept_for(url: Url, options: Options) -> Iterator[str]:
    """The authorities that the user or the administrator has installed for this registry."""
    home = options.environment.get("HOME")
    folders = ["/etc/docker/certs.d", "/etc/containers/certs.d"]
    if home:
        folders.append(os.path.join(home, ".config/containers/certs.d"))
    for folder in folders:
        if os.path.isdir(folder):  # usually missing
            for name in {url.authority, f"{url.host}:{url.port}"}:
                yield from sorted(glob.glob(os.path.join(glob.escape(os.path.join(folder, name)), "*.crt")))


def _check_regular(file: str) -> None:
    """Raise OSError for a FIFO or device: OpenSSL would block on it, or read without end."""
    untrusted.read_bytes(file, limit=_LARGEST_FILE, follow=True)


def _unreadable(setting: str, file: str, error: OSError) -> UsageError:
    return UsageError(
        f"{setting} names {file}, which holds no certificates that can be read",
        context=error.strerror or str(error),
        remedy="give a readable file of certificates in PEM",
    )
