"""ADD from URLs. A separate module, because few builds need its imports."""

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

from bareboat_base.errors import ImageError
from bareboat_images.builder.work import Work
from bareboat_images.recipe.instructions import Instruction

_CHUNK = 1 << 20
#: Interval of checks whether the build was stopped.
_LOOK_S = 0.1
_LARGEST_DOWNLOAD = 64 << 30
_TIMEOUT_S = 60.0
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
