"""The written pages: links lead somewhere, commands are accepted, and the words are those of the glossary."""

import argparse
import re
import sys
from pathlib import Path

import pytest

from bareboat.cli.main import VERBS, _parser
from bareboat.lint.registry import RULES
from bareboat.model.job import KEYS

ROOT = Path(__file__).parents[2]
PAGES = [page.relative_to(ROOT) for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))]

sys.path.insert(0, str(ROOT / "docs" / "tools"))

import generated  # noqa: E402
import reference_pages  # noqa: E402

#: Pages of the site that `make docs` writes.
GENERATED = {ROOT / "docs" / name for name in reference_pages.pages()}


@pytest.fixture(params=PAGES, ids=str)
def page(request: pytest.FixtureRequest) -> Path:
    return ROOT / request.param


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as code hosts form them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_and_the_first_page_have_the_same_table_of_pages() -> None:
    rows = [
        [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ") and "](" in line]
        for page in ("README.md", "docs/index.md")
    ]
    moved = [row.replace("](docs/", "](").replace("](CONTRIBUTING", "](../CONTRIBUTING") for row in rows[0]]
    assert [row for row in rows[1] if "](reference/" not in row] == moved
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_the_site_fills_the_parts_that_pages_name() -> None:
    """Each part on one page; the keys, rules and verbs are all there, and no mark is left."""
    texts = [page.read_text() for page in (ROOT / "docs").glob("*.md")]
    assert sorted(re.findall(r"<!-- generated: (\w+) -->", "".join(texts))) == sorted(generated.PARTS)
    filled = {name: generated.filled(f"<!-- generated: {name} -->\n\nline\n") for name in generated.PARTS}
    assert re.findall(r"^### `([\w.]+)`$", filled["keys"], re.MULTILINE) == list(KEYS)
    assert all(f"### {code}" in filled["lint"] for code in RULES)
    assert "| `pull` |" in filled["apptainer"]
    assert "<!--" not in "".join(filled.values())


def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if target in GENERATED:
            continue
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_commands_have_the_verbs_and_flags_that_pages_name(page: Path) -> None:
    for line in re.findall(r"(?:^(?:\$ )?|`)bareboat ([a-z][^`\n#;&|]*)", page.read_text(), re.MULTILINE):
        words = re.split(r" -- |(?<=\.py) ", line)[0].split()
        assert words[0] in VERBS, line
        parser, rest = parser_of(words)
        flags = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert flags <= set(parser._option_string_actions), line


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of the command's verb and action, and the words after them."""
    parser = _parser(words[:1])
    while words and parser._subparsers is not None:
        (choice,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
        if words[0] not in choice.choices:
            break
        parser, words = choice.choices[words[0]], words[1:]
    return parser, words
