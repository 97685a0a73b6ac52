"""The table of docs/building.md: each row of it is built here, or refused with its line."""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import images
import pytest
from building import Builds, wait_for_port
from registries import free_port
from tools import tool

from bareboat_images.recipe import mounts, stages
from bareboat_images.recipe.faults import RecipeError

PAGE = Path(__file__).parents[2] / "docs/building.md"
Row = tuple[str, str]
Files = dict[str, bytes | str | None]

TAR = images.tar({"d": None, "d/f": b"1"})
#: What all cases may copy.
FILES: Files = {
    "a": "1", "b c": "2", "d/a": "1", "d/x.log": "1", "d/e/f": "1", "k.tar": TAR, "l/.hidden": "1",
    "l/ignored": "1", ".dockerignore": "l/ignored\n",
}  # fmt: skip

#: Row -> what is built on the base; a RUN that is false fails it. {web} is an address that serves `file` and
#: `k.tar`, {sum} the SHA-256 of `file`, {git} a repository.
BUILT: dict[Row, str] = {
    ("file", "comments and continuations"): "RUN true \\\n# no\n\n && touch /x\nRUN test -f /x",
    ("file", "shell form"): "RUN test 1 = 1 && x=a; test $x = a",
    ("file", "JSON form"): """RUN ["/bin/sh", "-c", "test \\"$0\\" = 'a b'", "a b"]""",
    ("file", "heredocs"): "RUN <<-E\n\ttest a = a\n\ttouch /x\nE\nCOPY <<'F' /f\n$x\nF\n"
    "RUN test -f /x -a $(cat /f) = '$x'",
    ("file", "variables"): "ENV V=a\nENV W=${V-x}${N:-y}${V:+z}${V:?}\n"
    "RUN test $W = ayza",
    ("file", ".dockerignore"): "COPY l /l\nRUN test -f /l/.hidden -a ! -e /l/ignored",
    ("FROM", "`AS NAME`"): "RUN touch /x\nFROM first AS next\nRUN test -f /x",
    ("FROM", "`scratch`"): "FROM scratch AS none\nCOPY a /a\nFROM base\n"
    "COPY --from=none / /n/\nRUN test -f /n/a",
    ("FROM", "`--platform`"): "FROM --platform=$BUILDPLATFORM base\nRUN true",
    ("ARG", "before FROM"): "ARG ONE\nRUN test $ONE = 1",
    ("ARG", "after FROM"): "ARG A=1 B=${A}2\nENV B=3\nRUN test $A = 1 -a $B = 3",
    ("ARG", "`TARGETPLATFORM`, `BUILDARCH` and the like"): "ARG TARGETPLATFORM BUILDARCH TARGETVARIANT\n"
    "RUN test $TARGETPLATFORM = linux/$BUILDARCH",
    ("ARG", "`http_proxy` and the like"): "RUN test $http_proxy = 127.0.0.1:9",
    ("ARG", "`SOURCE_DATE_EPOCH`"): "ARG SOURCE_DATE_EPOCH\nRUN test $SOURCE_DATE_EPOCH = 1700000000",
    ("RUN", "`--mount=type=bind`"): "RUN --mount=target=/m,source=d,rw touch /m/n && test -f /m/a\n"
    "RUN --mount=type=bind,from=base,src=/etc,dst=/m grep -q app /m/passwd && ! touch /m/x",
    ("RUN", "`--mount=type=cache`"): "RUN --mount=type=cache,id=t,target=/c,sharing=locked,mode=0700 "
    "touch /c/x\n"
    "RUN --mount=type=cache,id=t,target=/k,ro test -f /k/x",
    ("RUN", "`--mount=type=tmpfs`"): "RUN --mount=type=tmpfs,target=/t,size=1m touch /t/a "
    "&& grep -q ' /t tmpfs' /proc/mounts\nRUN test ! -e /t/a",
    ("RUN", "`--mount=type=secret`"): "RUN --mount=type=secret,id=s,required=true,mode=0444 "
    "test $(cat /run/secrets/s) = known\nRUN --mount=type=secret,id=s,env=S test $S = known\n"
    "RUN --mount=type=secret,id=none test ! -e /run/secrets/none",
    ("RUN", "`--network=default`, `--network=host`"): "RUN --network=default true\nRUN --network=host true",
    ("RUN", "`--network=none`"): "RUN unset http_proxy; wget -q -O- {web}/file\n"
    "RUN --network=none unset http_proxy; ! wget -q -T 5 {web}/file",
    ("RUN", "`--security=sandbox`"): "RUN --security=sandbox true",
    ("COPY", "files, directories, patterns"): "COPY a b?c /x/\nCOPY d /y\n"
    "RUN test -f /x/a -a -f '/x/b c' -a -f /y/e/f",
    ("COPY", "`--from`"): "COPY --from=late /o /p\nCOPY --from=base /etc/passwd /q\n"
    "COPY --from=2 /r /r\nRUN test -f /p -a -f /q -a -f /r\nFROM base AS late\nRUN touch /o\n"
    "FROM base\nRUN touch /r\nFROM first\nRUN test -f /r",
    ("COPY", "`--chown`"): "COPY --chown=app:staff a /x\nCOPY --chown=42 a /y\nRUN test -f /x",
    ("COPY", "`--chmod`"): "ARG M=640\nCOPY --chmod=$M a /x\nCOPY --chmod=u=rwX,go=rX d /y\n"
    "RUN test $(stat -c %a /x) = 640 -a $(stat -c %a /y/e) = 755",
    ("COPY", "`--link`"): "COPY --link a /n/x\nCOPY --link=false a /n/y\nRUN test -f /n/x -a -f /n/y",
    ("COPY", "`--exclude`"): "COPY --exclude=*.log --exclude=e d /x\n"
    "RUN test -f /x/a -a ! -e /x/x.log -a ! -e /x/e",
    ("ADD", "files and directories"): 'ADD ["b c", "/b c"]\nADD d /x/\nRUN test -f "/b c" -a -f /x/a',
    ("ADD", "archives"): "ADD k.tar /x\nRUN test -f /x/d/f",
    ("ADD", "URLs"): "ADD {web}/file /x/\nRUN test $(stat -c %a /x/file) = 600",
    ("ADD", "`--checksum`"): "ADD --checksum=sha256:{sum} {web}/file /x\nRUN test -f /x",
    ("ADD", "`--chown`, `--chmod`, `--link`, `--exclude`"): "ADD --chown=app --chmod=600 --link a /x\n"
    "ADD --exclude=*.log d /y\nRUN test $(stat -c %a /x) = 600 -a ! -e /y/x.log",
    ("HEALTHCHECK", ""): "HEALTHCHECK --interval=1m --retries=5 CMD c\nHEALTHCHECK NONE",
    ("WORKDIR", ""): "WORKDIR /w\nWORKDIR x\nRUN test $PWD = /w/x",
    ("USER", "name or number, with a group"): "USER app:staff\nRUN test $(id -u):$(id -g) = 1000:50\n"
    "USER 7:8\nRUN test $(id -u):$(id -g) = 7:8",
    ("SHELL", ""): 'SHELL ["/bin/sh", "-e", "-c"]\nRUN set -- $-; case $1 in *e*) ;; *) exit 1;; esac',
    ("ENV", "`NAME=VALUE`"): 'ENV P="x y" Q=z\nRUN test "$P$Q" = "x yz"',
    ("ENV", "`NAME VALUE`"): "ENV OLD one two\nRUN test \"$OLD\" = 'one two'",
}  # fmt: skip

#: Row -> the instruction, a key of the configuration and its value.
KEPT: dict[Row, tuple[str, str, object]] = {
    ("CMD", "shell and JSON form"): ('CMD ["x", "y"]', "Cmd", ["x", "y"]),
    ("ENTRYPOINT", "shell and JSON form"): ("ENTRYPOINT run it", "Entrypoint", ["/bin/sh", "-c", "run it"]),
    ("LABEL", ""): ("LABEL k=v 'x y'=\"a $HOME\"", "Labels", {"k": "v", "x y": "a "}),
    ("MAINTAINER", ""): ("MAINTAINER somebody", "author", "somebody"),
    ("EXPOSE", ""): ("EXPOSE 80 90-91/udp", "ExposedPorts", {"80/tcp": {}, "90/udp": {}, "91/udp": {}}),
    ("VOLUME", ""): ('VOLUME ["/v", "/w"]', "Volumes", {"/v": {}, "/w": {}}),
    ("STOPSIGNAL", ""): ("STOPSIGNAL SIGINT", "StopSignal", "SIGINT"),
}  # fmt: skip

#: Row -> an instruction that is refused, and what the error has.
REFUSED: dict[Row, tuple[str, str]] = {
    ("file", "another frontend's instructions"): ("INCLUDE other", "unknown instruction 'INCLUDE'"),
    ("FROM", "another platform"): ("FROM --platform=plan9/mips base", "not this machine's"),
    ("RUN", "`--security=insecure`"): ("RUN --security=insecure true", "--security is not supported"),
    ("file", "variables with `#`, `%`, `/`"): ("ENV V=${A%.*}", "the modifier '%' of ${A…} is not supported"),
    ("RUN", "`--mount=type=cache` with `from=`, `source=`, `sharing=private`"): (
        "RUN --mount=type=cache,target=/c,from=base true",
        "'from' is not a key of type=cache",
    ),
    ("COPY", "`--parents`"): ("COPY --parents d/a /x/", "--parents is not supported"),
    ("ADD", "`--unpack`"): ("ADD --unpack=false a.tar /x/", "--unpack is not supported"),
    ("RUN", "`--device`"): ("RUN --device=vendor.com/gpu true", "--device is not supported"),
    ("RUN", "`--network` of another name"): ("RUN --network=custom true", "--network='custom'"),
    ("RUN", "`--mount` of another type"): ("RUN --mount=type=image,target=/m true", "type 'image'"),
    ("RUN", "variables in `from=`"): ("RUN --mount=from=$S,target=/m true", "does not take variables"),
    ("COPY", "variables in `--from`"): ("COPY --from=$S a b", "does not take variables"),
    ("RUN", "`--mount=type=ssh`"): ("RUN --mount=type=ssh true", "type=ssh is not supported"),
    ("ADD", "git repositories"): ("ADD https://x.org/a.git /x", "ADD of a git repository is not supported"),
    ("ONBUILD", ""): ("ONBUILD COPY a b", "ONBUILD is not supported"),
    ("any", "unknown flags"): ("COPY --mode=1 a b", "unknown flag --mode"),
}
#: Rows that no Dockerfile of one stage shows, and the tests for them.
BY_TEST: dict[Row, str] = {
    ("file", "`# syntax`, `# escape`, `# check`"): "test_directives",
    ("ARG", "`BUILDKIT_…`"): "test_arguments_of_buildkit_are_not_ignored_silently",
}


def rows() -> dict[Row, str]:
    """The rows of the table: instruction and form -> yes or no."""
    found: dict[Row, str] = {}
    text = PAGE.read_text().partition("\n## What is supported\n")[2].partition("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[2] in ("yes", "no"):
            row = (cells[0], cells[1])
            assert row not in found, row
            found[row] = cells[2]
    return found


def test_each_row_of_the_table_has_a_test_and_each_test_a_row() -> None:
    expected = dict.fromkeys((*BUILT, *KEPT), "yes") | dict.fromkeys(REFUSED, "no")
    expected |= {("file", "`# syntax`, `# escape`, `# check`"): "yes", ("ARG", "`BUILDKIT_…`"): "no"}
    assert rows() == expected
    assert all(name in globals() for name in BY_TEST.values())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A web server and a repository."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "file").write_bytes(b"content\n")
    (folder / "k.tar").write_bytes(TAR)
    work = folder / "work"
    (work / "d").mkdir(parents=True)
    (work / "d/f").write_text("1")
    git = [tool("git"), "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run([tool("git"), "clone", "-q", "--bare", str(work), str(folder / "r.git")], check=True)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    web = f"http://127.0.0.1:{server.server_port}"
    port = free_port()
    daemon = subprocess.Popen(
        [tool("git"), "daemon", "--reuseaddr", f"--port={port}", "--listen=127.0.0.1",
         f"--base-path={folder}", "--export-all"],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for_port(port)
        digest = hashlib.sha256(b"content\n").hexdigest()
        yield {"web": web, "git": f"git://127.0.0.1:{port}/r.git", "sum": digest}
    finally:
        daemon.terminate()
        daemon.wait()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("row", BUILT, ids=" ".join)
def test_what_is_supported_is_built(builds: Builds, served: dict[str, str], row: Row) -> None:
    text = f"ARG ONE=1\nFROM base AS first\n{BUILT[row]}\n"
    for key, value in served.items():
        text = text.replace(f"{{{key}}}", value)
    (builds.folder / "secret").write_text("known")
    flags = ["--secret", "id=s,src=secret", "--build-arg", "http_proxy=127.0.0.1:9"]
    builds.build(text, FILES, *flags, "--build-arg", "SOURCE_DATE_EPOCH=1700000000")


def test_settings_are_in_the_configuration(builds: Builds) -> None:
    """Of several rows for one key each in a build of its own."""
    for key in dict.fromkeys(key for _, key, _ in KEPT.values()):
        for row in [row for row in KEPT if KEPT[row][1] == key]:
            found = builds.config(builds.image(f"FROM base\n{KEPT[row][0]}\n"))
            assert (found if key == "author" else found["config"])[key] == KEPT[row][2], row


@pytest.mark.parametrize("row", REFUSED, ids=" ".join)
def test_what_is_not_supported_is_refused_by_line(builds: Builds, row: Row) -> None:
    line, said = REFUSED[row]
    answer = builds.build(f"FROM base\n\nARG S=base\n{line}\n", {"a": "1"}, code=2)
    assert said in answer.err
    assert "/Dockerfile:4" in answer.err
    assert "try: " in answer.err


def test_no_flag_is_left_out_of_the_table() -> None:
    """Every flag that the parser knows is in a row of its instruction."""
    from bareboat_images.recipe.instructions import FLAGS, INSTRUCTIONS

    named = {name: " ".join(form for row, form in rows() if row == name) for name in (*INSTRUCTIONS, "any")}
    for name, flags in FLAGS.items():
        for flag in flags:
            assert f"--{flag}" in named[name], (name, flag)
    assert all(any(row == name for row, _ in rows()) for name in INSTRUCTIONS)
    for kind in mounts._KEYS:
        assert f"--mount=type={kind}" in named["RUN"]


def test_directives() -> None:
    text = "# syntax=docker/dockerfile:1\n# escape=`\n# check=skip=all\nFROM a\nRUN b `\n c\\\n"
    found = stages.read(text, given={}, builtin={})
    assert found.stages[0].steps[0].args == ("b  c\\",)
    with pytest.raises(RecipeError, match="escape character"):
        stages.read("# escape=x\nFROM a\n", given={}, builtin={})


def test_arguments_of_buildkit_are_not_ignored_silently(builds: Builds) -> None:
    flags = ("--build-arg", "BUILDKIT_INLINE_CACHE=1", "--json")
    said = json.loads(builds.build("FROM base\nLABEL a=b\n", {}, *flags).out)
    assert said["warnings"] == ["build argument BUILDKIT_INLINE_CACHE is not used: no ARG declares it"]


def test_a_health_check_is_not_dropped_silently(builds: Builds) -> None:
    said = json.loads(builds.build("FROM base\nHEALTHCHECK --timeout=2s CMD c\n", {}, "--json").out)
    assert ":2: " in said["warnings"][0]
