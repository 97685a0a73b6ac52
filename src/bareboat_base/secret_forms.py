"""Pure: the forms by which access tokens, private keys and passwords can be recognized in text.

A secret without a known form looks like other text. Each part of a pattern is bounded, so that a search takes
time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bareboat_base.expressions import expression

#: The forms that issuers document -> what has this form.
_TOKENS = (
    (r"A[KS]IA[0-9A-Z]{16}", "an AWS access key"),
    (r"gh[pousr]_[A-Za-z0-9]{20}|github_pat_\w{20}", "a GitHub token"),
    (r"glpat-[\w-]{20}", "a GitLab token"),
    (r"hf_[A-Za-z0-9]{20}", "a Hugging Face token"),
    (r"xox[abprs]-[\w-]{10}", "a Slack token"),
    (r"npm_[A-Za-z0-9]{36}", "an npm token"),
    (r"pypi-[\w-]{40}", "a PyPI token"),
    (r"dckr_pat_[\w-]{20}", "a Docker Hub token"),
    (r"sk-(?:[a-z0-9]{1,12}-){0,3}[A-Za-z0-9_]{20}|sk-[\w-]{32}", "an API key"),
    (r"AIza[\w-]{35}", "a Google API key"),
    (r"nvapi-[\w-]{40}", "an NVIDIA API key"),
    (r"eyJ[\w-]{10,1000}\.eyJ[\w-]{10,1000}\.[\w-]{10}", "a JSON web token"),
)
_TOKEN = expression(
    "(?<![A-Za-z0-9])(?:" + "|".join(f"(?P<t{n}>{form})" for n, (form, _) in enumerate(_TOKENS)) + ")"
)
PRIVATE_KEY = expression(
    r"-----BEGIN [A-Z0-9 ]{0,80}PRIVATE KEY(?: BLOCK)?-----|^PuTTY-User-Key-File", re.MULTILINE
)
PASSWORD_IN_URL = expression(r"(?<=[A-Za-z0-9+.-])://[^/\s:@]{0,200}:(?P<password>[^/\s@]{1,500})@")


def tokens(text: str) -> Iterator[str]:
    """What the tokens in the text are."""
    for match in _TOKEN.finditer(text):
        assert match.lastgroup is not None
        yield _TOKENS[int(match.lastgroup[1:])][1]
