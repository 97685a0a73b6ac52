"""Pure: a study -> one HTML page that opens with no network.

The page starts with the answer in words and numbers, then shows every raw value behind it, the facts about
the machine and the image, and the scripts, so that a reader can check and repeat it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bareboat_base.page import Markup, document, facts, join, table, tag
from bareboat_study import (
    definitions,
    forest,
    overview,
    published,
    report_facts,
    report_tables,
    series_plots,
    verdicts,
)
from bareboat_study.analysis import Analysis, Goal
from bareboat_study.drawing import Drawing, label, plot
from bareboat_study.measures import Metric
from bareboat_study.numbers import digits, interval_text, lowest, p_value, percent, unit_of
from bareboat_study.plots import figures
from bareboat_study.published import Beside
from bareboat_study.statistics import Verdict
from bareboat_study.study_report import Compared, StudyReport

#: More comparisons have no sections of their own: the page would be too long to read.
MOST_SECTIONS = 24
_TONES = {"equivalent": "equivalent", "different": "different", "training diverged": "training-diverged"}


def render(shown: StudyReport) -> str:
    """The page. Pure: equal arguments give equal text.

    Records may come in any order and hold warm-ups: these are listed, but not in figures. Environment
    variables of the job appear only where a script sets them.
    """
    matrix = shown.matrix
    written = f"Written by Bareboat {matrix.bareboat_version}. This page loads nothing from the network."
    body = (
        tag("header", tag("h1", "What was measured")),
        tag("main", _study(shown, "study")),
        tag("footer", written),
    )
    return document(f"{matrix.name}: {', '.join(matrix.arms)}", join(body), runs=[matrix.id])


def all_figures(shown: StudyReport) -> tuple[Drawing, ...]:
    """The figures of all points."""
    return (
        *overview.figures(shown.matrix, shown.found),
        *series_plots.figures(shown.matrix, shown.records),
    )


def _study(shown: StudyReport, prefix: str) -> Markup:
    """The answer, the figures of all points, a section for each comparison, and what is behind them."""
    only = shown.only
    sections = shown.compared if len(shown.compared) <= MOST_SECTIONS and only is None else ()
    drawn = [_figure(each, f"{prefix}-all") for each in all_figures(shown)]
    parts = (
        _answer(shown, prefix),
        tag("h3", "All points") if drawn and not shown.is_one_point else "",
        tag("div", *drawn, class_="masonry") if drawn else "",
        _published(shown.beside) if shown.beside else "",
        _listed(shown, sections),
        *(_section(shown, each, f"{prefix}-{number}") for number, each in enumerate(sections, start=1)),
        report_facts.facts_and_data(shown, shown.compared[:MOST_SECTIONS]),
    )
    return tag("article", *parts, id=prefix)


# --------------------------------------------------------------------------------------------------
# The answer.


def _answer(shown: StudyReport, prefix: str) -> Markup:
    """The verdicts with their metrics, what failed, and the notes."""
    matrix, found, site, only = shown.matrix, shown.found, shown.studies[0].site, shown.only
    machine = f"{site.cpu_model}, {site.cpus} cores{''.join(f', {gpu}' for gpu in site.gpus)}"
    left = f"{found.missing} runs are left: the study is not complete." if found.missing else ""
    nodes = dict.fromkeys(start.node for own in shown.records for each in own for start in each.starts)
    others = shown.studies[0].job.topology.nodes - 1
    hosts = f"{', '.join(nodes) or site.hostname}{f' and {others} more' if others else ''}"
    about = f"{matrix.created_at} on {hosts} ({machine}) · study {matrix.id}"
    return join(
        (
            tag("h2", matrix.name),
            tag("p", about, class_="sub"),
            _heading(only, prefix) if only is not None else _verdicts(shown, prefix),
            *(tag("p", text, class_="warning") for text in (left, *found.caveats) if text),
            join((tag("h3", "Every metric"), _metrics(only))) if only is not None else "",
            report_tables.failures(found).html() if found.failures else "",
            _metric_texts(shown.compared[0]) if shown.compared else "",
            _goals(only.analysis.goals) if only is not None else "",
            _notes_card(_notes(shown)),
            _figures(only, prefix) if only is not None else "",
        )
    )


def _heading(each: Compared, prefix: str) -> Markup:
    drawn = _figure(forest.of_metrics(each.study, each.analysis), prefix)
    return tag("div", _verdict(each), drawn, class_="grid")


def _figures(each: Compared, prefix: str) -> Markup:
    drawn = (_figure(drawing, prefix) for drawing in figures(each.study, each.analysis))
    return join((tag("h3", "Figures"), tag("div", *drawn, class_="masonry")))


def _figure(drawing: Drawing, prefix: str) -> Markup:
    """The figure with its caption; ids start with `prefix`."""
    drawn = Markup(plot(drawing, f"{prefix}-{drawing.name}"))
    caption = f"{prefix}-{drawing.name}-caption"
    # Accessible drawing: `role=img` with a title, and the caption explains it.
    return tag(
        "figure", tag("h4", drawing.title), drawn, tag("figcaption", drawing.caption, id=caption),
        aria_describedby=caption,
    )  # fmt: skip


def _verdicts(shown: StudyReport, prefix: str) -> Markup:
    """The answer of each contrast; at one point, with its verdict in a few words, beside their ratios."""
    found = shown.found
    if not shown.is_one_point or len(shown.compared) != len(found.contrasts):
        return join(_sentence(each) for each in found.sentences)
    cards = [_verdict(each, is_short=True) for each in shown.compared]
    arms = [tuple(arm.name for arm in each.study.arms) for each in shown.compared]
    # The contenders' names, where all have the same baseline.
    has_one = len({baseline for baseline, _ in arms}) == 1
    names = [names[1] if has_one else each.name for each, names in zip(shown.compared, arms, strict=True)]
    analyses = [each.analysis for each in shown.compared]
    drawing = forest.of_comparisons(list(zip(names, analyses, strict=True)))
    return tag("div", tag("div", *cards, class_="stack"), _figure(drawing, f"{prefix}-all"), class_="grid")


def _verdict(each: Compared, *, is_short: bool = False) -> Markup:
    """The verdict in a few words and in a sentence; with its numbers, unless it is short."""
    analysis, metric, c = each.analysis, each.analysis.primary, each.analysis.comparison
    ratio = tag(
        "p",
        interval_text(metric, analysis),
        tag("small", f"{metric.name}, ratio with its {percent(c.confidence)} interval"),
        class_="big",
    )
    tiles = (tag("div", tag("dt", name), tag("dd", value)) for name, value in _tiles(analysis))
    return tag(
        "section",
        tag("h4", each.name) if is_short else "",
        tag("p", analysis.qualified(verdicts.headline(analysis.verdict.value, metric)), class_="word"),
        "" if is_short else ratio,
        _sentence(each.sentence),
        *(_sentence(warning, kind="warning") for warning in analysis.warnings),
        "" if is_short else tag("dl", *tiles, class_="tiles"),
        class_=f"card verdict {_tone(analysis)}",
    )


def _sentence(text: str, kind: str = "sentence") -> Markup:
    """A paragraph in which a number stays with its unit."""
    return tag("p", text.replace(" %", "\u00a0%"), class_=kind)


def _tiles(analysis: Analysis) -> Iterable[tuple[str, str]]:
    c = analysis.comparison
    yield "margin", f"±{c.margin * 100:g} %"
    yield "runs, each a pair", str(c.runs)
    yield "equivalence p (TOST)", p_value(c.equivalence_p)
    yield "difference p", p_value(c.difference_p)
    if (corrected := analysis.corrected) is not None:
        yield "equivalence p, corrected", p_value(corrected.equivalence_p)
        yield "difference p, corrected", p_value(corrected.difference_p)
    if c.enough_runs is not None and analysis.verdict is Verdict.UNDECIDED:
        yield "runs for 80 % power", f"{c.enough_runs}, if the arms do not differ"


def _tone(analysis: Analysis) -> str:
    """The class of the verdict's colour; a difference for the better has its own."""
    found = _TONES.get(analysis.verdict.value, "undecided")
    is_better = (analysis.comparison.ratio > 1) == analysis.primary.higher_is_better
    return "better" if found == "different" and is_better else found


def _metrics(each: Compared) -> Markup:
    analysis = each.analysis
    base, contender = (label(arm.name, 40) for arm in each.study.arms)
    head = ("metric", "verdict", "unit", base, contender, "ratio [interval]")
    caption = (
        f"Geometric means over the runs. Ratio: {contender} over {base}, with "
        f"{percent(analysis.comparison.confidence)} interval. "
        "Only the first row is tested. The others are secondary metrics: estimates with intervals, and no "
        "verdicts."
    )
    return table(caption, head, [_metric_row(analysis, metric) for metric in analysis.metrics], texts=3)


def _metric_row(analysis: Analysis, metric: Metric) -> tuple[str, ...]:
    scale, unit = unit_of(metric)
    kind = "primary metric" if metric.primary else "secondary metric"
    word = analysis.word_of(metric)
    sense = "higher is better" if metric.higher_is_better else "lower is better"
    return (
        join((definitions.title(metric, analysis.pairs), tag("small", sense))),
        join((tag("b", word, class_="first") if metric.primary else word, tag("small", kind))),
        unit,
        *(digits(mean / scale) for mean in (metric.baseline_mean, metric.contender_mean)),
        interval_text(metric, analysis),
    )


def _metric_texts(each: Compared) -> Markup:
    """What each metric is."""
    analysis = each.analysis
    texts = [
        (
            definitions.title(metric, analysis.pairs),
            definitions.text(metric, analysis.pairs, each.study.metrics),
        )
        for metric in analysis.metrics
    ]
    return tag("div", facts("What each metric is", texts), class_="definitions")


def _goals(goals: Sequence[Goal]) -> Markup:
    if not goals:
        return Markup("")
    rows = [
        (
            goal.name,
            goal.arm,
            tag("b", "reached by every run" if goal.reached else "NOT reached"),
            f"≥ {goal.least:g}",
            lowest(goal),
        )
        for goal in goals
    ]
    head = ("goal", "arm", "outcome", "required", "lowest run")
    caption = "Results that every measured run had to reach"
    return join((tag("h3", "Training goals"), table(caption, head, rows, texts=3)))


def _notes_card(notes: Sequence[str]) -> Markup:
    """A card with a list of notes; nothing without any."""
    if not notes:
        return Markup("")
    items = tag("ul", *(tag("li", note) for note in notes), class_="notes")
    return join((tag("h3", "Notes"), tag("div", items, class_="card")))


def _notes(shown: StudyReport) -> list[str]:
    """Those of the study and of its comparisons; with the arms where they are not those of all."""
    if shown.only is not None:
        return list(shown.only.analysis.notes)
    every = [each.analysis.notes for each in shown.compared]
    is_small = len(every) <= MOST_SECTIONS and shown.is_one_point
    repeated = {note for notes in every for note in notes} if is_small else set()
    found = dict.fromkeys(note for note in shown.found.notes if note not in repeated)
    for each in shown.compared:
        for note in each.analysis.notes:
            is_common = all(note in notes for notes in every)
            if is_common or is_small:
                arms = "" if is_common else f"{each.arms}: "
                found.setdefault(arms + note)
    return list(found)


# --------------------------------------------------------------------------------------------------
# Several points.


def _listed(shown: StudyReport, sections: Sequence[Compared]) -> Markup:
    """A row for each comparison, where their figure does not show them."""
    if len(shown.compared) < 2 or (sections and shown.is_one_point):
        return Markup("")
    caption = f"{shown.found.metric} at every point, with {percent(shown.matrix.prove.confidence)} intervals."
    if not sections:
        caption += f" More than {MOST_SECTIONS} comparisons have no sections of their own."
    listed = report_tables.points(shown.found, shown.found.contrasts, caption).html()
    return tag("section", tag("h2", "All comparisons"), listed, class_="part")


def _section(shown: StudyReport, each: Compared, prefix: str) -> Markup:
    """A comparison: its verdict, its metrics and its figures."""
    metrics = (tag("h3", "Every metric"), _metrics(each))
    parts = (_heading(each, prefix), *metrics, _goals(each.analysis.goals), _figures(each, prefix))
    class_ = "part" if shown.is_one_point else "part point"
    return tag("section", tag("h2", each.name), *parts, id=prefix, class_=class_)


def _published(beside: Sequence[Beside]) -> Markup:
    """The measured values with the published ones, a table for each metric, and their sources."""
    notes = published.notes(beside)
    heading = tag("h3", "Measured beside published" if notes else "Measured values")
    return join((heading, *(each.html() for each in published.tables(beside)), _notes_card(notes)))
