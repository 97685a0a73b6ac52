"""Pure: a study's table and method for a paper: LaTeX (booktabs), BibTeX and Markdown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bareboat.model import Study
from bareboat.study.analysis import Analysis, Metric
from bareboat.study.numbers import digits, interval_text, lowest, percent, unit_of
from bareboat.study.report_values import latex, latex_rows, markdown, markdown_table

#: The key of Bareboat's entry, and of the source of the equivalence test.
TOOL, TOST = "bareboat", "schuirmann1987"
# --------------------------------------------------------------------------------------------------
# LaTeX.


def latex_table(study: Study, analysis: Analysis) -> str:
    """The metrics as a table of the page's width; it requires the package booktabs."""
    c = analysis.primary.comparison
    base, contender = (latex(arm.name) for arm in study.arms)
    caption = (
        f"{latex(study.job.name)}: {contender} against {base}, geometric means over {c.runs} runs. Ratio: "
        f"{contender} over {base}, with its {latex(percent(c.confidence))} interval. The first row is the "
        f"primary metric (margin {latex(_margin(analysis))}); the others are secondary metrics, not "
        "corrected for multiple comparisons."
    )
    first, *others = sorted(analysis.metrics, key=lambda metric: not metric.primary)
    head = ("Metric", "Unit", *(arm.name for arm in study.arms), "Ratio", "Verdict")
    rows = latex_rows(
        "llrrrl", head, [[_cells(analysis, first)], [_cells(analysis, metric) for metric in others]]
    )
    lines = [
        f"% Bareboat {study.bareboat_version}, study {_comment(study.id)}; requires \\usepackage{{booktabs}}",
        r"\begin{table*}",
        r"  \centering",
        f"  \\caption{{{caption}}}",
        f"  \\label{{tab:{re.sub(r'[^A-Za-z0-9-]', '-', study.id)}}}",
        *(f"  {row}" for row in rows),
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _cells(analysis: Analysis, metric: Metric) -> tuple[str, ...]:
    scale, unit = unit_of(metric)
    means = (digits(mean / scale) for mean in (metric.baseline_mean, metric.contender_mean))
    return metric.name, unit, *means, interval_text(metric), analysis.verdict_of(metric).value


def latex_methods(study: Study, analysis: Analysis) -> str:
    """The paragraph on the method; its sources are in `bibtex`."""
    style = _Style(latex, lambda text: f"\\texttt{{{latex(text)}}}", lambda key, _: f"~\\cite{{{key}}}")
    text = " ".join(_methods(study, analysis, style))
    digest = latex(study.image.digest)
    parts = (digest[at : at + 8] for at in range(0, len(digest), 8))
    text = text.replace(digest, r"\allowbreak{}".join(parts))  # a line of a column is shorter
    head = f"% Bareboat {study.bareboat_version}, study {_comment(study.id)}; sources: bareboat.bib"
    return f"{head}\n{text}\n"


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def bibtex(study: Study) -> str:
    """Entries for Bareboat and for the equivalence test."""
    return (
        f"@misc{{{TOOL},\n"
        "  title = {{Bareboat}: run any environment on any cluster, rootless, and measure what the\n"
        "           container costs},\n"
        "  author = {{Bareboat contributors}},\n"
        f"  version = {{{latex(study.bareboat_version)}}},\n"
        f"  year = {{{latex(study.created_at[:4])}}},\n"
        "  note = {Apache License 2.0},\n"
        "}\n\n"
        f"@article{{{TOST},\n"
        "  author = {Schuirmann, Donald J.},\n"
        "  title = {A comparison of the two one-sided tests procedure and the power approach for assessing\n"
        "           the equivalence of average bioavailability},\n"
        "  journal = {Journal of Pharmacokinetics and Biopharmaceutics},\n"
        "  volume = {15},\n"
        "  number = {6},\n"
        "  pages = {657--680},\n"
        "  year = {1987},\n"
        "}\n"
    )


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
        "the others are secondary metrics, not corrected for multiple comparisons.",
        *(
            f"Goal {markdown(goal.name)} ≥ {goal.least:g}, {markdown(goal.arm)}: "
            f"{'reached by every run' if goal.reached else 'NOT reached'} (lowest: {lowest(goal)})."
            for goal in analysis.goals
        ),
        "### Method",
        methods(study, analysis, markdown),
    ]
    return "\n\n".join(parts) + "\n"


# --------------------------------------------------------------------------------------------------
# The method.


class _Style(NamedTuple):
    """How a form of text writes data, a command, and a source by its key or by its words."""

    escape: Callable[[str], str]
    code: Callable[[str], str]
    cite: Callable[[str, str], str]


def methods(study: Study, analysis: Analysis, escape: Callable[[str], str] = str) -> str:
    """The paragraph on the method, with its sources in words."""
    return " ".join(_methods(study, analysis, _Style(escape, escape, lambda _, words: f" ({words})")))


def _margin(analysis: Analysis) -> str:
    return f"±{analysis.primary.comparison.margin * 100:g} %"


def _methods(study: Study, analysis: Analysis, style: _Style) -> Iterator[str]:
    """Sentences."""
    e, code, cite = style
    c, prove = analysis.primary.comparison, study.job.prove
    baseline, contender = (e(arm.name) for arm in study.arms)
    yield (
        f"We compared {contender} with {baseline} for the command {code(shlex.join(study.job.command))}"
        f", with Bareboat {e(study.bareboat_version)}{cite(TOOL, f'study {e(study.id)}')}, on "
        f"{e(study.created_at[:10])}."
    )
    yield from _environment(study, e)
    shape = study.job.topology
    ranks = f"{shape.world_size} process{'es' if shape.world_size > 1 else ''}"
    nodes = f"{shape.nodes} node{'s' if shape.nodes > 1 else ''}"
    warm_up = f"After one warm-up run, which was excluded, we did {c.runs} runs of {ranks} on {nodes} per arm"
    if study.metered:
        settling = f"first {study.settle} were" if study.settle > 1 else "first was"
        excluded = f", of which the {settling} excluded" if study.settle else ""
        yield (
            f"{warm_up}. In each run, both arms were started as new processes and took turns in windows of "
            f"{study.steps_per_window} training steps{excluded}; the order of the arms was drawn for each "
            f"pair of windows (seed {prove.seed})."
        )
        yield (
            f"The value of a run is the 20 {e('%')} trimmed mean of the log ratios of its pairs of windows."
        )
    else:
        yield (
            f"{warm_up}, in adjacent pairs whose order was drawn (seed {prove.seed}); the value of a run is "
            "the log ratio of its pair."
        )
    yield (
        f"Ratios are geometric means over the {c.runs} runs, with {e(percent(c.confidence))} intervals from "
        f"Student's t distribution ({c.runs - 1} degrees of freedom)."
    )
    yield (
        f"The primary metric was the {e(analysis.primary.name)}. Equivalence was tested by two one-sided "
        f"tests{cite(TOST, 'Schuirmann 1987')}, each at a level of {e(percent(1 - c.confidence))}, with a "
        f"margin of {e(_margin(analysis))} that was set before the study."
    )


def _environment(study: Study, e: Callable[[str], str]) -> Iterator[str]:
    site, image = study.site, study.image
    gpus = f", {', '.join(site.gpus)}" if site.gpus else ""
    yield e(
        f"The machine has the processor {site.cpu_model} ({site.cpus} cores in use{gpus}) and "
        f"{site.mem_bytes / 2**30:.4g} GiB of memory, and runs {site.distribution} with Linux {site.kernel} "
        f"({site.architecture}) and glibc {site.glibc}."
    )
    versions = {facts.name: facts.version for facts in site.engines}
    used = []
    for arm in study.arms:
        engine = arm.engine.partition(":")[0]
        if versions.get(engine):
            used.append(f"{arm.engine} {versions[engine]}")
    software = [f"Python {image.python_version}"] if image.python_version else []
    software += [f"{name} {version}" for name, version in sorted(image.frameworks.items())]
    if used:
        yield e(f"Container engine: {', '.join(dict.fromkeys(used))}.")
    yield e(f"Image: {image.digest}{' with ' + ', '.join(software) if software else ''}.")
