"""Facts about a machine's networks, an image's network libraries, and the transports that ranks reported."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """The kind of a port. `bareboat.probe.fabrics` lists each kind's drivers."""

    INFINIBAND = "InfiniBand"
    ROCE = "RoCE"
    IWARP = "iWARP"
    OMNI_PATH = "Omni-Path"
    SLINGSHOT = "Slingshot"
    EFA = "EFA"


class Port(Struct, frozen=True, kw_only=True):
    """A port of an adapter. `state`: the kernel's term; `rate_gbps`: gigabits per second, None where
    unknown."""

    kind: Kind
    device: str
    number: int = 1
    active: bool
    state: str = ""
    rate_gbps: float | None = None

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"


class Interface(Struct, frozen=True, kw_only=True):
    """A network interface. `routed`: it has an IPv4 network, which connections need. `ipoib`: its packets go
    over InfiniBand. `private`: a bridge or link that container and VM tools make for this machine only; it
    does not reach other machines, though it has an address."""

    name: str
    up: bool
    routed: bool = False
    speed_mbps: int | None = None
    ipoib: bool = False
    private: bool = False


class Network(Struct, frozen=True, kw_only=True):
    """The networks of one machine."""

    ports: tuple[Port, ...] = ()
    interfaces: tuple[Interface, ...] = ()

    @property
    def active(self) -> tuple[Port, ...]:
        return tuple(port for port in self.ports if port.active)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the active ports, fastest first."""
        ranked = sorted(self.active, key=lambda port: -(port.rate_gbps or 0))
        return tuple(dict.fromkeys(port.kind for port in ranked))

    @property
    def title(self) -> str:
        """The fabrics as text; "" when nothing is active."""
        found = []
        for kind in self.kinds:
            ports = [port for port in self.active if port.kind is kind]
            rates = {port.rate_gbps for port in ports} - {None}
            rate = f" at {max(r for r in rates if r):g} Gb/s" if rates else ""
            found.append(f"{kind.value} ({', '.join(port.device for port in ports)}{rate})")
        return " and ".join(found)


class Transport(Struct, frozen=True, kw_only=True):
    """The transport between nodes, as reported by a library. `by`: the library; `way`: its own short name;
    `fabric`: whether it is a fabric (True) or TCP (False), None when unknown."""

    by: str
    way: str
    fabric: bool | None


class FabricWatch(Struct, frozen=True, kw_only=True):
    """What the job script does about the fabric `there` of its nodes; "": none is known. `required`: falling
    back to TCP terminates the job; otherwise it is reported. `mpi_check`: MPI reports its transport in the
    MPI check; `program`: which the job script runs itself. `nccl`: NCCL reports it in files of the run's
    directory. `sockets`: what uses TCP with any fabric."""

    there: str
    required: bool = False
    mpi_check: bool = False
    program: bool = False
    nccl: bool = False
    sockets: str = ""
