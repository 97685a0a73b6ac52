"""Pure: the page of a study of several arms or points: its answer, all points at once, then each pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bareboat.model import Matrix, Record, Study
from bareboat_base.page import Markup, join, table, tag
from bareboat_study import findings, overview, report, series_plots
from bareboat_study.analysis import Analysis
from bareboat_study.drawing import Drawing, label
from bareboat_study.findings import ContrastFinding, PointFinding, StudyFindings
from bareboat_study.numbers import digits, percent
from bareboat_study.published import Beside, Figures
from bareboat_study.report import Compared

#: More comparisons have no sections of their own: the page would be too long to read.
MOST_SECTIONS = 24
_NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyReport:
    """What a report shows. `studies[point]`, `records[point]`; `compared`: the comparisons that have a
    verdict; `beside`: the measured values with the published ones, empty for a study without a published
    table."""

    matrix: Matrix
    studies: Sequence[Study]
    found: StudyFindings
    records: Sequence[Sequence[Record]]
    compared: Sequence[Compared]
    beside: Sequence[Beside] = ()

    @property
    def figures(self) -> tuple[Drawing, ...]:
        """The figures of all points."""
        return (
            *overview.figures(self.matrix, self.found),
            *series_plots.figures(self.matrix, self.records),
        )


def compared(
    matrix: Matrix, studies: Sequence[Study], found: StudyFindings, records: Sequence[Sequence[Record]]
) -> list[Compared]:
    """The comparisons that have a verdict, each as a study of two arms. `studies`, `records`: of each
    point."""
    return [
        (
            *findings.pair_of(matrix, contrast.contrast, studies[each.point], records[each.point]),
            analysis,
        )
        for contrast, each, analysis in _decided(found)
    ]


def _names(found: StudyFindings) -> list[str]:
    """The heading of each of these comparisons: its effect, or its arms, and its point."""
    made = []
    for contrast, each, _ in _decided(found):
        what = contrast.contrast.effect or f"{contrast.contender} / {contrast.baseline}"
        made.append(f"{what}, {each.label}" if each.label else what)
    return made


def _decided(found: StudyFindings) -> Iterator[tuple[ContrastFinding, PointFinding, Analysis]]:
    for contrast in found.contrasts:
        for each in contrast.points:
            if each.analysis is not None:
                yield contrast, each, each.analysis


def render(shown: StudyReport) -> str:
    """The page. Equal arguments give equal text."""
    sections = shown.compared if len(shown.compared) <= MOST_SECTIONS else ()
    names = _names(shown.found)
    drawn = [report.figure(each, "all") for each in shown.figures]
    parts = (
        _answer(shown),
        tag("h3", "All points") if drawn else "",
        tag("div", *drawn, class_="masonry") if drawn else "",
        _published(shown.beside) if shown.beside else "",
        report.all_studies(sections, names) if len(sections) > 1 else _all_points(shown),
        *report.articles(sections, names if len(sections) > 1 else ()),
    )
    matrix = shown.matrix
    title = f"{matrix.name}: {' and '.join(matrix.arms[:2])}" if len(matrix.arms) == 2 else matrix.name
    runs = [matrix.id]
    return report.page(title, join(parts), [matrix.bareboat_version], runs)


def _answer(shown: StudyReport) -> Markup:
    """The sentences, what was pooled, and what failed."""
    found = shown.found
    pooled = [
        (
            f"{each.contender} / {each.baseline}",
            tag("b", each.pooled.verdict or _NONE),
            f"{each.pooled.ratio:.4f} [{each.pooled.low:.4f}, {each.pooled.high:.4f}]",
            f"[{each.pooled.next_low:.4f}, {each.pooled.next_high:.4f}]",
            str(each.pooled.points),
            f"{each.pooled.tau:.2%}",
            f"{each.pooled.i2:.0%}",
        )
        for each in found.contrasts
        if each.pooled is not None
    ]
    failed = [
        (each.label or _NONE, label(each.arm, 40), str(each.run), str(each.exit_code), each.reason)
        for each in found.failures
    ]
    left = f"{found.missing} runs are left: the study is not complete." if found.missing else ""
    head = ("arms", "verdict", "ratio [interval]", "prediction", "points", "tau", "I²")
    site = shown.matrix.site
    machine = f"{site.cpu_model}, {site.cpus} cores{''.join(f', {gpu}' for gpu in site.gpus)}"
    return tag(
        "article",
        tag("h2", found.study),
        tag("p", f"{shown.matrix.created_at} on {site.hostname} ({machine})", class_="sub"),
        *(tag("p", sentence, class_="sentence") for sentence in found.sentences),
        tag("p", left, class_="warning") if left else "",
        table("Pooled over the points", head, pooled, texts=2) if pooled else "",
        table("Failed runs, in no number", ("point", "arm", "run", "exit code", "reason"), failed, texts=2)
        if failed
        else "",
        report.notes_card(found.notes),
    )


def _all_points(shown: StudyReport) -> Markup:
    """A row for each comparison, for a study without sections."""
    if len(shown.compared) < 2:
        return Markup("")
    rows = [
        (
            each.label,
            tag("b", str(each.verdict)),
            f"{contrast.contender} / {contrast.baseline}",
            digits(c.baseline_mean),
            digits(c.contender_mean),
            f"{c.comparison.ratio:.4f} [{c.comparison.low:.4f}, {c.comparison.high:.4f}]",
            str(c.comparison.runs),
        )
        for contrast in shown.found.contrasts
        for each in contrast.points
        if each.analysis is not None
        for c in (each.analysis.primary,)
    ]
    head = ("point", "verdict", "arms", "first arm", "second arm", "ratio [interval]", "runs")
    caption = (
        f"{shown.found.metric} at every point, with {percent(shown.matrix.prove.confidence)} intervals. "
        f"More than {MOST_SECTIONS} comparisons have no sections of their own."
    )
    return tag("article", tag("h3", "Every comparison"), table(caption, head, rows, texts=3))


def _published(beside: Sequence[Beside]) -> Markup:
    """The measured values with the published ones, a table for each metric, and their sources."""
    tables = []
    for metric in dict.fromkeys(each.metric for each in beside):
        rows = [each for each in beside if each.metric == metric]
        unit = f", {rows[0].unit}" if rows[0].unit else ""
        known = any(each.published is not None for each in rows)
        head = ["point", "arm", "mean", "std", "min", "max", "runs"]
        head += ["published mean", "published std", "published at"] if known else []
        cells = [
            (
                each.label or _NONE,
                label(each.arm, 40),
                *_cells(each.measured),
                str(each.measured.runs),
                *(_published_cells(each) if known else ()),
            )
            for each in rows
        ]
        tables.append(table(f"{metric}{unit}", head, cells, texts=2))
    sources = dict.fromkeys(
        (each.published.hardware, each.published.source) for each in beside if each.published is not None
    )
    notes = [f"Published: {source}; measured there on: {hardware}." for hardware, source in sources]
    if notes:
        notes.append("Compare ratios and not absolute values: the hardware differs.")
    return tag(
        "article",
        tag("h3", "Measured beside published" if sources else "Measured values"),
        *tables,
        report.notes_card(notes),
    )


def _cells(figures: Figures) -> tuple[str, ...]:
    values = (figures.mean, figures.std, figures.least, figures.most)
    return tuple(_NONE if value is None else digits(value) for value in values)


def _published_cells(each: Beside) -> tuple[str, ...]:
    if each.published is None:
        return (_NONE, _NONE, _NONE)
    return (*_cells(each.published.figures)[:2], each.differs or "the same point")
