"""Named results that the ranks of a run reported (`Meter.result`): ranks/results/RANK of its directory."""

from __future__ import annotations

from pathlib import Path

from bareboat.model import kept_result
from bareboat.model.record import NotFinite
from bareboat.runs import directory
from bareboat_base.files import untrusted

_MOST_FILES, _MOST_NAMES, _MOST_NAME = 64, 100, 100
#: A result of each of a hundred thousand steps.
_MOST_BYTES = 4 << 20
_MOST_VALUES = 100_000


def read(folder: Path) -> dict[str, float | NotFinite]:
    """The last value of each name; where several ranks report a name, the lowest rank's. Containers write
    these files, so lines that the meter did not write are ignored. `folder`: the run's."""
    return {name: values[-1] for name, values in curves(folder).items()}


def curves(folder: Path) -> dict[str, list[float | NotFinite]]:
    """All values of each name, in the order of the reports, of the lowest rank that reports it."""
    place = folder / directory.RANKS / "results"
    found: dict[str, list[float | NotFinite]] = {}
    files = [path for path in directory.files_of(place, most=_MOST_FILES) if path.name.isdecimal()]
    for path in sorted(files, key=lambda path: int(path.name)):
        try:
            lines = untrusted.read_text(path, limit=_MOST_BYTES).splitlines()
        except OSError:
            continue
        own: dict[str, list[float | NotFinite]] = {}
        for name, value in filter(None, map(_result, lines)):
            if name in own or (name not in found and len(found) + len(own) < _MOST_NAMES):
                own.setdefault(name, []).append(value)
                del own[name][:-_MOST_VALUES]
        found |= own
    return found


def _result(line: str) -> tuple[str, float | NotFinite] | None:
    import json  # few runs report results

    try:
        name, value = json.loads(line)
        number = kept_result(float(value))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    is_one = isinstance(name, str) and 0 < len(name) <= _MOST_NAME and name.isprintable()
    return (name, number) if is_one else None
