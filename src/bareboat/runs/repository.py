"""The git repository around a directory: its commit, its remote, and what changed since the commit.

The repository's own configuration is never in force: it can name programs (filters, monitors, pagers) that
git starts, and these would run outside of any container. So the commit and the remote are read from files,
and git gets a configuration of its own beside the repository's objects and index.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bareboat.model.provenance import Repository
from bareboat_base import execute
from bareboat_base.errors import ToolError
from bareboat_base.expressions import expression
from bareboat_base.files import ownership, untrusted
from bareboat_base.printable import one_line

#: Longer differences are not kept: they would not fit into a lock.
MOST_DIFFERENCE_BYTES = 256 << 10
#: A large repository on a slow file system must not delay a run.
_DIFFERENCE_S = 5.0
_MOST_LEVELS = 64
#: The index of a million files is about 100 MB.
_MOST_INDEX_BYTES = 256 << 20
_COMMIT = expression(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
_CONFIG_SHA256 = (
    "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat = sha256\n"
)


class Found(NamedTuple):
    """The repository, and why something of it is not recorded."""

    repository: Repository
    notes: tuple[str, ...] = ()


def find(folder: Path, skipped: Callable[[str], None] = lambda _: None) -> Found | None:
    """The repository that holds the directory; None without one, or with one that has no commit.

    Repositories of other users are passed over, as git does: anyone can create one above the directory, in
    /tmp for example. `skipped` is called with the reason.
    """
    for top in [folder, *folder.parents][:_MOST_LEVELS]:
        if not os.path.lexists(top / ".git"):
            continue
        own = _git_folder(top)
        common = None if own is None else own / _line(own / "commondir")  # of all worktrees
        if doubt := _doubt(top, own, common):
            skipped(f"the repository at {one_line(str(top))} is not recorded: {one_line(doubt)}")
            continue
        return _read(folder, top, own, common) if own is not None and common is not None else None
    return None


def _doubt(top: Path, own: Path | None, common: Path | None) -> str | None:
    """Why the repository is not the user's. The directories above and the group's rights do not count, as for
    git: projects often lie in a directory of a group's leader.

    Source: safe.directory in git-config(1).
    """
    trusted = (0, os.geteuid())
    for path in (top, top / ".git", own, common):
        if path is None:
            continue
        try:
            states = (path.lstat(), path.stat())
        except OSError as error:
            return f"{path} cannot be examined: {error.strerror}"
        if stranger := next((each.st_uid for each in states if each.st_uid not in trusted), None):
            return f"{path} belongs to {ownership.name_of(stranger)}"
        if path != top and states[1].st_mode & stat.S_IWOTH:
            return f"{path} is writable by every user"
    return None


def _read(folder: Path, top: Path, own: Path, common: Path) -> Found | None:
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
    if os.path.isdir(path):
        return path
    line = _line(path)  # of a worktree or a submodule
    return (top / line.removeprefix("gitdir:").strip()) if line.startswith("gitdir:") else None


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
    import tempfile  # few jobs are in a repository

    with tempfile.TemporaryDirectory(prefix="bareboat-git-", dir=ownership.temporary_directory()) as scratch:
        place = Path(scratch)
        (place / "refs").mkdir()
        (place / "HEAD").write_text(commit + "\n")
        (place / "config").write_text(_CONFIG if len(commit) == 40 else _CONFIG_SHA256)
        try:  # `git diff` refreshes the index and locks it meanwhile: the user's own git would fail
            state = os.stat(own / "index")
            index = untrusted.read_bytes(own / "index", limit=_MOST_INDEX_BYTES)
        except OSError as error:
            return None, f"the difference to the commit is not recorded: the index: {error.strerror}"
        (place / "index").write_bytes(index)
        # Git uses this time to find files that may have changed after it read them.
        os.utime(place / "index", ns=(state.st_atime_ns, state.st_mtime_ns))
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "GIT_DIR": scratch,
            "GIT_WORK_TREE": str(top),
            "GIT_OBJECT_DIRECTORY": str(common / "objects"),
            "GIT_INDEX_FILE": str(place / "index"),
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
                watch=execute.Watch(most_bytes=MOST_DIFFERENCE_BYTES),
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
