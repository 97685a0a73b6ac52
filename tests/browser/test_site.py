"""The site in Chromium, with the network cut off: links, search, narrow screens, light and dark.

`--basetemp DIR` keeps the screenshots below DIR.
"""

import base64
import importlib.util
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from chromium import show
from tools import output, tool

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("Sphinx is not installed: pip install -e '.[docs]'")
    output = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, str(ROOT / "docs" / "tools" / "build_site.py"), str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return output


class _Links(HTMLParser):
    """The addresses of a page's links."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._page = page
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href")
        if tag == "a" and address:
            self.found.add(urljoin(self._page.as_uri(), address))


#: Opens pages in frames, side by side and not drawn, and waits for all.
_FRAMES = """
const [addresses, done] = arguments;
let left = addresses.length;
document.body.replaceChildren(...addresses.map((address) => {
  const frame = document.createElement("iframe");
  frame.hidden = true;
  frame.onload = () => { if (--left === 0) done(true); };
  frame.src = address;
  return frame;
}));
"""


def test_every_page_is_reached_from_the_first_by_links(browser: Any, site: Path, tmp_path: Path) -> None:
    """Breadth first, by the links that the pages have; none leads nowhere, and every page opens."""
    seen, waiting = set(), [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        for link in {link.partition("#")[0] for link in _Links(page).found if link.startswith("file:")}:
            target = Path(link.removeprefix("file://"))
            assert target.is_file(), f"{page.name} links to {target}"
            if target.suffix == ".html":
                waiting.append(target)
    missing = {page for page in site.rglob("*.html") if page.name != "genindex.html"} - seen
    assert {page.name for page in missing} <= {"search.html"}
    show(browser, site / "index.html")
    links = browser.execute_script("return [...document.querySelectorAll('a[href]')].map(a => a.href)")
    ours, theirs = (
        {each.rstrip("#/") for each in all_of} for all_of in (_Links(site / "index.html").found, links)
    )
    assert ours == theirs, "no script adds a link"
    table = browser.execute_script(
        "return [...document.querySelectorAll('article table a')].map(a => a.href)"
    )
    assert any(each.endswith("keys.html") for each in table), "pages that are made have links, too"
    (tmp_path / "frames.html").write_text("<!doctype html><title>frames</title>")
    browser.get((tmp_path / "frames.html").as_uri())
    addresses = sorted(page.as_uri() for page in seen)
    for start in range(0, len(addresses), 12):
        assert browser.execute_async_script(_FRAMES, addresses[start : start + 12])


def test_a_click_in_the_navigation_opens_the_page(browser: Any, site: Path) -> None:
    from selenium.webdriver.common.by import By

    show(browser, site / "index.html")
    browser.find_element(By.CSS_SELECTOR, ".sidebar-tree").find_element(By.LINK_TEXT, "Tutorial").click()
    assert browser.find_element(By.TAG_NAME, "h1").text.startswith("Tutorial")


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("equivalence", "measurement.html"),
        ("--ranks-per-node", "job-file.html"),
        ("udocker", "comparison.html"),
        ("disk space", "trouble.html"),
        ("uninstall", "trouble.html"),
        ("environment variable", "reference/settings.html"),
        ("DataLoader", "meter.html"),
        ("Python 3.9", "trouble.html"),
        ("time limit", "failures.html"),
    ],
)
def test_search_finds_pages_without_a_network(browser: Any, site: Path, words: str, page: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, site / "index.html")
    field = browser.find_element(By.CSS_SELECTOR, ".sidebar-search")
    field.send_keys(words, Keys.ENTER)
    found = WebDriverWait(browser, 30).until(
        lambda shown: [
            a.get_attribute("href") for a in shown.find_elements(By.CSS_SELECTOR, "#search-results li a")
        ]
    )
    WebDriverWait(browser, 30).until(
        lambda shown: any(
            page in (a.get_attribute("href") or "")
            for a in shown.find_elements(By.CSS_SELECTOR, "#search-results li a")
        ),
        f"{words}: {found}",
    )


@pytest.mark.parametrize(
    ("words", "address", "excerpt"),
    [
        ("--prepare", "reference/bareboat-plan.html", "capture or pull the image first"),
        ("ranks_per_node", "keys.html", "processes"),
        ("too noisy", "verdict.html", "too noisy"),
    ],
)
def test_search_shows_keys_flags_and_sections_with_excerpts(
    browser: Any, site: Path, words: str, address: str, excerpt: str
) -> None:
    show(browser, site / "index.html")
    browser.get(f"{(site / 'search.html').as_uri()}?q={words}")
    from selenium.webdriver.support.ui import WebDriverWait

    def results(shown: Any) -> list[list[str]]:
        script = "return [...document.querySelectorAll('.search.found li')].map("
        script += "(e) => [e.querySelector('a').href, e.querySelector('p').textContent])"
        return shown.execute_script(script)  # type: ignore[no-any-return]

    found = WebDriverWait(browser, 30).until(results)
    ours = [text for link, text in found[:12] if address in link]
    assert ours, found
    assert any(excerpt in text for text in ours), ours
    assert all("#" in link for link, _ in found)


PAGES = (
    "index",
    "tutorial",
    "performance",
    "engines",
    "job-file",
    "reference/bareboat-run",
    "keys",
)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [420, 1400])
def test_pages_fit_and_can_be_read(
    browser: Any, site: Path, page: str, width: int, dark: bool, tmp_path: Path
) -> None:
    """No page is wider than the screen (wide tables scroll in themselves), and text contrasts with its
    background (WCAG AA: 4.5)."""
    show(browser, site / f"{page}.html", width=width, dark=dark)
    wide = browser.execute_script(
        "return Math.max(document.documentElement.scrollWidth,"
        " document.querySelector('article').getBoundingClientRect().right)"
    )
    browser.save_screenshot(os.fspath(tmp_path / f"{page.replace('/', '-')}-{width}.png"))
    assert wide <= width
    for selector in ("article p", "article code", "article pre", "article a", ".sidebar-tree a"):
        contrast = browser.execute_script(_CONTRAST, selector)
        assert contrast is None or contrast >= 4.5, (selector, contrast)


@pytest.mark.parametrize("page", ["tutorial", "keys"])
def test_print_has_no_part_of_the_screen(browser: Any, site: Path, page: str, tmp_path: Path) -> None:
    show(browser, site / f"{page}.html")
    pdf = tmp_path / f"{page}.pdf"
    pdf.write_bytes(base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"]))
    text = output(tool("pdftotext"), "-raw", pdf, "-")
    assert "Skip to content" not in text
    assert "bareboat config" in text or "walltime_s" in text


def test_a_flag_in_a_sentence_is_not_broken(browser: Any, site: Path) -> None:
    """At its hyphens; so it is found and copied as it is."""
    for page, width in (("keys", 420), ("verdict", 800), ("tutorial", 1400)):
        show(browser, site / f"{page}.html", width=width)
        broken = browser.execute_script(
            "const codes = [...document.querySelectorAll('article p code')];"
            "return codes.filter((e) => e.textContent.length <= 24 && e.getClientRects().length > 1)"
            ".map((e) => e.textContent)"
        )
        assert broken == []


#: The contrast ratio of the first element of a selector with the first opaque background behind it.
_CONTRAST = """
const element = document.querySelector(arguments[0]);
if (!element) return null;
const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
let behind = element, ground = [255, 255, 255];
while (behind) {
  const colour = parse(getComputedStyle(behind).backgroundColor);
  if (colour.length === 3 || colour[3] > 0.99) { ground = colour; break; }
  behind = behind.parentElement;
}
const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground)].sort((x, y) => y - x);
return (a + 0.05) / (b + 0.05);
"""


def test_the_recording_and_the_picture_are_shown(browser: Any, site: Path) -> None:
    show(browser, site / "index.html")
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('img.recording, img.report')].map(i => i.naturalWidth)"
    )
    assert len(sizes) == 3  # the picture is there in light and dark
    assert all(size > 300 for size in sizes)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_picture_of_the_report_is_dark_in_the_dark(browser: Any, site: Path, dark: bool) -> None:
    show(browser, site / "index.html", dark=dark)
    shown = browser.execute_script(
        "return [...document.querySelectorAll('img.report')].filter((e) => e.offsetParent)"
        ".map((e) => [e.src.split('/').pop(), e.naturalWidth])"
    )
    assert shown == [["report-dark.png" if dark else "report.png", 1200]]
