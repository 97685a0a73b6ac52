"""Sphinx's configuration of the site, which loads nothing from a network."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

import bareboat

project = "Bareboat"
copyright = "the authors of Bareboat, Apache-2.0"
version = release = bareboat.__version__
extensions = ["myst_parser"]
smartquotes = False  # "--" is a flag's beginning
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"Bareboat {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["search.js"]
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
# The summaries would be fetched, which browsers refuse to pages that are opened as files.
html_show_search_summary = False
html_theme_options = {"navigation_with_keys": True}
# What code blocks with several languages or none are.
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]

#: Characters of inline code that stays on one line.
_SHORT_CODE = 24


def _keep_short_code(_app: Sphinx, page: Any) -> None:
    for code in page.findall(lambda node: node.tagname == "literal"):
        if len(code.astext()) <= _SHORT_CODE:
            code["classes"].append("short")


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", _keep_short_code)
