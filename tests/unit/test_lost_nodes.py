"""A node that is lost: what started its part is not awaited without a limit, and the job starts again."""

import subprocess
import time
from pathlib import Path

import pytest
from processes import with_variable
from tools import executable, output, tool

from bareboat import registry, render
from bareboat.bash import piece

BY_HOST = piece("bareboat.schedulers", "by_host")

#: A part on c2, in the words of the remote starter: what it leaves in the run's directory, and how it ends.
FAILS = 'echo 5 > "$BAREBOAT_CONTROL/ends.1"; return 5'
HANGS = ': > "$BAREBOAT_CONTROL/ends.1"; bash -c "sleep 300 & wait"'
BREAKS = ': > "$BAREBOAT_CONTROL/ends.1"; return 255'
REFUSED = "return 255"
ENDS = 'echo 0 > "$BAREBOAT_CONTROL/ends.1"'
SLOW = f"while [ ! -e $BAREBOAT_CONTROL/signals ]; do sleep 0.1; done; sleep 1; {FAILS}"
ONCE = '[ -e "$BAREBOAT_CONTROL/once" ] || echo c2; : > "$BAREBOAT_CONTROL/once"'
KILLED = 'kill -KILL "$BASHPID"'


def on_each_node(folder: Path, first: int, second: str, down: str = "") -> tuple[int, str, bool]:
    """The exit code, the lost nodes, and whether SIGTERM was passed on; c1's part exits with `first`. `down`:
    what prints the nodes that are down."""
    (folder / "job.sh").write_text(f"echo {first} > $BAREBOAT_CONTROL/ends.0; exit {first}\n")
    text = (
        f"set -u\nexport BAREBOAT_CONTROL={folder}\nhosts=(c1 c2)\n{BY_HOST}\n"
        f"ends_within_s=3\nasks_every_s=1\nnodes_down() {{ {down or 'true'}; }}\n"
        f"on_host() {{ {second}; }}\non_each_node {folder}/job.sh --node run\n"
    )
    done = subprocess.run([tool("bash"), "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("", "")
    lost = folder / "lost"
    return done.returncode, lost.read_text() if lost.exists() else "", (folder / "signals").exists()


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (0, ENDS, (0, "", False)),
        (0, FAILS, (5, "", True)),
        (7, SLOW, (7, "", True)),
        (7, HANGS, (7, "c2\n", True)),
        (0, BREAKS, (255, "c2\n", True)),
        (0, BREAKS.replace("255", "0"), (70, "c2\n", True)),
        (0, REFUSED, (255, "", True)),
        (0, KILLED, (137, "", True)),
    ],
    ids=[
        "both end",
        "fails",
        "ends after SIGTERM",
        "hangs",
        "connection breaks",
        "breaks, 0",
        "never began",
        "killed",
    ],
)
def test_parts_on_nodes(first: int, second: str, found: tuple[int, str, bool], tmp_path: Path) -> None:
    began = time.monotonic()
    assert on_each_node(tmp_path, first, second) == found
    assert time.monotonic() - began < 20
    assert with_variable(f"BAREBOAT_CONTROL={tmp_path}") == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("down", "second", "found"),
    [
        ("echo c1; echo c2", HANGS, (137, "c2\n", True)),
        (ONCE, f"sleep 4; {ENDS}", (0, "", False)),
        ("echo c22", f"sleep 4; {ENDS}", (0, "", False)),
    ],
    ids=["down", "down once", "another node"],
)  # fmt: skip
def test_a_part_on_a_node_that_is_down_is_not_awaited(
    down: str, second: str, found: tuple[int, str, bool], tmp_path: Path
) -> None:
    """No rank has failed."""
    assert on_each_node(tmp_path, 0, second, down) == found


@pytest.mark.parametrize(
    ("scheduler", "tool_name", "text"),
    [
        ("pbs", "pbsnodes", "c1\n     Mom = c1\n     state = free\n     last_state_change_time = 1\n\n"
         "c2\n     Mom = c2\n     state = state-unknown,down\n\nc3\n     state = down\n     comment = up\n\n"
         "c4\n     state = offline\n"),
        ("gridengine", "qselect", "main@c2\nlong@c3\n"),
    ],
)  # fmt: skip
def test_the_nodes_that_a_scheduler_reports_as_down(
    scheduler: str, tool_name: str, text: str, tmp_path: Path
) -> None:
    program = tmp_path / tool_name
    executable(program, f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    body = f"{registry.scheduler(scheduler).snippet()}\nnodes_down c1 c2 c3 c4"
    said = output(tool("bash"), "-c", body, timeout=60, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert said.split() == ["c2", "c3"]


FIRST = """
set -u
features=' requeue ' code={code} starts={starts} script=old BAREBOAT_CONTROL={folder}
{pieces}
again() {{ echo 18; }}
pass_on() {{ :; }}
report_lost
requeue
finish "$code"
"""


@pytest.mark.parametrize(
    ("code", "starts", "lost", "agains", "losses", "found"),
    [
        (1, 1, "c2\n", "", "", (70, "18\n", "1\n", "requeueing the job")),
        (1, 2, "c2\n", "18\n", "1\n", (70, "18\n", "1\n", "lost its nodes twice")),
        # After starts that the job requested, and after one that the scheduler repeated.
        (1, 3, "c2\n", "18\n19\n", "", (70, "18\n19\n18\n", "3\n", "requeueing the job")),
        (1, 2, "c2\n", "", "", (70, "", "", "lost its nodes twice")),
        (1, 1, "", "", "", (1, "", "", "")),
        (75, 1, "", "", "", (75, "18\n", "", "the job requests a restart")),
    ],
)
def test_a_job_that_lost_a_node_starts_again_once(
    code: int,
    starts: int,
    lost: str,
    agains: str,
    losses: str,
    found: tuple[int, str, str, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    for name, text in (("lost", lost), ("agains", agains), ("losses", losses)):
        if text:
            (tmp_path / name).write_text(text)
    pieces = render.subject("common") + render.subject("cluster")
    text = FIRST.format(code=code, starts=starts, folder=tmp_path, pieces=pieces)
    done = subprocess.run([tool("bash"), "-c", text], capture_output=True, text=True, timeout=60, check=False)
    expected_code, expected_agains, expected_losses, words = found
    assert done.returncode == expected_code
    assert words in done.stderr
    assert ("a node was lost: c2" in done.stderr) == bool(lost)
    for name, expected in (("agains", expected_agains), ("losses", expected_losses)):
        path = tmp_path / name
        assert (path.read_text() if path.exists() else "") == expected
    is_over = (tmp_path / "exit_code").exists()
    assert is_over == (words in ("", "lost its nodes twice"))


@pytest.mark.parametrize(
    ("failed", "stopped", "ends", "expected"),
    [("143", "", "", "c2\n"), ("7", "", "", ""), ("143", " TERM", "", ""), ("143", "", "1 143\n", "")],
)
def test_a_lost_node_of_ranks_that_a_program_started(
    failed: str, stopped: str, ends: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "exits.c1").write_text("0 143\n")
    (tmp_path / "exits.c2").write_text(ends)
    text = (
        f"set -u\nBAREBOAT_CONTROL={tmp_path} BAREBOAT_NODES=2 start=program world_size=2 hosts=(c1 c2)\n"
        f"failed_status='{failed}' stopped='{stopped}'\n{BY_HOST}\n"
        "nodes_down() { echo c2; echo c3; echo c2; }\nfind_lost\n"
    )
    subprocess.run([tool("bash"), "-c", text], timeout=20, check=True)
    lost = tmp_path / "lost"
    assert (lost.read_text() if lost.exists() else "") == expected


def test_a_report_that_comes_in_two_parts_is_whole() -> None:
    """`read` returns what it has read when its time is over."""
    text = (
        f"set -u\n{BY_HOST}\nnumber=7 status=7 partial=''\n"
        "exec {ended}<> <(:)\n(printf '1 3'; sleep 0.6; printf '4\\n') >&\"$ended\" &\n"
        'until read_line 0.2; do :; done\necho "$number $status <$partial>"\n'
    )
    done = subprocess.run([tool("bash"), "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("1 34 <>\n", "")
