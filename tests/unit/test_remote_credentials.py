"""Where log-ins are looked for, and which one is taken."""

import base64
import json
import os
from pathlib import Path

import pytest

from bareboat_base.errors import ImageError
from bareboat_images.registry import credentials


def packed(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def found(
    content: object, tmp_path: Path, registry: str, repository: str = "a/b", **environment: str
) -> str | None:
    """The user that is found in a file of this content."""
    file = write(tmp_path / "auth.json", content)
    search = credentials.find(
        registry,
        repository,
        {"REGISTRY_AUTH_FILE": str(file), "XDG_RUNTIME_DIR": str(tmp_path), **environment},
    )
    return search.credential.user if search.credential else None


def test_files_are_looked_in_one_after_the_other(tmp_path: Path) -> None:
    environment = {
        "REGISTRY_AUTH_FILE": str(tmp_path / "named.json"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "HOME": str(tmp_path / "home"),
    }
    places = [
        "named.json",
        "run/containers/auth.json",
        "home/.config/containers/auth.json",
        "home/.docker/config.json",
    ]
    assert credentials.files(environment) == tuple(str(tmp_path / place) for place in places)
    for place in reversed(places):
        write(tmp_path / place, {"auths": {"quay.io": packed(place, "x")}})
        search = credentials.find("quay.io", "a/b", environment)
        assert search.credential is not None
        assert (search.credential.user, search.credential.origin) == (place, str(tmp_path / place))
    write(tmp_path / "named.json", {"auths": {"other.io": packed("x", "x"), "quay.io": {}}})
    search = credentials.find("quay.io", "a/b", environment)
    assert search.credential is not None
    assert search.credential.user == "run/containers/auth.json"


def test_folders_that_variables_name(tmp_path: Path) -> None:
    environment = {
        "HOME": "/h",
        "XDG_CONFIG_HOME": "/c",
        "DOCKER_CONFIG": str(tmp_path),
        "XDG_RUNTIME_DIR": "/r",
    }
    assert credentials.files(environment) == (
        "/r/containers/auth.json",
        "/c/containers/auth.json",
        f"{tmp_path}/config.json",
    )
    assert credentials.files({}) == (f"/run/containers/{os.getuid()}/auth.json",)


@pytest.mark.parametrize(
    ("registry", "repository", "user"),
    [
        ("quay.io", "org/team/image", "image"),
        ("quay.io", "org/team/other", "team"),
        ("quay.io", "org/other", "registry"),
        ("quay.io", "organisation/x", "registry"),
        ("quay.io:443", "org/team/image", None),
        ("ghcr.io", "org/team/image", None),
    ],
)
def test_the_most_particular_entry_is_taken(
    tmp_path: Path, registry: str, repository: str, user: str | None
) -> None:
    content = {
        "auths": {
            "quay.io": packed("registry", "x"),
            "quay.io/org/team": packed("team", "x"),
            "quay.io/org/team/image": packed("image", "x"),
        }
    }
    assert found(content, tmp_path, registry, repository) == user


@pytest.mark.parametrize(
    ("key", "registry"),
    [
        ("https://index.docker.io/v1/", "docker.io"),
        ("index.docker.io", "docker.io"),
        ("docker.io", "docker.io"),
        ("registry-1.docker.io", "docker.io"),
        ("https://quay.io", "quay.io"),
        ("https://quay.io/v1/", "quay.io"),
        ("https://quay.io/v2/", "quay.io"),
        ("http://localhost:5000", "localhost:5000"),
    ],
)
def test_names_of_other_times(tmp_path: Path, key: str, registry: str) -> None:
    assert found({"auths": {key: packed("me", "x")}}, tmp_path, registry) == "me"


def test_what_an_entry_may_hold(tmp_path: Path) -> None:
    file = str(tmp_path / "auth.json")
    for entry, expected in (
        (packed("me", "a:b:c"), ("me", "a:b:c", "")),
        (packed("$oauthtoken", "nvapi-x"), ("$oauthtoken", "nvapi-x", "")),
        ({"username": "me", "password": "pw"}, ("me", "pw", "")),
        ({"identitytoken": "t"}, ("", "", "t")),
        ({**packed("me", "pw"), "email": "me@example.org"}, ("me", "pw", "")),
        ({"auth": base64.b64encode(b"me:pw\0\0").decode()}, ("me", "pw", "")),
    ):
        write(tmp_path / "auth.json", {"auths": {"quay.io": entry}})
        known = credentials.find("quay.io", "a", {"REGISTRY_AUTH_FILE": file}).credential
        assert known is not None
        assert (known.user, known.password, known.identity_token) == expected
        assert "pw" not in repr(known)
        assert "nvapi" not in repr(known)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '"x"', '{"auths": []}',
     '{"auths": {"quay.io": {"auth": "s3cr3t!"}}}', '{"credHelpers": "x"}',
     '{"auths": {"quay.io": {"auth": "czNjcjN0"}}}', '{"auths": {"quay.io": {"auth": 5}}}', "[" * 100_000],
)  # fmt: skip
def test_a_file_that_cannot_be_read(tmp_path: Path, content: str) -> None:
    with pytest.raises(ImageError, match=str(tmp_path / "auth.json")) as caught:
        found(content, tmp_path, "quay.io")
    assert caught.value.remedy
    assert "s3cr3t" not in caught.value.message + caught.value.context + caught.value.remedy


def test_entries_that_are_empty_are_passed_over(tmp_path: Path) -> None:
    for content in ("{}", '{"auths": null}', '{"auths": {"quay.io": {}}}', '{"auths": {"quay.io": null}}'):
        assert found(content, tmp_path, "quay.io") is None


# -- helpers -------------------------------------------------------------------------------------------


def helper(folder: Path, name: str, script: str) -> str:
    """Make docker-credential-NAME; the PATH that has it."""
    folder.mkdir(exist_ok=True)
    program = folder / f"docker-credential-{name}"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


_ANSWER = """read server; echo '{"ServerURL":"'$server'","Username":"'$server-$1'","Secret":"s3cr3t"}'"""


def test_a_helper_for_a_registry_goes_before_an_entry(tmp_path: Path) -> None:
    path = helper(tmp_path / "bin", "lab", _ANSWER)
    content = {"credHelpers": {"quay.io": "lab"}, "auths": {"quay.io": packed("entry", "x")}}
    assert found(content, tmp_path, "quay.io", PATH=path) == "quay.io-get"
    assert found(content, tmp_path, "ghcr.io", PATH=path) is None


def test_a_store_for_all_registries(tmp_path: Path) -> None:
    path = helper(tmp_path / "bin", "lab", _ANSWER)
    content = {"credsStore": "lab", "auths": {"quay.io": {}}}
    assert found(content, tmp_path, "quay.io", PATH=path) == "quay.io-get"
    assert found(content, tmp_path, "docker.io", PATH=path) == "https://index.docker.io/v1/-get"


def test_a_helper_may_give_an_identity_token(tmp_path: Path) -> None:
    path = helper(tmp_path / "bin", "lab", """echo '{"Username":"<token>","Secret":"t0ken"}'""")
    file = write(tmp_path / "auth.json", {"credHelpers": {"quay.io": "lab"}})
    known = credentials.find("quay.io", "a", {"REGISTRY_AUTH_FILE": str(file), "PATH": path}).credential
    assert known is not None
    assert (known.identity_token, known.password, known.origin) == ("t0ken", "", "docker-credential-lab")


def test_a_helper_without_a_log_in(tmp_path: Path) -> None:
    path = helper(tmp_path / "bin", "lab", "echo credentials not found in native keychain; exit 1")
    content = {"credHelpers": {"quay.io": "lab"}, "auths": {"quay.io": packed("entry", "x")}}
    assert found(content, tmp_path, "quay.io", PATH=path) == "entry"


@pytest.mark.parametrize(
    "script",
    ["exit 3", "echo no keychain here; exit 1", "echo nonsense", "echo '{}'", "echo '[]'",
     """echo '{"Username": 1, "Secret": "s3cr3t"}'""", """echo '{"Secret": "s3cr3t"}'; exit 1"""],
)  # fmt: skip
def test_a_helper_that_fails(tmp_path: Path, script: str) -> None:
    """One for this registry is an error; one for all is told, and what is public can still be had."""
    path = helper(tmp_path / "bin", "lab", script)
    with pytest.raises(ImageError, match="docker-credential-lab") as caught:
        found({"credHelpers": {"quay.io": "lab"}}, tmp_path, "quay.io", PATH=path)
    assert "s3cr3t" not in caught.value.message + caught.value.context + caught.value.remedy
    assert "docker-credential-lab get" in caught.value.remedy
    file = write(tmp_path / "auth.json", {"credsStore": "lab"})
    search = credentials.find("quay.io", "a", {"REGISTRY_AUTH_FILE": str(file), "PATH": path})
    assert search.credential is None
    assert "docker-credential-lab" in search.failures[0]
    assert "s3cr3t" not in search.failures[0]


@pytest.mark.parametrize("name", ["missing", "../../bin/sh", "/bin/sh"])
def test_a_helper_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImageError, match="is not on PATH"):
        found({"credHelpers": {"quay.io": name}}, tmp_path, "quay.io", PATH="/usr/bin:/bin")
