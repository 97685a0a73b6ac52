"""What a site's facts make of a recipe: CUDA, MPI, base and fabric, by the rules that plan jobs."""

from typing import Any

import msgspec
import pytest
from builders import make_driver, make_site
from recipe_sites import CRAY, HDR, OLD_GPUS, SITES, host_mpi, slurm, target

from bareboat.gpu.versions import FIRST_DRIVERS, judge_cuda
from bareboat.model import MpiFamily, Refusal, SchedulerFacts, Site
from bareboat.project.recipes import catalogue, composition, cuda, lists, wanted
from bareboat.project.recipes import target as targets
from bareboat.project.recipes.target import TargetSite
from bareboat.project.recipes.wanted import Choices, Wanted
from bareboat_base.errors import BareboatError, PlanError, UsageError
from bareboat_base.versions import numbers
from bareboat_images.recipe import stages

FRAMEWORKS = ("torch", "tensorflow", "jax")


def changed(site: Site, **changes: Any) -> Site:
    return msgspec.structs.replace(site, **changes)


def complete(site: Site | None = None, **asked: Any) -> Wanted:
    where = target(site) if site is not None else None
    machine = site.architecture if site is not None else "x86_64"
    return wanted.complete(Choices(**asked), None, {}, where, machine)


def text(made: Wanted) -> str:
    return composition.compose(made, "bareboat image init")


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
            cuda.choose(framework, "auto", where, "x86_64")
        assert caught.value.remedy
        assert caught.value.context.count("\n") == len(catalogue.WITH_CUDA[framework]) - 1
        return
    chosen = cuda.choose(framework, "auto", where, "x86_64")
    assert chosen.release == fit[0]
    assert driver in chosen.reason


def test_a_version_that_was_asked_for_is_of_its_line() -> None:
    assert cuda.choose("torch", "12.6", None, "x86_64").cuda == "12.6"
    assert cuda.choose("torch", "12.5", None, "x86_64").cuda == "12.4"
    with pytest.raises(UsageError, match=r"brings CUDA 11\.2"):
        cuda.choose("torch", "11.2", None, "x86_64")
    with pytest.raises(PlanError, match="runs on the GPUs"):
        cuda.choose("torch", "13.0", target(HDR), "x86_64")


def test_a_site_without_gpus_gets_the_release_for_cpus() -> None:
    chosen = cuda.choose("torch", "auto", target(make_site()), "x86_64")
    assert chosen.release == catalogue.FOR_CPUS["torch"]
    assert "no GPU" in chosen.reason


def test_a_login_node_does_not_show_the_gpus_of_its_partitions() -> None:
    login = make_site(schedulers=(slurm("pmix", gpus=4),))
    where = TargetSite(title="x", login=login, node=login)
    chosen = cuda.choose("torch", "auto", where, "x86_64")
    assert chosen.cuda
    assert "bareboat doctor --compute --partition gpu" in chosen.warnings[0]


def test_arm_has_fewer_releases() -> None:
    assert cuda.choose("torch", "auto", None, "aarch64").cuda == "13.0"
    assert cuda.choose("tensorflow", "auto", None, "aarch64").release == catalogue.FOR_CPUS["tensorflow"]
    assert complete(changed(make_site(), architecture="aarch64"), framework="torch").machine == "aarch64"


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
    made = wanted.complete(Choices(), listed, {}, target(HDR), "x86_64")
    assert any("torch 2.13.0 has CUDA 13.0" in each and "535" in each for each in made.warnings)
    made = wanted.complete(Choices(), listed, {}, target(make_site()), "x86_64")
    assert made.warnings == ()


# -- the MPI ---------------------------------------------------------------------------------------


def test_a_site_without_mpi_starts_the_image_s_own_launcher() -> None:
    old = host_mpi(MpiFamily.OPENMPI, "2.1.1", glibc="2.28")
    site = make_site(schedulers=(SchedulerFacts(name="pbspro", version="23"),), mpis=(), other_tools={})
    for mpis in ((), (msgspec.structs.replace(old, launcher=None),)):
        mpi, why, _ = targets.choose_mpi("auto", target(changed(site, mpis=mpis)), "2.36")
        assert mpi.title == "openmpi-5.0.11"
        assert "the image's own launcher" in why
    alone = changed(site, schedulers=())
    assert targets.choose_mpi("auto", target(alone), "2.36")[0].title == "openmpi-5.0.11"


# -- the base and Python ---------------------------------------------------------------------------


def test_the_base_has_the_c_library_that_the_hosts_libraries_require() -> None:
    assert "bookworm" in complete(HDR, framework="torch").base
    assert "trixie" in complete(OLD_GPUS, framework="torch").base
    newer = changed(HDR, mpis=(host_mpi(MpiFamily.OPENMPI, "5.0.7", glibc="2.43"),))
    made = complete(newer, framework="torch")
    assert "trixie" in made.base
    assert "2.43" in made.why["base"]


@pytest.mark.parametrize("site", [None, *SITES.values()], ids=["none", *SITES])
@pytest.mark.parametrize("framework", [*FRAMEWORKS, "none"])
def test_python_is_one_that_the_framework_has_builds_for(site: Site | None, framework: str) -> None:
    try:
        made = complete(site, framework=framework, mpi="auto")
    except BareboatError:
        assert site is not None
        return
    if made.release is not None:
        low, high = map(numbers, made.release.pythons)
        assert low <= numbers(made.python) <= high
    assert made.system_python == (made.python == made.suite.python)
    stages.read(text(made), given={}, builtin={"TARGETARCH": "amd64"})


# -- fabric and CPU --------------------------------------------------------------------------------


def test_nccl_without_the_fabrics_plug_in_is_warned_of() -> None:
    assert any("aws-ofi-nccl" in each for each in complete(CRAY, framework="torch").warnings)
    assert not complete(HDR, framework="torch").warnings


# -- the recipe as text ----------------------------------------------------------------------------


def test_facts_of_a_site_cannot_leave_their_comment() -> None:
    evil = changed(
        HDR, cpu_model="x\nRUN rm -rf /\x1b[2J\u2028\\", hostname="a\nRUN b", distribution="d\r\nUSER root"
    )
    made = complete(evil, framework="torch", mpi="auto")
    written = composition.compose(made, "x\nRUN y")
    assert all(line.isprintable() for line in written.split("\n"))
    assert not [
        line for line in written.splitlines() if line.startswith(("RUN rm", "RUN b", "RUN y", "USER"))
    ]


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
