"""What a command in a container may do to the files of its run, for real in bubblewrap: the host runs, reads
and follows nothing of it."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from environments import Captured
from tools import completed, tool

from bareboat import render
from bareboat.deployment import exposed
from bareboat.model import Job, Mount, Plan, SchedulerFacts, Site, Topology
from bareboat.plan import plan
from bareboat.probe import probe
from bareboat_base.files import mounts
from bareboat_images.formats.flatten import make_flat

pytestmark = pytest.mark.one_in(6)

NAMES = (
    "job.sh", "exit_code", "exits.0", "ends.{host}", "over.0", "starts", "hosts", "secret", "signals",
    "again", "agains", "mpi_check.log", "table", "no_fabric", "deliveries.{host}", "leaving.log", "logs",
    "watch", "progress", "nccl", "torchrun",
)  # fmt: skip

#: What is put there; $1 is the name, $2 a file of the user's, $3 a name of the user's that is free.
WAYS = {
    "line": 'echo \'touch "$ESCAPED"; exit 0\' >> "$1"',
    "first-line": 'f=$(cat "$1"); printf "touch \\"\\$ESCAPED\\"\\n%s\\n" "$f" > "$1"',
    "option": 'echo --me >> "$1"',
    "link": 'ln -sfn "$2" "$1"',
    "dangling": 'ln -sfn "$3" "$1"',
    "directory-link": 'ln -sfn "${2%/*}" "$1"',
    "above": 'echo 0 > "../control/$1"; echo 0 > "../../$1"; rm -rf ../*; ln -sfn "$2" "../$1"',
    "fifo": 'mkfifo "$1"',
    "folder": 'mkdir "$1"',
    "huge": 'dd if=/dev/null of="$1" bs=1 seek=3000000000000',
}


@pytest.fixture(scope="module")
def here(captured: Captured) -> Site:
    found = probe(captured.store)
    return msgspec.structs.replace(found, schedulers=(SchedulerFacts(name="slurm", version="1"),))


def planned(captured: Captured, site: Site, workdir: Path, command: str, **changes: object) -> Plan:
    facts = {"scheduler": "slurm", "launcher": "ranks", "engine": "bubblewrap", "walltime_s": 600}
    job = Job(name="bad", command=("/bin/sh", "-c", command), workdir=str(workdir), **(facts | changes))  # type: ignore[arg-type]
    made = plan(job, captured.image, captured.rootfs(site), site)
    if made.needs_flat:
        make_flat(captured.store, captured.image, made.mount_points, relinked=made.relinked)
    return made


def start(script: Path, *, escaped: Path) -> subprocess.CompletedProcess[str]:
    """As the queue would, on one node."""
    environment = {**os.environ, "SLURM_JOB_ID": "17", "ESCAPED": str(escaped), "PATH": "/usr/bin:/bin"}
    return completed([tool("bash"), str(script)], env=environment, timeout=60, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_container_leaves_is_neither_run_nor_followed(
    captured: Captured, here: Site, tmp_path: Path, name: str, way: str
) -> None:
    name = name.format(host=os.uname().nodename)
    mine, free, escaped = tmp_path / "mine" / "file", tmp_path / "mine" / "free", tmp_path / "escaped"
    (tmp_path / "mine").mkdir()
    mine.write_text("mine\n")
    (tmp_path / "work").mkdir()
    command = f'cd "$BAREBOAT_RUN_DIR" && set -- {name} {mine} {free}\n{{ {WAYS[way]}; }} 2>/dev/null; exit 0'
    folder = tmp_path / "run"
    folder.mkdir()
    script = tmp_path / "job.sh"
    made = planned(captured, here, tmp_path / "work", command)
    script.write_bytes(os.fsencode(render.script(made, render.Place("bad", str(folder)), alone=True)))
    for number in (1, 2):  # as after a requeue; the second time what the first one left is there
        done = start(script, escaped=escaped)
        assert done.returncode == 0, done.stderr
        code = (folder / "control" / "exit_code").read_text().split()[0]
        assert (code, len((folder / "control" / "starts").read_text().splitlines())) == ("0", number)
    assert not escaped.exists()
    assert mine.read_text() == "mine\n"
    assert sorted(os.listdir(tmp_path / "mine")) == ["file"]
    assert (folder / "control" / "job.sh").read_bytes() == script.read_bytes()


@pytest.mark.parametrize(
    "said",
    ["", "7", "0 7 8", "0 256", "0 -7", "0 07", "00 7", "9 7", "1000000000000000000000 7", "0 7\x1b[2J",
     "0 7;id", "$(id) 7", "--me 7", "0\t7", "\x00\x00 7", "0 1" + "0" * 400, "x" * 70_000],
    ids=lambda text: repr(text)[:24],
)  # fmt: skip
def test_exit_codes_of_ranks_are_lines_of_two_numbers(tmp_path: Path, said: str) -> None:
    (tmp_path / "exits.0").write_text(said + "\n")
    assert _exits(tmp_path) == ""
    (tmp_path / "exits.0").write_text("1 7\n" + said + "\n")
    assert _exits(tmp_path) == "1 7\n"


@pytest.mark.parametrize("way", ["link", "dangling", "directory-link", "fifo", "folder", "huge"])
def test_exit_codes_are_read_from_files_alone(tmp_path: Path, way: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("1 7\n")
    subprocess.run(
        ["sh", "-c", WAYS[way], "sh", "exits.0", str(secret), str(tmp_path / "free")],
        cwd=tmp_path, check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert _exits(tmp_path) == ""


def _exits(folder: Path) -> str:
    script = f"world_size=4\nstart=nodes\n{render.subject('ends')}\nexits_of_run"
    done = completed([tool("bash"), "-uc", f"BAREBOAT_RUN_DIR='{folder}'\n{script}"], timeout=20)
    return done.stdout


@pytest.mark.parametrize("way", ["link", "dangling", "directory-link", "folder"])
@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_log_that_another_node_s_container_has_put_there_is_not_followed(
    tmp_path: Path, way: str, stream: str
) -> None:
    mine = tmp_path / "mine" / "file"
    mine.parent.mkdir()
    mine.write_text("secret\n")
    (tmp_path / "logs").mkdir()
    words = [f"logs/1.{stream}", str(mine), str(tmp_path / "mine" / "free")]
    subprocess.run(["sh", "-c", WAYS[way], "sh", *words], cwd=tmp_path, check=True)
    head = f"BAREBOAT_NODE=0 rank_logs='{tmp_path}/logs' ranks_per_node=2"
    script = f"{head}\n{render.subject('nodes')}\nfollow_ranks\nexit 0"
    done = completed([tool("bash"), "-uc", script], timeout=20)
    assert (done.returncode, "secret" in done.stdout) == (3, False)
    assert mine.read_text() == "secret\n"
    assert os.listdir(mine.parent) == ["file"]


# --- the store, within what the user mounts writable


STORED = ("runs", "images", "flat", "layers", "tools", "sites", "names", "mpi-checks/x", "tmp", ".")


@pytest.mark.parametrize("engine", ["bubblewrap", "podman", "apptainer", "charliecloud", "singularity"])
@pytest.mark.parametrize("alias", ["itself", "link", "mount"])
def test_a_writable_mount_around_the_store_does_not_show_it_writable(
    captured: Captured, here: Site, tmp_path: Path, engine: str, alias: str
) -> None:
    facts = here.engine(engine)
    if facts is None or not facts.works:
        pytest.skip(f"no {engine} here")
    top = captured.store.root.parent
    work = top
    mounts: tuple[Mount, ...] = ()
    if alias == "link":
        work = tmp_path / "home"
        work.symlink_to(top)
    elif alias == "mount":
        work = tmp_path
        mounts = (Mount(source=str(top), target="/mnt/all", writable=True),)
    shown = "/mnt/all" if alias == "mount" else str(work)
    store = f"{shown}/{captured.store.root.name}"
    command = (
        f"for name in {' '.join(STORED)}; do (echo bad > {store}/$name/bad-{tmp_path.name}) 2>/dev/null && "
        f'echo wrote $name; done; echo mine > "{shown}/ok-{tmp_path.name}" && '
        'echo data > "$BAREBOAT_RUN_DIR/data" && echo done'
    )
    job = Job(
        name="bad", command=("/bin/sh", "-c", command), workdir=str(work), engine=engine, mounts=mounts,
        topology=Topology(),
    )  # fmt: skip
    rootfs = msgspec.structs.replace(
        captured.rootfs(here),
        exposed=exposed.find(captured.store.root, [str(work), *(m.source for m in mounts)]),
    )
    made = plan(job, captured.image, rootfs, here)
    if made.needs_flat:
        make_flat(captured.store, captured.image, made.mount_points, relinked=made.relinked)
    assert any(each.subject == "store" and "read-only" in each.choice for each in made.decisions)
    script = tmp_path / "job.sh"
    script.write_bytes(os.fsencode(render.script(made)))
    data = captured.store.root / "runs" / f"data-{engine}-{alias}"
    data.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "BAREBOAT_RUN_DIR": str(data), "BAREBOAT_CONTROL": str(tmp_path)}
    done = completed([tool("bash"), str(script)], env=environment, timeout=120, stdin=subprocess.DEVNULL)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    assert (data / "data").read_text() == "data\n"
    (top / f"ok-{tmp_path.name}").unlink()


WAYS_ROUND = {
    "rename": 'mv "$1" "$1.away" && mkdir -p "$2" && echo replaced',
    "remove": 'rm -rf "$1" && mkdir -p "$2" && echo replaced',
    "exchange": 'mkdir -p "$1.new" && mv -T "$1.new" "$1" && echo replaced',
    "link": 'ln -sfnT /tmp "$1" && echo replaced',
}


@pytest.mark.parametrize("engine", ["bubblewrap", "podman", "apptainer", "charliecloud"])
@pytest.mark.parametrize("way", WAYS_ROUND)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_other_store_is_put_in_the_place_of_the_store(
    captured: Captured, here: Site, tmp_path: Path, engine: str, way: str, depth: int
) -> None:
    facts = here.engine(engine)
    if facts is None or not facts.works:
        pytest.skip(f"no {engine} here")
    work, store = tmp_path / "work", tmp_path / "work" / ".local" / "share" / "store"
    store.mkdir(parents=True)
    (store / "version").write_text("mine\n")
    parts_of_path = store.relative_to(work).parts
    place = work.joinpath(*parts_of_path[:depth])
    command = f"set -- {place} {store}; {WAYS_ROUND[way]}; echo over"
    job = Job(name="bad", command=("/bin/sh", "-c", command), workdir=str(work), engine=engine)
    rootfs = msgspec.structs.replace(captured.rootfs(here), exposed=exposed.find(store, [str(work)]))
    made = plan(job, captured.image, rootfs, here)
    if made.needs_flat:
        make_flat(captured.store, captured.image, made.mount_points, relinked=made.relinked)
    script = tmp_path / "job.sh"
    script.write_bytes(os.fsencode(render.script(made)))
    before = store.stat().st_ino
    done = completed([tool("bash"), str(script)], timeout=120, stdin=subprocess.DEVNULL)
    assert (done.stdout, done.returncode) == ("over\n", 0), done.stderr
    assert (store.stat().st_ino, os.listdir(store)) == (before, ["version"])


@pytest.mark.parametrize("engine", ["bubblewrap", "native"])
def test_a_script_handed_over_by_hand_keeps_its_runs_where_no_container_writes(
    captured: Captured, here: Site, tmp_path: Path, engine: str
) -> None:
    mine, work, runs = tmp_path / "mine", tmp_path / "work", tmp_path / "store" / "by-hand"
    mine.write_text("mine\n")
    work.mkdir()
    command = (
        "for d in $(find / -xdev -type d -name control 2>/dev/null); do "
        f'case $d in {tmp_path}/*) ln -sf {mine} "$d/exit_code"; echo found "$d";; esac; done; echo over'
    )
    made = planned(captured, here, work, command.replace("find /", f"find {work}"), engine=engine)
    script = tmp_path / "job.sh"
    kept = str(runs) if made.image_digest is not None else None
    script.write_bytes(os.fsencode(render.script(made, runs=kept)))
    done = start(script, escaped=tmp_path / "escaped")
    if engine == "native":  # nothing holds it
        assert (work / "bareboat-runs" / "bad-17" / "control" / "starts").is_file()
        return
    assert done.stdout == "[rank 0] over\n", done.stderr
    assert mine.read_text() == "mine\n"
    assert os.listdir(work) == []
    assert (runs / "bad-17" / "control" / "exit_code").read_text().startswith("0 ")


@pytest.mark.parametrize("inside", [".", "runs", "runs/x/ranks", "flat", "link"])
def test_a_mount_in_the_store_itself_is_refused(
    captured: Captured, here: Site, tmp_path: Path, inside: str
) -> None:
    from bareboat_base.errors import PlanError

    folder = captured.store.root / inside
    if inside == "link":
        folder = tmp_path / "link"
        folder.symlink_to(captured.store.root)
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(
        name="bad", command=("true",), workdir=str(tmp_path), engine="bubblewrap",
        mounts=(Mount(source=str(folder), target="/mnt/store", writable=True),),
    )  # fmt: skip
    found = exposed.find(captured.store.root, [str(folder)])
    rootfs = msgspec.structs.replace(captured.rootfs(here), exposed=found)
    with pytest.raises(PlanError, match="is in the store"):
        plan(job, captured.image, rootfs, here)


TABLE = """\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:40 /export/home /home rw - nfs4 server:/export rw
23 21 0:40 /export /nfs rw - nfs4 server:/export rw
24 21 8:1 /srv/x /mnt/x rw - ext4 /dev/sda1 rw
25 21 0:40 /export/home/ada /ada rw - nfs4 server:/export rw
"""


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/home/ada/store", {"/home/ada/store", "/nfs/home/ada/store", "/ada/store"}),
        ("/srv/x/store", {"/srv/x/store", "/mnt/x/store"}),
        ("/mnt/x", {"/mnt/x", "/srv/x"}),
        ("/opt/store", {"/opt/store"}),
        ("/nfs/home", {"/nfs/home", "/home"}),
        ("/", {"/"}),
    ],
)
def test_all_names_of_a_directory_are_found(path: str, names: set[str]) -> None:
    assert set(mounts.find_names(TABLE, path)) == names
