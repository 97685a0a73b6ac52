"""Run an old job as it is, then its job file, and compare them: `init --from PATH --run`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import bareboat
from bareboat_adopt import amounts
from bareboat_adopt.comparison import Comparison, Execution
from bareboat_adopt.sources import Source
from bareboat_base.errors import UsageError
from bareboat_base.execute.tools import run
from bareboat_base.printable import one_line

#: A job may wait and run for so long, in seconds.
_LONGEST_S = 60 * 86400.0
_START_S = 60.0
#: Files that are checked, and the largest that are read, in bytes.
_MOST_FILES = 20_000
_LARGEST = 64 << 20
#: Of a program's output the end counts.
_MOST_BYTES = 16 << 20
_LOCAL = 'exec bash "$1" >"$2" 2>"$3"'


class _Scheduler(NamedTuple):
    """`submit`: submits a script and waits for its end, with the script's exit code; `ran`: prints how long
    the job ran, where `pattern` finds it."""

    title: str
    submit: tuple[str, ...]
    ran: tuple[str, ...]
    pattern: str


_SCHEDULERS = {
    "slurm": _Scheduler(
        "Slurm", ("sbatch", "--wait", "--parsable", "--output={out}", "--error={err}"),
        ("scontrol", "show", "job", "{job}"), r"RunTime=(\S+)",
    ),
    "pbs": _Scheduler(
        "PBS", ("qsub", "-W", "block=true", "-o", "{out}", "-e", "{err}"),
        ("qstat", "-x", "-f", "{job}"), r"resources_used\.walltime = (\S+)",
    ),
    "gridengine": _Scheduler(
        "Grid Engine", ("qsub", "-sync", "y", "-j", "n", "-o", "{out}", "-e", "{err}"),
        ("qacct", "-j", "{job}"), r"ru_wallclock\s+(\d+)",
    ),
}  # fmt: skip


class Trial:
    """An old job and its job file, before both run."""

    def __init__(self, source: Source, facts: Mapping[str, Any], target: Path) -> None:
        """`facts`: of the job file `target`. Raises UsageError where the old job cannot run here."""
        self._source, self._target = source, target
        self._scheduler = facts["scheduler"]
        if (reason := _obstacle(source, facts)) is not None:
            name = shlex.quote(os.path.relpath(source.path))
            raise UsageError(
                f"{one_line(source.path.name)} cannot run here: {reason}",
                remedy=f"bareboat init --from {name}   # without --run",
            )
        places = [source.path.parent, target.parent / facts.get("workdir", ".")]
        places += [target.parent / each.split(":")[0] for each in facts["mounts"] if each.endswith(":rw")]
        self._places = sorted({Path(os.path.realpath(place)) for place in places})

    def run(self, store: str | None = None) -> Comparison:
        """Run both to their ends. `store`: not the default one. Raises BareboatError where one of them is
        refused."""
        if store is not None:
            os.environ["BAREBOAT_STORE"] = os.path.abspath(store)
        job = bareboat.Job.read(self._target)
        keys = {"scheduler": self._scheduler} if self._scheduler else {}
        job.plan(**keys)  # refused before the old script runs, if it is
        old = self._old()
        before = self._files()
        with _stdout_apart():
            made = job.submit(**keys).wait() if keys else job.run()
        wall_s = None if made.record is None else made.record.wall_s
        return Comparison(old, Execution(made.exit_code, wall_s, _log(made), self._written(before)), made.id)

    def _old(self) -> Execution:
        before, script = self._files(), os.path.realpath(self._source.path)
        with tempfile.TemporaryDirectory(prefix=".bareboat-", dir=self._target.parent) as folder:
            out, err = f"{folder}/out", f"{folder}/err"
            if known := _SCHEDULERS.get(self._scheduler):
                words = [*(word.format(out=out, err=err) for word in known.submit), script]
            else:
                words = ["sh", "-c", _LOCAL, "sh", script, out, err]
            ended = run(words, folder=os.path.dirname(script), timeout_s=_LONGEST_S)
            wall_s: float | None = ended.wall_s
            if known is not None:
                number = re.search(r"\b\d[\w.]*", ended.stdout)
                if number is None:
                    raise UsageError(
                        f"{known.title} did not accept {one_line(self._source.path.name)}",
                        context=one_line(ended.stderr, limit=500),
                        remedy=shlex.join((*known.submit[:1], script)),
                    )
                wall_s = _run_time(known, number[0])
            output = _text(out) + _text(err)
        code = ended.exit_code if ended.exit_code >= 0 else 128 - ended.exit_code
        return Execution(code, wall_s, output, self._written(before))

    def _files(self) -> dict[str, tuple[int, ...]] | None:
        """The files of the job's directories, hidden ones left out; None: too many."""
        found: dict[str, tuple[int, ...]] = {}
        for place in self._places:
            for folder, folders, names in os.walk(place):
                folders[:] = [name for name in folders if not name.startswith(".")]
                for name in names:
                    path = os.path.join(folder, name)
                    with contextlib.suppress(OSError):
                        status = os.lstat(path)
                        found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
                if len(found) > _MOST_FILES:
                    return None
        return found

    def _written(self, before: Mapping[str, tuple[int, ...]] | None) -> dict[str, str] | None:
        after = self._files()
        if before is None or after is None:
            return None
        base = self._target.parent
        return {
            os.path.relpath(path, base): _content(path)
            for path, status in after.items()
            if before.get(path) != status and not os.path.basename(path).startswith(".")
        }


def _obstacle(source: Source, facts: Mapping[str, Any]) -> str | None:
    """Why the old job cannot run here."""
    name, known = facts["scheduler"], _SCHEDULERS.get(facts["scheduler"])
    if source.kind != "script":
        return f"a {source.kind} is an image, and no job"
    if "element" in facts:
        return "it is an array, and --run compares single jobs"
    if name and known is None:
        return f"--run does not submit jobs of {name.upper()}"
    if known is not None and shutil.which(known.submit[0]) is None:
        return f"it is a job of {known.title}, and {known.submit[0]} is not on PATH"
    if facts["modules"]:
        loaded = run(["bash", "-lc", 'module load "$@"', "bash", *facts["modules"]], timeout_s=_START_S)
        if not loaded.ok or "Unable to locate" in loaded.stderr:
            return f"its modules cannot be loaded: {one_line(loaded.stderr)}"
    return None


def _run_time(scheduler: _Scheduler, job: str) -> float | None:
    """Seconds that a job ran, after its end."""
    answer = run([word.format(job=job) for word in scheduler.ran])
    found = re.search(scheduler.pattern, answer.stdout)
    return None if found is None else (amounts.slurm_time if "-" in found[1] else amounts.clock)(found[1])


def _log(made: bareboat.Run) -> str:
    """What the ranks printed, without their numbers before the lines."""
    try:
        return "".join(made.log(rank=n) for n in range(1 if made.record is None else made.record.world_size))
    except bareboat.BareboatError:  # not kept by rank
        return made.log()


def _text(path: str) -> str:
    """The end of an output, which may not exist."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _MOST_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def _content(path: str) -> str:
    """A digest of a file's content; its size where it is large."""
    try:
        size = os.lstat(path).st_size
        if size > _LARGEST or not os.path.isfile(path) or os.path.islink(path):
            return f"{size} bytes"
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        return str(error.strerror)


@contextlib.contextmanager
def _stdout_apart() -> Iterator[None]:
    """Inside, what the job prints goes to stderr: the result goes to stdout."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
