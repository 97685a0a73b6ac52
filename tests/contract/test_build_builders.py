"""`image build --builder`: apptainer, ch-image and docker; podman and buildah are in test_build_peers.py."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from building import Builds
from tools import tool

from bareboat_images.builder import peers
from bareboat_images.builder.options import Options
from bareboat_images.builder.peers import Peer
from bareboat_images.oci.reference import Transport

DEFINITION = """Bootstrap: localimage
From: base.sif

%arguments
    WORD=one

%files
    f /srv/f

%post
    echo {{ WORD }} > /word

%environment
    export GREETING=hello

%runscript
    echo ran
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    tool("busybox")
    made = Builds(tmp_path_factory.mktemp("builders"))
    made.base()
    return made


def test_apptainer_builds_on_request(builds: Builds) -> None:
    tool("apptainer")
    context = builds.context("FROM base\n", {"f": "file\n", "app.def": DEFINITION})
    builds.bareboat("image", "convert", "base", f"sif:{context}/base.sif")
    flags = ("--builder", "apptainer", "-t", "app:1", "--build-arg", "WORD=two")
    builds.bareboat("image", "build", *flags, "-f", context / "app.def", context)
    shown = builds.bareboat("run", "--image", "app:1", "--", "sh", "-c", "cat /word /srv/f; echo $GREETING")
    assert shown.out == "two\nfile\nhello\n"
    assert builds.store.image("app:1").reference == ""
    said = builds.bareboat("image", "build", "--builder", "apptainer", context, code=2)
    assert "apptainer does not build Dockerfiles" in said.err
    flags = (*flags, "-f", str(context / "app.def"))
    said = builds.bareboat("image", "build", *flags, "--target", "x", context, code=2)
    assert "--target does not work with --builder apptainer" in said.err
    (context / "app.def").write_text(DEFINITION + "%test\n    echo oops; exit 3\n")
    said = builds.bareboat("image", "build", *flags, context, code=1)
    assert "apptainer build exited with code" in said.err
    assert "oops" in said.err
    assert not any((builds.store.root / "tmp").iterdir())


def test_charliecloud_builds_on_request(builds: Builds, tmp_path: Path) -> None:
    tool("ch-image")
    text = "FROM base\nARG WORD=one\nENV GREETING=hello\nCOPY f /srv/f\nRUN echo $WORD > /word\n"
    context = builds.context(text, {"f": "file\n"})
    builds.bareboat("image", "convert", "base", f"rootfs:{tmp_path}/base")
    builds.variables.update(CH_IMAGE_STORAGE=str(tmp_path / "ch"), PATH="/usr/bin:/bin")
    subprocess.run(
        ["ch-image", "--no-cache", "import", str(tmp_path / "base"), "base"],
        env={"USER": "x"} | os.environ | builds.variables, check=True, capture_output=True,
    )  # fmt: skip
    try:
        flags = ("--builder", "ch-image", "-t", "ch:1", "--build-arg", "WORD=two")
        builds.bareboat("image", "build", *flags, context)
        left = sorted(path.name for path in (tmp_path / "ch" / "img").iterdir())
        (context / "Dockerfile").write_text(text + "RUN echo oops; exit 3\n")
        failed = builds.bareboat("image", "build", *flags, context, code=1)
        refused = builds.bareboat("image", "build", *flags, "--network", "none", context, code=2)
    finally:
        builds.variables.clear()
    shown = builds.bareboat("run", "--image", "ch:1", "--", "sh", "-c", "cat /word /srv/f; echo $GREETING")
    assert shown.out == "two\nfile\nhello\n"
    assert left == ["base"]
    assert "ch-image build exited with code" in failed.err
    assert "oops" in failed.err
    assert "--network does not work with --builder ch-image" in refused.err


def test_docker_without_a_daemon_is_refused(builds: Builds, tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n")
    program.chmod(0o755)
    builds.variables["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    try:
        said = builds.build("FROM base\nRUN true\n", {}, "--builder", "docker", code=3)
    finally:
        builds.variables.clear()
    assert "docker has no daemon that answers" in said.err
    assert "Cannot connect to the Docker daemon" in said.err


def test_docker_s_commands_are_those_of_its_reference(tmp_path: Path) -> None:
    """https://docs.docker.com/reference/cli/docker/buildx/build/ and …/docker/image/save/"""
    peer = Peer(name="docker", path="docker", secrets=("id=a,src=b",), sockets=("default",), pull=True)
    options = Options(
        dockerfile="FROM x\n", name="f", context=tmp_path, arguments={"A": "1", "SOURCE_DATE_EPOCH": "7"},
        target="t", hosts=(("h", "10.0.0.1"),), network="none", no_cache=True, epoch=7,
    )  # fmt: skip
    made = peers.planned(peer, options, tmp_path)
    assert made.build == [
        "docker", "build", "--iidfile", f"{tmp_path}/id", "--file", "f", "--build-arg", "A=1", "--build-arg",
        "SOURCE_DATE_EPOCH=7", "--secret", "id=a,src=b", "--ssh", "default", "--add-host", "h:10.0.0.1",
        "--target", "t", "--network", "none", "--no-cache", "--pull", str(tmp_path),
    ]  # fmt: skip
    assert made.export is not None
    assert made.export("sha256:1") == ["docker", "save", "--output", f"{tmp_path}/built.tar", "sha256:1"]
    assert made.transport is Transport.DOCKER_ARCHIVE
