"""Pure: texts that may hold a secret. What is recorded of a run is made to be shared, so it may hold none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from bareboat.model import looks_secret
from bareboat.model.provenance import Code, CodeFile
from bareboat_base import secret_forms
from bareboat_base.expressions import expression

#: Files whose names show that they contain only secrets.
_SECRET_FILE = expression(
    r"(.*[._-])?(tokens?|secrets?|credentials?|passw(or)?ds?|api_?keys?|netrc|pgpass|env|id_(rsa|ed25519|ecdsa))"
    r"(\.(txt|json|ya?ml|toml|ini|cfg|conf|env|key|pem))?",
    re.IGNORECASE,
)


def form(text: str) -> str | None:
    """What the text has in it, to follow "it has"; None: nothing that is known."""
    if next(secret_forms.tokens(text), None) or secret_forms.PRIVATE_KEY.search(text):
        return "the form of an access token or a private key"
    if secret_forms.PASSWORD_IN_URL.search(text):
        return "a URL with a password"
    return None


def names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables whose names or values may be secrets, sorted."""
    return tuple(sorted(key for key, value in environment.items() if looks_secret(key) or form(value)))


def of_code(code: Code) -> Code:
    """The code with the digests alone of files that may hold secrets, and without such a difference."""
    notes = list(code.notes)
    files = tuple(_file(file, notes) for file in code.files)
    found = code.repository
    if found is not None and found.difference and (what := form(found.difference)) is not None:
        notes.append(f"the difference to the commit: it has {what}")
        found = msgspec.structs.replace(found, difference=None)
    return msgspec.structs.replace(code, repository=found, files=files, notes=tuple(notes))


def _file(file: CodeFile, notes: list[str]) -> CodeFile:
    if file.text is None:
        return file
    what = form(file.text)
    if what is None and not _SECRET_FILE.fullmatch(PurePosixPath(file.path).name):
        return file
    notes.append(f"the content of {file.path}: it has {what or 'the name of a secret'}"[:300])
    return msgspec.structs.replace(file, text=None)
