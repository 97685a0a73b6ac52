"""The bash that brings an image to a node, run by real shells with the real flock and tar: alone, side by
side, killed, without room, and where somebody else's folder stands in the way."""

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import UNSET
from tools import completed, executable, tool

from bareboat import render
from bareboat.deployment import flat_tar
from bareboat.model import Delivery, Start
from bareboat.render.values import delivery as values
from bareboat.runs import records
from bareboat_images.formats import packed

NAME = "a" * 64
PATIENCE_S = 30.0


@dataclass
class Node:
    """A node's scratch, and an image's archive and tree in a store."""

    top: Path
    scratch: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    pipes: list[int] = field(default_factory=list)

    @property
    def archive(self) -> Path:
        return self.top / "image.tar"

    @property
    def shared(self) -> Path:
        return self.top / "flat" / "sha256"

    def trees(self, uid: int | None = None) -> Path:
        return self.scratch / f"bareboat-{os.getuid() if uid is None else uid}" / "flat"

    def tree(self) -> Path:
        return self.trees() / NAME

    def script(
        self, body: str, *, run: str = "run", uid: int | None = None, start: Start = Start.NODES,
        part: str = "", name: str = NAME, packed: Path | None = None, inodes: int = 10, own: str = "",
    ) -> str:  # fmt: skip
        """A node's part of a job: it brings the image, and then does what `body` says."""
        delivery = Delivery(
            archive=str(packed or self.archive), folder=str(self.trees(uid)), shared=str(self.shared),
            name=name, inodes=inodes, own=own or UNSET,
        )  # fmt: skip
        folder = self.top / run
        (folder / "control").mkdir(parents=True, exist_ok=True)
        head = (
            f"set -u\nHERE=' on here' BAREBOAT_HOST={os.uname().nodename} "
            f"BAREBOAT_CONTROL={shlex.quote(str(folder / 'control'))} part={part} what=2\n"
        )
        traps = "trap 'exit 143' TERM\n"
        head += f"exit_commands= features= start={'program' if start is Start.PROGRAM else 'nodes'}\n"
        head += "ends=$BAREBOAT_CONTROL/ends.$BAREBOAT_HOST\n"
        functions = map(render.subject, ("common", "private", "cluster", "delivery"))
        use = "at_exit leave_node\nuse_image\n"
        return head + traps + "\n".join([*values(delivery), *functions, use]) + body

    def start(self, script: str, *before: str) -> subprocess.Popen[str]:
        """In a process group of its own, as a job is."""
        self.started.append(
            subprocess.Popen(
                [*before, "bash", "-c", script],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            )
        )  # fmt: skip
        return self.started[-1]

    def run(self, script: str, *before: str, code: int = 0) -> tuple[str, str]:
        started = self.start(script, *before)
        out, err = started.communicate(timeout=PATIENCE_S)
        assert started.returncode == code, out + err
        return out, err

    def told(self, run: str = "run") -> list[str]:
        return [each.how for each in records.deliveries(self.top / run)]

    def is_clean(self) -> bool:
        return list(self.scratch.iterdir()) == []


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    for name in ("flock", "tar"):
        tool(name)
    made = Node(tmp_path, tmp_path / "scratch")
    made.scratch.mkdir()
    tree = made.shared / NAME
    (tree / "bin").mkdir(parents=True)
    executable(tree / "bin" / "program", "#!/bin/sh\necho it runs\n")
    os.link(tree / "bin" / "program", tree / "bin" / "other name")
    (tree / "large").write_bytes(bytes(40_000))
    (tree / "link").symlink_to("bin/program")
    (tree / "secret").write_text("nobody reads me")
    (tree / "secret").chmod(0o000)
    (tree / "guarded").mkdir()
    (tree / "guarded" / "old").write_text("old")
    os.utime(tree / "guarded" / "old", (86_400, 86_400))
    (tree / "guarded").chmod(0o555)
    (tree / "gives way").symlink_to("/nowhere at all")
    with open(made.archive, "wb") as stream:
        packed.write_tree(str(tree), stream.write)
    places = (b"d/data/of this job\0", b"f/etc/hosts\0", b"d/gives way\0", b"d/guarded/place\0")
    flat_tar.places_of(made.archive).write_bytes(b"".join(places))
    yield made
    (tree / "guarded").chmod(0o755)
    for started in made.started:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()
    for pipe in made.pipes:
        os.close(pipe)


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


#: Says that it has the image, and stays until its file is there; $1 is that file's path.
STAYS = """
echo "has $BAREBOAT_TREES"
until [ -e {go} ]; do sleep 0.02; done
[ -d "$BAREBOAT_TREES/$image_name/bin" ] || exit 9
"""


def test_it_is_as_in_the_store_with_places_and_goes_with_its_user(node: Node) -> None:
    body = """
    cd "$BAREBOAT_TREES/$image_name" && bin/program && stat -c '%a %n' bin/program secret guarded . &&
    readlink link && stat -c '%Y %n' guarded/old && [ bin/program -ef 'bin/other name' ] && echo one file
    for place in 'data/of this job' etc/hosts 'gives way' guarded/place; do stat -c '%F %n' "$place"; done
    echo "$BAREBOAT_TREES"
    """
    out, err = node.run(node.script(body))
    assert out.splitlines() == [
        "it runs", "755 bin/program", "0 secret", "555 guarded" if os.getuid() == 0 else "755 guarded",
        "755 .", "bin/program", "86400 guarded/old", "one file", "directory data/of this job",
        "regular empty file etc/hosts", "directory gives way", "directory guarded/place", str(node.trees()),
    ]  # fmt: skip
    assert err.startswith("bareboat: the image is on this node on here: 0 MB unpacked in ")
    (told,) = records.deliveries(node.top / "run")
    assert (told.how, told.archive_bytes) == ("unpacked", node.archive.stat().st_size)
    assert node.is_clean()


def test_two_jobs_at_once_unpack_it_once_and_the_last_removes_it(node: Node) -> None:
    goes = [node.top / f"go{number}" for number in range(4)]
    jobs = [
        node.start(node.script(STAYS.format(go=shlex.quote(str(go))), run=f"run{number}"))
        for number, go in enumerate(goes)
    ]
    for number in range(4):
        wait_for(lambda n=number: node.told(f"run{n}"), "the deliveries")
    assert sorted(how for number in range(4) for how in node.told(f"run{number}")) == [
        "found", "found", "found", "unpacked",
    ]  # fmt: skip
    for number in (1, 0, 3):
        goes[number].touch()
        assert jobs[number].wait(PATIENCE_S) == 0
        assert node.tree().is_dir()
    goes[2].touch()
    assert jobs[2].wait(PATIENCE_S) == 0
    assert node.is_clean()


def test_a_job_that_waits_to_unpack_it_uses_what_another_has_unpacked(node: Node) -> None:
    """The other job may hold the lock again, as a user, before the waiting one gets it."""
    goes = [node.top / f"go{number}" for number in range(2)]
    scripts = [
        node.script(STAYS.format(go=shlex.quote(str(go))), run=f"run{number}")
        for number, go in enumerate(goes)
    ]
    first = node.start(scripts[0])
    wait_for(lambda: node.told("run0"), "the first delivery")
    whole = node.tree().with_name(f"{node.tree().name}.whole")
    aside = whole.rename(node.top / "aside")
    second = node.start(scripts[1])
    time.sleep(1.5)
    assert node.told("run1") == []
    aside.rename(whole)
    wait_for(lambda: node.told("run1"), "the second delivery")
    assert node.told("run1") == ["found"]
    for go, job in zip(goes, (first, second), strict=True):
        go.touch()
        assert job.wait(PATIENCE_S) == 0
    assert node.is_clean()


def test_many_short_jobs_find_it_or_unpack_it_and_leave_nothing(node: Node) -> None:
    """Those that come meet those that remove it: nobody may run without it."""
    body = '[ "$("$BAREBOAT_TREES/$image_name/bin/program")" = "it runs" ]'
    jobs = [node.start(node.script(body, run=f"run{number}")) for number in range(16)]
    for job in jobs:
        _, err = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0, err
        assert "NOT" not in err
    assert node.is_clean()


def own_tree(node: Node, how: str) -> str:
    """As the store has it: only the list is used here."""
    folder = node.top / "roots" / "key"
    folder.mkdir(parents=True)
    (folder / "how").write_text(how)
    return f"{folder}/tree"


def test_a_job_with_mount_points_of_its_own_has_a_tree_of_links(node: Node) -> None:
    joined = "n/ l/large l/secret l/link b/bin n/guarded l/guarded/old d/guarded/inner f/guarded/new/y"
    body = """
    base=$BAREBOAT_TREES/$image_name; cd "$BAREBOAT_OWN_TREE" || exit 9
    [ large -ef "$base/large" ] && [ secret -ef "$base/secret" ] && [ guarded/old -ef "$base/guarded/old" ] &&
    [ "$(stat -c '%a %Y' guarded)" = "$(stat -c '%a %Y' "$base/guarded")" ] && [ -z "$(ls bin)" ] &&
    stat -c %F guarded/inner guarded/new/y && [ ! -e "$base/guarded/new" ] && ls -d "$image_tree".own*
    """
    out, _ = node.run(node.script(body, own=own_tree(node, joined.replace(" ", "\0") + "\0")))
    assert out.splitlines() == ["directory", "regular empty file", f"{node.tree()}.own-key"]
    assert node.is_clean()


def test_where_that_tree_cannot_be_made_the_job_reads_the_store_s(node: Node) -> None:
    own = own_tree(node, "a/\0f/large/y\0")
    out, err = node.run(node.script('echo "$BAREBOAT_OWN_TREE"', own=own))
    assert (out, node.told()) == (f"{own}\n", ["shared"])
    assert ".own-key cannot be made" in err
    assert node.is_clean()


def unpacking(node: Node, run: str) -> subprocess.Popen[str]:
    """A job whose tar has begun, and waits for the rest of what it reads."""
    pipe = node.top / "pipe"
    os.mkfifo(pipe)
    job = node.start(node.script("echo never", run=run, packed=pipe))
    node.pipes.append(os.open(pipe, os.O_WRONLY))
    os.write(node.pipes[-1], node.archive.read_bytes()[:20480])  # tar reads 10 KiB at a time
    wait_for(lambda: any(Path(f"{node.tree()}.part").glob("*")), "the first files")
    return job


def test_a_long_copy_is_reported_with_its_size_rate_and_rest(node: Node) -> None:
    slow = 'tar() { exec 3< "$image_archive"; head -c 10240 <&3; sleep 4; command tar "$@"; }\n'
    script = node.script("echo done").replace("report_s=10", "report_s=1")
    out, err = node.run(slow + script)
    assert out == "done\n"
    report = r"bareboat: copying the image to this node on here: 0 of 0 MB, 0 MB/s, about \d+ s left"
    assert re.match(rf"({report}\n)+bareboat: the image is on this node on here: ", err), err
    assert node.is_clean()


def test_killed_while_it_unpacks_it_is_unpacked_again(node: Node) -> None:
    job = unpacking(node, "killed")
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(PATIENCE_S)
    assert Path(f"{node.tree()}.part").is_dir()
    out, _ = node.run(node.script('"$BAREBOAT_TREES/$image_name/bin/program"'))
    assert out == "it runs\n"
    assert node.told() == ["unpacked"]
    assert node.is_clean()


def test_told_to_end_while_it_unpacks_it_leaves_nothing(node: Node) -> None:
    job = unpacking(node, "ended")
    os.kill(job.pid, signal.SIGTERM)
    assert job.wait(PATIENCE_S) == 143
    assert node.is_clean()


def test_what_a_killed_job_left_is_used_or_removed(node: Node) -> None:
    go = node.top / "go"
    job = node.start(node.script(STAYS.format(go=go), run="killed"))
    wait_for(lambda: node.told("killed"), "the delivery")
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(PATIENCE_S)
    assert node.tree().is_dir()
    node.run(node.script("true", run="same"))
    assert node.told("same") == ["found"]
    assert node.is_clean()

    again = node.start(node.script(STAYS.format(go=go), run="again"))
    wait_for(lambda: node.told("again"), "the delivery")
    os.killpg(again.pid, signal.SIGKILL)
    again.wait(PATIENCE_S)
    node.run(node.script("true", run="other", name="b" * 64))
    assert node.told("other") == ["unpacked"]
    assert node.is_clean()


def test_what_is_left_of_another_start_of_the_machine_is_not_trusted(node: Node) -> None:
    node.tree().mkdir(parents=True)
    for folder in (node.trees(), node.trees().parent):
        folder.chmod(0o700)
    Path(f"{node.tree()}.lock").touch()
    Path(f"{node.tree()}.whole").write_text(f"another-boot {os.uname().nodename}\n")
    out, _ = node.run(node.script('"$BAREBOAT_TREES/$image_name/bin/program"'))
    assert out == "it runs\n"
    assert node.told() == ["unpacked"]


_SMALL = 'mount -t tmpfs -o "$1" none "$2" && exec bash -c "$3"'


@pytest.mark.parametrize(
    ("options", "inodes", "why"),
    [
        ("size=64k", 200, "MiB free"),
        ("size=8m,nr_inodes=20", 50, "needs 50 inodes, and there are 1"),
        ("size=8m,nr_inodes=12", 1, "unpacking it ended with: tar: "),
        ("size=8m,noexec", 10, "mounted noexec"),
        ("size=8m,ro", 10, "is not a writable directory"),
    ],
)
def test_without_room_on_the_node_the_store_is_read_and_that_is_said(
    node: Node, options: str, inodes: int, why: str
) -> None:
    script = node.script('"$BAREBOAT_TREES/$image_name/bin/program"', uid=0, inodes=inodes)
    script += f"\ntrap - EXIT; drop_image; ls -A {shlex.quote(str(node.scratch))}"
    out, err = in_small(node, options, script)
    assert out == "it runs\n"
    assert "bareboat: the image is NOT copied to this node on here; it is read from the store: " in err
    assert why in err
    assert node.told() == ["shared"]


def in_small(node: Node, options: str, script: str) -> tuple[str, str]:
    """Run it where the scratch is a file system of that size, as root of a namespace of its own."""
    command = [tool("unshare"), "-Urm", "sh", "-c", _SMALL, "sh", options, str(node.scratch), script]
    done = completed(command, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_without_the_scratch_folder_the_store_is_read(node: Node) -> None:
    node.scratch.rmdir()
    out, err = node.run(node.script('"$BAREBOAT_TREES/$image_name/bin/program"'))
    assert (out, node.told()) == ("it runs\n", ["shared"])
    assert f"{node.scratch} is not a writable directory" in err


@pytest.mark.parametrize("what", ["open to others", "a link", "a file", "open below", "a link below"])
def test_a_folder_that_is_not_ours_alone_is_refused(node: Node, what: str) -> None:
    own, elsewhere = node.trees().parent, node.top / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    match what:
        case "open to others":
            own.mkdir()
            own.chmod(0o770)
        case "a link":
            own.symlink_to(elsewhere)
        case "a file":
            own.touch(mode=0o700)
        case "open below":
            node.trees().mkdir(parents=True)
            own.chmod(0o700)
            node.trees().chmod(0o777)
        case "a link below":
            own.mkdir(mode=0o700)
            node.trees().symlink_to(elsewhere)
    out, err = node.run(node.script("echo from the store"))
    assert out == "from the store\n"
    assert re.search(
        r"NOT copied .* is not a directory of this user alone, but: .*; try: --node-scratch", err
    )
    assert list(elsewhere.iterdir()) == []


def test_somebody_else_s_folder_is_not_used(node: Node) -> None:
    """Of the machine's root, who is nobody in a namespace that does not know him."""
    own = node.trees(0).parent
    own.mkdir(mode=0o700)
    script = node.script("echo from the store", uid=0)
    if os.getuid() == 0:
        os.chown(own, 12345, 12345)
        out, err = node.run(script)
    else:
        script = f"mount --bind /usr {shlex.quote(str(own))} && exec bash -c {shlex.quote(script)}"
        out, err = node.run(script, tool("unshare"), "-Urm")
    assert out == "from the store\n"
    assert re.search(r"is not a directory of this user alone, but: (12345 700|65534 755) directory", err), err


def test_a_scratch_in_which_anybody_can_rename_is_not_used(node: Node) -> None:
    node.scratch.chmod(0o777)
    _, err = node.run(node.script("true"))
    why = f"other users may rename files in {node.scratch} on here (owner {os.getuid()}, mode 777)"
    assert why in err
    for mode in (0o1777, 0o1775, 0o755, 0o700):
        node.scratch.chmod(mode)
        node.run(node.script("true"))
        assert node.is_clean()


@pytest.mark.parametrize("place", ["scratch", "above"])
@pytest.mark.parametrize("who", ["group", "owner"])
def test_a_scratch_in_which_a_colleague_can_rename_is_not_used(node: Node, place: str, who: str) -> None:
    node.scratch = node.scratch / "below"
    node.scratch.mkdir()
    odd = node.scratch if place == "scratch" else node.scratch.parent
    found = f"{os.getuid()} 12345 770" if who == "group" else f"12345 {os.getgid()} 700"
    stat = f'stat() {{ command stat "$@" | sed "s|^.* {odd}$|{found} {odd}|"; }}\n'
    _, err = node.run(stat + node.script("true"))
    assert f"other users may rename files in {odd} on here (owner " in err
    assert "try: --node-scratch DIR" in err


def test_a_copy_of_another_node_in_the_same_scratch_is_left_to_it(node: Node) -> None:
    """A scratch that is not local: the other node may use its copy, and its lock may not be seen here."""
    node.tree().mkdir(parents=True)
    for folder in (node.trees(), node.trees().parent):
        folder.chmod(0o700)
    Path(f"{node.tree()}.lock").touch()
    marked = Path(f"{node.tree()}.whole")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for mark in (f"{boot} another\n", "another-boot another\n"):
        marked.write_text(mark)
        out, err = node.run(node.script('"$BAREBOAT_TREES/$image_name/bin/program"'))
        assert (out, node.told()[-1]) == ("it runs\n", "shared")
        assert f"{node.scratch} is not local to this node" in err
        node.run(node.script("true", run="other", name="b" * 64))
        assert (marked.read_text(), node.tree().is_dir()) == (mark, True)


def test_without_flock_the_store_is_read(node: Node) -> None:
    script = node.script('"$BAREBOAT_TREES/$image_name/bin/program"')
    hidden = 'command() { [ "$2" != flock ]; }\n'
    out, err = node.run(hidden + script)
    assert (out, node.told()) == ("it runs\n", ["shared"])
    assert "it requires flock and tar" in err


def test_ranks_of_a_program_use_what_was_brought_before_and_it_stays_between_them(node: Node) -> None:
    program = '"$BAREBOAT_TREES/$image_name/bin/program"; echo "$BAREBOAT_TREES"'
    node.run(node.script("echo never", start=Start.PROGRAM, part="--bring"))
    for _ in ("the proof", "the job"):
        out, err = node.run(node.script(program, start=Start.PROGRAM, part="--rank"))
        assert (out, err) == (f"it runs\n{node.trees()}\n", "")
    assert node.told() == ["unpacked"]
    leave = node.script("echo never", start=Start.PROGRAM, part="--leave")
    node.run(leave)
    assert node.is_clean()
    # Asked again for another node's sake: a part that fails would end that one's, too.
    node.run(leave)
    # Gone in between: said once a rank, and the job goes on.
    out, err = node.run(node.script(program, start=Start.PROGRAM, part="--rank"))
    assert out == f"it runs\n{node.shared}\n"
    assert "it does not exist any more" in err


def test_what_another_job_uses_stays_without_a_failure(node: Node) -> None:
    user = node.start(node.script("echo here; sleep 600 & wait", run="other"))
    assert user.stdout is not None
    assert user.stdout.readline() == "here\n"
    node.run(node.script("echo never", start=Start.PROGRAM, part="--leave"))
    assert node.tree().exists()
    os.killpg(user.pid, signal.SIGTERM)
    user.wait(PATIENCE_S)
    node.run(node.script("echo never", start=Start.PROGRAM, part="--leave"))
    assert node.is_clean()


def test_ranks_of_a_program_that_are_told_to_end_leave_nothing(node: Node) -> None:
    node.run(node.script("", start=Start.PROGRAM, part="--bring"))
    ranks = [
        node.start(node.script("echo here; sleep 600 & wait", start=Start.PROGRAM, part="--rank"))
        for _ in range(2)
    ]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "here\n"
    for rank in ranks:
        os.killpg(rank.pid, signal.SIGTERM)
    assert [rank.wait(PATIENCE_S) for rank in ranks] == [143, 143]
    assert node.is_clean()
