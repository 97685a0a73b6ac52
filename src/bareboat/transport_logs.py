"""The transports that libraries report: how to enable their reports, and how to parse them.

The job script uses `SOCKETS` and `FABRIC`, as grep's extended expressions, because it must act while the job
runs; the record is made by `read`, which knows more. Both are tested on the same outputs. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bareboat.model import MpiFamily
from bareboat.model.fabric import Transport
from bareboat_base.expressions import expression

#: Variables of MPI's ranks in the MPI check only. One rank per node reports.
#: OpenMPI: btl_base_verbose names each peer's BTL, pml and mtl the carrier of all messages; UCX its lanes.
_OPENMPI = {
    "OMPI_MCA_btl_base_verbose": "1",
    "OMPI_MCA_mtl_base_verbose": "1",
    "OMPI_MCA_pml_base_verbose": "10",
    "UCX_LOG_LEVEL": "info",
}
#: MPICH: https://www.mpich.org/static/downloads/latest/mpich-latest-README.envvar.txt
_MPICH = {"MPIR_CVAR_DEBUG_SUMMARY": "1", "UCX_LOG_LEVEL": "info"}
#: Intel MPI Library Developer Reference for Linux, "Other Environment Variables".
_INTEL = {"I_MPI_DEBUG": "4"}

#: NCCL writes a file for each process at its start, and nothing during steps.
NCCL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
NCCL_FILE = "NCCL_DEBUG_FILE"
#: The directory of these files in the run's directory.
NCCL_FOLDER = "nccl"

_SLOW = "tcp|sockets|udp|net"
_FAST = "verbs|efa|cxi|psm[0-9]?|opx|gni|mlx"
_LANES = r"(inter-node cfg#[0-9]+|ep_cfg\[[0-9]+\]:) tag\("

#: Lines of a library that uses TCP between nodes.
SOCKETS = (
    "mca: bml: Using tcp btl"
    rf"|{_LANES}tcp/"
    rf"|(libfabric provider|mtl:ofi:prov(ider)?): ({_SLOW})([ ;]|$)"
    "|Using network Socket|via NET/Socket/"
    rf"|NET/OFI Selected [Pp]rovider is ({_SLOW})([ ;,]|$)"
)
#: Lines of a library that uses a fabric, in outputs without the lines above.
FABRIC = (
    "mca: bml: Using (openib|ofi|uct|ugni|usnic|portals4) btl"
    rf"|{_LANES}(rc|dc|ud|srd|gga)(_[a-z0-9]+)?/"
    rf"|(libfabric provider|mtl:ofi:prov(ider)?): ({_FAST})([ ;]|$)"
    "|Using network [A-Z]|via NET/[A-Z]"
    rf"|NET/OFI Selected [Pp]rovider is ({_FAST})([ ;,]|$)"
)

# Every repetition is bounded: jobs may write anything into these files, and time must be linear.
_BTL = expression(
    r"\[(?P<host>[^\s:\[\]]{1,255}):\d{1,10}\] mca: bml: Using (?P<btl>\w{1,40}) btl for send to \S{1,255} "
    r"on node (?P<peer>\S{1,255})"
)
_LANE = expression(r"(?:inter-node cfg#\d{1,10}|ep_cfg\[\d{1,10}\]:) tag\((?P<lanes>[^)]{0,2000})\)")
_PROVIDER = expression(r"(?:libfabric provider|mtl:ofi:prov(?:ider)?): (?P<name>[a-z0-9_;]{1,200})")
_NETWORK = expression(
    r"NCCL INFO .{0,500}?Using network (?P<name>\S(?:.{0,80}?\S)?)[ \t\r]{0,20}$", re.MULTILINE
)
_CHANNEL = expression(r"NCCL INFO .{0,500}? via (?P<way>NET/[^/\n]{1,100}/\d{1,10}(?:/\w{1,40})?)")
_OFI = expression(r"NET/OFI Selected [Pp]rovider is (?P<name>[a-z0-9_;]{1,200})")
_FAST_LANE = expression(r"(?:rc|dc|ud|srd|gga)(?:_[a-z0-9]+)?/")
_MANY = 4


#: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug
_SIZE = expression(r"NCCL INFO .{0,500}? rank \d{1,9} nranks (?P<size>\d{1,9}) ")


def nccl_size(text: str) -> int | None:
    """The size of the largest communicator that a process said it is in; None when it said none."""
    return max((int(found["size"]) for found in _SIZE.finditer(text)), default=None)


def asked(family: MpiFamily) -> dict[str, str]:
    """The variables that make this MPI report its transport."""
    match family:
        case MpiFamily.OPENMPI:
            return _OPENMPI
        case MpiFamily.MPICH | MpiFamily.MVAPICH:
            return _MPICH
        case MpiFamily.INTEL:
            return _INTEL
        case _:
            return {}


def read(text: str) -> tuple[Transport, ...]:
    """The transports between nodes that the libraries reported, once per library."""
    return (*_openmpi(text), *_ucx(text), *_libfabric(text), *_nccl(text)) if text else ()


def _openmpi(text: str) -> Iterator[Transport]:
    """The BTLs between ranks of different hosts (pml ob1)."""
    between = {
        found["btl"]
        for found in _BTL.finditer(text)
        if found["host"] != found["peer"] and found["btl"] != "self"
    }
    if between:
        fabric = "tcp" not in between
        yield Transport(by="OpenMPI", way=_some(sorted(between)), fabric=fabric)


def _ucx(text: str) -> Iterator[Transport]:
    """The first lane of each endpoint, which carries messages. Old versions do not mark endpoints between
    nodes; those within a node begin with self or shared memory."""
    first = {found["lanes"].split(" ")[0] for found in _LANE.finditer(text)}
    between = {lane for lane in first if lane.startswith("tcp/") or _FAST_LANE.match(lane)}
    if between:
        fabric = not any(lane.startswith("tcp/") for lane in between)
        yield Transport(by="UCX", way=_some(sorted(between)), fabric=fabric)


def _libfabric(text: str) -> Iterator[Transport]:
    names = sorted({found["name"] for found in _PROVIDER.finditer(text)})
    if names:
        yield Transport(by="libfabric", way=_some(names), fabric=_of_providers(names))


def _nccl(text: str) -> Iterator[Transport]:
    """The network and, with GPUs on several nodes, each channel's transport, which shows whether data goes
    from the adapter directly to the GPU (GDRDMA)."""
    networks = sorted({found["name"] for found in _NETWORK.finditer(text)})
    ways = sorted({found["way"] for found in _CHANNEL.finditer(text)})
    if not networks and not ways:
        return
    providers = sorted({found["name"] for found in _OFI.finditer(text)})
    sockets = "Socket" in networks or any(way.startswith("NET/Socket/") for way in ways)
    fabric = False if sockets else _of_providers(providers) if providers else True
    said = [*(ways or networks), *(f"libfabric {name}" for name in providers)]
    yield Transport(by="NCCL", way=_some(said), fabric=fabric)


def _of_providers(names: list[str]) -> bool | None:
    """Whether libfabric's providers are for a fabric; None for unknown ones."""
    cores = {name.split(";")[0] for name in names}
    if cores & set(_SLOW.split("|")):
        return False
    return True if all(re.fullmatch(_FAST, core) for core in cores) else None


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MANY]) + (f" and {len(names) - _MANY} more" if len(names) > _MANY else "")
