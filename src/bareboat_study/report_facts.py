"""Pure: the last part of a study's page: the machine, the image, the design, and every raw value.

User, home directory and environment are private and omitted.
"""

from __future__ import annotations

import shlex
import statistics as descriptive
from collections.abc import Iterable, Sequence

from bareboat.model import Arm, Image, Record, Study
from bareboat_base import digests
from bareboat_base.page import Markup, facts, join, table, tag
from bareboat_study import arm_differences
from bareboat_study.analysis import Analysis
from bareboat_study.drawing import label
from bareboat_study.numbers import digits, percent, quantity, unit_of
from bareboat_study.plots import PHASES, throughputs
from bareboat_study.study_report import Compared, StudyReport

_NONE = "none"


def facts_and_data(shown: StudyReport, compared: Sequence[Compared]) -> Markup:
    """The machine, the image and the design of the first point, and the raw values of all points; pair by
    pair those that are `compared`."""
    if not compared:
        return Markup("")
    study, first = shown.studies[0], compared[0]
    images = (_image(study, *each) for each in arm_differences.images(shown.matrix, shown.studies))
    cards = (_machine(study), *images, _job(study), _design(study, first.analysis))
    return join(
        (
            tag("h3", "Machine, image and design"),
            tag("div", *cards, class_="masonry"),
            tag(
                "div",
                tag("h3", "Raw data and scripts"),
                *_details(shown, study, compared),
                class_="raw",
            ),
        )
    )


def _machine(study: Study) -> Markup:
    site = study.site
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
            ("probed", site.probed_at),
        ),
    )


def _image(study: Study, title: str, image: Image) -> Markup:
    sizes = f"{quantity(image.size_bytes, 'bytes')}, layers: {len(image.layers)}, inodes: {image.inodes:,}"
    return facts(
        f"The {title}",
        (
            ("digest", tag("code", image.digest)),
            ("size", sizes),
            ("glibc", image.glibc or ""),
            ("used software", ", ".join(arm_differences.software(study, image))),
            ("libraries not found", ", ".join(image.unresolved_libraries)),
            *(("note", note) for note in image.notes),
        ),
    )


def _design(study: Study, analysis: Analysis) -> Markup:
    c = analysis.comparison
    windows = f"{study.steps_per_window} steps"
    return facts(
        "The design",
        (
            ("arms", ", ".join([f"{study.arms[0].name} (baseline)", *(arm.name for arm in study.arms[1:])])),
            *((arm.name, join((_arm(study, arm), tag("code", arm.plan_digest)))) for arm in study.arms),
            ("measured runs", f"{c.runs} of {analysis.planned} planned"),
            ("seed", str(study.order_seed)),
            ("margin", f"±{c.margin * 100:g} %"),
            ("confidence", percent(c.confidence)),
            ("window", windows if study.steps_per_window else "none: the script has no meter"),
            ("fixed on", study.created_at),
            ("Bareboat", study.bareboat_version),
        ),
    )


def _arm(study: Study, arm: Arm) -> str:
    launcher = f", launcher {arm.launcher}" * bool(arm.launcher)
    return f"{arm_differences.engine_of(study, arm)}{launcher}, plan "


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


def _details(shown: StudyReport, study: Study, compared: Sequence[Compared]) -> Iterable[Markup]:
    yield _fold("Raw values of every run, warm-ups included", _runs_table(shown))
    names = ("" if shown.only is not None else f" of {each.name}" for each in compared)
    pairs = (
        _fold(f"The metrics{of}, pair by pair", _pairs_table(each.study, each.analysis))
        for of, each in zip(names, compared, strict=True)
    )
    yield tag("div", *pairs, class_="pairs")
    for arm in study.arms:
        text = tag("pre", arm.script, tabindex="0")
        digest = digests.of(arm.script.encode("utf-8", "replace"))
        yield _fold(f"The script of {arm.name}: {digest}", text, class_="script")


def _fold(title: str, content: Markup, class_: str | None = None) -> Markup:
    return tag("details", tag("summary", title), content, class_=class_)


def _runs_table(shown: StudyReport) -> Markup:
    """Point after point, each from its warm-up to its last run."""
    of_points = [
        (point, record)
        for point, own in enumerate(shown.records)
        for record in sorted(own, key=lambda r: (not r.warm_up, r.run, r.position, r.arm))
    ]
    records = [record for _, record in of_points]
    phased = any(record.phases for record in records)
    windowed = any(record.windows for record in records)
    results = sorted({name for record in records for name in record.results})
    head = ["run", "arm", "started", "order", "exit code", "wall, s"]
    head += ["windows", "median throughput, /s"] if windowed else []
    head += [f"{name}, s" for _, name, _ in PHASES] if phased else []
    head += ["peak memory, MiB", "load, 1 min", *results]
    rows = [_run_row(record, phased, windowed, results) for record in records]
    if not shown.is_one_point:
        head.insert(1, "point")
        for row, (point, _) in zip(rows, of_points, strict=True):
            row.insert(1, shown.matrix.point_text(point))
    caption = "One row per arm and run; times are in seconds"
    return table(caption, head, rows, texts=3 if shown.is_one_point else 4)


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
    sides = [
        (unit_of(metric)[0], side)
        for metric in analysis.metrics
        for side in (metric.baseline, metric.contender)
    ]
    rows = [
        [str(at + 1), *(digits(side[at] / scale) if at < len(side) else _NONE for scale, side in sides)]
        for at in range(most)
    ]
    return table("Measured pairs in their order", head, rows)
