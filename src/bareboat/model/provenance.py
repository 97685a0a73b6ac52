"""What a run was made from, as recorded when it began: its code, its environment variables, its machine."""

from __future__ import annotations

from msgspec import Struct, field

from bareboat.model.site import Site


class CodeFile(Struct, frozen=True, kw_only=True):
    """A file that the job's command names, or that such a Python script imports. `path`: relative to the
    working directory. `sha256`: in hexadecimal; "": larger files are not read. `text`: its content, kept of
    small text files."""

    path: str
    size_bytes: int
    sha256: str = ""
    text: str | None = None


class Repository(Struct, frozen=True, kw_only=True):
    """The git repository that holds the working directory, `below` its top. `remote`: without credentials.
    `difference`: what changed since the commit, as git shows it: "" for nothing; None: not recorded."""

    commit: str
    below: str = ""
    branch: str = ""
    remote: str = ""
    difference: str | None = None


class Code(Struct, frozen=True, kw_only=True):
    """The code of a job. `notes`: what was not recorded, and why."""

    folder: str
    repository: Repository | None = None
    files: tuple[CodeFile, ...] = ()
    notes: tuple[str, ...] = ()


class Provenance(Struct, frozen=True, kw_only=True):
    """Recorded when a run begins. `environment`: the job's own variables without those that may be secrets;
    `withheld`: the names of these. `site`: where the run was submitted or started."""

    schema: int = 1
    bareboat_version: str
    environment: dict[str, str] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    code: Code | None = None
    site: Site
