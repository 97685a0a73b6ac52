"""The facts of a site that a recipe depends on, and the MPI, the fabric and the CPU that follow. Pure.

How the ranks would be started is decided by the rules that plan jobs: `bareboat.mpi.start_methods`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from bareboat import registry
from bareboat.model import GpuDriver, Image, MpiFacts, Refusal, Site
from bareboat.model.fabric import Kind
from bareboat.mpi.rules import Layout
from bareboat.mpi.start_methods import Rung, Step, abi, mpi_site_of, walk
from bareboat.project.recipes.catalogue import MPI_PREFIX, MPIS, SUITES, Mpi, Suite
from bareboat_base.errors import PlanError
from bareboat_base.versions import numbers
from bareboat_images.lint.systems import level_of

#: Debian's packages with which the MPI and NCCL reach adapters; they load them at run time.
VERBS = ("ibverbs-providers", "libibverbs1", "librdmacm1")


class TargetSite(Struct, frozen=True, kw_only=True):
    """A site. `title`: how the user named it; `login`: the machine where jobs are submitted; `node`: where
    ranks run, the same machine where no compute node was probed."""

    title: str
    login: Site
    node: Site
    probed_node: bool = False

    @property
    def gpu(self) -> GpuDriver | None:
        return next(iter(self.node.gpu_drivers), None)

    @property
    def unseen_gpus(self) -> str:
        """The partition that has GPUs, where the facts are of a machine without; "" for none."""
        if self.gpu is not None or self.probed_node:
            return ""
        for scheduler in self.login.schedulers:
            for partition in scheduler.partitions:
                if partition.gpus_per_node:
                    return partition.name
        return ""

    @property
    def plugins(self) -> tuple[str, ...]:
        facts = registry.slurm_facts(self.login)
        return facts.mpi_plugins if facts is not None else ()

    @property
    def in_slurm(self) -> bool:
        return registry.slurm_facts(self.login) is not None

    @property
    def fabrics(self) -> tuple[Kind, ...]:
        return self.node.network.kinds if self.node.network is not None else ()

    @property
    def fabric_title(self) -> str:
        return self.node.network.title if self.node.network is not None else ""


class Outcome(Struct, frozen=True, kw_only=True):
    """How the site would start the ranks of an image with this MPI. `step`: None where it cannot."""

    mpi: Mpi
    step: Step | None
    reason: str

    @property
    def text(self) -> str:
        return f"{self.step.choice}: {self.step.reason}" if self.step is not None else self.reason


def suite(site: TargetSite | None) -> tuple[Suite, str]:
    """The Debian whose C library the site's own libraries can run with."""
    usual = SUITES[0]
    if site is None:
        return usual, ""
    needs: list[tuple[str, str]] = []
    if site.gpu is not None and site.gpu.glibc:
        needs.append((site.gpu.glibc, f"the driver's {site.gpu.glibc_by or 'libraries'}"))
    for mpi in site.node.mpis:
        if mpi.runtime is not None and mpi.runtime.glibc:
            needs.append((mpi.runtime.glibc, f"the host's {mpi.title}"))
        elif mpi.library is not None:
            needs.append((site.node.glibc, f"the host's {mpi.title}"))
    if not needs:
        return usual, f"glibc {usual.glibc}; no library of the host must run in the image"
    wanted, by = max(needs, key=lambda need: numbers(need[0]))
    for each in SUITES:
        if numbers(each.glibc) >= numbers(wanted):
            return each, f"glibc {each.glibc}; {by} requires {wanted} or newer"
    newest = max(SUITES, key=lambda each: numbers(each.glibc))
    return (
        newest,
        f"glibc {newest.glibc}; {by} requires {wanted}, which no known Debian has: its MPI cannot be used",
    )


def start(site: TargetSite, made: Image) -> Step | Refusal:
    """How the site would start an image's ranks, on two nodes where it has a scheduler."""
    mpi_site = mpi_site_of(site.node, plugins=site.plugins, in_slurm=site.in_slurm)
    # A container per rank, where a launcher outside starts them.
    nodes = 2 if any(each.works for each in site.login.schedulers) else 1
    layout = Layout(nodes=nodes, ranks_per_node=2, container_per_rank=True)
    return walk(made, mpi_site, layout)


def preference(site: TargetSite, library: MpiFacts | None, taken: Step | Refusal) -> tuple[object, ...]:
    """Sorts ways to start ranks, the best first: by whether the MPI reaches the site's fabric, the rung of
    the ladder, whether the launcher is of the MPI's own line, PMIx before PMI-2, and the newest version."""
    rungs = list(Rung)
    if not isinstance(taken, Step) or library is None:
        return True, len(rungs), True, True, ()
    return (
        not _reaches(site, library),
        rungs.index(taken.rung),
        _crosses(library, taken),
        taken.plugin == "pmi2",
        tuple(-number for number in numbers(library.version or "")),
    )


def outcomes(site: TargetSite, glibc: str, mpis: Sequence[Mpi] = MPIS) -> tuple[Outcome, ...]:
    """How the site would start each MPI, the best first: by whether it reaches the site's fabric, the rung of
    the ladder and so on, as `preference` does, and by the catalogue's order."""
    found = []
    for order, each in enumerate(mpis):
        taken = start(site, image(each, glibc, site.node.architecture))
        step = taken if isinstance(taken, Step) else None
        made = Outcome(mpi=each, step=step, reason=taken.reason)
        found.append(((*preference(site, each.facts, taken), order), made))
    return tuple(made for _, made in sorted(found, key=lambda pair: pair[0]))


def _crosses(mpi: MpiFacts, step: Step) -> bool:
    """Whether a launcher of the host is of another line than the MPI."""
    if step.rung is not Rung.HOST_LAUNCHER or step.host is None:
        return False
    return numbers(step.host.version or "")[:1] != numbers(mpi.version or "")[:1]


def image(mpi: Mpi, glibc: str, machine: str) -> Image:
    """An image with this MPI as the rules see it: enough to decide, nothing to run."""
    library = "libmpi.so.40" if mpi.name == "openmpi" else "libmpi.so.12"
    return Image(
        digest="",
        layers=(),
        glibc=glibc,
        architecture=machine,
        environment={"PATH": f"{MPI_PREFIX}/bin:/usr/bin:/bin"},
        mpis=(mpi.facts,),
        mpi_users={"mpi4py": (library,)},
    )


def choose_mpi(asked: str, site: TargetSite | None, glibc: str) -> tuple[Mpi, str, tuple[str, ...]]:
    """The MPI, the reason, and remarks about the others. `asked`: "auto", a family, or NAME-VERSION. Raises
    PlanError where the site can start none of them."""
    from bareboat.project.recipes.catalogue import variants

    allowed = MPIS if asked == "auto" else variants(asked)
    if site is None:
        why = (
            "asked for"
            if asked != "auto"
            else "no site was named: --for SITE chooses the one that it can start"
        )
        return allowed[0], why, ()
    found = outcomes(site, glibc, allowed)
    best = found[0]
    if best.step is None:
        raise PlanError(
            f"{site.title} can start no {'MPI' if asked == 'auto' else asked} of an image",
            context="\n".join(f"{each.mpi.title}: {each.reason}" for each in found),
            remedy="ask for Slurm's PMIx plugin, or install an mpirun on the nodes   # srun --mpi=list",
        )
    why = best.text
    if Kind.SLINGSHOT in site.fabrics:
        why += f"; {_unreached(site)}"
    others = [f"{each.mpi.title}: {each.text}" for each in found[1:]]
    return best.mpi, why, tuple(others)


def _reaches(site: TargetSite, mpi: MpiFacts) -> bool:
    """Whether ranks with this MPI can use the site's fabric: by UCX and libfabric of its own, or, on
    Slingshot, by the host's library in its place."""
    if Kind.SLINGSHOT not in site.fabrics:
        return True
    return any(abi(mpi) is not None and abi(mpi) == abi(each) for each in site.node.mpis)


def _unreached(site: TargetSite) -> str:
    provider = "cxi"
    host = next((each.title for each in site.node.mpis if each.library is not None), "")
    if host:
        return f"its libfabric lacks {provider} for Slingshot: jobs can use the host's {host} in its place"
    return f"its libfabric lacks {provider}: ranks use TCP on Slingshot"


def fabric(site: TargetSite | None, machine: str) -> tuple[tuple[str, ...], str]:
    """Debian's packages through which the image's programs reach the site's adapters."""
    if site is None:
        return VERBS, "InfiniBand, RoCE and EFA adapters, where a site has them"
    kinds = site.fabrics
    if not kinds:
        return VERBS, f"no fast network was found on {site.node.hostname}; another partition may have one"
    if set(kinds) == {Kind.SLINGSHOT}:
        return (), ""
    packages = list(VERBS)
    if Kind.OMNI_PATH in kinds and machine == "x86_64":
        packages.append("libpsm2-2")
    return tuple(sorted(packages)), site.fabric_title


def plug_in(site: TargetSite | None) -> str:
    """What NCCL and RCCL lack on the site's fabric; "" for nothing."""
    for kind in site.fabrics if site is not None else ():
        if kind in (Kind.SLINGSHOT, Kind.EFA):
            return (
                f"NCCL and RCCL reach {kind.value} only through the site's plug-in (aws-ofi-nccl), which the "
                "image does not have: mount it in the job, else they use TCP"
            )
    return ""


def instructions(site: TargetSite | None) -> tuple[str, str]:
    """The -march of what is compiled in the image, and the processor; ("", "") for any."""
    if site is None:
        return "", ""
    level = level_of(site.node.cpu_model) if site.node.architecture == "x86_64" else 0
    return (f"x86-64-v{level}", site.node.cpu_model) if level else ("", "")
