"""Sites for tests of recipes: made after published descriptions of clusters, which nobody probed."""

from builders import make_driver, make_site

from bareboat.model import (
    DriverFile,
    HostLibrary,
    MpiFacts,
    MpiFamily,
    Partition,
    Pmi,
    SchedulerFacts,
    Site,
)
from bareboat.model.fabric import Kind, Network, Port
from bareboat.project.recipes.target import TargetSite


def slurm(*plugins: str, gpus: int | None = None) -> SchedulerFacts:
    partition = Partition(name="gpu", default=True, nodes=100, gpus_per_node=gpus)
    return SchedulerFacts(name="slurm", version="23.11.4", partitions=(partition,), mpi_plugins=plugins)


def host_mpi(family: MpiFamily, version: str, *, glibc: str, prefix: str = "/opt/mpi") -> MpiFacts:
    return MpiFacts(
        family=family,
        version=version,
        library=f"{prefix}/lib/libmpi.so.40",
        launcher=f"{prefix}/bin/mpirun",
        prefix=prefix,
        speaks=(Pmi.PMIX,) if family is MpiFamily.OPENMPI else (Pmi.PMI2, Pmi.PMI1),
        pmix_version="4.2.2" if family is MpiFamily.OPENMPI else None,
        slurm=True,
        runtime=HostLibrary(
            libraries=(DriverFile(name="libmpi.so", path=f"{prefix}/lib/libmpi.so"),),
            glibc=glibc,
            glibc_by="libmpi.so",
        ),
    )


def port(kind: Kind, device: str, rate: float) -> Port:
    return Port(kind=kind, device=device, active=True, state="ACTIVE", rate_gbps=rate)


#: A100 with an older driver, InfiniBand, Slurm with PMIx, OpenMPI 4.1.
HDR = make_site(
    hostname="lrdn0001",
    distribution="Red Hat Enterprise Linux 8.7",
    glibc="2.28",
    cpu_model="Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz",
    gpu_drivers=(make_driver(version="535.104.05", cuda="12.2"),),
    gpu_capabilities=("8.0",),
    network=Network(ports=(port(Kind.INFINIBAND, "mlx5_0", 200.0),)),
    mpis=(host_mpi(MpiFamily.OPENMPI, "4.1.6", glibc="2.27"),),
    schedulers=(slurm("pmix", "pmix_v4", "pmi2", gpus=4),),
)
#: A100, Slingshot, Slurm with PMI-2 only, Cray MPICH.
CRAY = make_site(
    hostname="nid005000",
    distribution="SUSE Linux Enterprise Server 15 SP5",
    glibc="2.31",
    cpu_model="AMD EPYC 7763 64-Core Processor",
    gpu_drivers=(make_driver(version="550.54.15", cuda="12.4"),),
    gpu_capabilities=("8.0",),
    network=Network(ports=(port(Kind.SLINGSHOT, "cxi0", 200.0),)),
    mpis=(host_mpi(MpiFamily.CRAY, "8.1.27", glibc="2.31", prefix="/opt/cray/pe/mpich/8.1.27/ofi/gnu/9.1"),),
    schedulers=(slurm("pmi2", "cray_shasta", gpus=4),),
)
#: V100 with a driver for CUDA 11, Omni-Path, no Slurm, OpenMPI 4.1, a new C library.
OLD_GPUS = make_site(
    hostname="gpu07",
    distribution="Debian GNU/Linux 13 (trixie)",
    glibc="2.41",
    cpu_model="Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz",
    gpu_drivers=(make_driver(version="470.256.02", cuda="11.4", models=("Tesla V100-SXM2-16GB",) * 8),),
    gpu_capabilities=("7.0",),
    network=Network(ports=(port(Kind.OMNI_PATH, "hfi1_0", 100.0),)),
    mpis=(host_mpi(MpiFamily.OPENMPI, "4.1.4", glibc="2.38"),),
    schedulers=(SchedulerFacts(name="gridengine", version="8.1.9"),),
    other_tools={"ssh": "/usr/bin/ssh"},
)
SITES = {"hdr": HDR, "cray": CRAY, "old-gpus": OLD_GPUS}


def target(
    site: Site, title: str = "the site", *, login: Site | None = None, probed: bool = True
) -> TargetSite:
    return TargetSite(title=title, login=login or site, node=site, probed_node=probed)
