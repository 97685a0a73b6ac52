"""URLs, registries and mirrors."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat.cli.main import main
from bareboat.session import builds
from bareboat_base.errors import UsageError
from bareboat_images.registry.access import Access, remote_options
from bareboat_images.registry.location import mirror_url, parse_url, registry_url


@pytest.mark.parametrize(
    ("registry", "plain_http", "url"),
    [
        ("quay.io", False, "https://quay.io/"),
        ("quay.io:443", False, "https://quay.io/"),
        ("quay.io:8443", False, "https://quay.io:8443/"),
        ("localhost:5000", True, "http://localhost:5000/"),
        ("localhost:5000", False, "https://localhost:5000/"),
        ("[::1]:5000", True, "http://[::1]:5000/"),
        ("docker.io", False, "https://registry-1.docker.io/"),
        ("NVCR.io", False, "https://nvcr.io/"),
    ],
)
def test_where_a_registry_is_asked(registry: str, plain_http: bool, url: str) -> None:
    assert str(registry_url(registry, plain_http=plain_http)) == url


@pytest.mark.parametrize(
    "registry",
    [
        "",
        "a/b",
        "https://quay.io",
        "user:pw@quay.io",
        "quay.io:0",
        "quay.io:99999",
        "quay io",
        "-a",
        "a\n",
        "x:y",
    ],
)
def test_what_is_no_registry(registry: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a registry"):
        registry_url(registry, plain_http=False)


@pytest.mark.parametrize(
    ("mirror", "url"),
    [
        ("mirror.example", "https://mirror.example/"),
        ("mirror.example:5000/hub", "https://mirror.example:5000/hub"),
        ("http://mirror.example/a/b/", "http://mirror.example/a/b/"),
    ],
)
def test_where_a_mirror_is_asked(mirror: str, url: str) -> None:
    assert str(mirror_url(mirror)) == url


def test_a_mirrors_password_is_not_repeated() -> None:
    with pytest.raises(UsageError, match="is not a mirror") as caught:
        mirror_url("https://me:s3cr3t@mirror.example")
    assert "s3cr3t" not in caught.value.message + caught.value.remedy


def test_a_url_shows_no_query() -> None:
    url = parse_url("https://storage.example/blob?signature=s3cr3t")
    assert url.target == "/blob?signature=s3cr3t"
    assert "s3cr3t" not in repr(url) + url.origin + url.path


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/x?y=1", "https://quay.io/x?y=1"),
        ("x", "https://quay.io/v2/x"),
        ("//cdn.example/x", "https://cdn.example/x"),
        ("http://cdn.example:80/x#part", "http://cdn.example/x"),
        ("?state=2", "https://quay.io/v2/up?state=2"),
    ],
)
def test_where_a_location_leads(location: str, url: str) -> None:
    assert str(parse_url("https://quay.io/v2/up?state=1").joined(location)) == url


@given(st.text())
def test_any_location_is_a_url_or_refused(text: str) -> None:
    base = parse_url("https://quay.io/v2/")
    try:
        found = base.joined(text)
    except ValueError:
        return
    assert str(found).isascii()
    assert str(found).isprintable()
    assert "@" not in found.host
    assert parse_url(str(found)) == found


def test_plain_http_of_a_build_holds_for_the_registries_of_its_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but Docker Hub, which has TLS."""
    reached: list[Access] = []

    def machine(_session: object, reach: Access, **_more: object) -> None:
        reached.append(reach)
        raise UsageError("stop", remedy="here")

    monkeypatch.setattr(builds, "machine", machine)
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    (tmp_path / "Dockerfile").write_text("FROM registry.example:5000/base:1\n")
    for flags, plain in (([], False), (["--plain-http"], True)):
        assert main(["image", "build", *flags, "-t", "x", str(tmp_path)]) == 2
        (reach,) = reached
        assert remote_options("registry.example:5000", reach).plain_http is plain
        assert not remote_options("docker.io", reach).plain_http
        reached.clear()
