"""ADD from URLs and git repositories. A separate module, because few builds need its imports."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import posixpath
import shutil
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from email.utils import parsedate_to_datetime
from pathlib import Path

from bareboat_base import execute
from bareboat_base.errors import ImageError
from bareboat_base.printable import quoted
from bareboat_images.builder.copying import Source
from bareboat_images.builder.files import Files
from bareboat_images.builder.work import Work
from bareboat_images.recipe.instructions import Instruction

_CHUNK = 1 << 20
#: Interval of checks whether the build was stopped.
_LOOK_S = 0.1
_LARGEST_DOWNLOAD = 64 << 30
_TIMEOUT_S = 60.0
_GIT_S = 3600.0
_NO_ANSWER = (
    urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError, ValueError,
)  # fmt: skip


def downloaded(step: Instruction, work: Work, url: str, checksum: str) -> tuple[Path, str]:
    """Download a URL; return the directory and the file name. A file with a checksum is kept for later."""
    name = posixpath.basename(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
    if not name or name in (".", "..") or "\0" in name or "/" in name:
        raise step.fault(f"{url} names no file", remedy="use a URL that ends in a file name")
    kept = work.store.builds() / "downloads" / checksum.replace(":", "-") if checksum else None
    folder = work.folder("download")
    folder.mkdir()
    if kept is not None and not work.options.no_cache and kept.is_file():
        with contextlib.suppress(OSError):
            shutil.copy2(kept, folder / name)
            if _digest(folder / name, checksum) == checksum:
                return folder, name
        (folder / name).unlink(missing_ok=True)
    _fetch(work, url, folder / name)
    if checksum and (found := _digest(folder / name, checksum)) != checksum:
        raise ImageError(
            f"{url} does not match its checksum",
            context=f"expected {checksum}\nfound    {found}",
            remedy=f"check the file; to accept it: --checksum={found}",
        )
    (folder / name).chmod(0o600)
    if kept is not None:
        with work.store.scratch(own=True) as scratch:
            shutil.copy2(folder / name, scratch / "file")
            work.store.publish(scratch / "file", kept)
    return folder, name


def _digest(path: Path, like: str) -> str:
    hashed = hashlib.new(like.partition(":")[0])
    with open(path, "rb") as stream:
        while data := stream.read(_CHUNK):
            hashed.update(data)
    return f"{hashed.name}:{hashed.hexdigest()}"


def _fetch(work: Work, url: str, path: Path) -> None:
    """Download in a thread of its own, which is left alone when the build is stopped: a server that sends
    nothing must not delay the answer to Ctrl-C."""
    errors: list[BaseException] = []

    def receive() -> None:
        try:
            _receive(work, url, path)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=receive, daemon=True, name="download")
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_S)
        work.check_stopped()
    if errors:
        raise errors[0]


def _receive(work: Work, url: str, path: Path) -> None:
    done = 0
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "bareboat"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer, open(path, "xb") as stream:
            total = int(answer.headers.get("Content-Length") or 0)
            while data := answer.read(_CHUNK):
                work.check_stopped()
                stream.write(data)
                done += len(data)
                if done > _LARGEST_DOWNLOAD:
                    raise ImageError(f"{url} is larger than {_LARGEST_DOWNLOAD:,} bytes")
                work.reporter.bytes(f"downloading {path.name}", done, total)
            moment = answer.headers.get("Last-Modified")
            length = answer.headers.get("Content-Length")
    except _NO_ANSWER as error:
        reason = getattr(error, "reason", error)
        if isinstance(error, urllib.error.HTTPError):
            reason = f"HTTP {error.code} {error.reason}"
        raise ImageError(
            f"{url} cannot be downloaded: {reason}",
            remedy="check the URL and the network; proxies are read from https_proxy",
        ) from None
    if length is not None and done != int(length):
        raise ImageError(f"{url} ended after {done:,} of {int(length):,} bytes", remedy="build again")
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        at = parsedate_to_datetime(moment).timestamp() if moment else 0.0
        os.utime(path, (at, at))


def cloned(step: Instruction, work: Work, url: str, checksum: str) -> Source:
    """Fetch a commit of a repository with this machine's git."""
    if execute.which("git") is None:
        raise step.fault(
            "git is not installed on this machine", remedy="install git, or add an archive instead"
        )
    address, _, fragment = url.partition("#")
    ref, _, inner = fragment.partition(":")
    folder = work.folder("git")
    folder.mkdir()
    if address.startswith("-") or ref.startswith("-"):
        raise step.fault(
            f"{quoted(url)} is not a repository", remedy="ADD https://HOST/NAME.git#BRANCH /target"
        )
    commands = [
        ["init", "-q"],
        ["fetch", "-q", "--depth", "1", "--", address, ref or "HEAD"],
        ["-c", "advice.detachedHead=false", "checkout", "-q", "FETCH_HEAD"],
        ["rev-parse", "HEAD"],
    ]
    for command in commands:
        outcome = execute.run(
            [*_GIT_COMMAND, *command], environment=_git_environment(folder), folder=str(folder),
            timeout_s=_GIT_S,
        )  # fmt: skip
        if not outcome.ok:
            raise ImageError(
                f"git cannot fetch {address}",
                context=outcome.stderr.strip(),
                remedy="check the URL and the branch",
            )
    commit = outcome.stdout.strip()
    if checksum and not commit.startswith(checksum):
        raise ImageError(
            f"{address} is not at the commit {checksum}",
            context=f"found {commit}",
            remedy=f"--checksum={commit}",
        )
    if not step.switch("keep-git-dir"):
        from bareboat_base.files.trees import remove_tree

        remove_tree(folder / ".git")
    files = Files([folder], name=f"the repository {address}")
    return Source(files=files, items=tuple(files.select(inner or "/")))


#: The umask determines the modes of files that git writes, and so their modes in the image.
_GIT_COMMAND = ("sh", "-c", 'umask 022 && exec git "$@"', "git")
#: Variables for access to a server. Others with the prefix GIT_ may refer to another repository, which
#: checkout would change.
_GIT_KEPT = (
    "GIT_SSH", "GIT_SSL_", "GIT_HTTP_", "GIT_PROXY_", "GIT_ASKPASS", "GIT_ALLOW_PROTOCOL",
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH",
)  # fmt: skip


def _git_environment(folder: Path) -> dict[str, str]:
    """Environment variables for git that select only the repository in this directory."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_GIT_KEPT)
    }
    own = {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}
    return {**kept, **own, "GIT_TERMINAL_PROMPT": "0"}
