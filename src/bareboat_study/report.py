"""A finished study -> one HTML page that opens with no network.

The page starts with the verdict in words and numbers, then shows every raw value behind it, the facts about
the machine and the image, and the scripts, so that a reader can check and repeat it.
"""

from __future__ import annotations

import shlex
import statistics as descriptive
from collections.abc import Iterable, Sequence

from bareboat.model import Record, Study
from bareboat_base import digests
from bareboat_base.page import Markup, document, facts, join, table, tag
from bareboat_study import definitions, forest, quick, verdicts
from bareboat_study.analysis import Analysis, Goal
from bareboat_study.drawing import Drawing, label, plot
from bareboat_study.measures import Metric
from bareboat_study.numbers import digits, interval_text, lowest, p_value, percent, size, unit_of
from bareboat_study.plots import PHASES, figures, throughputs
from bareboat_study.statistics import Verdict
from bareboat_study.windows import Pair

_NONE = "none"
HEADING = "What was measured"
#: Two arms, their records, and what follows from them.
Compared = tuple[Study, Sequence[Record], Analysis]
_TONES = {"equivalent": "equivalent", "different": "different", "training diverged": "training-diverged"}


def render_report(studies: Sequence[Compared]) -> str:
    """One page for one or several studies, in the order given. Pure: equal arguments give equal text.

    Records may come in any order and hold warm-ups: these are listed, but not in figures. Environment
    variables of the job appear only where a script sets them.
    """
    names = ", ".join(study.job.name for study, _, _ in studies)
    return page(
        f"{names}: {_arms_text([study for study, _, _ in studies])}" if names else HEADING,
        join((all_studies(studies) if len(studies) > 1 else "", *articles(studies))),
        [study.bareboat_version for study, _, _ in studies],
        [study.id for study, _, _ in studies],
    )


def _arms_text(studies: Sequence[Study]) -> str:
    """The arms, if all studies have the same: `container against bare metal`."""
    found = {f"{study.arms[1].name} against {study.arms[0].name}" for study in studies}
    return found.pop() if len(found) == 1 else "several studies"


def page(title: str, content: Markup, versions: Sequence[str], runs: Sequence[str]) -> str:
    """The whole page. `versions`: of Bareboat, that made the studies; `runs`: that it reports."""
    written = (
        f"Written by Bareboat {', '.join(sorted(set(versions)))}. This page loads nothing from the network."
    )
    body = (tag("header", tag("h1", HEADING)), tag("main", content), tag("footer", written))
    return document(title, join(body), runs=runs)


def articles(studies: Sequence[Compared]) -> list[Markup]:
    """A section for each study: its verdict, figures, facts and raw data."""
    return [
        _article(study, records, analysis, prefix=f"study-{place}")
        for place, (study, records, analysis) in enumerate(studies, start=1)
    ]


def comparisons(studies: Sequence[Compared], names: Sequence[str], *, metrics: bool) -> list[Markup]:
    """A section for each comparison of one study: its verdict and figures, and its `metrics`. The study's own
    page has the rest, once. Without `metrics` a table of the arms has the ratios, which are printed once."""
    found = []
    for place, (name, (study, _, analysis)) in enumerate(zip(names, studies, strict=False), start=1):
        prefix = f"study-{place}"
        table_of = (tag("h3", "Every metric"), _metrics(study, analysis)) if metrics else ()
        parts = (_heading(study, analysis, prefix), *table_of, _goals(analysis.goals),
                 _figures(study, analysis, prefix))  # fmt: skip
        found.append(
            tag("article", tag("h2", name), *parts, id=prefix, class_="part" if metrics else "part flows")
        )
    return found


def facts_of(study: Study, analysis: Analysis) -> Markup:
    """The machine, the image, the job and the design."""
    cards = (_machine(study), _image(study), _job(study), _design(study, analysis))
    return join((tag("h3", "Machine, image and design"), tag("div", *cards, class_="masonry")))


def raw_data(study: Study, records: Sequence[Record], pairs: Sequence[tuple[str, Study, Analysis]]) -> Markup:
    """Every value, the layers, and the scripts of all arms of the study. `pairs`: comparisons, by name."""
    ordered = sorted(records, key=lambda r: (not r.warm_up, r.run, r.position, r.arm))
    parts = [tag("h3", "Raw data and scripts"), *_details(study, ordered, pairs)]
    return tag("div", *parts, class_="raw")


def all_studies(studies: Sequence[Compared], names: Sequence[str] = ()) -> Markup:
    """A row for each study, with a link to its section. `names`: of the comparisons of one study."""
    rows = [
        (
            tag("a", _name(names, place, study), href=f"#study-{place}"),
            tag("b", analysis.word),
            f"{study.arms[1].name} / {study.arms[0].name}",
            analysis.primary.name,
            interval_text(analysis.primary),
            f"±{analysis.comparison.margin * 100:g} %",
            str(analysis.comparison.runs),
        )
        for place, (study, _, analysis) in enumerate(studies, start=1)
    ]
    one, all_of_them = ("comparison", "All comparisons") if names else ("study", "All studies")
    head = (one, "verdict", "arms", "primary metric", "ratio [interval]", "margin", "runs")
    return tag("article", tag("h2", all_of_them), table(f"One row per {one}", head, rows, texts=4))


def _name(names: Sequence[str], place: int, study: Study) -> str:
    return names[place - 1] if names else study.job.name


def _article(study: Study, records: Sequence[Record], analysis: Analysis, *, prefix: str) -> Markup:
    return tag(
        "article",
        tag("h2", study.job.name),
        tag("p", f"{study.created_at} on {study.site.hostname} · study {study.id}", class_="sub"),
        _heading(study, analysis, prefix),
        tag("h3", "Every metric"),
        _metrics(study, analysis),
        metric_texts(study, analysis),
        _goals(analysis.goals),
        notes_card(analysis.notes),
        _figures(study, analysis, prefix),
        facts_of(study, analysis),
        raw_data(study, records, [("", study, analysis)]),
        id=prefix,
    )


def _heading(study: Study, analysis: Analysis, prefix: str) -> Markup:
    drawn = figure(forest.of_metrics(study, analysis), prefix)
    return tag("div", _verdict(analysis), drawn, class_="grid")


def _figures(study: Study, analysis: Analysis, prefix: str) -> Markup:
    drawn = (figure(each, prefix) for each in figures(study, analysis))
    return join((tag("h3", "Figures"), tag("div", *drawn, class_="masonry")))


def figure(drawing: Drawing, prefix: str) -> Markup:
    """The figure with its caption; ids start with `prefix`."""
    drawn = plot(drawing, f"{prefix}-{drawing.name}")
    caption = f"{prefix}-{drawing.name}-caption"
    # Accessible drawing: `role=img` with a title, and the caption explains it.
    return tag(
        "figure", tag("h4", drawn.title), Markup(drawn.svg), tag("figcaption", drawn.caption, id=caption),
        aria_describedby=caption,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------
# The verdict and the metrics.


def _verdict(analysis: Analysis) -> Markup:
    metric, c = analysis.primary, analysis.comparison
    tiles = [
        ("margin", f"±{c.margin * 100:g} %"),
        ("runs, each a pair", str(c.runs)),
        ("equivalence p (TOST)", p_value(c.equivalence_p)),
        ("difference p", p_value(c.difference_p)),
    ]
    if (corrected := analysis.corrected) is not None:
        tiles += [
            ("equivalence p, corrected", p_value(corrected.equivalence_p)),
            ("difference p, corrected", p_value(corrected.difference_p)),
        ]
    if c.enough_runs is not None and analysis.verdict is Verdict.UNDECIDED:
        tiles.append(("runs for 80 % power", f"{c.enough_runs}, if the arms do not differ"))
    return tag(
        "section",
        tag("p", verdicts.headline(analysis.word, metric), class_="word"),
        tag(
            "p",
            interval_text(metric),
            tag("small", f"{metric.name}, ratio with its {percent(c.confidence)} interval"),
            class_="big",
        ),
        tag("p", analysis.sentence, class_="sentence"),
        *(tag("p", warning, class_="warning") for warning in analysis.warnings),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles), class_="tiles"),
        class_=f"card verdict {tone(analysis)}",
    )


def tone(analysis: Analysis) -> str:
    """The class of the verdict's colour; a difference for the better has its own."""
    found = _TONES.get(analysis.word, "undecided")
    return "better" if found == "different" and verdicts.is_better(analysis.primary) else found


def _metrics(study: Study, analysis: Analysis) -> Markup:
    base, contender = (label(arm.name, 40) for arm in study.arms)
    head = ("metric", "verdict", "unit", base, contender, "ratio [interval]")
    metrics = sorted(analysis.metrics, key=lambda metric: not metric.primary)
    caption = (
        f"Geometric means over the runs. Ratio: {contender} over {base}, with "
        f"{percent(analysis.comparison.confidence)} interval. "
        "Only the first row is tested. The others are secondary metrics: estimates with intervals, and no "
        "verdicts."
    )
    return table(caption, head, [_metric_row(analysis, metric) for metric in metrics], texts=3)


def metric_texts(study: Study, analysis: Analysis) -> Markup:
    """What each metric is."""
    metrics = sorted(analysis.metrics, key=lambda metric: not metric.primary)
    texts = [
        (definitions.title(metric, analysis.pairs), definitions.text(metric, analysis.pairs, study.metrics))
        for metric in metrics
    ]
    return tag("div", facts("What each metric is", texts), class_="definitions")


def metric_name(metric: Metric, pairs: Sequence[Pair], note: str = "") -> Markup:
    """The name of a metric, and below it its better direction and a note."""
    sense = "higher is better" if metric.higher_is_better else "lower is better"
    small = [tag("small", text) for text in (sense, note) if text]
    return join((definitions.title(metric, pairs), *small))


def _metric_row(analysis: Analysis, metric: Metric) -> tuple[str, ...]:
    scale, unit = unit_of(metric)
    kind = "primary metric" if metric.primary else "secondary metric"
    word = analysis.word_of(metric)
    return (
        metric_name(metric, analysis.pairs, definitions.order_text(metric)),
        join((tag("b", word, class_="first") if metric.primary else word, tag("small", kind))),
        unit,
        *(digits(mean / scale) for mean in (metric.baseline_mean, metric.contender_mean)),
        interval_text(metric),
    )


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


def notes_card(notes: Sequence[str]) -> Markup:
    """A card with a list of notes; nothing without any."""
    if not notes:
        return Markup("")
    items = tag("ul", *(tag("li", note) for note in notes), class_="notes")
    return join((tag("h3", "Notes"), tag("div", items, class_="card")))


# --------------------------------------------------------------------------------------------------
# The facts. User, home directory and environment are private and omitted.


def _machine(study: Study) -> Markup:
    site = study.site
    engines = (f"{e.name} {e.version}" + ("" if e.works else " (does not work)") for e in site.engines)
    return facts(
        "The machine",
        (
            ("host", site.hostname),
            ("distribution", site.distribution),
            ("kernel", f"{site.kernel}, {site.architecture}"),
            ("processor", site.cpu_model),
            ("cores", str(site.cpus)),
            ("memory", f"{site.mem_bytes / 2**30:.4g} GiB"),
            ("GPUs", ", ".join(site.gpus)),
            ("glibc", site.glibc),
            ("load at probing", f"{site.load_1min:.2f} (1 min)"),
            ("engines", ", ".join(engines)),
            ("probed", site.probed_at),
        ),
    )


def _image(study: Study) -> Markup:
    image = study.image
    sizes = f"{size(image.size_bytes)}, layers: {len(image.layers)}, inodes: {image.inodes:,}"
    return facts(
        "The image",
        (
            ("digest", tag("code", image.digest)),
            ("size", sizes),
            ("Python", " ".join(filter(None, (image.python_version, image.python)))),
            ("glibc", image.glibc or ""),
            ("frameworks", ", ".join(f"{k} {v}" for k, v in sorted(image.frameworks.items()))),
            ("libraries not found", ", ".join(image.unresolved_libraries)),
            *(("note", note) for note in image.notes),
        ),
    )


def _design(study: Study, analysis: Analysis) -> Markup:
    c = analysis.comparison
    windows = f"{study.steps_per_window} steps, {study.settle} of them for settling"
    return facts(
        "The design",
        (
            ("arms", f"{study.arms[0].name} (baseline), {study.arms[1].name} (contender)"),
            *((arm.name, join((f"{arm.engine}, plan ", tag("code", arm.plan_digest)))) for arm in study.arms),
            ("measured runs", f"{c.runs} of {analysis.planned} planned"),
            *((("quick study", quick.sentence(study, c)),) if quick.is_quick(study) else ()),
            ("seed", str(study.order_seed)),
            ("margin", f"±{c.margin * 100:g} %"),
            ("confidence", percent(c.confidence)),
            ("window", windows if study.steps_per_window else "none: the script has no meter"),
            ("fixed on", study.created_at),
            ("Bareboat", study.bareboat_version),
        ),
    )


def _job(study: Study) -> Markup:
    shape = study.job.topology
    return facts(
        "The job",
        (
            ("name", study.job.name),
            ("command", tag("code", shlex.join(study.job.command))),
            ("requested image", study.job.image),
            ("nodes", str(shape.nodes)),
            ("processes", f"{shape.world_size}, {shape.ranks_per_node} per node"),
            ("cores each", "" if shape.cpus_per_rank is None else str(shape.cpus_per_rank)),
            ("GPUs each", str(shape.gpus_per_rank) if shape.gpus_per_rank else ""),
        ),
    )


# --------------------------------------------------------------------------------------------------
# The details.


def _details(
    study: Study, records: Sequence[Record], pairs: Sequence[tuple[str, Study, Analysis]]
) -> Iterable[Markup]:
    yield _fold("Raw values of every run, warm-ups included", _runs_table(records))
    for name, pair, analysis in pairs:
        of = f" of {name}" if name else ""
        yield _fold(f"The metrics{of}, pair by pair", _pairs_table(pair, analysis))
    yield _fold("The layers of the image", _layers_table(study))
    for arm in study.arms:
        text = tag("pre", arm.script, tabindex="0")
        digest = digests.of(arm.script.encode("utf-8", "replace"))
        yield _fold(f"The script of {arm.name}: {digest}", text, class_="script")


def _fold(title: str, content: Markup, class_: str | None = None) -> Markup:
    return tag("details", tag("summary", title), content, class_=class_)


def _runs_table(records: Sequence[Record]) -> Markup:
    phased = any(record.phases for record in records)
    windowed = any(record.windows for record in records)
    results = sorted({name for record in records for name in record.results})
    head = ["run", "arm", "started", "order", "exit code", "wall, s"]
    head += ["windows", "median throughput, /s"] if windowed else []
    head += [f"{name}, s" for _, name, _ in PHASES] if phased else []
    head += ["peak memory, MiB", "load, 1 min", *results]
    rows = [_run_row(record, phased, windowed, results) for record in records]
    return table("One row per arm and run; times are in seconds", head, rows, texts=3)


def _run_row(record: Record, phased: bool, windowed: bool, results: Sequence[str]) -> list[str]:
    speeds = [value for _, value in throughputs(record)]
    row = [
        f"warm-up {record.run}" if record.warm_up else str(record.run),
        label(record.arm, 40),
        record.started_at,
        str(record.position),
        str(record.exit_code),
        _NONE if record.wall_s is None else digits(record.wall_s),
    ]
    if windowed:
        row += [str(len(record.windows)), digits(descriptive.median(speeds)) if speeds else _NONE]
    if phased:
        row += [digits(getattr(record.phases, field)) if record.phases else _NONE for field, _, _ in PHASES]
    values = (record.results.get(name) for name in results)
    row += [digits(record.peak_memory_bytes / 2**20), f"{record.load_1min:.2f}"]
    return row + [_NONE if value is None else f"{float(value):.6g}" for value in values]


def _pairs_table(study: Study, analysis: Analysis) -> Markup:
    names = [label(arm.name, 40) for arm in study.arms]
    head = ["pair"]
    for metric in analysis.metrics:
        head += [f"{label(metric.name, 40)}, {name}, {label(unit_of(metric)[1])}" for name in names]
    most = max(len(metric.baseline) for metric in analysis.metrics)
    rows = [[str(pair + 1), *_pair_cells(analysis.metrics, pair)] for pair in range(most)]
    return table("Measured pairs in their order", head, rows)


def _pair_cells(metrics: Iterable[Metric], pair: int) -> Iterable[str]:
    for metric in metrics:
        for side in (metric.baseline, metric.contender):
            yield digits(side[pair] / unit_of(metric)[0]) if pair < len(side) else _NONE


def _layers_table(study: Study) -> Markup:
    rows = [
        (
            tag("code", layer.diff_id),
            layer.comment,
            size(layer.size_bytes),
            size(layer.unpacked_bytes),
            f"{layer.inodes:,}",
        )
        for layer in study.image.layers
    ]
    head = ("layer", "what", "as a tar", "unpacked", "inodes")
    return table("From the lowest layer to the uppermost", head, rows, texts=2)
