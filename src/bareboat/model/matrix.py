"""Pure: a study of several arms at several points, and its design."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from bareboat.model.job_tables import ProveRequest
from bareboat.model.metric import MetricRequest
from bareboat.model.site import Site
from bareboat_images.model import Image

#: A value of a factor, as the study file has it.
Value = str | int | float | bool


class Contrast(Struct, frozen=True, kw_only=True):
    """A comparison of two arms, by their numbers. `effect`: what it measures, such as "container"; empty:
    the difference between the arms."""

    baseline: int
    contender: int
    effect: str = ""


class Matrix(Struct, frozen=True, kw_only=True):
    """The design of a study, fixed before the first run. One container against bare metal is a study of two
    arms at one point.

    The first of `arms` is the baseline. `points` holds the values of the `factors` at each point; without
    factors there is one point without values. Each point is a `Study`, below this one. `repeats`: the number
    of measured runs at each point; None until the warm-up shows how many fit into the time. `decided_after`:
    the number of runs after which a study ended that was to end when decided. `seed`: as in a `Study`.
    `request`: a digest of the job or of the study file, to find the study again. `keys`: what each arm sets
    itself. `template`: what has placeholders, as the study file has it.
    """

    schema: int = 1
    id: str
    created_at: str
    name: str
    request: str
    arms: tuple[str, ...]
    factors: tuple[str, ...]
    points: tuple[tuple[Value, ...], ...]
    metrics: tuple[MetricRequest, ...]
    contrasts: tuple[Contrast, ...]
    prove: ProveRequest
    repeats: int | None
    images: tuple[Image, ...]
    site: Site
    bareboat_version: str
    keys: tuple[dict[str, Any], ...]
    template: dict[str, Any] = {}
    seed: int | UnsetType = UNSET
    decided_after: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        if len(self.arms) < 2 or len({*self.arms}) < len(self.arms):
            raise ValueError("a study has two or more arms of different names")

    @property
    def planned_runs(self) -> int:
        """The number of measured runs at each point, as far as it is known."""
        return (self.repeats or 0) if self.decided_after is UNSET else self.decided_after

    @property
    def order_seed(self) -> int:
        """Studies of earlier versions have none of their own: 1 was the default."""
        if self.seed is not UNSET:
            return self.seed
        return 1 if self.prove.seed is None else self.prove.seed

    def values(self, point: int) -> dict[str, Value]:
        return dict(zip(self.factors, self.points[point], strict=True))

    def point_text(self, point: int) -> str:
        """A point's values, for display."""
        return point_text(self.factors, self.points[point])

    def point_id(self, point: int) -> str:
        """The name of a point's own study."""
        return f"{self.id}.{point}"


def point_text(factors: tuple[str, ...], point: tuple[Value, ...]) -> str:
    """A point's values, for display; the last part of a key's name is enough."""
    short = [name.rpartition(".")[2] for name in factors]
    names = [name if short.count(last) > 1 else last for name, last in zip(factors, short, strict=True)]
    return " ".join(f"{name}={shown(value)}" for name, value in zip(names, point, strict=True))


def shown(value: Value) -> str:
    """A value as text, in the form for commands."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
