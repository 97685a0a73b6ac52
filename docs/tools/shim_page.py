"""Write the tables of shims into docs/shims.md: `python docs/tools/shim_page.py`. A test compares them."""

from __future__ import annotations

from pathlib import Path

from bareboat_shim import page
from bareboat_shim.apptainer_table import TABLE

PAGE = Path(__file__).parents[1] / "shims.md"


def text(written: str) -> str:
    """The page: what is written by hand, and the tables."""
    return f"{written.partition(page.MARK)[0]}{page.MARK}\n\n{page.reference(TABLE)}"


if __name__ == "__main__":
    PAGE.write_text(text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
