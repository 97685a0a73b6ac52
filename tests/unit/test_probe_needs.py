"""Commands that run a job look only for what its plan depends on; `plan` and `doctor` look for everything."""

import os
from pathlib import Path
from typing import Any

import forked
import msgspec
import pytest
from builders import make_image, make_job, make_site

from bareboat import registry
from bareboat.model import Check, EngineFacts, SchedulerFacts, Site
from bareboat.probe import machine, mpis
from bareboat.schedulers import ASSUMED
from bareboat.session import Prepared, Purpose, Session, planning, sites
from bareboat.session.opening import open_session
from bareboat_base.errors import NoEngineError, PlanError
from bareboat_images.store import Store

#: Programs of engines, schedulers and MPIs, each of which takes a while to answer on a real cluster.
PROGRAMS = ("podman", "apptainer", "ch-run", "sbatch", "sinfo", "qsub", "qconf", "mpirun")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose first directory has the programs; each notes that it was started, and fails."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(f'#!/bin/sh\necho "${{0##*/}}" >> {tmp_path}/started\nexit 1\n')
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def started(tmp_path: Path, path: str, *words: str | Path) -> set[str]:
    """Which of the programs the command starts; its exit code does not matter."""
    notes = tmp_path / "started"
    notes.unlink(missing_ok=True)
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    forked.run(*words, env=environment, cwd=tmp_path, timeout_s=120)
    return set(notes.read_text().split()) if notes.exists() else set()


def test_a_run_looks_for_one_engine(tmp_path: Path, path: str, python: Path) -> None:
    assert started(tmp_path, path, "run", "--python", python, "--", "/bin/true") == set()


def test_an_engine_that_is_asked_for_is_looked_for_alone(tmp_path: Path, path: str, python: Path) -> None:
    words = ("run", "--engine", "charliecloud", "--python", python, "--", "/bin/true")
    assert "ch-run" in started(tmp_path, path, *words)
    assert "podman" not in started(tmp_path, path, "run", "--engine", "native", *words[3:])


def test_where_the_first_cannot_run_the_job_all_are_looked_for(
    tmp_path: Path, path: str, python: Path
) -> None:
    found = started(tmp_path, path, "run", "--form", "file", "--python", python, "--", "/bin/true")
    assert {"podman", "apptainer"} <= found


def test_several_ranks_need_the_mpis(tmp_path: Path, path: str, python: Path) -> None:
    words = ("run", "--ranks-per-node", "2", "--python", python, "--", "/bin/true")
    assert started(tmp_path, path, *words) == {"mpirun"}


def test_a_plan_that_is_shown_weighs_everything(tmp_path: Path, path: str, python: Path) -> None:
    found = started(tmp_path, path, "plan", "--python", python, "--", "/bin/true")
    assert {"podman", "apptainer", "sinfo", "qconf", "mpirun"} <= found


def test_a_plan_for_one_engine_looks_for_no_other(tmp_path: Path, path: str, python: Path) -> None:
    found = started(tmp_path, path, "plan", "--engine", "native", "--python", python, "--", "/bin/true")
    assert {"sinfo", "qconf", "mpirun"} <= found
    assert found.isdisjoint({"podman", "apptainer", "ch-run"})


# -- a plan that no probed engine can run: the others are probed, and nothing twice -------------------


@pytest.fixture
def session(tmp_path: Path) -> Session:
    environment = {"BAREBOAT_STORE": str(tmp_path / "store"), "HOME": str(tmp_path)}
    reporter: Any = None  # it shows nothing here
    return open_session({}, folder=tmp_path, environment=environment, reporter=reporter, looks=True)


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is probed; of schedulers, this machine and Grid Engine exist, of engines all work."""
    names: list[str] = []

    def scheduler(name: str, _: object) -> SchedulerFacts | None:
        names.append(name)
        return SchedulerFacts(name=name, version="1") if name in (registry.HERE, "gridengine") else None

    def engine(_: object, __: object, ___: object, name: str, **____: object) -> tuple[EngineFacts, ...]:
        names.append(name)
        return (EngineFacts(name=name, path=f"/{name}", version="1", origin="host", works=True),)

    def launchers(*_: object) -> tuple[()]:
        names.append("launchers")
        return ()

    monkeypatch.setattr(machine, "probe_scheduler", scheduler)
    monkeypatch.setattr(machine, "_engine", engine)
    monkeypatch.setattr(mpis, "launchers", launchers)
    return names


@pytest.mark.parametrize("is_assumed", [False, True])
@pytest.mark.parametrize("kind", [NoEngineError, PlanError])
def test_a_refused_plan_keeps_its_facts_and_probes_only_engines(
    session: Session,
    probed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: type[PlanError],
    *,
    is_assumed: bool,
) -> None:
    job = make_job(command=("true",), engine="native", workdir="/", scheduler="pbs" if is_assumed else None)
    site = sites.probe_for(session, job, Purpose.PLAN)
    before = sorted(probed)
    assert before == sorted(("native", *registry.names("schedulers"), "launchers"))
    job, site = sites.planned_for(session, job, site)
    planned: list[Site] = []

    def plan(_: Session, prepared: Prepared) -> None:
        planned.append(prepared.site)
        raise kind(f"refused {len(planned)}")

    monkeypatch.setattr(planning, "_plan", plan)
    again = kind is NoEngineError
    with pytest.raises(kind, match="refused 2" if again else "refused 1"):
        planning.plan(session, Prepared(job, site, make_image(), None))
    if not again:
        assert sorted(probed) == before
        return
    assert sorted(probed) == sorted((*registry.names("engines"), *registry.names("schedulers"), "launchers"))
    first, second = planned
    assert [facts.name for facts in second.engines] == list(registry.names("engines"))
    assert (second.schedulers, second.network, second.unprobed) == (first.schedulers, first.network, ())
    assert any(ASSUMED in facts.settings for facts in second.schedulers) == is_assumed


def test_facts_of_two_probes_are_merged(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(name: str, *, works: bool, detail: str) -> Check:
        return Check(name=name, works=works, detail=detail)

    first = make_site(
        checks=(check("a", works=False, detail="1"), check("b", works=True, detail="1")),
        engines=make_site().engines[1:], remarks=("x", "y"), unprobed=("bubblewrap",),
    )  # fmt: skip
    rest = msgspec.structs.replace(
        first, engines=make_site().engines[:1], remarks=("y", "z"), hostname="not taken",
        checks=(check("a", works=True, detail="2"), check("b", works=False, detail="2"),
                check("c", works=False, detail="2")),
    )  # fmt: skip

    def probe(_: Store, needs: machine.Needs, **__: object) -> Site:
        assert needs == machine.Needs(engines=("bubblewrap",), schedulers=(), mpis=False, network=False)
        return rest

    monkeypatch.setattr("bareboat.probe.probe", probe)
    merged = sites.probe_rest(session, first)
    assert merged == msgspec.structs.replace(
        make_site(), remarks=("x", "y", "z"),
        checks=(check("a", works=True, detail="2"), check("b", works=True, detail="1"),
                check("c", works=False, detail="2")),
    )  # fmt: skip
