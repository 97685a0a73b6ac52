"""Settings that keep the ranks of several nodes from interfaces that lead nowhere, and what the job script
checks of the networks.

Sources: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html and NCCL's src/misc/socket.cc,
https://docs.open-mpi.org/en/main/tuning-apps/networking/tcp.html
"""

from __future__ import annotations

from msgspec import Struct, field

from bareboat import transport_logs
from bareboat.engines import Container, Enclosure
from bareboat.launchers import Launcher
from bareboat.model import (
    Decision,
    Image,
    Job,
    MpiFacts,
    MpiFamily,
    NodePath,
    Rejected,
    Site,
    Start,
)
from bareboat.model.fabric import FabricWatch, Network
from bareboat.mpi.start_methods import library_of, needs_mpi
from bareboat_base.errors import PlanError

_SUBJECT = "fabric"


class Setting(Struct, frozen=True, kw_only=True):
    """An environment variable of the ranks. Its value is the interface that leads to the first node, which
    only the node knows; `before` precedes it."""

    name: str
    reason: str
    before: str = ""

    @property
    def text(self) -> str:
        return f"{self.name}={self.before}INTERFACE"


class Fabric(Struct, frozen=True, kw_only=True):
    """The results for the plan; empty for a job on one node. `prelude`: lines of bash that set the variables
    of `passed`."""

    environment: dict[str, str] = field(default_factory=dict)
    prelude: str = ""
    passed: tuple[str, ...] = ()
    watch: FabricWatch | None = None
    decisions: tuple[Decision, ...] = ()


def choose_fabric(
    job: Job,
    image: Image | None,
    node: Site,
    enclosure: Enclosure,
    launcher: Launcher,
    container: Container,
    *,
    host_mpi: MpiFacts | None = None,
) -> Fabric:
    """`node`: one of those that the ranks run on; `host_mpi`: the MPI that is bound into the image. Raises
    PlanError where a required fabric is not available."""
    if job.topology.nodes == 1:
        return Fabric()
    mpi, nccl = _mpi(image, launcher, host_mpi), _uses_nccl(job, image, host_mpi)
    network = node.network or Network()
    is_unknown = job.topology.gpus_per_rank > 0 and (image is None or image.fabrics is None)
    sockets = "" if mpi is not None or nccl or is_unknown else launcher.TRANSPORT
    if job.fabric == "require":
        _check_required(network, node, sockets)
    given = {*job.environment, *(image.environment if image is not None else ())}
    wanted = settings(network, mpi, nccl=nccl)
    chosen = [each for each in wanted if each.name not in given]
    left = [each for each in wanted if each.name in given]
    tells = _nccl_tells(enclosure, container) if nccl else None
    if given & {
        *transport_logs.NCCL,
        transport_logs.NCCL_FILE,
    }:  # the user sets NCCL's variables
        tells = None
    watch = None
    if network.title or tells is not None:
        watch = FabricWatch(
            there=network.title,
            required=job.fabric == "require",
            mpi_check=mpi is not None and bool(transport_logs.asked(mpi)),
            program=launcher.START is Start.PROGRAM,
            nccl=tells is not None,
            sockets=sockets,
        )
    return Fabric(
        environment=dict(transport_logs.NCCL) if tells is not None else {},
        prelude="".join(map(_line, chosen)) + (tells or ""),
        passed=(
            *(each.name for each in chosen),
            *((transport_logs.NCCL_FILE,) if tells is not None else ()),
        ),
        watch=watch,
        decisions=tuple(_decision(network, node, chosen, left, sockets)),
    )


def _mpi(image: Image | None, launcher: Launcher, host_mpi: MpiFacts | None) -> MpiFamily | None:
    if launcher.RUNG is None:
        return None
    library = host_mpi or (library_of(image) if image is not None else None)
    if library is not None:
        return library.family
    # srun also starts programs without MPI.
    return MpiFamily.UNKNOWN if image is None or needs_mpi(image) else None


def _uses_nccl(job: Job, image: Image | None, host_mpi: MpiFacts | None) -> bool:
    """Without a GPU of its own no rank starts NCCL (or AMD's RCCL, with the same variables), whatever the
    image contains. Frameworks may have it built in."""
    if job.topology.gpus_per_rank == 0 or image is None:
        return False
    libraries = (image.fabrics or ()) if host_mpi is None else ()
    is_built_in = image.cuda is not None or image.rocm is not None
    return is_built_in or any(each.name == "NCCL" for each in libraries)


def _check_required(network: Network, node: Site, sockets: str) -> None:
    asked = 'the job asks for a fabric (fabric = "require")'
    if not network.title:
        seen = "the networks were not probed on" if node.network is None else "none found on"
        raise PlanError(
            f"{asked}, and {seen} {node.hostname}",
            remedy='bareboat doctor --compute   # probes the nodes; or fabric = "mark"',
        )
    if sockets:
        raise PlanError(
            f"{asked}, and without GPUs and MPI its ranks use {sockets}, which is TCP on any network",
            context=f"the nodes have {network.title}",
            remedy='use MPI or NCCL (gpus_per_rank), or set fabric = "mark"',
        )


def _decision(
    network: Network, node: Site, chosen: list[Setting], left: list[Setting], sockets: str
) -> list[Decision]:
    if node.network is None or not (network.title or chosen):
        return []
    reasons = [f"so it was seen on {node.hostname}"]
    if sockets and network.title:
        reasons.append(f"but {sockets} is TCP whatever there is")
    reasons += [f"with {each.text}: {each.reason}" for each in chosen]
    return [
        Decision(
            subject=_SUBJECT,
            choice=network.title or "none",
            reason="; ".join(reasons),
            rejected=tuple(
                Rejected(choice=each.text, reason="the job or the image sets it otherwise") for each in left
            ),
        )
    ]


def _line(setting: Setting) -> str:
    """Values exported by the site, for example by a module, come first. Without `ip` the interface is
    unknown."""
    name = setting.name
    return f'[ -z "$BAREBOAT_INTERFACE" ] ||\n  {name}=${{{name}:-{setting.before}$BAREBOAT_INTERFACE}}\n'


def _nccl_tells(enclosure: Enclosure, container: Container) -> str | None:
    """The line that sets NCCL's log file, by the path of the run's directory in the container. None where the
    container does not show it."""
    match enclosure.run_folder(container, "BAREBOAT_RUN_DIR"):
        case None:
            return None
        case NodePath(variable=variable, below=below):
            top = f"${variable}{below}"
        case place:
            top = place
    folder = f"$BAREBOAT_RUN_DIR/{transport_logs.NCCL_FOLDER}"
    file = f"{top}/{transport_logs.NCCL_FOLDER}/%h.%p"
    return f'[ -d "{folder}" ] || mkdir -p "{folder}"\n{transport_logs.NCCL_FILE}="{file}"\n'


def settings(network: Network, mpi: MpiFamily | None, *, nccl: bool) -> tuple[Setting, ...]:
    """Bridges of container and VM tools have the same address on every node: a rank that connects to a peer
    there reaches itself, or nothing, and waits for ever."""
    private = [each.name for each in network.interfaces if each.private and each.routed]
    found = []
    # NCCL uses docker's interfaces only as a last resort, and prefers interfaces named ib….
    misleading = [name for name in private if not name.startswith("docker")]
    ipoib = any(each.ipoib and each.up and each.routed for each in network.interfaces)
    if nccl and misleading and not ipoib:
        found.append(
            Setting(
                name="NCCL_SOCKET_IFNAME",
                before="=",  # otherwise it is a prefix
                reason=f"NCCL would also use {_list(misleading)}, local to this machine",
            )
        )
    if mpi is MpiFamily.OPENMPI and private:
        found.append(
            Setting(
                name="OMPI_MCA_btl_tcp_if_include",
                reason=f"OpenMPI would also connect over {_list(private)}, local to this machine",
            )
        )
    return tuple(found)


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
