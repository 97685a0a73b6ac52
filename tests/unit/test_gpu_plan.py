"""What the planner gives of a driver, what it refuses, and the versions by which it decides."""

import re
from typing import Any

import pytest
from builders import make_driver, make_image, make_job, make_rootfs, make_site

from bareboat import render
from bareboat.gpu import inject, versions
from bareboat.gpu.versions import Served
from bareboat.model import (
    CudaCompat,
    Decision,
    DriverFile,
    EngineFacts,
    ForwardEnv,
    GpuDriver,
    Image,
    Job,
    Plan,
    Refusal,
    SchedulerFacts,
    Site,
    Topology,
)
from bareboat.plan import plan
from bareboat_base.errors import PlanError

ONE_GPU = Topology(gpus_per_rank=1)
AMD = make_driver(
    vendor="amd", version="6.1.2", cuda=None, models=(), majors=(226, 510),
    devices=("/dev/dri/renderD128", "/dev/kfd"), glibc="2.34", glibc_by="libamdhip64.so.6",
    libraries=(DriverFile(name="libamdhip64.so.6", path="/opt/rocm-6.1.2/lib/libamdhip64.so.6"),),
    programs=(),
)  # fmt: skip


def site(*drivers: GpuDriver, **changes: Any) -> Site:
    gpus = tuple(f"/dev/nvidia{k}" for k in range(4))
    return make_site(**({"gpus": gpus, "gpu_drivers": drivers or (make_driver(),)} | changes))


def job(**changes: Any) -> Job:
    return make_job(**({"topology": ONE_GPU, "command": ("python", "x.py")} | changes))


def planned(job: Job, image: Image | None = None, where: Site | None = None) -> Plan:
    image = image or make_image(frameworks={"numpy": "2.1.0"})
    return plan(job, image, make_rootfs(image), where or site())


def refused(job: Job, image: Image | None = None, where: Site | None = None) -> PlanError:
    with pytest.raises(PlanError) as caught:
        planned(job, image, where)
    assert caught.value.code == 3
    assert caught.value.remedy
    return caught.value


def driver_decision(made: Plan) -> Decision:
    return next(each for each in made.decisions if each.subject == "GPU driver")


def has_driver(made: Plan) -> bool:
    return any(each.subject == "GPU driver" for each in made.decisions)


def variable(made: Plan, name: str) -> str | None:
    found = re.search(rf"--setenv {name} (\S+)", render.script(made))
    return found[1] if found else None


def passed(made: Plan) -> set[str]:
    """The variables of the job script that the command is to see."""
    return {name for word in made.command.argv if isinstance(word, ForwardEnv) for name in word.names}


def mounts(made: Plan) -> list[tuple[str, str, str]]:
    return re.findall(
        r"--(ro-bind|bind) (\S+) (/run/bareboat/(?:driver|host)\S*|/tmp/\S+)", render.script(made)
    )


# -- what is given -----------------------------------------------------------------------------------


def test_a_job_that_asks_for_gpus_gets_the_driver() -> None:
    made = planned(job())
    assert (
        driver_decision(made).choice
        == "nvidia 550.54.15, found by the loader's cache: 2 libraries, nvidia-smi"
    )
    assert mounts(made) == [
        ("ro-bind", "/scratch/ada/bareboat/drivers/nvidia", "/run/bareboat/driver"),
        ("ro-bind", "/usr/lib64", "/run/bareboat/host/0"),
        ("ro-bind", "/usr/bin", "/run/bareboat/host/1"),
    ]
    assert variable(made, "LD_LIBRARY_PATH") == "/run/bareboat/driver/lib"
    assert variable(made, "PATH") == "/run/bareboat/driver/bin:/env/bin:/usr/bin"
    assert set(inject.PASSED) <= passed(made)
    assert {each.path for each in made.requirements} >= {"/usr/lib64", "/usr/bin"}
    assert made.warnings == ()


@pytest.mark.parametrize(
    ("frameworks", "changes", "told"),
    [
        ({"torch": "2.5.1+cpu"}, {}, "PyTorch 2.5.1+cpu would compute on CPUs"),
        ({"torch": "2.5.1", "jaxlib": "0.4.30"}, {}, "PyTorch 2.5.1, JAX 0.4.30 would compute on CPUs"),
        ({"torch": "2.5.1+cpu"}, {"digest": ""}, "PyTorch 2.5.1+cpu would compute on CPUs"),
        ({"torch": "2.5.1"}, {"digest": ""}, None),  # in place: a module may bring CUDA
        ({"torch": "2.5.1+cu121"}, {}, None),
        ({"torch": "2.5.1"}, {"cuda": "12.1"}, None),
        ({"numpy": "2.1"}, {}, None),
    ],
)
def test_a_job_for_gpus_whose_frameworks_cannot_use_one_is_warned(
    frameworks: dict[str, str], changes: dict[str, Any], told: str | None
) -> None:
    image = make_image(**{"frameworks": frameworks, "cuda": None, **changes})
    engine = "native" if not image.digest else "bubblewrap"
    found = [each for each in planned(job(engine=engine), image).warnings if "CPUs" in each]
    assert len(found) == (told is not None)
    assert not found or told in found[0]
    alone = planned(job(engine=engine, topology=Topology()), image).warnings
    assert not [each for each in alone if "would compute on CPUs" in each]


def test_an_image_with_cuda_gets_it_unasked_and_others_do_not() -> None:
    made = planned(job(topology=Topology()), make_image(cuda="12.1"))
    assert has_driver(made)
    build = make_image(frameworks={"torch": "2.3.0+cu121"})
    assert has_driver(planned(job(topology=Topology()), build))
    without = planned(job(topology=Topology()))
    assert not has_driver(without)
    assert "bareboat/driver" not in render.script(without)
    assert "CUDA_VISIBLE_DEVICES" not in passed(without)


def test_a_machine_without_gpus_changes_nothing_for_an_image_with_cuda() -> None:
    image = make_image(cuda="12.1")
    made = planned(job(topology=Topology()), image, make_site())
    assert not has_driver(made)
    assert render.script(made) == render.script(
        planned(job(topology=Topology()), make_image(), make_site())
    ).replace(
        render.digest(planned(job(topology=Topology()), make_image(), make_site())), render.digest(made)
    )


def test_what_an_image_wishes_of_gpus_is_ignored_and_what_the_job_does_is_not() -> None:
    image = make_image(environment={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"})
    assert "NVIDIA_" not in render.script(planned(job(), image))
    assert "NVIDIA_" not in render.script(planned(job(topology=Topology()), image))
    own = job(environment={"NVIDIA_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"})
    made = planned(own, image)
    assert variable(made, "NVIDIA_VISIBLE_DEVICES") == "1"
    assert variable(made, "CUDA_VISIBLE_DEVICES") == "2"
    assert "CUDA_VISIBLE_DEVICES" not in passed(made)


def test_an_image_with_rocm_gets_amd_s_devices_and_keeps_its_own_libraries() -> None:
    made = planned(job(), make_image(rocm="6.0"), site(AMD, gpus=("/dev/dri/renderD128",)))
    assert driver_decision(made).choice == "amd 6.1.2, found by the loader's cache"
    assert mounts(made) == []
    assert variable(made, "LD_LIBRARY_PATH") is None
    assert "ROCR_VISIBLE_DEVICES" in passed(made)


def test_an_image_without_rocm_gets_amd_s_libraries_too() -> None:
    made = planned(job(), make_image(), site(AMD, gpus=("/dev/dri/renderD128",)))
    assert ("ro-bind", "/opt/rocm-6.1.2/lib", "/run/bareboat/host/0") in mounts(made)
    assert variable(made, "LD_LIBRARY_PATH") == "/run/bareboat/driver/lib"


def test_the_vendor_is_the_one_that_the_image_is_made_for() -> None:
    both = site(make_driver(), AMD)
    for image, vendor in ((make_image(cuda="12.1"), "nvidia"), (make_image(rocm="6.0"), "amd")):
        assert driver_decision(planned(job(), image, both)).choice.startswith(vendor)


@pytest.mark.parametrize(
    ("uid", "driver", "runtime", "expected"),
    [
        (4711, make_driver(), "crun", []),
        (0, make_driver(), "crun", ["--device-cgroup-rule=c 195:* rwm", "--device-cgroup-rule=c 510:* rwm"]),
        (4711, AMD, "crun", []),
        (4711, AMD, "runc", []),
    ],
)
def test_what_podman_needs_to_open_the_devices(
    uid: int, driver: GpuDriver, runtime: str, expected: list[str]
) -> None:
    podman = EngineFacts(
        name="podman", path="/usr/bin/podman", version="4.9.4", origin="on PATH", works=True,
        settings={"runtime": runtime},
    )  # fmt: skip
    image = make_image(rocm="6.0") if driver is AMD else make_image()
    where = site(driver, engines=(podman,), uid=uid)
    made = planned(job(engine="podman"), image, where)
    assert [str(word) for word in made.command.argv if "cgroup-rule" in str(word)] == expected
    # AMD's devices belong to the groups render and video.
    assert made.command.argv.count("--group-add=keep-groups") == (uid != 0)


@pytest.mark.parametrize(("driver", "option"), [(make_driver(), "--nv"), (AMD, "--rocm")])
def test_apptainer_is_told_of_gpus_in_its_own_way(driver: GpuDriver, option: str) -> None:
    apptainer = EngineFacts(
        name="apptainer", path="/usr/bin/apptainer", version="1.3.4", origin="on PATH", works=True,
        modes=("userns",), settings={"env": "/usr/bin/env", "bash": "/bin/bash"},
    )  # fmt: skip
    where = site(driver, engines=(apptainer,))
    assert option in planned(job(engine="apptainer"), where=where).command.argv
    assert option not in planned(job(engine="apptainer", topology=Topology()), where=where).command.argv


# -- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "where", "reason", "remedy"),
    [
        ({}, site(gpu_drivers=()), "node017 has no GPU driver", "bareboat doctor"),
        ({}, site(make_driver(devices=())), "but no device of a GPU", "run it on a node with GPUs"),
        ({}, site(make_driver(libraries=())), "libcuda.so.1 of the driver was not found", "bareboat doctor"),
        ({"glibc": "2.12"}, site(), "libcuda.so.550.54.15 requires glibc 2.17, and the", "2.17"),
        ({"glibc": None}, site(), "the image has no known glibc", "musl"),
        ({"cuda": "13.0"}, site(), "supports CUDA up to 12.4, and the image has 13.0", "580.65.06 or newer"),
        ({"cuda": "12.1"}, site(AMD), "the image has CUDA 12.1, and here is amd 6.1.2", "made for these"),
        ({"rocm": "6.0"}, site(), "the image has ROCm 6.0, and here is nvidia 550.54.15", "made for these"),
        ({"glibc": "2.31"}, site(AMD), "libamdhip64.so.6 requires glibc 2.34", "2.34"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_beforehand(
    image: dict[str, Any], where: Site, reason: str, remedy: str
) -> None:
    error = refused(job(), make_image(**image), where)
    assert reason in error.message
    assert remedy in error.remedy


def test_an_image_that_could_use_gpus_but_not_these_runs_without_and_says_so() -> None:
    made = planned(job(topology=Topology()), make_image(cuda="13.0"))
    decided = driver_decision(made)
    assert decided.choice == "none"
    assert decided.rejected[0].choice == "nvidia 550.54.15"
    (warning,) = made.warnings
    assert warning.startswith("the job runs without GPUs: driver 550.54.15 supports CUDA up to 12.4")
    assert "bareboat/driver" not in render.script(made)


def test_an_environment_that_is_only_described_is_not_asked_for_its_glibc() -> None:
    image = make_image(digest="", glibc=None)
    plan(job(), image, None, site())


# -- versions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("550.54.15", "12.4"), ("550.54.14", "12.4"), ("550.40.07", "12.3"), ("470.223.02", "11.4"),
     ("570.26", "12.8"), ("580.65.06", "13.0"), ("700.1", "13.1"), ("384.80", None), ("", None)],
)  # fmt: skip
def test_the_newest_cuda_of_a_driver(driver: str, cuda: str | None) -> None:
    assert versions.newest_cuda(driver) == cuda


COMPAT = CudaCompat(folder="/usr/local/cuda/compat", driver="580.65.06")


@pytest.mark.parametrize(
    ("cuda", "driver", "how"),
    [
        ("12.4", {}, "supports CUDA up to 12.4"),
        ("11.8", {}, "supports CUDA up to 12.4"),
        ("12.9", {}, "within CUDA 12 this works, except for PTX compiled"),
        ("11.8", {"version": "450.80.02"}, "within CUDA 11 this works"),
        ("14.2", {"version": "640.10"}, "newer than any known to Bareboat"),
        ("13.0", {"version": ""}, "version is unknown"),
    ],
)  # fmt: skip
def test_what_a_driver_serves(cuda: str, driver: dict[str, str], how: str) -> None:
    verdict = versions.judge_cuda(cuda, make_driver(**driver), COMPAT)
    assert isinstance(verdict, Served)
    assert how in verdict.reason
    assert not verdict.compat, "it is not needed"


@pytest.mark.parametrize(
    ("cuda", "compat", "driver", "why"),
    [
        ("13.0", None, {}, "without a forward-compatibility package"),
        ("12.0", None, {"version": "520.61.05"}, "CUDA up to 11.8, and the image has 12.0"),
        ("13.0", CudaCompat(folder="/c", driver="560.28.03"), {}, "560.28.03 is too old for this"),
        ("13.0", COMPAT, {"models": ("NVIDIA GeForce RTX 4090",)}, "machine has NVIDIA GeForce RTX 4090"),
        ("13.0", COMPAT, {"models": ("NVIDIA RTX A6000", "Tesla T4")}, "this machine has NVIDIA RTX A6000"),
        ("13.0", COMPAT, {"models": ()}, "a GPU of unknown model"),
        ("13.0", COMPAT, {"version": "410.48"}, "needs driver 418.40 or newer"),
    ],
)  # fmt: skip
def test_what_a_driver_does_not_serve(
    cuda: str, compat: CudaCompat | None, driver: dict[str, Any], why: str
) -> None:
    verdict = versions.judge_cuda(cuda, make_driver(**driver), compat)
    assert isinstance(verdict, Refusal)
    assert why in verdict.reason
    assert "or newer" in verdict.remedy


def test_the_forward_compatibility_package_is_taken_when_it_is_needed() -> None:
    image = make_image(cuda="13.0", cuda_compat=COMPAT)
    made = planned(job(), image)
    assert variable(made, "LD_LIBRARY_PATH") == f"{COMPAT.folder}:{inject.LIBRARIES}"
    assert has_driver(made)
    new_enough = planned(job(), make_image(cuda="12.1", cuda_compat=COMPAT))
    assert variable(new_enough, "LD_LIBRARY_PATH") == inject.LIBRARIES


def test_versions_of_builds() -> None:
    assert versions.cuda_of_build({"torch": "2.3.0+cu121", "torchvision": "0.18.0+cu118"}) == "12.1"
    assert versions.cuda_of_build({"torch": "2.13.0+cpu", "numpy": "2.1.0"}) is None
    assert versions.rocm_of_build({"torch": "2.3.0+rocm6.0"}) == "6.0"
    assert versions.rocm_of_build({"torch": "2.3.0+cu121"}) is None


# -- other nodes -------------------------------------------------------------------------------------


def slurm_job(**changes: Any) -> Job:
    return job(scheduler="slurm", **changes)


def login(*drivers: GpuDriver) -> Site:
    return make_site(schedulers=(SchedulerFacts(name="slurm", version="22.05"),), gpu_drivers=drivers)


@pytest.mark.parametrize("drivers", [(), (make_driver(libraries=(), programs=()),)])
def test_a_cluster_s_nodes_may_have_what_the_login_node_has_not(drivers: tuple[GpuDriver, ...]) -> None:
    made = planned(slurm_job(), where=login(*drivers))
    decided = driver_decision(made)
    assert (decided.choice, decided.reason) == (
        "none", "the job asks for GPUs by slurm, and no driver is known of its nodes",
    )  # fmt: skip
    assert "CUDA_VISIBLE_DEVICES" in passed(made)
    assert "/run/bareboat/driver" not in render.script(made)


def test_the_driver_of_the_compute_node_is_given() -> None:
    image = make_image()
    made = plan(slurm_job(), image, make_rootfs(image), login(), node=site())
    assert ("ro-bind", "/usr/lib64", "/run/bareboat/host/0") in mounts(made)
    with pytest.raises(PlanError, match=r"requires glibc 2\.17, and the image has 2\.12"):
        plan(slurm_job(), make_image(glibc="2.12"), make_rootfs(image), login(), node=site())
