"""An index, mirrors and certificates of a site: in RUN, and neither in the image nor in a cache key."""

import json
import os

import pytest
from building import Builds
from hypothesis import given
from hypothesis import strategies as st

from bareboat_images.builder.packages import Packages

MIRROR = "http://mirror.site"
DEB = """Types: deb
URIs: http://deb.debian.org/debian
Suites: trixie
Components: main

Types: deb
URIs: http://deb.debian.org/debian-security
Suites: trixie-security
Components: main
"""
UBUNTU = """deb http://archive.ubuntu.com/ubuntu noble main
deb http://security.ubuntu.com/ubuntu noble-security main
deb [arch=arm64] http://ports.ubuntu.com/ubuntu-ports noble main
deb https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/ /
"""
BUNDLE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
FILES: dict[str, bytes | str | None] = {"debian.sources": DEB, "sources.list": UBUNTU}
#: A base with lists of apt.
LISTS = """FROM base
COPY --chmod=444 debian.sources /etc/apt/sources.list.d/
COPY sources.list /etc/apt/
"""


def last_layer(builds: Builds, command: str, *flags: str) -> dict[str, str]:
    """What RUN of this command leaves of /etc/apt in its layer: path -> content."""
    image = builds.image(f"{LISTS}RUN {command} && touch /ran\n", FILES, "--no-cache", *flags)
    top = builds.store.layer(image.layers[-1].diff_id)
    apt = sorted((top / "etc/apt").rglob("*"))
    return {
        str(path.relative_to(top)): path.read_text() if path.is_file() and os.access(path, os.R_OK) else ""
        for path in apt
    }


def test_apt_sees_the_mirror_and_the_image_does_not(either: Builds) -> None:
    command = (
        "grep -q mirror.site/debian-security /etc/apt/sources.list.d/debian.sources "
        "&& grep -c mirror.site/ubuntu /etc/apt/sources.list > /count && test $(cat /count) = 3"
    )
    assert last_layer(either, command, "--apt-mirror", MIRROR) == {}
    either.build(f"{LISTS}RUN {command}\n", FILES, "--no-cache", code=1)


def test_a_list_with_a_mirror_stays_what_it_is(either: Builds) -> None:
    for command in ("echo x >> /etc/apt/sources.list || true", "rm -rf /etc/apt/sources.list.d || true"):
        assert "mirror.site" not in str(last_layer(either, command, "--apt-mirror", MIRROR))
    command = "echo deb x > /etc/apt/sources.list.d/x.list"
    assert last_layer(either, command, "--apt-mirror", MIRROR)["etc/apt/sources.list.d/x.list"] == "deb x\n"


def test_a_list_with_a_mirror_cannot_be_removed(builds: Builds) -> None:
    said = builds.build(f"{LISTS}RUN rm /etc/apt/sources.list\n", FILES, "--apt-mirror", MIRROR, code=1)
    assert "without --apt-mirror" in said.err


def test_an_archive_has_a_mirror_of_its_own(builds: Builds) -> None:
    flags = (
        "--apt-mirror",
        "http://deb.debian.org/debian=https://nexus.site/deb?a=b",
        "--apt-mirror",
        MIRROR,
    )
    command = (
        "grep -qx 'URIs: https://nexus.site/deb?a=b' /etc/apt/sources.list.d/debian.sources "
        "&& grep -qx 'URIs: http://mirror.site/debian-security' /etc/apt/sources.list.d/debian.sources"
    )
    assert last_layer(builds, command, *flags) == {}


def test_index_and_certificates_are_those_of_the_site(builds: Builds) -> None:
    (builds.folder / "ca.pem").write_text(BUNDLE)
    command = (
        "test $PIP_INDEX_URL$UV_DEFAULT_INDEX = https://i.site/simplehttps://i.site/simple "
        "&& cat $SSL_CERT_FILE | grep -q MIIB && grep -q CAInfo $APT_CONFIG"
    )
    flags = ("--pip-index", "https://i.site/simple", "--ca-bundle", "ca.pem")
    image = builds.image(f"FROM base\nRUN {command}\n", {}, *flags)
    assert "simple" not in json.dumps(builds.config(image)).replace(command, "")
    again = json.loads(builds.build(f"FROM base\nRUN {command}\n", {}, "--json").out)
    assert (again["digest"], again["cached"]) == (image.digest, again["steps"]), "no part of the key"
    builds.build("FROM base\nENV PIP_INDEX_URL=x\nRUN test $PIP_INDEX_URL = x\n", {}, *flags)


def test_the_command_of_the_image_has_no_password(builds: Builds) -> None:
    context = builds.context("FROM base\n")
    flags = ("--pip-index", "https://u:s3cret@i.site/simple", "--apt-mirror", "https://u:s3cret@m.site")
    made = json.loads(builds.bareboat("image", "build", "--json", *flags, context).out)
    shown = builds.bareboat("image", "show", "--json", made["digest"]).out
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--pip-index", "i.site"), "is not a URL"),
        (("--apt-mirror", "m.site"), "is not a URL"),
        (("--apt-mirror", "deb=http://m.site"), "is not a URL"),
        (("--ca-bundle", "none.pem"), "none.pem"),
        (("--ca-bundle", "/bin/sh"), "certificate"),
    ],
)
def test_what_is_no_index_or_bundle_is_refused(builds: Builds, flags: tuple[str, ...], said: str) -> None:
    assert said in builds.build("FROM base\n", {}, *flags, code=2).err


def test_a_certificate_error_names_the_flag(builds: Builds) -> None:
    said = builds.build("FROM base\nRUN echo certificate verify failed; exit 1\n", {}, code=1)
    assert "--ca-bundle /etc/ssl/certs" in said.err


@given(st.lists(st.sampled_from([*UBUNTU.split(), *DEB.split(), "#", "[a=b]"])), st.sampled_from(" \n\t"))
def test_every_archive_has_a_mirror(words: list[str], between: str) -> None:
    mirrored = Packages(mirrors={"": MIRROR}).mirrored(between.join(words))
    assert "archive.ubuntu.com" not in mirrored
    assert "deb.debian.org" not in mirrored
