"""Write docs/keys.md: `python docs/tools/keys_page.py`. A test compares the two."""

from __future__ import annotations

from reference_pages import ROOT, keys_page

PAGE = ROOT / "docs" / "keys.md"

if __name__ == "__main__":
    PAGE.write_text(keys_page(), encoding="utf-8")
