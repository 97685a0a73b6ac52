"""Pure: a study's table for a paper in LaTeX (booktabs), and its report in Markdown."""

from __future__ import annotations

from bareboat.model import Study
from bareboat_study import method, report_values
from bareboat_study.analysis import Analysis
from bareboat_study.measures import Metric
from bareboat_study.numbers import digits, interval_text, lowest, percent, unit_of
from bareboat_study.report_values import latex, markdown, markdown_table

# --------------------------------------------------------------------------------------------------
# LaTeX.


def latex_table(study: Study, analysis: Analysis) -> str:
    """The metrics as a table of the page's width; it requires the package booktabs."""
    c = analysis.comparison
    base, contender = (latex(arm.name) for arm in study.arms)
    caption = (
        f"{latex(study.job.name)}: {contender} against {base}, geometric means over {c.runs} runs. Ratio: "
        f"{contender} over {base}, with its {latex(percent(c.confidence))} interval. The first row is the "
        f"primary metric (margin {latex(_margin(analysis))}); the others are secondary metrics, "
        "which are not tested."
    )
    first, *others = sorted(analysis.metrics, key=lambda metric: not metric.primary)
    head = ("Metric", "Unit", *(arm.name for arm in study.arms), "Ratio", "Verdict")
    return report_values.latex_table(
        "llrrrl",
        head,
        [[_cells(analysis, first)], [_cells(analysis, metric) for metric in others]],
        caption=caption,
        study=study.id,
        version=study.bareboat_version,
    )


def _cells(analysis: Analysis, metric: Metric) -> tuple[str, ...]:
    scale, unit = unit_of(metric)
    means = (digits(mean / scale) for mean in (metric.baseline_mean, metric.contender_mean))
    return metric.name, unit, *means, interval_text(metric), analysis.word_of(metric)


# --------------------------------------------------------------------------------------------------
# Markdown.


def markdown_report(study: Study, analysis: Analysis) -> str:
    """The verdict, the table, the goals and the method."""
    baseline, contender = (markdown(arm.name) for arm in study.arms)
    head = ("metric", "unit", baseline, contender, "ratio [interval]", "verdict")
    metrics = sorted(analysis.metrics, key=lambda metric: not metric.primary)
    rows = [tuple(map(markdown, _cells(analysis, metric))) for metric in metrics]
    parts = [
        f"## {markdown(study.job.name)}: {markdown(analysis.word)}",
        markdown(analysis.text),
        markdown_table(head, rows, texts=(0, 1, 5)),
        "The values of the arms are geometric means over the runs. The first metric is the primary metric; "
        "the others are secondary metrics, which are not tested.",
        *(
            f"Goal {markdown(goal.name)} ≥ {goal.least:g}, {markdown(goal.arm)}: "
            f"{'reached by every run' if goal.reached else 'NOT reached'} (lowest: {lowest(goal)})."
            for goal in analysis.goals
        ),
        "### Method",
        method.of_pair(study, analysis, markdown),
    ]
    return "\n\n".join(parts) + "\n"


def _margin(analysis: Analysis) -> str:
    return f"±{analysis.comparison.margin * 100:g} %"
