"""What a site layer can contain: an MPI that the site's launchers can start, and packages that use it.

A site layer is one more layer on an image, made once for a site; the image itself does not change. All files
lie in one directory, so that no file of the image is overwritten, and PATH, LD_LIBRARY_PATH and PYTHONPATH
list it before the image's. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from bareboat.model import Image, MpiFacts, MpiFamily, Pmi, SiteLayer
from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.nearest import nearest
from bareboat_base.paths import DEFAULT_PATH
from bareboat_base.printable import quoted
from bareboat_base.versions import numbers

#: Changes whenever the same image and contents would produce another layer.
RECIPE = 2
PREFIX = "/opt/bareboat-site"

#: Horovod's last release, of 2023, and the mpi4py of site layers.
HOROVOD = "0.28.1"
MPI4PY = "4.1.2"

#: OpenMPI's C interface is the same from 3.0 to 5.0; its C++ bindings were removed in 5.0. Since GCC 13 no
#: other header brings the exceptions that Horovod's use.
CXXFLAGS = "-DOMPI_SKIP_MPICXX -include stdexcept"

#: What Horovod is built for -> its package, as named in facts about images.
FRAMEWORKS = {"torch": "horovod.torch", "tensorflow": "horovod.tensorflow"}
_TENSORFLOWS = ("tensorflow", "tensorflow_cpu", "tensorflow_gpu")

_REQUIREMENT = expression(r"(?P<name>[a-z0-9]+)(?:==(?P<version>[0-9][0-9A-Za-z.]*))?")


class Offer(Struct, frozen=True, kw_only=True):
    """An MPI that is available as a wheel for every Python. `glibc`: the oldest that it runs with."""

    name: str
    facts: MpiFacts
    glibc: str

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.facts.version}"


def _openmpi(version: str, *, pmix: str) -> Offer:
    facts = MpiFacts(
        family=MpiFamily.OPENMPI, version=version, library=f"{PREFIX}/lib/libmpi.so.40",
        launcher=f"{PREFIX}/bin/mpirun", prefix=PREFIX, moved=True, speaks=(Pmi.PMIX,),
        pmix_version=pmix, pmix_bundled=True, slurm=True, origin="the site layer",
    )  # fmt: skip
    return Offer(name="openmpi", facts=facts, glibc="2.28")


#: Best first. Once the layer is made, its files provide these facts again.
OFFERS = (
    _openmpi("5.0.11", pmix="5.0.11"),
    _openmpi("4.1.8", pmix="3.2.5"),
    Offer(
        name="mpich",
        facts=MpiFacts(
            family=MpiFamily.MPICH, version="5.0.2", library=f"{PREFIX}/lib/libmpi.so.12",
            launcher=f"{PREFIX}/bin/mpirun", prefix=PREFIX, speaks=(Pmi.PMI2, Pmi.PMI1),
            origin="the site layer",
        ),
        glibc="2.28",
    ),
)  # fmt: skip


class Wish(Struct, frozen=True, kw_only=True):
    """The request of a job: names of contents -> a version, or None for the one that fits."""

    contents: Mapping[str, str | None]

    @property
    def mpi(self) -> tuple[str, str | None] | None:
        return next(((n, v) for n, v in self.contents.items() if n in ("openmpi", "mpich")), None)

    def packages(self) -> tuple[str, ...]:
        known = {"mpi4py": MPI4PY, "horovod": HOROVOD}
        return tuple(f"{n}=={self.contents[n] or v}" for n, v in known.items() if n in self.contents)


class Contents(Struct, frozen=True, kw_only=True):
    """The contents of a layer: an MPI and packages, each as NAME==VERSION."""

    mpi: str
    packages: tuple[str, ...] = ()

    @property
    def requirements(self) -> tuple[str, ...]:
        return (self.mpi, *self.packages)

    @property
    def horovod(self) -> str | None:
        return next((each for each in self.packages if each.startswith("horovod==")), None)


_CONTENTS = ("openmpi", "mpich", "mpi4py", "horovod")


def read_wish(words: tuple[str, ...], *, called: str = "site_layer") -> Wish:
    """Parse a request. Raises UsageError for what no layer can contain. `called`: the user's name for it."""
    contents: dict[str, str | None] = {}
    for word in words:
        told = _REQUIREMENT.fullmatch(word)
        if told is None or told["name"] not in _CONTENTS:
            raise UsageError(
                f"{called} has {quoted(word)}; it can have {', '.join(_CONTENTS)}, each also as "
                "NAME==VERSION",
                key="site_layer",
                remedy=ranges.setting(called, [nearest(word.partition("=")[0], _CONTENTS) or _CONTENTS[0]]),
            )
        contents[told["name"]] = told["version"]
    if "openmpi" in contents and "mpich" in contents:
        raise UsageError(
            "a site layer holds one MPI, and openmpi and mpich are two", remedy="leave one of them out"
        )
    if "horovod" in contents and contents["horovod"] not in (None, HOROVOD):
        raise UsageError(
            f"Horovod {contents['horovod']} is not supported",
            remedy=f'write "horovod": {HOROVOD} is its last release',
        )
    if "horovod" in contents and "mpich" in contents:
        raise UsageError(
            "Horovod is built with OpenMPI here, and mpich was asked for", remedy='leave "mpich" out'
        )
    return Wish(contents=contents)


def offers(image: Image, wish: Wish | None = None) -> tuple[Offer, ...]:
    """The MPIs that run in the image, best first. An unknown version gets the facts of its release line until
    its files provide them."""
    if image.glibc is None:
        return ()
    found = [each for each in OFFERS if numbers(each.glibc) <= numbers(image.glibc)]
    mpi = wish.mpi if wish is not None else None
    if mpi is None:
        # Horovod is built with OpenMPI's headers.
        only = wish is not None and "horovod" in wish.contents
        return tuple(each for each in found if not only or each.name == "openmpi")
    name, version = mpi
    of_name = [each for each in found if each.name == name]
    if version is None:
        return tuple(of_name)
    for each in of_name:
        if each.facts.version == version:
            return (each,)
    line = [each for each in of_name if numbers(each.facts.version or "")[:1] == numbers(version)[:1]]
    return tuple(
        Offer(name=name, facts=msgspec.structs.replace(each.facts, version=version), glibc=each.glibc)
        for each in line[:1]
    )


def frameworks(image: Image) -> tuple[str, ...]:
    """The image's frameworks for which Horovod can be built."""
    found = ["torch"] if "torch" in image.frameworks else []
    if any(name in image.frameworks or name.replace("_", "-") in image.frameworks for name in _TENSORFLOWS):
        found.append("tensorflow")
    return tuple(found)


def environment(image: Image) -> dict[str, str]:
    """The image's variables with the layer's directories before its own."""
    found = dict(image.environment)
    folders = {"PATH": f"{PREFIX}/bin", "LD_LIBRARY_PATH": f"{PREFIX}/lib"}
    if image.python_version is not None:
        folders["PYTHONPATH"] = packages_folder(image)
    for name, folder in folders.items():
        before = found.get(name, DEFAULT_PATH if name == "PATH" else "")
        found[name] = f"{folder}:{before}" if before else folder
    return found


def packages_folder(image: Image) -> str:
    """Where the layer's Python packages lie, for the image's Python only."""
    return f"{PREFIX}/lib/python{'.'.join((image.python_version or '3').split('.')[:2])}/site-packages"


def expected(image: Image, contents: Contents) -> Image:
    """The image with a layer that is still to be made: for planning only."""
    name, _, version = contents.mpi.partition("==")
    offer = next(each for each in OFFERS if each.name == name and _line(each.facts.version) == _line(version))
    abi = "libmpi.so.40" if name == "openmpi" else "libmpi.so.12"
    users = dict(image.mpi_users)
    added = {each.partition("==")[0]: each.partition("==")[2] for each in contents.packages}
    if "mpi4py" in added:
        users["mpi4py"] = ("libmpi.so.12", "libmpi.so.40")
    if "horovod" in added:
        users |= {FRAMEWORKS[each]: (abi,) for each in frameworks(image)}
    return msgspec.structs.replace(
        image,
        digest="",
        environment=environment(image),
        frameworks=dict(sorted({**image.frameworks, **added}.items())),
        mpis=(msgspec.structs.replace(offer.facts, version=version), *image.mpis),
        mpi_users=users,
        site_layer=SiteLayer(base=image.digest, contents=contents.requirements, made=False),
    )


def horovod_edits(versions: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """What Horovod's source lacks since 2023, as file, old and new text. `versions`: of the frameworks."""
    edits: list[tuple[str, str, str]] = [
        # Run-time requirements would need pip, which may not be installed.
        ("setup.py", "setup_requires=require_list if is_build_action() else []", "setup_requires=[]"),
        # The build path would stay in the library and be searched on every node.
        (
            "setup.py",
            "cmake_args = ['-DCMAKE_BUILD_TYPE=' + config,",
            "cmake_args = ['-DCMAKE_SKIP_RPATH=ON', '-DCMAKE_BUILD_TYPE=' + config,",
        ),
        # Removed in Python 3.12.
        (
            "horovod/torch/CMakeLists.txt",
            "from distutils.sysconfig import get_python_inc; print(get_python_inc())",
            "import sysconfig; print(sysconfig.get_paths()['include'])",
        ),
    ]
    # GCC 14 refuses an assignment to a member that cannot change, also where nothing calls it.
    edits.append((
        "third_party/flatbuffers/include/flatbuffers/stl_emulation.h",
        "  const size_type count_;",
        "  size_type count_;",
    ))  # fmt: skip
    if _minor(versions.get("torch", "0")) >= (2, 1):  # its headers are C++17
        edits += [
            (each, "(CMAKE_CXX_STANDARD 14)", "(CMAKE_CXX_STANDARD 17)")
            for each in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt")
        ]
    tensorflow = max(
        (_minor(v) for name, v in versions.items() if name.startswith("tensorflow")), default=(0,)
    )
    if tensorflow >= (2, 16):  # its XLA symbols are no longer exported
        edits.append((
            "horovod/tensorflow/CMakeLists.txt",
            'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")',
            "",
        ))  # fmt: skip
    return edits


def _minor(version: str) -> tuple[int, ...]:
    return numbers(version)[:2]


def _line(version: str | None) -> tuple[int, ...]:
    return numbers(version or "")[:1]
