"""The scripts of the built-in studies with the real frameworks, and `bareboat prove NAME`."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from processes import bareboat
from registries import free_port
from tools import started, tool
from trainings import Project, make_small_environment

from bareboat_study import builtin

FOLDER = builtin.packaged("galileo").folder.parent


def module(name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_file_location(f"{name}_script", FOLDER / name / script)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


# The networks.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # The layers of tf_cnn_benchmarks with 1,000 classes.
        ("alexnet", 61_838_248),
        ("googlenet", 6_998_552),
        ("resnet50", 25_557_032),
        ("vgg16", 138_357_544),
        # Keras' 23,851,784 without the 34,432 moving averages, and with a scale of each of 17,216 channels.
        ("inception3", 23_851_784 - 34_432 + 17_216),
    ],
)
def test_the_networks_of_galileo(name: str, parameters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    script = module("galileo", "cnn_benchmark.py", monkeypatch)
    model = script.build(name, script.MODELS[name][1], "cpu")
    assert sum(each.numel() for each in model.parameters()) == parameters


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("InceptionV3", 23_851_784), ("ResNet50", 25_636_712), ("ResNet101", 44_707_176)],
)
def test_the_networks_of_ifca(name: str, parameters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("keras")
    script = module("ifca", "train.py", monkeypatch)
    assert script.build(name).count_params() == parameters
    assert script.build(name, 96).count_params() == parameters


@pytest.mark.frameworks
@pytest.mark.parametrize(("name", "layers"), [("snn", 10), ("lnn", 28)])
def test_the_networks_of_lincoln(name: str, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("keras")
    model = module("lincoln", "train.py", monkeypatch).NETWORKS[name](256)
    assert len(model.layers) == layers
    assert model.input_shape == (None, 256, 256, 2)
    assert model.output_shape == (None, 5)


@pytest.mark.frameworks
def test_the_network_of_downscaling(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("xarray")
    script = module("downscaling", "train.py", monkeypatch)
    model = script.Network()
    assert sum(each.numel() for each in model.parameters()) == 1_615_671
    with torch.no_grad():
        assert model(torch.zeros(1, 20, 30, 53)).shape == (1, 3, 117, 209)


@pytest.mark.frameworks
def test_the_likelihood_of_downscaling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against SciPy's gamma distribution; missing points do not count."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("xarray")
    import math

    from scipy import stats

    script = module("downscaling", "train.py", monkeypatch)
    output = torch.tensor([[0.3, math.log(2.0), math.log(1.5)], [-0.4, math.log(0.7), math.log(3.0)]])
    output = output.repeat(3, 1)[:5].T.reshape(1, 3, 1, 5)
    rain = torch.tensor([4.0, 2.5, 0.0, 0.5, math.nan]).reshape(1, 1, 5)
    wet = [1 / (1 + math.exp(-each)) for each in (0.3, -0.4)]
    expected = [
        math.log(wet[0]) + stats.gamma.logpdf(4.0, 2.0, scale=1.5),
        math.log(wet[1]) + stats.gamma.logpdf(2.5, 0.7, scale=3.0),
        math.log(1 - wet[0]),
        math.log(1 - wet[1]),
    ]
    assert float(script.bernoulli_gamma(output, rain)) == pytest.approx(-sum(expected) / 4, rel=1e-5)


@pytest.mark.frameworks
def test_downscaling_reads_netcdf_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five variables on four levels, other days in each file, rates, and a sea without rain data."""
    numpy, xarray = pytest.importorskip("numpy"), pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    script = module("downscaling", "train.py", monkeypatch)
    days = numpy.datetime64("1990-01-01") + numpy.arange(6)
    coarse = {
        f"v{number}": (("time", "level", "lat", "lon"), numpy.random.rand(5, 4, 30, 53).astype("f4"))
        for number in range(5)
    }
    xarray.Dataset(coarse, {"time": days[:5], "level": [1000, 850, 700, 500]}).to_netcdf(tmp_path / "x.nc")
    rain = numpy.full((4, 117, 209), 1e-4, "f4")
    rain[:, :, :9] = numpy.nan
    fine = xarray.Dataset({"pr": (("time", "lat", "lon"), rain)}, {"time": days[2:]})
    fine["pr"].attrs["units"] = "kg m-2 s-1"
    fine.to_netcdf(tmp_path / "y.nc")
    x, y = script.read(tmp_path / "x.nc", tmp_path / "y.nc")
    assert tuple(x.shape) == (3, 20, 30, 53)
    assert tuple(y.shape) == (3, 117, 209)
    assert float(y[0, 0, 9]) == pytest.approx(8.64)
    assert bool(y[0, 0, 8].isnan())
    with pytest.raises(SystemExit, match="needed"):
        script.read(tmp_path / "y.nc", tmp_path / "x.nc")


# Sharing.


def share(jobs: int, *flags: str) -> str:
    """The output of the first of several jobs."""
    pytest.importorskip("torch")
    port = free_port()
    command = [
        sys.executable,
        FOLDER / "sharing/job.py",
        "--steps=3",
        "--batch-size=4",
        "--warm-up=1",
        *flags,
    ]
    names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(jobs)}
    parts = [started(command, env=os.environ | names | {"RANK": str(rank)}) for rank in range(jobs)]
    outputs = [each.communicate(timeout=300)[0] for each in parts]
    assert [each.returncode for each in parts] == [0] * jobs
    assert outputs[1:] == [""] * (jobs - 1)
    return outputs[0]


def test_jobs_that_share_cores_start_together_and_report_once() -> None:
    lines = share(2, "--share=affinity").splitlines()
    assert [line.split(":")[0].split(" on ")[0] for line in lines[:2]] == ["job 0", "job 1"]
    assert "completed jobs: 2" in lines
    (fairness,) = [float(line.split()[1]) for line in lines if line.startswith("fairness")]
    assert 0.5 <= fairness <= 1
    cores = [line.split("cores ")[1].split(":")[0] for line in lines[:2]]
    if len(os.sched_getaffinity(0)) > 1:
        assert len(set(cores)) == 2


def test_a_job_that_fills_the_memory_leaves_its_neighbour_alone() -> None:
    found = share(2, "--neighbour=oom")
    assert "out of memory after" in found
    assert "completed jobs: 1" in found


def test_time_slices_and_mps_are_not_confused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job under time slices avoids MPS's daemon; one under MPS does not run without it."""
    script = module("sharing", "job.py", monkeypatch)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
    with pytest.raises(SystemExit, match="the daemon of MPS is not running: nvidia-cuda-mps-control -d"):
        script.take_share("mps", 0, 4)
    (tmp_path / "control").touch()
    assert script.take_share("mps", 0, 4) == "25 % of the threads"
    assert os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert script.take_share("slices", 0, 4) == "time slices"
    assert not os.path.exists(os.environ["CUDA_MPS_PIPE_DIRECTORY"])


# The command.


def test_the_studies_are_listed(project: Project) -> None:
    code, out, err = project.do("prove", "--list")
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[:5]] == list(builtin.NAMES)
    code, out, _ = project.do("prove", "--list", "--json")
    assert [each["name"] for each in json.loads(out)] == list(builtin.NAMES)


def test_a_scale_that_a_study_does_not_have_is_refused(project: Project) -> None:
    code, _, err = project.do("prove", "galileo", "--scale", "cluster")
    assert code == 2
    assert "the study galileo has no scale 'cluster'" in err
    assert "try: bareboat prove galileo --scale laptop   # or paper" in err


def test_scale_is_for_built_in_studies(project: Project) -> None:
    code, _, err = project.do("prove", "mine.toml", "--scale", "paper")
    assert code == 2
    assert "--scale is for built-in studies, and mine.toml is not one" in err


def fake_packages(python: Path, *names: str) -> None:
    packages = next(python.parents[1].glob("lib/python3.*/site-packages"))
    for name in names:
        about = packages / f"{name}-99.0.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 99.0\n")


def test_a_dry_run_shows_the_design_and_writes_nothing(tmp_path: Path) -> None:
    make_small_environment(tmp_path / "env")
    python = tmp_path / "env/bin/python"
    fake_packages(python, "torch", "numpy")
    work = tmp_path / "work"
    work.mkdir()
    code, out, err = bareboat(
        "prove", "sharing", "--dry-run", "--python", python, store=tmp_path / "store", cwd=work
    )
    assert code == 0, err
    assert "share=affinity ranks_per_node=4" in out
    assert "6 points and 2 arms: 1 warm-up, then as many repeats of that length as fit into 780 s" in out
    code, out, err = bareboat(
        "prove",
        "sharing",
        "--dry-run",
        "--repeats",
        "3",
        "--python",
        python,
        store=tmp_path / "store",
        cwd=work,
    )
    assert code == 0, err
    assert "6 points and 2 arms: 1 warm-up and 3 repeats: 48 runs" in out
    assert list(work.iterdir()) == []


PROGRAM = "import sys\nprint(f'speed: {int(sys.argv[1]) + 0.5} images/s')\n"
STUDY = """
name = "mine"
command = ["python", "program.py", "{batch}"]
[arms]
bare = {engine = "native"}
container = {engine = "bubblewrap"}
[sweep]
batch = [4, 8]
[metrics.speed]
pattern = 'speed: ([0-9.]+)'
[prove]
repeats = 2
"""


def test_a_published_table_beside_a_study_is_shown(project: Project, tmp_path: Path) -> None:
    tool("bwrap")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mine.toml").write_text(STUDY)
    head = "batch,arm,metric,mean,std,min,max,hardware,source\n"
    (tmp_path / "published.csv").write_text("batch,speed\n4,100\n")
    code, _, err = project.prove("mine.toml")
    assert code == 2
    assert "published.csv lacks the columns arm" in err
    (tmp_path / "published.csv").write_text(head + "4,bare,speed,77,1.5,,,a K80,a paper\n")
    code, out, err = project.prove("mine.toml")
    assert code == 0, err
    assert "77.00 ± 1.5" in out
    assert "Published: a paper; measured there on: a K80." in out
    code, _, err = project.do("report", "mine", "--csv", "all")
    assert code == 0, err
    table = (tmp_path / "all" / "published.csv").read_text()
    assert "batch=4,bare,speed,,2,4.5,0,4.5,4.5,77,1.5" in table
