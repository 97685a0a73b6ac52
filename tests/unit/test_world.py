"""Whether the ranks of a job are one world, by what each node saw of their connections."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site

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
    done = subprocess.run(
        ["bash", "-uc", script], env={"BAREBOAT_CONTROL": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.strip()


def seen(*ranks: int, until: int = 20) -> str:
    return "".join(f"seen {rank} {at}\n" for at in (2, until) for rank in ranks)


def star(*ranks: int, to: object = "n0") -> str:
    """Connections of ranks to what started them."""
    return "".join(f"{rank} C:{rank} D:{to}\n{to} D:{to} C:{rank}\n" for rank in ranks)


@pytest.mark.parametrize(
    ("units", "said"),
    [
        ([seen(0, 1, 2, 3)], NOTHING_SEEN),
        # Known at once, and before all nodes have looked often.
        ([star(0, 1, 2, 3)], "one"),
        # Over two nodes each has one end.
        (["0 A:1 B:2\n" + star(0, 1), "2 B:2 A:1\n" + star(2, 3, to="n1")], "one"),
        # torchrun's own connections between nodes are none of the ranks'.
        ([seen(0, 1) + "n0 A:1 B:2\n", seen(2, 3) + "n1 B:2 A:1\n"], NOTHING_SEEN),
        (
            [
                seen(0, 1) + star(0, 1) + "n0 A:1 B:2\n",
                seen(2, 3, until=30) + star(2, 3, to="n1") + "n1 B:2 A:1\n",
            ],
            "4 ranks, and no connection was seen in the first 20 s between 0-1 and 2-3: they may be 2 worlds",
        ),
        # To a server that is no part of the run, or whose other end nobody saw.
        ([seen(0, 1, 2, 3) + "0 A:1 B:2\n1 A:2 B:2\n"], NOTHING_SEEN),
        # A connection of a rank with itself.
        ([seen(0, 1, 2, 3) + "0 A:1 B:2\n0 B:2 A:1\n"], NOTHING_SEEN),
        # By what nobody sees.
        ([seen(0, 1, 2, 3) + "".join(f"{rank} mpi mpi\n" for rank in range(4))], "one"),
        # A program that starts ranks itself gives the same numbers on both nodes.
        (
            [
                seen(0) + "inner 0 0/2\ninner 0 1/2\n" + star(0),
                seen(1) + "inner 1 0/2\ninner 1 1/2\n" + star(1, to="n1"),
            ],
            "several: 2 worlds, each with a rank 0 of 2: the program started ranks itself in each of 2 ranks",
        ),
        # Ranks of the same number on two nodes are two ranks.
        (
            [seen(0) + star(0) + "0 C:9 D:9\n", seen(0) + star(0, to="n1")],
            NOTHING_SEEN.replace("4", "2"),
        ),
        # The ranks within ranks are one world.
        (
            [
                seen(0) + "inner 0 0/4\ninner 0 1/4\n0 A:1 B:2\n",
                seen(1) + "inner 1 2/4\ninner 1 3/4\n1 B:2 A:1\n",
            ],
            "one",
        ),
        # It still loads libraries.
        (["".join(f"seen {rank} {at} {at}\n" for at in (2, 10, 30) for rank in range(4))], ""),
        # Not known: not long enough, not all, or a process of whose rank nobody knows.
        ([seen(0, 1, 2, 3, until=9)], ""),
        ([seen(0, 1, 2)], ""),
        ([seen(0, 1, 2, 3) + "unknown A:1 B:2\n"], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_groups(tmp_path: Path, units: list[str], said: str) -> None:
    ranks = 2 if "inner" in "".join(units) or "D:9" in "".join(units) else 4
    assert groups(tmp_path, *units, ranks=ranks) == said


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
