"""What is set because of a site's networks, and why; what is refused; what the job script then holds."""

from pathlib import Path
from typing import Any

import fabric_words as said
import pytest
from builders import make_image, make_job, make_rootfs, make_site
from msgspec import UNSET
from tools import completed, tool

from bareboat import render
from bareboat.model import ForwardEnv, Image, Job, MpiFacts, MpiFamily, Plan, Pmi, SchedulerFacts, Topology
from bareboat.model.fabric import Interface, Kind, Network, Port
from bareboat.plan import plan
from bareboat.plan.fabric import settings
from bareboat_base.errors import PlanError
from bareboat_images.model import FabricLibrary

IB = Port(kind=Kind.INFINIBAND, device="mlx5_0", active=True, rate_gbps=200)
ETHERNET = Interface(name="eth0", up=True, routed=True)
VIRTUAL = Interface(name="virbr0", up=False, routed=True, private=True)
IPOIB = Interface(name="ib0", up=True, routed=True, ipoib=True)

OPENMPI = MpiFacts(
    family=MpiFamily.OPENMPI, version="4.1.4", library="/usr/lib/libmpi.so.40", launcher="/usr/bin/mpirun",
    prefix="/usr", speaks=(Pmi.PMIX,), pmix_version="4.2.2", slurm=True,
)  # fmt: skip
NCCL = FabricLibrary(name="NCCL", version="2.21.5")


def network(*ports: Port, interfaces: tuple[Interface, ...] = (ETHERNET,)) -> Network:
    return Network(ports=ports, interfaces=interfaces)


def names(found: Network, mpi: MpiFamily | None = None, *, nccl: bool = False) -> set[str]:
    return {each.name for each in settings(found, mpi, nccl=nccl)}


@pytest.mark.parametrize("mpi", [None, *MpiFamily])
@pytest.mark.parametrize("nccl", [False, True])
def test_nothing_is_set_that_no_fact_asks_for(mpi: MpiFamily | None, nccl: bool) -> None:
    for found in (Network(), network(), network(IB)):
        assert names(found, mpi, nccl=nccl) == set()


def test_a_bridge_of_the_machine_s_own_is_kept_from_the_ranks() -> None:
    found = network(interfaces=(ETHERNET, VIRTUAL))
    assert names(found, nccl=True) == {"NCCL_SOCKET_IFNAME"}
    assert names(found, MpiFamily.OPENMPI) == {"OMPI_MCA_btl_tcp_if_include"}
    assert names(found, MpiFamily.MPICH) == set()
    # Its own choice is right already: interfaces of InfiniBand first, docker's last.
    assert names(network(interfaces=(ETHERNET, VIRTUAL, IPOIB)), nccl=True) == set()
    docker = Interface(name="docker0", up=False, routed=True, private=True)
    assert names(network(interfaces=(ETHERNET, docker)), nccl=True) == set()


# -- the plan --------------------------------------------------------------------------------------

MPI_IMAGE = make_image(
    mpis=(OPENMPI,), mpi_users={"mpi4py": ("libmpi.so.40",)}, frameworks={"mpi4py": "4.1"}, fabrics=(NCCL,)
)
CUDA_IMAGE = make_image(frameworks={"torch": "2.13.0+cu130"}, cuda="13.0", fabrics=(NCCL,))
TWO = Topology(nodes=2, ranks_per_node=2)
TWO_GPUS = Topology(nodes=2, ranks_per_node=2, gpus_per_rank=1)


def job(**changes: Any) -> Job:
    return make_job(**({"scheduler": "slurm", "topology": TWO, "command": ("python", "x.py")} | changes))


def planned(made: Job, found: Network | None = None, image: Image = MPI_IMAGE) -> Plan:
    facts = SchedulerFacts(name="slurm", version="1", mpi_plugins=("none", "pmi2", "pmix"))
    return plan(made, image, make_rootfs(image), make_site(schedulers=(facts,), network=found))


def passed(made: Plan) -> tuple[str, ...]:
    return next(word.names for word in made.command.argv if isinstance(word, ForwardEnv))


def head(made: Plan) -> str:
    """The values in the script of a scheduler's job."""
    script = render.script(made)
    return script[script.index("features=") : script.index("name_run() {")]


def test_where_there_is_no_fabric_nothing_is_done() -> None:
    for found in (None, network()):
        made = planned(job(), found)
        assert made.fabric is UNSET
        assert "fabric" not in [each.subject for each in made.decisions]
        assert "fabric_way" not in render.script(made)
        assert planned(job(topology=Topology()), network(IB)).fabric is UNSET  # and none on one node


def test_mpi_says_its_way_in_the_proof_alone() -> None:
    made = planned(job())
    assert made.mpi_check is not None
    assert "OMPI_MCA_btl_base_verbose=1" in made.mpi_check.argv
    assert not any("btl_base_verbose" in str(word) for word in made.command.argv)
    own = planned(job(environment={"OMPI_MCA_btl_base_verbose": "100"}))
    assert own.mpi_check is not None
    assert "OMPI_MCA_btl_base_verbose=1" not in own.mpi_check.argv


def test_sockets_beside_a_fabric_are_marked_or_end_the_job() -> None:
    found = planned(job(), network(IB))
    marked = head(found)
    assert "'InfiniBand (mlx5_0 at 200 Gb/s)'" in marked
    assert " fabric_check " in marked
    assert " fabric_required " not in marked
    required = head(planned(job(fabric="require"), network(IB)))
    assert " fabric_required " in required


def test_nccl_writes_to_the_run_s_folder_by_its_name_in_the_container() -> None:
    made = planned(job(topology=TWO_GPUS, launcher="torchrun"), network(IB), CUDA_IMAGE)
    assert made.fabric is not UNSET
    assert (made.fabric.nccl, made.fabric.sockets) == (True, "")
    assert 'NCCL_DEBUG_FILE="/run/bareboat/BAREBOAT_RUN_DIR/nccl/%h.%p"' in made.prelude
    assert "NCCL_DEBUG_FILE" in passed(made)
    assert " fabric_watch " in render.script(made)
    bare = planned(job(topology=TWO_GPUS, launcher="torchrun", engine="native"), network(IB), CUDA_IMAGE)
    assert 'NCCL_DEBUG_FILE="$BAREBOAT_RUN_DIR/nccl/%h.%p"' in bare.prelude
    own = planned(
        job(topology=TWO_GPUS, launcher="torchrun", environment={"NCCL_DEBUG": "WARN"}),
        network(IB),
        CUDA_IMAGE,
    )
    assert own.fabric is not UNSET
    assert not own.fabric.nccl
    assert "NCCL_DEBUG" not in own.prelude


def test_an_interface_is_taken_from_the_node_and_the_user_s_own_goes_over_it() -> None:
    found = network(interfaces=(ETHERNET, VIRTUAL))
    made = planned(job(), found)
    assert "OMPI_MCA_btl_tcp_if_include=${OMPI_MCA_btl_tcp_if_include:-$BAREBOAT_INTERFACE}" in made.prelude
    assert "OMPI_MCA_btl_tcp_if_include" in passed(made)
    own = planned(job(environment={"OMPI_MCA_btl_tcp_if_include": "bond0"}), found)
    assert "OMPI_MCA_btl_tcp_if_include=" not in own.prelude
    gloo = planned(job(launcher="ranks", environment={"GLOO_SOCKET_IFNAME": "bond0"}), found)
    assert "GLOO_SOCKET_IFNAME" not in passed(gloo)


@pytest.mark.parametrize(
    ("found", "launcher", "why"),
    [
        (None, "srun", "the networks were not probed on node017"),
        (Network(), "srun", "none found on node017"),
        (network(IB), "ranks", "its ranks use gloo, which is TCP"),
    ],
)
def test_a_required_fabric_that_cannot_be_had_is_refused(
    found: Network | None, launcher: str, why: str
) -> None:
    with pytest.raises(PlanError, match=why) as caught:
        planned(job(fabric="require", launcher=launcher), found)
    assert caught.value.remedy


# -- the script's own judgement --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "fabric", "code", "says"),
    [
        (said.NCCL_SOCKET, "require", 3, "the ranks fell back to TCP, but the job requires a fabric"),
        (said.NCCL_SOCKET, "mark", 0, "WARNING: ranks fell back to TCP although the nodes have"),
        (said.NCCL_IB, "require", 0, ""),
        ("", "mark", 0, ""),
    ],
)
def test_a_watcher_does_what_it_should(tmp_path: Path, words: str, fabric: str, code: int, says: str) -> None:
    """The script's last part with a job that is a shell: it waits for what the watcher does."""
    made = planned(job(topology=TWO_GPUS, launcher="torchrun", fabric=fabric), network(IB), CUDA_IMAGE)
    (tmp_path / "nccl").mkdir()
    (tmp_path / "nccl/c1.17").write_text(words)
    (tmp_path / "over.0").write_text("0\n0\n")  # both nodes have ended
    # Ended by the watcher; or told of by it; or as long as one look of it.
    until_ended = "bash -c 'until [ -e over ]; do sleep 0.05; done'"
    job_waits = until_ended if code else 'wait "$fabric_watch"' if says else "sleep 3"
    harness = (
        "set -u; BAREBOAT_RUN_DIR=$PWD BAREBOAT_CONTROL=$PWD\n"
        f"{head(made)}\n{render.job_library(made).inner}\n"
        'pass_on() { : > over; }\nfinish() { exit "$1"; }\n'
        f"begin_fabric\n{job_waits}\ncode=$?\nend_fabric\nexit 0\n"
    )
    done = completed([tool("bash"), "-c", harness], cwd=tmp_path, timeout=60)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert bool(done.stderr) is bool(says)
