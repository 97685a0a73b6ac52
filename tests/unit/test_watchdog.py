"""The watchdog's parts that can be asked one by one: what it reads out of stacks, and what is made of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from builders import fake_digest, make_image, make_job, make_rootfs, make_site
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from tools import tool

from bareboat import render
from bareboat.model import JobState, Plan, Scheduling, Submission, Topology
from bareboat.plan import plan
from bareboat.runs import programs, records, state
from bareboat_base import codec
from bareboat_base.errors import UsageError
from bareboat_images.store import Store


def asks(function: str, *arguments: str | Path, stdin: str = "") -> str:
    """What a function of the job script prints."""
    script = f'BAREBOAT_CONTROL=.\n{render.subject("watchdog")}\nset_watch\n{function} "$@"'
    done = subprocess.run(
        [tool("bash"), "-uc", script, "bash", *map(str, arguments)],
        input=stdin, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.removesuffix("\n")


PY_SPY = """\
# process 1233 on c2: /bin/sh -c "$@"; code=$?
# state S (sleeping); in the kernel: do_wait

# process 1234 on c2: python train.py
Process 1234: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 1240 (idle): "Thread-1 (run)"
    wait (threading.py:327)
Thread 1234 (idle): "MainThread"
    all_reduce (/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3009)
    wrapper (/env/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83)
    main.<locals>.step (/home/ada/my job (2)/train.py:88)
    <module> (/home/ada/my job (2)/train.py:120)
Thread 1299 (idle): "Thread-2"
    other (/home/ada/train.py:7)
# state S (sleeping); in the kernel: futex_wait_queue

# process 1300 on c2: python train.py
Process 1300: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 1300 (idle): "MainThread"
    _worker_loop (/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py:1)
# state S (sleeping); in the kernel: do_poll
"""
FAULTHANDLER = """\
# process 1234 on c2: python train.py
Error: Failed to parse python binary
# state S (sleeping); in the kernel: futex_wait_queue

Fatal Python error: Aborted

Thread 0x00007f6f2b7fe6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/home/ada/loader.py", line 5 in load

Current thread 0x00007fd0dfcce040 (most recent call first):
  File "/usr/lib/python3.11/socket.py", line 706 in readinto
  File "/home/ada/data.py", line 12 in read
  File "/home/ada/train.py", line 9 in <module>

Thread 0x00007f6f2b7fe6c1 (most recent call first):
  File "/home/ada/other.py", line 1 in other
"""


@pytest.mark.parametrize(
    ("stacks", "where"),
    [
        (PY_SPY, "all_reduce (train.py:88)"),
        (PY_SPY.replace('"MainThread"', ""), "all_reduce (train.py:88)"),
        (FAULTHANDLER, "readinto (data.py:12)"),
        ("# process 7 on c1: ./solver\n# state D (disk sleep); in the kernel: nfs_wait\n",
         "nfs_wait (in the kernel)"),
        ("# process 7 on c1: ./solver\n# state R (running); in the kernel: 0\n",
         "an unknown place"),
        ("", "an unknown place"),
        ("Process 7: p\nThread 7 (active)\n    <module> (<string>:1)\n", "<module> (<string>:1)"),
        ("Process 7: p\nThread 7 (active)\n    run (/a/\x1b[31m.py:1)\n", "run (?[31m.py:1)"),
    ],
)  # fmt: skip
def test_where_a_rank_stands_is_read_out_of_its_stacks(tmp_path: Path, stacks: str, where: str) -> None:
    (tmp_path / "3").write_text(stacks)
    assert asks("where_it_stands", tmp_path / "3") == where


NAMES = st.from_regex(r"[a-z_<>.]{1,12}", fullmatch=True)
FILES = st.from_regex(r"/(home|data)/[a-z (),:]{0,9}/[a-z-]{1,8}\.py", fullmatch=True)
LIBRARIES = st.sampled_from(["/usr/lib/python3.12/socket.py", "/e/lib/python3.11/site-packages/a/b.py"])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(NAMES, LIBRARIES, st.integers(1, 9999)), max_size=4),
    st.lists(st.tuples(NAMES, FILES, st.integers(1, 9999)), min_size=1, max_size=4),
    st.booleans(),
)
def test_the_innermost_function_and_line_of_the_users_own_are_found(
    tmp_path_factory: pytest.TempPathFactory,
    libraries: list[tuple[str, str, int]],
    own: list[tuple[str, str, int]],
    by_py_spy: bool,
) -> None:
    frames = libraries + own
    if by_py_spy:
        lines = ["Process 7: python", "", 'Thread 7 (idle): "MainThread"']
        lines += [f"    {name} ({file}:{line})" for name, file, line in frames]
    else:
        lines = ["Fatal Python error: Aborted", "", "Current thread 0x07 (most recent call first):"]
        lines += [f'  File "{file}", line {line} in {name}' for name, file, line in frames]
    path = tmp_path_factory.mktemp("stacks") / "0"
    path.write_text("\n".join(lines) + "\n")
    _, file, line = own[0]
    assert asks("where_it_stands", path) == f"{frames[0][0]} ({Path(file).name}:{line})"


@pytest.mark.parametrize(
    ("stand", "told"),
    [
        ("aaaBaa", ["5 of 6 ranks are in a (x.py:1)", "rank 3 on c2 is in B (x.py:1)"]),
        ("aaaa", ["all 4 ranks are in a (x.py:1)"]),
        ("a", ["the rank is in a (x.py:1)"]),
        # With no majority nobody is called odd.
        ("ab", ["rank 0 on c1 is in a (x.py:1)", "rank 1 on c1 is in b (x.py:1)"]),
        ("aabb", ["ranks 0-1 on c1 are in a (x.py:1)", "ranks 2-3 on c2 are in b (x.py:1)"]),
        ("aaaaaBBaBac", ["7 of 11 ranks are in a (x.py:1)",
                         "ranks 5-6, 8 on c3, c4, c5 are in B (x.py:1)",
                         "rank 10 on c6 is in c (x.py:1)"]),
    ],
)  # fmt: skip
def test_who_stands_elsewhere_than_most_is_told(stand: str, told: list[str]) -> None:
    lines = [f"{rank} c{rank // 2 + 1} {at} (x.py:1)" for rank, at in enumerate(stand)]
    assert asks("compare", stdin="\n".join(reversed(lines)) + "\n").splitlines() == told


def test_a_thousand_places_are_not_all_told() -> None:
    lines = [f"{rank} c1 f{rank} (x.py:1)" for rank in range(1000)]
    told = asks("compare", stdin="\n".join(lines) + "\n").splitlines()
    assert told[-1] == "992 more places"
    assert len(told) == 9


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["a (x.py:1)", "b c (y z.py:22)", "a (x.py:2)"]), min_size=2, max_size=30))
def test_every_rank_is_told_of_once(stand: list[str]) -> None:
    lines = [f"{rank} c{rank} {at}\n" for rank, at in enumerate(stand)]
    told = asks("compare", stdin="".join(lines)).splitlines()
    number = 0
    for line in told:
        most = re.fullmatch(r"(?:all )?(\d+) (?:of \d+ )?ranks are in (.*)", line)
        some = re.fullmatch(r"ranks? ([-\d, ]+) on .*? (?:is|are) in (.*)", line)
        if most:
            assert int(most[1]) == stand.count(most[2])
            assert stand.count(most[2]) * 2 > len(stand)
            number += int(most[1])
        else:
            assert some
            ranks = []
            for part in some[1].split(", "):
                first, _, last = part.partition("-")
                ranks += range(int(first), int(last or first) + 1)
            assert ranks == [rank for rank, at in enumerate(stand) if at == some[2]]
            number += len(ranks)
    assert number == len(stand)


# --- the plan -----------------------------------------------------------------------------------------------


def watched(watchdog_s: int = 600, **tools: str) -> Plan:
    image = make_image()
    job = make_job(
        scheduling=Scheduling(watchdog_s=watchdog_s), topology=Topology(ranks_per_node=2),
        environment={"PYTHONUNBUFFERED": "0"},
    )  # fmt: skip
    site = make_site(other_tools={name.replace("_", "-"): path for name, path in tools.items()})
    return plan(job, image, make_rootfs(image), site)


def test_the_plan_says_that_the_run_is_watched_and_how() -> None:
    (decision,) = [each for each in watched().decisions if each.subject == "watchdog"]
    assert decision.choice == "600 s"
    assert "pip install py-spy" in decision.reason
    made = watched(py_spy="/opt/py-spy")
    (decision,) = [each for each in made.decisions if each.subject == "watchdog"]
    assert "/opt/py-spy" in decision.reason
    assert re.search(r"^(.* )?py_spy=/opt/py-spy( |$)", render.script(made), re.MULTILINE)


def test_what_is_not_watched_has_nothing_of_it() -> None:
    made = watched(0, py_spy="/opt/py-spy")
    assert made.py_spy is UNSET
    assert "watchdog" not in [each.subject for each in made.decisions]
    head, _, functions = render.script(made).partition("\nhas() {")
    assert not [word for word in ("watchdog", "FAULTHANDLER", "py_spy") if word in head]
    assert not [word for word in ("keep_stacks", "watch_over") if word in functions]


def test_the_jobs_own_variables_go_over_the_watchdogs() -> None:
    script = render.script(watched())
    assert "--setenv PYTHONUNBUFFERED 0" in script
    assert "--setenv PYTHONFAULTHANDLER 1" in script


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(UsageError, match="watchdog_s is -1") as caught:
        Scheduling(watchdog_s=-1)
    assert caught.value.remedy == 'set watchdog_s = "10m" under [scheduling]'


def test_py_spy_is_copied_to_where_the_nodes_see_it(store: Store, tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\n")
    site = make_site(other_tools={"py-spy": str(program), "ssh": "/usr/bin/ssh"})
    provided = programs.provide_py_spy(store, site)
    copy = Path(provided.other_tools["py-spy"])
    assert copy.is_relative_to(store.root)
    assert copy.read_bytes() == program.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o755
    assert provided.other_tools["ssh"] == "/usr/bin/ssh"
    assert programs.provide_py_spy(store, provided) == provided
    assert programs.provide_py_spy(store, make_site()) == make_site()


# --- what is told of a run afterwards -----------------------------------------------------------------------


def ended(store: Store, code: int, **files: str) -> state.Status:
    run = store.new_run("train")
    ranks = store.run(run) / "control"
    (ranks / "watch").mkdir(parents=True)
    (ranks / "stacks").mkdir()
    (store.run(run) / "ranks" / "progress").mkdir(parents=True)
    made = Submission(
        run_id=run, scheduler="slurm", job_id="17", name="train", nodes=2, world_size=4, engine="native",
        submitted_at="2026-11-22T03:00:00Z", plan_digest=fake_digest("1"), image_digest=None,
        site_digest=fake_digest("2"),
    )  # fmt: skip
    store.write(store.run(run) / "submission.json", codec.to_json(made))
    (ranks / "starts").write_text("100 c1 17\n")
    (ranks / "hosts").write_text("c1\nc2\n")
    (ranks / "exit_code").write_text(f"{code} 160\n")
    for name, text in files.items():
        folder = ranks if not name.startswith("progress") else store.run(run) / "ranks"
        (folder / name.replace("__", "/")).write_text(text)
    status = state.from_files(store, made)
    assert status is not None
    return status


def test_a_hang_is_told_with_who_is_odd_and_on_all_nodes(store: Store) -> None:
    told = "3 of 4 ranks are in all_reduce (train.py:88)\nrank 3 on c2 is in read (data.py:12)\n"
    status = ended(store, 71, watch__verdict="", stacks__summary=told)
    assert status.state is JobState.FAILED
    assert status.reason == "hung: " + told.strip().replace("\n", "; ")
    assert status.nodes == "c[1-2]"


def test_another_program_may_end_with_71(store: Store) -> None:
    assert ended(store, 71).reason == ""


def test_the_record_has_the_straggler(store: Store) -> None:
    reports = {
        f"progress__{rank}": "".join(f"{step} {0.3 if rank == 2 else 0.2}\n" for step in range(30))
        for rank in range(4)
    }
    status = ended(store, 0, **reports)
    record = records.record(store, status)
    assert record is not None
    assert record.straggler is not None
    assert (record.straggler.rank, record.straggler.node, record.straggler.ratio) == (2, "c2", 1.5)
