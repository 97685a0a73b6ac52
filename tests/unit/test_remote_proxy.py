"""Which proxy leads where."""

import pytest

from bareboat_base.errors import UsageError
from bareboat_images.registry.connection import choose_proxy
from bareboat_images.registry.location import parse_url

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("exceptions", "url", "used"),
    [
        ("", "https://quay.io/", True),
        ("", "http://quay.io/", False),  # HTTPS_PROXY is for https
        ("quay.io", "https://quay.io/", False),
        ("quay.io", "https://cdn.quay.io/", False),
        (".quay.io", "https://cdn.quay.io/", False),
        ("*.quay.io", "https://cdn.quay.io/", False),
        ("quay.io", "https://notquay.io/", True),
        ("QUAY.IO", "https://quay.io/", False),
        ("a.example, quay.io", "https://quay.io/", False),
        ("a.example quay.io", "https://quay.io/", False),
        ("quay.io:5000", "https://quay.io/", True),
        ("quay.io:5000", "https://quay.io:5000/", False),
        ("*", "https://quay.io/", False),
        ("10.0.0.0/8", "https://10.1.2.3:5000/", False),
        ("10.0.0.0/8", "https://11.1.2.3:5000/", True),
        ("10.1.2.3", "https://10.1.2.3/", False),
        ("2.3", "https://10.1.2.3/", True),
        ("[fd00::1]:5000", "https://[fd00::1]:5000/", False),
        ("fd00::/8", "https://[fd00::1]/", False),
        ("fd00::1", "https://[fd00::1]/", False),
        ("", "https://localhost:5000/", False),
        ("", "https://127.0.0.1/", False),
        ("", "https://[::1]/", False),
        (",,.,", "https://quay.io/", True),
    ],
)
def test_what_goes_through_the_proxy(exceptions: str, url: str, used: bool) -> None:
    for upper in (True, False):
        names = ("HTTPS_PROXY", "NO_PROXY") if upper else ("https_proxy", "no_proxy")
        environment = dict(zip(names, (PROXY, exceptions), strict=True))
        assert (choose_proxy(parse_url(url), environment) is not None) is used


def test_without_variables_there_is_none() -> None:
    assert choose_proxy(parse_url("https://quay.io/"), {}) is None
    assert choose_proxy(parse_url("https://quay.io/"), {"HTTPS_PROXY": ""}) is None


@pytest.mark.parametrize(
    ("text", "host", "port", "log_in"),
    [
        ("http://proxy.example:3128", "proxy.example", 3128, None),
        ("proxy.example:3128", "proxy.example", 3128, None),
        ("proxy.example", "proxy.example", 80, None),
        ("http://me:p%40ss@proxy.example/", "proxy.example", 80, "Basic bWU6cEBzcw=="),
        ("http://me@[fd00::1]:8080", "fd00::1", 8080, "Basic bWU6"),
    ],
)
def test_how_a_proxy_is_written(text: str, host: str, port: int, log_in: str | None) -> None:
    found = choose_proxy(parse_url("https://quay.io/"), {"ALL_PROXY": text})
    assert found is not None
    assert (found.host, found.port, found.authorization) == (host, port, log_in)
    if log_in:
        assert log_in.split()[1] not in f"{found} {found!r}"


@pytest.mark.parametrize(
    "text", ["socks5://p:1080", "https://p", "http://", "http://p:99999", "http://[x", "ftp://p"]
)
def test_a_proxy_of_no_use(text: str) -> None:
    with pytest.raises(UsageError, match="HTTPS_PROXY") as caught:
        choose_proxy(parse_url("https://quay.io/"), {"HTTPS_PROXY": text.replace("://", "://me:s3cr3t@")})
    assert "s3cr3t" not in caught.value.message + caught.value.context + caught.value.remedy
