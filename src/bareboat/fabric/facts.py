"""What a machine has of networks, what an image has of their libraries, and what the ranks said of their
way."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """What a port is of. The drivers of a kind stand in `bareboat.probe.fabrics`."""

    INFINIBAND = "InfiniBand"
    ROCE = "RoCE"
    IWARP = "iWARP"
    OMNI_PATH = "Omni-Path"
    SLINGSHOT = "Slingshot"
    EFA = "EFA"


class Port(Struct, frozen=True, kw_only=True):
    """A port of an adapter. `state`: in the kernel's words; `rate_gbps`: gigabits a second, None when it does
    not say. `interfaces`: the network interfaces of the same adapter."""

    kind: Kind
    device: str
    number: int = 1
    active: bool
    state: str = ""
    rate_gbps: float | None = None
    driver: str = ""
    interfaces: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"


class Interface(Struct, frozen=True, kw_only=True):
    """A network interface. `routed`: it has an IPv4 network, as connections over it need. `ipoib`: its
    packets go over InfiniBand. `private`: a bridge or a link that container and VM tools make for this
    machine alone; it is no way to another one, though it has an address."""

    name: str
    up: bool
    routed: bool = False
    speed_mbps: int | None = None
    driver: str = ""
    ipoib: bool = False
    private: bool = False


class Network(Struct, frozen=True, kw_only=True):
    """What one machine has. `devices`: the nodes in /dev by which programs reach the adapters; `closed`:
    those of them that this user cannot open. `locked_memory_bytes`: how much memory a process may lock, which
    adapters need for what they read and write; None: any amount."""

    ports: tuple[Port, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    devices: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    locked_memory_bytes: int | None = None

    @property
    def active(self) -> tuple[Port, ...]:
        return tuple(port for port in self.ports if port.active)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Of the active ports, the fastest first."""
        ranked = sorted(self.active, key=lambda port: -(port.rate_gbps or 0))
        return tuple(dict.fromkeys(port.kind for port in ranked))

    @property
    def title(self) -> str:
        """The fabrics in words; "" when nothing is active."""
        found = []
        for kind in self.kinds:
            ports = [port for port in self.active if port.kind is kind]
            rates = {port.rate_gbps for port in ports} - {None}
            rate = f" at {max(r for r in rates if r):g} Gb/s" if rates else ""
            found.append(f"{kind.value} ({', '.join(port.device for port in ports)}{rate})")
        return " and ".join(found)


class FabricLibrary(Struct, frozen=True, kw_only=True):
    """A library of an image that drives networks: "libibverbs", "libfabric", "UCX", "NCCL" or "NCCL plug-in".
    `parts`: what it can drive: libibverbs' and libfabric's providers, UCX's transports, by their own
    names."""

    name: str
    version: str | None = None
    path: str = ""
    parts: tuple[str, ...] = ()


class Transport(Struct, frozen=True, kw_only=True):
    """The way between nodes that the ranks took, as a library said of itself. `by`: the library; `way`: in
    its own words, as short as they can be; `fabric`: whether that is a fabric (True) or sockets (False), None
    when it cannot be told from them."""

    by: str
    way: str
    fabric: bool | None


class FabricWatch(Struct, frozen=True, kw_only=True):
    """What the job script does about the fabric of its nodes, which is `there` in words; "": none is known.
    `required`: falling to sockets ends the job; else it is marked. `proof`: MPI tells its way in the proof;
    `program`: which the job script runs itself. `nccl`: NCCL tells it in files of the run's folder.
    `sockets`: what speaks by sockets whatever fabric there is."""

    there: str
    required: bool = False
    proof: bool = False
    program: bool = False
    nccl: bool = False
    sockets: str = ""
