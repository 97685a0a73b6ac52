"""Pure: from the evidence of how a run ended to the cause, and the job file key that addresses it.

Order: the scheduler's definite statements, then who cancelled, then the scheduler's lines in the output, then
the run's own last lines. For a signal with an unknown sender, only the signal is reported.
"""

from __future__ import annotations

import re
import signal

from msgspec import Struct

from bareboat.model import Cause, End, JobState, QueueEntry
from bareboat.model.submission import UNHEALTHY
from bareboat.schedulers import Scheduler
from bareboat_base.expressions import expression
from bareboat_base.outcome import signal_of
from bareboat_base.printable import one_line


class Evidence(Struct, frozen=True, kw_only=True):
    """The known facts about a run that failed or was ended from outside.

    `code`: the exit code; `left`: the job script wrote it; `stop`: the signal that ended a run whose code is
    0. `entry`: the scheduler's report. `log`: the end of
    the output; `scheduler_log`: of what the scheduler itself wrote. `cancelled`, `timed_out`: by Bareboat.
    `began`: the script was started; `starts`: how often. `ran_s`: duration of the last start, in seconds.
    `hung`: the watchdog ended it. `is_python`: the command starts Python.
    """

    scheduler: Scheduler
    code: int
    left: bool
    stop: int = 0
    entry: QueueEntry | None = None
    log: str = ""
    scheduler_log: str = ""
    cancelled: bool = False
    timed_out: bool = False
    began: bool = True
    starts: int = 1
    ran_s: int | None = None
    walltime_s: int | None = None
    hung: bool = False
    store: str = ""
    is_python: bool = True


_CAUSES = {
    JobState.OUT_OF_MEMORY: Cause.MEMORY,
    JobState.TIMEOUT: Cause.TIME,
    JobState.NODE_FAIL: Cause.NODE,
    JobState.PREEMPTED: Cause.PREEMPTED,
    JobState.CANCELLED: Cause.CANCELLED,
    JobState.DEPENDENCY: Cause.DEPENDENCY,
}
_STATES = {cause: state for state, cause in _CAUSES.items()}
#: The job script shows the last output of the rank that failed first, indented.
_FIRST = expression(r"bareboat: rank (\d+)( on \S+)? ended first, with exit code \d+(?:; its last output:)?")
#: What launchers and frameworks write before the lines of a rank: ours, PyTorch's, and those of
#: `srun --label`, `torchrun --tee`, `mpirun --tag-output` and `--timestamp-output`, `mpiexec -l` of MPICH,
#: `horovodrun`, ts(1), and time stamps of logs.
_PREFIX = expression(
    r"\A(?:\[rank ?\d+\]:? |\[[a-z]+\d+\]: ?|\d+: |\[(?:[\w.@-]{1,200}@)?\d+(?:,\d+)?\]<std(?:out|err)>: ?"
    r"|\[\d+\] |\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:? ?"
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:\d{4}<std(?:out|err)>: ?)?"
    r"|\d\d:\d\d:\d\d(?:\.\d{1,9})? )+"
)
#: torchrun's table of the ranks that failed names the first one last.
_ROOT_CAUSE = expression(
    r"Root Cause \(first observed failure\):\n\[\d+\]:\n(?:  .*\n)*?  rank +: (\d+) \(local_rank: (\d+)\)\n"
    r"(?:  .*\n)*?  exitcode +: (-?\d+)"
)
_RAISED = expression(r"([A-Za-z_][\w.]*)(?::\s(.*))?")
#: What launchers raise because a rank failed.
_SECONDARY = ("ChildFailedError", "CalledProcessError")
_SAYS = (
    (Cause.GPU_MEMORY, expression(r"CUDA out of memory|HIP out of memory|CUDA_ERROR_OUT_OF_MEMORY")),
    (Cause.QUOTA, expression(r"Disk quota exceeded")),
    (Cause.DISK, expression(r"No space left on device")),
    (
        Cause.MEMORY,
        expression(r"^MemoryError\b|Cannot allocate memory|can't allocate memory|^Out of memory!"),
    ),
)
#: The line with which the job script begins a later start.
_START = r"bareboat: start \d+ on \S+$"
_MISSING = expression(
    r"(?:Read-only file system|No such file or directory|does not exist|cannot open|[Nn]ot found)[^'\"]{0,40}"
    r"['\"]([^'\"\s][^'\"]{0,4000})['\"]|Parent directory (/\S{1,4000}) does not exist"  # of torch.save
)
#: What bash, other shells, and env(1) and its like write of a program that is not on PATH.
_NO_PROGRAM = expression(
    r".{0,4000}: (?:line \d+: ([\w.+-]+): command not found|\d+: ([\w.+-]+): not found"
    r"|['\u2018]([\w.+-]+)['\u2019]: No such file or directory)"
)
#: The number of last lines searched for a reason.
_LAST_LINES = 5
#: The number of last lines that may follow an exception after which nothing went on: of other ranks, and of
#: the scheduler.
_LAST_WAITING = 10
#: Exit codes of the job script -> their meaning.
_SCRIPT = {
    3: (
        Cause.EXIT_CODE,
        expression(
            r"bareboat: (.* does not exist( on \S+)?(: .*)?|.*; no image is copied there"
            r"|module load .* failed( on \S+)?|the program started ranks itself in .*)"
        ),
    ),
    UNHEALTHY: (Cause.UNHEALTHY, expression(r"bareboat: the job is not started: (.*)")),
    70: (Cause.NODE, expression(r"bareboat: (a node was lost: .*|this job lost its nodes .*)")),
}


def find(evidence: Evidence) -> End | None:
    """The cause of a failure; None for a run that succeeded."""
    if evidence.code == 0 and not evidence.stop:
        return None
    cause, text = _find(evidence)
    if not evidence.began:
        text += "; the job script was never started"
    key, remedy = _remedy(cause, evidence)
    return End(state=_state(cause, evidence), cause=cause, text=text, key=key, remedy=remedy)


def _find(evidence: Evidence) -> tuple[Cause, str]:
    title = evidence.scheduler.TITLE
    entry, code = evidence.entry, evidence.code
    said = f"{title} reports {entry.state.value}" if entry is not None else ""
    if entry is not None and entry.reason:
        said += f" ({one_line(entry.reason)})"
    mark = _mark(evidence)
    if (evidence.hung or _is_over_time(evidence)) and (raised := _left_waiting(evidence)):
        return Cause.EXCEPTION, f"{raised}; the run then waited until it was ended"
    if evidence.hung:
        return Cause.HUNG, "no rank printed or reported anything"
    if evidence.timed_out:
        return Cause.TIME, f"Bareboat ended the run after the job's walltime_s of {evidence.walltime_s} s"
    if evidence.cancelled and (entry is None or _CAUSES.get(entry.state) in (None, Cause.CANCELLED)):
        before = f"; before that, {title} wrote: {mark[1]}" if mark is not None else ""
        return Cause.CANCELLED, "by bareboat cancel" + before
    if entry is not None and (cause := _CAUSES.get(entry.state)) not in (None, Cause.CANCELLED):
        assert cause is not None
        return cause, said + (f"; it wrote: {mark[1]}" if mark is not None and mark[0] is cause else "")
    if mark is not None:
        if mark[0] is Cause.MEMORY and evidence.left and code not in (1, *range(128, 256)):
            # Only one of the processes may have been killed, and the command exited by itself.
            return Cause.EXIT_CODE, f"exit code {code}; before that, {title} wrote: {mark[1]}"
        return mark[0], f"{title} wrote: {mark[1]}"
    if entry is not None and entry.state is JobState.CANCELLED:
        return Cause.CANCELLED, f"not by Bareboat: {said}"
    if not evidence.began:
        return Cause.NEVER_STARTED, said or "only the exit code is known"
    number = evidence.stop or (signal_of(code) if evidence.left else 0)
    number = number or (entry.signal if entry is not None and not evidence.left else 0)
    if (found := _script(evidence) or _own_words(evidence, is_killed=number != 0)) is not None:
        return found
    if number:
        return _by_signal(number, evidence, said)
    if not evidence.left:
        return Cause.EXIT_CODE, f"the job script wrote no exit code; {said}"
    root = _ROOT_CAUSE.search(evidence.log)
    of_rank = f": rank {root[1]} failed first, with exit code {root[3]}" if root else ""
    return Cause.EXIT_CODE, f"the command exited with {code}{of_rank}"


def _is_over_time(evidence: Evidence) -> bool:
    return evidence.timed_out or (evidence.entry is not None and evidence.entry.state is JobState.TIMEOUT)


def _left_waiting(evidence: Evidence) -> str:
    """The exception at the end of the output of a run that then waited until its time was over: the ranks
    that did not fail wait for the one that did. "" for none."""
    lines = [line for line in evidence.log.splitlines() if line.strip()]
    plain = [_PREFIX.sub("", line) for line in lines]
    raised = _exception(plain)
    if raised is None or raised not in plain[-_LAST_WAITING:]:
        return ""
    at = len(plain) - 1 - plain[::-1].index(raised)
    rank = re.match(r"\[rank ?(\d+)\]", lines[at])
    return (f"rank {rank[1]}: " if rank else "") + one_line(raised)


def _state(cause: Cause, evidence: Evidence) -> JobState:
    if cause is Cause.EXCEPTION and _is_over_time(evidence):
        return JobState.TIMEOUT
    if cause in _STATES:
        return _STATES[cause]
    if not evidence.left and evidence.entry is not None and evidence.entry.state is JobState.COMPLETED:
        return JobState.COMPLETED
    return JobState.FAILED


def _mark(evidence: Evidence) -> tuple[Cause, str] | None:
    """The scheduler's line about why it ended the job's last start."""
    lines = [*_of_last_start(evidence, evidence.scheduler_log), *_of_last_start(evidence, evidence.log)]
    found: list[tuple[Cause, str]] = []
    for line in lines:
        for mark in evidence.scheduler.MARKS:
            if re.match(mark.pattern, line):
                found.append((_CAUSES[mark.state], one_line(line.strip())))
    # Schedulers may also write "cancelled" after the actual reason.
    reasons = [each for each in found if each[0] is not Cause.CANCELLED]
    # The first of several lines has the numbers.
    return next((each for each in reasons if each[0] is reasons[-1][0]), None)


def _of_last_start(evidence: Evidence, log: str) -> list[str]:
    """The lines of a log about the last start, below the line in which the script or the scheduler announces
    it."""
    lines = log.splitlines()
    if evidence.starts == 1:
        return lines
    notices = [each for each in (_START, evidence.scheduler.RESTART) if each]
    old = [number for number, line in enumerate(lines) if any(re.match(each, line) for each in notices)]
    return lines[old[-1] + 1 :] if old else []


def _script(evidence: Evidence) -> tuple[Cause, str] | None:
    """Why the job script itself ended the run, from the end of the output."""
    if evidence.code not in _SCRIPT:
        return None
    cause, pattern = _SCRIPT[evidence.code]
    for line in reversed(evidence.log.splitlines()[-_LAST_LINES:]):
        if (found := pattern.fullmatch(line)) is not None:
            return cause, one_line(found[1])
    return None


def _own_words(evidence: Evidence, *, is_killed: bool) -> tuple[Cause, str] | None:
    """A full disk, lack of memory or an exception, from the output of the first rank that failed."""
    lines = _first_failed(evidence.log.splitlines())
    raised = None if is_killed or evidence.code != 1 else _exception(lines)
    last = [line for line in lines if line.strip()][-_LAST_LINES:]
    for line in [raised] if raised else [] if is_killed else reversed(last):
        for cause, pattern in _SAYS:
            if pattern.search(line):
                return cause, f"the output ends with: {one_line(line.strip())}"
    found = list(filter(None, map(_FIRST.fullmatch, evidence.log.splitlines())))
    rank = f"; rank {found[-1][1]}{found[-1][2] or ''} ended first" if found else ""
    return (Cause.EXCEPTION, one_line(raised) + rank) if raised else None


def _first_failed(lines: list[str]) -> list[str]:
    """The lines of the first rank that failed, without their prefix; all lines where it is unknown."""
    at = next((n for n in range(len(lines) - 1, -1, -1) if _FIRST.fullmatch(lines[n])), None)
    if at is None:
        return [_PREFIX.sub("", line) for line in _of_root_cause(lines) or lines]
    found = _FIRST.fullmatch(lines[at])
    assert found is not None
    before = re.compile(rf"\[rank {found[1]}\] |0*{found[1]}: ")  # of `srun --label`
    own = [line for line in lines if before.match(line)]
    if not own and found[0].endswith(":"):
        lines = [line[2:] for line in lines[at + 1 :] if line[:2] == "  "]
    return [_PREFIX.sub("", line) for line in own or lines]


def _of_root_cause(lines: list[str]) -> list[str]:
    """The lines of the rank that torchrun names as the first one that failed."""
    root = _ROOT_CAUSE.search("\n".join(lines))
    if root is None:
        return []
    before = (f"[rank{root[1]}]:", f"[rank {root[1]}]", f"[default{root[2]}]:")
    return [line for line in lines if line.startswith(before)]


def own_error(log: str) -> str:
    """The exception of the rank that failed first, from the end of an output; "" without one."""
    return one_line(_exception(_first_failed(log.splitlines())) or "")


def _exception(lines: list[str]) -> str | None:
    """The last line of the last traceback: TYPE: MESSAGE."""
    found = None
    heading = False
    for line in lines:
        if line.startswith("Traceback (most recent call last):"):
            heading = True
        elif heading and line and not line[0].isspace():
            heading = False
            raised = _RAISED.fullmatch(line)
            if raised is not None and raised[1].rpartition(".")[2] not in _SECONDARY:
                found = line
    return found


def missing_path(end: End) -> str | None:
    """The file that a program did not find, by its exception."""
    found = _MISSING.search(end.text) if end.cause is Cause.EXCEPTION else None
    return None if found is None else found[1] or found[2]


def missing_program(evidence: Evidence) -> str | None:
    """The program that a shell or env(1) did not find, by the end of the output."""
    if evidence.code != 127:
        return None
    for line in _first_failed(evidence.log.splitlines())[-_LAST_LINES:]:
        if (found := _NO_PROGRAM.fullmatch(line)) is not None:
            return found[1] or found[2] or found[3]
    return None


def _by_signal(number: int, evidence: Evidence, said: str) -> tuple[Cause, str]:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "real-time"
    if number == signal.SIGINT:
        return Cause.CANCELLED, "interrupted"
    text = f"{'exited with 0 on' if evidence.stop else 'terminated by'} signal {number} ({name})"
    if evidence.ran_s is not None:
        text += f" after {evidence.ran_s} s"
        if (
            evidence.walltime_s is not None
            and number in (9, 15, 10)
            and evidence.ran_s >= evidence.walltime_s
        ):
            return Cause.TIME, f"{text}, past the job's walltime_s of {evidence.walltime_s} s"
    if number == signal.SIGSEGV:
        text += ": an invalid access to memory in the program or one of its libraries"
    if number in (9, 15):
        text += "; sender unknown" + (f": {said}" if said else "")
    return Cause.SIGNAL, text


def _remedy(cause: Cause, evidence: Evidence) -> tuple[str, str]:
    match cause:
        case Cause.MEMORY:
            return evidence.scheduler.MORE_MEMORY
        case Cause.GPU_MEMORY:
            return "", "a smaller batch, or GPUs with more memory: constraint under [scheduling]"
        case Cause.TIME:
            return (
                "walltime_s",
                "a larger walltime_s, or warning_s under [scheduling] and exit code 75 to go on later",
            )
        case Cause.NODE | Cause.PREEMPTED:
            return (
                "scheduling.requeue",
                "requeue = true under [scheduling], with checkpoints; or submit again",
            )
        case Cause.DEPENDENCY:
            return "scheduling.after", "run the job that failed again, then submit this one again"
        case Cause.NEVER_STARTED:
            return "", f"bareboat doctor --compute   # checks that the nodes see {evidence.store}"
        case Cause.HUNG:
            return "scheduling.watchdog_s", ""
        case Cause.UNHEALTHY:
            return "health", 'other nodes, or health = "report" to start all the same'
        case Cause.DISK:
            return "", "df -h and df -i where the job writes; remove files, or write to another file system"
        case Cause.SIGNAL if signal_of(evidence.code) == signal.SIGSEGV and evidence.is_python:
            return "environment", 'PYTHONFAULTHANDLER = "1" under [environment]: Python then prints where'
        case Cause.QUOTA:
            return "", "quota -s; remove files, or write to another file system"
        case _:
            return "", ""
