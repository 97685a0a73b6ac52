"""The scenarios: each fault of a study's data alone, and several together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from generated_studies.process import Effects, Machine, Order, Process
from generated_studies.records import MARGIN

AT_MARGIN = 1 / (1 + MARGIN)
TWICE_MARGIN = 1 / (1 + MARGIN) ** 2


class Kind(StrEnum):
    """What is judged: one study; the same after each of its runs, until there is a verdict; the pooled ratio
    of several studies; or the change from one study to the next."""

    STUDY = "study"
    LOOKS = "looks"
    POOLED = "pooled"
    CHANGE = "change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`studies`: how many of them one verdict is made of."""

    name: str
    process: Process = field(default_factory=Process)
    kind: Kind = Kind.STUDY
    studies: int = 1


AUTOCORRELATED = Machine(speed_deviation=0.03)
DRIFTING = Machine(drift=0.15)
CHANGING = Machine(speed_changes=8)
STOLEN = Machine(steal_share=0.03)
BUSY = Machine(wait=0.3)
HARD = Machine(
    speed_deviation=0.03, drift=0.05, speed_changes=8, steal_share=0.03, wait=0.05, process_deviation=0.005
)
#: Costs the arm that starts second a third of its import and 5 % of its first 5 windows.
SECOND = Order(import_factor=1.33, blocks=5, factor=1.05)


def _process(machine: Machine | None = None, order: Order | None = None, **effects: float) -> Process:
    return Process(machine=machine or Machine(), order=order or Order(), effects=Effects(**effects))


def _added(share: float, machine: Machine) -> float:
    """The time that a step takes longer by, a share of the baseline's, in units of its processor time."""
    return share * (1 + machine.wait)


def _scenarios() -> Iterator[Scenario]:
    yield Scenario(name="null")
    for name, ratio in (
        ("1 % slower", 0.99),
        ("at the margin", AT_MARGIN),
        ("at the margin, faster", 1 + MARGIN),
        ("twice the margin", TWICE_MARGIN),
        ("10 % slower", 0.9),
    ):
        yield Scenario(name=name, process=_process(ratio=ratio))
    for share in (0.01, 0.02, 0.05, 0.10, 0.20):
        for factor in (1.3, 2.0, 3.0):
            yield Scenario(
                name=f"stalls: {share * 100:g} % of the windows x {factor:g}",
                process=_process(stall_share=share, stall_factor=1 + _added(factor - 1, Machine())),
            )
    yield Scenario(
        name="stalls: 5 % of the windows x 2, all in a quarter of the runs",
        process=_process(stall_share=0.05, stall_factor=1 + _added(1.0, Machine()), stall_runs=0.25),
    )
    for factor, text in ((1.16, "at the margin"), (1.33, "twice the margin"), (2.0, "11 %"), (5.0, "33 %")):
        yield Scenario(name=f"settling steps x {factor:g} ({text})", process=_process(settle_factor=factor))
    yield Scenario(name="waits of both arms, null", process=_process(BUSY))
    yield Scenario(name="waits of both arms, at the margin", process=_process(BUSY, ratio=AT_MARGIN))
    for cost, text in ((MARGIN, "at the margin"), (0.037, "3.6 %"), (0.079, "7.3 %")):
        yield Scenario(
            name=f"waits of the contender ({text})", process=_process(wait=_added(cost, Machine()))
        )
    yield Scenario(
        name="waits of both arms, and of the contender (7.3 %)",
        process=_process(BUSY, wait=_added(0.079, BUSY)),
    )
    yield Scenario(name="order: second arm slower at first", process=_process(order=SECOND))
    yield Scenario(
        name="order: the same, contender first in 9 of 12 runs",
        process=_process(order=replace(SECOND, contender_first=0.75)),
    )
    yield Scenario(
        name="order: the same, balanced", process=_process(order=replace(SECOND, contender_first=0.5))
    )
    for deviation in (0.003, 0.005, 0.01):
        yield Scenario(name=f"copy {deviation * 100:g} %, null", process=_process(copy_deviation=deviation))
        yield Scenario(
            name=f"copy {deviation * 100:g} %, at the margin",
            process=_process(copy_deviation=deviation, ratio=AT_MARGIN),
        )
    for name, machine in (
        ("autocorrelation", AUTOCORRELATED),
        ("drift of 15 %", DRIFTING),
        ("changes of speed by 10 to 20 %", CHANGING),
        ("steal with a heavy tail", STOLEN),
        ("all faults of the machine", HARD),
    ):
        yield Scenario(name=f"{name}, null", process=_process(machine))
        yield Scenario(name=f"{name}, at the margin", process=_process(machine, ratio=AT_MARGIN))
    yield Scenario(name="looks after each run, null", kind=Kind.LOOKS)
    yield Scenario(
        name="looks after each run, at the margin", process=_process(ratio=AT_MARGIN), kind=Kind.LOOKS
    )
    for number in (2, 3, 4):
        for deviation in (0.003, 0.01):
            yield Scenario(
                name=f"{number} pooled studies, copy {deviation * 100:g} %, at the margin",
                process=_process(copy_deviation=deviation, ratio=AT_MARGIN),
                kind=Kind.POOLED,
                studies=number,
            )
    yield Scenario(
        name="4 pooled studies, copy 0.5 %, null",
        process=_process(copy_deviation=0.005),
        kind=Kind.POOLED,
        studies=4,
    )
    for deviation in (0.0, 0.003, 0.005, 0.01):
        yield Scenario(
            name=f"second study against the first, copy {deviation * 100:g} %",
            process=_process(copy_deviation=deviation),
            kind=Kind.CHANGE,
            studies=2,
        )
    together = _process(HARD, SECOND, copy_deviation=0.005)
    for name, effects in (
        ("null", {}),
        ("at the margin", {"ratio": AT_MARGIN}),
        (
            "stalls: 2 % of the windows x 2 (at the margin)",
            {"stall_share": 0.02, "stall_factor": 1 + _added(1.0, HARD)},
        ),
        ("stalls: 5 % of the windows x 2", {"stall_share": 0.05, "stall_factor": 1 + _added(1.0, HARD)}),
        ("settling steps x 1.33", {"settle_factor": 1.33}),
        ("waits of the contender (7.3 %)", {"wait": _added(0.079, HARD)}),
    ):
        yield Scenario(
            name=f"all together, {name}",
            process=replace(together, effects=replace(together.effects, **effects)),
        )
    yield Scenario(name="all together, looks after each run, null", process=together, kind=Kind.LOOKS)


SCENARIOS: tuple[Scenario, ...] = tuple(_scenarios())
