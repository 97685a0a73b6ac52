"""What a site's facts make of a recipe: CUDA, MPI, base and fabric, by the rules that plan jobs."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from builders import make_driver, make_image, make_site
from recipe_sites import CRAY, HDR, OLD_GPUS, SITES, host_mpi, port, slurm, target

from bareboat.gpu.versions import FIRST_DRIVERS, judge_cuda
from bareboat.model import CudaCompat, MpiFamily, Refusal, SchedulerFacts, Site
from bareboat.model.fabric import Kind, Network
from bareboat.mpi.rules import Layout
from bareboat.mpi.start_methods import Rung, Step, mpi_site_of, walk
from bareboat.project.recipes import catalogue, composition, cuda, definition, dockerfile, lists, wanted
from bareboat.project.recipes import target as targets
from bareboat.project.recipes.choices import Choices
from bareboat.project.recipes.target import TargetSite
from bareboat.project.recipes.wanted import Base, Wanted
from bareboat_base.errors import BareboatError, PlanError, UsageError
from bareboat_base.versions import numbers
from bareboat_images.recipe import stages

FRAMEWORKS = ("torch", "tensorflow", "jax")


def changed(site: Site, **changes: Any) -> Site:
    return msgspec.structs.replace(site, **changes)


def complete(
    site: Site | None = None,
    *,
    imported: dict[str, str] | None = None,
    base: Base | None = None,
    **asked: Any,
) -> Wanted:
    where = target(site) if site is not None else None
    machine = site.architecture if site is not None else "x86_64"
    return wanted.complete(Choices(**asked), None, imported or {}, where, base, machine)


def text(made: Wanted) -> str:
    return dockerfile.write(composition.compose(made, "bareboat image init"))


# -- CUDA ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("driver", sorted({*FIRST_DRIVERS.values(), "418.39", "440.33", "999.1"}))
@pytest.mark.parametrize("capability", ["6.0", "7.0", "7.5", "8.0", "9.0", "10.0", "12.0"])
def test_a_release_is_one_that_the_driver_and_the_gpu_can_run(
    framework: str, driver: str, capability: str
) -> None:
    gpu = make_driver(version=driver, cuda=None)
    where = target(changed(HDR, gpu_drivers=(gpu,), gpu_capabilities=(capability,)))
    fit = [
        each
        for each in catalogue.WITH_CUDA[framework]
        if not isinstance(judge_cuda(each.cuda, gpu, None), Refusal)
        and numbers(each.capabilities[0]) <= numbers(capability)
        and numbers(capability)[0] <= numbers(each.capabilities[1])[0]
    ]
    if not fit:
        with pytest.raises(PlanError) as caught:
            cuda.choose(framework, "auto", where, "x86_64", None)
        assert caught.value.remedy
        assert caught.value.context.count("\n") == len(catalogue.WITH_CUDA[framework]) - 1
        return
    chosen = cuda.choose(framework, "auto", where, "x86_64", None)
    assert chosen.release == fit[0]
    assert driver in chosen.reason


def test_forward_compatibility_is_said_and_taken_from_the_base() -> None:
    chosen = cuda.choose("torch", "auto", target(HDR), "x86_64", None)
    assert chosen.cuda == "12.8"
    assert "forward compatibility" in chosen.reason
    base = "docker.io/nvidia/cuda:13.0.0-base-ubuntu24.04"
    assert base in chosen.reason
    compat = cuda.choose("torch", "auto", target(HDR), "x86_64", base)
    assert compat.cuda == "13.0"
    assert compat.compat


def test_forward_compatibility_is_not_said_of_other_gpus() -> None:
    gpu = make_driver(version="535.104.05", models=("NVIDIA GeForce RTX 4090",))
    chosen = cuda.choose("torch", "auto", target(changed(HDR, gpu_drivers=(gpu,))), "x86_64", None)
    assert "forward" not in chosen.reason


def test_a_version_that_was_asked_for_is_of_its_line() -> None:
    assert cuda.choose("torch", "12.6", None, "x86_64", None).cuda == "12.6"
    assert cuda.choose("torch", "12.5", None, "x86_64", None).cuda == "12.4"
    with pytest.raises(UsageError, match=r"brings CUDA 11\.2"):
        cuda.choose("torch", "11.2", None, "x86_64", None)
    with pytest.raises(PlanError, match="runs on the GPUs"):
        cuda.choose("torch", "13.0", target(HDR), "x86_64", None)


def test_a_site_without_gpus_gets_the_release_for_cpus() -> None:
    chosen = cuda.choose("torch", "auto", target(make_site()), "x86_64", None)
    assert chosen.release == catalogue.FOR_CPUS["torch"]
    assert "no GPU" in chosen.reason


def test_a_login_node_does_not_show_the_gpus_of_its_partitions() -> None:
    login = make_site(schedulers=(slurm("pmix", gpus=4),))
    where = TargetSite(title="x", login=login, node=login)
    chosen = cuda.choose("torch", "auto", where, "x86_64", None)
    assert chosen.cuda
    assert "bareboat doctor --compute --partition gpu" in chosen.warnings[0]


def test_no_recipe_is_written_for_amd() -> None:
    driver = make_driver(vendor="amd", version="6.3.6", cuda=None, models=("AMD Instinct MI250X",) * 4)
    with pytest.raises(PlanError, match="no release of torch for GPUs of AMD") as caught:
        cuda.choose("torch", "auto", target(changed(CRAY, gpu_drivers=(driver,))), "x86_64", None)
    assert "--framework none --base IMAGE" in caught.value.remedy


def test_arm_has_fewer_releases() -> None:
    assert cuda.choose("torch", "auto", None, "aarch64", None).cuda == "13.0"
    assert (
        cuda.choose("tensorflow", "auto", None, "aarch64", None).release == catalogue.FOR_CPUS["tensorflow"]
    )
    assert complete(changed(make_site(), architecture="aarch64"), framework="torch").machine == "aarch64"


def test_other_machines_are_refused() -> None:
    with pytest.raises(PlanError, match="ppc64le"):
        complete(changed(make_site(), architecture="ppc64le"), framework="torch")


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({"torch": "2.13.0"}, ("torch 2.13.0", "13.0")),
        ({"torch": "2.13.0+cpu"}, None),
        ({"torch": "2.7.1+cu118"}, ("torch 2.7.1+cu118", "11.8")),
        ({"torch": "1.0"}, None),
        ({"numpy": "2.0"}, None),
        ({}, None),
    ],
)
def test_the_cuda_of_a_listed_release(packages: dict[str, str], expected: tuple[str, str] | None) -> None:
    assert cuda.listed(packages) == expected


def test_a_locked_framework_that_the_driver_cannot_run_is_warned_of() -> None:
    listed = lists.read("requirements.txt", "torch==2.13.0\n")
    made = wanted.complete(Choices(), listed, {}, target(HDR), None, "x86_64")
    assert any("torch 2.13.0 has CUDA 13.0" in each and "535" in each for each in made.warnings)
    made = wanted.complete(Choices(), listed, {}, target(make_site()), None, "x86_64")
    assert made.warnings == ()


# -- the MPI ---------------------------------------------------------------------------------------

PLUGINS = [(), ("pmix",), ("pmix", "pmix_v5"), ("pmi2",), ("pmi2", "pmix", "pmix_v3"), ("cray_shasta",)]
HOSTS = [
    (),
    (host_mpi(MpiFamily.OPENMPI, "4.1.4", glibc="2.28"),),
    (host_mpi(MpiFamily.OPENMPI, "5.0.7", glibc="2.28"),),
    (host_mpi(MpiFamily.MPICH, "4.0.2", glibc="2.28"),),
    (host_mpi(MpiFamily.CRAY, "8.1.27", glibc="2.31"),),
]


@pytest.mark.parametrize("in_slurm", [True, False])
@pytest.mark.parametrize("plugins", PLUGINS, ids=" ".join)
@pytest.mark.parametrize("hosts", HOSTS, ids=lambda found: " ".join(mpi.title for mpi in found))
@pytest.mark.parametrize("fabric", [None, Kind.INFINIBAND, Kind.SLINGSHOT])
def test_the_mpi_is_one_that_the_site_can_start(
    *, in_slurm: bool, plugins: tuple[str, ...], hosts: tuple[Any, ...], fabric: Kind | None
) -> None:
    network = Network(ports=(port(fabric, "a0", 200.0),)) if fabric is not None else None
    site = make_site(
        mpis=hosts,
        network=network,
        schedulers=(slurm(*plugins),) if in_slurm else (),
        other_tools={"ssh": "/usr/bin/ssh"},
    )
    where = target(site)
    found = targets.outcomes(where, "2.36")
    assert {each.mpi.title for each in found} == {each.title for each in catalogue.MPIS}
    best = found[0]
    assert best.step is not None
    layout = Layout(nodes=2 if in_slurm else 1, ranks_per_node=2, container_per_rank=True)
    offered = mpi_site_of(site, plugins=plugins if in_slurm else (), in_slurm=in_slurm)
    again = walk(targets.image(best.mpi, "2.36", "x86_64"), offered, layout, asked=True)
    assert isinstance(again, Step)
    assert again.rung is best.step.rung
    if fabric is Kind.SLINGSHOT and any(mpi.family is MpiFamily.CRAY for mpi in hosts):
        assert best.mpi.name == "mpich"
    if fabric is not Kind.SLINGSHOT:
        order = list(Rung)
        assert all(
            each.step is None or order.index(each.step.rung) >= order.index(best.step.rung) for each in found
        )


def test_the_launcher_of_the_same_line_comes_first() -> None:
    mpi, why, _ = targets.choose_mpi("auto", target(OLD_GPUS), "2.41")
    assert mpi.title == "openmpi-4.1.8"
    assert "mpirun (ORTE) 4.1.4" in why


def test_slingshot_gets_the_mpi_whose_place_the_host_can_take() -> None:
    mpi, why, _ = targets.choose_mpi("auto", target(CRAY), "2.36")
    assert mpi.name == "mpich"
    assert "Cray MPICH 8.1.27 in its place" in why
    assert targets.choose_mpi("openmpi", target(CRAY), "2.36")[0].name == "openmpi"


def test_a_site_without_mpi_starts_the_image_s_own_launcher() -> None:
    old = host_mpi(MpiFamily.OPENMPI, "2.1.1", glibc="2.28")
    site = make_site(schedulers=(SchedulerFacts(name="pbspro", version="23"),), mpis=(), other_tools={})
    for mpis in ((), (msgspec.structs.replace(old, launcher=None),)):
        mpi, why, _ = targets.choose_mpi("auto", target(changed(site, mpis=mpis)), "2.36")
        assert mpi.title == "openmpi-5.0.11"
        assert "the image's own launcher" in why
    alone = changed(site, schedulers=())
    assert targets.choose_mpi("auto", target(alone), "2.36")[0].title == "openmpi-5.0.11"


def test_what_an_mpi_is_chosen_for() -> None:
    assert complete(HDR, framework="torch").mpi is None
    assert complete(HDR, imported={"mpi4py": ""}).mpi is not None
    assert complete(HDR, imported={"mpi4py": ""}, mpi="none").mpi is None
    assert complete(HDR, framework="torch", horovod=True).mpi is not None


def test_mpi4py_matches_the_environment() -> None:
    assert "mpi4py==4.0.1" in complete(None, imported={"mpi4py": "4.0.1"}).packages


# -- the base and Python ---------------------------------------------------------------------------


def test_the_base_has_the_c_library_that_the_hosts_libraries_require() -> None:
    assert "bookworm" in complete(HDR, framework="torch").base
    assert "trixie" in complete(OLD_GPUS, framework="torch").base
    newer = changed(HDR, mpis=(host_mpi(MpiFamily.OPENMPI, "5.0.7", glibc="2.43"),))
    made = complete(newer, framework="torch")
    assert "trixie" in made.base
    assert "2.43" in made.why["base"]


@pytest.mark.parametrize("site", [None, *SITES.values()], ids=["none", *SITES])
@pytest.mark.parametrize("python", [None, *catalogue.PYTHONS])
@pytest.mark.parametrize("framework", [*FRAMEWORKS, "none"])
def test_python_is_one_that_the_framework_has_builds_for(
    site: Site | None, python: str | None, framework: str
) -> None:
    try:
        made = complete(site, framework=framework, python=python, mpi="auto")
    except BareboatError:
        assert python is not None or site is not None
        return
    assert python in (None, made.python)
    if made.release is not None:
        low, high = map(numbers, made.release.pythons)
        assert low <= numbers(made.python) <= high
    assert made.system_python == (made.python == made.suite.python)
    stages.read(text(made), given={}, builtin={"TARGETARCH": "amd64"})


def test_a_base_with_its_own_python() -> None:
    base = Base(name="mine", python="3.12.4", program="/opt/python/bin/python3", glibc="2.39")
    made = complete(None, framework="torch", base=base)
    assert made.python == "3.12"
    assert "/opt/python/bin/python3 -m venv /opt/env" in text(made)
    with pytest.raises(UsageError, match=r"has Python 3\.12"):
        complete(None, framework="torch", python="3.11", base=base)


def test_a_base_by_its_name() -> None:
    assert wanted.base_of_name("docker.io/library/python:3.12-slim").python == "3.12"
    assert wanted.base_of_name("debian:12").python == ""
    for name in ("alpine:3.20", "docker.io/library/python:3.12-alpine", "rockylinux:9"):
        with pytest.raises(UsageError, match="Debian's or Ubuntu's"):
            wanted.base_of_name(name)


def test_a_base_for_another_machine() -> None:
    with pytest.raises(UsageError, match="for aarch64"):
        complete(HDR, framework="torch", base=Base(name="x", architecture="aarch64"))


# -- fabric and CPU --------------------------------------------------------------------------------


def test_fabric() -> None:
    assert "libpsm2-2" in complete(OLD_GPUS, framework="torch").verbs
    assert complete(CRAY, framework="torch").verbs == ()
    assert "libibverbs1" in complete(None, framework="torch").verbs
    assert complete(None, framework="none", python="3.11").verbs == ()


def test_nccl_without_the_fabrics_plug_in_is_warned_of() -> None:
    assert any("aws-ofi-nccl" in each for each in complete(CRAY, framework="torch").warnings)
    assert not complete(HDR, framework="torch").warnings


@pytest.mark.parametrize(
    ("model", "level"),
    [
        ("AMD EPYC 7763 64-Core Processor", "x86-64-v3"),
        ("AMD EPYC 9654 96-Core Processor", "x86-64-v4"),
        ("Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz", "x86-64-v4"),
        ("Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", "x86-64-v3"),
        ("Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz", "x86-64-v2"),
        ("AMD EPYC", ""),
        ("x86_64", ""),
    ],
)
def test_instructions(model: str, level: str) -> None:
    assert targets.instructions(target(make_site(cpu_model=model)))[0] == level


# -- the recipe as text ----------------------------------------------------------------------------


def test_facts_of_a_site_cannot_leave_their_comment() -> None:
    evil = changed(
        HDR, cpu_model="x\nRUN rm -rf /\x1b[2J\u2028\\", hostname="a\nRUN b", distribution="d\r\nUSER root"
    )
    made = complete(evil, framework="torch", mpi="auto")
    for written in (text(made), definition.write(composition.compose(made, "x\nRUN y"))):
        assert all(line.isprintable() for line in written.split("\n"))
        assert not [
            line for line in written.splitlines() if line.startswith(("RUN rm", "RUN b", "RUN y", "USER"))
        ]


@pytest.mark.parametrize(
    ("framework", "mpi", "site"),
    list(itertools.product([*FRAMEWORKS, "none"], [None, "auto", "openmpi-4.1.8", "mpich"], [None, "hdr"])),
)
def test_every_recipe_is_a_valid_dockerfile(framework: str, mpi: str | None, site: str | None) -> None:
    made = complete(SITES[site] if site else None, framework=framework, mpi=mpi)
    parsed = stages.read(text(made), given={}, builtin={"TARGETARCH": "amd64"})
    assert parsed.target(None).base
    written = definition.write(composition.compose(made, "bareboat image init"))
    assert written.count("%post") == 1
    assert "set -eu" in written


def test_every_download_of_the_recipe_itself_is_pinned() -> None:
    written = text(complete(HDR, framework="torch", mpi="auto", horovod=True))
    for name in ("openmpi==5.0.11", "openmpi==4.1.8", "horovod==0.28.1", "setuptools==75.8.0"):
        assert f"{name} --hash=sha256:" in written


def test_horovod_is_edited_for_the_framework() -> None:
    written = text(complete(None, framework="torch", horovod=True))
    assert "CMAKE_CXX_STANDARD 17" in written
    assert 'HOROVOD_WITH_PYTORCH="1"' in written
    written = text(complete(None, framework="tensorflow", horovod=True, cuda="none"))
    assert "xla_mpi_ops.cc" in written
    assert 'HOROVOD_WITH_TENSORFLOW="1"' in written
    assert "tf-keras~=2.20.0" in written


# -- a base that has the framework -----------------------------------------------------------------


def ngc(**changes: Any) -> Base:
    """Like an image of NGC in the store."""
    facts = {
        "frameworks": {"torch": "2.10.0a0+b4e4ee81d3"},
        "cuda": "13.1",
        "cuda_compat": CudaCompat(folder="/usr/local/cuda/compat", driver="590.44.01"),
        "mpis": (catalogue.MPIS[1].facts,),
        "mpi_users": {},
    } | changes
    return Base(name="pytorch", python="3.12.3", program="/usr/bin/python3", image=make_image(**facts))


def test_the_framework_of_the_base_is_kept() -> None:
    made = complete(HDR, imported={"torch": "", "numpy": "2.0.0", "mpi4py": ""}, base=ngc())
    written = text(made)
    assert "It has torch 2.10.0a0+b4e4ee81d3, CUDA 13.1" in written
    assert "--system-site-packages" in written
    assert "install --no-cache-dir torch" not in written
    assert made.mpi is None
    assert not made.warnings
    assert complete(HDR, framework="torch", mpi="mpich", base=ngc()).mpi is not None
    assert complete(None, mpi="auto", base=ngc()).release is None


def test_a_base_that_the_site_cannot_use_is_warned_of() -> None:
    made = complete(HDR, framework="torch", base=ngc(cuda_compat=None))
    assert any("driver 535" in each for each in made.warnings)
    without = changed(HDR, schedulers=(SchedulerFacts(name="pbspro", version="23"),), mpis=(), other_tools={})
    made = complete(without, framework="torch", base=ngc())
    assert not any("cannot start" in each for each in made.warnings)  # by its own mpirun


def test_a_base_of_ngc_is_pulled_first() -> None:
    with pytest.raises(UsageError, match="not in the store") as caught:
        wanted.base_of_name("nvcr.io/nvidia/pytorch:25.12-py3")
    assert caught.value.remedy == "bareboat image pull nvcr.io/nvidia/pytorch:25.12-py3"
