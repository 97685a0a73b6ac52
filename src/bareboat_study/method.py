"""Pure: the paragraph on a study's method, for a paper."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bareboat import registry
from bareboat.model import Matrix, Study
from bareboat.model.matrix import shown
from bareboat_base.printable import counted
from bareboat_study import arm_differences, layouts, validity
from bareboat_study.analysis import Analysis
from bareboat_study.numbers import percent

if TYPE_CHECKING:
    from bareboat_study.study_report import StudyReport


def text(report: StudyReport) -> str:
    """The method, with its sources in words."""
    return " ".join(_sentences(report))


def _sentences(report: StudyReport) -> Iterator[str]:
    matrix, points, found = report.matrix, report.studies, report.found
    prove, first, several = matrix.prove, points[0], not report.is_one_point
    analyses = [each.analysis for each in report.compared]
    pairs = _listed([f"{each.contender} with {each.baseline}" for each in found.contrasts])
    command = shlex.join(first.job.command)
    programs = {os.path.basename(each.job.command[0]) for each in points}
    what = f" for the command {command}"
    if several:
        what = f"{_factors(matrix)}, for the program {_listed(sorted(programs))}"
    tool = f"Bareboat {matrix.bareboat_version} (study {matrix.id})"
    yield f"We compared {pairs}{what}, with {tool}, on {matrix.created_at[:10]}."
    yield from _environment(points, matrix)
    shapes = {_processes(each) for each in points}
    of = f" of {shapes.pop()}" if len(shapes) == 1 else ""
    warm_up = "one warm-up run" + " of each job" * _is_queued(first)
    runs = f"{_runs(report)}{of} per arm{' and point' * several}"
    yield f"After {warm_up}, which was excluded, we did {runs}."
    yield from _failed(report)
    if report.only is not None and not report.only.analysis.is_complete:
        yield "The study is incomplete, so it has no verdict yet."
    if several:
        yield (
            "Each point was measured in jobs of its own."
            if _is_queued(first)
            else "The runs were made in blocks, each with one run of every point, in an order that was drawn "
            "for the block."
        )
    yield from _order(first)
    if not analyses:
        return
    if load := max(each.load for each in analyses):
        yield f"Other work kept the machine busy in measured runs (load {load:.1f}, {first.site.cpus} cores)."
    yield from _layouts(report)
    yield _intervals(report, analyses)
    yield _test(found.metric, prove.margin, _confidence(report), is_bound=_is_bound(report))
    claims = len(analyses)
    if claims > 1:
        yield (
            f"Verdicts were corrected for {claims} comparisons by Holm's method (Holm 1979); the intervals "
            "were not."
        )


def _is_queued(study: Study) -> bool:
    return registry.is_queued(study.job.scheduler)


def _is_bound(report: StudyReport) -> bool:
    """Whether every measured record shows that this design was fixed before it."""
    own = [
        record.design == validity.design_digest(study)
        for study, records in zip(report.studies, report.records, strict=True)
        for record in records
        if not record.warm_up
    ]
    return bool(own) and all(own)


def _confidence(report: StudyReport) -> float:
    """That of the intervals and tests: of each look where there are several."""
    if report.only is not None:
        return report.only.analysis.comparison.confidence
    return report.matrix.prove.confidence


def _intervals(report: StudyReport, analyses: Sequence[Analysis]) -> str:
    """How the ratios and their intervals were made; of two arms, with the degrees of freedom."""
    skewed = (
        ", widened to the ends of Hall's transformation where those are farther out (Hall 1992)"
        if any(each.comparison.skewness for each in analyses)
        else ""
    )
    runs, freedom = "the runs" + " of a point" * (not report.is_one_point), ""
    if report.only is not None:
        c = report.only.analysis.comparison
        order = ", the order of the starts estimated" if c.order is not None else ""
        runs, freedom = f"the {c.runs} runs", f" ({round(c.freedom, 1):g} degrees of freedom{order})"
    return (
        f"Ratios are geometric means over {runs}, with {percent(_confidence(report))} intervals from "
        f"Student's t distribution{freedom}{skewed}."
    )


def _runs(report: StudyReport) -> str:
    """The number of measured runs, as planned or done."""
    repeats, missing = report.matrix.repeats, report.found.missing
    if report.only is None:
        runs = "runs" if repeats is None else f"{repeats} runs"
        left = f" (planned; {missing} are left, so the study is incomplete)" if missing else ""
        return runs + left
    analysis = report.only.analysis
    if not analysis.is_complete:
        return f"{analysis.done} of {analysis.planned} planned runs"
    if analysis.looks > 1:
        return (
            f"{analysis.comparison.runs} runs (a group-sequential design with {analysis.looks} interim and "
            "final analyses, each tested at an equal share of the level)"
        )
    return f"{analysis.comparison.runs} runs"


def _failed(report: StudyReport) -> Iterator[str]:
    """How many runs failed; of two arms, in which of them."""
    runs = len(report.found.failures)
    censored = report.only.analysis.censored if report.only is not None else None
    if censored is not None:
        yield f"Runs {censored.text(report.matrix.arms)}."
    elif runs:
        yield f"{counted(runs, 'measured run')} failed, in the records and in no number."


def _factors(matrix: Matrix) -> str:
    """at 6 points, of model (resnet50, vgg16) and batch (32, 64)"""
    columns = zip(matrix.factors, zip(*matrix.points, strict=True), strict=True)
    values = [f"{name} ({', '.join(shown(v) for v in dict.fromkeys(of))})" for name, of in columns]
    return f" at {len(matrix.points)} points, of {_listed(values)}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def _processes(study: Study) -> str:
    shape = study.job.topology
    return (
        f"{shape.world_size} process{'es' if shape.world_size > 1 else ''} on {counted(shape.nodes, 'node')}"
    )


def _order(study: Study) -> Iterator[str]:
    """How the arms took turns, and what the value of a run is."""
    seed = study.order_seed
    if _is_queued(study):
        yield (
            f"All arms ran in the same jobs of {study.job.scheduler} and on the same "
            f"nodes, one whole run after another, in a balanced random order (seed {seed})."
        )
    elif not study.metered or study.alone_because:
        yield (f"The arms ran one whole run after another, in a balanced random order (seed {seed}).")
    if not study.metered:
        yield "The value of a run is the log ratio of two arms in it."
        return
    steps = f"windows of {study.steps_per_window} training steps"
    if _is_queued(study) or study.alone_because:
        yield f"The steps of a run were divided into {steps}; the same windows of two arms make a pair."
    else:
        yield (
            f"In each run, the arms were started as new processes and took turns in {steps}; all processes "
            "of an arm that waited were stopped. The order of the starts and of the windows was random and "
            f"balanced (seed {seed}). In some runs each arm was also measured alone."
        )
    yield (
        "The throughput of an arm in a run is its samples over the total time of all steps of its windows, "
        "and the value of a run is the log ratio of the throughputs of two arms."
    )


def _layouts(report: StudyReport) -> Iterator[str]:
    """How the files of the arms lay in memory."""
    every = report.compared
    yield from dict.fromkeys(layouts.done(each.study, each.analysis.pairs) for each in every)
    kept = [each.analysis.between for each in every if each.analysis.between]
    if kept:
        where = "" if len(kept) == len(every) else f" of {len(kept)} of {len(every)} comparisons"
        most = layouts.text(max(kept))
        yield (
            f"The intervals of speeds{where} contain {'at most ' if len(kept) > 1 else ''}{most}, which was "
            "assumed for the files whose layouts were the same in all runs."
        )


def _test(metric: str, margin: float, confidence: float, *, is_bound: bool) -> str:
    before = (
        " that was set before the study, with the number of runs, the seed and the metrics: each record "
        "holds the digest of this design"
    )
    return (
        f"The primary metric was the {metric}. Equivalence was tested by two one-sided "
        f"tests (Schuirmann 1987), each at a level of {percent(1 - confidence)}, with "
        f"a margin of {f'±{margin * 100:g} %'}{before if is_bound else ''}. "
        "Secondary metrics were not tested."
    )


def _environment(studies: Sequence[Study], matrix: Matrix) -> Iterator[str]:
    site = matrix.site
    gpus = f", {', '.join(site.gpus)}" if site.gpus else ""
    # The nodes of a job may have other processors.
    machine = "machine that submitted the jobs" if _is_queued(studies[0]) else "machine"
    yield (
        f"The {machine} has the processor {site.cpu_model} ({site.cpus} cores in use{gpus}) and "
        f"{site.mem_bytes / 2**30:.4g} GiB of memory, and runs {site.distribution} with Linux {site.kernel} "
        f"({site.architecture}) and glibc {site.glibc}."
    )
    arms = [(study, arm) for study in studies for arm in study.arms]
    ran = dict.fromkeys(f"{arm.name} in {arm_differences.engine_of(study, arm)}" for study, arm in arms)
    yield f"We ran {_listed([*ran])}."
    launchers = dict.fromkeys(arm.launcher for study, arm in arms if study.job.topology.world_size > 1)
    if any(launchers):
        yield f"The ranks were started by {_listed([*launchers])}."
    for title, image in arm_differences.images(matrix, studies):
        software = arm_differences.software(studies[0], image)
        yield f"The {title}: {image.digest}{' with ' + ', '.join(software) if software else ''}."
