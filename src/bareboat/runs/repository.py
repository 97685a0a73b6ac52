"""The git repository around a directory: its commit, its remote, and what changed since the commit.

The repository's own configuration is never in force: it can name programs (filters, monitors, pagers) that
git starts, and these would run outside of any container. So the commit and the remote are read from files,
and git gets a configuration of its own beside the repository's objects and index.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from bareboat import execute
from bareboat.errors import ToolError
from bareboat.files import untrusted
from bareboat.model.provenance import Repository

#: Longer differences are not kept: they would not fit into a lock.
MOST_DIFFERENCE_BYTES = 256 << 10
#: A large repository on a slow file system must not delay a run.
_DIFFERENCE_S = 5.0
_MOST_LEVELS = 64
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
_CONFIG_SHA256 = (
    "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat = sha256\n"
)


class Found(NamedTuple):
    """The repository, and why something of it is not recorded."""

    repository: Repository
    notes: tuple[str, ...] = ()


def find(folder: Path) -> Found | None:
    """The repository that holds the directory; None without one, or with one that has no commit."""
    top = next((each for each in [folder, *folder.parents][:_MOST_LEVELS] if (each / ".git").exists()), None)
    if top is None:
        return None
    own = _git_folder(top)
    if own is None:
        return None
    common = _common(own)
    commit, branch = _head(own, common)
    if commit is None:
        return None
    difference, note = _difference(top, own, common, commit)
    found = Repository(
        commit=commit,
        below=str(folder.relative_to(top)) if folder != top else "",
        branch=branch,
        remote=without_credentials(_remote(common)),
        difference=difference,
    )
    return Found(found, (note,) if note else ())


def without_credentials(url: str) -> str:
    """The URL of a remote without the user and password in it; ssh needs the user."""
    return re.sub(r"^(https?://)[^/@]*@", r"\1", url)


def _git_folder(top: Path) -> Path | None:
    path = top / ".git"
    if path.is_dir():
        return path
    line = _line(path)  # of a worktree or a submodule
    return (top / line.removeprefix("gitdir:").strip()) if line.startswith("gitdir:") else None


def _common(own: Path) -> Path:
    """The directory of what all worktrees share."""
    line = _line(own / "commondir")
    return own / line if line else own


def _head(own: Path, common: Path) -> tuple[str | None, str]:
    """The commit and the branch."""
    line = _line(own / "HEAD")
    if not line.startswith("ref: "):
        return (line if _COMMIT.fullmatch(line) else None), ""
    name = line.removeprefix("ref: ")
    branch = name.removeprefix("refs/heads/")
    if ".." in name or name.startswith("/"):
        return None, ""
    for folder in (own, common):
        if _COMMIT.fullmatch(found := _line(folder / name)):
            return found, branch
    for packed in _text(common / "packed-refs").splitlines():
        commit, _, ref = packed.partition(" ")
        if ref == name and _COMMIT.fullmatch(commit):
            return commit, branch
    return None, ""


def _remote(common: Path) -> str:
    """The URL of `origin`, else of the first remote."""
    urls: dict[str, str] = {}
    section = ""
    for line in _text(common / "config").splitlines():
        if (head := re.fullmatch(r'\s*\[remote "([^"]*)"\]\s*', line)) is not None:
            section = head[1]
        elif line.lstrip().startswith("["):
            section = ""
        elif section and (value := re.fullmatch(r"\s*url\s*=\s*(\S+)\s*", line)) is not None:
            urls.setdefault(section, value[1])
    return urls.get("origin") or next(iter(urls.values()), "")


def _difference(top: Path, own: Path, common: Path, commit: str) -> tuple[str | None, str]:
    """What changed in the files that git tracks, and why it is not recorded."""
    if not (own / "index").exists():
        return None, "the difference to the commit is not recorded: the repository has no index"
    with tempfile.TemporaryDirectory(prefix="bareboat-git-") as scratch:
        place = Path(scratch)
        (place / "refs").mkdir()
        (place / "HEAD").write_text(commit + "\n")
        (place / "config").write_text(_CONFIG if len(commit) == 40 else _CONFIG_SHA256)
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "GIT_DIR": scratch,
            "GIT_WORK_TREE": str(top),
            "GIT_OBJECT_DIRECTORY": str(common / "objects"),
            "GIT_INDEX_FILE": str(own / "index"),
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "LC_ALL": "C.UTF-8",
        }
        argv = (
            "git", "diff", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv",
            "--no-renames", "--ignore-submodules=all", commit,
        )  # fmt: skip
        try:
            done = execute.run(
                argv, environment=environment, folder=str(top), timeout_s=_DIFFERENCE_S,
                most_bytes=MOST_DIFFERENCE_BYTES,
            )  # fmt: skip
        except ToolError as error:
            return None, f"the difference to the commit is not recorded: {error.message}"
    if done.exit_code == 127:
        return None, "the difference to the commit is not recorded: git is not installed"
    if not done.ok:
        reason = done.stderr.strip().splitlines()
        return None, f"the difference to the commit is not recorded: {reason[0] if reason else 'git failed'}"
    return done.stdout, ""


def _line(path: Path) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: Path) -> str:
    try:
        return untrusted.read_text(path, limit=16 << 20)
    except OSError:
        return ""
