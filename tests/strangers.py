"""A second real user for the tests: a subordinate id that the system gave to the user who runs them.

To the kernel it is another user like any other: it owns files, and may not touch what is not its own.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Maps root to the caller and the numbers from 1 on to the caller's subordinate ids; then becomes number 1.
_BECOME = ("unshare", "--user", "--map-root-user", "--map-auto", "--", "setpriv", "--reuid=1")


def run_as_stranger(
    script: str, *arguments: str | Path, our_group: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a bash script as the other user, who with `our_group` is in the caller's group; skip the test where
    there is none."""
    argv = [
        *_BECOME,
        f"--regid={0 if our_group else 1}",
        "--clear-groups",
        "bash",
        "-euc",
        script,
        "stranger",
        *map(str, arguments),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode and not _can_become():
        pytest.skip("there is no second user: no subordinate ids for this user in /etc/subuid")
    return done


def own_as_stranger(path: Path) -> None:
    """Give a tree to the other user: copied by them, since nobody can give a file away."""
    script = 'umask 022; cp -r --no-preserve=ownership "$1" "$1.copy"; chmod -R go+rX "$1.copy"'
    holder = path.parent
    mode = holder.stat().st_mode
    holder.chmod(0o777)
    try:
        done = run_as_stranger(script, path)
    finally:
        holder.chmod(mode & 0o7777)
    assert done.returncode == 0, done.stderr
    _remove(path)
    os.rename(f"{path}.copy", path)
    assert path.stat().st_uid != os.getuid()


@contextlib.contextmanager
def copied_as_stranger(tree: Path) -> Iterator[Path]:
    """A copy of a tree that the other user owns and everyone can read."""
    top = Path(tempfile.mkdtemp(prefix="bareboat-theirs-", dir="/tmp"))
    try:
        top.chmod(0o755)
        shutil.copytree(tree, top / "tree", symlinks=True)
        (top / "tree").chmod(0o755)
        own_as_stranger(top / "tree")
        yield top / "tree"
    finally:
        top.chmod(0o777)
        run_as_stranger('rm -rf "$1"', top / "tree")
        shutil.rmtree(top)


def remove_as_stranger(path: Path) -> None:
    """Remove what the other user owns, which pytest could not."""
    done = run_as_stranger('rm -rf "$1" 2>/dev/null || rm -rf "$1"/* "$1"/.[!.]*', path)
    assert done.returncode == 0, done.stderr


def _can_become() -> bool:
    done = subprocess.run([*_BECOME, "--regid=1", "--clear-groups", "true"], capture_output=True, check=False)
    return done.returncode == 0


def _remove(path: Path) -> None:
    subprocess.run(["rm", "-rf", str(path)], check=True)
