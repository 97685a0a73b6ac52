"""Write the tables of shims into docs/shims.md: `python docs/tools/shim_page.py`. A test compares them."""

from __future__ import annotations

import re
from pathlib import Path

from bareboat_shim import page, tools

PAGE = Path(__file__).parents[1] / "shims.md"
TOOLS = ("apptainer", "udocker", "docker", "srun")


def text(written: str) -> str:
    """The page: what is written by hand, and the tables at the end of the sections of tools."""
    for tool in TOOLS:
        mark = page.MARK.format(tool=tool)
        section = re.compile(rf"{re.escape(mark)}.*?(?=\n## |\Z)", re.DOTALL)
        tables = f"{mark}\n\n{page.reference(tools.table(tool))}"
        written = section.sub(tables.replace("\\", r"\\"), written)
    return written


if __name__ == "__main__":
    PAGE.write_text(text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
