"""Builds that are killed, that meet each other, and whose input is wrong: one error, and the store right."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import forked
import images
import pytest
from building import BASE, Builds
from tools import completed, tool
from watch import wait_until

SEED = 20261123


Files = dict[str, bytes | str | None]

#: Dockerfile below FROM -> files, exit code, and what is said with its line.
REFUSED: list[tuple[str, Files, int, str]] = [
    ("RUN echo before; false", {}, 1, "before"),
    ("RUN exit 70", {}, 1, "RUN exited with code 70"),
    ("RUN exit 255", {}, 1, "RUN exited with code 255"),
    ("RUN kill -9 $$", {}, 1, "killed by signal 9"),
    ('RUN ["/none"]', {}, 1, "name a program that the image has"),
    ("COPY none /x", {}, 2, "'none': not found in the context"),
    ("COPY ../a /x", {"a": "1"}, 2, "leads out of the context"),
    ("COPY d/../../a /x", {"a": "1"}, 2, "leads out of the context"),
    ("COPY l /x", {"l": "-> /etc/passwd"}, 2, "links are followed inside only"),
    ("COPY d/l /x", {"d/l": "-> ../../../../etc/passwd"}, 2, "links are followed inside only"),
    ("COPY a b /etc/passwd", {"a": "1", "b": "1"}, 6, "is a file in the image"),
    ("COPY --chmod=9 a /x", {"a": "1"}, 2, "is not a mode"),
    ("COPY --chown=nobodyhere a /x", {"a": "1"}, 2, "not in the image's /etc/passwd"),
    ("COPY --chown=app:nogroup a /x", {"a": "1"}, 2, "not in the image's /etc/group"),
    ("COPY [z-a] /x", {"a": "1"}, 2, "damaged class"),
    ("COPY d /etc/passwd", {"d/a": "1"}, 6, "cannot become a directory"),
    ("COPY a /etc/passwd/x", {"a": "1"}, 2, "is not a directory"),
    ("COPY . /x", {".wh.a": "1"}, 6, "cannot be in a layer"),
    ("USER nobodyhere\nRUN true", {}, 2, "not in the image's /etc/passwd"),
    ("WORKDIR /etc/passwd/x", {}, 2, "is not a directory"),
    ("EXPOSE 70000", {}, 2, "is not a port"),
    ("STOPSIGNAL stop", {}, 2, "is not a signal"),
    ("STOPSIGNAL FOO", {}, 2, "is not a signal"),
    ("COPY a* b? /x/", {}, 2, "not found in the context"),
    ("COPY ../* a /x/", {"a": "1"}, 2, "leads out"),
    ('COPY "a b" "/c d"', {"a b": "1"}, 2, "requires the JSON form"),
    ("ENV A=${B:?give B}", {}, 2, "give B"),
    ("RUN --network=bridge true", {}, 2, "--network='bridge'"),
    ("RUN --security=insecure true", {}, 2, "--security is not supported"),
    ("RUN truncate -s 400000000000 /f", {}, 6, "nearly all of them holes"),
    ("ADD git@nowhere.invalid:a/b.git /x", {}, 2, "is not supported"),
    ("ADD http://127.0.0.1:1/a /x", {}, 6, "cannot be downloaded"),
    ("COPY --from=docker.invalid/none:1 / /", {}, 6, "docker.invalid"),
    ("RUN --mount=from=9,target=/m true", {}, 2, "9 is not one of"),
    ("ARG S=base\nRUN --mount=from=$S,target=/m true", {}, 2, "from= does not take variables"),
    ("RUN --mount=type=tmpfs,target=/etc/passwd/x true", {}, 2, "/etc/passwd is not a directory"),
    ("ADD http://localhost:abc/f /x", {}, 6, "cannot be downloaded"),
    ("COPY a /x", {"a": "1", ".dockerignore": "-> none"}, 2, ".dockerignore not found"),
    ("COPY d* /x/", {"d/a": "1", "e": "1", ".dockerignore": "*\n!e\n"}, 2, "not found in the context"),
    ("COPY d /x/", {"d/a": "1", "e": "1", ".dockerignore": "*\n!e\n"}, 2, "left out by .dockerignore"),
]


@pytest.mark.parametrize(("text", "files", "code", "said"), REFUSED, ids=[each[0] for each in REFUSED])
def test_what_is_wrong_is_refused_with_its_line(
    builds: Builds, text: str, files: Files, code: int, said: str
) -> None:
    answer = builds.build(f"FROM base AS one\nFROM base\n{text}\n", files, code=code)
    if code:
        assert said in answer.err
        assert "try: " in answer.err
        assert "/Dockerfile:" in answer.err or ".dockerignore not" in said
        assert answer.out == ""
    assert not any((builds.store.root / "tmp").iterdir())


def tar_of(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size, made.mode = kind, link, size, 0o755
    return made


@pytest.mark.parametrize(
    "members",
    [
        [member("../../escaped", size=1)],
        [member("l", tarfile.SYMTYPE, "/"), member("l/../../escaped", size=1)],
        [member("a", tarfile.LNKTYPE, "../../../etc/passwd")],
        [member(".wh.etc")],
        [member("d/.wh..wh..opq"), member("d", tarfile.DIRTYPE)],
        [member("a" * 300 + "/b", size=1)],
    ],
)
def test_an_archive_writes_nothing_outside(builds: Builds, members: list[tarfile.TarInfo]) -> None:
    context = builds.context("FROM base\nADD a.tar /x/\n", {"a.tar": tar_of(*members)})
    environment = os.environ | {"BAREBOAT_STORE": str(builds.folder / "store")}
    done = forked.run("image", "build", context, env=environment, timeout_s=120)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 6)
    assert not list(builds.folder.rglob("escaped"))
    assert "root:x:0:0::" in builds.bareboat("run", "--image", "base", "--", "cat", "/etc/passwd").out


def test_an_absolute_link_of_an_archive_stays_a_link(builds: Builds) -> None:
    data = tar_of(member("l", tarfile.SYMTYPE, "/etc/passwd"))
    image = builds.image("FROM base\nADD a.tar /x/\n", {"a.tar": data})
    assert builds.tar(image)["x/l"].linkname == "/etc/passwd"


TEXT = """FROM base AS one
COPY . /src
RUN mkdir -p /d && i=0; while [ $i -lt 200 ]; do echo $i > /d/$i; i=$((i+1)); done; sleep 0.2
FROM base AS two
RUN sleep 0.3; echo two > /two
FROM base
COPY --from=one /d /d
COPY --from=two /two /two
RUN sleep 0.2; cat /two > /three
"""


def _started(builds: Builds, context: Path) -> subprocess.Popen[bytes]:
    own = {"BAREBOAT_STORE": str(builds.folder / "store"), "SOURCE_DATE_EPOCH": "1700000000"}
    return subprocess.Popen(
        [sys.executable, "-m", "bareboat", "image", "build", "--json", "-t", "made:1", context],
        env=os.environ | builds.variables | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _left(store: Path) -> list[str]:
    """Processes that still have the store in their arguments."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(store) in words and int(name) != os.getpid():
            found.append(words.decode(errors="replace"))
    return found


def _in_order(store: Path) -> None:
    """Nothing half-written, no lock: as a store is after builds that ended."""
    assert not any((store / "tmp").iterdir())
    assert not any((store / "leases").iterdir())
    for record in (store / "builds/steps").iterdir():
        diff_id = json.loads(record.read_bytes()).get("diff_id", "")
        if diff_id:
            folder = store / "layers" / diff_id.replace(":", "/")
            assert {"tree", "layer.json"} <= set(os.listdir(folder))
    for layer in (store / "layers").glob("sha*/*"):
        assert {"tree", "layer.json"} <= set(os.listdir(layer))


def test_builds_that_are_killed_leave_a_store_that_is_right(tmp_path: Path, exhaustive: bool) -> None:
    """By SIGKILL at work, fifty times with --exhaustive, and by SIGTERM as well: layers and image are those
    of a build that nobody killed, in another store."""
    chance = random.Random(SEED)
    files: Files = {f"f{number}": "x" * number for number in range(100)}
    stores = []
    for name in ("whole", "killed"):
        stores.append(Builds(tmp_path / name, {"SOURCE_DATE_EPOCH": "1700000000"}))
        stores[-1].folder.mkdir()
        stores[-1].base()
    whole, builds = stores
    began = time.monotonic()
    expected = json.loads(whole.build(TEXT, files, "--json").out)["digest"]
    longest = time.monotonic() - began
    context = builds.context(TEXT, files)
    killed = 0
    while killed < (50 if exhaustive else 5):
        process = _started(builds, context)
        time.sleep(chance.uniform(0.05, longest))
        number = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
        os.kill(process.pid, number)
        process.communicate(timeout=30)
        killed += process.returncode == -signal.SIGKILL
        if process.returncode == 0:  # it was quicker
            builds.bareboat("image", "rm", "made:1")
            builds.bareboat("image", "rm", "--unused", "--build-cache")
        assert wait_until(lambda: not _left(builds.store.root), limit_s=10), _left(builds.store.root)
    process = _started(builds, context)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out)["digest"] == expected
    _in_order(builds.store.root)
    builds.bareboat("image", "verify", "made:1")
    again = json.loads(builds.bareboat("image", "build", "--json", context).out)
    assert (again["digest"], again["cached"]) == (expected, again["steps"])
    said = builds.bareboat("run", "--image", "made:1", "--", "sh", "-c", "ls /d | wc -l; cat /three")
    assert said.out == "200\ntwo\n"


def test_a_build_killed_before_its_step_has_started_ends_it(tmp_path: Path) -> None:
    """bubblewrap's --die-with-parent counts from a moment after its start, which is late on a busy node."""
    builds = Builds(tmp_path / "builds")
    builds.folder.mkdir()
    builds.begin_with(
        "from bareboat_images.builder import run\n"
        "start = run.Runner._argv\n"
        "run.Runner._argv = lambda *given: ['sh', '-c', 'sleep 2; exec \"$@\"', 'sh', *start(*given)]\n"
    )
    builds.base()
    context = builds.context(f"FROM base\nRUN sleep 60; : {builds.store.root}\n")
    process = _started(builds, context)
    assert wait_until(lambda: any("sleep 2; exec" in words for words in _left(builds.store.root)))
    process.kill()
    process.communicate(timeout=30)
    time.sleep(3)
    assert _left(builds.store.root) == []


def test_builds_at_once_run_a_step_once(builds: Builds) -> None:
    text = "FROM base\nRUN --mount=type=cache,id=count,target=/c sleep 0.5; echo ran >> /c/log; echo 1 > /x\n"
    context = builds.context(text)
    running = [_started(builds, context) for _ in range(4)]
    answers = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * 4, answers
    assert len({json.loads(out)["digest"] for out, _ in answers}) == 1
    builds.build("FROM base\nRUN --mount=type=cache,id=count,target=/c test $(wc -l < /c/log) = 1\n", {})


def test_a_background_process_ends_with_its_step(builds: Builds) -> None:
    began = time.monotonic()
    builds.build("FROM base\nRUN sleep 120 & echo started\nRUN (sleep 121 >/dev/null 2>&1 &) ; true\n", {})
    assert time.monotonic() - began < 60
    assert not any("sleep 12" in words for words in _left(Path("sleep")))


def test_a_file_of_holes_is_refused_before_it_is_read(builds: Builds) -> None:
    context = builds.context("FROM base\nCOPY . /x\n")
    with open(context / "disk.img", "wb") as stream:
        stream.truncate(3 << 40)
    began = time.monotonic()
    said = builds.bareboat("image", "build", context, code=6)
    assert "disk.img in the context" in said.err
    assert "nearly all of them holes" in said.err
    assert ".dockerignore" in said.err
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_reading_of_a_large_file(builds: Builds, number: signal.Signals) -> None:
    context = builds.context("FROM base\nCOPY . /x\n")
    with open(context / "disk.img", "wb") as stream:
        for _ in range(64):  # enough blocks not to be refused as holes
            stream.write(b"1" * (1 << 20))
        stream.truncate(60 << 30)
    process = subprocess.Popen(
        [sys.executable, "-m", "bareboat", "image", "build", str(context)],
        env=os.environ | {"BAREBOAT_STORE": str(builds.folder / "store")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    def reads() -> bool:
        with contextlib.suppress(OSError):
            links = Path(f"/proc/{process.pid}/fd")
            return any(os.path.basename(os.readlink(each)) == "disk.img" for each in links.iterdir())
        return False

    try:
        assert wait_until(reads, limit_s=60)
        began = time.monotonic()
        process.send_signal(number)
        process.communicate(timeout=20)
        assert time.monotonic() - began < 10
        assert process.returncode == 128 + number
    finally:
        process.kill()
        process.communicate()
    assert not any((builds.store.root / "tmp").iterdir())


def test_an_interrupt_ends_the_build_and_its_step(builds: Builds) -> None:
    context = builds.context("FROM base\nRUN sleep 100\n")
    process = _started(builds, context)
    time.sleep(3)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert _left(builds.store.root) == []
    assert not any((builds.store.root / "tmp").iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("EXPOSE 80 70000", "is not a port"),
        ("EXPOSE ${P", "${P does not end"),
        ("STOPSIGNAL stop", "is not a signal"),
        ("RUN --network=bridge true", "--network='bridge'"),
        ("COPY --chmod=u+z a /x", "is not a mode"),
        ("COPY ${A a /x", "${A does not end"),
        ("ENV A=${B", "${B does not end"),
        ("ARG A=${B^^}", "the modifier '^' of ${B…} is not supported"),
        ("WORKDIR ${", "names no variable"),
    ],
)
def test_a_fault_is_found_before_the_first_step(builds: Builds, text: str, said: str) -> None:
    context = builds.context(f"FROM base\nRUN echo be''gun\n{text}\n", {"a": "1"})
    for flags in (("--dry-run",), ()):
        found = builds.bareboat("image", "build", *flags, context, code=2)
        assert said in found.err
        assert "Dockerfile:3" in found.err
        assert "begun" not in found.err


@pytest.mark.parametrize("word", ["ENV", "ARG", "LABEL"])
def test_variables_of_variables_are_limited_together(builds: Builds, word: str) -> None:
    lines = ["ENV A=" + "x" * 1000, "ENV B=" + "$A" * 1000, *(f"{word} C{number}=$B" for number in range(20))]
    said = builds.build("\n".join(["FROM scratch", *lines]), {}, code=2)
    assert "longer than 16 megabytes" in said.err


def test_standard_input_is_not_supported(builds: Builds) -> None:
    said = builds.bareboat("image", "build", "-f", "-", builds.context("FROM base\n", {}), code=2)
    assert "a Dockerfile from standard input is not supported" in said.err


def test_what_variables_decide_is_no_fault_before_it(builds: Builds) -> None:
    text = (
        "FROM base\nARG P=80 S=TERM N=none M=644\nEXPOSE $P\nSTOPSIGNAL SIG$S\nRUN --network=$N true\n"
        "COPY --chmod=$M a /x\nENV A=${P:?unset} B=${NONE:-b}\n"
    )
    builds.build(text, {"a": "1"})


def test_a_failing_stage_ends_the_others(builds: Builds) -> None:
    text = "FROM base AS a\nRUN sleep 100\nFROM base AS b\nRUN sleep 1; exit 3\nFROM a\nCOPY --from=b / /b\n"
    began = time.monotonic()
    said = builds.build(text, {}, code=1)
    assert "RUN exited with code 3" in said.err
    assert time.monotonic() - began < 60


def test_without_overlayfs_the_result_is_the_same(tmp_path: Path) -> None:
    text = (
        "FROM base\nRUN mkdir -p /d/e && echo 1 > /d/f && ln /d/f /d/g && ln -s f /d/l\n"
        "RUN rm -r /d/e /etc/group && echo 2 > /d/h && chmod 700 /d && mkfifo /p\n"
        "RUN rm -r /d && mkdir /d && touch /d/new && rm /p && mkdir /p\nUSER app\nRUN echo 3 > /tmp/three\n"
    )
    names = []
    for folder in ("with", "without"):
        builds = Builds(tmp_path / folder, {"SOURCE_DATE_EPOCH": "1600000000"})
        builds.folder.mkdir()
        if folder == "without":
            builds.begin_with()
        builds.base()
        image = builds.image(text)
        view = builds.bareboat(
            "run", "--image", image.digest, "--", "sh", "-c", "ls -la /d /p /tmp/three /etc/group; true"
        ).out
        names.append(
            (
                [sorted((each.name, each.mode, each.uid, each.size) for each in builds.tar(image, n).values())
                 for n in range(1, len(image.layers))],
                [line.split()[:1] for line in view.splitlines()],
            )
        )  # fmt: skip
    assert names[0][1] == names[1][1]
    # A directory that is made again hides the old one as a whole, or each of its files.
    for one, other in zip(names[0][0], names[1][0], strict=True):
        shown = [[each for each in layer if not each[0].startswith("d/.wh.")] for layer in (one, other)]
        assert shown[0] == shown[1]


_OFF = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all "$@"'


def test_without_user_namespaces_the_fix_is_named(builds: Builds) -> None:
    context = builds.context("FROM base\nCOPY a /a\nRUN echo $RANDOM\n", {"a": "1"})
    done = subprocess.run(
        [tool("unshare"), "-Ur", "sh", "-c", _OFF, "sh", sys.executable, "-m", "bareboat", "image",
         "build", context],
        env=os.environ | {"BAREBOAT_STORE": str(builds.folder / "store")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "RUN cannot run here" in done.stderr
    assert "bareboat doctor" in done.stderr


def test_a_full_disk_is_named(builds: Builds, tmp_path: Path) -> None:
    """The store is on a file system of 40 MB, mounted in a namespace."""
    folder = tmp_path / "small"
    folder.mkdir()
    busybox = builds.folder / "context-1" / "base.tar"
    context = builds.context(
        f"{BASE}RUN head -c 60000000 /dev/zero > /big\n", {"base.tar": busybox.read_bytes()}
    )
    script = (
        'mount -t tmpfs -o size=40m none "$1" && "$PYTHON" -m bareboat image build --store "$1/s" "$2"; '
        'echo "exit $?"; ls -A "$1/s/tmp" | wc -l'
    )
    done = completed(
        [tool("unshare"), "-Urm", "sh", "-c", script, "sh", str(folder), str(context)],
        env=os.environ | {"PYTHON": sys.executable},
    )
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
    assert "free some space in the store" in done.stderr
    assert done.stdout.split() == ["exit", "1", "0"]


def test_a_huge_context_is_not_read_when_nothing_is_copied(builds: Builds) -> None:
    context = builds.context("FROM base\nCOPY a /a\n", {"a": "1"})
    with open(context / "huge", "wb") as stream:
        stream.truncate(1 << 40)
    began = time.monotonic()
    builds.bareboat("image", "build", context)
    assert time.monotonic() - began < 60


def _victim(builds: Builds) -> Path:
    """A directory of the user's own, outside the store and of contexts."""
    folder = builds.folder / "victim"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    (folder / "authorized_keys").write_text("mine")
    (folder / "emptyfile").touch()
    (folder / "emptydir").mkdir()
    return folder


def _is_whole(victim: Path) -> bool:
    return (
        sorted(each.name for each in victim.iterdir()) == ["authorized_keys", "emptydir", "emptyfile"]
        and (victim / "authorized_keys").read_text() == "mine"
    )


@pytest.mark.parametrize(
    "copy",
    [
        "COPY --exclude=two/d/link --exclude=!two/d/link/authorized_keys one/ two/ /dst/",
        "COPY one/ two/ /dst/",
        "COPY one/ /dst/\nCOPY two/ /dst/",
    ],
)
@pytest.mark.parametrize("base", ["scratch", "base"])
def test_a_copy_follows_no_link_that_it_wrote(builds: Builds, base: str, copy: str) -> None:
    victim = _victim(builds)
    said = builds.build(
        f"FROM {base}\n{copy}\n",
        {
            "one/d/link": f"-> {victim}",
            "two/d/link/authorized_keys": "theirs",
            "two/d/link/new/file": "theirs",
        },
        code=6,
    )
    assert "/dst/d/link cannot become a directory" in said.err
    assert _is_whole(victim)


def test_a_file_of_two_names_that_was_replaced_keeps_its_content(builds: Builds) -> None:
    context = builds.context(
        'FROM base\nCOPY one two three /d/\nRUN test "$(cat /d/a /d/b)" = twoone\n',
        {"one/a": "one", "two/a": "two", "three": None},
    )
    os.link(context / "one/a", context / "three/b")
    builds.bareboat("image", "build", context)


def test_a_run_that_moves_a_mount_point_removes_nothing_outside(either: Builds) -> None:
    victim = _victim(either)
    before = os.stat(victim).st_mtime_ns
    either.build(
        "FROM base\n"
        "RUN --mount=type=secret,id=s,target=/run/q/emptyfile --mount=type=tmpfs,target=/run/q/emptydir "
        f"mv /run/q /run/z && ln -s {victim} /run/q\n",
        {},
        "--secret",
        "id=s,env=HOME",
    )
    assert _is_whole(victim)
    assert os.stat(victim).st_mtime_ns == before


@pytest.mark.parametrize(
    "path", ["/../../../../../../../../../../../..{}/new", "{}/new", "/out/new", "//new"]
)
def test_a_working_directory_of_a_base_is_made_inside(either: Builds, path: str) -> None:
    victim = _victim(either)
    tar = images.busybox(out=str(victim))
    either.foreign("hostile", tar, WorkingDir=path.format(victim))
    either.build('FROM hostile\nRUN test -d "$(pwd)" && touch here && ls here\n', {})
    assert _is_whole(victim)


def test_no_value_of_a_base_mounts_the_host(builds: Builds) -> None:
    """bubblewrap reads variables as words that end in NUL bytes; others would follow as its own arguments."""
    victim = _victim(builds)
    line = f"root:x:0:0:root:/root\0--bind\0{victim}\0/tmp:/bin/sh\n".encode()
    builds.foreign("by-passwd", images.busybox(**{"etc/passwd": line}))
    said = builds.build("FROM by-passwd\nRUN rm /tmp/authorized_keys\n", {}, code=2)
    assert "has a NUL byte" in said.err
    builds.foreign("by-env", images.busybox(), Env=[f"A=b\0--bind\0{victim}\0/tmp"])
    said = builds.build("FROM by-env\nRUN rm /tmp/authorized_keys\n", {}, code=6)
    assert "NUL byte" in said.err
    said = builds.build("FROM base\nENV A=b\0--bind\0/\0/tmp\nRUN rm /tmp/authorized_keys\n", {}, code=2)
    assert "NUL byte" in said.err
    assert _is_whole(victim)


def test_words_of_a_run_stay_as_they_are(builds: Builds) -> None:
    words = ["APT", "FILTER", "ARGUMENTS", "DATA0", "DATA1"]
    shown = " ".join(f'"{word}"' for word in words).replace(" ", ", ")
    test = f'test \\"$0 $*\\" = \\"{" ".join(words)}\\" -a -s /s'
    builds.build(
        f'FROM base\nRUN --mount=type=secret,id=s,target=/s ["/bin/sh", "-c", "{test}", {shown}]\n',
        {},
        "--secret",
        "id=s,env=HOME",
    )


_CHANGES = {
    "content": "path.write_text('changed')",
    "times": "path.write_text('2'); os.utime(path, (1, 1))",
    "file": "path.unlink(); path.symlink_to('/etc/passwd')",
    "link": "link.unlink(); link.symlink_to('d/other')",
}


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize("line", ["COPY . /x", "RUN --mount=target=/m cp -a /m /x"])
def test_a_file_that_changes_during_a_build_is_refused(builds: Builds, change: str, line: str) -> None:
    """Its key would stand for another content."""
    text = f"FROM base\n{line}\n"
    context = builds.context(text, {"d/a": "1", "l": "-> d/a"})
    os.utime(context / "d/a", (1, 1))
    builds.begin_with(
        "import os\nfrom pathlib import Path\nfrom bareboat_images.builder.copying import Copier\n"
        f"path, link, run = Path({str(context / 'd/a')!r}), Path({str(context / 'l')!r}), Copier.run\n"
        f"def changing(*given):\n    {_CHANGES[change]}\n    return run(*given)\nCopier.run = changing\n"
    )
    try:
        said = builds.bareboat("image", "build", context, code=6)
    finally:
        del builds.variables["PYTHONPATH"]
    assert "was changed while it was read" in said.err


def test_a_pipe_is_not_read(builds: Builds) -> None:
    context = builds.context("FROM base\nADD p d /x/\nRUN test -p /x/p -a -p /x/q\n", {"d": None})
    os.mkfifo(context / "p")
    os.mkfifo(context / "d/q")
    builds.bareboat("image", "build", context)


def test_an_unreadable_directory_is_named(builds: Builds) -> None:
    context = builds.context("FROM base\nCOPY . /x\n", {"d/e/a": "1"})
    (context / "d/e").chmod(0)
    try:
        said = builds.bareboat("image", "build", context, code=2)
    finally:
        (context / "d/e").chmod(0o755)
    assert "d/e in the context" in said.err
    assert "chmod -R u+rX it, or leave it out by .dockerignore" in said.err


def test_caches_in_opposite_orders_end(builds: Builds) -> None:
    one, two = ("--mount=type=cache,sharing=locked,id=order-1,target=/a",
                "--mount=type=cache,sharing=locked,id=order-2,target=/b")  # fmt: skip
    text = "".join(
        f"FROM base AS s{number}\nRUN {' '.join(pair)} sleep 0.1; echo {number} > /{number}\n"
        for number, pair in enumerate([(one, two), (two, one)] * 4)
    )
    text += "FROM scratch\n" + "".join(f"COPY --from=s{number} /{number} /\n" for number in range(8))
    builds.build(text, {})
