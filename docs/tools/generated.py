"""The parts of pages that are made from the program: python docs/tools/generated.py keys

The site has them in the place of a page's mark; the repository names this command there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import lint_rules
import reference_pages
import shim_page

from bareboat_shim import tools

#: Name of a mark -> its text.
PARTS: dict[str, Callable[[], str]] = {
    "keys": reference_pages.keys,
    "lint": lint_rules.text,
    "apptainer": lambda: shim_page.reference(tools.table("apptainer")),
    "udocker": lambda: shim_page.reference(tools.table("udocker")),
    "srun": lambda: shim_page.reference(tools.table("srun")),
}
#: A mark, and the line that the repository shows.
_MARK = re.compile(r"<!-- generated: (\w+) -->\n\n.*")


def filled(page: str) -> str:
    """The page with the parts that it names."""
    return _MARK.sub(lambda mark: PARTS[mark[1]](), page)


if __name__ == "__main__":
    print(PARTS[sys.argv[1]]())
