"""Settings of the ranks of several nodes for the nodes' networks, obstacles to using a fabric, and what the
job script checks."""

from __future__ import annotations

from msgspec import Struct, field

from bareboat.engines import Container, Enclosure
from bareboat.fabric import transport_logs
from bareboat.fabric.settings import Setting, Speakers, advice, settings
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


class Fabric(Struct, frozen=True, kw_only=True):
    """The results for the plan; empty for a job on one node. `prelude`: lines of bash that set the variables
    of `passed`."""

    environment: dict[str, str] = field(default_factory=dict)
    prelude: str = ""
    passed: tuple[str, ...] = ()
    watch: FabricWatch | None = None
    warnings: tuple[str, ...] = ()
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
    speakers = _speakers(job, image, launcher, host_mpi)
    network = node.network or Network()
    sockets = _by_nature(job, image, launcher, speakers)
    if job.fabric == "require":
        _check_required(network, node, sockets)
    given = {*job.environment, *(image.environment if image is not None else ())}
    wanted = settings(network, speakers)
    chosen = [each for each in wanted if each.name not in given]
    left = [each for each in wanted if each.name in given]
    advised = advice(
        network,
        speakers,
        captured=image is not None and not (image.reference or image.built),
        machine=node.architecture,
    )
    tells = _nccl_tells(enclosure, container) if speakers.nccl else None
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
            mpi_check=speakers.mpi is not None and bool(transport_logs.asked(speakers.mpi)),
            program=launcher.START is Start.PROGRAM,
            nccl=tells is not None,
            sockets=sockets,
        )
    at_run_time = [each for each in chosen if each.value is None]
    return Fabric(
        environment={each.name: each.value for each in chosen if each.value is not None}
        | (transport_logs.NCCL if tells is not None else {}),
        prelude="".join(map(_line, at_run_time)) + (tells or ""),
        passed=(
            *(each.name for each in at_run_time),
            *((transport_logs.NCCL_FILE,) if tells is not None else ()),
        ),
        watch=watch,
        warnings=tuple(f"{network.title} will not be used: {a.fault}; {a.remedy}" for a in advised),
        decisions=tuple(_decision(network, node, chosen, left, sockets)),
    )


def _speakers(job: Job, image: Image | None, launcher: Launcher, host_mpi: MpiFacts | None) -> Speakers:
    mpi = None
    if launcher.RUNG is not None:
        library = host_mpi or (library_of(image) if image is not None else None)
        if library is not None:
            mpi = library.family
        elif image is None or needs_mpi(image):  # srun also starts programs without MPI
            mpi = MpiFamily.UNKNOWN
    # A host's MPI brings the site's libraries, which are assumed to fit.
    libraries = image.fabrics if image is not None and host_mpi is None else None
    # Without a GPU of its own no rank starts NCCL (or AMD's RCCL, with the same variables), whatever the
    # image contains. Frameworks may have it built in.
    has = image is not None and (image.cuda is not None or image.rocm is not None)
    nccl = job.topology.gpus_per_rank > 0 and (has or any(each.name == "NCCL" for each in libraries or ()))
    return Speakers(mpi=mpi, nccl=nccl, libraries=libraries)


def _by_nature(job: Job, image: Image | None, launcher: Launcher, speakers: Speakers) -> str:
    """The transport without fabric support of ranks without MPI and NCCL; "" for other ranks, and where it is
    not known."""
    unknown = job.topology.gpus_per_rank > 0 and (image is None or image.fabrics is None)
    if speakers.mpi is not None or speakers.nccl or unknown:
        return ""
    return launcher.TRANSPORT


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
