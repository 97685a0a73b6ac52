"""Pure: a publication's figures beside the measured ones.

    model,batch,ranks,arm,metric,mean,std,min,max,hardware,source

The columns before `arm` are factors of the study. Measured values of an arm and a metric are shown with the
row whose factors are the most similar.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bareboat.model import Matrix, Record
from bareboat.model.matrix import shown
from bareboat_base.errors import UsageError
from bareboat_study import validity
from bareboat_study.numbers import digits
from bareboat_study.report_values import Table, as_csv

if TYPE_CHECKING:
    from _csv import Reader

#: Of the file beside a study file.
NAME = "published.csv"
_LAST = ("arm", "metric", "mean", "std", "min", "max", "hardware", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The published or measured values of one metric of one arm. `std`, `least` and `most` are None where
    a publication does not give them; `runs` is 0 for a publication."""

    mean: float
    std: float | None
    least: float | None
    most: float | None
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row of a published table."""

    factors: dict[str, str]
    arm: str
    metric: str
    figures: Figures
    hardware: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Measured values, and the published row for them, if there is one. `differs`: the factors in which the
    published row is another point, such as "batch 32"."""

    label: str
    arm: str
    metric: str
    unit: str
    measured: Figures
    published: Published | None
    differs: str


def read(text: str, name: str) -> list[Published]:
    """The rows of a published table. Raises UsageError, with the line, for other columns and for values that
    are not numbers. `name`: the file's."""
    rows = csv.reader(io.StringIO(text), strict=True)
    try:
        return list(_rows(rows, name))
    except csv.Error as error:
        raise UsageError(
            f"{name}, line {rows.line_num}: {error}", remedy="write it as CSV, or restore the study's file"
        ) from None


def _rows(rows: Reader, name: str) -> Iterator[Published]:
    columns = next(rows, [])
    missing = [each for each in _LAST if each not in columns]
    if missing or len(set(columns)) < len(columns):
        raise UsageError(
            f"{name} lacks the columns {', '.join(missing)}" if missing else f"{name} has a column twice",
            remedy=f"its first line is: FACTORS,{','.join(_LAST)}",
        )
    for row in rows:
        if len(row) != len(columns):
            raise UsageError(
                f"{name}, line {rows.line_num}: {len(row)} values for {len(columns)} columns",
                remedy="quote values that contain a comma",
            )
        values = dict(zip(columns, row, strict=True))

        def number(column: str, values: Mapping[str, str] = values) -> float | None:
            if not values[column]:
                return None
            try:
                value = float(values[column])
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise UsageError(
                    f"{name}, line {rows.line_num}: {column} is {values[column]!r}, not a number",
                    remedy="write a number, or leave it empty",
                )
            return value

        mean, std, least, most = (number(column) for column in ("mean", "std", "min", "max"))
        if mean is None:
            raise UsageError(f"{name}, line {rows.line_num}: mean is empty", remedy="write a number")
        between = (least is None or least <= mean) and (most is None or mean <= most)
        if not between or (std is not None and std < 0):
            raise UsageError(
                f"{name}, line {rows.line_num}: std is negative, or the mean is not between min and max",
                remedy="correct the line; values that are not known stay empty",
            )
        yield Published(
            factors={key: value for key, value in values.items() if key not in _LAST and value},
            arm=values["arm"],
            metric=values["metric"],
            figures=Figures(mean=mean, std=std, least=least, most=most),
            hardware=values["hardware"],
            source=values["source"],
        )


def check(rows: Sequence[Published], factors: Sequence[str], name: str) -> None:
    """Raise UsageError for two rows that are the same to the study: equal ones, or rows that differ in a
    column that names none of its factors. `name`: the file's."""
    last = [factor.rpartition(".")[2] for factor in factors]
    found: dict[tuple[str, ...], Published] = {}
    for row in rows:
        key = (row.arm, row.metric, *(row.factors.get(factor, "") for factor in last))
        first = found.setdefault(key, row)
        if first is row:
            continue
        where = ", ".join(f"{name} {value}" for name, value in zip(last, key[2:], strict=True) if value)
        columns = [each for each in {**first.factors, **row.factors} if each not in last]
        differing = [each for each in columns if first.factors.get(each) != row.factors.get(each)]
        raise UsageError(
            f"{name} has two rows for {row.metric} of {row.arm}" + (f" at {where}" if where else ""),
            context=f"the column {differing[0]} names no factor of the study" if differing else "",
            remedy=f"the factors of the study: {', '.join(last)}" if differing and last else "remove a row",
        )


def beside(
    matrix: Matrix, records: Sequence[Sequence[Record]], published: Sequence[Published]
) -> list[Beside]:
    """The measured values of each point, arm and number, with their published ones. `records[point]`.
    Failed runs and the warm-up do not count."""
    found = []
    for point, each in enumerate(records):
        values = {name.rpartition(".")[2]: shown(value) for name, value in matrix.values(point).items()}
        for arm in matrix.arms:
            own = [r for r in validity.measured(each) if r.arm == arm]
            for metric in matrix.metrics:
                numbers = [
                    float(record.results[metric.name]) for record in own if metric.name in record.results
                ]
                if metric.is_curve or not numbers:
                    continue
                row, differs = _nearest(published, values, arm, metric.name)
                found.append(
                    Beside(
                        label=matrix.point_text(point),
                        arm=arm,
                        metric=metric.name,
                        unit=metric.unit,
                        measured=_figures(numbers),
                        published=row,
                        differs=differs,
                    )
                )
    return found


def _figures(numbers: Sequence[float]) -> Figures:
    std = statistics.stdev(numbers) if len(numbers) > 1 else None
    mean, least, most = statistics.fmean(numbers), min(numbers), max(numbers)
    return Figures(mean=mean, std=std, least=least, most=most, runs=len(numbers))


def _nearest(
    published: Sequence[Published], values: Mapping[str, str], arm: str, metric: str
) -> tuple[Published | None, str]:
    """The row of this arm and metric whose text factors are equal and whose numbers are nearest; and in what
    it differs."""
    rows = [row for row in published if (row.arm, row.metric) == (arm, metric)]
    for name, value in values.items():
        if not any(name in row.factors for row in rows):
            continue
        # An empty factor fits every value.
        any_value = [row for row in rows if name not in row.factors]
        same = [row for row in rows if row.factors.get(name) == value] or any_value
        if not same and (wanted := _number(value)) is not None:
            known = [
                (abs(at - wanted), row)
                for row in rows
                if (at := _number(row.factors.get(name, ""))) is not None
            ]
            least = min((distance for distance, _ in known), default=0.0)
            same = [row for distance, row in known if distance == least]
        rows = same
    if not rows:
        return None, ""
    row = rows[0]
    other = [f"{key} {value}" for key, value in row.factors.items() if values.get(key) != value]
    return row, ", ".join(other)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# --------------------------------------------------------------------------------------------------
# Presentation.


def tables(found: Sequence[Beside]) -> list[Table]:
    """A table for each metric."""
    made = []
    for metric in dict.fromkeys(each.metric for each in found):
        rows = [each for each in found if each.metric == metric]
        name = f"{metric}, {rows[0].unit}" if rows[0].unit else metric
        head = [name, "arm", "mean ± std", "min", "max", "runs"]
        is_known = any(each.published is not None for each in rows)
        head += ["published", "published at"] if is_known else []
        cells = [_cells(each)[: len(head)] for each in rows]
        made.append(Table(head=head, rows=cells, texts=(0, 1, 7), caption=name))
    return made


def _cells(each: Beside) -> tuple[str, ...]:
    known, own = each.published, each.measured
    return (
        each.label or "the job as it is", each.arm, _text(own),
        *("" if end is None else digits(end) for end in (own.least, own.most)), str(own.runs),
        "" if known is None else _text(known.figures),
        "" if known is None else each.differs or "the same point",
    )  # fmt: skip


def notes(found: Sequence[Beside]) -> list[str]:
    """The source of each published figure, each once."""
    known = [each.published for each in found if each.published is not None]
    of = dict.fromkeys(f"Published: {each.source}; measured there on: {each.hardware}." for each in known)
    return [*of, "Compare ratios and not absolute values: the hardware differs."] if of else []


def table(found: Sequence[Beside]) -> str:
    """All of it as CSV."""
    names = ("mean", "std", "min", "max")
    head = [
        "point", "arm", "metric", "unit", "runs", *(f"measured_{name}" for name in names),
        *(f"published_{name}" for name in names), "published_at", "hardware", "source",
    ]  # fmt: skip
    rows = []
    for each in found:
        row = each.published
        known = [*_values(row.figures), each.differs, row.hardware, row.source] if row else [""] * 7
        own = [each.label, each.arm, each.metric, each.unit, each.measured.runs, *_values(each.measured)]
        rows.append([*own, *known])
    return as_csv([head, *rows])


def _values(figures: Figures) -> list[str]:
    numbers = (figures.mean, figures.std, figures.least, figures.most)
    return ["" if value is None else f"{value:.6g}" for value in numbers]


def _text(figures: Figures) -> str:
    return digits(figures.mean) + ("" if figures.std is None else f" ± {figures.std:.2g}")
