"""The sources of COPY and ADD: paths, patterns, heredocs, and for ADD archives, URLs and git repositories."""

from __future__ import annotations

import bz2
import contextlib
import hashlib
import http.client
import lzma
import os
import posixpath
import re
import shutil
import ssl
import stat
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

from bareboat import execute
from bareboat.errors import ImageError
from bareboat.files import untrusted
from bareboat.images.build.copying import Source
from bareboat.images.build.files import Files, Item
from bareboat.images.build.work import Work
from bareboat.images.layers.limits import Limits
from bareboat.images.layers.unpack import unpack
from bareboat.images.oci.inflation import inflate
from bareboat.images.recipe.instructions import Instruction
from bareboat.images.recipe.lines import opening

_CHUNK = 1 << 20
_LARGEST_DOWNLOAD = 64 << 30
_TIMEOUT_S = 60.0
_GIT_S = 3600.0
_GIT = re.compile(r"(?:git@[^/:]+:.+|git://.+|ssh://.+|https?://.+\.git)(?:#.*)?")
_NO_ANSWER = (
    urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError, ValueError,
)  # fmt: skip
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


@contextlib.contextmanager
def sources(
    step: Instruction,
    given: Sequence[str],
    work: Work,
    source: Callable[[str], Files],
    expand: Callable[[str], str],
) -> Iterator[list[Source]]:
    """The sources of a step. `source`: the files of a stage or image by name, of the context without one;
    `expand`: of a heredoc. What is downloaded or unpacked is removed at the end. Raises RecipeError,
    ImageError, NotFoundError."""
    heredocs = {each.name: each for each in step.heredocs}
    checksum = step.flag("checksum") or ""
    if checksum and not _CHECKSUM.fullmatch(checksum) and not _GIT.fullmatch(given[0]):
        raise step.fault(f"--checksum={checksum[:80]!r} is not a digest", remedy="--checksum=sha256:…")
    if checksum and (len(given) != 1 or not _is_remote(given[0])):
        raise step.fault("--checksum requires one URL as the source", remedy="remove --checksum")
    found: list[Source] = []
    for number, text in enumerate(given):
        begun = opening(step.args[number], "\\") if not step.is_json else None
        if begun is not None and begun.name in heredocs:
            heredoc = heredocs[begun.name]
            content = expand(heredoc.data) if heredoc.expands else heredoc.data
            found.append(_written(work, begun.name, content.encode(errors="surrogateescape")))
        elif step.name == "ADD" and _GIT.fullmatch(text):
            found.append(_cloned(step, work, text, checksum))
        elif step.name == "ADD" and _is_remote(text):
            place, name = _downloaded(step, work, text, checksum)
            if step.switch("unpack"):
                found.append(_unpacked(step, work, str(place / name), name))
            else:
                found.append(_single(place, name, text))
        else:
            found += _local(step, work, text, source(step.flag("from") or ""))
    yield found


def _local(step: Instruction, work: Work, text: str, files: Files) -> Iterator[Source]:
    """Paths of the context or a stage; ADD unpacks archives unless it is told not to."""
    pivot: str | None = None
    if step.switch("parents"):
        before, mark, after = text.partition("/./")
        text = f"{before}/{after}" if mark else text
        pivot = posixpath.normpath(before).lstrip("/") if mark else ""
        pivot = "" if pivot == "." else pivot
    plain: list[Item] = []
    unpacks = step.name == "ADD" and step.flag("unpack") not in ("false", "0", "f")
    for item in files.select(text):
        if unpacks and stat.S_ISREG(item.state.st_mode) and is_archive(item.real):
            yield _unpacked(step, work, item.real, item.path)
        else:
            plain.append(item)
    if plain:
        yield Source(files=files, items=tuple(plain), base=pivot)


def _single(folder: Path, name: str, shown: str) -> Source:
    files = Files([folder], name=shown)
    return Source(files=files, items=tuple(files.select(name)))


def _written(work: Work, name: str, data: bytes) -> Source:
    folder = work.folder("heredoc")
    folder.mkdir()
    (folder / name).write_bytes(data)
    (folder / name).chmod(0o644)
    return _single(folder, name, f"the heredoc {name}")


# Archives.


def is_archive(path: str) -> bool:
    """Whether a file is a tar, plain or compressed by gzip, bzip2, xz or zstd."""
    with contextlib.suppress(OSError, EOFError, ImageError, lzma.LZMAError, StopIteration):
        head = b""
        for chunk in _inflated(path, "an archive"):
            head += chunk
            if len(head) >= 512:
                break
        if len(head) < 512:
            return False
        with contextlib.suppress(tarfile.TarError):
            tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape")
            return True
    return False


def _inflated(path: str, name: str) -> Iterator[bytes]:
    with open(untrusted.open_regular(path), "rb") as stream:
        head = stream.read(6)
        stream.seek(0)
        if head.startswith(b"BZh"):
            with bz2.open(stream) as inner:
                yield from iter(lambda: inner.read(_CHUNK), b"")
        elif head.startswith(b"\xfd7zXZ\0"):
            with lzma.open(stream) as inner:
                yield from iter(lambda: inner.read(_CHUNK), b"")
        else:
            yield from inflate(iter(lambda: stream.read(_CHUNK), b""), name=name)


def _unpacked(step: Instruction, work: Work, path: str, name: str) -> Source:
    """The content of an archive, as one directory."""
    folder = work.folder("archive")
    folder.mkdir()
    if not is_archive(path):
        raise step.fault(f"{name} is not a tar archive", remedy="remove --unpack")
    try:
        unpack(_inflated(path, name), folder, name=name, limits=Limits(), recipe=None)
    except (EOFError, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ImageError(f"{name} is damaged: {error}", remedy="copy or download the archive again") from None
    files = Files([folder], name=f"the archive {name}")
    return Source(files=files, items=tuple(files.select("/")))


# URLs.


def _is_remote(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _downloaded(step: Instruction, work: Work, url: str, checksum: str) -> tuple[Path, str]:
    """A directory with the file of a URL. A file with a checksum is kept, and not downloaded again."""
    name = posixpath.basename(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
    if not name or name in (".", "..") or "\0" in name or "/" in name:
        raise step.fault(f"{url[:80]} names no file", remedy="use a URL that ends in a file name")
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
            f"{url[:120]} does not match its checksum",
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
                    raise ImageError(f"{url[:120]} is larger than {_LARGEST_DOWNLOAD:,} bytes")
                work.reporter.bytes(f"downloading {path.name}", done, total)
            moment = answer.headers.get("Last-Modified")
            length = answer.headers.get("Content-Length")
    except _NO_ANSWER as error:
        reason = getattr(error, "reason", error)
        if isinstance(error, urllib.error.HTTPError):
            reason = f"HTTP {error.code} {error.reason}"
        raise ImageError(
            f"{url[:120]} cannot be downloaded: {reason}",
            remedy="check the URL and the network; proxies are read from https_proxy",
        ) from None
    if length is not None and done != int(length):
        raise ImageError(f"{url[:120]} ended after {done:,} of {int(length):,} bytes", remedy="build again")
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        at = parsedate_to_datetime(moment).timestamp() if moment else 0.0
        os.utime(path, (at, at))


# Git.


def _cloned(step: Instruction, work: Work, url: str, checksum: str) -> Source:
    """A commit of a repository, by the git of this machine."""
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
            f"{url[:80]!r} is not a repository", remedy="ADD https://HOST/NAME.git#BRANCH /target"
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
                f"git cannot fetch {address[:120]}",
                context=outcome.stderr.strip(),
                remedy="check the URL and the branch",
            )
    commit = outcome.stdout.strip()
    if checksum and not commit.startswith(checksum):
        raise ImageError(
            f"{address[:120]} is not at the commit {checksum[:64]}",
            context=f"found {commit}",
            remedy=f"--checksum={commit}",
        )
    if not step.switch("keep-git-dir"):
        from bareboat.files.trees import remove_tree

        remove_tree(folder / ".git")
    files = Files([folder], name=f"the repository {address}")
    return Source(files=files, items=tuple(files.select(inner or "/")))


#: git gives files the modes that the umask leaves them, which are then in the image.
_GIT_COMMAND = ("sh", "-c", 'umask 022 && exec git "$@"', "git")
#: How git reaches a server. All else that begins with GIT_ may name another repository, which checkout
#: would change.
_GIT_KEPT = (
    "GIT_SSH", "GIT_SSL_", "GIT_HTTP_", "GIT_PROXY_", "GIT_ASKPASS", "GIT_ALLOW_PROTOCOL",
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH",
)  # fmt: skip


def _git_environment(folder: Path) -> dict[str, str]:
    """Only the repository in this directory, whatever the user's environment names."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_GIT_KEPT)
    }
    own = {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}
    return {**kept, **own, "GIT_TERMINAL_PROMPT": "0"}
