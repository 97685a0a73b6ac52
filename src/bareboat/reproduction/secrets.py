"""Pure: words of a command that may be secrets. A lock is made to be shared, so none may be in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bareboat.model import looks_secret

#: Forms of tokens that their issuers document: GitHub, GitLab, Hugging Face, Slack, AWS, OpenAI.
_TOKEN = re.compile(
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{20,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|sk-[\w-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_PASSWORD_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
#: Flags whose names look like secrets and whose values are not.
_HARMLESS = re.compile(
    r"--?(max[-_].*|n[-_].*|num[-_].*|.*[-_]tokens?[-_](len|length|count|size)|keys?|.*tokenizer.*)",
    re.IGNORECASE,
)


def found_in(command: Sequence[str]) -> str | None:
    """What looks like a secret, named without its value; None: nothing."""
    for at, word in enumerate(command):
        if _TOKEN.search(word):
            return f"word {at + 1} of the command has the form of an access token"
        if _PASSWORD_IN_URL.search(word):
            return f"word {at + 1} of the command is a URL with a password"
        flag, equals, value = word.partition("=")
        value = value if equals else (command[at + 1] if at + 1 < len(command) else "")
        if not flag.startswith("-") or not value or value.startswith("-"):
            continue
        name = flag.lstrip("-").replace("-", "_")
        if looks_secret(name) and not _HARMLESS.fullmatch(flag) and not value.isdecimal():
            return f"{flag} of the command has the name of a secret"
    return None
