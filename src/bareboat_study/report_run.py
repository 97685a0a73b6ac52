"""Pure: the page of one run that is no study, drawn without any library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bareboat.model import Decision, MemorySample
from bareboat_base import __version__
from bareboat_base.page import Markup, document, facts, join, table, tag
from bareboat_study.blocks import duration
from bareboat_study.numbers import bytes_unit, digits

#: Colours of the parts of the time, the same as those of a study's phases.
_COLOURS = ("#c9cfd4", "#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#7a8793")
#: At the 370 px that a telephone has for a figure, its text has 11 px.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 400, 190, 48, 32
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What the page shows. `title`, `word`: the name of the job, and how the run ended; `is_good`: with exit
    code 0. `cause`: of a failure, or why it waits. `times`: name and seconds of each part, in order; `ranks`:
    a head and a row per rank; `outputs`: title and text of each end of an output."""

    run_id: str
    title: str
    word: str
    is_good: bool | None
    cause: str
    facts: Sequence[tuple[str, str]]
    results: Sequence[tuple[str, str]]
    decisions: Sequence[Decision]
    times: Sequence[tuple[str, float]]
    memory: Sequence[MemorySample]
    memory_kind: str
    ranks: tuple[Sequence[str], Sequence[Sequence[str]]]
    outputs: Sequence[tuple[str, str]]


def render_run(run: RunReport) -> str:
    """The page. Equal arguments give equal text."""
    tone = {True: "equivalent", False: "different", None: "undecided"}[run.is_good]
    total_s = math.fsum(seconds for _, seconds in run.times)
    verdict = tag(
        "section",
        tag("p", run.word, class_="word"),
        tag("p", duration(total_s), tag("small", "in all"), class_="big") if run.times else "",
        tag("p", run.cause, class_="sentence") if run.cause else "",
        class_=f"card verdict {tone}",
    )
    figures = [_time(run.times, total_s) if total_s > 0 else "", _memory(run.memory, run.memory_kind)]
    body = (
        tag("header", tag("h1", "One run")),
        tag(
            "main",
            tag(
                "article",
                tag("h2", run.title),
                tag("p", run.run_id, class_="sub"),
                tag("div", verdict, facts("The run", run.facts), class_="grid"),
                tag("h3", "Time and memory") if any(figures) else "",
                tag("div", *figures, class_="masonry"),
                *_results(run.results),
                *_decisions(run.decisions),
                *_ranks(run.ranks),
                tag("h3", "Output") if run.outputs else "",
                *(_output(title, text, place) for place, (title, text) in enumerate(run.outputs)),
            ),
        ),
        tag("footer", f"Written by Bareboat {__version__}. This page loads nothing from the network."),
    )
    return document(f"{run.title}: {run.word}", join(body), runs=[run.run_id])


def _results(results: Sequence[tuple[str, str]]) -> Iterable[Markup]:
    if results:
        yield tag("h3", "Results")
        yield table("The last value that the ranks reported", ("result", "value"), results)


def _decisions(decisions: Sequence[Decision]) -> Iterable[Markup]:
    if decisions:
        rows = [(each.subject, each.choice, each.reason) for each in decisions]
        yield tag("h3", "The plan")
        yield table("Each decision with its reason", ("decision", "choice", "reason"), rows, texts=3)


def _ranks(ranks: tuple[Sequence[str], Sequence[Sequence[str]]]) -> Iterable[Markup]:
    head, rows = ranks
    if rows:
        yield tag("h3", "Ranks")
        yield table("One row per rank", head, rows, texts=2)


def _output(title: str, text: str, place: int) -> Markup:
    shown = tag("pre", text, tabindex="0")
    return tag("details", tag("summary", title), shown, open=None if place else "")


# --------------------------------------------------------------------------------------------------
# Figures.


def _time(times: Sequence[tuple[str, float]], total_s: float) -> Markup:
    """One bar, split in its parts, with a legend."""
    parts: list[Markup] = []
    legend: list[Markup] = []
    left = 0.0
    for place, (name, seconds) in enumerate(times):
        width = seconds / total_s * _WIDTH
        colour = _COLOURS[place % len(_COLOURS)]
        parts.append(
            tag(
                "rect", tag("title", f"{name}: {duration(seconds)}"), x=f"{left:.2f}", y="0",
                width=f"{width:.2f}", height="34", fill=colour,
            )
        )  # fmt: skip
        left += width
        key = tag("svg", tag("rect", width="12", height="12", fill=colour), viewBox="0 0 12 12", class_="key")
        legend.append(tag("div", tag("dt", key, f" {name}"), tag("dd", duration(seconds))))
    bar = tag("svg", *parts, viewBox=f"0 0 {_WIDTH} 34", role="img", aria_label="Parts of the time")
    return tag("figure", tag("h4", "Where the time went"), bar, tag("dl", *legend, class_="tiles"))


def _memory(samples: Sequence[MemorySample], kind: str) -> Markup:
    if len(samples) < 2:
        return Markup("")
    scale, unit = bytes_unit(sample.bytes for sample in samples)
    every = [(sample.at_s, sample.bytes / scale) for sample in samples]
    stretch = -(-len(every) // _MOST_POINTS)
    stretches = (every[at : at + stretch] for at in range(0, len(every), stretch))
    points = [max(each, key=lambda point: point[1]) for each in stretches]
    last, most = max(x for x, _ in points) or 1.0, max(y for _, y in points) or 1.0
    ticks = _ticks_above(most)
    top = ticks[-1]

    def place(x: float, y: float) -> str:
        at = _LEFT + x / last * (_WIDTH - _LEFT - 8)
        return f"{at:.1f},{(_HEIGHT - _BOTTOM) * (1 - y / top) + 8:.1f}"

    grid = []
    for y in ticks:
        height = place(0, y).partition(",")[2]
        grid.append(
            tag("line", x1=str(_LEFT), x2=str(_WIDTH - 8), y1=height, y2=height, stroke="var(--rule)")
        )
        grid.append(_text(f"{y:g}", _LEFT - 6, float(height) + 4, "end"))
    for x in _ticks(last):
        grid.append(_text(f"{x:g}", float(place(x, 0).partition(",")[0]), _HEIGHT - 10, "middle"))
    line = tag(
        "polyline", points=" ".join(place(x, y) for x, y in points), fill="none", stroke="var(--arm-1)",
        stroke_width="1.6",
    )  # fmt: skip
    drawn = tag(
        "svg", *grid, line, viewBox=f"0 0 {_WIDTH} {_HEIGHT + 8}", role="img",
        aria_label=f"Memory over time, at most {digits(most)} {unit}",
    )  # fmt: skip
    caption = (
        f"Memory of all processes ({kind.upper()}) in {unit}, over seconds since the start; at most "
        f"{digits(most)} {unit}."
    )
    return tag("figure", tag("h4", "Memory over time"), drawn, tag("figcaption", caption))


def _text(text: str, x: float, y: float, anchor: str) -> Markup:
    return tag(
        "text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill="var(--muted)", font_size="12"
    )


def _ticks(most: float) -> list[float]:
    """Round values from 0, four to nine of them, the last not above `most`."""
    if not (math.isfinite(most) and most > 0):
        return [0.0]
    step = 10.0 ** math.floor(math.log10(most))
    for part in (1, 2, 5):
        if most / (step / part) >= 4:
            step /= part
            break
    else:
        step /= 5
    return [number * step for number in range(math.floor(most / step + 1e-9) + 1)]


def _ticks_above(most: float) -> list[float]:
    """The same, with a last one that is not below `most`."""
    ticks = _ticks(most)
    if len(ticks) < 2:
        return [0.0, most]
    return ticks if ticks[-1] >= most * (1 - 1e-9) else [*ticks, len(ticks) * ticks[1]]
