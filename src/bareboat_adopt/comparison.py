"""What two executions of one job did: exit codes, wall time, output and files. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from bareboat_base.printable import counted, one_line

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
#: Lines and files that the text names, of each kind.
_MOST_SHOWN = 3


class Execution(NamedTuple):
    """`exit_code`: None if nobody knows it; `wall_s`: without the wait in a queue, None if unknown; `files`:
    those that it wrote, with digests of their content, None if there are too many to compare."""

    exit_code: int | None
    wall_s: float | None
    output: str
    files: Mapping[str, str] | None

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in re.split(r"[\r\n]+", self.output) if line.strip()]

    def facts(self) -> dict[str, Any]:
        last = self.lines[-1] if self.lines else ""
        files = None if self.files is None else sorted(self.files)
        return {"exit_code": self.exit_code, "wall_s": self.wall_s, "lines": len(self.lines),
                "last_line": last, "files": files}  # fmt: skip


class Comparison(NamedTuple):
    """An old script, and a job file whose run is `run`."""

    old: Execution
    job: Execution
    run: str

    @property
    def agrees(self) -> bool:
        """Both succeed, or both fail."""
        return (self.old.exit_code == 0) == (self.job.exit_code == 0)

    def facts(self) -> dict[str, Any]:
        return {"agrees": self.agrees, "old": self.old.facts(), "job": {**self.job.facts(), "run": self.run},
                "differences": self.differences()}  # fmt: skip

    def rows(self) -> list[tuple[str, ...]]:
        """A table."""
        columns = []
        for each in (self.old, self.job):
            columns.append((
                "unknown" if each.exit_code is None else str(each.exit_code),
                "unknown" if each.wall_s is None else f"{each.wall_s:.1f} s",
                str(len(each.lines)),
                one_line(each.lines[-1], limit=30) if each.lines else "-",
                "not compared" if each.files is None else str(len(each.files)),
            ))  # fmt: skip
        names = ("exit code", "wall time", "lines printed", "last line", "files written")
        return [("", "old script", "job file"), *zip(names, *columns, strict=True)]

    def differences(self) -> list[str]:
        """What differs, in sentences; wall times always do."""
        return [*self._end(), *self._output(), *self._files()]

    def _end(self) -> list[str]:
        codes = ["unknown" if each.exit_code is None else str(each.exit_code) for each in self[:2]]
        if self.agrees and self.old.exit_code == 0:
            return []
        if self.agrees:
            return [f"both failed: the old script with exit code {codes[0]}, the job with {codes[1]}"]
        if self.job.exit_code == 0:
            return [f"the old script failed with exit code {codes[0]}; the job did not"]
        return [f"the job failed with exit code {codes[1]}; the old script did not"]

    def _output(self) -> list[str]:
        """Lines in any order, since ranks print at the same time; then those whose numbers differ."""
        old, job = Counter(self.old.lines), Counter(self.job.lines)
        partners: defaultdict[str, list[str]] = defaultdict(list)
        for line in (job - old).elements():
            partners[_NUMBER.sub("#", line)].append(line)
        pairs, only_old = [], []
        for line in (old - job).elements():
            if others := partners[_NUMBER.sub("#", line)]:
                pairs.append(f"{one_line(line, limit=100)}\n  {one_line(others.pop(0), limit=100)}")
            else:
                only_old.append(one_line(line, limit=100))
        only_job = [one_line(line, limit=100) for lines in partners.values() for line in lines]
        return [
            text
            for lines, what in (
                (pairs, f"with other numbers; {(old & job).total()} equal"),
                (only_old, "of the old script only"),
                (only_job, "of the job only"),
            )
            if lines
            for text in (f"{counted(len(lines), 'line')} {what}", *(f"  {x}" for x in lines[-_MOST_SHOWN:]))
        ]

    def _files(self) -> list[str]:
        old, job = self.old.files, self.job.files
        if old is None or job is None:
            return []
        kinds = {
            "written by the old script only": old.keys() - job.keys(),
            "written by the job only": job.keys() - old.keys(),
            "with other content": {name for name in old.keys() & job.keys() if old[name] != job[name]},
        }
        return [
            f"{counted(len(names), 'file')} {kind}: {one_line(', '.join(sorted(names)[:_MOST_SHOWN]))}"
            for kind, names in kinds.items()
            if names
        ]
