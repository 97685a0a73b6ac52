"""Dockerfiles that are built, without root: every instruction and flag, checked from inside and outside."""

import bz2
import gzip
import hashlib
import http.server
import json
import lzma
import os
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import images
import pytest
import tars
import zstandard
from building import Builds
from tools import completed, executable, tool

from bareboat.engines import bubblewrap
from bareboat_images.builder import metadata

pytestmark = pytest.mark.usefixtures("_busybox")

Files = dict[str, bytes | str | None]


@pytest.fixture(scope="module")
def _busybox() -> None:
    tool("busybox")


def archive(files: Files) -> bytes:
    return images.tar(files)


#: What is built on the base; a RUN that is false fails the build.
SUPPORTED: dict[str, tuple[str, Files]] = {
    "shell form": ("RUN test 1 = 1 && true", {}),
    "exec form": ('RUN ["/bin/sh", "-c", "test $0 = x", "x"]', {}),
    "SHELL": ('SHELL ["/bin/sh", "-e", "-c"]\nRUN false; true\nRUN exit 1', {}),
    "heredoc": ("RUN <<E\nset -e\nx='$'\ntest a = a\nE", {}),
    "heredoc for a program": ('RUN cat > /a <<E && test "$(cat /a)" = "b c"\nb c\nE', {}),
    "heredoc with its own program": ("RUN <<E\n#!/bin/sh -e\ntest $0 != sh\nE", {}),
    "ENV in RUN": ('ENV A="x y" B=z\nRUN test "$A$B" = "x yz"', {}),
    "ENV without an equals sign": ("ENV OLD one two\nRUN test \"$OLD\" = 'one two'", {}),
    "FROM --platform": ("FROM --platform=$BUILDPLATFORM base\nRUN true", {}),
    "ENV sees the old value in its own line": ("ENV A=1\nENV A=2 B=$A\nRUN test $A$B = 21", {}),
    "ARG": ("ARG A=1\nARG B=${A}2\nRUN test $A$B = 112", {}),
    "ARG is hidden by ENV": ("ARG A=1\nENV A=2\nRUN test $A = 2", {}),
    "TARGETARCH": ("ARG TARGETARCH\nARG TARGETOS\nRUN test $TARGETOS = linux -a -n $TARGETARCH", {}),
    "modifiers": ("ENV V=a\nENV W=${V-x}${X:-y}${V:+z}${V:?}\nRUN test $W = ayza", {}),
    "WORKDIR": ("WORKDIR /a/b\nWORKDIR c\nRUN test $PWD = /a/b/c", {}),
    "WORKDIR through a link": ("RUN mkdir /r && ln -s r /l\nWORKDIR /l/d\nRUN test -d /r/d", {}),
    "USER": ("USER app\nRUN test $(id -u):$(id -g):$HOME = 1000:1001:/home/app", {}),
    "USER by number": ("USER 42:43\nRUN test $(id -u):$(id -g) = 42:43", {}),
    "USER with a group": ("USER app:staff\nRUN test $(id -g) = 50", {}),
    "root emulation": (
        "RUN touch /f && chown app:app /f 2>&1; chown 5:6 /f && mknod /dev0 c 1 3 && mkfifo /p && test -p /p",
        {},
    ),
    "nothing waits for the disk": (  # fsync of a pipe is an error
        "RUN (dd if=/bin/busybox count=1 conv=fsync && touch /ok) | cat > /x; test -f /ok", {},
    ),
    "ARG with a comment": ("ARG A=1  # a comment\nRUN test $A = 1", {}),
    "COPY of several without a slash": ("COPY a b /x\nRUN test -f /x/a -a -f /x/b", {"a": "1", "b": "1"}),
    "COPY to nothing": ("ARG E\nWORKDIR /w\nCOPY a $E\nRUN test -f /w/a", {"a": "1"}),
    "COPY to a group": ("COPY --chown=:staff a /x\nRUN test -f /x", {"a": "1"}),
    "a mount without a target": (
        "FROM base AS one\nRUN echo 1 > /f\nFROM base\nWORKDIR /w\nRUN --mount=from=one test -f /w/f", {},
    ),
    "a mount for SELinux": ("RUN --mount=type=bind,target=/m,z test -f /m/a", {"a": "1"}),
    ".containerignore comes first": ("COPY . /x\nRUN test -f /x/a -a ! -e /x/b", {
        ".containerignore": "b\n", ".dockerignore": "a\n", "a": "1", "b": "1",
    }),
    "COPY a file": ("COPY a /x\nRUN test $(cat /x) = 1", {"a": "1"}),
    "COPY into a directory": ("COPY a /d/\nCOPY a /d/e\nRUN test -f /d/a -a -f /d/e", {"a": "1"}),
    "COPY into one that exists": ("RUN mkdir /d\nCOPY a /d\nRUN test -f /d/a", {"a": "1"}),
    "COPY a directory": ("COPY d /x\nRUN test -f /x/a/b -a ! -e /x/d", {"d/a/b": "1"}),
    "COPY everything": ("COPY . /x\nRUN test -f /x/a -a -f /x/d/b", {"a": "1", "d/b": "1"}),
    "COPY patterns": ("COPY *.t d?/c /x/\nRUN test -f /x/a.t -a -f /x/b.t -a -f /x/c", {
        "a.t": "1", "b.t": "1", "c.u": "1", "d1/c": "1",
    }),
    "COPY patterns of which one matches nothing": ("COPY a *.lock .npmrc* /x/\nRUN test -f /x/a", {"a": "1"}),
    "COPY in JSON form": ('COPY ["a b", "/x y"]\nRUN test -f "/x y"', {"a b": "1"}),
    "COPY relative to WORKDIR": ("WORKDIR /w\nCOPY a b\nCOPY a ./c/\nRUN test -f /w/b -a "
    "-f /w/c/a", {"a": "1"}),
    "COPY keeps links": ("COPY d /d\nRUN test $(readlink /d/l) = a", {"d/a": "1", "d/l": "-> a"}),
    "COPY follows a source": ("COPY l /x\nRUN test -f /x -a ! -L /x", {"a": "1", "l": "-> a"}),
    "COPY through a link": ("RUN mkdir /r && ln -s /r /l\nCOPY a /l/\nRUN test -f /r/a -a -L /l", {"a": "1"}),
    "COPY to a link follows it": ("RUN echo 1 > /r && ln -s /r /x\nCOPY a /x\n"
    "RUN test -L /x -a $(cat /r) = 2", {"a": "2"}),
    "COPY replaces a file": ("COPY a /x\nCOPY b /x\nRUN test $(cat /x) = 2", {"a": "1", "b": "2"}),
    "COPY --chmod": ("COPY --chmod=751 a /x\nRUN test $(stat -c %a /x) = 751", {"a": "1"}),
    "COPY --chmod by letters": ("COPY --chmod=u=rwX,go=rX d /x\n"
    "RUN test $(stat -c %a /x) = 755", {"d/a": "1"}),
    "COPY --exclude": ("COPY --exclude=*.b --exclude=c d /x\nRUN test -f /x/a -a ! -e /x/a.b -a ! -e /x/c", {
        "d/a": "1", "d/a.b": "1", "d/c": "1",
    }),
    "COPY --link": ("COPY --link a /n/x\nCOPY --link=false a /n/y\nRUN test -f /n/x -a -f /n/y", {"a": "1"}),
    "COPY a heredoc": ("ENV V=1\nCOPY <<a <<'b' /d/\n$V\na\n$V\nb\nRUN test $(cat /d/a) = 1 -a "
    "$(cat /d/b) = '$V'", {}),
    "COPY variables": ("ENV S=a D=/x\nCOPY $S ${D}/y\nRUN test -f /x/y", {"a": "1"}),
    "ADD a file": ("ADD a /x\nADD d /y/\nRUN test $(cat /x) = 1 -a -f /y/b", {"a": "1", "d/b": "1"}),
    "ADD with flags": (
        "ADD --chown=app --chmod=600 --link a /x\nADD --exclude=*.log d /y\n"
        "RUN test $(stat -c %a /x) = 600 -a -f /y/b -a ! -e /y/x.log", {"a": "1", "d/b": "1", "d/x.log": "1"},
    ),
    "COPY of a link has its name": ("COPY l m/l /x/\nRUN test $(cat /x/l) = 2 -a ! -L /x/l\n"
    "COPY k* /y/\nRUN test $(cat /y/k) = 1\nADD k /z/\nRUN test -f /z/k", {
        "a": "1", "l": "-> a", "m/b": "2", "m/l": "-> b", "k": "-> a",
    }),
    "a pattern with exceptions": ("COPY s* /x/\nRUN test -f /x/app.py -a -f /x/setup.py -a ! -e /x/b\n"
    "COPY */*.py /y/\nRUN test -f /y/app.py -a ! -e /y/c.py", {
        ".dockerignore": "*\n!src/app.py\n!setup.py\n", "src/app.py": "1", "src/b": "1", "setup.py": "1",
        "s/c.py": "1",
    }),
    "a name that no layer can hold is left out": ("COPY . /x\nRUN test -f /x/a", {
        ".dockerignore": "**/.wh.*\n", "a": "1", ".wh.b": "1", "d/.wh.c": "1",
    }),
    "a directory in the place of a file": (
        "RUN echo 1 > /f\nUSER 1000\nRUN rm /f && mkdir /f && echo 1 > /f/x", {}
    ),
    "caches of one id": (
        "RUN --mount=type=cache,id=i,target=/a,sharing=locked "
        "--mount=type=cache,id=i,target=/b,sharing=locked echo 1 > /a/f && test -f /b/f\n"
        "RUN --mount=type=cache,id=i,target=/k,ro,mode=0700 test -f /k/f", {},
    ),
    "a mount of the context": ("RUN --mount=target=/m,source=d test -f /m/a\nRUN test ! -e /m", {"d/a": "1"}),
    "a mount of a file": ("RUN --mount=target=/m/n,source=a test $(cat /m/n) = 1\n"
    "RUN test ! -e /m", {"a": "1"}),
    "a mount with rw": ("RUN --mount=target=/m,rw touch /m/b && test -f /m/a\nRUN test ! -e /m", {"a": "1"}),
    "a mount without rw": ("RUN --mount=target=/m sh -c '! touch /m/b'", {"a": "1"}),
    "a cache": (
        "RUN --mount=type=cache,target=/c echo 1 > /c/f\nRUN test ! -e /c\n"
        "RUN --mount=type=cache,target=/c,sharing=locked test $(cat /c/f) = 1",
        {},
    ),
    "a tmpfs": ("RUN --mount=type=tmpfs,target=/t,size=1m touch /t/a\nRUN test ! -e /t", {}),
    "no secret": ("RUN --mount=type=secret,id=none test ! -e /run/secrets/none", {}),
    "the host's network": (
        "RUN --network=host true\nRUN --network=default true\nRUN --security=sandbox true", {},
    ),
    "names of the host": ("RUN test $(hostname) = bareboat-build && grep -q bareboat-build /etc/hosts", {}),
    "nothing of mounts remains": ("RUN true\nRUN test ! -e /etc/resolv.conf.x -a ! -e /run/secrets", {}),
    "removing": ("RUN mkdir /d && touch /d/a /f\nRUN rm -r /d /f && mkdir /d && touch /d/b\n"
    "RUN test ! -e /d/a -a ! -e /f", {}),
    "a hard link": ("RUN echo 1 > /a && ln /a /b\nRUN test $(stat -c %h /a) -ge 2 -a $(cat /b) = 1", {}),
    "stages": (
        "RUN echo 1 > /a\nFROM base AS two\nCOPY --from=0 /a /b\nFROM scratch AS three\n"
        "COPY --from=two /b /c\n"
        "FROM two\nCOPY --from=three / /d/\nRUN test $(cat /b)$(cat /d/c) = 11",
        {},
    ),
    "later stages": (
        "RUN echo 1 > /a\nFROM base AS two\nCOPY --from=late /a /b\n"
        "RUN --mount=from=3,target=/m test -f /m/three\nRUN test $(cat /b) = 2\n"
        "FROM base AS late\nRUN echo 2 > /a\nFROM base\nRUN touch /three\nFROM two\nRUN test -f /b",
        {},
    ),
    "ARG is inherited": ("ARG A=1\nFROM base AS one\nARG A=2\nFROM one\nRUN test $A = 2", {}),
    "COPY from an image": ("COPY --from=base /etc/passwd /p\nRUN grep -q app /p", {}),
    "a mount of a stage": ("FROM base\nRUN --mount=from=0,target=/m,source=/etc grep -q app /m/passwd", {}),
    "a mount of an image": ("RUN --mount=from=base,target=/m grep -q app /m/etc/passwd", {}),
    "a comment": ("RUN true \\\n# comment\n && true", {}),
    "settings": (
        'LABEL a=b\nMAINTAINER me\nEXPOSE 80\nVOLUME /v\nSTOPSIGNAL SIGTERM\nHEALTHCHECK NONE\nCMD ["a"]',
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUPPORTED)
def test_an_instruction_does_what_is_documented(builds: Builds, name: str) -> None:
    text, files = SUPPORTED[name]
    code = 1 if name == "SHELL" else 0
    said = builds.build(f"FROM base\n{text}\n", files, code=code)
    if name == "SHELL":
        assert "RUN exited with code 1" in said.err
        assert "Dockerfile:3: RUN false; true" in said.err


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.tar", lambda data: data),
        ("a.tgz", gzip.compress),
        ("a.tar.bz2", bz2.compress),
        ("a.tar.xz", lzma.compress),
        ("a.tar.zst", zstandard.compress),
    ],
)
def test_add_unpacks_archives(builds: Builds, name: str, pack: object) -> None:
    data = pack(archive({"d": None, "d/f": b"1", "l": "d/f"}))  # type: ignore[operator]
    builds.build(f"FROM base\nADD {name} /x/\nRUN test $(cat /x/l) = 1 -a ! -e /x/{name}\n", {name: data})


def test_the_configuration_is_that_of_the_instructions(builds: Builds) -> None:
    image = builds.image(
        "FROM base\nENV A=1\nLABEL a=b c='d e'\nEXPOSE 80 90-91/udp\nVOLUME /v /w\nSTOPSIGNAL SIGINT\n"
        "USER app\n"
        "WORKDIR /w\nHEALTHCHECK --interval=1m30s --timeout=500ms --retries=2 CMD check it\n"
        'SHELL ["/bin/sh", "-ec"]\nCMD x y\nENTRYPOINT ["e"]\nMAINTAINER me\n'
    )
    found = builds.config(image)
    assert found["author"] == "me"
    config = found["config"]
    assert config["Env"][-1] == "A=1"
    assert config["Labels"] == {"a": "b", "c": "d e"}
    assert config["ExposedPorts"] == {"80/tcp": {}, "90/udp": {}, "91/udp": {}}
    assert config["Volumes"] == {"/v": {}, "/w": {}}
    assert (config["StopSignal"], config["User"], config["WorkingDir"]) == ("SIGINT", "app", "/w")
    assert "Healthcheck" not in config
    assert (config["Cmd"], config["Entrypoint"]) == (["/bin/sh", "-ec", "x y"], ["e"])
    assert len([each for each in found["history"] if not each.get("empty_layer")]) == len(image.layers)


def test_entrypoint_drops_the_command_of_the_base(builds: Builds) -> None:
    builds.build('FROM base\nCMD ["a"]\n', {}, "-t", "with-command:1")
    config = builds.config(builds.image('FROM with-command:1\nENTRYPOINT ["e"]\n'))["config"]
    assert "Cmd" not in config


def test_owners_modes_and_whiteouts_are_in_the_layer(builds: Builds) -> None:
    image = builds.image(
        "FROM base\nCOPY a /root/a\nCOPY --chown=app:staff a /d/a\n"
        "RUN chmod 4755 /d/a && rm /etc/group && rm -r /root && mkdir /root\n"
        "USER app\nRUN echo 1 > /tmp/f\n",
        {"a": "1"},
    )
    copied = builds.tar(image, -3)
    assert (copied["d"].uid, copied["d/a"].uid, copied["d/a"].gid) == (1000, 1000, 50)
    changed = builds.tar(image, -2)
    assert (changed["d/a"].mode, changed["d/a"].uid) == (0o4755, 1000)
    assert "etc/.wh.group" in changed
    # A build that copies its tree, where overlayfs did not answer, marks each file.
    assert {"root/.wh..wh..opq", "root/.wh.a"} & changed.keys()
    assert changed["root"].uid == 0
    user = builds.tar(image)
    assert (user["tmp/f"].uid, user["tmp/f"].gid) == (1000, 1001)
    assert (user["tmp"].uid, user["tmp"].gid) == (0, 0)


def test_a_bare_number_is_also_the_group_of_a_copy(builds: Builds) -> None:
    """As documented by BuildKit, although the image's user 1000 has the group 1001."""
    copied = builds.tar(builds.image("FROM base\nCOPY --chown=1000 a /a\n", {"a": "1"}))
    assert (copied["a"].uid, copied["a"].gid) == (1000, 1000)
    copied = builds.tar(builds.image("FROM base\nCOPY --chown=app a /a\n", {"a": "1"}))
    assert (copied["a"].uid, copied["a"].gid) == (1000, 1001)


def test_several_names_and_the_tag_latest(builds: Builds) -> None:
    made = json.loads(builds.build("FROM base\nLABEL a=b\n", {}, "-t", "one", "-t", "two:1", "--json").out)
    assert made["names"] == ["one", "two:1"]
    assert builds.store.names()["one"] == builds.store.names()["two:1"] == made["digest"]
    builds.build("FROM base\n", {}, "-t", "three:latest")
    builds.build("FROM one:latest\nFROM three\n", {})
    said = builds.build("FROM base\n", {}, "-t", "n:{a}", "-t", "m:{a}", "--matrix", "a=1,2", code=2).err
    assert "--matrix takes one --tag" in said
    said = builds.build(
        "FROM base\nARG A\n", {}, "-t", "n:{a}", "--matrix", "a=1,2", "--build-arg", "A=3", code=2
    ).err
    assert "both set A" in said


def test_a_step_without_a_change_has_no_layer(builds: Builds) -> None:
    base = builds.store.image("base")
    image = builds.image(
        "FROM base\nRUN true\nRUN ls /etc /run 2>/dev/null; cat /etc/resolv.conf\nWORKDIR /etc\n"
    )
    assert len(image.layers) == len(base.layers)


def test_attributes_survive(builds: Builds) -> None:
    context = builds.context("FROM base\nCOPY a /a\nRUN mv /a /b\n", {"a": "1"})
    os.setxattr(context / "a", "user.note", b"kept")
    said = json.loads(builds.bareboat("image", "build", "--json", context).out)
    image = builds.store.image(said["digest"])
    for number, name in ((-2, "a"), (-1, "b")):
        headers = builds.tar(image, number)[name].pax_headers
        assert headers["SCHILY.xattr.user.note"] == "kept"


def test_ignored_files_are_not_in_the_context(builds: Builds) -> None:
    files: Files = {
        ".dockerignore": "*.log\nd/**\n!d/keep\n",
        "a.log": "1",
        "d/x": "1",
        "d/keep": "1",
        "b": "1",
    }
    builds.build(
        "FROM base\nCOPY . /x\nRUN test -f /x/b -a -f /x/d/keep -a ! -e /x/a.log -a ! -e /x/d/x\n"
        "RUN --mount=target=/m test ! -e /m/a.log -a -f /m/b\n",
        files,
    )
    said = builds.build("FROM base\nCOPY a.log /x\n", files, code=2)
    assert ".dockerignore" in said.err


def test_secrets_leave_no_trace(builds: Builds) -> None:
    secret = "s3cr3t-" + os.urandom(8).hex()
    builds.variables["TOKEN"] = secret
    (builds.folder / "secret").write_text(secret)
    text = (
        "FROM base\nRUN --mount=type=secret,id=file,required test $(cat /run/secrets/file | wc -c) = 23\n"
        "RUN --mount=type=secret,id=TOKEN,env=GIVEN,target=/s,mode=0444 test $GIVEN = $(cat /s)\n"
    )
    builds.build(text, {}, "--secret", f"id=file,src={builds.folder}/secret", "--secret", "id=TOKEN")
    (builds.folder / "secret").unlink()
    found = completed(["grep", "-rlF", secret, builds.folder])
    assert found.stdout == ""
    said = builds.build("FROM base\nRUN --mount=type=secret,id=no,required=true true\n", {}, code=2)
    assert "--secret id=no,src=FILE" in said.err


def test_build_arguments(builds: Builds) -> None:
    builds.variables["FROM_HOST"] = "h"
    said = builds.build(
        "ARG BASE\nFROM $BASE\nARG A\nARG B=1\nARG FROM_HOST\nRUN test $A$B$FROM_HOST = xyh\n"
        "RUN test $HTTP_PROXY = p\n",
        {},
        *("--build-arg", "BASE=base", "--build-arg", "A=x", "--build-arg", "B=y", "--build-arg", "FROM_HOST"),
        *("--build-arg", "HTTP_PROXY=p", "--build-arg", "UNUSED=1"),
    )
    assert "build argument UNUSED is not used" in said.err


# The cache.


def cached(builds: Builds, *arguments: str | Path) -> tuple[str, int, int]:
    said = json.loads(builds.bareboat("image", "build", "--json", *arguments).out)
    return said["digest"], said["steps"], said["cached"]


def test_what_a_build_keeps_of_owners_is_what_its_layers_have(builds: Builds) -> None:
    image = builds.image(
        "FROM base\nCOPY --chown=5:6 d /d\nUSER app\n"
        "RUN mkdir /home && echo 1 > /home/f && ln /home/f /home/g && rm /d/f\n",
        {"d/e": "1", "d/f": "1"},
    )
    kept = [metadata.of_layer(builds.store, layer.diff_id) for layer in image.layers]
    assert {path: entry.owner for path, entry in kept[-2].items()} == dict.fromkeys(
        (b"d", b"d/e", b"d/f"), (5, 6)
    )
    for path in (builds.store.builds() / "metadata").iterdir():
        path.unlink()
    assert kept == [metadata.of_layer(builds.store, layer.diff_id) for layer in image.layers]


def test_bubblewrap_is_tried_once(builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = bubblewrap._embedded()
    assert isinstance(program, str)
    wrapper, log = tmp_path / "bin/bwrap", tmp_path / "log"
    executable(wrapper, f'#!/bin/sh\necho >> {log}\nexec {program} "$@"\n')
    monkeypatch.setitem(builds.variables, "PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    builds.build("FROM base\nRUN true\nRUN :\n", {}, "--no-cache")
    assert log.read_text() == "\n" * 3


def test_a_second_build_imports_what_it_needs(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is that of imports: dataclasses are slow to define, and ssl to import."""
    context = builds.context("FROM base\nRUN echo 1 > /a\nCOPY a /b\n", {"a": "1"})
    builds.bareboat("image", "build", context)
    monkeypatch.setitem(builds.variables, "PYTHONPROFILEIMPORTTIME", "1")
    said = builds.bareboat("image", "build", context).err
    imported = {
        line.rpartition("|")[2].strip() for line in said.splitlines() if line.startswith("import time:")
    }
    assert "bareboat_images.builder.stage" in imported
    assert not imported & {
        "dataclasses",
        "ssl",
        "tarfile",
        "bareboat.cli.image.pull",
        "bareboat_images.builder.run",
        "bareboat_images.inside.survey",
        "bareboat.probe",
    }


def test_a_second_build_runs_nothing(builds: Builds) -> None:
    context = builds.context("FROM base\nCOPY a /a\nRUN echo 1 > /second\nLABEL a=b\n", {"a": "1"})
    digest, _, _ = cached(builds, context)
    os.utime(context / "a", (1, 1))
    again, steps, hits = cached(builds, context)
    assert (again, hits) == (digest, steps)
    (context / "a").write_text("2")
    changed, steps, hits = cached(builds, context)
    assert changed != digest
    assert steps - hits == 2
    assert cached(builds, "--no-cache", context)[2] < steps


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ENV E=1\nRUN echo k", "ENV E=2\nRUN echo k"),
        ("ARG A=1\nRUN echo k", "ARG A=2\nRUN echo k"),
        ("USER 5\nRUN echo k", "USER 6\nRUN echo k"),
        ("RUN echo k", "RUN --network=none echo k"),
        ('SHELL ["/bin/sh", "-c"]\nRUN echo k', 'SHELL ["/bin/sh", "-ec"]\nRUN echo k'),
        ("RUN --mount=target=/m,source=a echo k", "RUN --mount=target=/m,source=b echo k"),
        ("RUN --mount=type=cache,target=/m echo k", "RUN --mount=type=cache,target=/m,ro echo k"),
        ("RUN --mount=type=cache,target=/m echo k", "RUN --mount=type=cache,target=/m,mode=0700 echo k"),
    ],
)
def test_what_a_step_depends_on_is_in_its_key(builds: Builds, before: str, after: str) -> None:
    files: Files = {"a": "1", "b": "2"}
    first = json.loads(builds.build(f"FROM base\n{before}\n", files, "--json").out)
    second = json.loads(builds.build(f"FROM base\n{after}\n", files, "--json").out)
    assert first["steps"] == second["steps"]
    assert second["cached"] < second["steps"]


def test_what_a_step_does_not_depend_on_is_not_in_its_key(builds: Builds) -> None:
    builds.build("FROM base\nLABEL a=1\nRUN echo label\n", {})
    said = json.loads(builds.build("FROM base\nLABEL a=2\nRUN echo label\n", {}, "--json").out)
    assert said["cached"] == said["steps"]


def test_an_arg_has_the_time_of_the_environment(builds: Builds) -> None:
    builds.variables["SOURCE_DATE_EPOCH"] = "1600000000"
    try:
        builds.build("FROM base\nARG SOURCE_DATE_EPOCH\nRUN test $SOURCE_DATE_EPOCH = 1600000000\n", {})
        assert "not used" not in builds.build("FROM base\nCOPY a /a\n", {"a": "1"}).err
    finally:
        del builds.variables["SOURCE_DATE_EPOCH"]


def test_byte_code_stays_valid_under_an_older_time(builds: Builds) -> None:
    """Python compares the time in byte code with its source's."""
    import importlib.util
    import struct

    source = b"x = 1\n"
    context = builds.context("FROM base\nCOPY p /p\n", {"p/m.py": source})
    moment = int((context / "p/m.py").stat().st_mtime)
    head = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, moment, len(source))
    (context / "p/__pycache__").mkdir()
    (context / "p/__pycache__/m.cpython-311.pyc").write_bytes(head + b"code")
    builds.variables["SOURCE_DATE_EPOCH"] = "1600000000"
    try:
        said = json.loads(builds.bareboat("image", "build", "--json", context).out)
    finally:
        del builds.variables["SOURCE_DATE_EPOCH"]
    image = builds.store.image(said["digest"])
    tree = builds.store.layer(image.layers[-1].diff_id)
    assert struct.unpack("<I", (tree / "p/__pycache__/m.cpython-311.pyc").read_bytes()[8:12])[0] == 1600000000
    assert (tree / "p/m.py").stat().st_mtime == 1600000000
    assert builds.tar(image)["p/m.py"].mtime == 1600000000


def test_independent_stages_wait_for_nobody(builds: Builds) -> None:
    """Each of two stages ends only when the other one runs, too."""
    text = (
        "FROM base AS a\nRUN --mount=type=cache,id=meet,target=/m touch /m/a; "
        "while ! test -e /m/b; do sleep 0.1; done; touch /a\nFROM base AS b\n"
        "RUN --mount=type=cache,id=meet,target=/m touch /m/b; "
        "while ! test -e /m/a; do sleep 0.1; done; touch /b\n"
        "FROM scratch\nCOPY --from=a /a /\nCOPY --from=b /b /\n"
    )
    builds.build(text, {})


# After the build.


def test_the_image_runs_is_verified_and_is_collected(builds: Builds) -> None:
    builds.build("FROM base\nCOPY a /a\nRUN cat /a > /b\n", {"a": "works\n"}, "-t", "app:1.0")
    assert builds.bareboat("run", "--image", "app:1.0", "--", "cat", "/b").out == "works\n"
    builds.bareboat("image", "verify", "app:1.0")
    assert "app:1.0" in builds.bareboat("image", "ls").out
    assert "built" in builds.bareboat("image", "show", "app:1.0").out
    listed = builds.bareboat("image", "rm", "--unused", "--dry-run").out
    assert "layer" not in listed
    builds.bareboat("image", "rm", "app:1.0")
    again = json.loads(
        builds.build("FROM base\nCOPY a /a\nRUN cat /a > /b\n", {"a": "works\n"}, "--json").out
    )
    assert again["cached"] == again["steps"]


def test_the_build_cache_can_be_removed(tmp_path: Path) -> None:
    builds = Builds(tmp_path)
    builds.base()
    said = json.loads(
        builds.build("FROM base\nRUN --mount=type=cache,target=/c echo 1 > /x\n", {}, "--json").out
    )
    builds.bareboat("image", "rm", said["digest"])
    planned = builds.bareboat("image", "rm", "--unused", "--build-cache", "--dry-run").out
    done = builds.bareboat("image", "rm", "--unused", "--build-cache").out
    assert {line.split()[0] for line in planned.splitlines()} - {"would"} == {
        line.split()[0] for line in done.splitlines()
    } - {"freed"}
    for kind in ("build step", "cache mount", "layer"):
        assert kind in done
    assert builds.bareboat("run", "--image", "base", "--", "echo", "1").out == "1\n"


# ADD from the network.


@pytest.fixture(scope="module")
def web() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = archive({"f": b"1"}) if self.path.endswith(".tar") else b"content\n"
            if self.path.startswith("/missing"):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) + 5 * self.path.startswith("/short")))
            self.send_header("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()


def test_add_downloads(builds: Builds, web: tuple[str, list[str]]) -> None:
    address, asked = web
    digest = "sha256:" + hashlib.sha256(b"content\n").hexdigest()
    text = f"FROM base\nADD --checksum={digest} {address}/a/file /x/\nRUN test $(stat -c %a /x/file) = 600\n"
    image = builds.image(text)
    assert builds.tar(image, -1)["x/file"].mtime == 1700000000
    count = len(asked)
    builds.build(text + "LABEL a=b\n", {})
    assert len(asked) == count
    builds.build(f"FROM base\nADD {address}/a.tar /x\nRUN test -f /x\n", {})


def test_without_a_network_nothing_is_reached(builds: Builds, web: tuple[str, list[str]]) -> None:
    text = f"RUN wget -q -O- {web[0]}/file\nRUN --network=none ! wget -q -T 5 {web[0]}/file\n"
    builds.build(f"FROM base\n{text}", {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ADD {}/missing /x", "404"),
        ("ADD {}/short /x", "ended after 8 of 13 bytes"),
        ("ADD --checksum=sha256:" + "0" * 64 + " {}/a /x", "does not match its checksum"),
        ("ADD {}/ /x", "names no file"),
    ],
)
def test_a_download_that_fails_names_its_line(
    builds: Builds, web: tuple[str, list[str]], line: str, said: str
) -> None:
    answer = builds.bareboat(
        "image",
        "build",
        builds.context("FROM base\n\n" + line.format(web[0]) + "\n"),
        code=2 if "/ /x" in line else 6,
    )
    assert said in answer.err
    assert re.search(r"Dockerfile:3|expected", answer.err)


def test_an_image_may_have_settings_only(builds: Builds) -> None:
    image = builds.image("FROM scratch\nENV A=1\nLABEL b=c\n", {}, "-t", "settings")
    assert [layer.unpacked_bytes for layer in image.layers] == [0]
    assert image.environment["A"] == "1"
    assert "1" in builds.bareboat("image", "show", "settings").out
    builds.image("FROM settings\nCOPY f /f\n", {"f": "1"})


@pytest.mark.parametrize("overlay", [True, False])
def test_the_umask_changes_no_image(tmp_path: Path, overlay: bool) -> None:
    """Neither modes in a layer, nor those that a command sees."""
    text = (
        "FROM base\nCOPY d /d\nCOPY <<E /e\n1\nE\nADD a.tar /a\nWORKDIR /w/x\n"
        "RUN touch f && mkdir m && mkfifo p\nCOPY --from=base / /b/\n"
        "RUN --mount=target=/c,source=d --mount=type=cache,target=/k --mount=type=tmpfs,target=/t "
        "stat -c '%a %n' / /c /k /t /etc/hosts /etc/resolv.conf /c/* > /modes; chmod 600 /modes\n"
    )
    variables = {"SOURCE_DATE_EPOCH": "1600000000"}
    layers = []
    for mask in (0o022, 0o077):
        builds = Builds(tmp_path / oct(mask), dict(variables))
        builds.folder.mkdir()
        if not overlay:
            builds.begin_with()
        context = builds.context(text, {"d/f": "1", "d/g/h": "1", "a.tar": archive({"x": b"1", "y": None})})
        for path in (context, *context.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        before = os.umask(mask)
        try:
            builds.base()
            said = json.loads(builds.bareboat("image", "build", "--json", context).out)
        finally:
            os.umask(before)
        layers.append([each.diff_id for each in builds.store.image(said["digest"]).layers])
    assert layers[0] == layers[1]


def test_the_command_of_an_image_builds_it_again(builds: Builds) -> None:
    (builds.folder / "token").write_text("1")
    text = (
        "FROM base AS one\nARG A\nARG B\nRUN --network=none --mount=type=secret,id=t,required "
        'test "$A" = "x y" -a $B = z\nFROM scratch\n'
    )
    flags = ["--target", "one", "--build-arg", "A=x y", "--build-arg", "B", "--network", "none"]
    flags += [
        "--secret",
        "id=t,src=token",
        "--build-arg",
        "https_proxy=http://u:p@h",
    ]
    builds.variables["B"] = "z"
    image = builds.image(text, {}, *flags)
    words = shlex.split(image.built)
    assert "u:p" not in image.built
    assert words[0] == "bareboat"
    builds.variables["https_proxy"] = "http://u:p@h"
    try:
        said = json.loads(builds.bareboat(*words[1:], "--json", cwd=Path("/")).out)
    finally:
        del builds.variables["B"], builds.variables["https_proxy"]
    assert said["cached"] == 0
    assert builds.store.image(said["digest"]).built == image.built


def modes(builds: Builds, dockerfile: str, files: Files, chmods: dict[str, int]) -> dict[str, int]:
    """The modes of a copied layer's entries. `chmods`: modes of the context's entries."""
    context = builds.context(dockerfile, files)
    for name, mode in chmods.items():
        (context / name).chmod(mode)
    said = builds.bareboat("image", "build", "--json", context)
    tar = builds.tar(builds.store.image(json.loads(said.out)["digest"]))
    for name in chmods:
        (context / name).chmod(0o755)
    return {name: member.mode for name, member in tar.items()}


def test_a_copy_has_the_modes_of_buildkit(builds: Builds) -> None:
    """A directory keeps its mode, and --chmod sets it; the target of a directory's content has 0755."""
    files: Files = {"d/r/f": "1", "d/p/g": "1"}
    chmods = {"d/r": 0o555, "d/p": 0o700, "d": 0o700}
    found = modes(builds, "FROM base\nCOPY d /x\n", files, chmods)
    assert (found["x"], found["x/r"], found["x/p"]) == (0o755, 0o555, 0o700)
    found = modes(builds, "FROM base\nCOPY --chmod=444 d /x\n", files, chmods)
    assert (found["x"], found["x/r"], found["x/r/f"]) == (0o755, 0o444, 0o444)
    said = builds.build("FROM base\nCOPY d /x\nRUN ls -ld /x/r && test -f /x/r/f\n", files)
    assert said.code == 0


_ODD = {"ro": 0o555, "own": 0o500, "group": 0o2775, "closed": 0o000, "passed": 0o111, "sticky": 0o3777}


@pytest.mark.parametrize("overlay", [True, False])
def test_directories_of_a_base_keep_their_modes(builds: Builds, overlay: bool) -> None:
    """What a step adds to a directory does not change it, nor does a copy of it from another stage."""
    if not overlay:
        builds.begin_with()
    entries = [
        tars.folder(f"{name}/{inner}".encode(), mode) for name, mode in _ODD.items() for inner in ("", "in/")
    ]
    builds.foreign("odd", images.busybox(), tars.archive(*entries, tars.file(b"suid", b"1", mode=0o4755)))
    image = builds.image("FROM odd\nCOPY --from=odd / /x/\nCOPY --from=odd /closed /group /y/\n", {})
    copied = builds.tar(image, -2)
    assert {name: copied[f"x/{name}"].mode for name in _ODD} == _ODD
    assert copied["x/suid"].mode == 0o4755
    assert builds.tar(image)["y/in"].mode == 0o2775  # of the last source that has it
    image = builds.image(
        "FROM odd\nRUN --mount=type=tmpfs,target=/own/mount for each in /*/in; do touch $each/new; done "
        "&& chmod u+w /ro && touch /ro/new\n"
        "COPY f /ro/in/\nCOPY f /closed/in/\nRUN stat -c %a /ro/in > /modes && rm -r /own/in\n",
        {"f": "1"},
    )
    run, first, second, last = (builds.tar(image, number) for number in (-4, -3, -2, -1))
    assert {name: run[f"{name}/in"].mode for name in _ODD} == _ODD
    assert (run["ro"].mode, "own/mount" in run) == (0o755, False)
    assert (first["ro"].mode, first["ro/in"].mode) == (0o755, 0o555)
    assert (second["closed"].mode, second["closed/in"].mode) == (0, 0)
    assert (last["own"].mode, "own/.wh.in" in last) == (0o500, True)
    assert (builds.store.layer(image.layers[-1].diff_id) / "modes").read_text() == "555\n"


def test_a_class_is_negated_by_a_caret_only(builds: Builds) -> None:
    files: Files = {"x1": "1", "a1": "1", "!1": "1"}
    builds.build("FROM base\nCOPY [!x]1 /d/\nRUN test -f /d/x1 -a -f /d/!1 -a ! -e /d/a1\n", files)
    builds.build("FROM base\nCOPY [^x]1 /d/\nRUN test ! -e /d/x1 -a -f /d/a1\n", files)
    builds.build(
        "FROM base\nCOPY . /d/\nRUN test ! -e /d/x1 -a ! -e /d/!1 -a -f /d/a1\n",
        files | {".dockerignore": "[!x]1\n"},
    )


def test_a_socket_in_the_context_is_left_out(builds: Builds) -> None:
    context = builds.context("FROM base\nCOPY . /x\nRUN test -f /x/a -a ! -e /x/s\n", {"a": "1"})
    with socket.socket(socket.AF_UNIX) as listening:
        folder = os.open(context, os.O_RDONLY)
        try:
            listening.bind(f"/proc/self/fd/{folder}/s")
        finally:
            os.close(folder)
        builds.bareboat("image", "build", context)
        for step in ("COPY s /x/", "COPY [s] /x/", "ADD s /x/", "RUN --mount=source=s,target=/s true"):
            (context / "Dockerfile").write_text(f"FROM base\n{step}\n")
            said = builds.bareboat("image", "build", context, code=2)
            assert "'s' in the context" in said.err
            assert "is a socket, which no image can hold" in said.err


def test_a_definition_file_of_hpccm(builds: Builds) -> None:
    text = (
        "BootStrap: docker\nFrom: base\n%files # of the project\n    a /a\n"
        "%post\n    . /.singularity.d/env/10-docker*.sh\n%post # once more\n    test -f /a\n"
    )
    builds.build(text, {"a": "1"})
