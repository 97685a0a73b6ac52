"""Pure: the page of a study of several arms or points: its answer, all points at once, then each pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from bareboat.model import Matrix, Record, Study
from bareboat_base.page import Markup, join, table, tag
from bareboat_study import findings, forest, overview, report, series_plots, verdicts
from bareboat_study.analysis import Analysis
from bareboat_study.drawing import Drawing, label
from bareboat_study.findings import ContrastFinding, PointFinding, StudyFindings
from bareboat_study.measures import Metric
from bareboat_study.numbers import digits, interval_text, percent, unit_of
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
    is_one_point = len(shown.matrix.points) == 1
    has_arms = is_one_point and len(sections) > 1
    parts = (
        _answer(shown, names, has_arms=has_arms),
        tag("h3", "All points") if drawn and not is_one_point else "",
        tag("div", *drawn, class_="masonry") if drawn else "",
        _published(shown.beside) if shown.beside else "",
        _listed(shown, sections, names),
        *report.comparisons(sections, names, metrics=not has_arms),
        _facts_and_data(shown, names, flows=has_arms) if shown.compared else "",
    )
    matrix = shown.matrix
    title = f"{matrix.name}: {' and '.join(matrix.arms[:2])}" if len(matrix.arms) == 2 else matrix.name
    runs = [matrix.id]
    return report.page(title, join(parts), [matrix.bareboat_version], runs)


def _listed(shown: StudyReport, sections: Sequence[Compared], names: Sequence[str]) -> Markup:
    """A row for each comparison, where their figure does not show them."""
    if len(sections) < 2:
        return _all_points(shown)
    return report.all_studies(sections, names) if len(shown.matrix.points) > 1 else Markup("")


def _arms(shown: StudyReport) -> Markup:
    """Every metric of every arm, with its ratio in each comparison of the arm."""
    arms = shown.matrix.arms
    known = shown.compared[0][2]
    rows = []
    for metric in sorted(known.metrics, key=lambda each: not each.primary):
        scale, unit = unit_of(metric)
        cells = [_values(arm, metric, scale, shown.compared) for arm in arms]
        rows.append((report.metric_name(metric, known.pairs), unit, *cells))
    baselines = {study.arms[0].name for study, _, _ in shown.compared}
    to = f"to {label(next(iter(baselines)), 40)}" if len(baselines) == 1 else "in each comparison"
    caption = (
        f"Geometric means over the runs; below, the ratio {to} with its "
        f"{percent(shown.matrix.prove.confidence)} interval. Only the first row is tested."
    )
    head = ("metric", "unit", *(label(arm, 40) for arm in arms))
    return join((tag("h3", "Every arm"), table(caption, head, rows, texts=2)))


def _values(arm: str, metric: Metric, scale: float, compared: Sequence[Compared]) -> Markup:
    """An arm's mean, and its ratios."""
    mean, ratios = None, []
    has_several = len({study.arms[0].name for study, _, _ in compared}) > 1
    for study, _, analysis in compared:
        own = next((each for each in analysis.metrics if each.name == metric.name), None)
        if own is None:
            continue
        baseline, contender = (each.name for each in study.arms)
        if mean is None:
            mean = {baseline: own.baseline_mean, contender: own.contender_mean}.get(arm)
        if arm == contender:
            of = f" of {label(baseline, 24)}" if has_several else ""
            ratios.append(tag("small", f"{interval_text(own)}{of}"))
    return join((_NONE if mean is None else digits(mean / scale), *ratios))


def _facts_and_data(shown: StudyReport, names: Sequence[str], *, flows: bool) -> Markup:
    """The machine, the image and the design of the first point, and the raw values of all. `flows`: printed
    without a new page."""
    study, _, analysis = shown.compared[0]
    whole = msgspec.structs.replace(study, arms=shown.studies[0].arms)
    records = [record for own in shown.records for record in own]
    pairs = [(name, each, found) for name, (each, _, found) in zip(names, shown.compared, strict=True)][
        :MOST_SECTIONS
    ]
    return tag(
        "article",
        report.facts_of(whole, analysis),
        report.raw_data(whole, records, pairs),
        class_="flows" if flows else None,
    )


def _answer(shown: StudyReport, names: Sequence[str], *, has_arms: bool) -> Markup:
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
        _verdicts(shown, names),
        tag("p", left, class_="warning") if left else "",
        _arms(shown) if has_arms else "",
        table("Pooled over the points", head, pooled, texts=2) if pooled else "",
        table("Failed runs, in no number", ("point", "arm", "run", "exit code", "reason"), failed, texts=2)
        if failed
        else "",
        report.metric_texts(*shown.compared[0][::2]) if shown.compared else "",
        report.notes_card(_notes(shown)),
    )


def _notes(shown: StudyReport) -> list[str]:
    """Those of the study and of its comparisons; with the arms where they are not those of all."""
    every = [analysis.notes for _, _, analysis in shown.compared]
    is_small = len(every) <= MOST_SECTIONS and len(shown.matrix.points) == 1
    repeated = {note for notes in every for note in notes} if is_small else set()
    found = dict.fromkeys(note for note in shown.found.notes if note not in repeated)
    for study, _, analysis in shown.compared:
        for note in analysis.notes:
            is_common = all(note in notes for notes in every)
            if is_common or is_small:
                arms = "" if is_common else f"{study.arms[1].name} / {study.arms[0].name}: "
                found.setdefault(arms + note)
    return list(found)


def _verdicts(shown: StudyReport, names: Sequence[str]) -> Markup:
    """The answer of each contrast; at one point, with its verdict in a few words, beside their ratios."""
    found = shown.found
    if len(shown.matrix.points) > 1 or len(names) != len(found.contrasts):
        return join(tag("p", sentence, class_="sentence") for sentence in found.sentences)
    cards = [
        tag(
            "section",
            tag("h4", name),
            tag("p", verdicts.headline(analysis.word, analysis.primary), class_="word"),
            tag("p", sentence, class_="sentence"),
            *(tag("p", warning, class_="warning") for warning in analysis.warnings),
            class_=f"card verdict {report.tone(analysis)}",
        )
        for name, sentence, (_, _, analysis) in zip(names, found.sentences, shown.compared, strict=True)
    ]
    if len(cards) == 1:
        return cards[0]
    analyses = [analysis for _, _, analysis in shown.compared]
    drawing = forest.of_comparisons(list(zip(_short(shown, names), analyses, strict=True)))
    return tag("div", tag("div", *cards, class_="stack"), report.figure(drawing, "all"), class_="grid")


def _short(shown: StudyReport, names: Sequence[str]) -> Sequence[str]:
    """The contenders' names, where all have the same baseline."""
    arms = [tuple(arm.name for arm in study.arms) for study, _, _ in shown.compared]
    return [names[1] for names in arms] if len({baseline for baseline, _ in arms}) == 1 else names


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
