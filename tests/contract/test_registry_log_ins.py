"""The log-ins of public registries and of Harbor, as these document them and answer: replayed by a server
that has their names. None of them can be reached by the tests."""

import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from registries import FakeRegistry, Packed, answer, auth_file, make_certificates, pack

from bareboat_base.errors import ImageError
from bareboat_images.registry.client import Options, open_registry


@dataclass(frozen=True, kw_only=True)
class Case:
    """`registry`: the name of log-ins; `host`: where it is asked; `realm`: its token service, with the
    service and the scope that its challenge names; `token`: the answer; `user`: as its documentation names
    one; `saved`: the name in a file of log-ins; `denied`: how it refuses a wrong or missing log-in."""

    registry: str
    repository: str
    realm: str
    user: str
    token: dict[str, object]
    denied: tuple[int, dict[str, Any]]
    service: str = ""
    scope: str = ""
    host: str = ""
    saved: str = ""

    @property
    def challenge(self) -> str:
        service = f',service="{self.service}"' if self.service else ""
        return f'Bearer realm="{self.realm}"{service},scope="{self.asked_scope}"'

    @property
    def asked_scope(self) -> str:
        return self.scope or f"repository:{self.repository}:pull"


def denial(code: str, message: str) -> dict[str, Any]:
    return {"errors": [{"code": code, "message": message, "detail": None}]}


ISSUED = "2026-01-01T00:00:00Z"
CASES = {
    "docker": Case(
        registry="docker.io",
        host="registry-1.docker.io",
        saved="https://index.docker.io/v1/",
        repository="ada/train",
        realm="https://auth.docker.io/token",
        service="registry.docker.io",
        user="ada",
        token={"token": "eyJh.b", "access_token": "eyJh.b", "expires_in": 300, "issued_at": ISSUED},
        denied=(401, {"details": "incorrect username or password"}),
    ),
    "ngc": Case(
        registry="nvcr.io",
        repository="nvidia/pytorch",
        realm="https://nvcr.io/proxy_auth",
        scope="repository:nvidia/pytorch:pull,push",
        user="$oauthtoken",
        token={"token": "dG9rZW4="},
        denied=(401, denial("UNAUTHORIZED", "authentication required")),
    ),
    "ngc, its other token service": Case(
        registry="nvcr.io",
        repository="team/private",
        realm="https://authn.nvidia.com/token",
        service="nvcr.io",
        user="$oauthtoken",
        token={"token": "dG9rZW4=", "expires_in": 900},
        denied=(403, denial("DENIED", "Forbidden")),
    ),
    "ghcr": Case(
        registry="ghcr.io",
        repository="ada/train",
        realm="https://ghcr.io/token",
        service="ghcr.io",
        user="ada",
        token={"token": "djE6YWRhL3RyYWluOjE3"},
        denied=(403, denial("DENIED", "requested access to the resource is denied")),
    ),
    "quay": Case(
        registry="quay.io",
        repository="lab/train",
        realm="https://quay.io/v2/auth",
        service="quay.io",
        user="lab+robot",
        token={"token": "eyJr.c"},
        denied=(401, denial("UNAUTHORIZED", "Could not find robot with username: lab+robot")),
    ),
    "gitlab": Case(
        registry="registry.gitlab.com",
        repository="group/sub/project",
        realm="https://gitlab.com/jwt/auth",
        service="container_registry",
        user="gitlab+deploy-token-1",
        token={"token": "eyJ0.d", "expires_in": 900},
        denied=(403, denial("DENIED", "access forbidden")),
    ),
    "gitlab of a site": Case(
        registry="registry.site.edu:5050",
        repository="group/project",
        realm="https://gitlab.site.edu/jwt/auth",
        service="container_registry",
        user="ada",
        token={"token": "eyJ0.d"},
        denied=(403, denial("DENIED", "access forbidden")),
    ),
    "harbor": Case(
        registry="harbor.site.edu",
        repository="library/train",
        realm="https://harbor.site.edu/service/token",
        service="harbor-registry",
        user="robot$library+ci",
        token={"token": "eyJh.e", "access_token": "", "expires_in": 1800, "issued_at": ISSUED},
        denied=(401, denial("UNAUTHORIZED", "unauthorized: unauthorized to access repository")),
    ),
}  # fmt: skip
HOSTS = sorted(
    {(each.host or each.registry).partition(":")[0] for each in CASES.values()}
    | {each.realm.split("/")[2] for each in CASES.values()}
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, *HOSTS)
    return folder


@pytest.fixture
def image() -> Packed:
    return pack(b"layer", compressed=False)


@pytest.fixture
def server(certificates: Path, image: Packed, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """It has all their names."""
    ask = socket.getaddrinfo
    with FakeRegistry(certificates=certificates) as registry:

        def found(host: str, _port: int, **given: Any) -> Any:
            assert host in HOSTS, host
            return ask("127.0.0.1", registry.port, **given)

        monkeypatch.setattr(socket, "getaddrinfo", found)
        registry.add(image)
        yield registry


def challenged(server: FakeRegistry, case: Case) -> None:
    """It asks for a log-in once, and gives a token to whoever asks."""
    text = json.dumps(denial("UNAUTHORIZED", "authentication required")).encode()
    server.when("/v2/.*/manifests/", answer(401, text, WWW_Authenticate=case.challenge), times=1)
    path = "/" + case.realm.split("/", 3)[3]
    server.when(f"GET {path}$", answer(200, json.dumps(case.token).encode()))


def fetch(case: Case, certificates: Path, environment: dict[str, str]) -> bytes:
    options = Options(
        environment={"HOME": "/nowhere", **environment}, ca_file=str(certificates / "ca.pem"), backoff_s=0.001
    )
    with open_registry(case.registry, case.repository, "latest", options=options) as source:
        return source.document().data


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("known", [True, False])
def test_its_log_in(
    server: FakeRegistry, image: Packed, certificates: Path, tmp_path: Path, name: str, known: bool
) -> None:
    case = CASES[name]
    challenged(server, case)
    environment = {}
    if known:
        file = auth_file(tmp_path / "auth.json", case.saved or case.registry, case.user, "s3cret:with:colons")
        environment["REGISTRY_AUTH_FILE"] = str(file)
    assert fetch(case, certificates, environment) == image.manifest
    first, token, second = server.asked
    assert first.headers["host"] == (case.host or case.registry)
    assert "authorization" not in first.headers
    assert token.headers["host"] == case.realm.split("/")[2]
    expected = {"scope": [case.asked_scope]} | ({"service": [case.service]} if case.service else {})
    assert token.query == expected
    packed = base64.b64encode(f"{case.user}:s3cret:with:colons".encode()).decode()
    assert token.headers.get("authorization") == (f"Basic {packed}" if known else None)
    assert second.headers["authorization"] == f"Bearer {case.token['token']}"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("known", [True, False])
def test_its_refusal(
    server: FakeRegistry, certificates: Path, tmp_path: Path, name: str, known: bool
) -> None:
    case = CASES[name]
    status, said = case.denied
    path = "/" + case.realm.split("/", 3)[3]
    server.when("/v2/.*/manifests/", answer(401, WWW_Authenticate=case.challenge))
    server.when(f"GET {path}$", answer(status, json.dumps(said).encode()))
    environment = {}
    if known:
        file = auth_file(tmp_path / "auth.json", case.saved or case.registry, case.user, "s3cret")
        environment["REGISTRY_AUTH_FILE"] = str(file)
    with pytest.raises(ImageError, match="it is private, or it does not exist") as caught:
        fetch(case, certificates, environment)
    error = caught.value
    assert case.registry in error.remedy or "NGC_API_KEY" in error.remedy
    message = said.get("details") or said["errors"][0]["message"]
    assert message in error.context
    assert (f"user {case.user!r}" in error.context) == known
    assert "s3cret" not in f"{error.message} {error.context} {error.remedy}"


def test_a_key_of_ngc(server: FakeRegistry, image: Packed, certificates: Path) -> None:
    case = CASES["ngc"]
    challenged(server, case)
    assert fetch(case, certificates, {"NGC_API_KEY": "nvapi-1"}) == image.manifest
    packed = base64.b64encode(b"$oauthtoken:nvapi-1").decode()
    assert server.asked[1].headers["authorization"] == f"Basic {packed}"


def test_amazon_takes_the_password_itself(
    server: FakeRegistry, image: Packed, certificates: Path, tmp_path: Path
) -> None:
    """No token service: `aws ecr get-login-password | podman login --username AWS`."""
    case = CASES["harbor"]
    server.when(
        "/v2/.*/manifests/",
        answer(401, WWW_Authenticate='Basic realm="https://harbor.site.edu/",service="ecr.amazonaws.com"'),
        times=1,
    )
    file = auth_file(tmp_path / "auth.json", case.registry, "AWS", "eyJwYXls")
    assert fetch(case, certificates, {"REGISTRY_AUTH_FILE": str(file)}) == image.manifest
    packed = base64.b64encode(b"AWS:eyJwYXls").decode()
    assert server.asked[1].headers["authorization"] == f"Basic {packed}"
