"""The package lists that recipes install from, and their readers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from bareboat.project.recipes import other_lists, python_lists
from bareboat.project.recipes.listed import Listed
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line

#: Lists that recipes install from: file -> how. The first that a project has is used.
KINDS: Mapping[str, str] = {
    "uv.lock": "uv",
    "pylock.toml": "pylock",
    "poetry.lock": "poetry",
    "pdm.lock": "pdm",
    "Pipfile.lock": "pipenv",
    "pixi.lock": "pixi",
    "conda-lock.yml": "conda-lock",
    "conda-linux-64.lock": "conda-explicit",
    "renv.lock": "renv",
    "Manifest.toml": "julia",
    "requirements.txt": "requirements",
    "environment.yml": "conda",
    "environment.yaml": "conda",
    "pyproject.toml": "project",
    "setup.py": "setup",
}
#: Those that need a second file beside them.
COMPANIONS = {
    "uv": "pyproject.toml", "poetry": "pyproject.toml", "pdm": "pyproject.toml", "pipenv": "Pipfile",
    "julia": "Project.toml",
}  # fmt: skip


def read(file: str, text: str, companion: str = "") -> Listed:
    """Read a package list. `companion`: the content of the file that belongs to it. Raises UsageError for a
    list that is damaged."""
    kind = KINDS.get(file.rpartition("/")[2], "requirements")
    readers: Mapping[str, Callable[[str, str], Listed]] = {
        "uv": python_lists.uv, "pylock": python_lists.pylock, "poetry": python_lists.poetry,
        "pdm": python_lists.pdm, "pipenv": python_lists.pipenv, "project": python_lists.project,
        "setup": lambda *_: Listed(kind="project", packages={}, builds=True),
        "requirements": lambda each, _other: python_lists.requirements(each),
        "pixi": other_lists.pixi, "conda-lock": other_lists.conda_lock,
        "conda-explicit": other_lists.conda_explicit, "conda": other_lists.conda, "renv": other_lists.renv,
        "julia": other_lists.julia,
    }  # fmt: skip
    try:
        found = readers[kind](text, companion)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{one_line(file)} cannot be read: it is not a valid list of its kind",
            context=one_line(str(error) or type(error).__name__),
            remedy=f"write {one_line(file)} again with its own tool, or name another list: --from FILE",
        ) from None
    return replace(found, file=file)
