"""Whether the ranks of a job are one world, by what each node saw of their connections."""

import os
import resource
import socket
import time
from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site
from tools import completed

from bareboat.model import Topology
from bareboat.plan import plan
from bareboat.render import subject
from bareboat.runs import transports

IMAGE = make_image()
NOTHING_SEEN = "4 ranks, and no connection between them was seen in the first 20 s: each may be a singleton"


def groups(folder: Path, *units: str, ranks: int = 4) -> str:
    (folder / "world").mkdir()
    for unit, looks in enumerate(units):
        (folder / "world" / f"looks.{unit}").write_text(looks)
    script = "\n".join([f"world_size={ranks}", subject("common"), subject("world"), "world_groups\n"])
    done = completed(["bash", "-uc", script], env={"BAREBOAT_CONTROL": str(folder), "PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def seen(*ranks: int, until: int = 20) -> str:
    return "".join(f"seen {rank} {at}\n" for at in (2, until) for rank in ranks)


def one_world(*ranks: int) -> str:
    """Each rank is connected to the one before it."""
    return "".join(f"{rank} A:{end}-B:{end}\n" for rank in ranks for end in (rank, rank + 1))


@pytest.mark.parametrize(
    ("units", "ranks", "said"),
    [
        ([seen(0, 1, 2, 3)], 4, NOTHING_SEEN),
        # Known at once, and before all nodes have looked often.
        ([one_world(0, 1, 2, 3)], 4, "one"),
        # Over two nodes each has one end.
        ([one_world(0, 1), one_world(2, 3)], 4, "one"),
        # Of the launcher's own connections each end is a rank's.
        ([seen(0, 1) + "0 A:1-B:2\n", seen(2, 3) + "2 A:1-B:3\n"], 4, NOTHING_SEEN),
        ([seen(0, 1) + one_world(0, 1), seen(2, 3, until=30) + "2 C:1-D:3\n3 C:1-D:3\n3 E:1-F:3\n"], 4,
         "4 ranks, and no connection between 2 groups of them was seen in the first 20 s: they may be 2 "
         "worlds"),
        # A connection of a rank with itself.
        ([seen(0, 1, 2, 3) + "0 A:1-B:2\n0 A:1-B:2\n"], 4, NOTHING_SEEN),
        # By what nobody sees.
        ([seen(0, 1, 2, 3) + "".join(f"{rank} mpi\n" for rank in range(4))], 4, "one"),
        # A program that starts ranks itself.
        ([seen(0) + "inner 0\n0 A:1-B:2\n", seen(1) + "inner 1\n"], 2,
         "several: the program started ranks itself in 2 of 2 ranks"),
        # The ranks within ranks are one world.
        ([seen(0) + "inner 0\n0 A:1-B:2\n", seen(1) + "inner 1\n1 A:1-B:2\n"], 2, "one"),
        # Ranks of the same number on two nodes are two ranks.
        ([seen(0) + "0 C:9-D:9\n", seen(0)], 2, NOTHING_SEEN.replace("4", "2")),
        # It still loads libraries.
        (["".join(f"seen {rank} {at} {at}\n" for at in (2, 10, 30) for rank in range(4))], 4, ""),
        # Not known: not long enough, not all, or a process of whose rank nobody knows.
        ([seen(0, 1, 2, 3, until=9)], 4, ""),
        ([seen(0, 1, 2)], 4, ""),
        ([seen(0, 1, 2, 3) + "unknown A:1-B:2\n"], 4, ""),
        ([], 4, ""),
    ],
)  # fmt: skip
def test_groups(tmp_path: Path, units: list[str], ranks: int, said: str) -> None:
    assert groups(tmp_path, *units, ranks=ranks) == said


def test_a_launcher_that_has_not_started_its_ranks_is_not_one_of_them() -> None:
    """torchrun's processes connect to each other before they start the ranks."""
    server = socket.create_server(("127.0.0.1", 0))
    values = f"unit=0 ranks_per_node=2 start=nodes; run_pids() {{ echo {os.getpid()}; }}"
    script = "\n".join([subject("common"), subject("world"), values, "connections\n"])
    with server, socket.create_connection(server.getsockname()):
        looked = completed(["bash", "-uc", script])
    assert (looked.returncode, looked.stdout, looked.stderr) == (0, "", "")


def test_thousands_of_ranks_are_judged_at_once(tmp_path: Path) -> None:
    """The look is repeated beside rank 0."""
    began = time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    number = 4096
    look = "".join(f"seen {rank} {{}} 9\n{rank} mpi\n{rank} H:{rank}-S:1\n" for rank in range(number))
    lines = look.replace("{}", "2") + look.replace("{}", "20")
    assert groups(tmp_path, lines, ranks=number) == "one"
    took_s = time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began
    assert took_s < 2, took_s


@pytest.mark.parametrize(("ranks", "launcher", "is_watched"), [(1, None, False), (2, "ranks", True)])
def test_what_is_watched(ranks: int, launcher: str | None, is_watched: bool) -> None:
    job = make_job(topology=Topology(ranks_per_node=ranks), launcher=launcher)
    made = plan(job, IMAGE, make_rootfs(IMAGE), make_site(cpus=8))
    assert (made.watches_world is True) is is_watched
    assert any(decision.subject == "world" for decision in made.decisions) is is_watched


#: As users of NCCL 2.18 and later report it.
SAYS = (
    "node1:41:41 [0] NCCL INFO ncclCommInitRank comm 0x5581 rank 0 nranks {size} cudaDev 0 nvmlDev 0 "
    "busId 7000 commId 0x9ea1 - Init COMPLETE\n"
)
ALONE = "NCCL reports world size 1 on each of 2 ranks: each trains its own model"


@pytest.mark.parametrize(
    ("ranks", "files", "said"),
    [
        (2, [[1], [1]], ALONE),
        # Groups of one are usual beside the whole.
        (2, [[2, 1], [2, 1]], "seen"),
        # Only all ranks together say it.
        (2, [[1]], "seen"),
        (2, [], "seen"),
        (1, [[1]], ""),
    ],
)
def test_nccl_says_that_each_rank_is_alone(
    tmp_path: Path, ranks: int, files: list[list[int]], said: str
) -> None:
    (tmp_path / "control/world").mkdir(parents=True)
    (tmp_path / "control/world/apart").write_text("seen\n")
    (tmp_path / "ranks/nccl").mkdir(parents=True)
    for number, sizes in enumerate(files):
        text = "".join(SAYS.format(size=size) for size in sizes)
        (tmp_path / f"ranks/nccl/node1.{number}").write_text(text)
    assert transports.world_mark(tmp_path, ranks) == said
