"""Which engine the planner takes, by what they cost this job, and what it says of the others."""

from __future__ import annotations

import itertools
import sys
import types
from typing import Any, ClassVar

import msgspec
import pytest
from builders import make_image, make_job, make_rootfs, make_site

from bareboat import registry
from bareboat.engines import Enclosure, costs
from bareboat.engines.costs import Costs
from bareboat.engines.podman import Podman
from bareboat.model import Decision, EngineFacts, Image, Plan, Refusal, Site, Topology
from bareboat.plan import plan
from bareboat.plan.ranking import Ranking, least
from bareboat_base.errors import PlanError

ONE = Topology()
MEASURED = ("bubblewrap", "charliecloud", "apptainer", "podman", "udocker")


def facts(name: str, **changes: Any) -> EngineFacts:
    settings = {"unshare": "/usr/bin/unshare", "bash": "/bin/bash", "env": "/usr/bin/env"}
    modes = {"udocker": ("P1", "P2"), "apptainer": ("configured",)}.get(name, ())
    return EngineFacts(
        **(
            {
                "name": name, "path": f"/opt/{name}", "version": "1.0", "origin": "on PATH", "works": True,
                "settings": settings, "modes": modes,
            }
            | changes
        )
    )  # fmt: skip


def site_with(*names: str) -> Site:
    return make_site(engines=tuple(facts(name) for name in names))


TRAINING = make_image(frameworks={"torch": "2.13.0+cpu"}, prefixes=())
SHORT = make_image(frameworks={"numpy": "2.1.0"}, prefixes=())


def cost_of(name: str, *, mode: str = "", form: str = "") -> costs.Cost | None:
    base, _, own = name.partition(":")
    return costs.of(registry.engine(base), mode=own or mode, form=form)


def planned(image: Image, site: Site, **changes: Any) -> Plan:
    return plan(make_job(topology=ONE, **changes), image, make_rootfs(image), site)


def engine_of(made: Plan) -> Decision:
    return next(decision for decision in made.decisions if decision.subject == "engine")


def reason_against(made: Plan, name: str) -> str:
    return next(other.reason for other in engine_of(made).rejected if other.choice == name)


@pytest.mark.parametrize("names", list(itertools.permutations(("podman", "charliecloud", "bubblewrap"))))
def test_the_order_of_the_probe_does_not_matter(names: tuple[str, ...]) -> None:
    assert planned(TRAINING, site_with(*names)).engine == "bubblewrap"


@pytest.mark.parametrize("image", [TRAINING, SHORT])
def test_each_engine_is_taken_where_no_cheaper_one_works(image: Image) -> None:
    """In the order of their costs for this job, the first of those that are there."""
    order = Ranking(make_job(), image, site_with(*MEASURED)).sorted(MEASURED)
    assert order[0] == "bubblewrap"
    for number in range(len(order)):
        assert planned(image, site_with(*order[number:])).engine.partition(":")[0] == order[number]


def test_many_file_calls_rule_proot_out_and_few_do_not() -> None:
    """A short job is over before podman has started; a training job would read files for seconds."""
    site = site_with("podman", "udocker")
    assert planned(TRAINING, site).engine == "podman"
    assert planned(SHORT, site).engine == "udocker:P1"
    assert planned(SHORT, site, walltime_s=599).engine == "udocker:P1"
    assert planned(SHORT, site, walltime_s=600).engine == "podman"


def test_what_ruled_an_engine_out_is_said_with_its_cost() -> None:
    made = planned(TRAINING, site_with(*MEASURED))
    cost = cost_of("udocker", mode="P1")
    assert cost is not None
    reason = reason_against(made, "udocker:P1")
    assert reason.startswith(f"file calls cost {cost.file_call:.2g}x: ")
    assert reason.endswith(" ms")
    assert "bubblewrap adds" in reason
    started = planned(SHORT, site_with(*MEASURED))
    podman = cost_of("podman")
    assert podman is not None
    assert reason_against(started, "podman").startswith(f"a start takes {podman.start_ms:.0f} ms: ")


def test_the_choice_says_what_it_costs_and_for_what() -> None:
    assert "for one start and 200,000 file calls" in engine_of(planned(TRAINING, site_with("podman"))).reason
    assert "for one start and 2,000 file calls" in engine_of(planned(SHORT, site_with("podman"))).reason


def test_an_engine_asked_for_is_taken_whatever_it_costs() -> None:
    made = planned(TRAINING, site_with(*MEASURED), engine="udocker")
    assert made.engine == "udocker:P1"
    assert engine_of(made).reason.startswith("asked for; ")


def test_each_mode_is_counted_by_itself() -> None:
    second = cost_of("udocker", mode="P2")
    assert second is not None
    only_p2 = make_site(engines=(facts("podman"), facts("udocker", modes=("P2",))))
    against = reason_against(planned(TRAINING, only_p2), "udocker:P2")
    assert against.startswith(f"file calls cost {second.file_call:.2g}x: ")


class Elsewhere(Podman):
    NAME = "elsewhere"
    COSTS: ClassVar[Costs] = {}

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:  # noqa: ARG002
        return Enclosure("it is there", lambda command, _: command, overlay=False)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> str:
    """An engine of another package, of which nobody knows the cost; it comes first in the registry."""
    known = registry._places("engines")
    monkeypatch.setattr(registry, "_places", lambda _: {"elsewhere": f"{__name__}:Elsewhere", **known})
    monkeypatch.setitem(sys.modules, __name__, types.SimpleNamespace(Elsewhere=Elsewhere))
    return "elsewhere"


def test_an_engine_that_nobody_measured_comes_after_those_that_are(unmeasured: str) -> None:
    names = Ranking(make_job(), SHORT, site_with(*MEASURED)).sorted([unmeasured, "native", *MEASURED])
    assert names[-2:] == [unmeasured, "native"]


def test_of_an_engine_that_nobody_measured_the_plan_says_so(unmeasured: str) -> None:
    ranking = Ranking(make_job(), SHORT, site_with("podman"))
    assert ranking.why_not(unmeasured, "podman") == (
        "what it costs has not been measured; podman comes first"
    )
    assert ranking.why(unmeasured) == ""


def test_every_engine_that_holds_a_container_has_a_cost() -> None:
    for name in registry.BUILT_IN["engines"]:
        engine = registry.engine(name)
        assert not engine.CONTAINS or engine.UNTESTED or cost_of(name) is not None, f"measure {name}"


def test_a_mode_or_form_that_was_not_measured_counts_as_the_usual_one() -> None:
    assert cost_of("apptainer", mode="privileged") == cost_of("apptainer")
    assert cost_of("podman", form="file") == cost_of("podman")
    assert cost_of("udocker:P2") == cost_of("udocker", mode="P2") != cost_of("udocker", mode="P1")
    assert costs.of(registry.engine("native")) is None


def test_costs_are_a_start_and_file_calls() -> None:
    cost = costs.Cost(start_ms=100, file_call=3, imports=1)
    assert cost.added_s(0) == pytest.approx(0.1)
    assert cost.added_s(1_000_000) == pytest.approx(0.1 + 2 * 1_000_000 * costs.FILE_CALL_S)


def test_stacked_layers_cost_what_they_do_and_not_what_the_tree_does() -> None:
    layers, tree = cost_of("bubblewrap", form="layers"), cost_of("bubblewrap")
    assert layers is not None
    assert tree is not None
    assert layers.added_s(200_000) > tree.added_s(200_000)


@pytest.mark.parametrize("image", [TRAINING, SHORT])
@pytest.mark.parametrize("asked", [{}, {"form": "file"}, {"writable": True}], ids=str)
def test_the_engine_that_is_looked_for_first_is_the_cheapest_of_all(
    image: Image, asked: dict[str, Any]
) -> None:
    job = make_job(topology=ONE, **asked)
    names = [
        each
        for name in registry.names("engines")
        for each in registry.modes(name)
        if cost_of(each) is not None and (registry.engine(each).STACKS or not job.writable)
    ]
    first = Ranking(job, image, make_site()).sorted(names)[0].partition(":")[0]
    assert least(job) in (first, None)


def test_a_job_that_asks_for_nothing_special_needs_one_engine() -> None:
    assert least(make_job()) == "bubblewrap"


def test_an_engine_that_nobody_looked_for_is_rejected_by_its_cost() -> None:
    others = tuple(name for name in registry.names("engines") if name not in ("bubblewrap", "native"))
    made = planned(TRAINING, msgspec.structs.replace(site_with("bubblewrap", "native"), unprobed=others))
    assert made.engine == "bubblewrap"
    assert reason_against(made, "podman").startswith("not probed; a start takes 120 ms")
    assert reason_against(made, "enroot").startswith("not probed; untested")
    assert reason_against(made, "native") == "not a container; used only when requested"


def test_engines_that_nobody_looked_for_are_not_taken() -> None:
    with pytest.raises(PlanError):
        planned(TRAINING, msgspec.structs.replace(site_with("native"), unprobed=("bubblewrap", "podman")))
