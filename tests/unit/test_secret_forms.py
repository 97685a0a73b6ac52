"""The forms of tokens, private keys and URLs with passwords, with what surrounds them in real files."""

import random
import string

import pytest

from bareboat_base import secret_forms

_LETTERS = random.Random(1)


def _some(count: int, of: str = string.ascii_letters + string.digits) -> str:
    return "".join(_LETTERS.choices(of, k=count))


@pytest.mark.parametrize(
    ("token", "what"),
    [
        ("AKIA" + _some(16, string.ascii_uppercase), "an AWS access key"),
        ("ASIA" + _some(16, string.digits), "an AWS access key"),
        ("ghp_" + _some(36), "a GitHub token"),
        ("github_pat_" + _some(22) + "_" + _some(59), "a GitHub token"),
        ("glpat-" + _some(20), "a GitLab token"),
        ("hf_" + _some(34), "a Hugging Face token"),
        ("xoxb-" + _some(12, string.digits) + "-" + _some(24), "a Slack token"),
        ("npm_" + _some(36), "an npm token"),
        ("pypi-" + _some(60), "a PyPI token"),
        ("dckr_pat_" + _some(27), "a Docker Hub token"),
        ("sk-" + _some(48), "an API key"),
        ("sk-proj-" + _some(48), "an API key"),
        ("sk-ant-api03-" + _some(10) + "-" + _some(80), "an API key"),
        ("sk-" + _some(8) + "-" + _some(8) + "-" + _some(18), "an API key"),
        ("AIza" + _some(35), "a Google API key"),
        ("nvapi-" + _some(64), "an NVIDIA API key"),
        ("eyJ" + _some(20) + ".eyJ" + _some(60) + "." + _some(43), "a JSON web token"),
    ],
)
@pytest.mark.parametrize("around", ["{}", 'key = "{}"\n', "https://host/?a={}&b", "TOKEN={};", "-{}"])
def test_a_token_is_found(token: str, what: str, around: str) -> None:
    assert list(secret_forms.tokens(around.format(token))) == [what]


@pytest.mark.parametrize(
    "text",
    ["risk-" + "a" * 3, "disk-0123", "task-scheduler-of-nodes-in-a-queue", "sk-learn", "ghp_short", "hf_hub"],
)
def test_other_words_are_not(text: str) -> None:
    assert list(secret_forms.tokens(text)) == []


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "RSA ",
        "EC ",
        "DSA ",
        "OPENSSH ",
        "ENCRYPTED ",
        "PGP ",
        "SSH2 ENCRYPTED ",
        "ANY  SPACING ",
        " LEADING ",
    ],
)
def test_a_private_key_is_found(kind: str) -> None:
    assert secret_forms.PRIVATE_KEY.search(f"x\n-----BEGIN {kind}PRIVATE KEY-----\n")
    assert secret_forms.PRIVATE_KEY.search(f"-----BEGIN {kind}PRIVATE KEY BLOCK-----")


def test_a_putty_key_is_found_and_a_public_key_is_not() -> None:
    assert secret_forms.PRIVATE_KEY.search("\nPuTTY-User-Key-File-3: ssh-ed25519\n")
    assert not secret_forms.PRIVATE_KEY.search("-----BEGIN PUBLIC KEY-----\n-----BEGIN CERTIFICATE-----")


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pass@host/path",
        "https://:pass@host",
        "git+https://user:pass@host/x.git",
        "redis://:pass@host:6379/0",
        "mongodb+srv://user:pass@host",
        "a-scheme-of-more-than-twenty-letters+http://user:pass@host",
        "x" * 500 + "://user:pass@host",
        "url=HTTPS://User:pass@host",
    ],
)
def test_a_password_in_a_url_is_found(url: str) -> None:
    found = secret_forms.PASSWORD_IN_URL.search(url)
    assert found is not None
    assert found["password"] == "pass"


@pytest.mark.parametrize("url", ["https://host:8080/path", "https://host/a:b@c", "git@host:group/x", "://:@"])
def test_a_url_without_a_password_is_not(url: str) -> None:
    assert secret_forms.PASSWORD_IN_URL.search(url) is None
