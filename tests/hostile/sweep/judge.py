"""Whether an answer to a bad invocation is good: it fails at once, says what is wrong and what to do, and
leaves nothing behind."""

import json
import re

from hostile.sweep.invocations import Case
from hostile.sweep.worker import Answer

from bareboat.model.job import KEYS

#: Invocations that look bad and are right to succeed: a pattern of their titles, and the reason.
RIGHT = {
    r"flag: config( trust)? --store: .*": "these verbs open no store; config shows where it would be",
    r"variable: (a relative HOME|HOME is (a file|missing))": "config opens nothing; it shows what it would",
    r"(flag|job key): .*node.scratch: (a device|the way up)": "a path on the nodes, not on this machine",
    r"positional: config trust DIR: a directory": "a directory is trusted as a store",
    r"job key: name: (a path|a slash)": "any text; only its letters and digits go into a run's name",
    r"job key: scheduling\.after: no job": "submit looks the jobs up, plan does not ask the scheduler",
    r"job key: prove\.seed: .*": "every whole number is a seed",
    r"job key: scheduling\.mem_per_node_bytes: 10\^12": "there are nodes with 1 TB of memory",
    r"flag: lock --data: a directory": "the checksum of a directory covers everything below it",
    r"flag: image (pull|load) --max-(unpacked|entries): thirty digits": "a limit that nothing reaches",
}
#: The same where a scheduler is installed whose answers cannot be understood: its nodes may suit the job.
RIGHT_FOR_NODES = (
    r"conflict: plan a missing program",
    r"job key: file: (two nodes here|a GPU that is not here)",
)
#: What an invocation may leave: a pattern of the paths, and the reason.
MAY_STAY = {
    r"store/programs\b": "bwrap for compute nodes, copied once for all jobs",
    r"store/facts\b": "what is known of engines and MPIs on this machine",
    r"store/(flat|roots)\b": "an image's tree with a job's mount points, made once",
}

#: Said first, since nothing that comes after could be done.
_ELSEWHERE_FIRST = "no scheduler found on this machine"
_MAY_BE_SUBMITTED = "the job may or may not have been submitted"

_MOST_BYTES = 8000
_LONGEST_LINE = 2500
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]")
#: Texts of msgspec and Python, which say nothing of what is allowed. Below a message of
#: ours the system's own error may stand.
_BORROWED = re.compile(
    r"[Ee]xpected `|got `|Object contains|Object missing|^\w+: \[Errno|codec can't|usage: "
)


def faults(
    case: Case, answer: Answer, *, may_succeed: bool = False, elsewhere: bool = False, mute: bool = False
) -> list[str]:
    """What is wrong with the answer, each as a few words by which answers are grouped. `may_succeed`: the
    invocation itself is right. `elsewhere`: the surroundings are bad, too, and the message may be about
    them. `mute`: stderr was closed."""
    if answer.code is None:
        return ["does not end within 10 s"]
    if answer.code < 0:
        return [f"is ended by signal {-answer.code}"]
    error = answer.err.decode("utf-8", "replace")
    found = []
    if "Traceback (most recent call last)" in error:
        found.append("a traceback")
    # Podman's own, by which it keeps its user namespace.
    left = {name for each in answer.processes if not (name := each.split()[0]).endswith("/podman")}
    if left:
        found.append(f"leaves processes: {', '.join(sorted(left))}")
    if may_succeed and answer.code == 0:
        return found
    is_right = any(re.fullmatch(pattern, case.title) for pattern in (*RIGHT, *(RIGHT_FOR_NODES * elsewhere)))
    if answer.code == 0 and is_right:
        return found
    # What was asked for may be done when its result cannot be written; a job that may exist needs its files.
    may_leave = may_succeed or (elsewhere and (is_right or _MAY_BE_SUBMITTED in error))
    if not may_leave and [path for path in answer.changes if not _may_stay(path)]:
        found.append("leaves files")
    if answer.code == 0:
        return [*found, "succeeds"]
    if answer.code == 70:
        return [*found, f"exit code 70: {_subject(error)}"]
    if mute or (may_succeed and answer.out):  # a result, such as what doctor finds
        return found
    message, _, remedy = error.rpartition("\n  try: ")
    if not remedy.strip():
        found.append("no remedy")
    elif remedy.strip() in message and len(remedy) * 2 > len(message):
        found.append("the remedy repeats the message")
    if answer.out and not _is_json(answer.out):
        found.append("writes to stdout")
    if borrowed := _BORROWED.search(error):
        found.append(f"words of a library: {borrowed[0]}")
    flag = re.search(r"(--[a-z-]+): (?!misspelled)", case.mistake) if case.kind == "flag" else None
    names = next(
        (key.flags for key in KEYS.values() if flag and flag[1] in key.flags), flag and flag.groups()
    )
    if (
        names
        and not any(name in error for name in names)
        and not (may_succeed or elsewhere or _ELSEWHERE_FIRST in error)
    ):
        found.append("does not name the flag")
    if case.named and not (may_succeed or elsewhere) and not any(word in error for word in case.named):
        found.append("does not name what is wrong")
    if answer.err_bytes > _MOST_BYTES or max(map(len, error.splitlines()), default=0) > _LONGEST_LINE:
        found.append("too long")
    if _CONTROL.search(error):
        found.append("control characters")
    return found


def _may_stay(path: str) -> bool:
    return any(re.match(pattern, path) for pattern in MAY_STAY)


def _subject(error: str) -> str:
    """An unexpected error without its paths and numbers."""
    found = re.search(r"unexpected (\w+: .*)", error)
    return re.sub(r"'[^']*'?|/\S+|\d+", "_", found[1])[:80] if found else "?"


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
