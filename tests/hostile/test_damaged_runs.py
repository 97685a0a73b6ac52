"""Run directories in which a job, a container or a full disk has left anything: each costs one line, in
seconds and little memory, and never the other runs."""

import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import fake_digest

from bareboat.cli.main import main
from bareboat.model import Submission
from bareboat.runs import state
from bareboat_base import codec
from bareboat_images.store import Store

pytestmark = pytest.mark.one_in(6)

FILES = (
    "submission.json", "record.json", "plan.json", "sweep.json", "matrix.json", "end.json",
    "cancelled", "output.log", "exit_code", "control/exit_code", "control/starts", "control/hosts",
    "control/agains",
    "control/exits.c1", "control/deliveries.c1", "control/watch/verdict",
    "control/mpi_check.log", "control/logs/0.out", "ranks/exits.0", "ranks/mpi_check.log", "ranks/progress/0",
    "ranks/nccl/c1.17", "ranks/logs/0.out",
)  # fmt: skip
LOG = "output.log"
RANK_LOGS = ("control/logs/0.out", "ranks/logs/0.out")
LIMIT_S = 20
SPARE_BYTES = 600 << 20


def huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(3 << 40)


def listening(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def unreadable(path: Path) -> None:
    path.write_text("1 160\n")
    path.chmod(0)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(missing_ok=True),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_text('{"run_id":"tra'),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 100),
    "huge": huge,
    "link-to-passwd": lambda path: path.symlink_to("/etc/passwd"),
    "link-loop": lambda path: path.symlink_to(path.name),
    "link-to-zero": lambda path: path.symlink_to("/dev/zero"),
    "fifo": lambda path: os.mkfifo(path),
    "directory": lambda path: path.mkdir(),
    "socket": listening,
    "mode-000": unreadable,
    "control-characters": lambda path: path.write_text("\x1b]0;owned\x07\x1b[2J 1 2 3\n"),
    "out-of-range": lambda path: path.write_text("-1 99999999999999999999999\n"),
    "10-to-the-400": lambda path: path.write_text("1" + "0" * 400 + " 1" + "0" * 400 + "\n"),
    "long-number": lambda path: path.write_text("9" * 100_000 + " c1 17\n"),
    "nested": lambda path: path.write_text("[" * 100_000),
    "nested-value": lambda path: path.write_text('{"run_id":' + '{"a":' * 100_000),
    "another-type": lambda path: path.write_text('{"run_id": 7, "scheduler": ["slurm"]}'),
    "option": lambda path: path.write_text("--me\n"),
}


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scheduler that knows no job any more, and writes down what it is told to cancel."""
    programs, told = tmp_path / "bin", tmp_path / "told"
    programs.mkdir()
    for name in ("squeue", "sacct", "scancel", "srun"):
        (programs / name).write_text(f'#!/bin/sh\n[ {name} != scancel ] || echo "$*" >> {told}\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(state, "_SETTLE_S", 0.0)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return told


@pytest.fixture
def bounded() -> Iterator[None]:
    """Time and memory run out for who takes much of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"it took longer than {LIMIT_S} s"))
    signal.alarm(LIMIT_S)
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def make(store: Store, name: str, *, code: str, nodes: int = 2) -> str:
    run = store.new_run(name)
    folder = store.run(run)
    for inner in (
        "control/watch",
        "control/logs",
        "ranks/progress",
        "ranks/nccl",
        "ranks/logs",
    ):
        (folder / inner).mkdir(parents=True)
    made = Submission(
        run_id=run, scheduler="slurm", job_id="17", name=name, nodes=nodes, world_size=2, engine="native",
        submitted_at="2026-11-22T03:00:00Z", plan_digest=fake_digest("1"), image_digest=None,
        site_digest=fake_digest("2"),
    )  # fmt: skip
    store.write(folder / "submission.json", codec.to_json(made))
    (folder / "output.log").write_text(f"output of {name}\n")
    (folder / "control/starts").write_text("100 c1 17\n")
    (folder / "control/hosts").write_text("c1\nc2\n")
    if code:
        (folder / "control/exit_code").write_text(f"{code} 160\n")
    return run


def put(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    DAMAGES[damage](path)


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_one_damaged_run_costs_one_line(
    store: Store, queue: Path, capfdbinary: pytest.CaptureFixture[bytes], name: str, damage: str
) -> None:
    before = make(store, "before", code="0")
    bad = make(store, "bad", code="" if damage in ("option", "mode-000") else "71")
    after = make(store, "after", code="7")
    put(store.run(bad), name, damage)

    assert main(["status"]) in (0, 4)
    shown = capfdbinary.readouterr().out.decode()
    lines = {line.split()[0]: line for line in shown.splitlines()}
    assert ("0" in lines[before].split(), "7" in lines[after].split()) == (True, True)
    assert (bad in lines) is not (name == "submission.json" and damage == "missing")
    assert shown.isprintable() or {c for c in shown if not c.isprintable()} <= {"\n", "…"}
    assert main(["status", "--json"]) in (0, 4)
    told = {each["run_id"]: each for each in json.loads(capfdbinary.readouterr().out)}
    assert (told[before]["exit_code"], told[after]["exit_code"]) == (0, 7)
    for words in (
        ["status", bad], ["report"], ["logs", bad], ["logs", "--rank", "0", bad], ["wait", bad],
        ["cancel", bad], ["attach", bad],
    ):  # fmt: skip
        if words[0] == "logs" and damage == "huge" and name in (LOG, *RANK_LOGS):
            continue  # terabytes of zeros, passed on as they are
        code, said = main(words), capfdbinary.readouterr()
        assert code != 70, f"{words}: {said.err!r}"
        assert b"root:" not in said.out + said.err
        assert b"\x1b" not in said.err
    assert not queue.exists() or set(queue.read_text().split()) <= {"17"}


@pytest.mark.parametrize(
    "number",
    [
        "--me", "-u", "--user=x", "17;id", "17 18", "$(id)", "../17", "-1",
        "17_", "_1", "a17", "17\x1b[2J", "*", "9" * 300,
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["agains", "submission"])
def test_what_is_no_job_number_reaches_no_command(store: Store, queue: Path, number: str, where: str) -> None:
    run = make(store, "job", code="")
    if where == "agains":
        # A line is read word by word.
        (store.run(run) / "control/agains").write_text(f"18\nx-\n{number.replace(' ', ';')}\n")
    else:
        path = store.run(run) / "submission.json"
        said = json.loads(path.read_bytes())
        path.write_text(json.dumps({**said, "job_id": number}))
    for words in (["cancel", run], ["attach", run], ["wait", run], ["status", run]):
        assert main(words) != 70
    assert main(["cancel", run]) != 0
    assert not queue.exists()


FIELDS: dict[str, tuple[object, ...]] = {
    "run_id": ("another-20261122-101010", "../../etc", "", "\x1b[2J", 7),
    "scheduler": ("local", "none", "../x", "\x1b[2J", "", None),
    "nodes": (0, -1, 10**9, 10**18, 10**400, 1.5, "2", None),
    "world_size": (0, -1, 1, 10**9, 10**18, 10**400, None),
    "points": (-1, 10**9, 10**18, 10**400, "x"),
    "job_id": ("\x1b[2J", "17\n18", 17, []),
    "walltime_s": (10**400, "x"),
    "submitted_at": (7, None, []),
    "fabric": (7, [], {"there": 7}),
}


@pytest.mark.usefixtures("bounded", "queue")
@pytest.mark.parametrize(
    ("field", "value"), [(f, v) for f, values in FIELDS.items() for v in values], ids=lambda v: repr(v)[:30]
)
def test_a_submission_with_a_value_out_of_range(
    store: Store, capfdbinary: pytest.CaptureFixture[bytes], field: str, value: object
) -> None:
    good, bad = make(store, "good", code="0"), make(store, "bad", code="")
    path = store.run(bad) / "submission.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), field: value}))
    assert main(["status"]) in (0, 4)
    lines = {line.split()[0]: line for line in capfdbinary.readouterr().out.decode().splitlines()}
    assert "0" in lines[good].split()
    assert "\x1b" not in lines[bad]
    for words in (["status", bad], ["logs", bad], ["cancel", bad], ["wait", bad], ["attach", bad]):
        assert main(words) != 70
