"""Ranks that are one world, and ranks that are not, on this machine: what the job script sees of them."""

import json
import re
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pytest
from processes import command
from worlds import STARTS_RANKS

PYTHON = Path("/opt/bareboat-lab/mpi/debian/bin/python")
ALONE = r"2 ranks, and no connection between them was seen in the first \d+ s: each may be a singleton"
#: A rank ends when the job script has seen enough of it: how long that takes depends on the machine's load.
WAIT = """
import os, time
deadline = time.monotonic() + 120
while not os.path.exists("enough") and time.monotonic() < deadline:
    time.sleep(0.1)
"""
#: A rank may lose the run's mark, and its number.
MEET = """\
import os, socket, sys, time
if "RANK" in os.environ:
    words = [sys.executable, __file__, os.environ["RANK"], os.environ["MASTER_PORT"]]
    os.execve(sys.executable, words, {}) if UNMARKED else sys.argv.extend(words[2:])
rank, port = map(int, sys.argv[1:])
if rank == 0:
    server = socket.create_server(("127.0.0.1", port))
    peer = server.accept()
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
"""
MPI = "from mpi4py import MPI\nassert MPI.COMM_WORLD.size == 2\n"
CASES = {
    "apart": ("ranks", WAIT),
    "together": ("ranks", f"UNMARKED = False\n{MEET}{WAIT}"),
    "unmarked": ("ranks", f"UNMARKED = True\n{MEET}{WAIT}"),
    "mpi": ("mpirun", f"{MPI}{WAIT}"),
    "several": ("", STARTS_RANKS),
    "meant": ("ranks", STARTS_RANKS),
}


def is_enough(folder: Path) -> bool:
    """Whether the job script knows that the ranks of a run are one world, or could say that they are not: it
    has looked at each for 8 s since the rank last loaded a library."""
    world = folder / "control" / "world"
    if (world / "one").exists():
        return True
    looks: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for line in (world / "looks.0").read_text().splitlines() if (world / "looks.0").exists() else ():
        match line.split():
            case ["seen", rank, seconds, libraries]:
                looks[rank][libraries].append(int(seconds))
    last = [list(each.values())[-1] for each in looks.values()]
    return len(last) == 2 and all(seconds[-1] - seconds[0] >= 8 for seconds in last)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, Path]]:
    """Of each case the exit code, what was said, and the run's directory. They wait most of their time."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing: sudo tests/lab/mpi-pairs.sh")
    top = tmp_path_factory.mktemp("world")
    running = {}
    for name, (launcher, script) in CASES.items():
        (top / name).mkdir()
        (top / name / "script.py").write_text(script)
        (top / name / "job.toml").write_text(
            f'name = "{name}"\ncommand = ["{PYTHON}", "script.py"]\n'
            + (f'launcher = "{launcher}"\n' if launcher else "")
            + f'engine = "bubblewrap"\n[topology]\nranks_per_node = 2\n[capture]\npython = "{PYTHON}"\n'
        )
        running[name] = subprocess.Popen(
            command("run", "--store", top / "store", "job.toml"), cwd=top / name,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    looked = {"apart", "together", "mpi"}
    deadline = time.monotonic() + 120
    while looked and time.monotonic() < deadline:
        time.sleep(0.2)
        for name in list(looked):
            if (
                any(map(is_enough, (top / "store" / "runs").glob(f"{name}-*")))
                or running[name].poll() is not None
            ):
                (top / name / "enough").touch()
                looked.remove(name)
    # Nothing is seen of these ranks; they have run as long as the others.
    (top / "unmarked" / "enough").touch()
    found = {}
    for name, process in running.items():
        said = process.communicate(timeout=180)[1]
        found[name] = process.returncode, said, next((top / "store" / "runs").glob(f"{name}-*"))
    return found


@pytest.mark.parametrize("name", CASES)
def test_only_ranks_without_a_connection_are_told_of(
    ended: dict[str, tuple[int, str, Path]], name: str
) -> None:
    code, said, folder = ended[name]
    mark = json.loads((folder / "record.json").read_text())["world_mark"]
    assert code == (3 if name == "several" else 0), said
    if name in ("several", "meant"):
        assert mark.startswith("the program started ranks itself in 2 of 2 ranks")
        assert (f"bareboat: {mark}" if code else f"WARNING: {mark}") in said
    elif name == "apart":
        assert f"WARNING: {mark}" in said
        assert re.fullmatch(ALONE, mark)
    else:
        assert "WARNING" not in said
        assert mark == ""
    assert (folder / "control" / "world" / "one").exists() is (name in ("together", "mpi"))
