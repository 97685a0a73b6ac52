"""Pure: the remedies of errors, which name commands and flags, as what a Python program writes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

#: The calls of the commands that have one, by their verb. Each takes the command's arguments.
_CALLS: Mapping[str, Callable[..., str]] = {
    "cancel": lambda run: f"bareboat.Run.find({run!r}).cancel()",
    "image capture": lambda: "bareboat.capture()",
    "image pull": lambda reference: f"bareboat.pull({reference!r})",
    "logs": lambda run: f"print(bareboat.Run.find({run!r}).log())",
    "plan": lambda job: "print(job.plan())" if job == "JOB" else f"print(bareboat.Job.read({job!r}).plan())",
    "report": lambda study: f"bareboat.Study.find({study!r})",
    "status": lambda run: f"bareboat.Run.find({run!r}).status()",
    "status --all": lambda: "bareboat.Run.all()",
    "wait": lambda run: f"bareboat.Run.find({run!r}).wait()",
}


def in_python(remedy: str) -> str:
    """The remedy as a call of the Python API, or as a command of a shell where there is none."""
    if remedy.startswith("--"):
        name, blank, rest = remedy[2:].partition(" ")
        return f"{name.replace('-', '_')}{'=' * bool(blank)}{rest}"
    if not remedy.startswith("bareboat "):
        return remedy
    command, _, comment = remedy.partition("   # ")
    call = _call(shlex.split(command)[1:]) if _is_one(command) else None
    if call is None:
        return f"in a shell: {remedy}"
    return f"{call}   # {comment}" if comment and "bareboat " not in comment else call


def _is_one(command: str) -> bool:
    """Whether the text is one command, without a sentence around it."""
    try:
        return not any(word[-1:] in (",", ";", "…") or word == "&&" for word in shlex.split(command))
    except ValueError:
        return False


def _call(words: Sequence[str]) -> str | None:
    for count in (2, 1):
        call = _CALLS.get(" ".join(words[:count]))
        if call is not None and len(words) - count == call.__code__.co_argcount:
            return call(*words[count:])
    return None
