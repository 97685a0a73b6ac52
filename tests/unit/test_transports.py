"""What libraries say of their way, by the record's reader and by the job script's: both must agree."""

import subprocess
from pathlib import Path

import fabric_words as said
import pytest
from tools import tool

from bareboat import transport_logs
from bareboat.model import MpiFamily
from bareboat.model.fabric import FabricWatch
from bareboat.runs import transports


def by_bash(text: str) -> bool | None:
    """As the job script judges."""

    def has(pattern: str) -> bool:
        words = [tool("grep"), "-aqE", pattern]
        return subprocess.run(words, input=text, text=True, check=False).returncode == 0

    return False if has(transport_logs.SOCKETS) else True if has(transport_logs.FABRIC) else None


def by_record(text: str) -> bool | None:
    ways = transport_logs.read(text)
    return None if not ways else all(way.fabric for way in ways)


@pytest.mark.parametrize("who", said.SAID_BY_SOCKETS)
def test_sockets_are_seen_by_both(who: str) -> None:
    text = said.SAID_BY_SOCKETS[who]
    assert (by_record(text), by_bash(text)) == (False, False)


@pytest.mark.parametrize("who", said.SAID_BY_FABRIC)
def test_a_fabric_is_seen_by_both(who: str) -> None:
    text = said.SAID_BY_FABRIC[who]
    assert (by_record(text), by_bash(text)) == (True, True)


@pytest.mark.parametrize("who", said.SILENT)
def test_what_says_nothing_of_other_nodes_is_no_evidence(who: str) -> None:
    text = said.SILENT[who]
    assert (by_record(text), by_bash(text)) == (None, None)


def test_one_rank_on_sockets_is_enough() -> None:
    text = said.NCCL_IB + said.NCCL_SOCKET
    assert (by_record(text), by_bash(text)) == (False, False)


def test_the_way_is_told_in_the_library_s_words() -> None:
    def ways(text: str) -> list[tuple[str, str]]:
        return [(way.by, way.way) for way in transport_logs.read(text)]

    assert ways(said.OPENMPI_5_0_11) == [("OpenMPI", "tcp")]
    assert ways(said.MPICH_UCX) == [("UCX", "tcp/eth0")]
    assert ways(said.UCX_INFINIBAND) == [("UCX", "rc_mlx5/mlx5_0:1")]
    assert ways(said.MPICH_CXI) == [("libfabric", "cxi")]
    assert ways(said.NCCL_IB) == [("NCCL", "NET/IB/0/GDRDMA")]
    assert ways(said.NCCL_EFA) == [("NCCL", "NET/AWS Libfabric/0/GDRDMA, libfabric efa")]


def test_a_provider_nobody_knows_is_neither() -> None:
    (way,) = transport_logs.read("libfabric provider: warp - 9\n")
    assert way.fabric is None


def test_each_family_is_asked_in_its_words() -> None:
    assert "OMPI_MCA_btl_base_verbose" in transport_logs.asked(MpiFamily.OPENMPI)
    assert "MPIR_CVAR_DEBUG_SUMMARY" in transport_logs.asked(MpiFamily.MPICH)
    assert transport_logs.asked(MpiFamily.UNKNOWN) == {}


def test_a_run_s_folder_is_read_and_marked(tmp_path: Path) -> None:
    watch = FabricWatch(there="InfiniBand (mlx5_0)", mpi_check=True)
    assert transports.read(tmp_path) == ()
    assert "transport unknown: no library reported it" in transports.mark(watch, ())
    ranks = tmp_path / "ranks"
    (ranks / transport_logs.NCCL_FOLDER).mkdir(parents=True)
    (ranks / "mpi_check.log").write_text(said.MPICH_UCX)
    (ranks / transport_logs.NCCL_FOLDER / "n1.101").write_text(said.NCCL_IB)
    ways = transports.read(tmp_path)
    assert [(way.by, way.fabric) for way in ways] == [("UCX", False), ("NCCL", True)]
    mark = transports.mark(watch, ways)
    assert mark == ("ranks fell back to TCP (UCX: tcp/eth0) although the nodes have InfiniBand (mlx5_0)")
    assert transports.mark(watch, ways[1:]) == ""
    assert transports.mark(FabricWatch(there=""), ways) == ""  # nothing else was to be had
    assert transports.mark(None, ways) == ""


def test_gloo_is_tcp_by_nature() -> None:
    watch = FabricWatch(there="InfiniBand (mlx5_0)", sockets="gloo")
    assert transports.mark(watch, ()) == (
        "ranks used gloo, which is TCP, although the nodes have InfiniBand (mlx5_0)"
    )
