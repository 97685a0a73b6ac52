"""Write the rules into docs/lint.md: `python docs/tools/lint_page.py`. A test compares the two."""

from __future__ import annotations

from pathlib import Path

from bareboat.lint import page

PAGE = Path(__file__).parents[1] / "lint.md"


def text(written: str) -> str:
    """The page: what is written by hand, and the rules."""
    return f"{written.partition(page.MARK)[0]}{page.MARK}\n\n{page.rules()}"


if __name__ == "__main__":
    PAGE.write_text(text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
