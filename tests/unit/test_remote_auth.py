"""Challenges, and the answers to them that need no wire to be told apart."""

import base64
import json
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from registries import FakeRegistry, answer, pack

from bareboat_images.registry.auth import challenges
from bareboat_images.registry.client import Options, open_registry
from bareboat_images.registry.exchange import retry_after_s


@pytest.mark.parametrize(
    ("headers", "read"),
    [
        ([], []),
        (['Basic realm="x"'], [("basic", {"realm": "x"})]),
        (["Basic"], [("basic", {})]),
        (
            ['Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push"'],
            [("bearer", {
                "realm": "https://auth.docker.io/token",
                "service": "registry.docker.io",
                "scope": "repository:a/b:pull,push",
            })],
        ),
        (["bearer REALM=x , Service = y"], [("bearer", {"realm": "x", "service": "y"})]),
        ([r'Bearer realm="a\"b\\c"'], [("bearer", {"realm": r'a"b\c'})]),
        (['Basic realm="a, Bearer b", Bearer realm=c'],
         [("basic", {"realm": "a, Bearer b"}), ("bearer", {"realm": "c"})]),
        (['Negotiate, Basic realm="x"'], [("negotiate", {}), ("basic", {"realm": "x"})]),
        (['Basic realm="x"', 'Bearer realm="y"'], [("basic", {"realm": "x"}), ("bearer", {"realm": "y"})]),
        (['Bearer realm="never closed'], [("bearer", {})]),
    ],
)  # fmt: skip
def test_challenges(headers: list[str], read: list[tuple[str, dict[str, str]]]) -> None:
    found = [(challenge.scheme, challenge.parameters) for challenge in challenges(headers)]
    if "never closed" in "".join(headers):
        assert found[0][0] == "bearer"
    else:
        assert found == read


class _Answer:
    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry_After": "30"}, 30.0),
        ({"Retry_After": " 5 "}, 5.0),
        ({"Retry_After": "-1"}, None),
        ({"Retry_After": "1.5"}, None),
        ({"Retry_After": "Fri, 20 Nov 2026 10:00:00 GMT"}, None),
        ({"Retry_After": "Fri, 20 Nov 2026 10:01:00 GMT", "Date": "Fri, 20 Nov 2026 10:00:00 GMT"}, 60.0),
        ({"Retry_After": "Fri, 20 Nov 2026 09:00:00 GMT", "Date": "Fri, 20 Nov 2026 10:00:00 GMT"}, 0.0),
    ],
)
def test_how_long_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(_Answer(**headers)) == seconds  # type: ignore[arg-type]


def _document(fake: FakeRegistry, environment: dict[str, str]) -> bytes:
    options = Options(environment=environment, plain_http=True, backoff_s=0.001)
    with open_registry(fake.address, "lab/image", "latest", options=options) as source:
        return source.document().data


def test_an_identity_token_is_exchanged(tmp_path: Path) -> None:
    image = pack(b"layer", compressed=False)
    file = tmp_path / "auth.json"
    with FakeRegistry() as fake:
        fake.add(image)
        fake.log_in = "bearer"
        fake.tokens.add("exchanged")

        def exchange(handler: object) -> bool:
            length = int(handler.headers["Content-Length"])  # type: ignore[attr-defined]
            handler.asked.body = handler.rfile.read(length)  # type: ignore[attr-defined]
            return answer(200, b'{"access_token": "exchanged"}')(handler)  # type: ignore[arg-type]

        fake.when("POST /token", exchange)
        packed = base64.b64encode(b"00000000-0000-0000-0000-000000000000:").decode()
        entry = {"auth": packed, "identitytoken": "r3fresh"}
        file.write_text(json.dumps({"auths": {fake.address: entry}}))
        assert _document(fake, {"REGISTRY_AUTH_FILE": str(file)}) == image.manifest
        (asked,) = fake.counted("/token")
        assert parse_qs(asked.body.decode()) == {
            "grant_type": ["refresh_token"],
            "service": ['fake, "quoted"'],
            "client_id": ["bareboat"],
            "scope": ["repository:lab/image:pull"],
            "refresh_token": ["r3fresh"],
        }
