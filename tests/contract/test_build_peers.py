"""Dockerfiles that buildah builds, too: the same tree and configuration, apart from owners and times; and an
image built here in every engine, and in other tools through a registry.

The cases cover what the conformance tests of moby and buildah cover, and are written anew.
"""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import images
import pytest
from buildah import Peer, changes, settings, storage, view
from building import GROUP, PASSWD, Builds
from registries import real_registry
from tools import output, tool

from bareboat import registry

Files = dict[str, bytes | str | None]
TREE: Files = {
    "d/a": "a",
    "d/e/b": "b",
    "d/.hidden": "h",
    "d/link": "-> a",
    "d/x.log": "x",
    "f": "f",
    "g": "g",
}
TAR = images.tar({"t": None, "t/one": b"1", "t/two": "one"}, modes={"t/one": 0o640})

#: What is built on a base of busybox, in both. Not here: COPY to a link to a file, which we follow, as
#: BuildKit does, and which buildah replaces; CMD in the shell form after SHELL, which buildah 1.28 ignores.
CASES: dict[str, tuple[str, Files]] = {
    "a file to a file": ("COPY f /x", TREE),
    "a file into a new directory": ("COPY f /x/y/", TREE),
    "a file to a new path": ("COPY f /x/y/z", TREE),
    "a file into a directory that exists": ("RUN mkdir -m 700 /x\nCOPY f /x", TREE),
    "files into a directory": ("COPY f g /x/", TREE),
    "a directory's content": ("COPY d /x", TREE),
    "a directory's content, with slashes": ("COPY d/ /x/", TREE),
    "the whole context": ("COPY . /x/", TREE),
    "a directory over one that exists": (
        "RUN mkdir -p /x/e && echo old > /x/a && echo kept > /x/e/c\nCOPY d /x", TREE,
    ),
    "a file over a file": ("COPY f /x\nCOPY g /x", TREE),
    "into a link to a directory": ("RUN mkdir /r && ln -s /r /x\nCOPY d /x/", TREE),
    "patterns": ("COPY d/?.* d/*a /x/", TREE),
    "relative to the working directory": ("WORKDIR /w/v\nCOPY f .\nCOPY d e\nADD g ../", TREE),
    "names with blanks": ('COPY ["a b", "/c d/"]', {"a b": "1"}),
    "an archive is unpacked": ("ADD k.tar /x/\nCOPY k.tar /y/", {"k.tar": TAR}),
    "an archive over files": ("RUN mkdir -p /x/t && echo old > /x/t/one\nADD k.tar /x", {"k.tar": TAR}),
    "modes of the context": ("COPY d /x\nADD f /y", TREE),
    "chmod": ("COPY --chmod=751 f /x\nRUN chmod 1777 /x && mkdir -m 2755 /s && chmod u+s /x", TREE),
    "ignored files": ("COPY . /x/", TREE | {".dockerignore": "# no\n*\n!d\nd/*.log\n**/.hidden\n"}),
    "ignored, and not": ("COPY . /x/", TREE | {".dockerignore": "d\n!d/e\n.dockerignore\nDockerfile\n"}),
    "stages": (
        "RUN mkdir /p && echo 1 > /p/one && ln -s one /p/two\nFROM base AS second\nCOPY --from=0 /p /q\n"
        "FROM second\nCOPY --from=second /q/two /three\nCOPY --from=0 /p/ /r/\n",
        {},
    ),
    "removed, and made again": (
        "RUN mkdir -p /a/b && touch /a/b/c /a/d /e\nRUN rm -r /a /e && mkdir -p /a/b && touch /a/b/f\n"
        "RUN rm /a/b/f && touch /e && mkdir /a/b/f\n",
        {},
    ),
    "a directory becomes a file, and a file a directory": (
        "RUN mkdir /a && touch /a/x /b\nRUN rm -r /a /b && echo 1 > /a && mkdir /b && touch /b/y\n",
        {},
    ),
    "links of all kinds": (
        "RUN echo 1 > /a && ln /a /b && ln -s a /c && ln -s /none /d && ln -s . /e && mkfifo /p\n"
        "RUN echo 2 > /n && mv /n /a",
        {},
    ),
    "arguments and variables": (
        "ARG A=one\nARG B\nENV C=${A}-${B:-none} D='x y' E=\"$A\" PATH=$PATH:/more\n"
        'RUN echo "$A|$B|$C|$D|$E|$PATH" > /x\nARG A=two\nRUN echo $A > /y\n',
        {},
    ),
    "the working directory": ("WORKDIR /a\nWORKDIR b\nENV W=/w\nWORKDIR $W/c\nRUN pwd > /x", {}),
    "wrapped lines": ("RUN echo a \\\n  b \\\n# no\n  c > /x \\\n\nENV A=1 \\\n B=2\nRUN echo $A$B > /y", {}),
    "the exec form": ('RUN ["/bin/sh", "-c", "echo $0 $1 > /x", "a b", "$HOME"]', {}),
    "another shell": ('SHELL ["/bin/sh", "-ec"]\nRUN false || echo 1 > /x', {}),
    "settings": (
        'LABEL a=b "c d"="e f"\nEXPOSE 80 53/udp\nSTOPSIGNAL SIGINT\nUSER app\nENTRYPOINT ["e"]\n'
        'CMD ["c"]\nENV A=1',
        {},
    ),
    "settings in the shell form": ("CMD run $HOME\nENTRYPOINT start it", {}),
    "another user's files": (
        "USER app\nRUN mkdir /tmp/x && echo 1 > /tmp/x/y && umask 077 && touch /tmp/z", {},
    ),
    "a command of the base is kept": ("ENV A=1", {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with storage() as made:
        yield made


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory, peer: Peer) -> Builds:
    """A base that buildah made, in both."""
    tool("busybox")
    made = Builds(tmp_path_factory.mktemp("builds"))
    names = ("chown", "chmod", "mkdir", "ln", "mkfifo", "mv", "pwd", "cp")
    base = images.busybox(
        **{"etc/passwd": PASSWD, "etc/group": GROUP}, **{f"bin/{name}": "busybox" for name in names}
    )
    (peer.top / "base.tar").write_bytes(base)
    container = peer("buildah", "from", "scratch")
    peer("buildah", "add", "--quiet", container, peer.top / "base.tar", "/")
    peer("buildah", "run", "--isolation", "chroot", container, "--", "/bin/busybox", "chmod", "1777", "/tmp")
    peer("buildah", "config", "--env", "PATH=/bin", "--cmd", "/bin/sh", "--workingdir", "/", container)
    peer("buildah", "commit", "--quiet", container, "localhost/base:latest")
    peer("buildah", "push", "--quiet", "localhost/base:latest", f"oci-archive:{peer.top}/base.oci")
    made.bareboat("image", "pull", f"oci-archive:{peer.top}/base.oci", "--name", "base")
    return made


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_the_image_is_that_of_buildah(builds: Builds, peer: Peer, name: str) -> None:
    text, content = CASES[name]
    context = builds.context(f"FROM base\n{text}\n", content)
    for path in (context, *context.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    ours = builds.bareboat("image", "build", "-q", "-t", "ours", context)
    assert ours.code == 0
    peer("buildah", "bud", "--quiet", "--isolation", "chroot", "--network", "host", "--format", "docker",
         "--tag", "theirs", context)  # fmt: skip
    archive = peer.top / f"{context.name}.tar"  # in Docker's format, since OCI's has no SHELL
    peer("buildah", "push", "--quiet", "theirs", f"docker-archive:{archive}:theirs")
    builds.bareboat("image", "pull", "-q", f"docker-archive:{archive}", "--name", "theirs")
    archive.unlink()
    made = [builds.store.image(each) for each in ("theirs", "ours")]
    assert list(changes(*(view(builds, each) for each in made))) == []
    theirs, ours = (settings(builds, each) for each in made)
    assert theirs == ours


TEXT = """FROM base AS build
RUN mkdir -p /opt/app/bin && printf '#!/bin/sh\\necho $GREETING from $0\\n' > /opt/app/bin/greet
RUN chmod 755 /opt/app/bin/greet && ln /opt/app/bin/greet /opt/app/bin/hard && ln -s greet /opt/app/bin/soft
FROM base
ENV GREETING=hello PATH=/opt/app/bin:/bin
COPY --from=build /opt/app /opt/app
RUN rm /etc/group && echo removed > /opt/app/group && mkdir -p /usr/bin && ln -s /bin/env /usr/bin/env
WORKDIR /opt/app
CMD ["greet"]
"""
SAYS = "greet; soft; hard; cat /opt/app/group; test ! -e /etc/group.none; ls /opt/app/bin"
SAID = "hello from /opt/app/bin/greet\nhello from /opt/app/bin/soft\nhello from /opt/app/bin/hard\nremoved\n"


@pytest.fixture(scope="module")
def built(builds: Builds) -> str:
    builds.build(TEXT, {}, "-t", "built:1")
    return "built:1"


def test_a_built_image_runs_in_every_engine(builds: Builds, built: str) -> None:
    """In each that works here, in each of its modes."""
    ran, refused = set(), {}
    for name in [mode for each in registry.names("engines") for mode in registry.modes(each)]:
        if name == "native" or registry.engine(name).UNTESTED:
            continue
        if reason := obstacle(builds, name, built):
            refused[name] = reason
            continue
        said = builds.bareboat("run", "--engine", name, "--image", built, "--", "sh", "-c", SAYS)
        assert said.out == f"{SAID}greet\nhard\nsoft\n", name
        ran.add(name.partition(":")[0])
    assert {"bubblewrap", "apptainer", "charliecloud"} <= ran, refused


def obstacle(builds: Builds, engine: str, image: str) -> str:
    """Why no plan for the engine can be made on this machine."""
    plan = [sys.executable, "-m", "bareboat", "plan", "--engine", engine, "--image", image, "--", "true"]
    variables = os.environ | {"BAREBOAT_STORE": str(builds.store.root)}
    said = subprocess.run(plan, env=variables, capture_output=True, text=True, check=False)
    return said.stderr if said.returncode else ""


def test_a_built_image_is_pushed_and_runs_elsewhere(
    builds: Builds, built: str, tmp_path: Path, peer: Peer
) -> None:
    with real_registry(tmp_path / "registry") as here:
        target = f"{here.address}/team/built:1"
        builds.bareboat("image", "push", "--plain-http", built, target)
        name = peer("buildah", "pull", "--quiet", "--tls-verify=false", target)
        container = peer("buildah", "from", name)
        said = peer("buildah", "run", "--isolation", "chroot", container, "--", "/bin/sh", "-c", SAYS)
        assert said.startswith(SAID)
        environment = os.environ | {"APPTAINER_NOHTTPS": "1", "APPTAINER_CACHEDIR": str(tmp_path / "cache")}
        for argv in (
            [tool("apptainer"), "build", "--sandbox", str(tmp_path / "sandbox"), f"docker://{target}"],
            [tool("apptainer"), "exec", "--userns", "--contain", str(tmp_path / "sandbox"), "sh", "-c", SAYS],
        ):
            shown = output(*argv, env=environment)
        assert shown.startswith(SAID)
        other = Builds(tmp_path / "other")
        other.folder.mkdir()
        other.bareboat("image", "pull", "--plain-http", target, "--name", "back")
        assert other.bareboat("run", "--image", "back", "--", "greet").out == SAID.partition("\n")[0] + "\n"
        theirs, ours = other.store.image("back"), builds.store.image(built)
        assert [each.diff_id for each in theirs.layers] == [each.diff_id for each in ours.layers]


def test_a_built_image_is_loaded_into_other_storages(
    builds: Builds, built: str, tmp_path: Path, peer: Peer
) -> None:
    archive = tmp_path / "image.tar"
    builds.bareboat("image", "save", built, f"docker-archive:{archive}")
    shown = json.loads(peer("skopeo", "inspect", f"docker-archive:{archive}"))
    theirs = [each.diff_id for each in builds.store.image(built).layers]
    assert shown["Layers"] == theirs
    with tarfile.open(archive) as opened:
        (entry,) = json.load(opened.extractfile("manifest.json"))  # type: ignore[arg-type]
    assert entry["RepoTags"] == [built]
    other = Builds(tmp_path / "other")
    other.folder.mkdir()
    other.bareboat("image", "pull", f"docker-archive:{archive}", "--name", "back")
    assert [each.diff_id for each in other.store.image("back").layers] == theirs
