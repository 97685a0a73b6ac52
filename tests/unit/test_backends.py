"""Schedulers as classes: the defaults, and the check of those that another package adds."""

import sys
from pathlib import Path

import pytest
from builders import make_job, make_site

from bareboat import backend, registry
from bareboat.engines import Engine
from bareboat.launchers import Launcher, Surroundings, by_mpi
from bareboat.launchers.srun import Srun
from bareboat.model import Refusal, SchedulerFacts
from bareboat.schedulers import Scheduler
from bareboat.schedulers.flux import Flux
from bareboat_base.errors import PlanError

BASES = {"engines": Engine, "launchers": Launcher, "schedulers": Scheduler}


class Misspelt(Flux):
    NAME = "acme"
    SUBMIT_STDIN = True

    def has_array(self) -> bool:
        return True


class Annotated(Flux):
    NAME = "acme"
    UNTESTD: str


class Partial(Scheduler):
    NAME = "acme"
    TITLE = "Acme"

    def cancel(self, job_id: str) -> tuple[str, ...]:
        return ("kill", job_id)


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in BASES for name in registry.BUILT_IN[group]]
)
def test_each_backend_is_complete_and_has_its_name(group: str, name: str) -> None:
    found = getattr(registry, group[:-1])(name)
    assert found is getattr(registry, group[:-1])(name), "there is one instance"
    assert name == found.NAME
    assert backend.faults(type(found), BASES[group]) == ()


@pytest.mark.parametrize(
    ("added", "faults"),
    [
        (Flux, ()),
        (
            Misspelt,
            (
                "SUBMIT_STDIN is unknown; did you mean SUBMITS_STDIN?",
                "has_array is unknown; did you mean has_arrays?",
            ),
        ),
        (Annotated, ("UNTESTD is unknown; did you mean UNTESTED?",)),
        (
            Partial,
            (
                *(f"{name} is missing" for name in ("ARRAY", "JOB_ID", "LIST")),
                *(f"{name} is missing" for name in ("directives", "probe", "queries", "snippet", "submit")),
            ),
        ),
    ],
)
def test_what_a_subclass_lacks_or_misspells(added: type[Scheduler], faults: tuple[str, ...]) -> None:
    assert backend.faults(added, Scheduler) == faults


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("bareboat.schedulers.flux", "is not a subclass of bareboat.schedulers.Scheduler"),
        ("bareboat.schedulers.flux:Flx", "bareboat.schedulers.flux:Flx does not exist; did you mean Flux?"),
        ("bareboat.schedulers:Scheduler", "ARRAY is missing"),
        (
            "bareboat.schedulers.fluks:Flux",
            "ModuleNotFoundError: No module named",
        ),
        ("bareboat.schedulers.flux:Flux", "NAME is 'flux', and its entry point is named 'acme'"),
    ],
)
def test_an_entry_point_names_a_class(monkeypatch: pytest.MonkeyPatch, added: str, message: str) -> None:
    monkeypatch.setattr(registry, "_places", lambda _: {"acme": added})
    with pytest.raises(PlanError, match="scheduler 'acme' of an installed package cannot be used") as error:
        registry.scheduler("acme")
    assert message in f"{error.value.message}\n{error.value.context}"
    assert added in error.value.remedy


def test_plug_ins_are_loaded_before_planning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "acme_plugin.py").write_text(
        "from bareboat.schedulers.flux import Flux\nclass Acme(Flux):\n    NAME = 'acme-flux'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    places = dict(registry.BUILT_IN["schedulers"]) | {"acme-flux": "acme_plugin:Acme"}
    monkeypatch.setattr(
        registry, "_places", lambda group: places if group == "schedulers" else registry.BUILT_IN[group]
    )
    registry.load_plugins()
    (tmp_path / "acme_plugin.py").unlink()
    monkeypatch.delitem(sys.modules, "acme_plugin")
    assert registry.scheduler("acme-flux").TITLE == "Flux"


def test_a_misspelt_mode_of_an_engine_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "acme_modes.py").write_text(
        "from bareboat.engines.native import Native\n"
        "class Mode(Native):\n    NAME = 'acme-box:M1'\n    STACK = True\n"
        "class Box(Native):\n    NAME = 'acme-box'\n    MODES = {'M1': Mode()}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_places", lambda _: {"acme-box": "acme_modes:Box"})
    with pytest.raises(PlanError, match=r"STACK is unknown; did you mean STACKS\?"):
        registry.engine("acme-box")


def test_a_scheduler_with_plugins_of_its_own_is_not_taken_for_slurm() -> None:
    facts = SchedulerFacts(name="flux", version="1", mpi_plugins=("pmix",))
    around = Surroundings(
        site=make_site(), scheduler="flux", engine="native", image=None, python="python3",
        mpi_plugins=facts.mpi_plugins,
    )  # fmt: skip
    found = by_mpi.mpi_site(make_job(), around)
    assert not found.in_slurm
    assert found.plugins == ()
    assert isinstance(Srun().judge(make_job(), around), Refusal)


def test_the_site_s_slurm_is_found_by_what_it_is() -> None:
    slurm, flux = (SchedulerFacts(name=name, version="1") for name in ("slurm", "flux"))
    assert registry.slurm_facts(make_site(schedulers=(flux, slurm))) is slurm
    assert registry.slurm_facts(make_site(schedulers=(flux,))) is None
    gone = SchedulerFacts(name="no-longer-installed", version="1")
    assert registry.slurm_facts(make_site(schedulers=(gone, slurm))) is slurm
    broken = SchedulerFacts(name="slurm", version="1", works=False)
    assert registry.slurm_facts(make_site(schedulers=(broken,))) is None
