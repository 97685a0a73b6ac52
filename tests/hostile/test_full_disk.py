"""A store without room, and captures that are killed: nothing half-made is ever seen.

The small file systems are real ones, mounted in a namespace of the test's own.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environments import Captured
from processes import command, environment
from tools import completed, executable, output, tool

from bareboat.model import Image
from bareboat_base import codec
from bareboat_images.layers import layer
from bareboat_images.store import Store

pytestmark = pytest.mark.thorough

#: $1: the mount point, $2: its options, $3: what to run there, with the point and two more arguments.
_MOUNT = 'mount -t tmpfs -o "$2" none "$1" && exec sh -c "$3" sh "$1" "$4" "$5"'


def in_small(
    folder: Path, options: str, script: str, *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    """Run a shell script where `folder` ($1) is a file system of that size; $2 and $3 are the arguments."""
    folder.mkdir(exist_ok=True)
    return completed(
        [
            tool("unshare"),
            "-Urm",
            "sh",
            "-c",
            _MOUNT,
            "sh",
            str(folder),
            options,
            script,
            *map(str, arguments),
        ],
        timeout=120,
        env={**os.environ, "PYTHON": sys.executable},
    )


_CAPTURE = '"$PYTHON" -m bareboat image capture --quiet --store "$1/store" --python "$2"; echo "exit $?"\n'
#: The same, as when the room goes while the files are copied: nobody looked beforehand.
_CAPTURE_UNCHECKED = """
"$PYTHON" -c 'import sys
from bareboat_images.store import Store
from bareboat.cli.main import main
Store.check_room = lambda *_, **__: None
sys.exit(main(sys.argv[1:]))' image capture --quiet --store "$1/store" --python "$2"; echo "exit $?"
"""
_CAPTURE_JSON = '"$PYTHON" -m bareboat image capture --quiet --json --store "$1/store" --python "$2"\n'
_LIST = 'cd "$1/store" && find . -mindepth 1 -maxdepth 3 | sort\n'


@pytest.fixture(scope="module")
def roomy(captured: Captured, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The same environment, captured where there is room, by the user that one is in there: root."""
    done = in_small(tmp_path_factory.mktemp("roomy"), "size=2g", _CAPTURE_JSON, captured.python)
    return codec.from_json(done.stdout.encode(), Image, what=done.stderr)


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ("size=8m", r"needs [0-9,]+ MB, and the file system of the store .*/store has 8 MB free"),
        (
            "size=2g,nr_inodes=300",
            r"needs [0-9,]+ files, and the file system of the store .*/store has \d+ inodes",
        ),
    ],
    ids=["bytes", "inodes"],
)
def test_what_cannot_fit_is_refused_beforehand_with_the_numbers(
    captured: Captured, tmp_path: Path, options: str, numbers: str
) -> None:
    done = in_small(tmp_path / "small", options, _CAPTURE + 'find "$1" -mindepth 1\n', captured.python)
    assert done.stdout == "exit 4\n", "something was written: " + done.stdout + done.stderr
    assert re.search(f"the captured environment {numbers}", done.stderr), done.stderr
    assert "BAREBOAT_STORE=DIR" in done.stderr


@pytest.mark.parametrize(
    ("fill", "empty"),
    [
        ('fallocate -l "$(($3 - (8 << 20)))" "$1/filler"', 'rm "$1/filler"'),
        (
            'mkdir "$1/filler" && cd "$1/filler" && free=$(df --output=iavail . | tail -n 1) && '
            'seq "$((free - 300))" | xargs touch',
            'rm -r "$1/filler"',
        ),
    ],
    ids=["bytes", "inodes"],
)
def test_a_disk_that_fills_during_the_capture_leaves_nothing_and_the_next_one_succeeds(
    captured: Captured, roomy: Image, tmp_path: Path, fill: str, empty: str
) -> None:
    size = captured.image.size_bytes * 2
    script = f"({fill})\n{_CAPTURE_UNCHECKED}({_LIST})\n{empty} && echo room\n{_CAPTURE}({_LIST})"
    options = f"size={size},nr_inodes={captured.image.inodes * 2}"
    done = in_small(tmp_path / "small", options, script, captured.python, str(size))
    before, _, after = done.stdout.partition("room\n")
    assert before.split("\n")[:-1] == ["exit 4", "./tmp", "./version"], done.stdout + done.stderr
    assert (
        f"the file system of the store {tmp_path}/small/store is full; no partial data was kept"
        in done.stderr
    )
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert roomy.digest in after
    assert "exit 0" in after
    assert sorted(re.findall(r"layers/sha256/(\S+)", after)) == sorted(
        each.diff_id.removeprefix("sha256:") for each in roomy.layers
    )
    assert not re.search(r"\./tmp/", after)


def test_layers_that_were_whole_when_the_disk_filled_are_used_again(
    captured: Captured, roomy: Image, tmp_path: Path
) -> None:
    system, python, _ = roomy.layers
    size = system.unpacked_bytes + python.unpacked_bytes // 2 + system.inodes * 2048
    done = in_small(
        tmp_path / "small",
        f"size={size}",
        _CAPTURE_UNCHECKED + _LIST + "find layers -printf '%i %p\\n' | grep -c .\n",
        captured.python,
    )
    assert done.stdout.startswith("exit 4\n"), done.stdout + done.stderr
    assert re.findall(r"layers/sha256/(\w+)", done.stdout) == [system.diff_id.removeprefix("sha256:")]
    assert "./images" not in done.stdout
    assert not re.search(r"\./tmp/", done.stdout)


def test_a_flat_tree_without_room_is_one_clear_error(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from builders import make_image
from bareboat_base.errors import StoreError
from bareboat_images.layers import layer
from bareboat_images.formats.flatten import make_flat
from bareboat.model import Layer
from bareboat_images.store import Store
store = Store(Path(sys.argv[1]) / "store")
with store.scratch() as scratch:
    for n in range(60):
        (scratch / "tree" / f"{n % 6}").mkdir(parents=True, exist_ok=True)
        (scratch / "tree" / f"{n % 6}" / f"{n}").touch()
    digest, size = layer.digest_tree(str(scratch / "tree"))
    store.publish(scratch / "tree", store.layer(digest))
image = make_image(layers=(Layer(diff_id=digest, size_bytes=size, unpacked_bytes=0, inodes=66),), prefixes=())
try:
    make_flat(store, image)
except StoreError as error:
    print(error.code, error.message)
unchanged = layer.digest_tree(str(store.layer(digest)))[0] == digest
print(os.listdir(store.root / "tmp"), (store.root / "flat").exists(), unchanged)
"""
    script = '"$PYTHON" -c "$2" "$1" "$3"'
    done = in_small(
        tmp_path / "small", "size=8m,nr_inodes=110", script, program, Path(__file__).parent.parent
    )
    message = f"4 the file system of the store {tmp_path}/small/store is full; no partial data was kept"
    assert done.stdout.splitlines() == [message, "[] False True"], done.stderr


def test_captures_that_are_killed_leave_no_visible_half(
    captured: Captured, store: Store, tmp_path: Path, exhaustive: bool
) -> None:
    """SIGKILL, which nothing can catch, from the first thing that is written to the end."""
    chance = random.Random(1)
    argv = command("image", "capture", "--fresh", "--quiet", "--python", captured.python)
    began = time.monotonic()
    subprocess.run(argv, env=environment(tmp_path / "other"), check=True, stdout=subprocess.DEVNULL)
    duration_s = time.monotonic() - began
    tmp = store.root / "tmp"
    caught_at_work = 0
    while caught_at_work < (8 if exhaustive else 3):
        before = set(os.listdir(tmp)) if tmp.exists() else set()
        process = subprocess.Popen(argv, env=environment(store.root), stdout=subprocess.DEVNULL)
        while process.poll() is None and not (tmp.exists() and set(os.listdir(tmp)) - before):
            time.sleep(0.002)
        time.sleep(duration_s * chance.uniform(0, 0.7))
        process.kill()
        process.wait()
        left = set(os.listdir(tmp))
        caught_at_work += bool(left)
        duration_s *= 1.0 if left else 0.8  # it was faster than the first
        assert not left & before, "the work of the one that was killed before was not swept"
        for path in (store.root / "images").rglob("*.json"):  # those that had finished
            assert path.stem == captured.image.digest.removeprefix("sha256:")
            assert store.image(path.stem[:12]) == captured.image
        for path in (store.root / "layers").glob("sha256/*"):
            assert layer.digest_tree(str(path / "tree"))[0] == f"sha256:{path.name}"
    assert captured.image.digest in output(*argv, env=environment(store.root))
    assert store.image(captured.image.digest).layers == captured.image.layers
    assert os.listdir(tmp) == []


#: What a disk that fills may leave that was not there: whole things only, which the next attempt uses.
_LEFT = {
    "study": r"runs/[^/]+/points/0/000[12](/.*)?",
    "pull": r"(parts|layers|blobs|leases|pins|images)(/.*)?",
    "convert": r"-",
    "push": r"leases",
    "submit": r"runs|leases|mpi-checks(/pending)?",
}


@pytest.mark.parametrize("what", _LEFT)
def test_a_disk_that_fills_at_twenty_points_spoils_nothing(what: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "bin").mkdir(parents=True)
    for name, body in (("sbatch", "echo 17"), ("scancel", f"echo x >> {outside}/cancelled")):
        executable(outside / "bin" / name, f"#!/bin/sh\n{body}\n")
    program = Path(__file__).parent / "filling.py"
    script = 'PATH="$3/bin:$PATH" exec "$PYTHON" "$2" "$WHAT" "$1" "$3"'
    point = tmp_path / "small"
    done = in_small(point, "size=8m", script.replace("$WHAT", what), program, outside)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 20, done.stdout + done.stderr
    for each in told:
        assert each["message"] is not None, each
        assert "is full" in each["message"], each
        assert str(point) in each["message"], each
        assert each["remedy"], each
        assert each["code"] == 4, each
        assert each["changed"] == [], each
        odd = [name for name in each["new"] if not re.fullmatch(rf"store/({_LEFT[what]})", name)]
        assert odd == [], each
