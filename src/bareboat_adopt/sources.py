"""The old job in a directory, or the named file: a script, a Dockerfile, or a definition file."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import NamedTuple

from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line

_LARGEST = 4 << 20
_DIRECTIVE = re.compile(r"^#(SBATCH|PBS|BSUB|flux:|FLUX:|\$\s*-)[ \t]", re.MULTILINE)
_STARTS = re.compile(
    r"^[^#\n]*\b(srun|mpirun|mpiexec|torchrun|horovodrun|deepspeed|accelerate launch|torch\.distributed\."
    r"|(singularity|apptainer) (exec|run)|(docker|podman|udocker) run)\b", re.MULTILINE
)  # fmt: skip
_SCRIPTS = (
    ".sh",
    ".bash",
    ".slurm",
    ".sbatch",
    ".slm",
    ".pbs",
    ".job",
    ".sge",
    ".lsf",
    ".batch",
    ".submit",
    "",
)
_DEFINITION = re.compile(r"^\s*bootstrap\s*:", re.IGNORECASE | re.MULTILINE)
_DOCKERFILE = re.compile(r"^\s*FROM\s+\S", re.IGNORECASE | re.MULTILINE)
_RECIPES = re.compile(r"(Dockerfile|Containerfile)(\..*)?|Singularity(\..*)?|Apptainer(\..*)?|.*\.def")
_MOST = 500


class Source(NamedTuple):
    """`kind`: "script", "Dockerfile" or "definition file"; `recipes`: those beside it; `others`: further
    candidates of the directory."""

    path: Path
    kind: str
    text: str
    recipes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def choose(named: str, here: Path) -> Source:
    """Raises UsageError where nothing, or no single file, can be the old job."""
    path = Path(os.path.abspath(here / os.path.expanduser(named)))
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            return _source(path)
    except OSError as error:
        raise untrusted.unreadable(named, error) from None
    found: dict[str, list[Source]] = {}
    try:
        entries = sorted(path.iterdir())[:_MOST]
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    for entry in entries:
        if (each := _candidate(entry)) is not None:
            rank = "recipe" if each.kind != "script" else "job" if _DIRECTIVE.search(each.text) else "line"
            found.setdefault(rank, []).append(each)
    recipes = tuple(each.path.name for each in found.get("recipe", []))
    for rank in ("job", "line", "recipe"):
        sources = found.get(rank, [])
        if len(sources) == 1:
            others = tuple(
                each.path.name for kind in ("line",) if rank == "job" for each in found.get(kind, [])
            )
            return sources[0]._replace(recipes=recipes if rank != "recipe" else (), others=others)
        if sources:
            names = [shlex.quote(os.path.join(named, each.path.name)) for each in sources]
            listed = ", ".join(each.path.name for each in sources[:10])
            raise UsageError(
                f"{one_line(named)} has {len(sources)} files that may be the old job: {one_line(listed)}",
                remedy=f"bareboat init --from {names[0]}",
            )
    raise UsageError(
        f"{one_line(named)} has no batch script, no script that starts ranks or containers, no Dockerfile",
        remedy="bareboat init --from FILE, or bareboat init SCRIPT.py",
    )


def _candidate(path: Path) -> Source | None:
    if path.name.startswith(".") or not path.is_file():
        return None
    is_recipe = _RECIPES.fullmatch(path.name) is not None
    if not is_recipe and path.suffix not in _SCRIPTS:
        return None
    try:
        source = _source(path)
    except UsageError:
        return None
    if source.kind == "script" and (
        is_recipe or not (_DIRECTIVE.search(source.text) or _STARTS.search(source.text))
    ):
        return None
    return source


def _source(path: Path) -> Source:
    data = untrusted.read_bytes(path, limit=_LARGEST, follow=True)
    if b"\0" in data:
        raise UsageError(f"{one_line(path.name)} is not a script", remedy="bareboat init --from SCRIPT")
    text = data.decode(errors="surrogateescape")
    if _DEFINITION.search(text) and not _DIRECTIVE.search(text):
        return Source(path, "definition file", text)
    if _RECIPES.fullmatch(path.name) and _DOCKERFILE.search(text) and not text.startswith("#!"):
        return Source(path, "Dockerfile", text)
    if not text.strip():
        raise UsageError(f"{one_line(path.name)} is empty", remedy="bareboat init --from SCRIPT")
    return Source(path, "script", text)
