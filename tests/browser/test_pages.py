"""Reports in a real browser without a network: at 1400 and 420 pixels, light, dark and printed."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from builders import make_analysis, make_records, make_study
from chromium import show
from matrices import make_matrix, make_three, measured, report_of
from tools import output, tool

from bareboat_base import digests
from bareboat_study import study_report
from bareboat_study.report import render

pytestmark = pytest.mark.browser

RUNS = 12


def study_page() -> str:
    study = make_study(metered=True, runs=RUNS)
    records = make_records(study, windows=40)
    return render(report_of(study, records, make_analysis(study, records)))


def three_page() -> str:
    return render(study_report.of(*make_three()))


def points_page() -> str:
    return render(study_report.of(*measured(0.99)))


PAGES = {
    "study": study_page,
    "three": three_page,
    "points": points_page,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(make())
    return folder


def ask(browser: Any, page: Path, width: int, script: str, *, is_dark: bool = False) -> Any:
    """What the script returns of the page's document `d` and window `w` at this width."""
    show(browser, page, width=width, dark=is_dark)
    return browser.execute_script(f"const w = window, d = document; {script}")


@pytest.mark.parametrize("width", [1400, 800, 420])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_asks_nobody(browser: Any, pages: Path, name: str, width: int) -> None:
    found = ask(
        browser, pages / f"{name}.html", width,
        """
        for (const each of d.querySelectorAll("details")) each.open = true;
        const wide = [...d.body.querySelectorAll("*")].filter((e) => !e.closest("svg, pre, .scroll")
          && e.getBoundingClientRect().right > w.innerWidth + 1).map((e) => e.outerHTML.slice(0, 200));
        const cut = [...d.querySelectorAll("td, tbody th, dd")]
          .filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent);
        const moved = [...d.querySelectorAll(".scroll")].filter((e) => !e.closest("details")
          && e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent.slice(0, 60));
        return { page: d.documentElement.scrollWidth, window: w.innerWidth, title: d.title, wide, cut, moved,
          asked: w.performance.getEntriesByType("resource").map((e) => e.name) };
        """,
    )  # fmt: skip
    assert found["window"] == width
    assert found["page"] <= width
    assert found["wide"] == []
    assert found["cut"] == []
    assert found["moved"] == [] or width < 800
    assert found["asked"] == []
    assert found["title"] != "gone"


@pytest.mark.parametrize("width", [1400, 420])
def test_the_answer_comes_first_and_the_raw_values_last(browser: Any, pages: Path, width: int) -> None:
    for name, wanted in {
        "study": ["equivalent", "Every metric", "What each metric is", "Figures",
                  "Machine, image and design", "Raw data and scripts"],
        "three": ["equivalent", "different", "Ratio of every comparison", "What each metric is",
                  "Notes", "Every metric", "Figures", "Machine, image and design", "Raw data and scripts"],
    }.items():  # fmt: skip
        tops = ask(
            browser, pages / f"{name}.html", width,
            """
            const tops = {};
            for (const e of d.querySelectorAll(".word, h3, h4")) {
              const text = e.textContent.split(":")[0];
              tops[text] = tops[text] ?? e.getBoundingClientRect().top + w.scrollY;
            }
            return tops;
            """,
        )  # fmt: skip
        heights = [tops[each] for each in wanted if each != "Ratio of every comparison" or width < 800]
        assert heights == sorted(heights), tops


@pytest.mark.parametrize("name", ["study", "three", "points"])
def test_text_of_figures_can_be_read_on_a_telephone(browser: Any, pages: Path, name: str) -> None:
    """It has at least 11 pixels, and lies within its figure."""
    found = ask(
        browser, pages / f"{name}.html", 420,
        """
        const small = [], out = [];
        for (const e of d.querySelectorAll("figure svg text")) {
          const svg = e.closest("svg"), own = e.getBoundingClientRect(), box = svg.getBoundingClientRect();
          const size = parseFloat(w.getComputedStyle(e).fontSize) * box.width / svg.viewBox.baseVal.width;
          if (size < 11) small.push([size, e.textContent]);
          if (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1
            || own.bottom > box.bottom + 1) out.push(e.textContent);
        }
        return { small, out, texts: d.querySelectorAll("figure svg text").length };
        """,
    )  # fmt: skip
    assert found["texts"] > 5
    assert found["small"] == []
    assert found["out"] == []


def test_a_table_becomes_a_list_on_a_telephone(browser: Any, pages: Path) -> None:
    script = """
        const cell = d.querySelector("table tbody td:last-child"), table = cell.closest(".scroll");
        return { label: w.getComputedStyle(cell, "::before").content,
          scrolls: table.scrollWidth > table.clientWidth,
          head: w.getComputedStyle(d.querySelector("thead")).display };
        """
    narrow, wide = (ask(browser, pages / "study.html", width, script) for width in (420, 1400))
    assert narrow == {"label": '"ratio [interval]"', "scrolls": False, "head": "none"}
    assert (wide["label"], wide["head"]) == ("none", "table-header-group")


@pytest.mark.parametrize("name", PAGES)
def test_text_can_be_read_in_the_light_and_in_the_dark(browser: Any, pages: Path, name: str) -> None:
    """The contrast of every text with its background, as WCAG 2 counts it, is at least 4.5."""
    for is_dark in (False, True):
        found = ask(
            browser, pages / f"{name}.html", 1400,
            """
            const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
            const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) =>
              v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
              .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
            const behind = (e) => { for (; e; e = e.parentElement) {
              const c = rgb(w.getComputedStyle(e).backgroundColor);
              if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
            const bad = [];
            for (const e of d.body.querySelectorAll("*")) {
              const texts = [...e.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
              if (e.closest("script, style, title") || !texts.length) continue;
              const style = w.getComputedStyle(e), svg = e.closest("svg");
              const a = light(rgb(svg ? style.fill : style.color)), b = light(behind(e));
              const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
              if (ratio < (svg ? 3 : 4.5)) bad.push([ratio, e.textContent.slice(0, 60), style.color]);
            }
            return { bad, page: light(rgb(w.getComputedStyle(d.body).backgroundColor)) };
            """,
            is_dark=is_dark,
        )  # fmt: skip
        assert (found["page"] < 0.2) is is_dark
        assert found["bad"] == []


def printed(browser: Any, page: Path) -> tuple[list[str], str]:
    """The text of each printed page, and where its words are."""
    show(browser, page)
    pdf = page.with_suffix(".pdf")
    pdf.write_bytes(base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"]))
    text, boxes = (output(tool("pdftotext"), form, pdf, "-") for form in ("-raw", "-bbox"))
    return text.split("\f")[:-1], boxes


@pytest.mark.parametrize("name", PAGES)
def test_print_loses_nothing(browser: Any, pages: Path, name: str) -> None:
    text, boxes = printed(browser, pages / f"{name}.html")
    size = None
    for line in boxes.splitlines():
        if (page := re.search(r'<page width="([\d.]+)"', line)) is not None:
            size = float(page[1])
        elif (word := re.search(r'<word xMin="([\d.]+)" .* xMax="([\d.]+)"', line)) is not None:
            assert size is not None
            assert float(word[1]) > 0
            assert float(word[2]) < size, line
    assert [page for page in text if len(page.split()) <= 20] == []
    whole = re.sub(r"\s+", "", "".join(text))
    if name == "study":
        study = make_study(metered=True, runs=RUNS)
        analysis = make_analysis(study, make_records(study, windows=40))
        for metric in analysis.metrics:
            assert whole.count(f"{metric.comparison.high:.3f}"[:5]) >= 1
        for arm in study.arms:
            assert re.sub(r"\s+", "", f"{arm.name}: {digests.of(arm.script.encode())}") in whole
            assert re.sub(r"\s+", "", arm.script.splitlines()[-1]) not in whole
        for wanted in (
            "ratio[interval]",
            "warm-up0",
            "Writtenby",
        ):
            assert wanted in whole
        assert len(text) <= 5
    if name == "three":
        assert whole.count("Themachine") == 1
        assert len(text) <= 5
    if name == "points":
        assert len(text) <= 6
        assert whole.count("Themachine") == 1
        for point in range(6):
            assert whole.count(f"sif/bare,{make_matrix().point_text(point)}".replace(" ", "")) >= 2


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_picture_can_be_taken(browser: Any, pages: Path, is_dark: bool) -> None:
    for name in PAGES:
        show(browser, pages / f"{name}.html", dark=is_dark)
        assert len(browser.get_screenshot_as_png()) > 10_000
