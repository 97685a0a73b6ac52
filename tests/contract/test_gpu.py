"""What every engine promises of GPUs, with a made-up driver (tests/drivers.py) on machines without one.

bench/gpu/contract.py tries the same on a machine with a real one.
"""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest
from drivers import ANSWER, FOLDER, VERSION, make_tree
from engine_lab import params
from environments import Captured
from gpu_lab import CASES, Lab, with_engine

from bareboat.engines import bubblewrap
from bareboat.gpu import find, inject
from bareboat.model import Mount, Site
from bareboat.probe import probe
from bareboat_images.layers import layer


@pytest.fixture(scope="session")
def base_site(captured: Captured) -> Site:
    return probe(captured.store)


@pytest.fixture(scope="session")
def driver_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("machine"))


@pytest.fixture(
    params=params(CASES, lambda case: case[0]), ids=lambda case: case[0] + ("" if case[1] else "-flat")
)
def lab(
    request: pytest.FixtureRequest, captured: Captured, base_site: Site, driver_tree: Path, tmp_path: Path
) -> Lab:
    name, overlay = request.param
    site = with_engine(base_site, name, overlay)
    for folder in ("work", "home"):
        (tmp_path / folder).mkdir()
    drivers = find.find(str(driver_tree))
    assert drivers, "the made-up driver was not found"
    site = msgspec.structs.replace(
        site, home=str(tmp_path / "home"), gpu_drivers=drivers, gpus=find.gpus(drivers)
    )
    return Lab(name, captured, site, tmp_path / "work", driver_tree)


_LOADS = """
import ctypes, json
answers = {}
for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1",
             "libnvidia-nvvm.so.4"):
    answers[name] = ctypes.CDLL(name).cuInit(0)
try:
    ctypes.CDLL("libstranger.so.1")
    answers["stranger"] = "found"
except OSError:
    pass
print(json.dumps(answers))
"""


def test_the_driver_s_libraries_are_found_by_the_loader_and_no_others(lab: Lab) -> None:
    assert lab.says(_LOADS) == dict.fromkeys(
        ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1",
         "libnvidia-nvvm.so.4"),
        ANSWER,
    )  # fmt: skip


def test_nvidia_smi_runs_and_the_host_s_other_programs_are_not_on_the_path(lab: Lab) -> None:
    done = lab.run("sh", "-c", "nvidia-smi && ! command -v stranger")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"NVIDIA-SMI {VERSION} made up\n", "")


def test_the_interpreter_and_its_libraries_are_still_the_image_s(lab: Lab) -> None:
    program = """
import json, os, sys, ware, zlib, hashlib
maps = sorted({line.split()[-1] for line in open("/proc/self/maps") if "libc.so" in line})
print(json.dumps([sys.executable, ware.NAME, maps]))
"""
    with_gpu, without = lab.says(program), lab.says(program, gpus=0)
    assert with_gpu == without
    assert with_gpu[:2] == [str(lab.captured.python), "ware"]


def test_a_library_path_of_the_job_comes_after_the_driver_s(lab: Lab) -> None:
    program = "import json, os; print(json.dumps(os.environ['LD_LIBRARY_PATH'].split(':')))"
    assert lab.says(program, environment={"LD_LIBRARY_PATH": "/mine"}) == [inject.LIBRARIES, "/mine"]


@pytest.mark.parametrize("chosen", ["1", "0,1", "", "GPU-5ebe9f43,MIG-7"])
def test_the_scheduler_s_choice_of_devices_goes_through(lab: Lab, chosen: str) -> None:
    program = """
import json, os
print(json.dumps({name: value for name, value in os.environ.items() if "GPU" in name or "VISIBLE" in name}))
"""
    variables = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "SLURM_STEP_GPUS")
    image = msgspec.structs.replace(
        lab.captured.image,
        environment={**lab.captured.image.environment, "NVIDIA_VISIBLE_DEVICES": "all"},
    )
    said = lab.says(program, caller=dict.fromkeys(variables, chosen), image=image)
    assert said == dict.fromkeys(variables, chosen)
    assert lab.says(program) == {}


def test_a_choice_of_the_job_s_own_wins(lab: Lab) -> None:
    program = "import json, os; print(json.dumps(os.environ['CUDA_VISIBLE_DEVICES']))"
    said = lab.says(program, caller={"CUDA_VISIBLE_DEVICES": "3"}, environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert said == "1"


def test_the_devices_are_the_host_s(lab: Lab) -> None:
    """No GPU here: what is shown of /dev stands for it."""
    program = "import json, os; print(json.dumps([os.stat(p).st_rdev for p in ('/dev/null', '/dev/zero')]))"
    assert lab.says(program) == [os.stat(path).st_rdev for path in ("/dev/null", "/dev/zero")]


def test_nothing_of_the_driver_is_written_into_the_image(lab: Lab) -> None:
    store = lab.captured.store
    lab.says(_LOADS)
    flat = store.flat(lab.captured.image.digest)
    found = [path for path in flat.rglob("*") if "nvidia" in path.name or "libcuda" in path.name]
    assert found == []
    assert not (flat / inject.TOP.lstrip("/")).exists()
    for each in lab.captured.image.layers:
        assert layer.digest_tree(str(store.layer(each.diff_id)))[0] == each.diff_id


def test_the_driver_s_files_cannot_be_written_to(lab: Lab) -> None:
    path = next(file.path for file in lab.site.gpu_drivers[0].libraries if file.name == "libcuda.so.1")
    before = Path(path).read_bytes()
    program = f"""
import json, os
tried = []
for path in ({inject.LIBRARIES!r} + "/libcuda.so.1", {inject.LIBRARIES!r} + "/new"):
    try:
        open(path, "ab").close()
        tried.append("written")
    except OSError:
        tried.append("refused")
print(json.dumps(tried))
"""
    assert lab.says(program) == ["refused", "refused"]
    assert Path(path).read_bytes() == before


def test_the_pipes_of_mps_are_reached_where_they_are(lab: Lab) -> None:
    # A socket's path may not be longer than 107 bytes.
    folder = Path(f"/tmp/bareboat-mps-{os.getpid()}")
    folder.mkdir()
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "control"))
            server.listen()
            (driver,) = lab.site.gpu_drivers
            pipes = Mount(source=str(folder), target=str(folder), writable=True)
            made_up = msgspec.structs.replace(driver, sockets=(pipes,))
            there = msgspec.structs.replace(lab.site, gpu_drivers=(made_up,))
            moved = Lab(lab.engine, lab.captured, there, lab.workdir, lab.root)
            program = """
import json, os, socket
with socket.socket(socket.AF_UNIX) as client:
    client.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
print(json.dumps("connected"))
"""
            assert moved.says(program, caller={"CUDA_MPS_PIPE_DIRECTORY": str(folder)}) == "connected"
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "lab",
    [case for case in CASES if case[0] in ("apptainer", "singularity")],
    ids=lambda case: case[0],
    indirect=True,
)
def test_apptainer_s_own_way_with_gpus_does_no_harm(lab: Lab, tmp_path: Path) -> None:
    """--nv looks into the machine's own cache and PATH: a machine is made on which it finds the driver
    there, in a mount namespace around the job."""
    bwrap = bubblewrap._embedded()
    if not isinstance(bwrap, str):
        pytest.skip("no bwrap, with which such a machine is made")
    configured, cache = tmp_path / "ld.so.conf", tmp_path / "ld.so.cache"
    configured.write_text(f"include /etc/ld.so.conf\n{lab.root}/{FOLDER}\n")
    ldconfig = ["/sbin/ldconfig", "-X", "-C", str(cache), "-f", str(configured)]
    subprocess.run(ldconfig, check=True, capture_output=True)
    machine = [bwrap, "--dev-bind", "/", "/", "--ro-bind", str(cache), "/etc/ld.so.cache"]
    machine += ["--setenv", "PATH", f"{lab.root}/usr/bin:{os.environ['PATH']}"]
    listed = subprocess.run([*machine, "/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    assert f"=> {lab.root}/{FOLDER}/libcuda.so.1" in listed.stdout
    done = lab.run(
        "sh", "-c", f"python -c '{_LOADS}' && nvidia-smi && ls /.singularity.d/libs", before=machine
    )
    assert (done.returncode, done.stderr) == (0, "")
    said, smi, *bound = done.stdout.splitlines()
    assert json.loads(said)["libcuda.so.1"] == ANSWER
    assert smi == f"NVIDIA-SMI {VERSION} made up"
    assert "libcuda.so.1" in bound, "--nv found the driver, too"


_COMPILES = """
import json, os
seen = []
for name in ("CUDA_CACHE_PATH", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
    place = os.path.join(os.environ[name], "ab")
    seen += os.listdir(place) if os.path.isdir(place) else []
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "kernel"), "w") as stream:
        stream.write("code")
print(json.dumps(seen))
"""


def test_compiled_kernels_are_kept_for_the_next_run(lab: Lab) -> None:
    """By the directories that frameworks use, for the same project, unless `kernel_cache = false`."""
    shutil.rmtree(lab.captured.store.kernel_caches(), ignore_errors=True)
    assert lab.says(_COMPILES) == []
    assert lab.says(_COMPILES) == ["kernel"] * 3
    (archive,) = lab.captured.store.kernel_caches().glob("*/*/*")
    assert archive.name.endswith(".tar")
    (lab.workdir / "other").mkdir()
    assert lab.says(_COMPILES, workdir=str(lab.workdir / "other")) == []
    with pytest.raises(AssertionError, match="KeyError"):
        lab.says(_COMPILES, kernel_cache=False)
