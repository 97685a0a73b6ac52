"""The written pages: links lead somewhere, commands are accepted, and the words are those of the glossary."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import pytest

from bareboat.cli.main import VERBS, _parser
from bareboat.model.job import KEYS

ROOT = Path(__file__).parents[2]
PAGES = [page.relative_to(ROOT) for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))]

sys.path.insert(0, str(ROOT / "docs" / "tools"))

import reference_pages  # noqa: E402

#: Pages of the site that `make docs` writes.
GENERATED = {ROOT / "docs" / name for name in reference_pages.pages()}

#: Words of the old dialect, for which the glossary has others.
DIALECT = re.compile(r"\b(told|tells?|heed(s|ed)?|mend(s|ed)?|folders?|hand(s|ed|ing)? over)\b", re.I)


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


def test_the_page_of_keys_is_that_of_the_types() -> None:
    written = (ROOT / "docs" / "keys.md").read_text()
    assert written == reference_pages.keys_page(), "run: python docs/tools/keys_page.py"
    heads = re.findall(r"^## .*$", written, re.MULTILINE)
    assert len(heads) == len(set(heads)) > 3
    assert re.findall(r"^### `([\w.]+)`$", written, re.MULTILINE) == list(KEYS)


def test_code_of_the_reference_fits_80_columns_and_keeps_its_defaults() -> None:
    pages = reference_pages.pages()
    for name, text in pages.items():
        for block in re.findall(r"^```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            assert [line for line in block.splitlines() if len(line) > 80] == [], name
    (python,) = (text for name, text in pages.items() if name.endswith("python.md"))
    assert "\n    remedy: str = '',\n" in python
    assert re.findall(r"= [,)]", python) == []


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


def test_words_are_those_of_the_glossary(page: Path) -> None:
    text = re.sub(r"`[^`]*`|\(not [a-z]+\)", "", prose(page))
    assert [found.group() for found in DIALECT.finditer(text)] == []


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
