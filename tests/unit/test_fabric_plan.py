"""What is set because of a site's networks, and why; what is refused; what the job script then holds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import fabric_words as said
import pytest
from builders import make_image, make_job, make_rootfs, make_site
from msgspec import UNSET
from tools import tool

from bareboat import render
from bareboat.fabric.settings import Speakers, advice, settings
from bareboat.model import ForwardEnv, Image, Job, MpiFacts, MpiFamily, Plan, Pmi, SchedulerFacts, Topology
from bareboat.model.fabric import Interface, Kind, Network, Port
from bareboat.plan import plan
from bareboat_base.errors import PlanError, UsageError
from bareboat_images.model import FabricLibrary

IB = Port(kind=Kind.INFINIBAND, device="mlx5_0", active=True, rate_gbps=200, driver="mlx5_core")
ROCE = Port(kind=Kind.ROCE, device="mlx5_2", active=True, rate_gbps=25, driver="mlx5_core")
CXI = Port(kind=Kind.SLINGSHOT, device="cxi0", active=True, rate_gbps=200, driver="cxi")
EFA = Port(kind=Kind.EFA, device="rdmap0s6", active=True, rate_gbps=100, driver="efa")
ETHERNET = Interface(name="eth0", up=True, routed=True)
VIRTUAL = Interface(name="virbr0", up=False, routed=True, private=True)
IPOIB = Interface(name="ib0", up=True, routed=True, ipoib=True)
VERBS = "/dev/infiniband/uverbs0"

OPENMPI = MpiFacts(
    family=MpiFamily.OPENMPI, version="4.1.4", library="/usr/lib/libmpi.so.40", launcher="/usr/bin/mpirun",
    prefix="/usr", speaks=(Pmi.PMIX,), pmix_version="4.2.2", slurm=True,
)  # fmt: skip
VERBS_LIBRARY = FabricLibrary(name="libibverbs", parts=("mlx5",))
UCX = FabricLibrary(name="UCX", parts=("ib_mlx5", "cma"))
NCCL = FabricLibrary(name="NCCL", version="2.21.5")
ALL = (VERBS_LIBRARY, UCX, NCCL, FabricLibrary(name="libfabric", parts=("cxi", "efa", "verbs")))


def network(*ports: Port, interfaces: tuple[Interface, ...] = (ETHERNET,), **changes: Any) -> Network:
    return Network(**({"ports": ports, "interfaces": interfaces, "devices": (VERBS,)} | changes))


def speakers(*libraries: FabricLibrary, mpi: MpiFamily | None = None, nccl: bool = False) -> Speakers:
    return Speakers(mpi=mpi, nccl=nccl, libraries=libraries)


def names(found: Network, who: Speakers) -> dict[str, str | None]:
    chosen = settings(found, who)
    assert all(each.reason for each in chosen)
    return {each.name: each.value for each in chosen}


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mpi", [None, *MpiFamily])
@pytest.mark.parametrize("nccl", [False, True])
def test_nothing_is_set_that_no_fact_asks_for(mpi: MpiFamily | None, nccl: bool) -> None:
    down = Port(kind=Kind.INFINIBAND, device="mlx5_1", active=False, state="DOWN")
    for found in (Network(), network(), network(IB), network(IB, down)):
        assert names(found, speakers(*ALL, mpi=mpi, nccl=nccl)) == {}


def test_a_bridge_of_the_machine_s_own_is_kept_from_the_ranks() -> None:
    found = network(interfaces=(ETHERNET, VIRTUAL))
    assert names(found, speakers(*ALL, nccl=True)) == {"NCCL_SOCKET_IFNAME": None}
    assert set(names(found, speakers(UCX, mpi=MpiFamily.OPENMPI))) == {
        "OMPI_MCA_btl_tcp_if_include",
        "UCX_NET_DEVICES",
    }
    assert names(found, speakers(UCX, mpi=MpiFamily.MPICH)) == {"UCX_NET_DEVICES": None}
    (setting,) = settings(found, speakers(*ALL, nccl=True))
    assert setting.reason == "NCCL would also use virbr0, which is local to this machine"
    # Its own choice is right already: interfaces of InfiniBand first, docker's last.
    assert names(network(interfaces=(ETHERNET, VIRTUAL, IPOIB)), speakers(nccl=True)) == {}
    docker = Interface(name="docker0", up=False, routed=True, private=True)
    assert names(network(interfaces=(ETHERNET, docker)), speakers(nccl=True)) == {}


def test_ucx_is_never_kept_from_an_adapter() -> None:
    found = network(IB, interfaces=(ETHERNET, VIRTUAL))
    assert "UCX_NET_DEVICES" not in names(found, speakers(*ALL, mpi=MpiFamily.MPICH))


def test_nccl_is_told_which_ports_are_alike() -> None:
    twin = Port(kind=Kind.INFINIBAND, device="mlx5_1", active=True, rate_gbps=200)
    (setting,) = settings(network(ROCE, IB, twin), speakers(*ALL, nccl=True))
    assert (setting.name, setting.value) == ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1")
    assert "mlx5_2:1 (RoCE at 25 Gb/s) is not like mlx5_0:1 (InfiniBand at 200 Gb/s)" in setting.reason
    assert names(network(ROCE, IB), speakers(*ALL, mpi=MpiFamily.OPENMPI)) == {}


@pytest.mark.parametrize(("port", "provider"), [(CXI, "cxi"), (EFA, "efa")])
def test_libfabric_is_told_its_provider_where_it_has_it(port: Port, provider: str) -> None:
    assert names(network(port), speakers(*ALL, mpi=MpiFamily.MPICH)) == {"FI_PROVIDER": provider}
    assert names(network(port), speakers(UCX, mpi=MpiFamily.MPICH)) == {}
    plugin = FabricLibrary(name="NCCL plug-in", parts=("libfabric",))
    assert names(network(port), speakers(*ALL, nccl=True)) == {}  # without it NCCL uses no libfabric
    assert names(network(port), speakers(*ALL, plugin, nccl=True)) == {"FI_PROVIDER": provider}


# -- what keeps the ranks from the fabric ----------------------------------------------------------


def faults(found: Network, who: Speakers) -> str:
    told = advice(found, who, captured=False, machine="x86_64")
    assert all(each.remedy for each in told)
    return "\n".join(each.fault for each in told)


def test_what_an_image_lacks_is_told() -> None:
    assert faults(network(IB), speakers(*ALL, nccl=True)) == ""
    assert faults(network(IB), speakers(*ALL, mpi=MpiFamily.OPENMPI)) == ""
    assert "requires libibverbs.so.1 for" in faults(network(IB), speakers(NCCL, nccl=True))
    old = FabricLibrary(name="libibverbs", parts=("mlx4",))
    assert "lacks the provider mlx5 for mlx5_0" in faults(network(IB), speakers(old, NCCL, nccl=True))
    assert "requires UCX or libfabric" in faults(network(IB), speakers(VERBS_LIBRARY, mpi=MpiFamily.OPENMPI))
    assert "no provider 'cxi'" in faults(network(CXI), speakers(UCX, mpi=MpiFamily.MPICH))
    assert "aws-ofi-nccl" in faults(network(EFA), speakers(*ALL, nccl=True))
    unknown = Speakers(mpi=MpiFamily.OPENMPI, nccl=False, libraries=None)
    assert faults(network(IB), unknown) == ""
    assert faults(network(), speakers(NCCL, nccl=True)) == ""  # no fabric


def test_what_a_node_forbids_is_told() -> None:
    who = speakers(*ALL, nccl=True)
    assert "cannot open /dev/infiniband/uverbs0" in faults(network(IB, closed=(VERBS,)), who)
    assert "may lock 8 MiB" in faults(network(IB, locked_memory_bytes=8 * 2**20), who)
    assert "/dev/infiniband/uverbs*, through" in faults(network(IB, devices=()), who)


# -- the plan --------------------------------------------------------------------------------------

MPI_IMAGE = make_image(
    mpis=(OPENMPI,), mpi_users={"mpi4py": ("libmpi.so.40",)}, frameworks={"mpi4py": "4.1"}, fabrics=ALL
)
CUDA_IMAGE = make_image(frameworks={"torch": "2.13.0+cu130"}, cuda="13.0", fabrics=ALL)
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
    assert "WARNING: ranks fell back to TCP although the nodes have %s" in render.job_library(found).text
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
    (decision,) = (each for each in made.decisions if each.subject == "fabric")
    assert "OpenMPI would also connect over virbr0" in decision.reason
    own = planned(job(environment={"OMPI_MCA_btl_tcp_if_include": "bond0"}), found)
    assert "OMPI_MCA_btl_tcp_if_include=" not in own.prelude
    gloo = planned(job(launcher="ranks", environment={"GLOO_SOCKET_IFNAME": "bond0"}), found)
    assert "GLOO_SOCKET_IFNAME" not in passed(gloo)


def test_gloo_is_said_to_be_tcp() -> None:
    made = planned(job(launcher="ranks"), network(IB), make_image())
    assert made.fabric is not UNSET
    assert made.fabric.sockets == "gloo"
    (decision,) = (each for each in made.decisions if each.subject == "fabric")
    assert "gloo is TCP whatever there is" in decision.reason
    # There is nothing to wait for.
    assert not [each for each in ("fabric_watch", "fabric_check") if f" {each} " in head(made)]


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


def test_another_word_is_refused() -> None:
    with pytest.raises(UsageError, match="fabric is 'yes'"):
        make_job(fabric="yes")


def test_an_image_that_lacks_a_library_is_warned_of() -> None:
    made = planned(
        job(topology=TWO_GPUS, launcher="torchrun"), network(IB), make_image(cuda="13.0", fabrics=(NCCL,))
    )
    assert any("will not be used: NCCL requires libibverbs" in each for each in made.warnings)


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
    done = subprocess.run(
        [tool("bash"), "-c", harness], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert bool(done.stderr) is bool(says)


def test_doctor_shows_the_fabric_and_what_is_wrong_with_it() -> None:
    from bareboat.cli.doctor import _text

    down = Port(kind=Kind.INFINIBAND, device="mlx5_1", active=False, state="DOWN")
    text = _text(make_site(network=network(IB, down, closed=(VERBS,), locked_memory_bytes=8 * 2**20)), ())
    assert "fabric: InfiniBand (mlx5_0 at 200 Gb/s)" in text
    assert "mlx5_1:1 (InfiniBand) is DOWN" in text
    assert "you cannot open /dev/infiniband/uverbs0" in text
    assert "may lock 8 MiB" in text
    assert "fabric" not in _text(make_site(network=network()), ())
