"""What libraries say of the way that they take, for tests; and made-up nodes with fast networks, of which
there is none where Bareboat is made."""

from pathlib import Path

# -- real: two nodes x 2 ranks on the tests' own Slurm, over its Ethernet ------------------------------

OPENMPI_4_1_4 = """\
0: [c1:00127] selected ob1 best priority 20
0: [c1:00127] select: component ob1 selected
2: [c2:00099] mca: bml: Using vader btl for send to [[13986,19801],3] on node c2
2: [c2:00099] mca: bml: Using self btl for send to [[13986,19801],2] on node c2
0: [c1:00127] mca: bml: Using self btl for send to [[13986,19801],0] on node c1
2: [c2:00099] mca: bml: Using tcp btl for send to [[13986,19801],0] on node c1
0: [c1:00127] mca: bml: Using tcp btl for send to [[13986,19801],2] on node c2
"""
OPENMPI_5_0_11 = """\
0: [c1:00588] select: component ob1 selected
0: [c1:00588] mca: bml: Using self btl for send to [[34502,0],0] on node c1
0: [c1:00588] mca: bml: Using sm btl for send to [[34502,0],1] on node c1
0: [c1:00588] mca: bml: Using tcp btl for send to [[34502,0],2] on node c2
2: [c2:00418] mca: bml: Using tcp btl for send to [[34502,0],0] on node c1
"""
#: MPICH 5.0.2 over UCX 1.20.1.
MPICH_UCX = """\
0: [1795326712.094545] [c1:812  :0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 self cfg#0 tag(self/memory tcp/eth0)  rma(self/memory)  am(self/memory tcp/eth0)
0: ==== UCX netmod Capability ====
0: [1795326712.203737] [c1:812  :0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 inter-node cfg#1 tag(tcp/eth0)  rma_am(tcp/eth0)  am(tcp/eth0)
0: [1795326712.247412] [c1:812  :0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 intra-node cfg#2 tag(sysv/memory tcp/eth0)  rma(sysv/memory)  am(sysv/memory tcp/eth0)
"""  # noqa: E501
#: Ranks of one node, which say nothing of a way to another.
ONE_NODE = """\
[1795325391.302307] [vm:27439:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 self cfg#0 tag(self/memory tcp/eth0)
[1795325391.304972] [vm:27439:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 intra-node cfg#1 tag(sysv/memory)
[vm:32528] mca: bml: Using self btl for send to [[4631,1],0] on node vm
[vm:32528] mca: bml: Using vader btl for send to [[4631,1],1] on node vm
"""  # noqa: E501

# -- real, on one machine ------------------------------------------------------------------------------

#: MPICH 5.0.2 with MPIR_CVAR_CH4_NETMOD=ofi; OpenMPI 5.0.11 with pml cm, mtl ofi.
MPICH_OFI = "libfabric provider: sockets - 192.0.2.0/24\n"
OPENMPI_OFI = "[vm:32752] /openmpi-5.0.11/ompi/mca/mtl/ofi/mtl_ofi_component.c:343: mtl:ofi:provider: tcp\n"

# -- documented, never seen here: no InfiniBand, no Slingshot, no GPU ----------------------------------

UCX_INFINIBAND = """\
[1655212345.1] [n1:1:0] ucp_worker.c:1912 UCX  INFO    ucp_context_0 self cfg#0 tag(self/memory cma/memory)
[1655212345.1] [n1:1:0] ucp_worker.c:1912 UCX  INFO    ucp_context_0 inter-node cfg#1 tag(rc_mlx5/mlx5_0:1 tcp/ib0)
"""  # noqa: E501
#: UCX before 1.14: https://github.com/openucx/ucx/issues/6000 shows its lines.
UCX_OLD_INFINIBAND = "[n1:1:0] ucp_worker.c:1783 UCX  INFO  ep_cfg[1]: tag(rc_mlx5/mlx5_0:1);\n"
UCX_OLD_TCP = "[n1:1:0] ucp_worker.c:1783 UCX  INFO  ep_cfg[1]: tag(tcp/eth0);\n"
UCX_OLD_SELF = "[n1:1:0] ucp_worker.c:1783 UCX  INFO  ep_cfg[0]: tag(self/memory tcp/eth0);\n"
OPENMPI_OPENIB = "[n1:1] mca: bml: Using openib btl for send to [[1,1],2] on node n2\n"
MPICH_CXI = "libfabric provider: cxi - cxi\n"
INTEL_VERBS = "[0] MPI startup(): libfabric provider: verbs;ofi_rxm\n"
INTEL_TCP = "[0] MPI startup(): libfabric provider: tcp;ofi_rxm\n"
#: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html and NCCL's src/init.cc.
NCCL_IB = """\
n1:101:101 [0] NCCL INFO Bootstrap : Using ib0:10.0.0.1<0>
n1:101:120 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.1<0>
n1:101:120 [0] NCCL INFO Using network IB
n1:101:120 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
n1:101:120 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
"""
NCCL_SOCKET = """\
n1:101:120 [0] NCCL INFO NET/IB : No device found.
n1:101:120 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
n1:101:120 [0] NCCL INFO Using network Socket
n1:101:120 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
"""
NCCL_EFA = """\
n1:101:120 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
n1:101:120 [0] NCCL INFO Using network AWS Libfabric
n1:101:120 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA
"""
#: aws-ofi-nccl over libfabric's tcp: a plug-in is no proof of a fabric.
NCCL_PLUGIN_TCP = """\
n1:101:120 [0] NCCL INFO NET/OFI Selected Provider is tcp
n1:101:120 [0] NCCL INFO Using network AWS Libfabric
"""
SAID_BY_SOCKETS = {
    "OpenMPI 4.1.4": OPENMPI_4_1_4, "OpenMPI 5.0.11": OPENMPI_5_0_11, "MPICH over UCX": MPICH_UCX,
    "MPICH over libfabric": MPICH_OFI, "OpenMPI over libfabric": OPENMPI_OFI, "old UCX": UCX_OLD_TCP,
    "Intel MPI": INTEL_TCP, "NCCL": NCCL_SOCKET, "NCCL's plug-in": NCCL_PLUGIN_TCP,
}  # fmt: skip
SAID_BY_FABRIC = {
    "UCX": UCX_INFINIBAND, "old UCX": UCX_OLD_INFINIBAND, "OpenMPI's openib": OPENMPI_OPENIB,
    "MPICH": MPICH_CXI, "Intel MPI": INTEL_VERBS, "NCCL": NCCL_IB, "NCCL's plug-in": NCCL_EFA,
}  # fmt: skip
SILENT = {"one node": ONE_NODE, "old UCX, itself": UCX_OLD_SELF, "nothing": "", "others": "step 1 loss 0.5\n"}


# -- nodes ---------------------------------------------------------------------------------------------


def adapter(
    root: Path,
    device: str,
    *,
    driver: str = "mlx5_core",
    link: str = "InfiniBand",
    state: str = "4: ACTIVE",
    rate: str = "200 Gb/sec (4X HDR)",
    interface: str = "",
    node_type: str = "1: CA",
) -> None:
    """An adapter with one port below a made-up /sys, as the kernel shows one."""
    top = root / "sys/class/infiniband" / device
    port = top / "ports/1"
    port.mkdir(parents=True)
    (top / "node_type").write_text(f"{node_type}\n")
    for name, value in (("state", state), ("phys_state", "5: LinkUp"), ("link_layer", link), ("rate", rate)):
        (port / name).write_text(f"{value}\n")
    (top / "device").mkdir()
    (top / "device/uevent").write_text(f"DRIVER={driver}\nPCI_ID=15B3:101B\n")
    if interface:
        (top / "device/net" / interface).mkdir(parents=True)


def interface(
    root: Path,
    name: str,
    *,
    kind: int = 1,
    state: str = "up",
    speed: str = "25000",
    driver: str = "ice",
    routed: bool = True,
    bridge: bool = False,
    members: tuple[str, ...] = (),
) -> None:
    top = root / "sys/class/net" / name
    top.mkdir(parents=True)
    for file, value in (("type", str(kind)), ("operstate", state), ("speed", speed)):
        (top / file).write_text(f"{value}\n")
    if driver:
        (top / "device").mkdir()
        (top / "device/uevent").write_text(f"DRIVER={driver}\n")
    if bridge:
        (top / "bridge").mkdir()
        for member in members:
            (top / "brif" / member).mkdir(parents=True)
    route = root / "proc/net/route"
    if not route.exists():
        route.parent.mkdir(parents=True)
        route.write_text("Iface\tDestination\tGateway\tFlags\n")
    if routed:
        route.write_text(route.read_text() + f"{name}\t0002000A\t00000000\t0001\n")
