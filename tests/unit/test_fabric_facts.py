"""What is seen of networks, on made-up nodes, and what images have for them."""

from pathlib import Path

import pytest
from elves import make_elf
from fabric_words import adapter, interface
from tools import completed, tool

from bareboat.model.fabric import Kind, Network
from bareboat.probe.fabrics import SCRIPT, parse
from bareboat_images.inside.survey import look


def seen(root: Path) -> Network:
    done = completed([tool("bash"), "-c", SCRIPT, "fabrics", str(root)])
    assert (done.returncode, done.stderr) == (0, "")
    return parse(done.stdout)


def test_a_node_of_infiniband(tmp_path: Path) -> None:
    adapter(tmp_path, "mlx5_0", interface="ib0")
    adapter(tmp_path, "mlx5_1", state="1: DOWN", rate="10 Gb/sec (4X SDR)")
    interface(tmp_path, "ib0", kind=32, driver="mlx5_core", speed="200000")
    interface(tmp_path, "eth0")
    found = seen(tmp_path)
    first, second = found.ports
    assert (first.kind, first.name, first.active, first.rate_gbps) == (Kind.INFINIBAND, "mlx5_0:1", True, 200)
    assert (second.active, second.state) == (False, "DOWN")
    assert found.title == "InfiniBand (mlx5_0 at 200 Gb/s)"
    assert [(each.name, each.ipoib) for each in found.interfaces] == [("eth0", False), ("ib0", True)]


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (Kind.ROCE, {"link": "Ethernet"}),
        (Kind.OMNI_PATH, {"driver": "hfi1"}),
        (Kind.EFA, {"driver": "efa", "link": "Unspecified"}),
        (Kind.IWARP, {"driver": "irdma", "link": "Ethernet", "node_type": "4: RNIC"}),
    ],
)
def test_other_fabrics_are_told_apart(tmp_path: Path, kind: Kind, facts: dict[str, str]) -> None:
    adapter(tmp_path, "adapter0", **facts)
    assert seen(tmp_path).kinds == (kind,)


def test_slingshot_is_up_when_its_interface_is(tmp_path: Path) -> None:
    (tmp_path / "sys/class/cxi/cxi0/device/net/hsn0").mkdir(parents=True)
    (tmp_path / "sys/class/cxi/cxi1/device/net/hsn1").mkdir(parents=True)
    interface(tmp_path, "hsn0", speed="200000", driver="cxi_core")
    interface(tmp_path, "hsn1", speed="-1", state="down", driver="cxi_core")
    found = seen(tmp_path)
    assert found.title == "Slingshot (cxi0 at 200 Gb/s)"
    assert [(port.device, port.active) for port in found.ports] == [("cxi0", True), ("cxi1", False)]


def test_an_adapter_that_software_plays_is_no_fabric(tmp_path: Path) -> None:
    adapter(tmp_path, "rxe0", driver="", link="Ethernet")
    assert seen(tmp_path).ports == ()


def test_bridges_of_container_tools_are_no_way_to_another_node(tmp_path: Path) -> None:
    interface(tmp_path, "eth0")
    interface(tmp_path, "virbr0", driver="", bridge=True)
    interface(tmp_path, "docker0", driver="", bridge=True, state="down")
    interface(tmp_path, "lan", driver="", bridge=True, members=("eth0",))  # a bridge that leads out
    interface(tmp_path, "inner", driver="", bridge=True, members=("veth1",))
    interface(tmp_path, "lo", driver="")
    private = {each.name: each.private for each in seen(tmp_path).interfaces}
    assert private == {"eth0": False, "virbr0": True, "docker0": True, "lan": False, "inner": True}


def test_this_machine_can_be_read() -> None:
    """Whatever it has."""
    found = seen(Path("/"))
    assert "lo" not in [each.name for each in found.interfaces]


def test_a_line_that_the_script_cannot_have_printed_is_skipped() -> None:
    found = parse("Welcome to the cluster\n/sys/class/net/eth0/operstate\tup\n")
    assert [(each.name, each.up) for each in found.interfaces] == [("eth0", True)]


def test_the_libraries_of_an_image(tmp_path: Path) -> None:
    files = {
        "usr/lib/libibverbs.so.1.14.44.0": make_elf(),
        "usr/lib/libibverbs/libmlx5-rdmav34.so": make_elf(),
        "usr/lib/libibverbs/libefa-rdmav34.so": make_elf(),
        "usr/lib/libfabric.so.1": make_elf(needed=["libcxi.so.1", "libc.so.6"]),
        "usr/lib/libfabric/libpsmx2-fi.so": make_elf(),
        "usr/lib/libucp.so.0": make_elf(),
        "usr/lib/ucx/libuct_ib_mlx5.so.0": make_elf(),
        "usr/lib/ucx/libuct_cma.so.0.0.0": make_elf(),
        "usr/lib/libnccl.so.2.21.5": make_elf(),
        "usr/lib/libnccl-net-ofi.so": make_elf(needed=["libfabric.so.1"]),
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    found = {each.name: each for each in look([tmp_path]).fabrics}
    assert found["libibverbs"].parts == ("efa", "mlx5")
    assert found["libfabric"].parts == ("cxi", "psm2")
    assert found["UCX"].parts == ("cma", "ib_mlx5")
    assert found["NCCL"].version == "2.21.5"
    assert found["NCCL plug-in"].parts == ("libfabric",)
