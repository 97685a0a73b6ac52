"""Shared parts of the figures: the style, the axes, and matplotlib's SVG embedded in a page.

Nothing here uses pyplot, the screen or a file. On a page, text stays text (`svg.fonttype = none`), laid out
with the font that matplotlib ships, so that the same records give the same bytes on every machine.
"""

from __future__ import annotations

import io
import logging
import math
import re
import statistics as descriptive
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from bareboat_base.printable import plain_line

if TYPE_CHECKING:
    from bareboat_study.statistics import Estimate

log = logging.getLogger("bareboat")

#: Blue and vermilion of Okabe and Ito, distinct for all common kinds of colour vision; the markers
#: differ too, for print. https://jfly.uni-koeln.de/color/
ARM_COLOURS = ("#0072B2", "#D55E00")
ARM_MARKERS = ("o", "^")
#: Of several arms: the same two first, then others of that palette.
SERIES_COLOURS = (*ARM_COLOURS, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SERIES_MARKERS = (*ARM_MARKERS, "s", "D", "v", "P")

INK, MUTED, _RULE, BAND = "#1c2329", "#5b6670", "#dfe4e8", "#e6ebf0"
AXIS, STRIPE, BLOCK = "#9aa4ad", "#f4f6f8", "#6b5b95"
#: A drawing's colour -> the variable of the page (bareboat_base/page.css).
_ON_A_PAGE = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    _RULE: "var(--rule)",
    BAND: "var(--band)",
    AXIS: "var(--axis)",
    STRIPE: "var(--stripe)",
    BLOCK: "var(--block)",
    "#ffffff": "var(--card)",
    **{colour.lower(): f"var(--arm-{place})" for place, colour in enumerate(ARM_COLOURS, start=1)},
}
#: At the 370 px that a telephone has for a figure, text of 8.5 points then has 11 px.
_WIDTH_IN = 3.9
#: Characters of a line of a legend, with four for each marker.
_LEGEND = 52

#: Widths of figures in a paper of two columns, in inches, with the size of their text in points.
COLUMN, FULL = (3.3, 7.0), (7.0, 8.0)

_STYLE: dict[str, Any] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Arial"],
    "font.size": 8.5,
    "text.parse_math": False,  # a `$` in a name is literal
    "text.color": INK,
    "axes.edgecolor": AXIS,
    "axes.labelcolor": MUTED,
    "axes.labelsize": "medium",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid.axis": "y",
    "axes.grid": True,
    "axes.unicode_minus": False,
    "axes.formatter.useoffset": False,  # an offset such as "+1e4" in a corner is easily missed
    "axes.formatter.limits": (-4, 7),
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.frameon": False,
    "legend.borderaxespad": 0.0,
    "legend.handlelength": 1.1,
    "legend.handletextpad": 0.4,
    "legend.columnspacing": 1.4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """One figure that can be drawn at any width. `name`: of its file, and of its ids on a page; `height_in`:
    at the width of a page's figure."""

    name: str
    title: str
    caption: str
    draw: Callable[[Figure], None]
    height_in: float


def label(text: str, most: int = 28) -> str:
    """A name from the data as one short printable line."""
    line = plain_line(text)
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def folded(text: str, most: int, width: int) -> list[str]:
    """The same in lines of at most `width` characters."""
    return textwrap.wrap(label(text, most), width) or [""]


# --------------------------------------------------------------------------------------------------
# Parts of axes.


#: How numbers of an axis with large ones are written.
THOUSANDS = "{x:,.10g}"


def margin_logs(margin: float) -> tuple[float, float]:
    """The bounds of equivalence in log ratio."""
    return -math.log1p(margin), math.log1p(margin)


def titled(name: str) -> str:
    """The name of a metric at the start of a title; an identifier stays as it is."""
    return name if "_" in name else name[:1].upper() + name[1:]


def safe_log(ratio: float) -> float:
    """A finite logarithm for figures, also for intervals that reach 0 or infinity."""
    return math.log(min(max(ratio, 1e-12), 1e12))


def logs_of(found: Estimate) -> tuple[float, float, float]:
    """The logarithms of the lower end, the ratio and the upper end."""
    return safe_log(found.low), safe_log(found.ratio), safe_log(found.high)


def interval(
    axes: Any, y: float, logs: tuple[float, float, float], reach: float, *, filled: bool, size: float
) -> None:
    """A row with a ratio and its interval on an axis from -`reach` to `reach`; arrows where it is longer."""
    low, middle, high = logs
    axes.plot([max(low, -reach), min(high, reach)], [y, y], color=INK, lw=1.2, solid_capstyle="butt")
    # A ratio beyond the axis is at its edge, beside the arrow.
    at = min(max(middle, -0.93 * reach), 0.93 * reach)
    axes.plot(at, y, marker="D", ms=size, mec=INK, mfc=INK if filled else "white", zorder=4)
    for is_beyond, edge, arrow in ((low < -reach, -reach, "<"), (high > reach, reach, ">")):
        if is_beyond:
            axes.plot(edge, y, marker=arrow, ms=6, color=INK, clip_on=False, zorder=5)


def ratio_axis(axis: Any, low: float, high: float, *, most: int = 9) -> None:
    """Tick a log-ratio axis at round ratios, 1 always among them; more than `most` labels would touch."""
    first, last = math.exp(low), math.exp(high)
    if last / first > 4:
        lowest, highest = math.log2(first), math.log2(last)
        every = math.ceil((highest - lowest) / most)
        ticks = [
            2.0 ** (k * every) for k in range(math.ceil(lowest / every), math.floor(highest / every) + 1)
        ]
    else:
        steps = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
        step = next((s for s in steps if (last - first) / s <= most), 0.5)
        ticks = [k * step for k in range(math.ceil(first / step), math.floor(last / step) + 1)]
    axis.set_major_locator(FixedLocator([math.log(tick) for tick in ticks]))
    axis.set_major_formatter(FixedFormatter([f"{tick:.5g}" for tick in ticks]))


def run_axis(axes: Any, numbers: Sequence[int]) -> None:
    """Runs side by side on the x axis, every second one shaded."""
    run_ticks(axes, numbers)
    for place in range(1, len(numbers), 2):
        axes.axvspan(place - 0.5, place + 0.5, color=STRIPE, lw=0)
    axes.set_xlim(-0.5, len(numbers) - 0.5)


def run_ticks(axes: Any, numbers: Sequence[int], extra: tuple[float, str] | None = None) -> None:
    every = math.ceil(len(numbers) / 14)
    ticks = [(float(place), str(n)) for place, n in enumerate(numbers) if place % every == 0]
    ticks += [extra] if extra else []
    axes.set_xticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.tick_params(axis="x", length=0)


def pad_y(axes: Any, low: float, high: float) -> None:
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - pad, high + pad)
    axes.yaxis.set_major_locator(MaxNLocator(6))


def legend(figure: Figure, names: Sequence[str]) -> None:
    """The names of arms or series, with their colours and markers, above the axes."""
    handles = [
        Line2D([], [], ls="", marker=SERIES_MARKERS[i], ms=5.5, mew=0, color=SERIES_COLOURS[i])
        for i in range(len(names))
    ]
    legend_of(figure, handles, [label(name) for name in names])


def legend_of(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Above the axes, in as many columns as the names leave room for."""
    columns = _LEGEND // (max(map(len, names)) + 4)
    figure.legend(handles, names, loc="outside upper left", ncols=max(1, min(columns, len(names), 3)))


def robust_limits(values: Sequence[float]) -> tuple[float, float]:
    """The range of the values without rare outliers, which would compress all others."""
    if len(values) < 4:
        return min(values), max(values)
    first, _, third = descriptive.quantiles(values, n=4, method="inclusive")
    reach = 2 * (third - first)  # of normal values 1 in 1,000 lies further out
    return max(min(values), first - reach), min(max(values), third + reach)


# --------------------------------------------------------------------------------------------------
# SVG and PDF.


def plot(drawing: Drawing, prefix: str) -> str:
    """The figure as an element of a page, whose ids start with `prefix`."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": prefix}
    svg = _draw(drawing, "svg", (_WIDTH_IN, drawing.height_in), settings).decode()
    return _inline(svg, drawing.title, prefix)


def vector(drawing: Drawing, kind: str, size: tuple[float, float]) -> bytes:
    """The figure as a file of its own, "svg" or "pdf", of this width and text size. All letters are in the
    file, so that it looks the same everywhere."""
    width_in, text_pt = size
    height_in = drawing.height_in * min(max(width_in / _WIDTH_IN, 0.8), 1.1)
    settings = {
        "svg.fonttype": "path",
        "svg.hashsalt": drawing.name,
        "pdf.fonttype": 42,  # TrueType, which publishers require
        "font.size": text_pt,
    }
    return _draw(drawing, kind, (width_in, height_in), settings)


def _draw(drawing: Drawing, kind: str, size_in: tuple[float, float], settings: dict[str, Any]) -> bytes:
    """Draw with a fixed style, independent of the user's matplotlibrc, and restore the settings."""
    stream = io.BytesIO()
    nothing = {"svg": ("Date", "Creator", "Format", "Type"), "pdf": ("CreationDate", "Creator", "Producer")}
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        current: Any = mpl.rcParams  # newer matplotlib types its keys, older does not
        current.update(_STYLE | settings)
        # Names may hold letters that the bundled font lacks; the browser shows them.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        metadata = dict.fromkeys(nothing[kind])
        figure = Figure(figsize=size_in, layout="constrained")
        try:
            drawing.draw(figure)
            figure.savefig(stream, format=kind, metadata=metadata)
        except (ArithmeticError, ValueError) as error:  # of values whose range is beyond the floats
            log.warning("the figure %s is not drawn: its values are out of range: %s", drawing.name, error)
            stream = io.BytesIO()
            figure = Figure(figsize=size_in, layout="constrained")
            figure.text(0.5, 0.5, "not drawn: values out of range", ha="center", va="center", color=MUTED)
            figure.savefig(stream, format=kind, metadata=metadata)
    return stream.getvalue()


def _inline(svg: str, title: str, prefix: str) -> str:
    """Make a matplotlib file an element of a page: no prologue, no page-wide style, unique ids."""
    body = svg[svg.index("<svg") :]
    root, body = body.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', root)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, count=1, flags=re.S)
    body = re.sub(r"<[^>]*>", lambda tag: _own_tag(tag[0], prefix), body)
    body = re.sub(r"\n\s*(?=[LMz<])", "\n", body)
    name = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    opening = f'<svg viewBox="{box[1] if box else ""}" role="img" aria-labelledby="{prefix}-title">'
    return f'{opening}<title id="{prefix}-title">{name}</title>{body.strip()}'


def _own_tag(tag: str, prefix: str) -> str:
    """Put `prefix` before every id that a tag gives or refers to, and the page's colours, which are others in
    the dark, in the place of the drawing's. Text between tags is never touched."""
    tag = re.sub(r' id="([^"]+)"', rf' id="{prefix}-\1"', tag)
    tag = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{prefix}-\1"', tag)
    tag = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", tag)
    return re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda found: _ON_A_PAGE.get(found[0], found[0]), tag)
