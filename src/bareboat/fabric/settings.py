"""Environment variables for a site's networks, each with its reason, and what prevents ranks from using the
fabric.

Nothing is set without a fact that requires it. Ports that are down do not count: NCCL, UCX and libfabric skip
them on their own. Sources: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html and NCCL's
src/misc/socket.cc, https://openucx.readthedocs.io/en/master/faq.html , fi_provider(7), OpenMPI's
https://docs.open-mpi.org/en/main/tuning-apps/networking/tcp.html
"""

from __future__ import annotations

from msgspec import Struct

from bareboat.model import MpiFamily
from bareboat.model.fabric import Kind, Network, Port
from bareboat_base import architectures
from bareboat_images.model import FabricLibrary

#: Adapters used through libibverbs, and those with a libfabric provider.
VERBS = frozenset({Kind.INFINIBAND, Kind.ROCE, Kind.IWARP})
PROVIDERS = {Kind.SLINGSHOT: "cxi", Kind.EFA: "efa", Kind.OMNI_PATH: "psm2"}

#: The kernel's drivers -> libibverbs' providers.
_VERBS_DRIVERS = {
    "mlx5_core": "mlx5", "mlx4_core": "mlx4", "bnxt_en": "bnxt_re", "bnxt_re": "bnxt_re", "ice": "irdma",
    "i40e": "irdma", "irdma": "irdma", "qede": "qedr", "cxgb4": "cxgb4", "hns3": "hns", "mana": "mana",
}  # fmt: skip

#: Smaller limits are a desktop's (8 MiB) or an old default (64 KiB), not a site's choice.
_LEAST_LOCKED_BYTES = 2**30


class Setting(Struct, frozen=True, kw_only=True):
    """An environment variable of the ranks. A value of None: the interface that leads to the first node,
    which only the node knows; `before` precedes it."""

    name: str
    value: str | None
    reason: str
    before: str = ""

    @property
    def text(self) -> str:
        return f"{self.name}={self.value if self.value is not None else self.before + 'INTERFACE'}"


class Advice(Struct, frozen=True, kw_only=True):
    """What prevents the ranks from using the fabric, and the remedy."""

    fault: str
    remedy: str


class Speakers(Struct, frozen=True, kw_only=True):
    """The ranks' communication libraries. `mpi`: its family, or None. `libraries`: the image's; None:
    unknown."""

    mpi: MpiFamily | None
    nccl: bool
    libraries: tuple[FabricLibrary, ...] | None

    def parts(self, name: str) -> frozenset[str] | None:
        """The parts that all libraries of this name support; None when the image has none."""
        found = [each for each in self.libraries or () if each.name == name]
        return frozenset(part for each in found for part in each.parts) if found else None


def settings(network: Network, speakers: Speakers) -> tuple[Setting, ...]:
    """The settings that the facts require."""
    return (*_interfaces(network, speakers), *_adapters(network, speakers), *_provider(network, speakers))


def _interfaces(network: Network, speakers: Speakers) -> list[Setting]:
    """Bridges of container and VM tools have the same address on every node: a rank that connects to a peer
    there reaches itself, or nothing, and waits for ever."""
    private = [each.name for each in network.interfaces if each.private and each.routed]
    found = []
    # NCCL uses docker's interfaces only as a last resort, and prefers interfaces named ib….
    misleading = [name for name in private if not name.startswith("docker")]
    ipoib = any(each.ipoib and each.up and each.routed for each in network.interfaces)
    if speakers.nccl and misleading and not ipoib:
        found.append(
            Setting(
                name="NCCL_SOCKET_IFNAME",
                value=None,
                before="=",  # otherwise it is a prefix
                reason=f"NCCL would also use {_list(misleading)}, which {_own(misleading)}",
            )
        )
    if speakers.mpi is MpiFamily.OPENMPI and private:
        found.append(
            Setting(
                name="OMPI_MCA_btl_tcp_if_include",
                value=None,
                reason=f"OpenMPI would also connect over {_list(private)}, which {_own(private)}",
            )
        )
    by_ucx = speakers.parts("UCX")
    if speakers.mpi is not None and by_ucx is not None and private and not VERBS & set(network.kinds):
        found.append(
            Setting(
                name="UCX_NET_DEVICES",
                value=None,
                reason=f"UCX would also connect over {_list(private)}, which {_own(private)}; "
                "no InfiniBand or RoCE port is excluded by this",
            )
        )
    return found


def _adapters(network: Network, speakers: Speakers) -> list[Setting]:
    """NCCL uses all active ports as if they were equal and connected."""
    ports = [port for port in network.active if port.kind in VERBS]
    alike = {(port.kind, port.rate_gbps) for port in ports}
    if not speakers.nccl or len(alike) < 2:
        return []
    best = max(ports, key=lambda port: port.rate_gbps or 0)
    taken = [port for port in ports if (port.kind, port.rate_gbps) == (best.kind, best.rate_gbps)]
    left = [port for port in ports if port not in taken]
    return [
        Setting(
            name="NCCL_IB_HCA",
            value="=" + ",".join(port.name for port in taken),
            reason="NCCL would use all active ports as if they were equal, but "
            f"{', '.join(map(_named, left))} {'is' if len(left) == 1 else 'are'} not like {_named(taken[0])}",
        )
    ]


def _provider(network: Network, speakers: Speakers) -> list[Setting]:
    """libfabric falls back to TCP silently; with its provider set, it fails instead."""
    providers = speakers.parts("libfabric") or frozenset()
    uses = speakers.mpi is not None or (
        speakers.nccl and "libfabric" in (speakers.parts("NCCL plug-in") or frozenset())
    )
    for kind in network.kinds:
        if kind in VERBS:
            return []  # with both, MPI chooses by speed
        if uses and PROVIDERS[kind] in providers:
            return [
                Setting(
                    name="FI_PROVIDER",
                    value=PROVIDERS[kind],
                    reason=f"the nodes have {kind.value}, which the image's libfabric supports; without it, "
                    "libfabric falls back to TCP silently",
                )
            ]
    return []


def advice(network: Network, speakers: Speakers, *, captured: bool, machine: str) -> tuple[Advice, ...]:
    """What prevents the ranks from using the fabric, as far as known. `captured`: the image is an environment
    of this machine; `machine`: as uname(1) prints it."""
    if not network.active or not (speakers.nccl or speakers.mpi is not None):
        return ()
    found = [*_of_node(network)]
    if speakers.libraries is not None:
        for kind in network.kinds:
            port = next(port for port in network.active if port.kind is kind)
            found += _of_image(port, speakers, captured=captured, machine=machine)
    return tuple(dict.fromkeys(found))


def _of_node(network: Network) -> list[Advice]:
    found = []
    if network.closed:
        found.append(
            Advice(
                fault=f"you cannot open {_list(network.closed)}, through which programs reach the adapter",
                remedy="ask the administrator: sudo chmod 666 " + " ".join(network.closed),
            )
        )
    if VERBS & set(network.kinds) and not any("uverbs" in path for path in network.devices):
        found.append(
            Advice(
                fault="/dev/infiniband/uverbs*, through which programs reach the adapter, does not exist",
                remedy="ask the administrator: sudo modprobe ib_uverbs",
            )
        )
    locked = network.locked_memory_bytes
    if locked is not None and locked < _LEAST_LOCKED_BYTES:
        found.append(
            Advice(
                fault=f"a process may lock {locked / 2**20:,.3g} MiB of memory; adapters need locked buffers",
                remedy="ask the administrator for memlock unlimited in /etc/security/limits.d, under Slurm "
                "also for PropagateResourceLimitsExcept=MEMLOCK",
            )
        )
    return found


def _of_image(port: Port, speakers: Speakers, *, captured: bool, machine: str) -> list[Advice]:
    if port.kind in VERBS:
        return _verbs(port, speakers, captured=captured, machine=machine)
    provider = PROVIDERS[port.kind]
    in_image = "use an image with {}" if not captured else "install {}, then: bareboat image capture"
    found = []
    has = provider in (speakers.parts("libfabric") or frozenset())
    other = port.kind is Kind.EFA and "ib_efa" in (speakers.parts("UCX") or frozenset())
    if not has and not (other and not speakers.nccl):
        found.append(
            Advice(
                fault=f"the image's libfabric does not support {port.kind.value}: no provider {provider!r}",
                remedy=in_image.format(f"a libfabric built with {provider}"),
            )
        )
    if speakers.nccl and speakers.parts("NCCL plug-in") is None:
        found.append(
            Advice(
                fault=f"NCCL requires a plug-in (aws-ofi-nccl) for {port.kind.value}, which the image lacks",
                remedy=in_image.format("aws-ofi-nccl"),
            )
        )
    return found


def _verbs(port: Port, speakers: Speakers, *, captured: bool, machine: str) -> list[Advice]:
    verbs = speakers.parts("libibverbs")
    own = architectures.find(machine)
    folder = f"/usr/lib/{own.triplet}" if own is not None else "/usr/lib64"
    remedy = (
        "install libibverbs1 and ibverbs-providers in the image (apt-get), or libibverbs (dnf)"
        if not captured
        else f'[capture] include = ["{folder}/libibverbs.so.1", "{folder}/libibverbs", "/etc/libibverbs.d"]'
    )
    if speakers.mpi is not None and not speakers.nccl:
        by_ucx = any(part.startswith("ib") for part in speakers.parts("UCX") or ())
        by_libfabric = "verbs" in (speakers.parts("libfabric") or ())
        if not by_ucx and not by_libfabric:
            return [
                Advice(
                    fault=f"MPI requires UCX or libfabric for {port.kind.value}, and the image has neither",
                    remedy="use an image whose MPI was built with UCX",
                )
            ]
    who = "NCCL" if speakers.nccl else "MPI"
    if verbs is None:
        return [
            Advice(
                fault=f"{who} requires libibverbs.so.1 for {port.kind.value}, which the image lacks",
                remedy=remedy,
            )
        ]
    provider = _VERBS_DRIVERS.get(port.driver)
    if provider is not None and provider not in verbs:
        return [
            Advice(
                fault=f"the image's libibverbs lacks the provider {provider} for {port.device}",
                remedy=remedy,
            )
        ]
    return []


def _named(port: Port) -> str:
    rate = f" at {port.rate_gbps:g} Gb/s" if port.rate_gbps else ""
    return f"{port.name} ({port.kind.value}{rate})"


def _list(names: list[str] | tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _own(names: list[str]) -> str:
    return f"{'is' if len(names) == 1 else 'are'} local to this machine"
